"""One file per figure or table, found by its name.

A file has TITLE, COMMAND (what makes its data), `table(results) -> rows`, and, if it is a figure,
`draw(rows) -> Figure`.
`draw` sees the rows alone, and the rows are the CSV: nothing is drawn that is not in it.
"""

from __future__ import annotations

import importlib
import io
import os
import pkgutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from repro.schema import ConfigError
from repro.tables import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from repro.results import Results

OURS = (
    "trained",
    "measured",
    "modelled",
    "counted",
    "recorded",
    "simulated",
)  # sources that only a run of ours can have
STORY = (
    "claims",
    "accuracies",
    "selection_example",
    "select_from_k_times_P",
    "tree_schedule",
    "convergence",
    "density_sensitivity",
    "batch_sensitivity",
    "point_to_point",
    "allreduce_time",
    "throughput",
    "scaling_efficiency",
    "time_breakdown",
    "bytes_per_step",
    "residual_mass",
    "complexities",
    "hardware",
    "settings",
    "speedups",
    "lab_iterations",
    "algorithms",
    "families",
    "tradeoff",
    "ranking_flips",
    "relaxations",
    "planner_regret",
)
STYLE = Path(__file__).parent / "paper.mplstyle"
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

    def ours(self, rows: Sequence[Row]) -> bool:
        """Whether any row comes from a run of ours. Rows that name no source need no run."""
        return any(str(row.get("source", "recorded")).split(",")[0].split(" ")[0] in OURS for row in rows)

    @property
    def experiment(self) -> str | None:
        """The experiment that its command runs."""
        words = [word.partition("experiment=")[2] for word in self.command.split() if word.startswith("experiment=")]
        return words[0] if words else None


def names() -> list[str]:
    """In the order in which the paper tells its story; what is added later comes last."""
    found = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    return sorted(found, key=lambda name: STORY.index(name) if name in STORY else len(STORY))


def load(only: Sequence[str] = ()) -> list[Item]:
    """The items called `only`, or all. Raises ConfigError."""
    unknown = sorted(set(only) - set(names()))
    if unknown:
        raise ConfigError(f"{unknown[0]}: there is no such figure or table. Choose from {', '.join(names())}.")
    return [_item(name) for name in (only or names())]


def _item(name: str) -> Item:
    module = importlib.import_module(f"repro.figures.{name}")
    return Item(name, module.TITLE, module.COMMAND, module.table, getattr(module, "draw", None))


def render(item: Item, rows: list[Row], formats: Sequence[str], **options: Any) -> dict[str, bytes]:
    """The figure in each of `formats`, byte for byte the same each time."""
    import matplotlib.style

    assert item.draw is not None
    unknown = sorted(set(formats) - set(METADATA))
    if unknown:
        raise ConfigError(f"--format {unknown[0]}: choose from {', '.join(METADATA)}.")
    files = {}
    with matplotlib.style.context(STYLE):
        figure = item.draw(rows)
        _settle(figure)
        for kind in formats:
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, metadata=METADATA[kind], **options)
            files[kind] = buffer.getvalue()
    return files


def _settle(figure: Any) -> None:
    """Lay it out once, and round the places: their last bits differ from one layout to the next."""
    import matplotlib

    figure.get_layout_engine().execute(figure)
    with matplotlib.rc_context({"figure.constrained_layout.use": False}):
        figure.set_layout_engine(None)  # "none" leaves a placeholder, for which savefig draws everything twice
    for axes in figure.axes:
        axes.set_position([round(part, 6) for part in axes.get_position().bounds])


T = TypeVar("T")


def side_by_side(work: Callable[..., T], *each: Iterable[Any]) -> Iterator[T]:
    """map(work, *each) by a process a core: each drawing takes a second of one."""
    import matplotlib.figure  # once, for all of them
    import matplotlib.style  # noqa: F401

    if threading.active_count() > 1:  # forking would copy locks that nobody will release
        yield from map(work, *each)
        return
    with ProcessPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        yield from pool.map(work, *each)


def save(item: Item, rows: list[Row], out: Path, formats: Sequence[str] = ("pdf", "png")) -> list[Path]:
    """Draws a figure into out/NAME.FORMAT."""
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for kind, data in render(item, rows, formats).items():
        paths.append(out / f"{item.name}.{kind}")
        paths[-1].write_bytes(data)
    return paths
