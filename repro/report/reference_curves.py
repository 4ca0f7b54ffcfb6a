"""Selects reference curves: whole schedules of dense and Top-k that a third party ran and published the logs of."""

from collections.abc import Iterable, Sequence
from typing import Any

from repro.config.groups import title
from repro.report import momentum, summaries

DATA = "cifar10"
MOMENTUM = 0.9  # of all runs, after aggregation
Run = dict[str, Any]  # job, model, algo, density, nodes, batch_per_node, lr, and test_accuracy in percent by epoch


def load() -> list[Run]:
    """Reads the file alone, which takes a moment, as all summaries do not. Raises ConfigError, or OSError."""
    return list(summaries.read_yaml(summaries.folder() / "reference_curves.yaml")["runs"])


def algo(run: Run) -> str:
    """Returns the algorithm by our name: Top-k at density 1 sends all that dense does."""
    return "dense" if run["density"] == 1 else run["algo"]


def beside(runs: Iterable[Run], settings: dict[str, Any]) -> list[Run]:
    """Returns the runs with steps as large as by these settings; none where its momentum does not amount to theirs."""
    if momentum.effective_lr(settings) != round(settings["lr"] / (1 - MOMENTUM), 9):
        return []
    samples = settings["batch_per_node"] * settings["accumulate"] * settings["nodes"]
    return as_large(runs, settings["model"]["name"], samples, settings["lr"])


def as_large(runs: Iterable[Run], model: str, samples: int, lr: float) -> list[Run]:
    """Returns runs of dense, then of Top-k at the authors' density, with as many samples a step and this rate.

    How many nodes share them matters less: ResNet-20's Top-k ends 0.05 points apart with 4 x 32 and 8 x 16.
    """
    matching = [
        run for run in runs if (run["model"], run["nodes"] * run["batch_per_node"], run["lr"]) == (model, samples, lr)
    ]
    wanted = (("dense", 1), ("topk", 0.001))
    return [run for one in wanted for run in matching if (algo(run), run["density"]) == one]


def text(runs: Sequence[Run], epoch: float) -> str:
    """Returns the accuracies at `epoch`, as "dense 82.06 % (P = 8, batch 32)"; "" where none got so far."""
    at = int(epoch)
    known = [run for run in runs if 1 <= at <= len(run["test_accuracy"])]
    return ", ".join(
        f"{title('algo', algo(run))} {run['test_accuracy'][at - 1]:.2f} % "
        f"(P = {run['nodes']}, batch {run['batch_per_node']})"
        for run in known
    )


def at(runs: Iterable[Run], settings: dict[str, Any], epoch: float) -> str:
    """Returns the `text` of those `beside` a run of these settings at the end of an epoch; "" for other data."""
    return "" if settings["data"]["name"] != DATA or epoch % 1 else text(beside(runs, settings), epoch)
