"""Loads figures and tables, one file each, by name, and draws them.

A file has TITLE, COMMAND (what makes its data), `table(results) -> rows`, and, if it is a figure,
`draw(rows) -> Figure`. `draw` sees only the rows, and the rows are the CSV: nothing is drawn that is not in it.
Where other commands' data are in the rows too, ALSO lists those commands.
A figure is as wide as one column of a page; with `WIDTH = "double"` in its file, as two.
"""

from __future__ import annotations

import importlib
import io
import multiprocessing
import os
import pkgutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from repro.children import end_with_parent, usable_cores
from repro.config.groups import near
from repro.config.schema import ConfigError
from repro.tables import Row, to_latex_text
from repro.whole_files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from repro.report.summaries import Results

OURS = (
    "trained",
    "measured",
    "modelled",
    "counted",
    "recorded",
    "simulated",
    "computed",
)  # sources that only a run of ours can have
STORY = (
    "claims",
    "accuracies",
    "whole_schedules",
    "tree_and_bytes",
    "selection_example",
    "select_from_k_times_P",
    "tree_schedule",
    "convergence",
    "density_sensitivity",
    "batch_sensitivity",
    "gap_over_moves",
    "kept_accuracy",
    "many_nodes",
    "momentum",
    "momentum_rules",
    "language",
    "point_to_point",
    "allreduce_time",
    "throughput",
    "scaling_efficiency",
    "time_breakdown",
    "bytes_per_step",
    "wire_formats",
    "residual_mass",
    "complexities",
    "hardware",
    "settings",
    "speedups",
    "throughput_timed_here",
    "lab_iterations",
    "dilated_iterations",
    "authors_messages",
    "dilation",
    "algorithms",
    "families",
    "tradeoff",
    "tradeoff_dilated",
    "ranking_flips",
    "relaxations",
    "planner_regret",
    "dilated_predictions",
    "strategies",
)
STYLE = Path(__file__).parent / "paper.mplstyle"
WIDTHS = {"single": 3.5, "double": 7.16}  # inches: one column of a two-column page, and both
# No date, no version: the same rows give the same bytes.
METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "ModDate": None, "Producer": None, "Creator": None},
    "svg": {"Date": None, "Creator": None},
}


@dataclass(frozen=True)
class Item:
    name: str
    title: str
    command: str
    table: Callable[[Results], list[Row]]
    draw: Callable[[list[Row]], Figure] | None  # None: a table
    width: str = "single"
    also: tuple[str, ...] = ()

    @property
    def commands(self) -> tuple[str, ...]:
        """Returns all commands that make its data, its own first."""
        return (self.command, *self.also)

    def ours(self, rows: Sequence[Row]) -> bool:
        """Returns whether any row comes from a run of ours. Rows that name no source need no run."""
        return any(str(row.get("source", "recorded")).split(",")[0].split(" ")[0] in OURS for row in rows)

    def holds_runs(self, rows: Sequence[Row]) -> bool:
        """Returns what `ours` does, except of rows that name no source and need no run of an experiment."""
        return self.ours(rows) and any([*map(experiment_of, self.commands), *("source" in row for row in rows)])

    @property
    def experiment(self) -> str | None:
        """Returns the experiment that its command runs."""
        return experiment_of(self.command)


def experiment_of(command: str) -> str | None:
    words = [word.partition("experiment=")[2] for word in command.split() if word.startswith("experiment=")]
    return words[0] if words else None


def names() -> list[str]:
    """Returns the names in the order in which the paper tells its story; later additions come last."""
    known = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    return sorted(known, key=lambda name: STORY.index(name) if name in STORY else len(STORY))


def load(only: Sequence[str] = ()) -> list[Item]:
    """Loads the items called `only`, or all. Raises ConfigError."""
    unknown = sorted(set(only) - set(names()))
    if unknown:
        hint = near(unknown[0], names(), "{}")
        raise ConfigError(f"{unknown[0]}: there is no such figure or table.{hint} Choose from {', '.join(names())}.")
    return [_item(name) for name in (only or names())]


def _item(name: str) -> Item:
    module = importlib.import_module(f"repro.figures.{name}")
    draw, width, also = getattr(module, "draw", None), getattr(module, "WIDTH", "single"), getattr(module, "ALSO", ())
    return Item(name, module.TITLE, module.COMMAND, module.table, draw, width, also)


