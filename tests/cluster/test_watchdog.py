"""A rank that hangs, freezes or dies: the others end in bounded time and say which one it was."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from repro.cluster import preempt, ranks, start
from repro.cluster.watchdog import CAUSE, Position, diagnose, explain
from repro.config.compose import compose
from repro.config.schema import RunError

ROOT = Path(__file__).parents[2]


def here(inside: str | None, beat: int, seconds: float = 1.0) -> Position:
    return Position(inside, seconds, beat)


def test_diagnose_names_who_is_behind():
    wait = "all_reduce with rank all"
    before = [here(wait, 5), here(wait, 5), here(None, 5)]
    gone = diagnose(0, "E", before, [here(wait, 8), here(wait, 8), here(None, 5)])
    assert gone.startswith("rank 2 is gone")
    late = diagnose(0, "E", before, [here(wait, 8), here(wait, 8), here(None, 8, 31.2)])
    assert late == "rank 2 (for 31 s) is in no collective while others wait for it. E"
    stuck = diagnose(0, "E", before, [here(wait, 8), here(wait, 8), here("recv with rank 1", 8)])
    assert stuck == "E. The others wait too: rank 1 in all_reduce with rank all; rank 2 in recv with rank 1"
    never = diagnose(0, "E", [here(wait, 1), None], [here(wait, 2), None])
    assert never.startswith("rank 1 is gone")
    assert [start.is_lost(text) for text in (gone, late, stuck, never)] == [True, False, False, True]


STOPPED = """
import sys, time, torch
from repro.cluster import ranks
from repro.config.compose import compose

def main(config, rank, shared):
    if rank.number == 1:
        print("ready", flush=True)
        time.sleep(2)
    x = torch.ones(4)
    rank.collective.all_reduce(x)
    return x.tolist()

if __name__ == "__main__":
    config = compose(["data=digits", "model=resnet20", "nodes=2", "timeout_s=6", *sys.argv[1:]])[0]
    print(ranks.launch(config, main, ranks.no_data))
"""


def test_a_run_that_was_stopped_for_longer_than_a_collective_may_wait_goes_on(tmp_path):
    """Gloo, which times its messages by a clock, ended it. Of threads and of processes, side by side."""
    (tmp_path / "stopped.py").write_text(STOPPED)
    started = {}
    for cluster in ("local", "processes"):
        run = [sys.executable, "stopped.py", f"cluster={cluster}", f"results={tmp_path}"]
        here = {**os.environ, "PYTHONPATH": str(ROOT)}
        sides = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started[cluster] = subprocess.Popen(run, cwd=tmp_path, env=here, start_new_session=True, **sides)

    def stop(process):
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGSTOP)

    try:
        with ThreadPoolExecutor(2) as pool:
            [*pool.map(stop, started.values())]
        time.sleep(9)
        for process in started.values():
            os.killpg(process.pid, signal.SIGCONT)
        for cluster, process in started.items():
            said, errors = process.communicate(timeout=60)
            assert (said, process.returncode) == ("[2.0, 2.0, 2.0, 2.0]\n", 0), (cluster, errors)
    finally:
        for process in started.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def test_the_first_cause_is_everybodys():
    store = dist.HashStore()
    store.compare_set(CAUSE, "", "rank 3: its disk is full")
    assert explain(store, 0, 2, "connection closed") == "rank 3: its disk is full"


def hangs(config, rank, shared) -> None:
    if rank.number == 1:
        time.sleep(1000)
    rank.collective.all_reduce(torch.ones(4))


def freezes(config, rank, shared) -> None:
    rank.collective.all_reduce(torch.ones(4))
    if rank.number == 2:
        os.kill(os.getpid(), signal.SIGSTOP)
    rank.collective.all_reduce(torch.ones(4))


def dies(config, rank, shared) -> None:
    rank.collective.all_reduce(torch.ones(4))
    if rank.number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    rank.collective.all_reduce(torch.ones(4))


def nothing(config) -> None: ...


def test_hanging_frozen_and_dead_processes(tmp_path):
    """Three starts of three processes, side by side; each ends by itself and says why."""
    settings = [
        "data=digits",
        "model=resnet20",
        "nodes=3",
        "cluster=processes",
        "timeout_s=4",
        f"results={tmp_path}",
    ]
    config = compose(settings)[0]
    began = time.monotonic()
    with ThreadPoolExecutor(3) as pool:
        starts = [pool.submit(ranks.launch, config, main, nothing) for main in (hangs, freezes, dies)]
        hung, frozen, dead = (str(start.exception()) for start in starts)
    assert "rank 1 (for" in hung and "in no collective" in hung
    assert "rank 2 is gone" in frozen and "all_reduce" in frozen
    assert "rank 1" in dead and "killed" in dead
    assert time.monotonic() - began < 120


FROZEN_STORE = """
import os, signal, sys, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
store.set("position/0", "{}")
print(store.port, flush=True)
sys.stdin.read(1)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_frozen_rank_0_takes_its_store_along():
    """No call on a store that does not answer ever returns; the others find out nevertheless."""
    sides = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    server = subprocess.Popen([sys.executable, "-c", FROZEN_STORE], **sides)
    try:
        port = int(server.stdout.readline())
        store = dist.TCPStore("127.0.0.1", port, None, False, timedelta(seconds=120), wait_for_workers=False)
        store.get("position/0")
        with pytest.raises(subprocess.TimeoutExpired):  # it stopped itself, and does not end
            server.communicate(b"x", timeout=1)
        assert "rank 0 is gone" in explain(store, 1, 2, "rank 1 failed in recv with rank 0")
    finally:
        server.kill()
        server.wait()


