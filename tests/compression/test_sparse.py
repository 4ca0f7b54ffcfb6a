"""Selection is exact, merging commutes to the last bit and loses nothing, whatever the input."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from repro import algorithms
from repro.compression import sparse_kernels, sparse_torch
from repro.compression.error_feedback import ErrorFeedback
from repro.compression.sparse import (
    Sparse,
    add_packed,
    add_sum,
    merge,
    merge_with_rest,
    outside,
    pack,
    select,
    take_largest,
    to_dense,
    unpack,
)
from repro.config import compose, groups
from repro.config.schema import ConfigError

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
# randomk's indices do not travel, and have 64 bits
SELECTING = [name for name in groups.group_options("algo") if name != "randomk" and compose.algorithm(name, {}).sparse]
KINDS = ["normal", "heavy", "equal", "zero", "denormal", "infinite", "ties", "few", "rising", "signed zeros"]


def vector(kind: str, m: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(m, generator=source)
    if kind == "heavy":
        x = x / torch.rand(m, generator=source).pow(3)
    elif kind == "equal":
        x = x.sign() * 0.75
    elif kind == "zero":
        x = x * 0
    elif kind == "denormal":
        x = x * 1e-41
    elif kind == "infinite":
        x[torch.rand(m, generator=source) < 0.1] *= torch.inf
    elif kind == "ties":
        x = x.mul(2).round()
    elif kind == "few":
        x = x * (torch.rand(m, generator=source) < 0.01)
    elif kind == "rising":  # each entry enters the candidates
        x = x.abs().sort().values
    elif kind == "signed zeros":
        x = torch.where(x.abs() < 1.5, x * 0, x)
    return x.to(dtype)


def largest(x: torch.Tensor, k: int) -> Sparse:
    """By the definition: a float64 sort by magnitude, then index."""
    magnitude = x.double().abs().numpy()
    order = np.lexsort((np.arange(x.numel()), -magnitude))[:k]
    index = torch.from_numpy(np.sort(order[magnitude[order] > 0]))
    return Sparse(index.int(), x[index])


def assert_same(a: Sparse, b: Sparse) -> None:
    assert a.index.dtype == b.index.dtype == torch.int32 and a.value.dtype == b.value.dtype
    assert torch.equal(a.index, b.index)
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[a.value.dtype.itemsize]
    assert torch.equal(a.value.view(bits), b.value.view(bits))


sizes = st.integers(1, 20_000)
seeds = st.integers(0, 2**20)
kinds = st.sampled_from(KINDS)
dtypes = st.sampled_from(DTYPES)


@settings(max_examples=150, deadline=None)
@given(kinds, sizes, st.floats(0, 1), seeds, dtypes)
@example("rising", 20_000, 0.001, 0, torch.float32)
@example("equal", 20_000, 0.5, 0, torch.float32)
def test_select_is_exact(kind, m, density, seed, dtype):
    x = vector(kind, m, seed, dtype)
    k = max(1, int(density * m))
    assert_same(select(x, k), largest(x, k))
    assert_same(Sparse(*sparse_torch.select(x, k)), largest(x, k))


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=300), st.integers(1, 400))
def test_select_is_exact_on_any_floats(values, k):
    x = torch.tensor(values)
    assert_same(select(x, k), largest(x, k))


@settings(max_examples=60, deadline=None)
@given(kinds, st.sampled_from([1e-38, 1e-3, 0.9, 1.0, 1.1, 1e3, 1e38]), seeds)
def test_a_wrong_threshold_costs_no_exactness(kind, factor, seed):
    m, k = 20_000, 50
    x = vector(kind, m, seed)
    expected = largest(x, k)
    guess = (expected.value.abs().min() if len(expected.index) else torch.tensor(1.0)) * factor
    room = 2 * k + sparse_kernels.BLOCK
    index, bits = np.empty(room, np.int32), np.empty(room, np.int32)
    threshold = np.int32(guess.view(torch.int32).item())
    n = sparse_kernels.select(x.numpy(), np.empty(0, np.float32), k, threshold, False, index, bits)
    assert_same(Sparse(torch.from_numpy(index[:n]), torch.from_numpy(bits[:n]).view(torch.float32)), expected)


@pytest.mark.parametrize("large_on_sample", [True, False])
def test_a_sample_that_misleads_costs_no_exactness(large_on_sample):
    m, k = 300_000, 300
    x = vector("normal", m, 0)
    step = sparse_kernels.stride(m)
    (x[::step] if large_on_sample else x[1::step]).mul_(1000)
    above = (x.abs().view(torch.int32) > sparse_kernels.estimate(x.numpy(), np.empty(0, np.float32), k)).sum()
    assert above < k if large_on_sample else above > 10 * k  # it errs: a second pass, or far more than k at first
    assert_same(select(x, k), largest(x, k))


@settings(max_examples=60, deadline=None)
@given(kinds, kinds, sizes, st.floats(0, 1), seeds)
def test_accumulating_is_adding_then_selecting(kind, other, m, density, seed):
    residual, gradient = vector(kind, m, seed), vector(other, m, seed + 1)
    if "infinite" in (kind, other):  # inf - inf
        residual, gradient = residual.abs(), gradient.abs()
    k = max(1, int(density * m))
    total = residual + gradient
    expected = largest(total, k)
    assert_same(take_largest(residual, gradient.clone(), k), expected)
    total[expected.index] = 0
    assert torch.equal(residual, total)


@settings(max_examples=100, deadline=None)
@given(kinds, kinds, st.integers(1, 3000), st.floats(0, 1), seeds, dtypes)
def test_merge_commutes_and_loses_nothing(kind, other, m, density, seed, dtype):
    k = max(1, int(density * m))
    a, b = select(vector(kind, m, seed, dtype), k), select(vector(other, m, seed + 1, dtype), k)
    a = Sparse(a.index, a.value.abs()) if kind == other == "infinite" else a  # inf - inf
    b = Sparse(b.index, b.value.abs()) if kind == other == "infinite" else b
    kept, rest = merge_with_rest(a, b, k)
    for one, mirrored in zip((kept, rest), merge_with_rest(b, a, k), strict=True):
        assert_same(one, mirrored)
    assert_same(merge(a, b, k), kept)
    total = dense(a, m) + dense(b, m)
    assert_same(kept, largest(total, k))
    assert torch.equal(add_sum([kept, rest], torch.zeros(m, dtype=dtype)), total)
    assert not set(kept.index.tolist()) & set(rest.index.tolist())
    torch_kept, torch_rest = sparse_torch.merge_with_rest(a, b, k)
    assert_same(kept, Sparse(*torch_kept))
    assert_same(rest, Sparse(*torch_rest))


def dense(sparse: Sparse, m: int) -> torch.Tensor:
    return to_dense(sparse, torch.full((m,), torch.nan, dtype=sparse.value.dtype))


@given(st.sets(st.integers(0, 50)), st.sets(st.integers(0, 50)))
def test_outside_is_the_set_difference(a, b):
    first, second = (torch.tensor(sorted(s), dtype=torch.int32) for s in (a, b))
    found = outside(Sparse(first, first * 2.0), Sparse(second, second * 3.0))
    assert found.index.tolist() == sorted(a - b) and found.value.tolist() == [2.0 * i for i in sorted(a - b)]
    assert first[sparse_torch.outside(first, second)].tolist() == sorted(a - b)


class Waits(TorchDispatchMode):
    """Counts the operators whose result's size, or number, the CPU must know: on a GPU it waits for each of them."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name, last = function.overloadpacket.__name__, args[1] if len(args) > 1 else None
        self.count += name in ("nonzero", "_local_scalar_dense") or "unique" in name
        if name.startswith("index"):
            self.count += any(
                getattr(part, "dtype", None) == torch.bool for part in (last if type(last) is list else [])
            )
        return function(*args, **(kwargs or {}))


