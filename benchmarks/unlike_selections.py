"""Count how many nodes would select the same entries, from the residuals in a run's last checkpoint.

    python benchmarks/unlike_selections.py RUN_FOLDER...

gTop-k keeps k entries of what P nodes select. If they select unlike ones, each of its updates holds what single nodes
held, divided by P, and all else waits: a node's entry gets into the update density / P times a step.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from repro import screen
from repro.config.compose import from_yaml
from repro.density import entries
from repro.runs import checkpoint


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="+")
    screen.show([measured(run) for run in parser.parse_args().run])


def measured(run: Path) -> dict[str, Any]:
    """Returns a row; the norms are of what all nodes hold back, on average, and of the parameters that it is for."""
    found = checkpoint.newest_whole(run / "checkpoints")
    config, cpu = from_yaml(run / "config.yaml"), torch.device("cpu")
    names = sorted(path.name for path in found.folder.glob("rank-*.pt"))
    held = torch.stack([residual(checkpoint.load(found.folder, name, cpu)["algorithm"]) for name in names])
    k = entries(config.density, held.shape[1])
    selected = torch.cat([row.abs().topk(k).indices for row in held])
    largest = set(held.sum(0).abs().topk(k).indices.tolist())
    own = sum(int(index) in largest for index in selected)
    return {
        "algo": config.algo.name,
        "nodes": len(names),
        "step": found.step,
        "k": k,
        "nodes that select an entry": len(selected) / len(selected.unique()),
        "of the sum's k largest, a node selects (%)": 100 * own / len(selected),
        "norm held back": held.mean(0).norm().item(),
        "norm of the network": checkpoint.load(found.folder, "shared.pt", cpu)["parameters"].norm().item(),
    }


def residual(state: Any) -> Tensor:
    """Returns the residual in an algorithm's state, however deep it lies. Raises SystemExit where there is none."""
    states = [state]
    while states:
        one = states.pop()
        if "residual" in one:
            return torch.as_tensor(one["residual"])
        states += [part for part in one.values() if isinstance(part, dict)]
    raise SystemExit("this run's algorithm holds nothing back, or a part of it in each bucket")


if __name__ == "__main__":
    main()