def render(
    item: Item, rows: list[Row], formats: Sequence[str], notes: bool = True, width: str = "", **options: Any
) -> dict[str, bytes]:
    """Returns the figure in each of `formats`; the same rows give the same bytes.

    Its notes stand under it, or, without `notes`, in a caption beside it as "txt" and "tex". `width` is one of
    WIDTHS, "" the figure's own. Raises ConfigError.
    """
    import matplotlib.style

    unknown = sorted(set(formats) - set(METADATA))
    if unknown:
        raise ConfigError(f"--format {unknown[0]}: choose from {', '.join(METADATA)}.")
    if width and width not in WIDTHS:
        raise ConfigError(f"--width {width}: choose from {', '.join(WIDTHS)}.")
    figure, lines = drawn(item, rows, notes, width)
    files = {} if notes else {kind: text.encode() for kind, text in captions(item, lines).items()}
    with matplotlib.style.context(STYLE):
        for kind in formats:
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, metadata=METADATA[kind], **options)
            files[kind] = in_256_colours(buffer) if kind == "png" else buffer.getvalue()
    return files


def in_256_colours(file: IO[bytes]) -> bytes:
    """Returns a PNG with its 256 main colours, which is a third as large: committed drawings change with every run."""
    from PIL import Image

    drawn, smaller = Image.open(file), io.BytesIO()
    few = drawn.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few.save(smaller, "png", dpi=drawn.info["dpi"], optimize=True)
    return smaller.getvalue()


def drawn(item: Item, rows: list[Row], notes: bool = True, width: str = "") -> tuple[Figure, Sequence[str]]:
    """Returns the figure, laid out, and its notes, which stand under it too if `notes` is true."""
    import matplotlib.style

    from repro.figures import _legend

    assert item.draw is not None  # noqa: S101  (for the type checker: tables are left out before)
    with matplotlib.style.context([STYLE, {"figure.figsize": (WIDTHS[width or item.width], 2.3)}]):
        figure = item.draw(rows)
        lines = _legend.notes_of(figure)
        if notes:
            _legend.write_notes(figure, lines)
        _settle(figure)
    return figure, lines


def captions(item: Item, notes: Sequence[str]) -> dict[str, str]:
    """Returns the caption as plain text, its title first, and as LaTeX to \\input in a figure."""
    caption = " ".join([f"{item.title}.", *notes])
    return {
        "txt": "\n".join([item.title, "", *notes]) + "\n",
        "tex": f"\\caption{{{to_latex_text(caption)}}}\n\\label{{fig:{item.name}}}\n",
    }


def _settle(figure: Any) -> None:
    """Lays the figure out once and rounds positions, whose last bits differ from one layout to the next."""
    import matplotlib

    figure.get_layout_engine().execute(figure)
    with matplotlib.rc_context({"figure.constrained_layout.use": False}):
        figure.set_layout_engine(None)  # "none" leaves a placeholder, for which savefig draws everything twice
    for axes in figure.axes:
        axes.set_position([round(part, 6) for part in axes.get_position().bounds])


T = TypeVar("T")


def side_by_side(work: Callable[..., T], *each: Iterable[Any]) -> Iterator[T]:
    """Maps `work` over `each` in one process per core: each drawing takes a second of one."""
    import matplotlib.figure  # once, for all of them
    import matplotlib.style  # noqa: F401

    if threading.active_count() > 1:  # forking would copy locks that nobody will release
        yield from map(work, *each)
        return
    fork = multiprocessing.get_context("fork")  # what was imported is there, and `end_with_parent` finds its parent
    with ProcessPoolExecutor(min(8, usable_cores()), fork, end_with_parent, (os.getpid(),)) as pool:
        yield from pool.map(work, *each)


def save(
    item: Item, rows: list[Row], out: Path, formats: Sequence[str], notes: bool = True, width: str = ""
) -> list[Path]:
    """Draws a figure into out/NAME.FORMAT, with its caption in files beside it if it is drawn without `notes`."""
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for kind, data in render(item, rows, formats, notes, width).items():
        paths.append(out / f"{item.name}.{kind}")
        write_whole(paths[-1], data)
    return paths
