"""From run folders to summaries, on real runs."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from made_up import group

from repro import pool, readme, results, tables
from repro.commands.results import collect
from repro.config import ConfigError, compose

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
    from repro import training

    folder = tmp_path_factory.mktemp("runs")
    for config in compose([*RUN, "algo=gtopk", "seed=0,1", f"results={folder}"]) + compose(
        [*RUN, "algo=gtopk_butterfly", f"results={folder}"]
    ):
        training.run(config)
    return folder


@pytest.fixture(scope="module")
def groups(runs: Path) -> dict[str, results.Group]:
    summaries, left_out = results.collect(runs)
    assert left_out == [] and list(summaries) == ["default"]
    found = [results.Group(**group) for group in summaries["default"]["groups"]]
    return {group.algo: group for group in found}


def test_seeds_make_a_mean_and_a_deviation(runs: Path, groups: dict[str, results.Group]) -> None:
    two, one = groups["gtopk"], groups["gtopk_butterfly"]
    assert (two.seeds, two.n, one.seeds) == ([0, 1], 2, [0])
    losses = [
        json.loads(line)["test_loss"]
        for name in two.runs
        for line in (runs / "default" / name / "metrics.jsonl").read_text().splitlines()
        if '"eval"' in line
    ]
    assert two.curve[-1]["test_loss"] == pytest.approx(sum(losses) / 2, rel=1e-5)
    assert two.curve[-1]["test_loss_std"] == pytest.approx(abs(losses[0] - losses[1]) / 2**0.5, rel=1e-4)
    assert one.curve[-1]["test_loss_std"] is None
    assert two.step_s is not None and two.machine["versions"]["torch"]


def test_an_iteration_is_that_of_the_seed_in_the_middle() -> None:
    def line(source: str, seconds: float) -> dict:
        parts = {"compute_s": 10 - seconds, "compress_s": 0.0, "communicate_s": 3 * seconds}
        return {"kind": "iteration_time", "source": source, "network": "ethernet1g", "nodes": 4, **parts}

    reported = [[line("modelled", x), line("measured", x / 2)] for x in (1.0, 5.0, 2.0)]
    found = results.middle(reported)
    assert [(row["source"], row["compute_s"]) for row in found] == [("modelled", 8.0), ("measured", 9.0)]
    assert results.middle(reported[:2])[0]["compute_s"] == 9.0
    assert [row["source"] for row in results.middle([*reported, [line("measured", 3.0)]])] == ["measured"]
    assert "kind" not in found[0] and found[0]["nodes"] == 4


def test_the_probe_counts_what_is_lost(groups: dict[str, results.Group]) -> None:
    """With exact accounting every bit of mass is in the update or in a residual; the paper's rule loses some."""
    (paper,), (exact,) = groups["gtopk"].recorded, groups["gtopk_butterfly"].recorded
    assert exact["lost_mass"] < 1e-5 * exact["selected_mass"]
    assert paper["lost_mass"] > 1e-3 * paper["selected_mass"]
    for record in (paper, exact):
        sent = sum(done[1] * done[4] for own in record["schedule"] for done in own)
        received = sum(done[3] * done[4] for own in record["schedule"] for done in own)
        assert sent == received > 0 and record["kept"] <= record["k"] == 2697


def test_summaries_survive_the_disk(runs: Path, tmp_path: Path, groups: dict[str, results.Group]) -> None:
    (path,) = results.save(results.collect(runs)[0], tmp_path)
    text = path.read_text()
    results.save(results.collect(runs)[0], tmp_path)
    assert path.read_text() == text
    assert [results.Group(**group).algo for group in json.loads(text)["groups"]] == list(groups)


