"""How large a learning rate may be where error feedback delays updates: two integrators in one loop, on a quadratic.

    python benchmarks/quadratic.py [--out results/summaries/quadratic.json]

One rank minimises x'Hx / 2 in 400 dimensions: the eigenvalues of H lie from 1 down to 0.001, its eigenvectors in no
axis, so that entries are coupled as those of a network are. k entries of the residual move in a step, the largest, or
random ones.
A rate is stable if the loss stays below 1,000 times its start in 2,000 steps; the limit is bisected, and stated as
lr / (1 - momentum) times the largest eigenvalue, which compares rules at the same effective rate. Dense SGD without
momentum has 2 there, with momentum m 2 (1 + m) / (1 - m).
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from repro.json_text import json_text
from repro.tables import Row, to_markdown
from repro.whole_files import write_whole

SIZE, STEPS, MOMENTUM, SEEDS = 400, 2000, 0.9, (0, 1, 2)
DENSITIES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.0025)
RANDOM = "none, random entries"
RULES = ("after aggregation", "before selection", "before selection, masked", "none", RANDOM)
LEAST, MOST, HALVINGS = 0.003, 100.0, 9


def problem(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns H [SIZE, SIZE] and the start, of length 1."""
    source = np.random.default_rng(seed)
    axes, _ = np.linalg.qr(source.normal(size=(SIZE, SIZE)))
    start = source.normal(size=SIZE)
    return (axes * np.geomspace(1, 1e-3, SIZE)) @ axes.T, start / np.linalg.norm(start)


def stable(h: np.ndarray, x: np.ndarray, rule: str, k: int, effective: float) -> bool:
    """Returns whether SGD with error feedback stays bounded at lr / (1 - momentum) = `effective`."""
    momentum, draws = 0.0 if rule.startswith("none") else MOMENTUM, np.random.default_rng(k)
    lr, early = effective * (1 - momentum), rule.startswith("before")
    residual, velocity, most = np.zeros(SIZE), np.zeros(SIZE), 1e3 * (x @ h @ x)
    for step in range(STEPS):
        gradient = h @ x
        if early:
            velocity = momentum * velocity + gradient
        residual = residual + (velocity if early else gradient)
        if rule == RANDOM:
            chosen = draws.choice(SIZE, k, replace=False, shuffle=False)
        else:
            chosen = np.argpartition(-abs(residual), k - 1)[:k]
        update = np.zeros(SIZE)
        update[chosen], residual[chosen] = residual[chosen], 0
        if rule.endswith("masked"):
            velocity[chosen] = 0
        if not early:
            velocity = momentum * velocity + update
        x = x - lr * (update if early else velocity)
        if step % 50 == 0 and not x @ h @ x < most:
            return False
    return True


def limit(rule: str, density: float, seed: int) -> float:
    h, start = problem(seed)
    return largest(lambda rate: stable(h, start, rule, round(density * SIZE), rate))


def largest(is_stable: Callable[[float], bool]) -> float:
    """Returns the largest stable rate, bisected."""
    low, high = LEAST, MOST
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        if is_stable(middle):
            low = middle
        else:
            high = middle
    return low


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("results/summaries/quadratic.json"))
    out = parser.parse_args().out
    rows: list[Row] = []
    for rule in RULES:
        for density in DENSITIES:
            with np.errstate(over="ignore", invalid="ignore"):
                limits = [limit(rule, density, seed) for seed in SEEDS]
            rows.append({"rule": rule, "density": density, "limits": [float(f"{one:.3g}") for one in limits]})
    print(to_markdown([row | {"limits": " ".join(map(str, row["limits"]))} for row in rows]))
    about = {"size": SIZE, "steps": STEPS, "momentum": MOMENTUM, "seeds": list(SEEDS)}
    write_whole(out, json_text({"experiment": "quadratic", "groups": [], **about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
