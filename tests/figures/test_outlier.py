"""One value far below all others leaves the axis and is written at its edge; no other changes anything."""

import pytest
from matplotlib.figure import Figure

from repro.figures import _outlier

OTHERS = [(74.0, 1, "red"), (75.0, 2, "red"), (76.0, 3, "red"), (78.0, 4, "red")]


@pytest.mark.parametrize(
    ("marks", "said"),
    [
        ([*OTHERS, (43.0, 0, "blue")], "← 43"),
        ([*OTHERS, (67.9, 0, "blue")], "← 67.9"),
        ([*OTHERS, (68.1, 0, "blue")], None),
        ([(43.0, 0, "blue"), *OTHERS[:2]], None),
    ],
)
def test_it_is_cut_if_it_lies_one_and_a_half_times_the_others_spread_below(marks, said) -> None:
    panel = Figure().add_subplot()
    for value, height, _ in marks:
        panel.plot(value, height, "o")
    before = panel.get_xlim()
    _outlier.cut(panel, marks)
    assert [(text.get_text(), text.xy, text.get_color()) for text in panel.texts] == (
        [(said, (0.0, 0), "blue")] if said else []
    )
    low, high = panel.get_xlim()
    if said:
        assert marks[-1][0] < low < 74 and high > 78
    else:
        assert (low, high) == before
