"""The merges of the tree follow from what the nodes selected, and the entries that are shown have all fates."""

import committed_results

from repro import figures
from repro.figures import selection_example as example

COMMITTED = committed_results.load()


def test_the_merges_end_with_what_was_recorded() -> None:
    """The last merge is drawn as recorded; by itself it keeps the same entries, with the same values."""
    ((record,),) = (group.recorded for group in COMMITTED.groups("selection_example"))
    selections = [dict(zip(one["index"], one["value"], strict=True)) for one in record["selections"]]
    *_, (merged, ranks, entries, kept) = example.stages(selections, set(record["result"]["index"]), record["k"])
    assert merged and ranks == "0 1 2 3"
    result = dict(zip(record["result"]["index"], record["result"]["value"], strict=True))
    largest = sorted(entries, key=lambda i: (-abs(entries[i]), i))[: record["k"]]
    assert set(largest) == set(result) == kept
    assert max(abs(entries[i] - value) for i, value in result.items()) < 1e-5


def test_a_merge_adds_keeps_k_and_drops_the_rest() -> None:
    """Three nodes, k = 2: 1 goes to 0, then 2 to 0, as in the tree."""
    selections = [{1: 0.5, 5: -1.0}, {1: 0.6, 7: 0.2}, {7: 0.9, 8: -3.0}]
    found = list(example.stages(selections, {1, 8}, 2))
    assert [(merged, ranks) for merged, ranks, *_ in found] == [
        (False, "0"), (False, "1"), (False, "2"), (True, "0 1"), (True, "0 1 2")
    ]  # fmt: skip
    assert found[3][2:] == ({1: 1.1, 5: -1.0, 7: 0.2}, {1, 5})
    assert found[4][2:] == ({1: 1.1, 5: -1.0, 7: 0.9, 8: -3.0}, {1, 8})


def test_the_figure_shows_what_is_kept_added_and_dropped() -> None:
    (item,) = figures.load(["selection_example"])
    rows = item.table(COMMITTED)
    for width, most in (("single", 13), ("double", 24)):
        figure, notes = figures.drawn(item, rows, width=width)
        (axes,) = figure.axes
        assert len(axes.get_xticks()) <= most
        colours = [patch.get_facecolor() for patch in axes.patches]
        assert len(set(colours)) == 3, "kept, the sum of several, dropped"
        cells = {text.get_text() for text in axes.texts}
        assert {"\N{MINUS SIGN}.79", "536 → 269"} <= cells
    assert "257 of the 269 that the tree keeps are among the 269 largest" in " ".join(notes)
