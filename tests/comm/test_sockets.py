"""Our own TCP connections carry what gloo's do, and hold messages as long as their pace says."""

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import socket_bytes
import thread_ranks
import torch
import torch.distributed as dist

from repro import algorithms
from repro.cluster.ranks import Rank
from repro.comm import common_start, sockets
from repro.comm.collective import Collective, CollectiveError
from repro.comm.sockets import Pace, SocketTransport
from repro.comm.subset import among, join
from repro.config.compose import compose

PACE = Pace(0.04, 8e6)  # 40 ms, and a microsecond a byte


def connected(size: int, body: Callable[[Collective], Any], pace: Pace | None = None) -> list[Any]:
    """`body(collective)` on ranks that are threads with connections of their own on this machine."""
    store, results, errors = dist.HashStore(), [None] * size, list[BaseException]()

    def run(rank: int) -> None:
        try:
            wire = sockets.join(store, rank, size, "127.0.0.1", 20.0, pace)
            try:
                results[rank] = body(Collective(wire))
                Collective(wire.unheld()).barrier()
            finally:
                wire.close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def vector(rank: int, entries: int) -> torch.Tensor:
    return torch.randn(entries, generator=torch.Generator().manual_seed(rank))


def test_a_rank_that_gets_little_for_much_waits_until_its_own_link_is_free() -> None:
    """Its next message, to another rank, would share the link; the model lets a round end with both its messages."""

    def swapped(collective: Collective) -> float:
        much = collective.rank == 0
        began = time.monotonic()
        out, into = torch.zeros(100_000 if much else 10), torch.zeros(10 if much else 100_000)
        collective.transport.exchange(out.byte(), 1 - collective.rank, into.byte(), 1 - collective.rank)
        return time.monotonic() - began

    assert connected(2, swapped, PACE)[0] > 0.1  # 100 kB at a microsecond each; what it gets is there after 40 ms


def test_a_rank_that_the_agreement_held_up_is_late_and_its_messages_are_not_slow(monkeypatch) -> None:
    """What the agreement on the start took beyond the pause counted as communication, and no message as late."""
    monkeypatch.setattr(common_start, "PAUSE_S", 0.001)

    def timed(collective: Collective) -> list[float]:
        rank = Rank(collective, Collective(collective.transport.unheld()), torch.device("cpu"), False, dist.HashStore())
        gather = rank.control.gather_objects

        def slow(one: Any) -> list[Any]:
            found = gather(one)
            time.sleep(0.2)
            return found

        monkeypatch.setattr(rank.control, "gather_objects", slow)
        return common_start.from_common_start(lambda: None, rank, 2)

    assert min(max(connected(2, timed, PACE)[0]) for _ in range(3)) < 0.1  # a busy machine adds to some


def test_a_rank_that_waits_for_a_late_receiver_is_not_itself_late() -> None:
    """What it could not send counted as lateness of the machine once its own message had come: its clock was set back.

    The receiver computes for 1.5 s, and 64 MB are more than the connection holds.
    """

    def ring(collective: Collective) -> float:
        wire, rank = collective.transport, collective.rank
        began = time.monotonic_ns()
        if rank == 1:
            time.sleep(1.5)
        wire.exchange(torch.zeros(16_000_000), (rank + 1) % 3, torch.empty(16_000_000), (rank - 1) % 3)
        return 1e-9 * (wire.clock.now_ns() - began)

    assert connected(3, ring, Pace(0.001, 1e12))[0] > 1.2


def test_two_ranks_swap_more_than_the_connection_holds() -> None:
    """64 MB: a rank that sends before it reads would wait for the other for ever."""
    size = 16_000_000

    def swapped(collective: Collective) -> float:
        return float(collective.exchange(torch.full((size,), float(collective.rank)), 1 - collective.rank)[-1])

    assert connected(2, swapped) == [1.0, 0.0]


@pytest.mark.parametrize("entries", [1, 2, 7, 1_000_003])
def test_the_ring_sums_what_gloo_sums(entries: int) -> None:
    def summed(collective: Collective) -> torch.Tensor:
        return collective.all_reduce(vector(collective.rank, entries))

    ours, gloos = connected(3, summed), thread_ranks.on_ranks(3, summed, "gloo")
    assert all(torch.equal(one, ours[0]) for one in ours)
    torch.testing.assert_close(ours[0], gloos[0])


@pytest.mark.parametrize("algo", ["topk", "gtopk", "gtopk_butterfly", "oktopk", "powersgd"])
def test_a_step_gives_what_it_gives_over_memory(algo: str) -> None:
    (config,) = compose([f"algo={algo}"])

    def step(collective: Collective) -> torch.Tensor:
        algorithm = algorithms.load(config.algo, 4000)
        algorithm.density = 0.01
        return algorithm.step(vector(collective.rank, 4000), collective)

    torch.testing.assert_close(connected(5, step)[0], thread_ranks.on_ranks(5, step)[0])


def test_views_and_other_types_arrive() -> None:
    def swap(collective: Collective) -> list[torch.Tensor]:
        peer, table = 1 - collective.rank, torch.arange(12.0).view(3, 4) + 100 * collective.rank
        whole = collective.exchange(table.t(), peer)  # not contiguous
        return [whole, *(collective.exchange(table[:, :2].to(kind), peer) for kind in (torch.bfloat16, torch.int64))]

    whole, half, numbers = connected(2, swap)[0]
    there = torch.arange(12.0).view(3, 4) + 100
    assert torch.equal(whole, there.t())
    assert torch.equal(half, there[:, :2].bfloat16())
    assert torch.equal(numbers, there[:, :2].long())


