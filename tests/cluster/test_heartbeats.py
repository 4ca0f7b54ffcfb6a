"""What heartbeats cost the store, and what they let a process finish."""

import json
from dataclasses import asdict
from itertools import pairwise

import pytest
import torch.distributed as dist

from repro.cluster import stalls, watchdog
from repro.cluster.stalls import Position


def heart(store: dist.Store, rank: int, size: int, inside: str | None = None) -> watchdog.Heart:
    return watchdog.Heart(store, rank, size, lambda: (inside, 0.0), print, 60.0, "")


@pytest.mark.parametrize("size", [1, 2, 16, 17, 33, 256, 4096])
def test_a_large_runs_heartbeats_leave_its_store_in_peace(size: int) -> None:
    """Every rank asked for every position by itself: at 256 ranks that took nine tenths of a core of rank 0's."""
    looking = [rank for rank in range(size) if heart(dist.HashStore(), rank, size).looks]
    assert len(looking) in range(min(size, 8) if size > 1 else 0, 17)
    assert all(b - a == looking[1] - looking[0] for a, b in pairwise(looking)), "some on all machines"


def test_all_positions_are_one_request_and_who_has_none_is_seen() -> None:
    class Counted:
        def __init__(self) -> None:
            self.store, self.requests = dist.HashStore(), 0

        def __getattr__(self, name: str):
            self.requests += 1
            return getattr(self.store, name)

    store = Counted()
    for rank in (0, 1, 3):
        store.set(f"position/{rank}", json.dumps(asdict(Position(None, 1.0, rank))))
    assert [one and one.beat for one in watchdog.positions(store, 4)] == [0, 1, None, 3]
    store.set("position/2", json.dumps(asdict(Position(None, 1.0, 2))))
    before = store.requests
    assert [one.beat for one in watchdog.positions(store, 4)] == [0, 1, 2, 3]
    assert store.requests - before == 2


def test_a_failed_runs_upload_is_no_hang() -> None:
    """The process was ended after 15 s of it, with all later runs of a sweep."""
    assert heart(dist.HashStore(), 0, 2, stalls.W_AND_B).at_work()
    assert not heart(dist.HashStore(), 0, 2, stalls.DISK).at_work()
