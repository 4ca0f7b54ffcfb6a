"""BAGUA's primitives against what they must compute, what they lose, and the bytes they count; the codecs alone."""

import copy
import functools
import math

import pytest
import thread_ranks
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from repro.comm.collective import Collective
from repro.comm.primitives import (
    compressed_scatter_reduce,
    exchange_with_peers,
    mix_with_peers,
    peers,
)
from repro.comm.replay import seconds
from repro.comm.transport import MemoryTransport, Wires
from repro.compression import codecs
from repro.compression.codecs import QSGD, TINY, Codec, MinMax, Sign
from repro.config.schema import ConfigError

SIZES = [1, 2, 3, 5, 8]
M = 101  # no P of these divides it
on_ranks = functools.partial(thread_ranks.on_ranks, over="gloo")


def qsgd(bits: int = 8, bucket: int = 16, norm: str = "max") -> QSGD:
    return QSGD(torch.Generator().manual_seed(0), bits, bucket, norm)


CODECS: dict[str, Codec] = {
    "minmax": MinMax(),
    "minmax in buckets": MinMax(24),
    "qsgd": qsgd(),
    "qsgd 4 bits": qsgd(4),
    "qsgd l2": qsgd(norm="l2"),
    "sign": Sign(16),
}


def vectors(size: int) -> torch.Tensor:
    return torch.randn(size, M, generator=torch.Generator().manual_seed(size))


def bound(codec: Codec, x: torch.Tensor) -> torch.Tensor:
    """How far an entry of one row may be off, as the codec's docstring says it."""
    largest = x.abs().max()
    if isinstance(codec, MinMax):
        return (x.max().clamp(min=0) - x.min().clamp(max=0)) / 255 * 1.01 + TINY
    if isinstance(codec, QSGD):
        norm = largest if codec.norm == "max" else x.double().norm().float()
        return norm / (2 ** (codec.bits - 1) - 1) * 1.01 + TINY
    return largest + 1e-7


