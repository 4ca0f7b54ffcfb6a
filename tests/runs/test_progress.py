"""What a run shows while it trains, and a terminal that does not take it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import tiny_runs

from repro.runs import status_file

ROOT = Path(__file__).parents[2]
HELD = """
import sys
from repro.cluster import watchdog
from repro.config.compose import compose
from repro.train import loop

watchdog.BEAT_S = watchdog.STUCK_S = 0.05
loop.run(compose(sys.argv[1:])[0])
"""


def test_a_terminal_that_stands_still_is_no_rank_that_hangs(tmp_path: Path) -> None:
    """After Ctrl-S, or behind a pager, the run ended within half a minute."""
    settings = [*tiny_runs.TINY, *tiny_runs.QUICK, "nodes=2", "steps=1", f"results={tmp_path}"]
    run = tiny_runs.config(tmp_path, *settings)
    (tmp_path / "held.py").write_text(HELD)
    here = {**os.environ, "PYTHONPATH": str(ROOT)}
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    try:
        while True:
            os.write(writes, b" " * 4096)
    except BlockingIOError:  # full
        os.set_blocking(writes, True)
    process = subprocess.Popen([sys.executable, "held.py", *settings], cwd=tmp_path, env=here, stderr=writes)
    os.close(writes)
    with open(reads, "rb") as terminal:
        end = time.monotonic() + 60
        while not (run.folder / "provenance.json").exists() and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(5)  # a hundred beats
        assert status_file.state(run.folder) is None, "rank 0 waits to say what it does"
        said = terminal.read().decode().strip()
    assert process.wait() == 0, said
    assert status_file.state(run.folder) == "done" and "2 nodes" in said
