"""The command line in a process of its own, as a person starts it, and a run that is small."""

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
IMAGES = ["data=synthetic", "data.train_images=64", "data.test_images=32", "batch_per_node=4"]
SMALL = [*IMAGES, "nodes=2", "wandb.mode=disabled"]


def _hears_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(*arguments: str, cwd: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "repro", *arguments], cwd=cwd, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=_hears_ctrl_c,  # noqa: PLW1509  (a shell's `pytest &` ignores it, and so would this process)
    )  # fmt: skip


def torchrun(ranks: int, logs: Path, *options: str) -> list[str]:
    """The words that start so many ranks of a script, or of `-m MODULE`. Without `logs` a folder would stay in /tmp."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return [*start, f"--log-dir={logs}", *options]


def repro(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    process = start(*arguments, cwd=cwd, **environment)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)
