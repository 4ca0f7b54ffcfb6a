"""Who is slow, frozen, hanging or cut off, from what ranks have said."""

import os
import subprocess
import sys
from pathlib import Path

from repro.cluster import stalls
from repro.cluster.stalls import Others, Position

ROOT = Path(__file__).parents[2]
SMALL = ["data=synthetic", "data.train_images=128", "data.test_images=16", "data.image_size=8", "batch_per_node=4",
         "wandb.mode=disabled"]  # fmt: skip
RUN = [sys.executable, "-m", "repro", "run", *SMALL]
HERE = {**os.environ, "PYTHONPATH": str(ROOT)}
SIDES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def row(inside: str | None, beat: int, **more) -> Position:
    return Position(inside, 50.0, beat, host=os.uname().nodename, pid=os.getpid(), **more)


def test_slow_frozen_hanging_and_cut_off_are_told_apart() -> None:
    def seen(rows, looks: int = 20, beats: bool = True) -> str | None:
        others = Others(0)
        found = None
        for look in range(looks):
            moved = [
                one and Position(**{**vars(one), "beat": look if beats or not n else 1}) for n, one in enumerate(rows)
            ]
            found = found or others.stalled(moved)
            sum(range(300_000))  # this process works, as a slow one does
        return found

    waits = row("recv with rank 1", 1)
    assert seen([waits, row(None, 1, still=stalls.STILL_BEATS - 1)]) is None  # slow
    assert "rank 1 (for 50 s) hangs" in seen([waits, row(None, 1, still=stalls.STILL_BEATS)])
    assert seen([row(None, 1), row(None, 1, still=99)]) is None  # nobody waits for it
    gone = Position("recv with rank 0", 50.0, 1, pid=2**22 + 1, host=os.uname().nodename)
    assert "rank 1 is frozen or gone" in seen([waits, gone], beats=False)
    cut = [
        row("all_reduce", 1, unreached=[2]),
        row("all_reduce", 1, unreached=[2]),
        row("all_reduce", 1, unreached=[0, 1]),
    ]
    assert seen(cut).startswith("rank 2 is cut off: 2 of the others do not reach it")
    assert seen(cut, looks=stalls.AGREED - 1) is None
