"""From run folders to summaries, on real runs."""

import itertools
import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import forked_cli
import pytest
import tiny_runs

from repro.cluster import preempt
from repro.commands.results import collect
from repro.config.compose import compose, from_yaml, to_yaml
from repro.config.schema import ConfigError
from repro.report import from_run_folders, pool_seeds, same_settings, summaries, write_items
from repro.report.group import Group
from repro.runs import lock, status_file
from repro.train import ending, loop, training

RUN = [
    "data=synthetic",
    "data.image_size=8",
    "data.train_images=64",
    "data.test_images=16",
    "nodes=4",
    "batch_per_node=2",
    "steps=2",
    "density=0.01",
    "density_warmup=[]",
    "probe_steps=[2]",
    "wandb.mode=disabled",
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """gTop-k with two seeds and the butterfly with one, 4 ranks, 2 steps."""
    from repro.timing.before_run import before_a_run
    from repro.train import loop

    folder = tmp_path_factory.mktemp("runs")
    for config in compose([*RUN, "algo=gtopk", "seed=0,1", f"results={folder}"]) + compose(
        [*RUN, "algo=gtopk_butterfly", f"results={folder}"]
    ):
        loop.run(config, before_a_run)
    return folder


@pytest.fixture(scope="module")
def groups(runs: Path) -> dict[str, Group]:
    collected, left_out = from_run_folders.collect(runs)
    assert left_out == [] and list(collected) == ["default"]
    found = [Group(**group) for group in collected["default"]["groups"]]
    return {group.algo: group for group in found}


def test_seeds_make_a_mean_and_a_deviation(runs: Path, groups: dict[str, Group]) -> None:
    two, one = groups["gtopk"], groups["gtopk_butterfly"]
    assert (two.seeds, two.n, one.seeds) == ([0, 1], 2, [0])
    losses = [
        json.loads(line)["test_loss"]
        for name in two.runs
        for line in (runs / "default" / name / "metrics.jsonl").read_text().splitlines()
        if '"eval"' in line
    ]
    assert len(two.seed_accuracies) == 2 and one.seed_accuracies == []
    assert [sum(values) / 2 for values in zip(*two.seed_accuracies, strict=True)] == pytest.approx(
        [row["test_accuracy"] for row in two.curve]
    )
    assert two.curve[-1]["test_loss"] == pytest.approx(sum(losses) / 2, rel=1e-5)
    assert two.curve[-1]["test_loss_std"] == pytest.approx(abs(losses[0] - losses[1]) / 2**0.5, rel=1e-4)
    assert one.curve[-1]["test_loss_std"] is None
    assert two.time is not None and two.machine["versions"]["torch"]


def test_seeds_of_an_algorithm_that_draws_are_pooled_too(tmp_path: Path) -> None:
    """Its own seed follows the run's, and kept every run of random-k, QSGD and PowerSGD apart: n was 1."""
    words = [text for text in RUN if not text.startswith(("steps", "probe_steps"))]
    for config in compose([*words, "steps=1", "algo=randomk", "seed=0,1", f"results={tmp_path}"]):
        assert config.algo.options["seed"] == config.seed
        loop.run(config)
    (group,) = from_run_folders.collect(tmp_path)[0]["default"]["groups"]
    assert group["seeds"] == [0, 1]
    for config in compose([*words, "steps=1", "algo=randomk", "seed=1", "algo.seed=0,1", f"results={tmp_path}"]):
        loop.run(config)
    found, left_out = from_run_folders.collect(tmp_path)
    assert sorted(group["seeds"] for group in found["default"]["groups"]) == [[0, 1], [1]] and left_out == []
    own = compose(["algo=qsgd", "seed=1,2", "algo.seed=7"])
    assert [config.of_seed(0).algo.options["seed"] for config in own] == [7, 7], "one that was typed"
    assert "seed" not in compose(["algo=topk", "seed=3"])[0].of_seed(0).algo.options
    assert ending.varied(compose(["algo=qsgd", "seed=0,1"])) == ["algo", "seed"]
    assert ending.varied(compose(["algo=qsgd", "algo.seed=0,1"])) == ["algo", "algo.seed"]


def test_a_seed_whose_images_gave_it_a_folder_of_its_own_is_pooled(runs: Path, tmp_path: Path) -> None:
    """Where a folder holds a run on other images, a run's settings have `data.fingerprint`, and other seeds' do not."""
    for place in (runs / "default").glob("*gtopk-*"):
        copy = Path(shutil.copytree(place, tmp_path / "default" / place.name))
        said = json.loads((copy / "provenance.json").read_text())
        (copy / "provenance.json").write_text(json.dumps(said | {"fingerprint": "abc"}))
        config = from_yaml(copy / "config.yaml")
        if config.seed == 1:
            config = replace(config, data=replace(config.data, fingerprint="abc"))
            (copy / "config.yaml").write_text(to_yaml(config))
            copy.rename(copy.with_name(config.run_id))
    (found,) = from_run_folders.collect(tmp_path)[0]["default"]["groups"]
    assert (found["seeds"], found["fingerprint"]) == ([0, 1], "abc")
    old = found | {"settings": found["settings"] | {"data": found["settings"]["data"] | {"fingerprint": "abc"}}}
    assert same_settings.identity(old) == same_settings.identity(found)


def test_the_probe_counts_what_is_lost(groups: dict[str, Group]) -> None:
    """With exact accounting every bit of mass is in the update or in a residual; the paper's rule loses some."""
    (paper,), (exact,) = groups["gtopk"].recorded, groups["gtopk_butterfly"].recorded
    assert exact["lost_mass"] < 1e-5 * exact["selected_mass"]
    assert paper["lost_mass"] > 1e-3 * paper["selected_mass"]
    for record in (paper, exact):
        sent = sum(done[1] * done[4] for own in record["schedule"] for done in own)
        received = sum(done[3] * done[4] for own in record["schedule"] for done in own)
        assert sent == received > 0 and record["kept"] <= record["k"] == 2697


def test_summaries_survive_the_disk(runs: Path, tmp_path: Path, groups: dict[str, Group]) -> None:
    (path,) = summaries.save(from_run_folders.collect(runs)[0], tmp_path)
    text = path.read_text()
    summaries.save(from_run_folders.collect(runs)[0], tmp_path)
    assert path.read_text() == text
    assert [Group(**group).algo for group in json.loads(text)["groups"]] == list(groups)


def pool(there: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    refused = list[str]()
    found = pool_seeds.pool(there, new, refused.append)
    assert refused == []
    return found


def test_two_that_collect_at_once_lose_no_runs(runs: Path, tmp_path: Path) -> None:
    """The later dropped what the earlier had added, and both said that they had written it."""
    for seed in "01":
        for place in (runs / "default").glob(f"*gtopk-*-s{seed}-*"):
            shutil.copytree(place, tmp_path / seed / "default" / place.name)
    out = tmp_path / "out"
    out.mkdir()
    with lock.alone(out):
        both = [forked_cli.start("results", "collect", "--runs", seed, "--out", "out", cwd=tmp_path) for seed in "01"]
        time.sleep(2)
        assert summaries.saved(out) == {} and [one.returncode for one in both] == [None, None]
    said = [one.over() for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    assert [group["seeds"] for group in summaries.saved(out)["default"]["groups"]] == [[0, 1]]


def test_seeds_summarized_apart_make_the_same_summary(runs: Path, tmp_path: Path) -> None:
    """Pooling the summaries of each seed is summarizing the runs of all, in either order."""
    alone = {}
    for seed in (0, 1):
        for place in (runs / "default").glob(f"*gtopk-*-s{seed}-*"):
            shutil.copytree(place, tmp_path / str(seed) / "default" / place.name)
        alone[seed] = from_run_folders.collect(tmp_path / str(seed))[0]["default"]
    (both,) = [
        g for g in from_run_folders.collect(runs)[0]["default"]["groups"] if g["settings"]["algo"]["name"] == "gtopk"
    ]
    for first, second in ((0, 1), (1, 0)):
        (pooled,) = pool(alone[first], alone[second])["groups"]
        (row,), (expected,) = pooled["curve"], both["curve"]
        assert row == pytest.approx(expected, rel=2e-3)  # two values of six digits, and their difference
        for name in ("seeds", "runs", "iteration_time", "seed_accuracies"):
            assert pooled[name] == both[name], name
    old = both | {"seeds": [2, 3], "runs": ["elsewhere", "too"]}
    del old["seed_accuracies"]
    (pooled,) = pool({"groups": [old]}, alone[0])["groups"]
    assert (pooled["seeds"], pooled["seed_accuracies"]) == ([0, 2, 3], []), "an old summary has their mean alone"
    summaries.save({"default": alone[0]}, tmp_path)
    collect(tmp_path / "1", tmp_path, None, add=True)
    assert summaries.saved(tmp_path)["default"]["groups"][-1]["seeds"] == [0, 1]
    assert pool(alone[0], alone[0]) == alone[0], "run again: replaced"
    assert pool({"groups": [both]}, alone[1])["groups"] == [both], "the same run once more: counted once"
    for place in (runs / "default").glob("*gtopk-*-s1-*"):  # beside another seed's run, of a seed that is not yet there
        shutil.copytree(place, tmp_path / "0" / "default" / place.name)
    there = old | {"seeds": [1, 2], "runs": [*alone[1]["groups"][0]["runs"], "elsewhere"]}
    found, left_out = from_run_folders.collect(tmp_path / "0", existing={"default": {"groups": [there]}})
    (new,) = found["default"]["groups"]
    assert new["seeds"] == [0] and "left as it was, pooled with seeds that did not run again" in left_out[0]
    assert [group["seeds"] for group in pool({"groups": [there]}, found["default"])["groups"]] == [[0, 1, 2]]
    elsewhere = there | {"data": "other images"}  # of which a run has the same name
    found, left_out = from_run_folders.collect(tmp_path / "0", existing={"default": {"groups": [elsewhere]}})
    assert found["default"]["groups"] == [both] and not left_out
    assert len(pool({"groups": [elsewhere]}, found["default"])["groups"]) == 2
    (other,) = alone[1]["groups"]
    other = other | {"seeds": [1, 2], "runs": [*other["runs"], "elsewhere"]}
    refused = list[str]()
    assert pool_seeds.pool({"groups": [both]}, {"groups": [other]}, refused.append)["groups"] == [both]
    assert "holds seeds 0, 1 and the runs here are of seeds 1, 2" in refused[0]


def test_runs_go_over_the_groups_of_their_settings_and_no_others(runs: Path, tmp_path: Path) -> None:
    """They took the place of the experiment, with all that was committed for it."""
    for name in ("paper.yaml", "reference_curves.yaml"):
        shutil.copy(summaries.folder() / name, tmp_path)
    collected = from_run_folders.collect(runs)[0]["default"]
    gtopk, butterfly = collected["groups"]
    other = json.loads(json.dumps(gtopk)) | {"runs": ["other"]}
    other["settings"]["density"] = 0.5
    summaries.save({"default": {"groups": [gtopk | {"runs": ["committed"]}, other]}}, tmp_path)
    found = summaries.load(tmp_path, runs).groups("default")
    assert {(group.algo, group.settings["density"], group.runs[0]) for group in found} == {
        ("gtopk", 0.5, "other"),
        ("gtopk", 0.01, gtopk["runs"][0]),
        ("gtopk_butterfly", 0.01, butterfly["runs"][0]),
    }
    assert len(summaries.load(tmp_path).groups("default")) == 2


def test_runs_alone_are_shown_without_anything_committed(runs: Path, tmp_path: Path) -> None:
    """Figures of committed runs were drawn, their baselines replaced; published values alone fill the others."""
    place = tmp_path / "runs"
    shutil.copytree(runs / "default", place / "convergence")
    said: list[str] = []
    assert set(summaries.load(runs=place, alone=True).summaries) == {"convergence"}
    write_items.tables([], place, tmp_path / "tables", said.append, alone=True)
    written = {path.stem for path in (tmp_path / "tables").glob("*.csv")}
    assert "accuracies" in written and not written & {"claims", "speedups", "dilation", "complexities"}
    (line,) = [text for text in said if text.startswith("These runs are not in")]
    assert "claims, " in line and len(said) == 1 + len(written)
    write_items.tables(["claims"], place, tmp_path / "tables", said.append, alone=True)
    assert said[-2].startswith("claims: not run: ") and "Runs without experiment=NAME are in none" in said[-1]


def test_only_finished_runs_count(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there are no runs in it"):
        from_run_folders.collect(tmp_path)
    place = tmp_path / "convergence" / "some-run"
    place.mkdir(parents=True)
    (place / "status.json").write_text('{"state": "running"}')
    assert from_run_folders.collect(tmp_path) == ({}, [f"{place}: running"])


def test_a_run_that_failed_between_two_lines_of_its_status_counts_up_to_its_last_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status is written every two seconds; a run that failed after it was left out, as if steps were missing."""
    settings = [*tiny_runs.QUICK, "nodes=1", "batch_per_node=8", "scale_schedule=false", "epochs=3"]
    run = tiny_runs.config(tmp_path, *settings)
    real, taken = training.train_step, itertools.count()

    def breaks(*arguments: Any) -> Any:
        if next(taken) == 12:
            raise RuntimeError("broken")
        return real(*arguments)

    monkeypatch.setattr(training, "train_step", breaks)
    with pytest.raises(Exception, match="broken"):
        loop.run(run)
    (group,) = from_run_folders.collect(tmp_path, stopped=True)[0]["default"]["groups"]
    assert group["settings"]["epochs"] == 1 and group["curve"][-1]["step"] == 8


def test_a_stopped_run_counts_as_the_shorter_run_that_it_equals(tmp_path: Path, monkeypatch) -> None:
    """One of 4 epochs that is told to stop in its third, and one of 2: the same summary, but for times and names."""
    asked = itertools.count()  # by each of two ranks, every ten of 64 steps and after each of 4 epochs
    monkeypatch.setattr(preempt.Interrupt, "is_set", lambda self: 10 <= next(asked) < 1000)
    settings = [*tiny_runs.QUICK, "nodes=2", "batch_per_node=2", "scale_schedule=false", "algo=gtopk"]
    long = tiny_runs.config(tmp_path / "long", *settings, "epochs=4")
    loop.run(long)
    assert status_file.state(long.folder) == "preempted"
    monkeypatch.undo()
    loop.run(tiny_runs.config(tmp_path / "short", *settings, "epochs=2"))
    found, left_out = from_run_folders.collect(tmp_path / "long")
    assert found == {} and "preempted" in left_out[0]
    (one,) = from_run_folders.collect(tmp_path / "long", stopped=True)[0]["default"]["groups"]
    (other,) = from_run_folders.collect(tmp_path / "short")[0]["default"]["groups"]
    for name in ("settings", "curve", "per_step", "seeds"):
        assert one[name] == other[name]
    shutil.copytree(tmp_path / "short", tmp_path / "long", dirs_exist_ok=True)
    found, left_out = from_run_folders.collect(tmp_path / "long", stopped=True)
    (alone,) = found["default"]["groups"]
    assert alone["seeds"] == [0] and "is the same run, of seed 0" in left_out[0]
    shutil.rmtree(tiny_runs.config(tmp_path / "long", *settings, "epochs=2").folder)
    scaled = tiny_runs.config(tmp_path / "long", *settings, "epochs=4", "scale_schedule=true")
    shutil.copytree(long.folder, scaled.folder)
    (scaled.folder / "config.yaml").write_text(to_yaml(scaled))
    assert "another schedule" in from_run_folders.collect(tmp_path / "long", stopped=True)[1][0]
    loop.run(long)
    (whole,) = from_run_folders.collect(tmp_path / "long")[0]["default"]["groups"]
    assert whole["settings"]["epochs"] == 4
    for put in (pool, same_settings.put_over):  # it replaces its shorter group, and no other run's
        kept = put({"groups": [one, other | {"runs": ["another"]}]}, {"groups": [whole]})["groups"]
        assert sorted(group["runs"] for group in kept) == [["another"], whole["runs"]]
