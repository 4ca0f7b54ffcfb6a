"""Draws training loss and test accuracy of each algorithm against epochs, and against time on the paper's nodes."""

from matplotlib.figure import Figure

from repro.figures import _curves, _draw, _legend, _shown
from repro.report.summaries import Results, timed_batch
from repro.tables import Row

TITLE = "Convergence of S-SGD: training loss and test accuracy"
COMMAND = _curves.CONVERGENCE
WIDTH = "double"


def table(results: Results) -> list[Row]:
    groups = _shown.of_one_schedule(results.groups("convergence"))
    ours = [row for group in groups for row in _curves.of_group(group)]
    rows = [row | {"beside": None} | _published(results, row) for row in ours]
    return rows + [
        row | {"published_s": None, "published_batch": None} for row in _curves.of_reference(results, groups)
    ]


def _published(results: Results, row: Row) -> Row:
    """Returns the seconds in which the authors' nodes process as many samples, by the throughput in their script.

    `published_batch` is the batch per node at which that was timed.
    """
    rates = results.paper["throughput_per_node"].get(row["model"], {}).get(row["algo"], {})
    if row["nodes"] not in rates:
        return {"published_s": None, "published_batch": None}
    seconds = row["step"] * row["batch_per_node"] / rates[row["nodes"]]
    return {"published_s": seconds, "published_batch": timed_batch(results.paper, row["model"])}


def draw(rows: list[Row]) -> Figure:
    figure = _curves.draw(rows)
    timed = [row for row in rows if row["published_s"] is not None]
    ticks = "Ticks under curves over minutes: the learning rate × 0.1, after as many epochs as at the dotted lines."
    _legend.note(
        figure,
        *_draw.runs_note(rows),
        _draw.bands_note(figure),
        _curves.reference_note(rows),
        _of_minutes(timed) if timed else "",
        ticks if any(row["drops"] for row in timed) else "",
        _curves.cut_note(rows),
        _curves.missing(rows, _draw.IMAGES, "convergence"),
    )
    return figure


def _of_minutes(timed: list[Row]) -> str:
    """Says at what batch the published throughput was timed, and which way another batch leads the minutes astray."""
    batches: dict[int, list[str]] = {}
    smaller: list[str] = []
    larger: list[str] = []
    for model in _draw.models_of(timed):
        own, name = [row for row in timed if row["model"] == model], _draw.model_name(model)
        batch = own[0]["published_batch"]
        batches.setdefault(batch, []).append(name)
        smaller += [name] * any(row["batch_per_node"] < batch for row in own)
        larger += [name] * any(row["batch_per_node"] > batch for row in own)
    several = len(batches) > 1
    at = ", ".join(f"{batch}" + (f" ({' and '.join(names)})" if several else "") for batch, names in batches.items())
    parts = [
        f"Minutes: as many samples at the throughput in the authors' script, timed with these batches per node: {at}."
        if several
        else f"Minutes: as many samples at the throughput in the authors' script, timed at batch {at} per node.",
        *(
            f"With the {which} batch of {' and '.join(names)} a sample needs {more} exchanges, so that the minutes are "
            f"too {few}, most of all for dense."
            for which, names, more, few in (("smaller", smaller, "more", "few"), ("larger", larger, "fewer", "many"))
            if names
        ),
        "An algorithm without a published throughput has no such curve.",
    ]
    return " ".join(parts)
