"""Every collective against what it must return, for any number of ranks, and the bytes that it counts."""

import functools
import math
import time
from datetime import timedelta

import pytest
import thread_ranks
import torch
import torch.distributed as dist

from repro.comm.collective import Collective, CollectiveError
from repro.comm.replay import seconds
from repro.comm.subset import among, join
from repro.comm.traffic import HEADERS_BYTES, SEGMENT_BYTES, Round, framing
from repro.comm.transport import GroupTransport, MemoryTransport, Wires

SIZES = [1, 2, 3, 5, 8, 12]


@pytest.fixture(params=["gloo", "memory"])
def on_ranks(request):
    return functools.partial(thread_ranks.on_ranks, over=request.param)


def vector(rank: int, length: int = 7) -> torch.Tensor:
    return torch.arange(length, dtype=torch.float32) + 100 * rank


@pytest.mark.parametrize("size", SIZES)
def test_all_gather_and_broadcast_and_sum(size, on_ranks):
    def body(collective: Collective):
        mine = vector(collective.rank)
        gathered = collective.all_gather(mine)
        last = collective.broadcast(mine, root=size - 1)
        return gathered, last, collective.all_reduce(mine.clone()), collective.traffic

    expected = torch.stack([vector(rank) for rank in range(size)])
    for gathered, last, summed, _ in on_ranks(size, body):
        assert torch.equal(gathered, expected)
        assert torch.equal(last, expected[-1])
        assert torch.equal(summed, expected.sum(0))


@pytest.mark.parametrize("size", SIZES)
def test_all_gather_takes_log2_rounds_and_sends_everything_but_its_own_once(size, on_ranks):
    for traffic in on_ranks(size, lambda c: (c.all_gather(vector(c.rank)), c.traffic)[1]):
        assert len(traffic.rounds) == math.ceil(math.log2(size))
        assert traffic.bytes_sent == traffic.bytes_received == (size - 1) * 7 * 4


@pytest.mark.parametrize("size", SIZES)
def test_every_byte_sent_is_received_and_the_schedule_can_be_replayed(size, on_ranks):
    def body(collective: Collective):
        collective.broadcast(collective.all_gather(vector(collective.rank)), root=0)
        collective.all_reduce(vector(0, 1000))
        if size > 1:
            partner = collective.rank ^ 1
            if partner < size:
                collective.exchange(vector(collective.rank), partner)
        return collective.traffic

    traffic = on_ranks(size, body)
    assert sum(t.bytes_sent for t in traffic) == sum(t.bytes_received for t in traffic)
    assert (seconds([t.rounds for t in traffic], 1e-3, 1e-9) > 0) == (size > 1)


def test_exchange_swaps_any_dtype(on_ranks):
    for dtype in (torch.uint8, torch.int32, torch.float16, torch.bfloat16, torch.float64):
        swapped = on_ranks(2, lambda c, d=dtype: c.exchange(torch.full((3,), c.rank + 1).to(d), 1 - c.rank))
        assert swapped[0].tolist() == [2, 2, 2] and swapped[1].tolist() == [1, 1, 1]


def test_objects_of_different_sizes_are_gathered_and_not_mixed_up(on_ranks):
    assert on_ranks(3, lambda c: c.gather_objects("x" * (10**c.rank)))[2] == ["x", "x" * 10, "x" * 100]


def test_a_rank_that_leaves_fails_the_others_with_rank_operation_and_peer(on_ranks):
    def body(collective: Collective):
        if collective.rank == 1:
            raise ValueError("rank 1 gives up")
        with pytest.raises(CollectiveError, match=r"rank [02] failed in exchange with rank"):
            collective.exchange(vector(0), 1)
        raise ValueError("rank 1 gives up")

    with pytest.raises(ValueError, match="rank 1 gives up"):
        on_ranks(3, body)