def test_torch_operators_wait_once():
    x, y = vector("normal", 30_000, 0), vector("normal", 30_000, 1)
    a, b = sparse_torch.select(x, 300), sparse_torch.select(x * (y > 0), 300)
    for what in (
        lambda: sparse_torch.select(x, 300),
        lambda: sparse_torch.merge_with_rest(a, b, 300),
        lambda: sparse_torch.outside(a[0], b[0]),
    ):
        with Waits() as waits:
            what()
        assert waits.count == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["normal", "few", "zero"])
@pytest.mark.parametrize("k", [99, 100])
def test_what_is_packed_comes_back(k, kind, dtype):
    sparse = select(vector(kind, 1000, 0, dtype), k)
    buffer = pack(sparse, k)
    assert buffer.dtype == torch.uint8 and buffer.numel() == k * (4 + dtype.itemsize)
    assert_same(unpack(buffer, dtype), sparse)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["normal", "few", "zero"])
@pytest.mark.parametrize("k", [99, 100])
def test_packed_vectors_are_added_in_their_order(k, kind, dtype):
    """With an odd k the second row of 16-bit values begins within a word."""
    vectors = [select(vector(kind, 1000, seed, dtype), k) for seed in range(7)]
    rows = torch.stack([pack(one, k) for one in vectors])
    assert torch.equal(add_packed(rows, dtype, torch.ones(1000)), add_sum(vectors, torch.ones(1000)))


