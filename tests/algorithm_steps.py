"""Steps of one algorithm on P ranks, without a model: what comes out, and what its error feedback holds."""

import torch
from thread_ranks import on_ranks

from repro import algorithms
from repro.config import compose, groups

# A gain, which `Corrected` adds to an algorithm's own step, is what tests of it give.
UNGAINED = {name: {"gain": 1.0} for name in groups.group_options("algo") if compose.algorithm(name, {}).gain != 1}
CHOICES = {name: compose.algorithm(name, UNGAINED.get(name, {})) for name in groups.group_options("algo")}
M = 1000


def gradients(size: int, steps: int, kind: str, dtype=torch.float32) -> torch.Tensor:
    """[steps, size, M] of integers, so that sums are exact and ties are frequent; kind=normal has neither."""
    source = torch.Generator().manual_seed(size)
    if kind == "normal":
        return torch.randn(steps, size, M, generator=source).to(dtype)
    x = torch.randint(-9, 10, (steps, size, M), generator=source).to(dtype)
    if kind == "few":  # fewer non-zeros than k
        x *= torch.rand(x.shape, generator=source) < 0.002
    elif kind == "zero":
        x.zero_()
    return x


def train(name: str, size: int, x: torch.Tensor, density: float, seed: int = 0, over="memory", **options):
    """Updates [steps, M] and what error feedback holds [M], of each rank."""
    choice = compose.algorithm(name, UNGAINED.get(name, {}) | options, seed)

    def body(collective):
        algorithm = algorithms.load(choice, M)
        algorithm.density = density
        updates = [algorithm.step(g.clone(), collective).clone() for g in x[:, collective.rank]]
        return torch.stack(updates), held(algorithm, collective.rank)

    return on_ranks(size, body, over)


def held(algorithm: algorithms.Algorithm, rank: int) -> torch.Tensor:
    """A rank's residual and, in the chunk that it owns, its server residual."""
    residual, server = algorithms.residuals(algorithm)
    kept = torch.zeros(M) if residual is None else residual.clone()
    if server is not None:
        own = slice(rank * len(server), (rank + 1) * len(server))
        kept[own] += server[: len(kept[own])]
    return kept
