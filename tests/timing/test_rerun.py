"""A finished run on another network: its own compute and compress, and what its messages take there."""

import dataclasses
import itertools
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_runs import QUICK, config, latest

from repro import cli
from repro.cluster import dilation
from repro.comm.cost_formulas import closed_form
from repro.comm.traffic import Link
from repro.config.compose import compose, named_network
from repro.config.schema import Config, ConfigError
from repro.density import entries
from repro.runs import run_folder
from repro.timing import forecast, rerun
from repro.timing.before_run import before_a_run
from repro.train import loop
from repro.train.time_left import Forecast, TimeLeft

M, VGG16 = 269_722, 14_728_266


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> list[Config]:
    place = tmp_path_factory.mktemp("runs")
    configs = [config(place, *QUICK, f"algo={algo}", "nodes=4", "steps=2") for algo in ("dense", "gtopk")]
    for one in configs:
        assert loop.run(one, before_a_run)["state"] == "done"
    return configs


def test_on_its_own_network_a_run_takes_what_it_recorded_and_elsewhere_what_the_formula_says(
    finished: list[Config],
) -> None:
    networks = [dataclasses.replace(named_network("ethernet1g"), name="again"), named_network("ethernet10g")]
    for one in finished:
        own, again, fast = rerun.modelled(one.folder, one, networks)
        assert rerun.modelled(one.folder, one, [named_network("ethernet1g")]) == [own], "one row, not two"
        before = run_folder.summary(one.folder)
        assert own["communicate_s"] == before["communicate_s"]
        assert again["communicate_s"] == pytest.approx(own["communicate_s"], rel=1e-6)
        link = Link(networks[1].alpha_s, networks[1].beta_s_per_byte)
        formula = closed_form(one.algo.name, 4, M, entries(0.01, M), link)
        assert fast["communicate_s"] == pytest.approx(formula, rel=1e-3)
        for row in (again, fast):
            assert (row["compute_s"], row["compress_s"]) == (before["compute_s"], before["compress_s"])
            assert (row["parameters"], row["k"]) == (M, 2697 if one.algo.sparse else None)


def test_the_command_that_the_screen_offers_trains_nothing(
    finished: list[Config], capsys: pytest.CaptureFixture[str]
) -> None:
    place = finished[0].folder.parent
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*")}
    cli.app(["simulate", "--run", str(place), "network=ethernet10g,infiniband100g"], standalone_mode=False)
    said = capsys.readouterr().out
    assert "2 runs of resnet20 on 4 nodes" in said
    names = [line.split()[0:3:2] for line in said.splitlines() if line.startswith(("dense", "gtopk"))]
    assert names == [[a, n] for a in ("dense", "gtopk") for n in ("ethernet1g", "ethernet10g", "infiniband100g")]
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*")} == before


def test_of_an_experiment_what_was_not_timed_is_left_out_and_said(
    finished: list[Config], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished[0].folder, tmp_path / "timed")
    shutil.copytree(finished[1].folder, tmp_path / "untimed")
    (tmp_path / "untimed" / "metrics.jsonl").write_text("")
    rows = rerun.run([tmp_path], [named_network("ethernet10g")], tmp_path / "rows.json")
    assert [row["algo"] for row in rows] == 2 * ["dense"]
    assert json.loads((tmp_path / "rows.json").read_text())["rows"][1]["network"] == "ethernet10g"
    assert "left out" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="no iteration of it was timed"):
        rerun.run([tmp_path / "untimed"], [named_network("ethernet10g")], None)


