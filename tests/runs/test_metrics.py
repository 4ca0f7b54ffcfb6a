"""Damage to what a resume relies on, in copies of one real run: the same bits at the end, and every step once."""

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import QUICK, bits, config, equal, latest

from repro.cluster.preempt import Interrupt
from repro.config.schema import Config, RunError
from repro.runs import checkpoint, metrics, run_folder, status_file
from repro.train import loop

RUN = [*QUICK, "algo=gtopk", "nodes=2", "steps=4", "checkpoint_every=1"]  # its last checkpoints: steps 3 and 4
SECONDS = {"samples_per_s"}


def lines(folder: Path) -> list[dict[str, Any]]:
    """All that the metrics say but for seconds; a line that cannot be read fails the test."""
    read = [json.loads(line) for line in (folder / metrics.NAME).read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in SECONDS} for line in read]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Config:
    run = config(tmp_path_factory.mktemp("straight"), *RUN)
    loop.run(run)
    return run


@pytest.fixture
def killed(straight: Config, tmp_path: Path) -> Config:
    """A copy, as if the run had been killed after its last checkpoint."""
    run = config(tmp_path, *RUN)
    shutil.copytree(straight.folder, run.folder)
    status_file.write(run.folder, "running", 4, 4)
    return run


def goes_on(run: Config, straight: Config, capsys: pytest.CaptureFixture[str]) -> str:
    """Runs it to its end, which must be that of the straight run; returns the one line on where it goes on."""
    capsys.readouterr()
    assert loop.run(run)["state"] == "done"
    assert lines(run.folder) == lines(straight.folder)
    assert equal(bits(run.folder), bits(straight.folder))
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith(("resuming", "starting"))]
    assert len(said) <= 1
    return "".join(said)


def cut(count: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:-count]


