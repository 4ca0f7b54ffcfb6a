"""How k entries are chosen from the k x P that the ranks selected, on the gradients of one recorded step."""

from matplotlib.figure import Figure

from repro.figures import _draw
from repro.results import Results
from repro.tables import Row

TITLE = "How k of k × P entries are chosen"
COMMAND = "repro run experiment=selection_example"


def table(results: Results) -> list[Row]:
    """One row an entry: of each rank's selection, and of the result (rank empty)."""
    rows: list[Row] = []
    for group in results.groups("selection_example")[:1]:
        for record in group.recorded[-1:]:
            kept = set(record["result"]["index"])
            same = {
                "source": "recorded",
                "model": group.model,
                "data": group.data,
                "algo": group.algo,
                "step": record["step"],
                "parameters": record["parameters"],
                "k": record["k"],
            }
            for rank, own in enumerate(record["selections"]):
                rows += [
                    same | {"rank": rank, "index": i, "value": v, "kept": i in kept}
                    for i, v in zip(*own.values(), strict=True)
                ]
            rows += [
                same | {"rank": None, "index": i, "value": v, "kept": True}
                for i, v in zip(*record["result"].values(), strict=True)
            ]
    return rows


def draw(rows: list[Row]) -> Figure:
    first, style = rows[0], _draw.look("gtopk")
    ranks = sorted({row["rank"] for row in rows if row["rank"] is not None})
    figure, axes = _draw.panels(len(ranks) + 1, height=0.85)
    for panel, rank in zip(axes, [*ranks, None], strict=True):
        mine = [row for row in rows if row["rank"] == rank]
        kept = [row for row in mine if row["kept"]]
        rest = [row for row in mine if not row["kept"]]
        for chosen, colour, width, label in (
            (rest, "0.7", 0.5, "goes back to the residual"),
            (kept, style.colour, 0.9, "among the final k"),
        ):
            panel.vlines(
                [row["index"] for row in chosen],
                0,
                [row["value"] for row in chosen],
                color=colour,
                linewidth=width,
                label=label,
            )
        what = (
            f"rank {rank}: {len(kept)} of {len(mine)} kept"
            if rank is not None
            else f"result: k = {first['k']} of {len(ranks)} × {first['k']}"
        )
        panel.set_title(what, loc="right", fontsize=7, pad=1)
        alike = [row for row in rows if (row["rank"] is None) == (rank is None)]
        highest = 1.15 * max(abs(row["value"]) for row in alike)
        panel.set(xlim=(0, first["parameters"]), ylim=(-highest, highest))
        panel.tick_params(labelbottom=rank is None)
        panel.grid(False)
        panel.axhline(0, color="0.5", linewidth=0.4)
    axes[-1].set_xlabel("position in the flat gradient")
    figure.supylabel("gradient + residual", fontsize=8)
    _draw.legend(figure, axes[:1], 2)
    model = _draw.model_name(first["model"])
    _draw.note(
        figure,
        f"Step {first['step']} of {model} on {first['data']}, P = {len(ranks)}, m = "
        f"{first['parameters']:,}, as recorded. "
        "The lowest panel is the sum that the tree of merges ends with.",
    )
    return figure
