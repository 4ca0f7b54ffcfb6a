"""Each operation on the disk of a small run, and of what is made of runs: the process ends there, or the disk is full.

The same command then goes on to the same bits. REPRO_EXPLORE=1 takes every operation; without it one of each kind, in
both ways.
"""

import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import failing_disk
import numpy as np
import pytest
from failing_disk import ENDED, Disk, in_child
from PIL import Image
from tiny_runs import bits, equal

from repro import cli
from repro.config.compose import compose
from repro.config.schema import Config, ConfigError
from repro.report import summaries
from repro.runs import machine, run_folder, status_file
from repro.timing import bench_collectives, bench_selection

RUN = [
    "data=synthetic", "data.image_size=8", "data.train_images=16", "data.test_images=8", "data.pad=1", "data.flip=true",
    "batch_per_node=4", "density=0.01", "wandb.mode=disabled", "lr_warmup_epochs=0", "algo=gtopk", "nodes=2",
    "steps=2", "checkpoint_every=1", "probe_steps=[1]",
]  # fmt: skip
ADVICE = "Make room: the same command then goes on."


def command(line: list[str]) -> Callable[[], int]:
    def call() -> int:
        sys.argv = ["repro", *line]
        code = cli._call()
        sys.stdout.flush()
        return code

    return call


def points(log: Path, fault: str) -> list[tuple[int, str]]:
    """Which of the operations in a log fail: all, or the first of each kind."""
    done = log.read_text().splitlines()
    if os.environ.get("REPRO_EXPLORE"):
        return list(enumerate(done))
    first = {name: at for at, name in reversed(list(enumerate(done)))}
    taken = sorted((at, name) for name, at in first.items() if fault == "end" or needs_room(name))
    if fault == "full":
        return taken
    # to sync changes nothing on this disk: to end before it is to end before what follows
    return [(at, name) for at, name in taken if not (name.startswith("fsync") and at + 1 in first.values())]


def needs_room(name: str) -> bool:
    return name.split()[0] in ("write", "open", "mkdir", "fsync")


def metrics(folder: Path) -> list[dict[str, object]]:
    lines = run_folder.read_metrics(folder)
    return [{k: v for k, v in line.items() if not k.endswith("_s")} for line in lines]  # but for seconds and rates


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Config, Path]]:
    """The run without a fault, and the log of its operations. No run here times an iteration before it begins.

    The command in this process comes first, as the forks would each load what it loads: seconds.
    """
    machine.rates()  # measured once a boot, outside of the run's folder
    patch = pytest.MonkeyPatch()
    patch.setattr("repro.commands.run.before_a_run", lambda *_: [])
    place = tmp_path_factory.mktemp("straight")
    assert command(["run", *RUN, f"results={place}/first"])() == 0
    (run,) = compose([*RUN, f"results={place}/runs"])
    disk = Disk(place / "runs", "none", -1, place.parent / "operations")
    assert in_child(command(["run", *RUN, f"results={place}/runs"]), disk, place.parent / "said") == 0
    assert status_file.state(run.folder) == "done"
    yield run, place.parent / "operations"
    patch.undo()


@pytest.mark.parametrize("fault", ["end", "full"])
def test_a_run_survives_a_fault_at_each_operation(fault: str, straight: tuple[Config, Path], tmp_path: Path) -> None:
    whole, log = straight
    expected, weights = metrics(whole.folder), bits(whole.folder)
    taken = points(log, fault)
    kinds = {name for _, name in taken}
    for name in ("config.yaml", "provenance.json", "metrics.jsonl", "status.json", "recorded.json", "shared.part",
                 "rank-00001.part", "manifest.json", "owner.json"):  # fmt: skip
        assert any(name in kind for kind in kinds), name
    said = tmp_path / "said"
    for at, name in taken:
        place = tmp_path / f"{at}" / "runs"  # as the straight run has it, so that operations have its names
        run, line = dataclasses.replace(whole, results=str(place)), ["run", *RUN, f"results={place}"]
        moment = at if os.environ.get("REPRO_EXPLORE") else name
        code = in_child(command(line), Disk(place, fault, moment, tmp_path / "log"), said)
        at_fault = f"{fault} at operation {at}, {name}: {said.read_text()}"
        assert "Traceback" not in said.read_text(), at_fault
        if fault == "end":
            assert code == ENDED, at_fault
        elif code:
            assert ADVICE in said.read_text() or "results=FOLDER" in said.read_text(), at_fault
            assert status_file.state(run.folder) in ("failed", None), at_fault
            assert not [*run.folder.rglob("*.part")], f"{at_fault}: a part of a file keeps the disk full"
        else:
            assert status_file.state(run.folder) == "done", at_fault
        assert in_child(command(line), None, said) == 0, f"after {at_fault}, then: {said.read_text()}"
        assert metrics(run.folder) == expected, at_fault
        assert equal(bits(run.folder), weights), at_fault
        shutil.rmtree(place)