OUTLIVES = """
import sys, threading, time, torch
from repro.cluster import ranks, stalls, watchdog
from repro.config.compose import compose
from repro.config.schema import RunError

watchdog.GRACE_S, watchdog.BEAT_S = 1.0, 0.2

def compute(rank):
    end = time.monotonic() + 4
    while time.monotonic() < end:
        sum(range(10_000))

def upload(rank):
    with rank.waits(stalls.W_AND_B):
        time.sleep(4)

def hang(rank):
    threading.Event().wait()

def main(config, rank, shared):
    rank.collective.all_reduce(torch.ones(4))
    if rank.number == 1:
        raise RunError("its first error")
    if rank.number == 0:
        globals()[sys.argv[1]](rank)
    rank.collective.recv(torch.ones(4), 0 if rank.number else 1)

if __name__ == "__main__":
    config = compose(["data=digits", "model=resnet20", "nodes=3", f"results={sys.argv[2]}"])[0]
    try:
        ranks.launch(config, main, ranks.no_data)
    except RunError as error:
        print("next run, after", error)
"""


def test_a_run_that_fails_while_a_rank_works_does_not_end_the_process(tmp_path):
    """After 15 seconds it did, the other runs of a sweep with it; that it does where a rank hangs is wanted."""
    (tmp_path / "outlives.py").write_text(OUTLIVES)
    here, sides = {**os.environ, "PYTHONPATH": str(ROOT)}, {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    started = {
        does: subprocess.Popen(
            [sys.executable, "outlives.py", does, str(tmp_path)], cwd=tmp_path, env=here, text=True, **sides
        )
        for does in ("compute", "upload", "hang")
    }
    goes_on = ("next run, after its first error\n", 0)
    try:
        for does, process in started.items():
            said, errors = process.communicate(timeout=90)
            assert (said, process.returncode) == (("", 1) if does == "hang" else goes_on), (does, errors)
    finally:
        for process in started.values():
            process.kill()
            process.wait()


def test_signals_set_the_flag_and_are_given_back():
    before = [signal.getsignal(number) for number in preempt.SIGNALS]
    with preempt.listening() as interrupt:
        assert not interrupt.is_set()
        os.kill(os.getpid(), signal.SIGUSR2)
        assert interrupt.wait(5) and not interrupt.final
        os.kill(os.getpid(), signal.SIGTERM)
        assert _soon(lambda: interrupt.final)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
    assert [signal.getsignal(number) for number in preempt.SIGNALS] == before


def test_programs_started_in_a_shield_survive_usr2():
    with preempt.shielded():
        program = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    program.send_signal(signal.SIGUSR2)
    program.communicate(b"\n", timeout=60)
    assert program.returncode == 0
    assert signal.SIGUSR2 not in signal.pthread_sigmask(signal.SIG_BLOCK, set())


def test_requeue_outside_slurm_says_what_to_type(monkeypatch):
    for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    assert preempt.requeue() == ("type the same command to go on", False)


def test_an_interrupt_reaches_processes(tmp_path):
    """The flag of the process that started them is every rank's."""
    config = compose(["data=digits", "model=resnet20", "nodes=2", "cluster=processes", f"results={tmp_path}"])[0]
    interrupt = preempt.Interrupt()
    threading.Timer(1.0, interrupt.set).start()
    assert ranks.launch(config, told, nothing, interrupt) == "told"


def told(config, rank, shared) -> str:
    if not rank.interrupt.wait(60):
        raise RunError("nobody said anything")
    return "told"


def _soon(condition) -> bool:
    end = time.monotonic() + 5
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


DEAF = """
import threading
from types import SimpleNamespace
from repro.cluster import watchdog
watchdog.BEAT_S, watchdog.DEAF_BEATS = 0.02, 5
heart = SimpleNamespace(beats=7, last_words=lambda text: print(text, flush=True))

class Done(threading.Event):
    looks = 0

    def wait(self, seconds):
        self.looks += 1
        if {ends}:
            heart.beats += self.looks % 4 == 0  # as a store that needs four looks to answer
            if self.looks == 40:
                self.set()
        return super().wait(seconds)

watchdog.Heart.guard(heart, Done())
print("alive", flush=True)
"""


@pytest.mark.parametrize("ends", [False, True])
def test_a_rank_whose_store_is_silent_ends_and_says_so(ends: bool) -> None:
    """The heartbeat itself waits for the store, and would for good. One that is slow to answer ends nothing."""
    code = [sys.executable, "-c", DEAF.format(ends=ends)]
    done = subprocess.run(code, capture_output=True, text=True, cwd=ROOT, timeout=60)
    said = "alive" if ends else "rank 0 is gone: killed, frozen or cut off; its store was silent for 6 s"
    assert (done.returncode, done.stdout.strip()) == (0 if ends else 1, said), done.stderr