def test_seeds_summarized_apart_make_the_same_summary(runs: Path, tmp_path: Path) -> None:
    """Pooling the summaries of each seed is summarizing the runs of all, in either order."""
    alone = {}
    for seed in (0, 1):
        for place in (runs / "default").glob(f"*gtopk-*-s{seed}-*"):
            shutil.copytree(place, tmp_path / str(seed) / "default" / place.name)
        alone[seed] = results.collect(tmp_path / str(seed))[0]["default"]
    (both,) = [g for g in results.collect(runs)[0]["default"]["groups"] if g["settings"]["algo"]["name"] == "gtopk"]
    for first, second in ((0, 1), (1, 0)):
        (pooled,) = pool.pool(alone[first], alone[second])["groups"]
        (row,), (expected,) = pooled["curve"], both["curve"]
        assert row == pytest.approx(expected, rel=2e-3)  # two values of six digits, and their difference
        assert {k: pooled[k] for k in ("seeds", "runs", "iteration_time")} == {
            k: both[k] for k in ("seeds", "runs", "iteration_time")
        }
    results.save({"default": alone[0]}, tmp_path)
    collect(tmp_path / "1", tmp_path, None, add=True)
    assert results.saved(tmp_path)["default"]["groups"][-1]["seeds"] == [0, 1]
    assert pool.pool(alone[0], alone[0]) == alone[0], "run again: replaced"
    assert pool.pool({"groups": [both]}, alone[1])["groups"] == [both], "the same run once more: counted once"
    (other,) = alone[1]["groups"]
    other = other | {"seeds": [1, 2], "runs": [*other["runs"], "elsewhere"]}
    with pytest.raises(ConfigError, match="holds seeds 0, 1 and the runs here are of seeds 1, 2"):
        pool.pool({"groups": [both]}, {"groups": [other]})


def test_pooled_mean_and_deviation() -> None:
    def row(values: list[float]) -> dict:
        mean, std = results.mean_std(values)
        return {f"{name}{end}": v for name in results.CURVE for end, v in (("", mean), ("_std", std))}

    values = [0.3, 0.9, 0.1, 0.7, 0.2]
    for cut in (1, 2, 4):
        assert pool._row(row(values[:cut]), row(values[cut:]), cut, 5 - cut) == pytest.approx(row(values))


def test_only_finished_runs_count(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run folder"):
        results.collect(tmp_path)
    place = tmp_path / "convergence" / "some-run"
    place.mkdir(parents=True)
    (place / "status.json").write_text('{"state": "running"}')
    assert results.collect(tmp_path) == ({}, [f"{place}: running"])


def test_mean_and_deviation() -> None:
    assert results.mean_std([1.0, 3.0]) == (2.0, pytest.approx(2**0.5))
    assert results.mean_std([2.0, None]) == (2.0, None)
    assert results.mean_std([None]) == (None, None)


def test_curves_keep_the_epochs_that_all_seeds_have() -> None:
    lines = [
        {"epoch": float(e), "step": 10 * e, "train_loss": 1.0 * e, "test_loss": 0.0, "test_accuracy": 0.5}
        for e in (1, 2, 3)
    ]
    rows = results.curve([lines, lines[:2]])
    assert [row["epoch"] for row in rows] == [1.0, 2.0]
    assert rows[1]["train_loss"] == 2.0 and rows[1]["train_loss_std"] == 0.0


def test_the_readme_section_is_generated(tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    file.write_text(f"# A\n{readme.BEGIN}\nstale text\n{readme.END}\nend\n")
    assert not readme.update(file, write=False) and "stale text" in file.read_text()
    assert not readme.update(file, write=True) and "stale text" not in file.read_text()
    assert readme.update(file, write=False) and file.read_text().endswith(f"{readme.END}\nend\n")
    with pytest.raises(ConfigError, match="has no"):
        readme.update(tmp_path / "absent.md", write=True)


def test_the_readme_is_up_to_date() -> None:
    file = Path(__file__).parent.parent / "README.md"
    if not file.exists() or readme.BEGIN not in file.read_text():
        pytest.skip("no README with markers yet")
    assert readme.update(file, write=False), "type: repro results readme"


def test_csv_is_the_same_on_every_machine() -> None:
    assert tables.to_csv([{"a": 1 / 3, "b": None, "c": True}]) == "a,b,c\n0.333333,,yes\n"


def test_what_computes_the_same_takes_the_same_compute_seconds():
    def run(algo: str, compute_s: float, batch: int = 32, stated: float | None = None) -> dict[str, Any]:
        own = group("resnet20", algo)
        (time,) = own["iteration_time"]
        settings = own["settings"] | {"batch_per_node": batch, "compute_s": stated}
        return own | {"settings": settings, "iteration_time": [time | {"compute_s": compute_s}]}

    runs = [run("dense", 3.0), run("topk", 1.0), run("gtopk", 2.0), run("gtopk", 9.0, 64), run("dense", 5.0, 32, 5.0)]
    found = results.Results({}, {"made_up": {"groups": runs}}).groups("made_up")
    assert [own.time["compute_s"] for own in found] == [2.0, 2.0, 2.0, 9.0, 5.0]
    assert [own.time["communicate_s"] for own in found] == [run["iteration_time"][0]["communicate_s"] for run in runs]