def test_a_full_disk_leaves_no_running_of_a_session_that_was_killed(
    straight: tuple[Config, Path], tmp_path: Path
) -> None:
    """Before a session has written its own status, that of the one before says running."""
    _, log = straight
    said, done, again = tmp_path / "said", log.read_text().splitlines(), tmp_path / "again"
    killed_at = done.index("write recorded.json.unfinished")
    words = [*RUN, f"results={tmp_path / 'first'}"]
    killed = Disk(tmp_path / "first", "end", killed_at, tmp_path / "log")
    assert in_child(command(["run", *words]), killed, said) == ENDED
    assert in_child(command(["run", *words, "timeout_s=60"]), Disk(tmp_path / "first", "none", -1, again), said) == 0
    of_a_start_that_finds_a_folder = again.read_text().splitlines()
    for name in ("write owner.json.unfinished", "write config.yaml.unfinished", "write provenance.json.unfinished"):
        words = [*RUN, f"results={tmp_path / name.split()[1]}"]
        (run,) = compose(words)
        killed = Disk(Path(run.results), "end", killed_at, tmp_path / "log")
        assert in_child(command(["run", *words]), killed, said) == ENDED
        assert status_file.state(run.folder) == "running"
        at = of_a_start_that_finds_a_folder.index(name)
        assert in_child(command(["run", *words]), Disk(Path(run.results), "full", at, tmp_path / "log"), said) == 1
        assert ADVICE in said.read_text() and said.read_text().count("repro: ") == 1, said.read_text()
        assert status_file.state(run.folder) == "failed", name


def images(place: Path) -> None:
    for split in ("train", "test"):
        for label in range(10):
            folder = place / split / str(label)
            folder.mkdir(parents=True)
            Image.fromarray(np.full((32, 32, 3), 10 * label, np.uint8)).save(folder / "0.png")


def others(runs: Path, source: Path, out: Path) -> Iterator[list[str]]:
    """Commands that make summaries, figures, tables, the report and packed data, with where they write."""
    yield ["results", "collect", "--runs", str(runs), "--out", str(out)]
    yield ["plot", "figures", "--runs", str(runs), "--only", "families", "--format", "svg,png", "--out", str(out)]
    yield ["plot", "tables", "--runs", str(runs), "--only", "quickstart", "--out", str(out)]
    yield ["report", "--runs", str(runs), "--out", str(out / "report.html")]
    yield ["data", "prepare", "cifar10", "--from", str(source), "--root", str(out)]
    yield ["simulate", "algo=dense,gtopk", "nodes=4", "parameters=1e6", "--out", str(out / "simulate.json")]


def files(place: Path) -> dict[str, bytes]:
    """The files that a person sees: not those that begin with a dot, nor what a fault left unfinished."""
    return {
        path.name: path.read_bytes() for path in place.rglob("*")
        if path.is_file() and not path.name.startswith(".") and path.suffix != ".unfinished"
    }  # fmt: skip


