"""Why momentum after aggregation costs gTop-k accuracy: the same updates at once, spread or late, and of which entries.

    python benchmarks/momentum_as_delay.py [--steps 390] [--rules none momentum ...] [KEY=VALUE ...]

Momentum after aggregation applies each update spread over the steps that follow, as large in all: 9 steps late on
average where it is 0.9. So the first steps of the whole schedule are trained with updates that are applied at once
(`none`), with momentum, 9 steps late in one piece (`late`), and with momentum for those entries alone that had moved
within the last 30 steps (`soon`), or for all but those (`others`); at a density of 0.001 from the first step on.
The other columns have how many moves are of entries that had moved within so many steps before, and their part of
the updates' squared norm.
"""

from __future__ import annotations

import argparse
from collections import deque
from itertools import chain, count, islice

import torch
from torch import Tensor

from repro import screen, tables
from repro.cluster import ranks
from repro.cluster.ranks import Rank
from repro.config.compose import compose
from repro.config.schema import Config
from repro.data import Dataset
from repro.train.evaluation import evaluate
from repro.train.loop import load_data
from repro.train.schedule import density, learning_rate
from repro.train.step import Worker

MOMENTUM, SOON = 0.9, 30
RULES = ("none", "momentum", "late", "soon", "others")
SPANS = (3, 10, 30, 100)  # steps


class Applied:
    """Turns each update into what is applied in its step, by one of RULES; as much over all steps."""

    def __init__(self, rule: str, like: Tensor):
        self.rule = rule
        self.velocity = torch.zeros_like(like)
        self.waiting: deque[Tensor] = deque()

    def __call__(self, update: Tensor, waited: Tensor) -> Tensor:
        """`waited` [m]: steps since each entry moved before."""
        if self.rule == "none":
            return update
        if self.rule == "late":
            self.waiting.append(update.clone())
            late = round(MOMENTUM / (1 - MOMENTUM))
            return self.waiting.popleft() if len(self.waiting) > late else torch.zeros_like(update)
        soon = waited <= SOON
        spread = update * {"momentum": torch.ones_like(soon), "soon": soon, "others": ~soon}[self.rule]
        self.velocity.mul_(MOMENTUM).add_(spread, alpha=1 - MOMENTUM)
        return self.velocity + (update - spread)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=390)
    parser.add_argument("--rules", nargs="+", choices=RULES, default=RULES)
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    given = parser.parse_args()
    words = ["model=resnet20", "nodes=4", "algo=gtopk", "density_warmup=[]", "momentum=0", "lr=1", *given.settings]
    (config,) = compose([*words, f"steps={given.steps}", "wandb.mode=disabled"])
    rows = []
    for rule in given.rules:
        rows.append(ranks.launch(config, lambda *of, rule=rule: measured(rule, *of), load_data))
        screen.show(rows[-1:])
    screen.show(rows)


def measured(rule: str, config: Config, rank: Rank, data: Dataset) -> tables.Row:
    worker = Worker(config, rank, data)
    replica, per_epoch = worker.replica, data.steps_per_epoch(config.nodes, config.batch_per_node)
    applied = Applied(rule, replica.gradient)
    last = torch.full_like(replica.gradient, -1e9)  # step in which each entry moved
    moves, mass, losses = (*torch.zeros(2, len(SPANS) + 1, device=replica.gradient.device), [])
    batches = chain.from_iterable(map(worker.batches, count()))
    for step, batch in enumerate(islice(batches, config.steps)):
        worker.algorithm.density = density(step / per_epoch, config)
        losses.append(worker.backward([batch]))
        update = worker.algorithm.step(replica.gradient, rank.collective)
        moved, waited = update != 0, step - last
        for at, span in enumerate((*SPANS, float("inf"))):
            within = moved & (waited <= span)
            moves[at] += within.sum()
            mass[at] += update[within].square().sum()
        last[moved] = step
        replica.apply(applied(update, waited), learning_rate(step / per_epoch, config))
    late = losses[-(len(losses) // 4) :]
    return {
        "rule": rule,
        "algo": config.algo.name,
        "seed": config.seed,
        "steps": config.steps,
        "loss of the last quarter": sum(late) / len(late),
        "test accuracy (%)": 100 * evaluate(worker)["test_accuracy"],
        **{f"moves within {span} (%)": 100 * float(moves[at] / moves[-1]) for at, span in enumerate(SPANS)},
        **{f"their mass ({span}, %)": 100 * float(mass[at] / mass[-1]) for at, span in enumerate(SPANS)},
    }


if __name__ == "__main__":
    main()
