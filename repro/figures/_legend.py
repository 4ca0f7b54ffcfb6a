"""Draws legends whose keys are the artists that the panels show, and notes under the panels."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D

from repro.figures._draw import INK, Drawing

SIZE, LEADING = 6.5, 7.9  # points, of the notes


def of_panels(figure: Figure, axes: Iterable[Axes]) -> None:
    """Draws one legend above all panels: each label of theirs once."""
    keys: dict[str, Any] = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            keys.setdefault(label, handle)
    draw(figure, keys)


def draw(figure: Figure, keys: Mapping[str, Any]) -> None:
    """Draws one legend above all panels, in as few rows as its width allows.

    A key is an artist that a panel shows, or several: a tuple is drawn one over the other, a list side by side.
    """
    if not keys:
        return
    renderer = FigureCanvasAgg(figure).get_renderer()
    handles: list[Any] = [tuple(key) if isinstance(key, list) else key for key in keys.values()]
    handlers: dict[Any, Any] = {tuple: HandlerTuple(ndivide=1)}
    for handle, key in zip(handles, keys.values(), strict=True):
        if isinstance(key, list):
            handlers[handle] = HandlerTuple(ndivide=None)
    marks = all(isinstance(key, Line2D) and key.get_linestyle() == "None" for key in handles)
    options: dict[str, Any] = {"handlelength": 1.0} if marks else {}
    for rows in range(1, len(keys) + 1):
        columns = -(-len(keys) // rows)
        legend = figure.legend(
            handles, list(keys), loc="outside upper center", ncols=columns, handler_map=handlers, **options
        )
        if columns == 1 or legend.get_window_extent(renderer).width <= figure.bbox.width:
            return
        legend.remove()


def note(figure: Drawing, *lines: str) -> None:
    """Keeps what a reader must know: what was run, how often, on which data, and what was not."""
    figure.notes = tuple(line for line in lines if line)


def notes_of(figure: Figure) -> tuple[str, ...]:
    """Returns the figure's notes; one that was not made by `_draw` has none."""
    return figure.notes if isinstance(figure, Drawing) else ()


def write_notes(figure: Figure, notes: Iterable[str]) -> None:
    """Writes the notes in small lines under the panels, for which the figure grows."""
    columns = int(figure.get_figwidth() * 72 / (SIZE * 0.47))
    wrapped = [part for text in notes for part in textwrap.wrap(text, columns)]
    if not wrapped:
        return
    width, height = figure.get_size_inches()
    extra = (LEADING * len(wrapped) + 3) / 72
    figure.set_size_inches(width, height + extra)
    share = extra / (height + extra)
    engine: Any = figure.get_layout_engine()
    engine.set(rect=(0, share, 1, 1 - share))
    figure.text(0.015, 0.004, "\n".join(wrapped), fontsize=SIZE, color=INK, va="bottom", linespacing=1.15)