@pytest.mark.parametrize("number", range(6), ids=["summary", "figure", "table", "report", "packed-data", "simulation"])
def test_what_is_made_is_whole_or_not_there(
    number: int, straight: tuple[Config, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = straight
    runs = tmp_path / "runs"
    shutil.copytree(run.folder, runs / "families" / run.run_id)
    shutil.copytree(run.folder, runs / "quickstart" / run.run_id)
    images(tmp_path / "images")
    loaded = summaries.load(runs=runs, alone=True)
    # What takes long, and writes nothing: reading results, and drawing.
    monkeypatch.setattr(summaries, "load", lambda **_: loaded)
    monkeypatch.setattr("repro.report.html.page", lambda data: "a page " * 9999)
    monkeypatch.setattr(
        "repro.figures.render", lambda item, rows, formats, *_: dict.fromkeys(formats, b"drawn " * 9999)
    )
    monkeypatch.setattr("repro.figures.side_by_side", map)  # in this process
    out, said, log = tmp_path / "out", tmp_path / "said", tmp_path / "log"

    def line() -> list[str]:
        return list(others(runs, tmp_path / "images", out))[number]

    assert command(line())() == 0  # loads what the forks need
    shutil.rmtree(out)
    out.mkdir()
    assert in_child(command(line()), Disk(out, "none", -1, log), said) == 0, said.read_text()
    whole, count = files(out), 0
    assert whole
    for fault in ("end", "full"):
        for at, name in points(log, fault):
            shutil.rmtree(out)
            out.mkdir()
            code = in_child(command(line()), Disk(out, fault, at, tmp_path / "again"), said)
            at_fault = f"{fault} at operation {at}, {name}: {said.read_text()}"
            assert "Traceback" not in said.read_text(), at_fault
            assert code == ENDED if fault == "end" else code in (0, 1, 2), at_fault
            if fault == "full" and code:
                assert "--out" in said.read_text() or "--root" in said.read_text(), at_fault
            assert files(out).items() <= whole.items(), f"{at_fault}: a part of a file is there"
            assert in_child(command(line()), None, said) == 0, f"after {at_fault}, then: {said.read_text()}"
            assert files(out) == whole, at_fault
            left = [path.name for path in out.rglob("*") if path.name.endswith((".part", ".unfinished"))]
            assert left == [], at_fault
            count += 1
    assert count > 0


def test_the_disk_that_fails_fails_as_it_says(tmp_path: Path) -> None:
    """What the walks rest on: a torn write, a full disk that still has the rest of a block, and the order of calls."""
    place = tmp_path / "disk"
    place.mkdir()

    def work() -> int:
        (place / "a").write_bytes(b"x" * 100)
        with (place / "a").open("r+b") as file:
            file.write(b"y" * 100)
        (place / "b").write_bytes(b"z" * 10)
        return 0

    code = in_child(work, Disk(place, "end", 1, tmp_path / "log"), tmp_path / "said")
    assert code == ENDED and (place / "a").read_bytes() == b"x" * 50
    code = in_child(work, Disk(place, "full", 2, tmp_path / "log"), tmp_path / "said")
    assert code == 99 and (place / "a").read_bytes() == b"x" * 100
    (tmp_path / "log").unlink()
    code = in_child(work, Disk(place, "full", 4, tmp_path / "log"), tmp_path / "said")
    assert code == 99 and (place / "a").read_bytes() == b"y" * 100 and not (place / "b").exists()
    assert (tmp_path / "log").read_text().splitlines() == ["open a", "write a", "open a", "write a", "open b"]
    assert json.dumps(failing_disk.kind("/a/step-000000004")) == '"step-N"'


@pytest.mark.parametrize("bench", ["selection", "collectives"])
def test_a_measurement_that_is_interrupted_leaves_the_rows_of_the_one_before(
    bench: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    file = tmp_path / f"{bench}.jsonl"
    file.write_text("before\n")
    monkeypatch.setattr(bench_selection, "time_in_turns", interrupt)
    monkeypatch.setattr(bench_collectives.ranks, "launch", interrupt)
    with pytest.raises(KeyboardInterrupt):
        if bench == "selection":
            bench_selection.measure([1000], [0.01], [1], [], 3, tmp_path)
        else:
            bench_collectives.measure_collectives(compose(["cluster=lab", "nodes=2"]), [1000], 3, file)
    assert file.read_text() == "before\n"
    monkeypatch.setattr(bench_collectives.ranks, "launch", lambda *_: [])
    monkeypatch.setattr(bench_collectives, "cells", lambda _: [{"algo": 1, "nodes": 1, "k": 1, "parameters": 1}])
    if bench == "collectives":
        bench_collectives.measure_collectives(compose(["cluster=lab", "nodes=2"]), [1000], 3, file)
        assert file.read_text() == "" and list(tmp_path.iterdir()) == [file], "it takes the place of the one before"


def test_every_recorded_gradient_is_read_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "selection.jsonl").write_text("before\n")
    monkeypatch.setattr(bench_selection, "time_in_turns", None)
    with pytest.raises(ConfigError, match="--recorded .*No such file"):
        bench_selection.measure([1000], [0.01], [1], [tmp_path / "none.pt"], 3, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["selection.jsonl"]