def test_messages_over_a_backend_alone_are_one_group_as_over_a_process_group():
    """NCCL's class takes no device where ProcessGroup's does. Gloo has the same two, and says that it has no groups."""
    backend = dist.ProcessGroupGloo(dist.HashStore(), 0, 1, timedelta(seconds=5))
    group = dist.ProcessGroup(dist.HashStore(), 0, 1)
    group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, backend)
    for one in (backend, group):
        refused = pytest.raises(RuntimeError, match="does not implement startCoalescing")
        with refused, GroupTransport(one, torch.device("cpu")).coalesced():
            pass


@pytest.mark.skipif(not dist.is_nccl_available(), reason="this torch has no NCCL")
def test_the_backend_for_gpus_takes_what_gloos_takes():
    """Two classes of torch are compared, no code of ours: this is for upgrades of torch, on machines without a GPU."""
    for name in ("_start_coalescing", "_end_coalescing", "send", "recv", "allreduce", "abort"):
        ours, known = getattr(dist.ProcessGroupNCCL, name), getattr(dist.ProcessGroupGloo, name)
        assert ours is known or ours.__doc__ and ours.__doc__ == known.__doc__, name


def test_what_a_rank_sent_in_memory_before_it_left_arrives_and_more_is_not_waited_for():
    wires = Wires(3)
    first, second, third = (MemoryTransport(rank, wires) for rank in range(3))
    beside, there = first.aside(), second.aside()
    first.send(torch.ones(2), 1)
    third.send(torch.ones(2), 1)
    first.close()
    for source in (0, 2):
        received = torch.zeros(2)
        second.recv(received, source)
        assert received.tolist() == [1, 1]
    began = time.perf_counter()
    for transport in (second, there):
        with pytest.raises(RuntimeError, match="no message from rank 0 to rank 1"):
            transport.recv(torch.zeros(2), 0)
    assert beside.wires is there.wires and time.perf_counter() - began < 10  # of 60 until the timeout


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8])
def test_a_sum_in_memory_has_the_bits_of_gloos(size):
    """Lengths of a part, of fewer numbers than ranks, and of segments beyond 1 MiB; numbers of unlike magnitudes."""

    def sums(collective):
        generator = torch.Generator().manual_seed(collective.rank)
        found = []
        for length in (1, 2, size - 1, size + 1, 1000, 269_722, 600_001 * size):
            for dtype in (torch.float32, torch.float64):
                unlike = torch.randn(length, generator=generator).mul(8).exp2()
                x = (torch.randn(length, generator=generator) * unlike).to(dtype)
                collective.all_reduce(x)
                found.append(x)
        return found

    by_gloo, in_memory = (thread_ranks.on_ranks(size, sums, over) for over in ("gloo", "memory"))
    for ours, theirs in zip(in_memory, by_gloo, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_thread_beside_names_the_ranks_as_the_others_do():
    pair = Collective(MemoryTransport(0, Wires(2)), [2, 3])
    assert pair.aside().names == [2, 3]


def test_a_ring_among_some_ranks_has_one_message_a_round():
    """Gloo's own sends a chunk in two at least."""

    def body(collective):
        if collective.rank == 3:
            return None
        part = among(collective, [0, 1, 2])
        part.all_reduce(vector(collective.rank))
        join(collective, part)
        return collective.traffic

    for traffic in thread_ranks.on_ranks(4, body)[:3]:
        assert (traffic.messages, traffic.framing) == (4, 4 * HEADERS_BYTES)
        assert sum(map(framing, traffic.rounds)) == traffic.framing, "also as others count it later"


def test_a_chunk_of_gloos_ring_travels_in_two_messages_or_in_as_many_as_hold_a_mebibyte_each():
    for sent, segments in ((1, 2), (2 * SEGMENT_BYTES, 2), (2 * SEGMENT_BYTES + 4, 3)):
        assert framing(Round(1, sent, 1, sent, repeat=4)) == 4 * segments * HEADERS_BYTES


def test_seconds_beside_are_hidden_but_for_those_that_were_waited():
    one = Collective(MemoryTransport(0, Wires(2)))
    for waited, hidden in ((3.0, 2.0), (9.0, 2.0)):
        beside = one.aside()
        beside.seconds = 5.0
        one.join(beside, waited)
        assert one.hidden_s == hidden and beside.seconds == 0
    assert one.seconds == 10.0
