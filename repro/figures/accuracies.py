"""Final loss and accuracy of every convergence run, with what its steps cost."""

from repro.figures import _draw
from repro.results import Results
from repro.tables import Row

TITLE = "Final accuracies of the convergence runs"
COMMAND = "repro run experiment=convergence"


def table(results: Results) -> list[Row]:
    rows = []
    groups = [group for group in results.groups("convergence") if group.curve]
    order = _draw.algos_of({"algo": group.algo} for group in groups)
    for group in sorted(groups, key=lambda group: (group.model, group.settings["epochs"], order.index(group.algo))):
        last = group.curve[-1]
        rows.append(
            {
                "network": _draw.model_name(group.model),
                "algorithm": group.algo,
                "source": "trained",
                "data": group.data,
                "nodes": group.nodes,
                "schedule": group.schedule,
                "n": group.n,
                "train loss": last["train_loss"],
                "test accuracy (%)": 100 * last["test_accuracy"],
                "± (%)": None if last["test_accuracy_std"] is None else 100 * last["test_accuracy_std"],
                "bytes per node and step": group.per_step.get("bytes_sent"),
                "ms per iteration": None if group.step_s is None else 1e3 * group.step_s,
                "time": group.time["source"] if group.time else None,
            }
        )
    return rows
