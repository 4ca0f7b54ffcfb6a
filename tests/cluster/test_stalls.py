"""Who is slow, frozen, hanging or cut off, from what ranks have said."""

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import own_mounts
import pytest
import torch
import torch.distributed as dist

from repro.cluster import stalls, start
from repro.cluster.stalls import Links, Others, Position
from repro.comm.collective import Collective
from repro.comm.subset import among
from repro.comm.transport import MemoryTransport, Wires


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
    assert "rank 1 is frozen or gone" in (said := seen([waits, gone], beats=False))
    assert start.is_lost(said) and not start.is_lost(seen([waits, row(None, 1, still=stalls.STILL_BEATS)]))
    cut = [
        row("all_reduce", 1, unreached=[2]),
        row("all_reduce", 1, unreached=[2]),
        row("all_reduce", 1, unreached=[0, 1]),
    ]
    assert seen(cut).startswith("rank 2 is cut off: 2 of the others do not reach it")
    assert seen(cut, looks=stalls.AGREED - 1) is None


def test_a_decoder_that_waits_for_a_disk_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rank's own thread sleeps meanwhile: its run ended after half a minute in which a disk stood still."""
    end = threading.Event()
    decoder = threading.Thread(target=end.wait)
    decoder.start()
    try:
        effort = stalls.Effort()
        monkeypatch.setattr(stalls, "_waits_for_disk", lambda thread: thread == decoder.native_id)
        assert [effort.still(busy=False) for _ in range(3)] == [0, 0, 0]
        monkeypatch.setattr(stalls, "_waits_for_disk", lambda thread: False)
        monkeypatch.setattr(stalls, "LEAST_NS", 10**18)  # what this thread itself does
        assert [effort.still(busy=False) for _ in range(3)] == [1, 2, 3]
    finally:
        end.set()
        decoder.join()


def test_who_waits_for_a_file_system_in_user_space_waits_for_a_disk(tmp_path: Path) -> None:
    """Its process is not in state D: a run whose sshfs stood still for half a minute was ended."""

    def waits() -> bool:
        efforts = list[stalls.Effort]()

        def ask() -> None:
            efforts.append(stalls.Effort())
            with suppress(OSError):  # as it will be unmounted
                os.stat(tmp_path / "file")

        with own_mounts.silent(tmp_path) as device:
            threading.Thread(target=ask, daemon=True).start()
            os.read(device, 1 << 16)  # its question
            time.sleep(0.1)
            stalls.LEAST_NS = 10**18  # what this thread itself does
            beats = [efforts[0].still(busy=False) for _ in range(3)]
            return beats == [0, 0, 0] and not stalls._waits_for_disk(threading.get_native_id())

    assert own_mounts.holds(waits)


def test_a_rank_that_was_busy_is_not_cut_off_as_soon_as_it_waits_too() -> None:
    """Tries that it had not answered while it was busy were counted for the look at which it entered its collective."""
    others, waits = Others(0), row("all_reduce", 1, unreached=[1])
    for busy in (row(None, 1), row("all_reduce", 1)):
        rows = [waits, busy]
        for _ in range(stalls.AGREED - 1):
            assert others.stalled(rows) is None
        assert others.stalled(rows) is None if busy.inside is None else others.stalled(rows) is not None


def test_a_busy_rank_answers_however_often_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepted nothing while it was in no collective, so that its backlog filled up and it looked cut off."""
    monkeypatch.setattr(stalls, "TRY_S", 0.3)
    store = dist.HashStore()
    waits, busy = (Links(store, rank, 2, "127.0.0.1") for rank in (0, 1))
    for _ in range(4 * 2 + 8):  # more tries than the backlog holds
        busy.unreached(0.0)
        assert waits.unreached(stalls.TRY_AFTER_S + 1) == []
        assert waits.trying is not None
        waits.trying.join()
    assert waits.reached == {1}
    busy.door.close()  # a rank that is gone is still told
    for _ in range(stalls.MISSED):
        waits.unreached(stalls.TRY_AFTER_S + 1)
        waits.trying.join()
    assert waits.unreached(stalls.TRY_AFTER_S + 1) == [1]


def test_who_waits_among_some_ranks_is_seen_to_wait_by_all() -> None:
    """Of ranks in a hierarchical sum nobody was seen to wait, so that one that hung there was never found."""
    wires = Wires(3)
    zero, one = (Collective(MemoryTransport(rank, wires)) for rank in (0, 1))
    waits = threading.Thread(target=lambda: among(zero, [0, 1]).recv(torch.zeros(3), 1))
    waits.start()
    while zero.position[0] is None and waits.is_alive():
        time.sleep(0.01)
    assert zero.position[0] == "recv with rank 1"
    among(one, [0, 1]).send(torch.ones(3), 0)
    waits.join(10)
    assert zero.position[0] is None
