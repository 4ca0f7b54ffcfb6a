"""Every wire format brings the same pairs to each rank, in the bytes it announced; what rounding takes is accounted."""

from unittest import mock

import numpy as np
import pytest
import socket_bytes
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from repro.comm.collective import Collective
from repro.comm.traffic import HEADERS_BYTES
from repro.compression import pair_formats
from repro.compression.pair_formats import FORMATS, lost, named
from repro.compression.pair_sizes import BLOCK
from repro.compression.sparse import Sparse, add_sum, merge_with_rest
from repro.density import entries

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
LOSSLESS = [*(("gaps", dtype) for dtype in DTYPES), ("gaps-bf16", torch.bfloat16), ("pairs", torch.float32)]
ROUNDING = ["gaps-bf16", "packed"]
ALEXNET = 61_100_840
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def pairs(m: int, n: int, seed: int, dtype: torch.dtype = torch.float32, where: str = "anywhere") -> Sparse:
    """n pairs of m, as a selection has them: ascending, without duplicates, all above some threshold."""
    source = np.random.default_rng(seed)
    if where == "anywhere":
        index = source.choice(m, n, replace=False, shuffle=False)
    else:
        index = np.arange(n) + (0 if where == "at the front" else m - n)
    magnitude = 1e-3 * (1 + source.exponential(0.5, n))
    value = torch.from_numpy(magnitude * source.choice([-1, 1], n))
    return Sparse(torch.from_numpy(np.sort(index).astype(np.int32)), value.to(dtype))


def assert_same(a: Sparse, b: Sparse) -> None:
    assert a.index.dtype == b.index.dtype == torch.int32 and a.value.dtype == b.value.dtype
    assert torch.equal(a.index, b.index)
    assert torch.equal(a.value.view(BITS[a.value.dtype.itemsize]), b.value.view(BITS[b.value.dtype.itemsize]))


@st.composite
def shapes(draw):
    """m, k up to m, and how many of the k there are."""
    m = draw(st.integers(1, 5000) | st.integers(1, 300_000) | st.sampled_from([2**16, 2**17 + 1, ALEXNET, 2**31 - 1]))
    k = draw(st.integers(1, min(m, 5000)))
    return m, k, draw(st.just(k) | st.integers(0, k))


places = st.sampled_from(["anywhere", "at the front", "at the end"])
seeds = st.integers(0, 2**20)


@settings(max_examples=300, deadline=None)
@given(shapes(), places, seeds, st.sampled_from(LOSSLESS))
@example((1, 1, 1), "anywhere", 0, ("gaps", torch.float32))
@example((1, 1, 0), "anywhere", 0, ("gaps", torch.float32))
@example((100_000, 100_000, 100_000), "anywhere", 0, ("gaps", torch.float32))
@example((2**31 - 1, 1, 1), "at the end", 0, ("gaps", torch.float32))
@example((ALEXNET, 61_100, 61_100), "anywhere", 0, ("gaps", torch.float32))
def test_lossless_formats_bring_back_the_bits(shape, where, seed, name_and_dtype):
    (m, k, n), (name, dtype) = shape, name_and_dtype
    sparse, wire_format = pairs(m, n, seed, dtype, where), FORMATS[name]
    wire, received = wire_format.encode(sparse, k, m)
    assert wire.dtype == torch.uint8 and wire.numel() == wire_format.nbytes(k, m, dtype)
    assert received is sparse and lost(sparse, received).index.numel() == 0
    assert_same(wire_format.decode(wire, k, m, dtype), sparse)


@settings(max_examples=200, deadline=None)
@given(shapes(), places, seeds, st.sampled_from(ROUNDING), st.sampled_from(DTYPES))
def test_the_sender_knows_what_is_decoded_and_what_rounding_took(shape, where, seed, name, dtype):
    m, k, n = shape
    sparse, wire_format = pairs(m, n, seed, dtype, where), FORMATS[name]
    wire, received = wire_format.encode(sparse, k, m)
    assert wire.numel() == wire_format.nbytes(k, m, dtype)
    assert_same(wire_format.decode(wire, k, m, dtype), received)
    assert torch.equal(received.index, sparse.index)
    taken = lost(sparse, received)
    if received is not sparse:
        assert_same(taken, Sparse(sparse.index, sparse.value - received.value))
        precision = torch.finfo(dtype).eps
        assert ((received.value + taken.value - sparse.value).abs() <= precision * sparse.value.abs()).all()