def test_a_configuration_that_cannot_be_read_is_left_out_by_its_name(
    finished: list[Config], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All other runs of the experiment were refused with it, and which one it was nobody said."""
    shutil.copytree(finished[0].folder, tmp_path / "whole")
    networks = [named_network("ethernet10g")]
    for text in ("nonsense: 1", "nodes: ["):
        (tmp_path / "other").mkdir(exist_ok=True)
        (tmp_path / "other" / "config.yaml").write_text(text)
        assert [row["algo"] for row in rerun.run([tmp_path], networks, None)] == 2 * ["dense"]
        assert f"left out, {tmp_path}/other/config.yaml" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "words",
    ["device=cuda cuda_graph=on", "device=cuda cluster.messages=memory", "algo=ddp algo.hook=powersgd"],
)
def test_a_run_that_this_machine_could_not_train_is_modelled(finished: list[Config], words: str) -> None:
    """A run on a GPU was left out where there is none, and what torchrun had started where it had not."""
    one = config(finished[0].folder, *QUICK, "algo=dense", "nodes=4", "steps=2", *words.split())
    own, slow = rerun.modelled(finished[0].folder, one, [named_network("ethernet100m")])
    assert slow["communicate_s"] > 0 and slow["compute_s"] == own["compute_s"]


def test_messages_like_the_authors_are_not_modelled(finished: list[Config]) -> None:
    """Those without their stalls were, without a word."""
    one = finished[1]
    cluster = dataclasses.replace(one.cluster, name="lab", authors="barriers")
    theirs = dataclasses.replace(one, cluster=cluster, node="paper")
    with pytest.raises(ConfigError, match="cluster.authors=barriers, whose messages are not modelled"):
        rerun.modelled(one.folder, theirs, [named_network("ethernet10g")])


def test_the_disk_that_is_told_before_is_what_a_run_takes(finished: list[Config]) -> None:
    for one in finished:
        taken = sum(path.stat().st_size for path in one.folder.rglob("*") if path.is_file())
        assert taken / 2 < forecast.needed_bytes([one], [2]) < 4 * taken
    stated = config(finished[0].folder, *QUICK, "nodes=4", "cluster=lab", "node=paper")
    assert forecast.needed_bytes([stated], [2]) < 1e4, "it trains nothing, so it has no checkpoint"


@pytest.mark.parametrize("algo", ["gtopk_corrected", "onebit", "qadam", "local_sgd"])
def test_what_an_algorithm_keeps_is_in_the_disk_that_is_told(algo: str, tmp_path: Path) -> None:
    """A checkpoint of qadam was seven times as large as was told."""
    run = config(tmp_path, *QUICK, f"algo={algo}", "nodes=4", "steps=1")
    loop.run(run)
    taken = sum(path.stat().st_size for path in latest(run.folder)[1].iterdir())
    told = (forecast.needed_bytes([run], [1]) - forecast.LINE_BYTES) / (forecast.KEEP + 1)
    assert told == pytest.approx(taken, rel=0.2)


def test_the_time_that_is_told_before_grows_with_steps_and_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "step_seconds", lambda _: 0.5)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    once = config(tmp_path, *QUICK, "nodes=4", "steps=10")
    twice = config(tmp_path, *QUICK, "nodes=4", "steps=20")
    short, long = forecast.seconds([once, twice], [10, 20])
    assert long - short == pytest.approx(10 * 4 * 0.5 / 2)
    epochs = config(tmp_path, *QUICK, "nodes=4", "epochs=3")  # of 64 images, 16 of which are a step
    assert forecast.steps([once, twice, epochs]) == [10, 20, 12]
    kept = epochs.folder / "checkpoints/step-000000008"
    kept.mkdir(parents=True)
    (kept / "manifest.json").touch()
    (kept.parent / "step-000000009").mkdir()  # not complete
    assert forecast.steps([once, twice, epochs]) == [10, 20, 4]
    said = forecast.of([once, twice])
    assert said.text.startswith("about ") and "of disk" in said.text and len(said.seconds) == 2
    lab = config(tmp_path, *QUICK, "nodes=4", "steps=20", "cluster=lab")
    rehearsal = forecast.of([once, lab])
    assert "on this machine" not in rehearsal.text and rehearsal.seconds is None, (
        "a rehearsal in the lab is no training"
    )


def test_iterations_of_stated_compute_are_told_by_their_messages_and_the_dilation(tmp_path: Path) -> None:
    words = [*QUICK, "data.image_size=32", "cluster=lab", "cluster.dilation=auto", "node=paper_compute", "model=vgg16"]
    known = {str(dilation.SMALL): 1.5, str(dilation.LARGE): 1.2}
    few, many = (config(tmp_path, *words, "algo=dense", f"nodes={nodes}") for nodes in (4, 8))
    assert [dilation.expected(one, [(VGG16,)]) for one in (few, many)] == [8, 8]
    (tmp_path / dilation.FILE).write_text(json.dumps({dilation.place(many): {"8": known}}))
    assert [dilation.expected(one, [(VGG16,)]) for one in (few, many)] == [8, 16], "8 was tried, and is not enough"
    line_s = VGG16 * 4 * few.network.beta_s_per_byte  # three times; (P-1)/P of it goes twice
    assert forecast.seconds([few], [1])[0] == pytest.approx(3 * 8 * 1.5 * line_s, rel=0.2)
    assert forecast.seconds([many], [1])[0] == pytest.approx(3 * 16 * 1.75 * line_s, rel=0.2)


def test_the_time_left_follows_what_the_runs_before_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, now = [config(tmp_path, *QUICK, f"seed={seed}") for seed in range(4)], iter([100.0, 120.0, 140.0, 150.0])
    monkeypatch.setattr("repro.train.time_left.time.monotonic", lambda: next(now))
    left = TimeLeft(runs, runs[1:], Forecast("", [10.0, 10.0, 40.0]))
    assert left.after(runs[1]) == "2 of 4 runs, about 2 min left", "it took twice what was said"
    assert left.after(runs[2]) == "3 of 4 runs, about 1 min left"
    assert left.after(runs[3]) == ""


def test_runs_that_were_not_trained_say_nothing_of_the_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that another process had counted as done at once: "about 0 s left"."""
    runs, now = [config(tmp_path, *QUICK, f"seed={seed}") for seed in range(3)], iter([100.0, 101.0, 121.0])
    monkeypatch.setattr("repro.train.time_left.time.monotonic", lambda: next(now))
    left = TimeLeft(runs, runs, Forecast("", [10.0, 10.0, 10.0]))
    assert left.after(runs[0], trained=False) == "1 of 3 runs, about 20 s left"
    assert left.after(runs[1]) == "2 of 3 runs, about 20 s left", "it took twice what was said"


def test_runs_of_one_id_in_two_places_are_two_and_time_that_nobody_knows_is_not_told(tmp_path: Path) -> None:
    runs = [config(tmp_path / place, *QUICK) for place in ("a", "b")]
    assert runs[0].run_id == runs[1].run_id
    left = TimeLeft(runs, runs, None)
    assert (left.after(runs[0]), left.after(runs[1])) == ("1 of 2 runs", "")


@pytest.mark.parametrize(
    ("batch", "accumulate", "seconds"), [(4, 1, 1.0), (4, 3, 3.0), (2 * forecast.MOST_SAMPLES, 1, 2.0)]
)
def test_a_step_takes_as_long_as_its_images_where_fewer_are_timed(
    batch: int, accumulate: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()
    (config,) = compose(["data=synthetic", "data.image_size=8", f"batch_per_node={batch}", f"accumulate={accumulate}"])
    monkeypatch.setattr(forecast, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    assert forecast.step_seconds(config) == pytest.approx(seconds)
