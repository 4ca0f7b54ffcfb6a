"""`repro ARGUMENTS` in a process where torch, hydra and wandb cannot be imported."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
sys.modules |= dict.fromkeys(("torch", "hydra", "wandb"))
from repro.cli import main
main()
"""


def without_torch(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=Path(__file__).parent.parent, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
