"""How much larger gTop-k's update is where what merges drop is kept: the norm of each rule's, of the same gradients.

    python benchmarks/update_size.py [--steps 300] [--nodes 4] [KEY=VALUE ...]

The ranks train with dense S-SGD, without momentum, and hand each gradient to every rule as well, whose updates are not
applied. So all rules see the same gradients, and only their residuals differ. The table has the mean norm over the last
third of the steps, over that of the paper's rule, and the part of the gradients' mass that has arrived until then.
"""

import argparse
from itertools import chain, count, islice
from typing import Any

import torch

from repro import algorithms, screen, tables
from repro.cluster import ranks
from repro.cluster.ranks import Rank
from repro.config.compose import algorithm, compose
from repro.config.schema import Config
from repro.data import Dataset
from repro.train.loop import load_data
from repro.train.step import Worker

RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "paper's rule, tree": ("gtopk", {"residual": "paper"}),
    "exact, tree": ("gtopk", {"residual": "exact"}),
    "paper's rule, butterfly": ("gtopk", {"residual": "paper", "route": "butterfly"}),
    "exact, butterfly": ("gtopk", {"residual": "exact", "route": "butterfly"}),
    "gtopk_exact": ("gtopk_exact", {"gain": 1.0}),
    "Top-k": ("topk", {}),
}
LR = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    given = parser.parse_args()
    words = ["model=resnet20", "algo=dense", "momentum=0", *given.settings]
    (config,) = compose([*words, f"nodes={given.nodes}", f"steps={given.steps}", "wandb.mode=disabled"])
    screen.show(ranks.launch(config, measured, load_data))


def measured(config: Config, rank: Rank, data: Dataset) -> list[tables.Row]:
    worker = Worker(config, rank, data)
    gradient, rules = worker.replica.gradient, {}
    for name, (algo, options) in RULES.items():
        rules[name] = algorithms.load(algorithm(algo, options), gradient.numel(), gradient.device)
        rules[name].density = 0.001
    norms = dict.fromkeys(rules, 0.0)
    arrived = {name: torch.zeros_like(gradient) for name in rules}
    total, late, steps = torch.zeros_like(gradient), 0, config.steps or 0
    batches = chain.from_iterable(map(worker.batches, count()))
    for step, batch in enumerate(islice(batches, steps), 1):
        worker.backward([batch])
        own = gradient.clone()
        update = worker.algorithm.step(gradient, rank.collective)
        total += update
        counts = step > 2 * steps // 3
        late += counts
        for name, rule in rules.items():
            found = rule.step(own.clone(), rank.collective)
            arrived[name] += found
            norms[name] += float(found.norm()) * counts
        worker.replica.apply(update, LR)
    first = norms["paper's rule, tree"]
    return [
        {
            "rule": name,
            "nodes": rank.size,
            "steps": steps,
            "norm of an update": norms[name] / late,
            "over the paper's rule": norms[name] / first,
            "arrived (%)": 100 * float(arrived[name].dot(total) / total.dot(total)),
        }
        for name in rules
    ]


if __name__ == "__main__":
    main()
