"""What is checked before the first of several runs, and what they end with."""

import errno
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest
import tiny_runs

from repro.cluster import preempt
from repro.config.compose import compose
from repro.config.schema import ConfigError
from repro.data import cifar10
from repro.runs import status_file
from repro.train import sweep


@pytest.mark.parametrize("models", ["alexnet", "resnet20,alexnet"])
def test_what_is_impossible_is_said_before_a_download(
    models: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """170 MB came first, and then the error."""
    monkeypatch.setattr(cifar10, "URL", "http://127.0.0.1:1/cifar-10-python.tar.gz")  # refuses at once
    keys = ["data=cifar10", f"data.root={tmp_path / 'data'}", f"results={tmp_path}", "wandb.mode=disabled"]
    with pytest.raises(ConfigError, match="model=alexnet needs images of at least 63x63"):
        sweep.run(compose([f"model={models}", *keys]), lambda *_: [])
    with pytest.raises(ConfigError, match="could not be downloaded"):
        sweep.run(compose(["model=resnet20", *keys]), lambda *_: [])


def test_runs_that_are_done_are_shown_from_a_folder_for_reading_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A colleague's results, or those of a backup, were refused, as the folder was tried for runs that are done too."""

    def refuses(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    configs = [tiny_runs.config(tmp_path, f"seed={seed}") for seed in range(3)]
    for config in configs[:2]:
        config.folder.mkdir(parents=True)
        status_file.write(config.folder, "done", 5, 5)
    monkeypatch.setattr(tempfile, "mkstemp", refuses)
    assert sweep.run(configs[:2], lambda *_: []) == 0
    assert "is done already" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="cannot be written: Read-only file system"):
        sweep.run(configs, lambda *_: [])


@pytest.mark.parametrize(("answer", "code"), [("exit 0", 0), ("echo 'Requested operation is disabled' >&2; exit 1", 1)])
def test_a_task_that_could_not_be_requeued_has_failed(
    answer: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with 0, so that SLURM, and whoever waits with afterok, took half a run for a whole one."""
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\n{answer}\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    configs = compose(["data=digits", f"results={tmp_path}", "wandb.mode=disabled"])
    told_by_usr2 = preempt.Interrupt()
    told_by_usr2.set()
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert sweep._run(configs, lambda *_: [], told_by_usr2, None, None) == code
    finally:
        signal.signal(signal.SIGTERM, before)  # which a requeued process leaves to SLURM
