"""Lists the networks and their settings: the authors', and those of the committed convergence runs."""

from collections.abc import Sequence

from repro.figures import _curves, _draw, _shown
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "III. Networks and settings"
COMMAND = _curves.CONVERGENCE
ALIKE = (
    "lr",
    "epochs",
    "weight_decay",
    "momentum",
)  # called the same in the paper's file and in a run's settings


def table(results: Results) -> list[Row]:
    paper = results.paper
    models = {name: cells for name, cells in paper["models"].items() if isinstance(cells, dict)}
    rows = []
    for model, cells in models.items():
        drops = paper["training"]["lr_drops"].get(cells["dataset"], [])
        alike = {name: cells[name] for name in ALIKE} | {"schedule": f"{cells['epochs']} epochs"}
        batch, parameters = cells["batch_per_node"], cells["parameters"]
        rows.append(
            _row(
                _draw.model_name(model), "published", _draw.data_name(cells["dataset"]), parameters, batch, drops, alike
            )
        )
    groups = _shown.of_one_schedule(results.groups("convergence"))
    longest = sorted(groups, key=lambda group: (group.epochs, -group.nodes))
    for group in {(group.model, group.data): group for group in longest}.values():
        ours = group.settings
        alike = {name: ours[name] for name in ALIKE} | {"schedule": group.schedule}
        batch, parameters = ours["batch_per_node"] * ours["accumulate"], models.get(group.model, {}).get("parameters")
        rows.append(
            _row(
                _draw.model_name(group.model),
                "trained",
                _draw.data_name(group.data),
                parameters,
                batch,
                ours["lr_drops"],
                alike,
            )
        )
    return rows


def _row(
    model: str, source: str, data: str, parameters: int | None, batch: int, drops: Sequence[float], alike: Row
) -> Row:
    return {
        "model": model,
        "source": source,
        "data": data,
        "parameters": parameters,
        "batch per node": batch,
        "lr drops": ", ".join(f"{drop:g}" for drop in drops),
        **{name.replace("_", " "): value for name, value in alike.items()},
    }
