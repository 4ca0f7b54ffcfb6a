"""Lists what of the published communication of gTop-k is explained by what the authors' code does to its messages."""

from repro.figures import _draw, _times
from repro.iteration_time import DILATED, IterationTime
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Why the published communication of gTop-k is longer"
COMMAND = "repro run experiment=authors_messages"
NODES = 32  # of the published times in three parts
MESSAGES = {
    "none": "as here",
    "pairs": "16 bytes a pair",
    "barriers": "a barrier after each round of merges",
    "merges": "merges and scatter between messages",
    "all": "all three",
}


def table(results: Results) -> list[Row]:
    """Returns one row for each network and change; `explained` is the share of what is published beyond "as here"."""
    published = results.paper["breakdown_gtopk_32_nodes"]
    times: dict[str, dict[str, Row]] = {}  # by network and change
    groups = results.groups("authors_messages")
    for group in (group for group in groups if group.nodes == NODES and _times.as_timed(results, group)):
        modelled = [row["communicate_s"] for row in group.iteration_time if row["source"] == "modelled"]
        slowed = _times.in_lab(group)
        for row in (row for row in slowed if row["network"] == _times.PUBLISHED_ON):
            of_model, change = times.setdefault(group.model, {}), group.settings["cluster"]["authors"]
            if change not in of_model or row["repeats"] > of_model[change]["repeats"]:
                of_model[change] = row | {"modelled_s": modelled[0] if modelled else None}
    return [
        _row(model, change, times[model], published[model]["communicate"])
        for model in _draw.PAPER
        for change in MESSAGES
        if change in times.get(model, {})
    ]


def _row(model: str, change: str, times: dict[str, Row], published_s: float) -> Row:
    row, plain = times[change], times.get("none")
    seconds = row["communicate_s"]
    rest = IterationTime.of(row).total - seconds  # stated: each repeat has the same
    more = seconds - plain["communicate_s"] if plain and change != "none" else None
    return {
        "model": _draw.model_name(model),
        "nodes": row["nodes"],
        "messages": MESSAGES[change],
        "communicate (ms)": 1e3 * seconds,
        "from (ms)": 1e3 * (min(row["iterations_s"]) - rest),
        "to (ms)": 1e3 * (max(row["iterations_s"]) - rest),
        "modelled (ms)": None if row["modelled_s"] is None else 1e3 * row["modelled_s"],
        "published (ms)": 1e3 * published_s,
        "more than as here (ms)": None if more is None else 1e3 * more,
        "explained (%)": None if plain is None or more is None else 100 * more / (published_s - seconds + more),
        "published over this": published_s / seconds,
        "n": row["repeats"],
        "D": row["dilation"],
        "source": DILATED,
    }
