"""Cuts an axis before one value that lies far below all others, and says beside the edge what it is."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

FAR = 1.5  # times what the others spread over
LEAST = 4  # marks: the spread of two others says nothing


def cut(panel: Axes, marks: Sequence[tuple[float, float, str]]) -> None:
    """Leaves the lowest of `marks` (value, height, colour) out of `panel` if it lies FAR below the next one.

    The axis then begins a little below the next one, where an arrow with the value stands in its place.
    """
    ordered = sorted(marks)
    if len(ordered) < LEAST:
        return
    (lowest, height, colour), (least, *_), (most, *_) = ordered[0], ordered[1], ordered[-1]
    spread = most - least
    if least - lowest <= FAR * spread:
        return
    panel.set_xlim(least - 0.3 * spread, most + 0.12 * spread)
    panel.annotate(
        f"← {lowest:.3g}", (0.0, height), (2, 0), xycoords=panel.get_yaxis_transform(), textcoords="offset points",
        va="center", ha="left", color=colour, fontsize="small", annotation_clip=False,
    )  # fmt: skip