@socket_bytes.needs_tcp_info
@pytest.mark.parametrize("size", [2, 3, 4])
def test_counted_bytes_with_their_framing_are_those_at_the_sockets(size: int) -> None:
    """Framing was counted as if gloo sent them, 18 times too much in a ring."""
    together = threading.Barrier(size)

    def received(collective: Collective) -> int:
        together.wait(20)
        assert isinstance(collective.transport, SocketTransport)
        count = sum(map(socket_bytes.of_one, collective.transport.wires.values()))
        together.wait(20)
        return count

    def talk(collective: Collective) -> tuple[int, int]:
        before = received(collective)
        collective.all_reduce(torch.ones(3000))
        collective.all_gather(torch.ones(100))
        collective.shift(torch.ones(7), (collective.rank + 1) % size, (collective.rank - 1) % size)
        if collective.rank < 2:
            part = among(collective, [0, 1])
            part.all_reduce(torch.ones(10))
            join(collective, part)
        return received(collective) - before, collective.traffic.bytes_sent + collective.traffic.framing

    came, counted = zip(*connected(size, talk), strict=True)
    assert sum(came) == sum(counted)


def ping(collective: Collective, size: int, busy_s: float = 0.0) -> float:
    """Rank 0 sends once; rank 1 returns how long after the send began its call to receive returned."""
    item = torch.zeros(size, dtype=torch.uint8)
    collective.transport.unheld().all_reduce(torch.zeros(1))
    began = time.monotonic()
    if collective.rank == 0:
        collective.send(item, 1)
        return 0.0
    time.sleep(busy_s)
    collective.recv(item, 0)
    return time.monotonic() - began


def test_a_message_takes_its_latency_and_then_its_bytes() -> None:
    small, large = (
        min(connected(2, lambda c, size=size: ping(c, size), PACE)[1] for _ in range(3)) for size in (16, 50_000)
    )
    assert 0.035 < small < 0.08  # what the machine itself takes is a part of it
    assert 0.088 < large < 0.14  # 50 ms on the line, though this machine's loopback has them at once


def test_a_receiver_who_comes_late_waits_only_for_the_rest() -> None:
    seconds = [connected(2, lambda c: ping(c, 16, 0.2), PACE)[1] for _ in range(3)]  # a busy machine adds to some
    assert 0.2 < min(seconds) < 0.235  # the message's 40 ms are over


def test_a_link_carries_one_message_after_the_other() -> None:
    def three(collective: Collective) -> float:
        item = torch.zeros(20_000, dtype=torch.uint8)
        began = time.monotonic()
        for _ in range(3):
            if collective.rank == 0:
                collective.send(item, 1)
            else:
                collective.recv(item, 0)
        return time.monotonic() - began

    assert connected(2, three, PACE)[1] > 0.095  # three times 20 ms, and the latency once


def test_a_message_of_another_size_is_an_error() -> None:
    def unlike(collective: Collective) -> None:
        if collective.rank == 0:
            collective.send(torch.zeros(3), 1)
        else:
            collective.recv(torch.zeros(2), 0)

    with pytest.raises((CollectiveError, RuntimeError), match="expected 8 bytes, and rank 0 sent 12|closed|gone"):
        connected(2, unlike)


def test_a_rank_that_is_gone_ends_the_wait_for_it() -> None:
    def leave(collective: Collective) -> None:
        if collective.rank == 0:
            assert isinstance(collective.transport, SocketTransport)
            collective.transport.close()
        else:
            collective.recv(torch.zeros(2), 0)

    with pytest.raises(RuntimeError, match="gone|closed"):
        connected(2, leave)


def test_a_link_carries_the_headers_around_each_segment_too() -> None:
    pace = Pace(0.0, 8e9)  # a byte in a nanosecond
    assert [pace.line_ns(size) for size in (0, 1448, 1449, 14480)] == [66, 1514, 1581, 15140]


def test_a_message_counts_as_late_if_it_came_later_than_the_lab_makes_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = SocketTransport({}, 1, 2, PACE, 1.0)
    message: Any = SimpleNamespace(header=sockets.HEADER.pack(0, 16), size=16, peer=0)
    for behind_ms, late in ((1, 0), (3, 1)):  # 2 ms count as this machine's
        monkeypatch.setattr(sockets, "finish", lambda *_, ms=behind_ms: PACE.line_ns(16) + ms * 1_000_000)
        wire._held(message, None)
        assert wire.counts() == (1, late)
    long = 125_000_000  # a second at 1 Gbps, of which acknowledgements of another message may take a little
    message = SimpleNamespace(header=sockets.HEADER.pack(0, long), size=long, peer=0)
    monkeypatch.setattr(wire.clock, "sleep_until", lambda *_: None)
    for part, late in ((200, 0), (50, 1)):
        behind_ns = 2_000_000 + PACE.line_ns(long) // part
        monkeypatch.setattr(sockets, "finish", lambda *_, ns=behind_ns: PACE.line_ns(long) + ns)
        wire._held(message, None)
        assert wire.counts() == (1, late)
