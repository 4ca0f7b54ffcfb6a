"""Ctrl-C and kill -9, whenever they come: no traceback, and the same command goes on."""

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli_process import SMALL, repro, start
from tiny_runs import bits, equal

from repro.config.compose import compose
from repro.runs import run_folder, status_file
from repro.train import loop


@contextmanager
def killed_at_the_end(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(folder: Path, text: str, process: subprocess.Popen[str]) -> Path:
    for _ in range(1200):
        for path in folder.glob("results/runs/*/*/metrics.jsonl"):
            if text in path.read_text():
                return path.parent
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.1)
    raise AssertionError(f"{text} never came")


def test_after_ctrl_c_and_after_kill_9_the_same_command_goes_on(tmp_path: Path) -> None:
    settings = ["algo=gtopk", "steps=80", "evaluate_every=60", "checkpoint_every=10", "data.image_size=8", *SMALL]
    command = ["run", *settings]
    with killed_at_the_end(start(*command, cwd=tmp_path)) as process:
        folder = wait_for(tmp_path, '"step": 3,', process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert "Traceback" not in err and "same command goes on" in err
    assert process.returncode == 130
    steps = (folder / "metrics.jsonl").read_text().count('"kind": "step"')
    assert 3 <= steps < 60
    with killed_at_the_end(start(*command, cwd=tmp_path)) as process:
        wait_for(tmp_path, f'"step": {steps + 12},', process)  # past the next checkpoint
        process.kill()
        assert "resuming" in process.communicate()[1]
    assert status_file.state(folder) == "running"
    again = repro(*command, cwd=tmp_path)
    assert again.returncode == 0 and "resuming" in again.stderr
    assert [line["step"] for line in run_folder.read_metrics(folder) if line["kind"] == "step"] == list(range(1, 81))
    straight = compose([*settings, f"results={tmp_path / 'straight'}"])[0]
    loop.run(straight)
    assert equal(bits(folder), bits(straight.folder))


def test_ctrl_c_while_libraries_load_ends_without_a_traceback(tmp_path: Path) -> None:
    """They make other errors of it: a RecursionError of a hundred lines."""
    process = start("simulate", "model=resnet50", "nodes=512", cwd=tmp_path)
    maps = Path(f"/proc/{process.pid}/maps")
    while "libtorch" not in maps.read_text():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, "") and "Traceback" not in err, err