def test_k_and_room_are_checked():
    with pytest.raises(ValueError, match="at least 1"):
        select(torch.ones(3), 0)
    with pytest.raises(ValueError, match="do not fit"):
        pack(select(torch.ones(3), 3), 2)


def test_threads_may_select_at_once():
    vectors = [vector("normal", 300_000, seed) for seed in range(8)]
    found: dict[int, Sparse] = {}

    def one(i: int) -> None:
        for _ in range(5):
            found[i] = select(vectors[i], 300)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, x in enumerate(vectors):
        assert_same(found[i], largest(x, 300))


def resident(name: str) -> int:
    """Bytes of memory: VmRSS now, VmHWM at its peak."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="no Linux /proc")
def test_a_step_after_the_first_allocates_nothing_of_the_gradients_size():
    m, k = 8_000_000, 1000
    memory, gradient = ErrorFeedback(m), vector("normal", m, 0)
    memory.put_back(memory.accumulate_and_select(gradient, k))
    address, before = memory.residual.data_ptr(), resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    memory.put_back(memory.accumulate_and_select(gradient, k))
    assert memory.residual.data_ptr() == address
    assert resident("VmHWM") - before < m / 4  # bytes: a sixteenth of the gradient's


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda_selects_and_merges_the_same_bits(kind, dtype):
    x, y = vector(kind, 30_000, 0, dtype), vector("ties", 30_000, 1, dtype)
    a, b = select(x, 300), select(y, 300)
    on_gpu = select(x.cuda(), 300), select(y.cuda(), 300)
    assert_same(a, Sparse(*(t.cpu() for t in on_gpu[0])))
    for here, there in zip(merge_with_rest(a, b, 300), merge_with_rest(*on_gpu, 300), strict=True):
        assert_same(here, Sparse(*(t.cpu() for t in there)))
    assert_same(outside(a, b), Sparse(*(t.cpu() for t in outside(*on_gpu))))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_empty_vector_has_nothing_to_select(dtype):
    assert select(torch.empty(0, dtype=dtype), 3).index.numel() == 0


@pytest.mark.parametrize("name", SELECTING)
def test_more_entries_than_an_index_can_tell_apart_are_refused(name: str) -> None:
    """Those beyond 2^31 had negative indices, and the update went to other entries. Nothing is allocated here."""
    algo, most = compose.algorithm(name, {}), torch.iinfo(torch.int32).max
    algorithms.load(algo, most, "meta")
    with pytest.raises(ConfigError, match=f"algo={name}: 2,147,483,648 entries are too many for one selection"):
        algorithms.load(algo, most + 1, "meta")


def test_the_library_refuses_them_too() -> None:
    for made in (lambda: ErrorFeedback(2**31, "meta"), lambda: select(torch.empty(2**31, device="meta"), 1)):
        with pytest.raises(ValueError, match="an index has 32 bits"):
            made()
