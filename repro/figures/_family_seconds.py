"""Chooses whose seconds stand beside the rows of the families: of their runs, of another schedule's, or of the map."""

from typing import Any, NamedTuple

from repro.figures import _maps
from repro.iteration_time import IterationTime
from repro.report import same_machine
from repro.report.group import Group
from repro.report.own_rules import Setting
from repro.report.summaries import Results
from repro.tables import Row

NETWORKS = ("ethernet1g", "ethernet10g")
NONE: Row = {**{f"{name}_ms": None for name in NETWORKS}, "timed_on": None}

Place = tuple[str, str, int, int, float]


class Seconds(NamedTuple):
    """Cells with times by `place`; `of` says which schedule's or map's they are where it is not the rows' own."""

    source: str
    of: str | None
    cells: dict[Place, Row]


def choose(results: Results, settings: list[Setting], others: list[list[Setting]]) -> Seconds:
    """Returns those seconds that most settings have: an iteration takes as long on any schedule."""
    timed = [Seconds("modelled", None, _of_runs(settings))]
    timed += [Seconds("modelled", _schedule(one), _of_runs(one)) for one in others]
    mine = {place(one) for one in settings}
    return max((*timed, _of_map(results, settings)), key=lambda one: len(mine & one.cells.keys()))


def place(setting: Setting) -> Place:
    group = setting.groups[0]
    return group.model, group.algo, group.nodes, group.batch, group.settings["density"]


def notes(rows: list[Row], names: list[str]) -> list[str]:
    """Returns what says of the iterations whose they are, and of which rows there is none."""
    machine = next((row["timed_on"] for row in rows if row["timed_on"]), "")
    if not machine:
        return []
    of = next((row["seconds of"] for row in rows if row["seconds of"]), "")
    untimed = "; ".join(name for name, row in zip(names, rows, strict=True) if not row["timed_on"])
    if of == _maps.COMMAND:
        said = (
            f"Iterations are predicted ({of}): each algorithm's own messages on the cost model, published compute (a "
            f"P102-100's, at the published batch), and compress timed on one core ({machine})."
        )
        return [said, f"Not on its map as trained here: {untimed}." if untimed else ""]
    said = (
        f"Compute is the median of all runs that were timed on the machine of most ({machine}), compress each run's "
        "own, communication modelled from counted traffic." + (f" These runs are of the {of}." if of else "")
    )
    return [said, f"Without a time, as no run of theirs was timed there: {untimed}." if untimed else ""]


def _schedule(settings: list[Setting]) -> str:
    return f"{settings[0].schedule}, {settings[0].groups[0].settings['precision']}"


def _of_runs(settings: list[Setting]) -> dict[Place, Row]:
    """Returns the cells of those settings that were timed on the machine of most of them.

    Compute is the median of all runs on one machine. Seconds of unlike machines do not compare.
    """
    machines = [group.machine for one in settings for group in one.groups if _modelled(group)]
    usual = max(machines, key=lambda one: sum(same_machine.alike(one, other) for other in machines), default={})
    found = {}
    for one in settings:
        timed = (_modelled(group) for group in one.groups if same_machine.alike(group.machine, usual))
        if milliseconds := next(filter(None, timed), {}):
            found[place(one)] = _cells(milliseconds, usual)
    return found


def _of_map(results: Results, settings: list[Setting]) -> Seconds:
    """Returns the cells of those settings that `repro map` has predicted with the published compute."""
    summary, found = results.summaries.get("tradeoff", {}), {}
    if summary.get("node") == "paper":
        networks = [network["name"] for network in summary["networks"]]
        seconds = {(row["model"], row["nodes"]): row["seconds"] for row in summary["rows"]}
        for one in settings:
            model, algo, nodes, _, density = place(one)
            predicted = seconds.get((model, nodes), {}).get(algo)
            if predicted and density in (1, summary["density"]):
                found[place(one)] = _cells(
                    {n: 1e3 * s for n, s in zip(networks, predicted, strict=True)}, summary["machine"]
                )
    return Seconds("simulated", _maps.COMMAND, found)


def _cells(milliseconds: dict[str, float], machine: dict[str, Any]) -> Row:
    where = same_machine.processor(machine) or machine.get("cpu", "unknown")
    return {f"{name}_ms": milliseconds.get(name) for name in NETWORKS} | {"timed_on": where}


def _modelled(group: Group) -> dict[str, float]:
    times = [time for time in group.iteration_time if time["source"] == "modelled"]
    return {time["network"]: 1e3 * IterationTime.of(time).total for time in times}
