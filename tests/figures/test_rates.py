"""What rates look like: keys of sources, marks beside their P, and an axis that fits small data."""

from typing import Any

import committed_results
import pytest
from matplotlib.colors import to_hex

from repro.figures import _rates, allreduce_time, scaling_efficiency, throughput
from repro.iteration_time import DILATED

DATA = committed_results.load()
SOURCES = {"published, in grey", "simulated, in colour", "measured, time dilated", "as plotted by the authors"}


@pytest.mark.parametrize("item", [scaling_efficiency, throughput, allreduce_time], ids=lambda item: item.TITLE)
def test_the_key_of_a_source_has_no_algorithms_look(item: Any) -> None:
    (legend,) = item.draw(item.table(DATA)).legends
    keys = {text.get_text(): handle for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True)}
    shown = SOURCES & keys.keys()
    assert len(shown) >= 2
    for name in shown:
        colour = to_hex(keys[name].get_color())
        assert colour[1:3] == colour[3:5] == colour[5:7], f"{name} is black or grey"


def test_marks_stand_within_their_width_of_their_number_of_nodes() -> None:
    """Dense's mark of 8 nodes stood near 6, Ok-Topk's of 32 near 40."""
    rows = scaling_efficiency.table(DATA)
    panel = scaling_efficiency.draw(rows).axes[0]
    marks = [line for line in panel.get_lines() if line.get_linestyle() == "None"]
    algos = {row["algo"] for row in rows if (row["source"], row["model"]) == (DILATED, "resnet20")}
    assert len(marks) == len(algos)
    for mark in marks:
        for at, nodes in zip(mark.get_xdata(), (4, 8, 16, 32), strict=True):
            assert nodes / 1.13 < at < nodes * 1.13
    assert len({mark.get_xdata()[0] for mark in marks}) == len(marks), "and none hides another"


def test_a_panel_whose_data_are_near_zero_has_its_own_axis_and_says_so() -> None:
    rows = scaling_efficiency.table(DATA)
    panels = {panel.get_title().partition(",")[0]: panel for panel in scaling_efficiency.draw(rows).axes}
    assert panels["VGG-16"].get_ylim() == panels["ResNet-20"].get_ylim() == (0, _rates.FULL)
    most = max(100 * row["efficiency"] for row in rows if row["model"] == "lstm")
    end = panels["LSTM"].get_ylim()[1]
    assert most < end < 2 * most and panels["LSTM"].get_title() == f"LSTM, axis to {end:g} %"


def test_the_numbers_of_an_axis_are_left_out_only_beside_the_same_axis() -> None:
    rows = scaling_efficiency.table(DATA)
    small = [row | {"efficiency": row["efficiency"] / 100} if row["model"] == "resnet20" else row for row in rows]
    for drawn, numbers in ((rows, False), (small, True)):
        panel = scaling_efficiency.draw(drawn).axes[1]
        assert panel.yaxis.get_tick_params()["labelleft"] == numbers


def test_the_note_says_why_dense_is_alone() -> None:
    assert "LSTM: ours are of dense alone" in " ".join(throughput.draw(throughput.table(DATA)).notes)