def changed(line: int, new: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        parts = content.splitlines(keepends=True)
        return b"".join([*parts[:line], new(parts[line]), *parts[line + 1 :]])

    return change


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], int]] = {  # to the file, and the step from which the run goes on
    "its last byte": (cut(1), 3),
    "its last 100 bytes": (cut(100), 3),
    "its evaluation": (changed(4, lambda line: b""), 3),
    "the line of step 4": (changed(3, lambda line: b""), 3),
    "half of it": (lambda content: content[: len(content) // 2], 0),
    "all of it": (lambda content: b"", 0),
    "a middle line garbled": (changed(1, lambda line: b"\x00\xff" + line[2:]), 0),
    "the line of step 4 garbled": (changed(3, lambda line: line[:20] + b"#" + line[21:]), 3),
    "one digit": (changed(0, lambda line: line.replace(b'"loss": ', b'"loss": 1')), 0),
    "a line twice": (changed(2, lambda line: 2 * line), 3),
    "a line that is a list": (changed(2, lambda line: b"[1]\n"), 0),
    "two lines more": (lambda content: content + b'{"kind": "step", "step": 5}\n{"kind": "st', 4),
}


# manifests of before do not say how far the file had come: they can tell by its steps alone
SEEN_BY_SIZE = ("its last byte", "its last 100 bytes", "its evaluation", "one digit")


@pytest.mark.parametrize(
    ("damage", "old"),
    [(damage, False) for damage in DAMAGES] + [(damage, True) for damage in DAMAGES if damage not in SEEN_BY_SIZE],
)
def test_a_run_goes_on_from_what_its_metrics_reach(
    damage: str, old: bool, killed: Config, straight: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    change, step = DAMAGES[damage]
    if old:
        for manifest in killed.folder.glob("checkpoints/*/manifest.json"):
            said = json.loads(manifest.read_text())
            del said["metrics"]
            manifest.write_text(json.dumps(said))
    file = killed.folder / metrics.NAME
    file.write_bytes(change(file.read_bytes()))
    said = goes_on(killed, straight, capsys)
    assert said.startswith(f"resuming {killed.folder} after step {step}" if step else "starting")
    assert ("metrics.jsonl" in said.partition(killed.run_id)[2]) == (step < 4)


def test_without_its_metrics_a_run_starts_again(
    killed: Config, straight: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    (killed.folder / metrics.NAME).unlink()
    assert "again from its first step: the checkpoint of step 4 is not used" in goes_on(killed, straight, capsys)


def test_a_run_whose_metrics_changed_after_its_end_is_not_done(
    killed: Config, straight: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said "is done already" of a run that lacked steps."""
    shutil.copy(straight.folder / "status.json", killed.folder)
    assert status_file.state(killed.folder) == "done"
    file = killed.folder / metrics.NAME
    file.write_bytes(file.read_bytes()[:-300])
    assert status_file.state(killed.folder) == "failed"
    assert "after step 3" in goes_on(killed, straight, capsys)


def rewrite(target: Path, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes one file of a checkpoint, and its digest with it."""
    state = torch.load(target / name, weights_only=True)
    change(state)
    torch.save(state, target / name)
    manifest = json.loads((target / "manifest.json").read_text())
    manifest["sha256"][name] = checkpoint._digest(target / name)
    (target / "manifest.json").write_text(json.dumps(manifest))


FORMS: dict[str, tuple[str, Callable[[dict[str, Any]], None], str]] = {
    "fewer parameters": ("shared.pt", lambda s: s.update(parameters=s["parameters"][:-1]), "has shape"),
    "one parameter": ("shared.pt", lambda s: s.update(parameters=torch.ones(1)), "has shape"),  # it would broadcast
    "no velocity": ("shared.pt", lambda s: s.pop("velocity"), "has other keys"),
    "a longer residual": ("rank-00001.pt", lambda s: s["algorithm"].update(residual=torch.ones(9)), "has shape"),
    "another algorithm": ("rank-00001.pt", lambda s: s.update(algorithm={"steps": 3}), "has other keys"),
    "no statistics": ("rank-00000.pt", lambda s: s.update(statistics=[]), "no list of"),
    "no generator": ("rank-00001.pt", lambda s: s.pop("generator"), "KeyError"),
    "a short generator": ("rank-00001.pt", lambda s: s.update(generator=s["generator"][:9]), "RuntimeError"),
    "no window": ("rank-00000.pt", lambda s: s.pop("window"), "KeyError"),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_checkpoint_that_cannot_be_loaded_is_passed_over(
    form: str, killed: Config, straight: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    name, change, reason = FORMS[form]
    rewrite(killed.folder / "checkpoints" / "step-000000004", name, change)
    said = goes_on(killed, straight, capsys)
    assert "after step 3: the checkpoint of step 4 cannot be loaded: " in said and reason in said


def test_where_none_can_be_loaded_the_run_starts_again(
    killed: Config, straight: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    for target in (killed.folder / "checkpoints").iterdir():
        rewrite(target, "rank-00001.pt", lambda state: state["algorithm"].clear())
    assert goes_on(killed, straight, capsys).count("cannot be loaded") == 2


MANIFESTS: dict[str, Callable[[Path], object]] = {
    "torn": lambda file: file.write_bytes(file.read_bytes()[:40]),
    "a list": lambda file: file.write_text("[]"),
    "binary": lambda file: file.write_bytes(b"\xff\x00"),
    "of another step": lambda file: file.write_text(file.read_text().replace('"step": 4', '"step": 5')),
    "of no digests": lambda file: file.write_text('{"step": 4, "ranks": 2, "sha256": null}'),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
}


@pytest.mark.parametrize("damage", MANIFESTS)
def test_a_manifest_that_cannot_be_read_is_passed_over(
    damage: str, killed: Config, straight: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    MANIFESTS[damage](killed.folder / "checkpoints" / "step-000000004" / "manifest.json")
    assert "after step 3: the checkpoint of step 4 is not used" in goes_on(killed, straight, capsys)


def test_strange_names_are_passed_over_and_stay(
    killed: Config, straight: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of them ended every start with a ValueError, and they counted among the checkpoints to keep."""
    place = killed.folder / "checkpoints"
    strange = ["step-", "step-abc", "step-00000000x", "step-4", "step-000000004.old", "step-999999999 "]
    for name in strange:
        shutil.copytree(place / "step-000000004", place / name)
    (place / "step-000000009").write_text("a file")
    (place / "notes.txt").write_text("")
    shutil.rmtree(place / "step-000000004")
    assert "after step 3" in goes_on(killed, straight, capsys)
    kept = {path.name for path in place.iterdir()}
    assert kept == {*strange, "notes.txt", "step-000000009", "step-000000003", "step-000000004"}


def test_a_checkpoint_beyond_the_end_is_not_a_done_run(
    killed: Config, straight: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    place = killed.folder / "checkpoints"
    beyond = place / "step-000000009"
    (place / "step-000000004").rename(beyond)
    manifest = (beyond / "manifest.json").read_text()
    (beyond / "manifest.json").write_text(manifest.replace('"step": 4', '"step": 9'))
    assert "step 9 is not used: it is beyond the last step, 4" in goes_on(killed, straight, capsys)
    assert not beyond.exists()


@pytest.mark.parametrize("what", ["the folder", "metrics.jsonl alone"])
def test_a_run_whose_folder_is_removed_fails_at_its_next_line(what: str, tmp_path: Path) -> None:
    """It went on to the end, and was done without metrics."""
    run = config(tmp_path, *QUICK, "algo=dense", "nodes=2", "steps=2000", "checkpoint_every=100")
    file = run.folder / metrics.NAME

    def remove() -> None:
        while not (file.exists() and file.read_bytes().count(b"\n") > 2):
            time.sleep(0.01)
        if what == "the folder":
            shutil.rmtree(run.folder, ignore_errors=True)
        file.unlink(missing_ok=True)

    remover = threading.Thread(target=remove)
    remover.start()
    with pytest.raises(RunError, match=r"metrics\.jsonl was removed or replaced while the run"):
        loop.run(run)
    remover.join()
    state = status_file.state(run.folder)
    assert state == "failed" or (what == "the folder" and state is None)
    assert not list(run.folder.glob("checkpoints/*/manifest.json"))  # it ended long before the first


def test_the_metrics_are_on_the_disk_before_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a power cut nothing is left but what was synchronised: the order of the calls is all that counts."""
    calls: list[str] = []
    real_replace = Path.replace

    def fsync(descriptor: int) -> None:
        calls.append(f"fsync {Path(f'/proc/self/fd/{descriptor}').resolve().name}")

    def replace(self: Path, target: Path) -> Path:
        calls.append(f"replace {target.name}")
        return real_replace(self, target)

    monkeypatch.setattr("os.fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    loop.run(config(tmp_path, *QUICK, "algo=dense", "nodes=1", "steps=2", "checkpoint_every=1"))
    manifests = [at for at, call in enumerate(calls) if call == "replace manifest.json"]
    assert len(manifests) == 2
    for at in manifests:
        assert calls[at - 2 : at] == ["fsync metrics.jsonl", "fsync manifest.json.unfinished"]


@pytest.mark.parametrize("steps", [10, 20])
def test_a_run_stopped_between_a_step_and_its_evaluation_evaluates_first(steps: int, tmp_path: Path) -> None:
    """Told to stop at its last step, or at the end of an epoch, it never made that evaluation."""
    choices = [*QUICK, "data.train_images=80", "algo=gtopk", "nodes=2", f"steps={steps}"]  # ten steps an epoch
    straight, stopped = (config(tmp_path / name, *choices) for name in ("straight", "stopped"))
    loop.run(straight)
    assert [line["step"] for line in lines(straight.folder) if line["kind"] == "eval"] == [10, 20][: steps // 10]
    interrupt = Interrupt()
    interrupt.set()  # the ranks look after ten steps
    assert loop.run(stopped, None, interrupt)["state"] == "preempted"
    assert latest(stopped.folder)[0] == 10
    assert loop.run(stopped)["state"] == "done"
    assert lines(stopped.folder) == lines(straight.folder)
    assert equal(bits(stopped.folder), bits(straight.folder))
    evaluations = [line for line in run_folder.read_metrics(stopped.folder) if line["kind"] == "eval"]
    assert evaluations[0]["samples_per_s"] is None  # that session made no step before it


class Odd:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return print, ("run by a checkpoint",)


def test_torchs_advice_to_run_what_is_in_a_file_is_not_shown(
    killed: Config, straight: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a checkpoint with valid digests that holds an object with code: this is not run, nor is that advised."""
    target = killed.folder / "checkpoints" / "step-000000004"
    torch.save({"a": Odd()}, target / "shared.pt")
    manifest = json.loads((target / "manifest.json").read_text())
    manifest["sha256"]["shared.pt"] = checkpoint._digest(target / "shared.pt")
    (target / "manifest.json").write_text(json.dumps(manifest))
    capsys.readouterr()
    assert loop.run(killed)["state"] == "done"
    out, err = capsys.readouterr()
    assert "after step 3" in err and "is no file of a checkpoint" in err
    assert "weights_only" not in out + err and "run by a checkpoint" not in out + err
    assert lines(killed.folder) == lines(straight.folder)
