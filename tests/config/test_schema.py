"""Run ids and folders: which settings make another run, and that those of before are found."""

import dataclasses
from pathlib import Path

from repro.config import parts, schema
from repro.config.compose import compose
from repro.config.schema import Config

BEGUN = ["experiment=convergence", "model=resnet20", "seed=0", "precision=bfloat16", "algo=gtopk"]


def one(*overrides: str) -> Config:
    (config,) = compose([*overrides])
    return config


def test_run_id_changes_with_what_changes_the_result_and_with_nothing_else() -> None:
    base = one("data=imagenet")
    same = one(
        "data=imagenet", "results=elsewhere", "data.root=elsewhere", "data.workers=7", "wandb.mode=disabled",
        "checkpoint_every=3", "checkpoint_epochs=9", "compare_every=1", "evaluate_every=2", "timeout_s=5",
    )  # fmt: skip
    assert base.run_id == same.run_id
    changes: list[dict] = [
        {"seed": 1}, {"nodes": 8}, {"lr": 0.2}, {"steps": 3}, {"precision": "bfloat16"}, {"density": 0.01},
        {"algo": dataclasses.replace(base.algo, selector="sampled")},
        {"algo": dataclasses.replace(base.algo, options={"route": "butterfly", "residual": "paper"})},
        {"network": dataclasses.replace(base.network, alpha_s=1.0)},
        {"cluster": parts.Cluster(name="lab")},
    ]  # fmt: skip
    ids = {base.run_id} | {dataclasses.replace(base, **change).run_id for change in changes}
    assert len(ids) == len(changes) + 1


def test_the_keys_that_change_no_result_are_these() -> None:
    """A run would be "done already" with the result of another one, were one of the others among them."""
    found = {
        f"{place}{f.name}"
        for place, kind in (("", Config), *((f"{name}.", kind) for name, kind in schema.hints_of(Config).items()))
        if dataclasses.is_dataclass(kind)
        for f in dataclasses.fields(kind)
        if not f.metadata.get("result", True)
    }
    assert found == {
        "algo.file", "also_on", "checkpoint_epochs", "checkpoint_every", "cluster.messages", "compare_every",
        "cuda_graph",
        "data.root",
        "evaluate_every", "experiment", "network.name", "probe_steps", "results", "threads", "timeout_s", "tradeoff",
        "tradeoff.alpha_s", "tradeoff.bits_per_s", "tradeoff.node", "wandb", "wandb.entity", "wandb.mode",
        "wandb.project",
    }  # fmt: skip


def test_a_key_added_later_leaves_old_run_ids_alone() -> None:
    before = one()
    later = dataclasses.make_dataclass(
        "Config", [("added_later", float, schema.key(default=0.0))], bases=(Config,), frozen=True, kw_only=True
    )
    values = {f.name: getattr(before, f.name) for f in dataclasses.fields(before)}
    assert later(**values).run_id == before.run_id


def test_a_run_folder_stays_inside_the_results_folder() -> None:
    c = dataclasses.replace(one("results=here"), experiment="../../etc", data=one().data)
    assert c.folder.resolve().is_relative_to(Path("here").resolve())
    odd = dataclasses.replace(c, model=parts.Model(name="../x; rm $(y)"))
    assert odd.folder.resolve().is_relative_to(Path("here").resolve())
    assert set(odd.run_id).isdisjoint("/;$() \n")


def test_a_whole_schedule_is_one_run_scaled_or_not(tmp_path: Path) -> None:
    """The id is that of before for runs without scale_schedule; a run begun with it, as convergence.yaml once had it,
    is found in its folder."""
    config = one(*BEGUN, f"results={tmp_path}")
    scaled = dataclasses.replace(config, scale_schedule=True)
    assert not config.scale_schedule and config.run_id == scaled.run_id
    assert config.folder == scaled.folder == tmp_path / "convergence" / config.run_id
    begun = tmp_path / "convergence" / "resnet20-cifar10-gtopk-d0.001-n4-s0-4f16328b"
    begun.mkdir(parents=True)
    assert config.folder == scaled.folder == begun
    assert one(*BEGUN, "seed=1", f"results={tmp_path}").folder != begun
    assert one(*BEGUN, "epochs=15", f"results={tmp_path}").folder != begun
    (tmp_path / "convergence" / config.run_id).mkdir()
    assert config.folder == scaled.folder == tmp_path / "convergence" / config.run_id


def test_ids_of_whole_runs_are_those_of_before() -> None:
    assert one("model=resnet20", "algo=gtopk").run_id == "resnet20-cifar10-gtopk-d0.001-n4-s0-609842e6"


def test_of_a_part_of_a_schedule_scaling_makes_another_run() -> None:
    assert one("epochs=15").run_id != one("epochs=15", "scale_schedule=true").run_id
