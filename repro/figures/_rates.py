"""Panels of a rate against the number of nodes, one a model: published in grey, simulated as thin lines, ours
in full."""

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from repro.figures import _draw, _times
from repro.results import Results
from repro.tables import Row


def table(results: Results, value: str) -> list[Row]:
    rows = _times.published(results) + _times.simulated(results) + _times.ours(results)
    return [
        {k: row[k] for k in ("model", "algo", "nodes", "source", "network", "batch_per_node", value)} for row in rows
    ]


def draw(rows: list[Row], value: str, label: str, unit: float, command: str) -> Figure:
    rows = [row | {value: unit * row[value]} for row in rows]
    models = [model for model in _times.MODELS if any(row["model"] == model for row in rows)]
    figure, axes = _draw.panels(2, 2, 1.65)
    for panel, model in zip(axes, models, strict=False):
        mine = [row for row in rows if row["model"] == model]
        for algo in _draw.algos_of(mine):
            own = [row for row in mine if row["algo"] == algo]
            _draw.published(panel, [row for row in own if row["source"] == "published"], "nodes", value, algo)
            _draw.line(
                panel,
                [row for row in own if row["source"] == "simulated"],
                "nodes",
                value,
                algo,
                marker="",
                linewidth=0.8,
                label="_",
                alpha=0.7,
            )
            for source, fill in (("modelled", "full"), ("measured", "none")):
                got = sorted((row for row in own if row["source"] == source), key=lambda row: row["nodes"])
                _draw.line(panel, got, "nodes", value, algo, linestyle="", fillstyle=fill, label="_", markersize=4)
        _draw.nodes_axis(panel, _times.NODES)
        panel.set_title(_draw.model_name(model))
        _draw.plain_log(panel)
    for panel in axes[::2]:
        panel.set_ylabel(label)
    _legend(figure, rows)
    ours = sorted(
        {
            f"{_draw.model_name(row['model'])} ({row['source']}, {row['network']})"
            for row in rows
            if row["source"] in ("modelled", "measured")
        }
    )
    absent = [
        _draw.model_name(m)
        for m in models
        if not any(row["model"] == m and row["source"] in ("modelled", "measured") for row in rows)
    ]
    _draw.note(
        figure,
        "Published: authors' script. Simulated: published compute and compression of one node, our "
        "messages on "
        "the published alpha and beta.",
        f"Timed here: {', '.join(ours)}." if ours else "",
        f"Not timed here: {', '.join(absent)} ({command})." if absent else "",
    )
    return figure


def _legend(figure: Figure, rows: list[Row]) -> None:
    handles = [
        Line2D([], [], color=s.colour, linestyle=s.dash, marker=s.marker, label=s.label)
        for s in map(_draw.look, _draw.algos_of(rows))
    ]
    handles += [
        Line2D([], [], color=_draw.PUBLISHED, linewidth=0.9, label="published"),
        Line2D([], [], color="k", linewidth=0.8, label="simulated"),
    ]
    for source, fill, label in (
        ("modelled", "full", "timed here, modelled wire"),
        ("measured", "none", "measured"),
    ):
        if any(row["source"] == source for row in rows):
            handles.append(Line2D([], [], color="k", linestyle="", marker="o", fillstyle=fill, label=label))  # type: ignore[arg-type]
    figure.legend(handles=handles, loc="outside upper center", ncols=3)