def test_bfloat16_takes_half_a_last_place_and_packed_half_a_level():
    sparse = pairs(100_000, 1000, 0)
    received = FORMATS["gaps-bf16"].encode(sparse, 1000, 100_000).received
    assert torch.equal(received.value, sparse.value.bfloat16().float())
    assert (lost(sparse, received).value.abs() <= 2**-8 * sparse.value.abs()).all()
    received = FORMATS["packed"].encode(sparse, 1000, 100_000).received
    for block, taken in zip(sparse.value.split(BLOCK), lost(sparse, received).value.split(BLOCK), strict=True):
        ends = torch.stack([block.abs().min() * (1 - 2**-7), block.abs().max() * (1 + 2**-7)])  # rounded outward
        assert taken.abs().max() <= (ends[1] - ends[0]) / 126 * 1.0001
    assert received.value.sign().equal(sparse.value.sign())


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(width=32), min_size=1, max_size=3 * BLOCK))
@example([3.4028235e38, -3.4028235e38])
@example([1e-45] * 70)
@example([0.0, -0.0, 1.0])
def test_packed_values_stay_between_their_blocks_ends_or_show_that_something_is_not_finite(values):
    value = torch.tensor(values)
    n = value.numel()
    received = FORMATS["packed"].encode(Sparse(torch.arange(n, dtype=torch.int32), value), n, n).received.value
    for block, there in zip(value.abs().split(BLOCK), received.abs().split(BLOCK), strict=True):
        least, largest = (float(end) for end in (block.min(), block.max()))
        if not block.max().bfloat16() * (1 + 2**-7) < torch.inf:  # too large for a bfloat16 that is rounded up
            assert there.isnan().all() or (there <= 3.4e38).all()
        else:
            assert (there >= least * (1 - 2**-7) - 1.3e-38).all() and (there <= largest * (1 + 2**-7) + 1.3e-38).all()
    assert not (received.isfinite() & ~value.isfinite()).any()


@settings(max_examples=100, deadline=None)
@given(shapes().filter(lambda shape: shape[0] < 2**20), places, seeds, st.sampled_from(list(FORMATS)))
def test_torch_operators_and_compiled_loops_write_the_same_bytes(shape, where, seed, name):
    m, k, n = shape
    sparse, wire_format = pairs(m, n, seed, where=where), FORMATS[name]
    compiled = wire_format.encode(sparse, k, m)
    with mock.patch.object(pair_formats, "COMPILED", ()):
        operators = wire_format.encode(sparse, k, m)
        decoded = wire_format.decode(operators.wire, k, m, torch.float32)
    assert torch.equal(operators.wire, compiled.wire)
    assert_same(operators.received, compiled.received)
    assert_same(decoded, compiled.received)


@settings(deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=3 * BLOCK))
def test_torch_operators_and_compiled_loops_round_any_floats_alike(values):
    n = len(values)
    sparse = Sparse(torch.arange(n, dtype=torch.int32), torch.tensor(values))
    compiled = FORMATS["packed"].encode(sparse, n, n)
    with mock.patch.object(pair_formats, "COMPILED", ()):
        operators = FORMATS["packed"].encode(sparse, n, n)
    assert torch.equal(operators.wire, compiled.wire)
    assert torch.equal(operators.received.value.nan_to_num(7), compiled.received.value.nan_to_num(7))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("name", FORMATS)
def test_cuda_writes_the_same_bytes(name):
    sparse = pairs(300_000, 290, 0)
    there = Sparse(*(x.cuda() for x in sparse))
    wire, received = FORMATS[name].encode(there, 300, 300_000)
    here = FORMATS[name].encode(sparse, 300, 300_000)
    assert torch.equal(wire.cpu(), here.wire)
    assert_same(Sparse(*(x.cpu() for x in FORMATS[name].decode(wire, 300, 300_000, torch.float32))), here.received)


@pytest.mark.parametrize("m", [269_722, 14_728_266, ALEXNET])
@pytest.mark.parametrize("density", [0.001, 0.01])
@pytest.mark.parametrize(("name", "most"), {"pairs": 8.0, "gaps": 6.0, "gaps-bf16": 4.0, "packed": 2.5}.items())
def test_bytes_a_pair(name, most, density, m):
    k = entries(density, m)
    wire = FORMATS[name].encode(pairs(m, k, 0), k, m).wire
    assert wire.nbytes == FORMATS[name].nbytes(k, m, torch.float32) <= most * k


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_message_of_no_pairs_is_empty(name, dtype):
    wire = FORMATS[name].encode(pairs(1000, 0, 0, dtype), 0, 1000).wire
    assert wire.numel() == FORMATS[name].nbytes(0, 1000, dtype) == 0
    assert FORMATS[name].decode(wire, 0, 1000, dtype).index.numel() == 0


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [99, 100])
def test_rows_are_added_in_their_order(name, dtype, k):
    encoded = [FORMATS[name].encode(pairs(1000, n, n, dtype), k, 1000) for n in (k, 0, 1, 50, k)]
    rows = torch.stack([wire for wire, _ in encoded])
    expected = add_sum([received for _, received in encoded], torch.ones(1000))
    assert torch.equal(FORMATS[name].add(rows, k, 1000, dtype, torch.ones(1000)), expected)


