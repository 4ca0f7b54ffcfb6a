"""How large a learning rate may be where 32 nodes with noisy gradients send few entries: by what an update holds.

    python benchmarks/noisy_quadratic.py

The quadratic of `quadratic.py`, without momentum, on 32 nodes: each adds noise of its own to the gradient, ten times as
long as the first gradient is, so that their k largest entries are unlike. The limit is bisected as there; the loss is
the mean of the last 200 of 2,000 steps at a low rate, over the loss at the start. Means of three starts.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from quadratic import SEEDS, SIZE, STEPS, largest, problem

from repro import screen

NODES, NOISE, LOW = 32, 10.0, 0.03
DENSITIES = (0.1, 0.01)
Rule = Callable[[np.ndarray, int, int], np.ndarray]  # residuals [NODES, SIZE], k, step -> what each node sends


def all_entries(residuals: np.ndarray, k: int, step: int) -> np.ndarray:
    return residuals.copy()


def own_largest(residuals: np.ndarray, k: int, step: int) -> np.ndarray:
    """Top-k: the update holds up to k entries of each node."""
    places = np.argpartition(-abs(residuals), k - 1, axis=1)[:, :k]
    sent = np.zeros_like(residuals)
    np.put_along_axis(sent, places, np.take_along_axis(residuals, places, 1), 1)
    return sent


def largest_of_these(residuals: np.ndarray, k: int, step: int) -> np.ndarray:
    """gTop-k, its k chosen at once: of what the nodes selected, what is not among the k largest sums stays."""
    sent = own_largest(residuals, k, step)
    total = abs(sent.sum(0))
    return sent * (total >= np.partition(total, -k)[-k])


def of_a_leader(residuals: np.ndarray, k: int, step: int) -> np.ndarray:
    """ScaleCom: all nodes send the k entries that are one's largest."""
    places = np.argpartition(-abs(residuals[step % NODES]), k - 1)[:k]
    sent = np.zeros_like(residuals)
    sent[:, places] = residuals[:, places]
    return sent


RULES: dict[str, Rule] = {
    "dense": all_entries, "Top-k": own_largest, "gTop-k": largest_of_these, "ScaleCom": of_a_leader
}  # fmt: skip


def loss(rule: Rule, k: int, seed: int, lr: float) -> float:
    """Returns the loss at the end over that at the start; infinity where it passed 1,000."""
    h, x = problem(seed)
    noise, start = np.random.default_rng((seed, k)), x @ h @ x
    scale = NOISE * np.linalg.norm(h @ x) / SIZE**0.5
    residuals, losses = np.zeros((NODES, SIZE)), []
    for step in range(STEPS):
        residuals += h @ x + scale * noise.normal(size=residuals.shape)
        sent = rule(residuals, k, step)
        residuals -= sent
        x = x - lr * sent.mean(0)
        now = x @ h @ x / start
        if not now < 1e3:
            return float("inf")
        losses.append(now)
    return float(np.mean(losses[-200:]))


def limit(rule: Rule, k: int, seed: int) -> float:
    return largest(lambda rate: loss(rule, k, seed, rate) < 1e3)


def main() -> None:
    rows = [
        {
            "density": density,
            "an update holds what these send": name,
            "largest stable lr": np.mean([limit(rule, round(density * SIZE), seed) for seed in SEEDS]),
            f"loss at lr {LOW}": np.mean([loss(rule, round(density * SIZE), seed, LOW) for seed in SEEDS]),
        }
        for density in DENSITIES
        for name, rule in RULES.items()
    ]
    screen.show(rows)


if __name__ == "__main__":
    main()
