"""The networks and their settings: the authors', and those of the committed convergence runs."""

from repro.figures import _curves
from repro.results import Results
from repro.tables import Row

TITLE = "III. Networks and settings"
COMMAND = "repro run experiment=convergence"


def table(results: Results) -> list[Row]:
    drops = results.paper["training"]["lr_drops"]
    rows = [
        _row(model, "published", cells["dataset"], cells["parameters"], cells["batch_per_node"], cells["lr"], cells["epochs"],
             drops.get(cells["dataset"], []), cells["weight_decay"], cells["momentum"])
        for model, cells in results.paper["models"].items() if isinstance(cells, dict)
    ]  # fmt: skip
    seen = set()
    for group in _curves.longest(results.groups("convergence")):
        s = group.settings
        if group.model not in seen:
            seen.add(group.model)
            published = results.paper["models"].get(group.model, {})
            rows.append(_row(group.model, "trained", group.data, published.get("parameters"), s["batch_per_node"] * s["accumulate"], s["lr"],
                             s["epochs"], s["lr_drops"], s["weight_decay"], s["momentum"], group.schedule))
    return rows


def _row(model, source, data, parameters, batch, lr, epochs, drops, decay, momentum, schedule="") -> Row:  # type: ignore[no-untyped-def]
    """Table rows are wide; the columns' names stand here once."""
    return {"network": model, "source": source, "data": data, "parameters": parameters, "batch per node": batch, "lr": lr, "epochs": epochs,
            "lr drops": ", ".join(f"{drop:g}" for drop in drops), "weight decay": decay, "momentum": momentum,
            "schedule": schedule or f"{epochs} epochs"}
