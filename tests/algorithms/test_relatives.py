"""What SparDL, SparseLoCo and DeMo promise beyond the invariants of all."""

import pytest
import torch
from algorithm_steps import CHOICES, M, gradients, train
from thread_ranks import on_ranks

from repro import algorithms
from repro.comm.replay import seconds
from repro.compression.chunks import ChunkTopK
from repro.config import compose
from repro.config.schema import ConfigError

SIZES = [2, 3, 5, 6, 7, 8]


def reduce_scatter(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """SparDL in one array: x [P, m] is what each rank has accumulated; returns the sum [m] and the residuals [P, m]."""
    size, m = x.shape
    blocks = [slice(m * b // size, m * (b + 1) // size) for b in range(size)]
    shares = [k * (b + 1) // size - k * b // size for b in range(size)]
    own, x = x.clone(), x.clone()

    def cut(rank, block):
        part = x[rank, blocks[block]]
        chosen = torch.zeros(m)
        index = blocks[block].start + part.abs().sort(descending=True, stable=True).indices[: shares[block]]
        chosen[index] = x[rank, index]
        x[rank, index] = 0
        return chosen

    rest = {rank: [(rank + offset) % size for offset in range(size)] for rank in range(size)}  # blocks still held
    distance = 1 << ((size - 1).bit_length() - 1)
    while distance:
        sent = {rank: [cut(rank, block) for block in rest[rank][distance:]] for rank in range(size)}
        for rank, parts in sent.items():
            for part in parts:
                x[(rank + distance) % size] += part
        rest = {rank: blocks_held[:distance] for rank, blocks_held in rest.items()}
        distance //= 2
    total = sum(cut(rank, rank) for rank in range(size))
    return total, torch.where(total == 0, own, x)


@pytest.mark.parametrize("size", SIZES)
def test_spardl_is_its_own_story_told_in_one_array(size):
    """Also for P that are no powers of two: each block is cut before every round; what misses the update is whole."""
    x = gradients(size, 4, "normal")
    ranks = train("spardl", size, x, 0.05)
    kept = torch.zeros(size, M)
    for step in range(4):
        total, kept = reduce_scatter(kept + x[step], 50)
        assert torch.allclose(ranks[0][0][step], total / size, atol=1e-6)
    assert torch.allclose(torch.stack([residual for _, residual in ranks]), kept, atol=1e-5)


@pytest.mark.parametrize("size", SIZES)
def test_spardl_sends_k_entries_and_at_density_one_all(size):
    x = gradients(size, 3, "normal")
    for updates, _ in train("spardl", size, x, 0.05):
        assert (updates.count_nonzero(1) == 50).all()
    for updates, residual in train("spardl", size, x, 1.0):
        assert torch.allclose(updates, x.mean(1), atol=1e-6) and not residual.any()


@pytest.mark.parametrize("size", [3, 5, 6, 7])
def test_spardl_sends_less_than_gtopk_in_as_many_rounds(size):
    m, k = 100_000, 1000
    costs = {name: algorithms.cost(CHOICES[name], size, m, k) for name in ("spardl", "gtopk")}
    assert costs["spardl"].rounds == costs["gtopk"].rounds
    assert costs["spardl"].bytes < 16 * k <= costs["gtopk"].bytes


def test_spardl_with_fewer_entries_than_nodes_serves_the_blocks_in_turn_and_loses_nothing():
    x = gradients(8, 8, "ties")
    ranks = train("spardl", 8, x, 3 / M)
    updates, _ = ranks[0]
    applied = updates.sum(0) * 8 + sum(residual for _, residual in ranks)
    assert (updates.count_nonzero(1) <= 3).all()
    assert torch.allclose(applied, x.sum((0, 1)), atol=1e-3)
    moved = updates.any(0)
    assert all(moved[M * block // 8 : M * (block + 1) // 8].any() for block in range(8))


def exchange(size: int, decay: float, **options):
    """Two exchanges of SparseLoCo from random weights: before and after of each rank, and what was sent in bytes."""
    choice = compose.algorithm("sparseloco", {"period": 1, "top": 20, "chunk": 256, "decay": decay, **options})

    def body(collective):
        algorithm, source = algorithms.load(choice, M), torch.Generator().manual_seed(collective.rank)
        start = torch.ones(M)
        algorithm.begin(start)
        seen = []
        for _ in range(2):
            weights = algorithm.start + torch.randn(M, generator=source)
            before = (algorithm.start.clone(), algorithm.residual.clone(), weights.clone())
            collective.traffic = type(collective.traffic)()
            algorithm.mix(weights, collective)
            seen.append((before, weights.clone(), algorithm.residual.clone(), collective.traffic))
        return seen

    return on_ranks(size, body)


@pytest.mark.parametrize("decay", [1.0, 0.5])
@pytest.mark.parametrize("size", [2, 3, 7])
def test_sparseloco_moves_by_what_leaves_the_residuals_and_all_go_on_from_one_point(size, decay):
    ranks = exchange(size, decay)
    for step in range(2):
        (start, _, _), after, _, traffic = ranks[0][step]
        assert all(torch.equal(rank[step][1], after) for rank in ranks)
        asked = sum(decay * held + begin - weights for (begin, held, weights), *_ in (rank[step] for rank in ranks))
        kept = sum(rank[step][2] for rank in ranks)
        assert torch.allclose(size * (start - after) + kept, asked, atol=1e-4)
        assert traffic.bytes_sent == (size - 1) * ChunkTopK(M, 256, 20).nbytes


def test_sparseloco_sends_nothing_between_exchanges_and_one_and_three_quarter_bytes_an_entry():
    choice, m = CHOICES["sparseloco"], 1_000_000
    cost = algorithms.cost(choice, 2, m, 0)
    chunks = -(-m // 4096)
    assert cost.bytes == pytest.approx(chunks * (64 * 14 / 8 + 8), abs=4)
    assert algorithms.period(choice) == 15
    for key in ("period", "chunk", "top"):
        with pytest.raises(ConfigError, match="at least 1"):
            algorithms.load(compose.algorithm("sparseloco", {key: 0}), M)


LAYERS = [(16, 3, 3, 3), (16,), (8, 71)]  # 432 + 16 + 568 entries
ALL = {"sign": False, "decay": 1.0, "average": "nodes"}


def demo(size: int, x: torch.Tensor, **options):
    choice = compose.algorithm("demo", options)

    def body(collective):
        algorithm = algorithms.load(choice, x.shape[-1], shapes=LAYERS)
        updates = [algorithm.step(g.clone(), collective).clone() for g in x[:, collective.rank]]
        return torch.stack(updates), algorithm.residual, collective.traffic

    return on_ranks(size, body)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_demo_of_all_coefficients_is_dense(size):
    x = torch.randn(3, size, 1016, generator=torch.Generator().manual_seed(0))
    for updates, residual, _ in demo(size, x, top=4096, **ALL):
        assert torch.allclose(updates, x.mean(1), atol=1e-5) and residual.abs().max() < 1e-5


@pytest.mark.parametrize("size", [2, 3, 7])
def test_demo_keeps_what_it_does_not_send_and_sends_what_is_said(size):
    x = torch.randn(4, size, 1016, generator=torch.Generator().manual_seed(0))
    ranks = demo(size, x, top=8, **ALL)
    applied = ranks[0][0].sum(0) * size + sum(residual for _, residual, _ in ranks)
    assert torch.allclose(applied, x.sum((0, 1)), atol=1e-3)
    assert all(residual.norm() > 1 for _, residual, _ in ranks)
    cost = algorithms.of(CHOICES["demo"]).cost(size, 1016, 0, top=8, shapes=LAYERS)
    assert {traffic.bytes_sent for *_, traffic in ranks} == {4 * cost.bytes}
    assert seconds([traffic.rounds for *_, traffic in ranks], 1e-3, 1e-9) > 0


def test_demo_by_senders_divides_by_those_who_sent_and_its_signs_are_of_one_size():
    """Two ranks that send different coefficients: the public code's mean is each one's own, the other half of it."""
    x = torch.zeros(1, 2, 1016)
    x[0, 0, 0], x[0, 1, 500] = 1.0, 1.0  # in tiles of different layers; rank 0 sends all 16 of the vector's
    senders = demo(2, x, top=4096, sign=False, decay=1.0, average="senders")[0][0]
    assert torch.allclose(senders, demo(2, x, top=4096, **ALL)[0][0], atol=1e-6)  # both send all, zeros too
    few = {average: demo(2, x, top=1, sign=False, average=average)[0][0] for average in ("senders", "nodes")}
    assert few["senders"].abs().max() > few["nodes"].abs().max()
    (signs, *_), *_ = demo(2, torch.randn(2, 2, 1016, generator=torch.Generator().manual_seed(0)))
    assert signs.unique().tolist() in ([-1.0, 1.0], [-1.0, 0.0, 1.0])


def test_demo_momentum_is_its_own():
    with pytest.raises(ConfigError, match="takes the place of momentum"):
        from repro.train import combinations

        combinations.check(compose.compose(["algo=demo", "momentum=0.9"])[0])


def test_demo_forgets_a_part_of_its_momentum_in_each_step():
    x = torch.randn(2, 1, 1016, generator=torch.Generator().manual_seed(0))
    kept = [demo(1, x[:steps], **ALL | {"decay": 0.25}, top=8)[0] for steps in (1, 2)]
    (first, before, _), (both, after, _) = kept
    assert torch.allclose(both[0], first[0]) and before.norm() > 1
    assert torch.allclose(after, 0.25 * before + x[1, 0] - both[1], atol=1e-5)
