"""What is shown while a command works: a bar with the time left on a terminal, one plain line elsewhere."""

import io
import os
import pty
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tiny_runs import QUICK, config

from repro import cli, waiting
from repro.runs import progress

SECONDS = "0.1+0.01"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Puts a terminal in the place of stderr; called in the test itself, as pytest sets stderr after fixtures."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(waiting, "REDRAWN_S", 0.0)
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    return screen


def test_a_bar_counts_and_tells_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    assert list(waiting.track("abc", "reading", 3)) == ["a", "b", "c"]
    assert all(part in shown.getvalue() for part in ("reading", "0/3", "2/3", "left"))


def test_elsewhere_it_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(waiting.track("abc", "reading", 3)) == ["a", "b", "c"]
    with waiting.waiting("thinking"):
        pass
    assert capsys.readouterr().err == "reading\n"


def test_a_run_whose_steps_are_not_known_yet_says_what_it_does(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    screen = terminal(monkeypatch)
    shown = progress.Bar(config(tmp_path, *QUICK, "algo=gtopk", "steps=20"))
    shown.phase("timing one rank")
    shown.bar.refresh()
    shown.phase("training", 20, "steps")
    shown.log({"kind": "step", "step": 5, "loss": 1.5})
    shown.bar.refresh()
    shown.phase("evaluating", 3, "batches")
    shown.advance()
    shown.bar.refresh()
    shown.close()
    said = screen.getvalue()
    assert "20 steps of 141 epochs" in said and "timing one rank" in said
    assert "gtopk: training, loss 1.500" in said and "5/20 steps" in said and "1/3 batches" in said
    assert "/?" not in said


@pytest.mark.parametrize(
    ("words", "label"),
    [
        (f"simulate algo=dense,gtopk nodes=2,4 node={SECONDS} parameters=10k", "simulating 4 cases"),
        (f"tune model=resnet20 nodes=2 batch_per_node=2 algo=dense,fp16 node={SECONDS}", "predicting 8 candidates"),
        (
            "map model=resnet20 nodes=4 batch_per_node=2 tradeoff.node=0.1 tradeoff.bits_per_s=[1e9] "
            "tradeoff.alpha_s=[0] algo=dense,fp16 density=0.001 bucket_mb=null overlap=off",
            "predicting 2 iterations",
        ),
    ],
)
def test_what_is_predicted_shows_how_far_it_is(
    words: str, label: str, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    screen = terminal(monkeypatch)
    out = ["--out", str(tmp_path / "map.json")] if words.startswith("map") else []
    cli.app([*words.split(), *out], standalone_mode=False)
    total = label.split()[1]
    said = screen.getvalue()
    assert label in said and f"0/{total}" in said and f"{total}/{total}" in said


def on_a_terminal(*words: str) -> tuple[int, str]:
    """Runs a command as a process whose input and output are a terminal of 80 columns; returns its code and screen."""
    pid, screen = pty.fork()
    if pid == 0:
        os.environ |= {"COLUMNS": "80", "TERM": "xterm"}
        os.execv(sys.executable, [sys.executable, "-m", "repro", *words])
    shown = b""
    with suppress(OSError):  # Linux's end of a terminal that its process has left
        while part := os.read(screen, 65536):
            shown += part
    os.close(screen)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode(errors="replace")


def test_a_run_says_that_it_reads_its_data_also_where_ranks_are_processes(tmp_path: Path) -> None:
    code, shown = on_a_terminal(
        "run", "data=digits", "nodes=2", "steps=1", "cluster=processes", "wandb.mode=disabled", f"results={tmp_path}"
    )
    assert code == 0, shown
    for phase in ("starting", "reading digits", "training", "evaluating"):
        assert phase in shown