@pytest.mark.parametrize("name", ["gaps", "gaps-bf16", "packed"])
@pytest.mark.parametrize("compiled", [("cpu",), ()])
def test_what_cannot_be_written_is_refused(name, compiled):
    wire_format, three = FORMATS[name], torch.ones(3)
    with mock.patch.object(pair_formats, "COMPILED", compiled):
        for index in ([0, 2, 2], [0, 3, 2], [1, 2, 10], [-1, 0, 1]):
            with pytest.raises(ValueError, match="ascend"):
                wire_format.encode(Sparse(torch.tensor(index, dtype=torch.int32), three), 3, 10)
        with pytest.raises(ValueError, match="do not fit"):
            wire_format.encode(pairs(10, 3, 0), 2, 10)
        with pytest.raises(ValueError, match="cannot hold"):
            wire_format.decode(wire_format.encode(pairs(10, 3, 0), 3, 10).wire, 64, 100, torch.float32)


@pytest.mark.parametrize("name", ["gaps", "gaps-bf16", "packed"])
def test_a_message_that_nobody_encoded_has_no_more_than_k_pairs(name):
    wire = torch.full((FORMATS[name].nbytes(10, 300, torch.float32),), 255, dtype=torch.uint8)
    assert FORMATS[name].decode(wire, 10, 300, torch.float32).index.numel() == 10


def test_a_wrong_name_says_what_there_is():
    assert named("gaps") is FORMATS["gaps"]
    with pytest.raises(ValueError, match=r"type algo.wire=pairs\|gaps\|gaps-bf16\|packed"):
        named("rice")


@pytest.mark.parametrize("name", FORMATS)
def test_a_merge_of_what_was_received_loses_nothing_that_is_not_accounted_for(name):
    m, k = 5000, 500
    a, b = pairs(m, k, 0), pairs(m, k, 1)
    ours, theirs = (FORMATS[name].encode(x, k, m).received for x in (a, b))
    kept, rest = merge_with_rest(ours, theirs, k)
    accounted = add_sum([kept, rest, lost(a, ours), lost(b, theirs)], torch.zeros(m))
    torch.testing.assert_close(accounted, add_sum([a, b], torch.zeros(m)), rtol=1e-6, atol=1e-9)


@socket_bytes.needs_tcp_info
@pytest.mark.parametrize("n", [61, 40])
@pytest.mark.parametrize("wire_format", FORMATS.values(), ids=FORMATS)
def test_counted_bytes_are_those_at_the_socket(wire_format, n):
    m, k = 61_101, 61
    encoded = [wire_format.encode(pairs(m, n, rank), k, m) for rank in range(2)]

    def swap(collective: Collective) -> tuple[torch.Tensor, int]:
        theirs = collective.exchange(encoded[collective.rank].wire, 1 - collective.rank)
        return theirs, collective.traffic.bytes_sent

    ((at_0, sent_0), (at_1, sent_1)), at_the_socket = socket_bytes.of(2, swap)
    assert at_the_socket - 2 * HEADERS_BYTES == sent_0 + sent_1 == 2 * wire_format.nbytes(k, m, torch.float32)
    assert_same(wire_format.decode(at_0, k, m, torch.float32), encoded[1].received)
    assert_same(wire_format.decode(at_1, k, m, torch.float32), encoded[0].received)


@pytest.mark.parametrize(("m", "k"), [(25_600_000, 25_000), (25_600_000, 256_000), (ALEXNET, 61_100)])
def test_pcodec_decodes_the_same_and_is_hardly_smaller(m, k):
    """pcodec, a published codec of numbers, fits its code to the data, so its messages have no size known before."""
    from pcodec import ChunkConfig, standalone

    sparse = pairs(m, k, 0)
    theirs = [standalone.simple_compress(x.numpy(), ChunkConfig()) for x in sparse]
    index, value = (torch.from_numpy(np.asarray(standalone.simple_decompress(x))) for x in theirs)
    wire = FORMATS["gaps"].encode(sparse, k, m).wire
    assert_same(FORMATS["gaps"].decode(wire, k, m, torch.float32), Sparse(index, value))
    assert (wire.nbytes - 4 * k) / len(theirs[0]) < 1.08