# Codecs.


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("scale", [1.0, 1e-38, 1e30, 0.0])
def test_compiled_loops_do_what_torch_does(name: str, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    x, (codec, other) = vectors(3) * scale, (copy.deepcopy(CODECS[name]) for _ in range(2))
    wire = codec.encode(x)
    back = codec.decode(wire, M)
    monkeypatch.setattr(codecs, "COMPILED", ())
    same = other.encode(x)
    if name != "sign":
        assert torch.equal(wire, same) and torch.equal(back, other.decode(same, M))
    else:  # the mean magnitude is summed in another order
        assert torch.allclose(back, other.decode(same, M), rtol=1e-5, atol=1e-44)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@settings(max_examples=40, deadline=None)
@given(
    rows=hnp.arrays(
        "float32",
        st.tuples(st.integers(1, 3), st.integers(1, 50)),
        elements=st.floats(-1e4, 1e4, width=32).filter(lambda x: x == 0 or abs(x) > 1e-18),  # squares are normal
    )
)
def test_what_comes_back_is_off_by_at_most_the_stated_error(codec: Codec, rows) -> None:
    x = torch.from_numpy(rows)
    wire = codec.encode(x)
    back = codec.decode(wire, x.shape[1])
    assert wire.dtype == torch.uint8 and wire.shape == (x.shape[0], codec.nbytes(x.shape[1]))
    assert back.dtype == torch.float32 and back.shape == x.shape
    for row, returned in zip(x, back, strict=True):
        assert ((row - returned).abs() <= bound(codec, row)).all()
    assert (codec.decode(codec.encode(x * 0), x.shape[1]) == 0).all()


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("poison", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_stays_so(codec: Codec, poison: float) -> None:
    x = torch.ones(2, 20)
    x[1, 3] = poison
    back = codec.decode(codec.encode(x), 20)
    assert torch.isfinite(back[0]).all() and not torch.isfinite(back[1]).all()


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("n", [1, 16, 17, 31, 50])
def test_signs_have_the_mean_magnitude_of_their_bucket_also_of_a_short_last_one(n, compiled, monkeypatch) -> None:
    """The padding counted as entries: one in a last bucket of 16 came back as a sixteenth of itself."""
    if not compiled:
        monkeypatch.setattr(codecs, "COMPILED", ())
    x = vectors(3)[:, :n]
    back = Sign(16).decode(Sign(16).encode(x), n)
    for own, returned in zip(x.split(16, 1), back.split(16, 1), strict=True):
        expected = own.abs().mean(1, keepdim=True).expand_as(own)
        assert torch.allclose(returned.abs(), expected, rtol=1e-5) and torch.equal(returned > 0, own > 0)


def test_sign_packs_eight_entries_a_byte_and_minmax_keeps_zeros() -> None:
    assert Sign(1024).nbytes(4096) == 4 * (4 + 128) and qsgd(4, 512).nbytes(1024) == 2 * (4 + 256)
    x = torch.randn(1, 1000, generator=torch.Generator().manual_seed(1))
    x[0, ::3] = 0
    assert (MinMax().decode(MinMax().encode(x), 1000)[0, ::3] == 0).all()


@pytest.mark.parametrize("norm", ["max", "l2"])
def test_qsgd_is_unbiased(norm: str) -> None:
    x, codec = torch.randn(1, 64, generator=torch.Generator().manual_seed(2)), qsgd(4, 64, norm)
    mean = torch.stack([codec.decode(codec.encode(x), 64) for _ in range(4000)]).mean(0)
    step = bound(codec, x) / 1.01
    assert (mean - x).abs().max() < 5 * step / 2 / math.sqrt(4000)  # five standard deviations of the mean


# Centralized.


def test_one_rank_alone_applies_what_was_kept() -> None:
    """It came back uncompressed and without it, so that the residual was never delivered."""
    x, kept = vectors(3)[0], vectors(4)[0]
    own, server = kept.clone(), kept.clone()
    total = compressed_scatter_reduce(x, Collective(MemoryTransport(0, Wires(1))), Sign(16), own, server)
    assert torch.equal(total, x + kept + kept) and not own.any() and not server.any()


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("size", SIZES)
def test_compressed_scatter_reduce_keeps_what_it_loses(size: int, codec: Codec) -> None:
    steps, width = 3, math.ceil(M / size)
    x = torch.stack([vectors(size) * (step + 1) for step in range(steps)])

    def body(collective: Collective):
        worker, server = torch.zeros(M), torch.zeros(width)
        totals = [compressed_scatter_reduce(g, collective, codec, worker, server) for g in x[:, collective.rank]]
        return torch.stack(totals), worker, server, collective.traffic

    ranks = on_ranks(size, body)
    servers = torch.cat([server for _, _, server, _ in ranks])
    kept = sum(worker for _, worker, _, _ in ranks) + servers[:M]
    assert torch.allclose(ranks[0][0].sum(0) + kept, x.sum((0, 1)), atol=1e-3)
    assert not servers[M:].any()
    for totals, _, _, traffic in ranks:
        assert torch.equal(totals, ranks[0][0])
        assert traffic.bytes_sent == steps * 2 * (size - 1) * codec.nbytes(width)
    assert (seconds([traffic.rounds for *_, traffic in ranks], 1e-3, 1e-9) > 0) == (size > 1)


@pytest.mark.parametrize("size", [2, 3, 8])
def test_a_compressed_sum_is_close_to_the_sum(size: int) -> None:
    x = vectors(size)
    for codec in (MinMax(), qsgd()):
        total = on_ranks(size, lambda c, codec=codec: compressed_scatter_reduce(x[c.rank], c, codec))[0]
        allowed = sum(bound(codec, row) for row in x) + bound(codec, x.sum(0)) * 1.5
        assert ((total - x.sum(0)).abs() <= allowed).all()


# Decentralized.


@pytest.mark.parametrize("topology", ["all", "ring", "shift_one", "random_pairs"])
@pytest.mark.parametrize("size", range(1, 10))
def test_peers_are_mutual_and_the_mean_stays(topology, size: int) -> None:
    if topology == "shift_one" and size % 2 and size > 1:
        with pytest.raises(ConfigError, match="must be even"):
            peers(topology, 0, size)
        return
    x = vectors(size)
    for step in range(5):
        rounds = [peers(topology, rank, size, step) for rank in range(size)]
        sent = sorted((rank, to) for rank in range(size) for to, _ in rounds[rank])
        heard = sorted((source, rank) for rank in range(size) for _, source in rounds[rank])
        assert sent == heard and not any(rank == to for rank, to in sent)
        mixed = torch.stack([torch.stack([x[rank], *(x[s] for _, s in rounds[rank])]).mean(0) for rank in range(size)])
        assert torch.allclose(mixed.mean(0), x.mean(0), atol=1e-5)
    if topology == "shift_one" and size > 2:
        assert len({peers(topology, 0, size, step)[0] for step in range(size // 2)}) == size // 2  # meets all in turn
    if topology == "random_pairs" and size > 3:
        assert len({str(peers(topology, 0, size, step)) for step in range(20)}) > 2


@pytest.mark.parametrize("topology", ["all", "ring", "shift_one", "random_pairs"])
@pytest.mark.parametrize("size", [1, 2, 4, 6])
def test_mixing_averages_with_the_peers_and_counts(topology, size: int) -> None:
    x = vectors(size)

    def body(collective: Collective):
        mixed = mix_with_peers(x[collective.rank], collective, topology, step=3, seed=7)
        sent = collective.traffic.bytes_sent
        return mixed, exchange_with_peers(x[collective.rank], collective, topology, 3, 7), sent

    for rank, (mixed, theirs, sent) in enumerate(on_ranks(size, body)):
        found = peers(topology, rank, size, 3, 7)
        expected = torch.stack([x[rank], *(x[source] for _, source in found)]).mean(0)
        assert torch.allclose(mixed, expected, atol=1e-5)
        assert all(torch.equal(own, x[source]) for own, (_, source) in zip(theirs, found, strict=True))
        if topology != "all":
            assert sent == len(found) * M * 4


def test_an_unknown_topology_is_told() -> None:
    with pytest.raises(ConfigError, match="choose one of all, ring"):
        peers("star", 0, 4)  # type: ignore[arg-type]
