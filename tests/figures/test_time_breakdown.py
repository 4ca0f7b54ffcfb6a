"""What the breakdown says of its bars: nodes, batch, whose compute, and why dense stands alone."""

import committed_results

from repro.figures import _times, time_breakdown
from repro.report import summaries

PAPER = summaries.paper()
ROWS = time_breakdown.table(committed_results.load())
FIGURE = time_breakdown.draw(ROWS)
NOTES = " ".join(FIGURE.notes)


def test_each_panel_says_on_how_many_nodes_and_with_which_batch() -> None:
    titles = [panel.get_title("left") for panel in FIGURE.axes]
    assert "VGG-16, P = 32, batch 128 per node" in titles and "ResNet-50, P = 32, batch 256 per node" in titles


def test_where_the_paper_has_two_computes_the_note_has_both() -> None:
    """Grey is the breakdown's; ours is the one of the throughput of a node alone."""
    parts, rates = PAPER["breakdown_gtopk_32_nodes"], PAPER["throughput_per_node"]
    for model, name in (("vgg16", "VGG-16"), ("alexnet", "AlexNet")):
        alone = parts[model]["batch_per_node"] / rates[model]["single"]
        assert f"{name} {parts[model]['compute']:.3f} and {alone:.3f} s" in NOTES
        ours = {row["compute_s"] for row in ROWS if row["model"] == model and row["source"] == "simulated"}
        assert [f"{seconds:.3f}" for seconds in ours] == [f"{alone:.3f}"]
    assert "ResNet-20 0." not in NOTES, "its two are within a tenth"
    assert "Two computes" not in " ".join(time_breakdown.draw([r for r in ROWS if r["source"] != "published"]).notes)


def test_a_network_without_published_compression_says_why_dense_is_alone() -> None:
    assert "LSTM: ours are of dense alone, as no compression of it is published" in NOTES
    assert _times.without_compress([row for row in ROWS if row["model"] != "lstm"]) == ""
    listed = [
        row for row in _times.dilated(committed_results.load()) if (row["model"], row["algo"]) == ("lstm", "gtopk")
    ]
    assert listed and {row["node"] for row in listed} == {"paper_compute"}, "the table that the note names has them"
