"""What a run says of steps that were to be recorded."""

from pathlib import Path

import pytest
import tiny_runs

from repro.runs import status_file
from repro.train import sweep


def test_steps_to_be_recorded_that_a_run_is_past_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Typed for a run that was done, or further on, they were accepted, and nothing came of it."""

    def run(*words: str) -> str:
        config = tiny_runs.config(tmp_path, *tiny_runs.QUICK, "nodes=1", "steps=2", "checkpoint_every=1", *words)
        assert sweep.run([config], lambda *_: []) == 0
        return capsys.readouterr().err

    folder = tiny_runs.config(tmp_path, *tiny_runs.QUICK, "nodes=1", "steps=2").folder
    assert "warning" not in run()
    assert f"probe_steps=[1]: the run is past step 1 without a record; remove {folder}" in run("probe_steps=[1]")
    (last,) = (folder / "checkpoints").glob("step-*2")
    (last / "manifest.json").unlink()
    status_file.write(folder, "preempted", 1, 2)
    for _ in ("as it goes on after the first step", "once it is done"):
        assert "past step 1 without" in run("probe_steps=[1,2]")
    assert "warning" not in run("probe_steps=[2]")
