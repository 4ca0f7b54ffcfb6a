"""Draws the idea and what it saves: the rounds of gTop-k's tree beside the bytes that a node sends."""

from matplotlib.figure import Figure

from repro.figures import _draw, _legend, bytes_per_step, tree_schedule
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "The tree of gTop-k, and the bytes that it saves"
COMMAND = tree_schedule.COMMAND
ALSO = (bytes_per_step.COMMAND,)
WIDTH = "double"
ALGOS = ("dense", "topk", "gtopk")


def table(results: Results) -> list[Row]:
    """Returns one row per message of the largest tree, then one for each algorithm and number of nodes."""
    messages = [row for row in tree_schedule.table(results) if row["algo"] == "gtopk"]
    sent = [row for row in bytes_per_step.table(results) if row["algo"] in ALGOS and row["wire"] == "pairs"]
    if not messages or not sent:
        return []
    most = max(row["nodes"] for row in messages)
    columns = ("source", "model", "algo", "nodes", "k", "parameters", "round", "from", "to", "bytes", "busiest_bytes")
    rows = [row for row in messages if row["nodes"] == most] + sent
    return [{column: row.get(column) for column in columns} for row in rows]


def draw(rows: list[Row]) -> Figure:
    messages = [row for row in rows if row["round"] is not None]
    sent = [row for row in rows if row["round"] is None]
    figure, (left, right), columns = _draw.grid(2, columns=1, height=2.4)
    tree_schedule.panel(left, messages, messages[0]["nodes"], "gtopk")
    for algo in _draw.algos_of(sent):
        _draw.line(right, [row for row in sent if row["algo"] == algo], "nodes", "busiest_bytes", algo)
    right.set_yscale("log")
    right.minorticks_off()
    _draw.nodes_axis(right, (row["nodes"] for row in sent))
    right.set_ylabel("bytes sent by the busiest node")
    _legend.of_panels(figure, [right])
    sparse = min(sent, key=lambda row: row["k"])  # dense has k = m
    one, other = ("Left", "Right") if columns == 2 else ("Above", "Below")
    _legend.note(
        figure,
        f"{one}: each arrow is one message of k = {messages[0]['k']} pairs; in the first half of the rounds the "
        "receiver adds what came to its own and keeps the k largest, then all get the result. "
        f"{other}: counted in one training step of {_draw.model_name(sparse['model'])}; "
        f"m = {sparse['parameters']:,}, k = {sparse['k']:,}.",
    )
    return figure
