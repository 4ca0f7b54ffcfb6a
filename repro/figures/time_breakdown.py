"""Where the time of a gTop-k iteration on 32 nodes goes: compute, compress, communicate."""

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from repro.figures import _draw, _times
from repro.results import PARTS, Results
from repro.tables import Row

TITLE = "Time of a gTop-k iteration on 32 nodes"
COMMAND = "repro run experiment=throughput"
NODES = 32
COLOURS = {
    "compute_s": ("#0072B2", "0.35"),
    "compress_s": ("#E69F00", "0.6"),
    "communicate_s": ("#009E73", "0.82"),
}
HATCHES = {"compute_s": "", "compress_s": "//////", "communicate_s": ""}


def table(results: Results) -> list[Row]:
    rows: list[Row] = []
    for model, cells in results.paper["breakdown_gtopk_32_nodes"].items():
        if model in _times.MODELS:
            rows.append(
                _row(
                    model,
                    "gtopk",
                    "published",
                    "ethernet1g",
                    cells["batch_per_node"],
                    *(cells[part[:-2]] for part in PARTS),
                )
            )
    for row in _times.simulated(results) + _times.ours(results):
        if row["nodes"] == NODES and row["algo"] in ("gtopk", "gtopk_butterfly"):
            rows.append(
                _row(
                    row["model"],
                    row["algo"],
                    row["source"],
                    row["network"],
                    row["batch_per_node"],
                    *(row[part] for part in PARTS),
                )
            )
    return sorted(rows, key=lambda row: _times.MODELS.index(row["model"]))


def _row(model: str, algo: str, source: str, wire: str, batch: int, *parts: float) -> Row:
    return {
        "model": model,
        "algo": algo,
        "source": source,
        "network": wire,
        "batch_per_node": batch,
        **dict(zip(PARTS, parts, strict=True)),
    }


def draw(rows: list[Row]) -> Figure:
    """Each bar is one iteration, as shares of its own time; its seconds stand at the end."""
    models = [model for model in _times.MODELS if any(row["model"] == model for row in rows)]
    counts = [sum(row["model"] == model for row in rows) for model in models]
    figure = Figure(figsize=(_draw.WIDTH, 0.17 * len(rows) + 0.22 * len(models) + 0.65), layout="constrained")
    axes = figure.subplots(len(models), 1, sharex=True, height_ratios=counts, squeeze=False)[:, 0]
    for panel, model in zip(axes, models, strict=True):
        bars = [row for row in rows if row["model"] == model]
        for place, row in enumerate(bars):
            total, left = sum(row[part] for part in PARTS), 0.0
            for part in PARTS:
                share = 100 * row[part] / total
                colour = COLOURS[part][row["source"] == "published"]
                panel.barh(
                    place,
                    share,
                    left=left,
                    height=0.7,
                    color=colour,
                    hatch=HATCHES[part],
                    edgecolor="white",
                    linewidth=0.4,
                )
                left += share
            panel.text(101, place, f"{total:.3g} s", va="center", fontsize=6.5)
        panel.set_yticks(range(len(bars)), [_label(row) for row in bars], fontsize=6.5)
        panel.set(ylim=(len(bars) - 0.5, -0.5), xlim=(0, 100))
        panel.grid(False)
        panel.set_title(_draw.model_name(model), loc="left", pad=2)
    axes[-1].set_xlabel("share of the iteration (%)")
    figure.legend(
        handles=[
            Patch(facecolor=COLOURS[part][0], hatch=HATCHES[part], edgecolor="white", label=part[:-2]) for part in PARTS
        ],
        loc="outside upper center",
        ncols=3,
    )
    sources = {row["source"] for row in rows}
    _draw.note(
        figure,
        "Published (grey): authors' script; its communication includes copies, merges and barriers. "
        "Simulated: published compute and compression, our messages on the published alpha and beta.",
        "Modelled: compute and compression timed here on one rank, the same messages on the same network."
        if "modelled" in sources
        else "",
        "" if sources & {"modelled", "measured"} else f"Timed here: not run ({COMMAND}).",
    )
    return figure


def _label(row: Row) -> str:
    what = "butterfly" if row["algo"] == "gtopk_butterfly" else "tree"
    return "published" if row["source"] == "published" else f"{what}, {row['source']}"
