"""Models finished runs on another network: their compute and compress as timed then, their messages as they send them.

Nothing is trained and nothing is timed again.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

from repro import algorithms, screen
from repro.config.compose import from_yaml
from repro.config.differences import flat
from repro.config.parts import Network
from repro.config.schema import Config, ConfigError
from repro.density import entries
from repro.iteration_time import PARTS, IterationTime
from repro.json_text import json_text
from repro.runs import run_folder
from repro.tables import Row
from repro.timing import node_profile, predict
from repro.train import ending
from repro.whole_files import write_whole


def run(places: Sequence[Path], networks: Sequence[Network], out: Path | None) -> list[Row]:
    """Prints and returns a row for each run and network, the run's own first. Raises ConfigError."""
    folders = dict.fromkeys(folder for place in places for folder in folders_in(place))
    kept: list[tuple[Config, list[Row]]] = []
    left_out: list[ConfigError] = []
    for folder in folders:
        try:
            config = from_yaml(folder / "config.yaml")
            kept.append((config, modelled(folder, config, networks)))
        except ConfigError as error:
            left_out.append(error)
    if not kept:
        raise left_out[0]
    configs = [config for config, _ in kept]
    keys, rows = [key for key in ending.varied(configs) if key.partition(".")[0] != "network"], []
    for config, own in kept:
        settings = flat(dataclasses.asdict(config))
        rows += [{**{key: ending.cell(settings.get(key)) for key in keys}, **row} for row in own]
    print(screen.sentence(_said(configs)) + "\n")
    screen.show(cells(rows, keys), keys=len(keys) + 1)
    for reason in left_out:
        print(screen.sentence(f"left out, {reason}"))
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, json_text({"rows": rows}, indent=1) + "\n")
    return rows


def folders_in(place: Path) -> list[Path]:
    """Returns the run folder itself, or those in an experiment's folder. Raises ConfigError where there is none."""
    found = [place] if (place / "config.yaml").is_file() else sorted(p.parent for p in place.glob("*/config.yaml"))
    if not found:
        raise ConfigError(
            f"--run {place}: this is no run folder, nor one of an experiment; `repro status` lists the runs, and "
            "`repro run` prints their folders."
        )
    return found


def modelled(folder: Path, config: Config, networks: Sequence[Network]) -> list[Row]:
    """Returns the run's own iteration, and what it is on `networks`. Raises ConfigError."""
    seen = run_folder.summary(folder)
    if seen["compute_s"] is None:
        raise ConfigError(f"--run {folder}: no iteration of it was timed; type its `repro run` again to finish it.")
    if config.hierarchical:
        raise ConfigError(f"--run {folder}: hierarchical=true, whose messages inside a machine are not modelled here.")
    if config.stages > 1:
        raise ConfigError(f"--run {folder}: stages={config.stages}; pipelines are predicted by `repro strategies`.")
    if config.cluster.authors != "none":
        raise ConfigError(
            f"--run {folder}: cluster.authors={config.cluster.authors}, whose messages are not modelled on other "
            "networks; type `repro run` with that and network= to measure them."
        )
    then = IterationTime.of(seen)
    shapes = node_profile.layers(config)
    moments = [then.compute_s] * len(shapes)
    if algorithms.overlaps(config):
        here = dataclasses.replace(config, device="auto")  # of a run on a GPU, which may not be here
        moments = node_profile.backward(f"{then.compute_s}", here)
    one = predict.iteration(config, shapes, moments, then.compress_s)
    parameters = sum(map(math.prod, shapes))
    what = {
        "run": str(folder), "nodes": config.nodes, "parameters": parameters,
        "k": entries(config.density, parameters) if config.algo.sparse else None,
    }  # fmt: skip
    rows = [_row(what, seen["network"], str(seen["source"]), then)]
    for wire in networks:
        if seen["source"] == "modelled" and wire == config.network:
            continue  # that is its own row
        rows.append(_row(what, wire.name, "modelled", one.parts(wire.alpha_s, wire.beta_s_per_byte)))
    return rows


def _row(what: Row, network: str, source: str, time: IterationTime) -> Row:
    return {**what, "network": network, "source": source, **time.row(), "iteration_s": time.total}


def cells(rows: Sequence[Row], keys: Sequence[str]) -> list[Row]:
    """Returns the cells of the table; where communicate comes from if it was measured in a run."""
    modelled = all(row["source"] == "modelled" for row in rows)
    return screen.filled([
        {
            **{key: row[key] for key in keys},
            "network": row["network"],
            **{f"{part.removesuffix('_s')} (ms)": screen.ms(row[part]) for part in PARTS},
            "iteration (ms)": screen.ms(row["iteration_s"]),
            "communicate is": None if modelled else row["source"],
        }
        for row in rows
    ])  # fmt: skip


def _said(configs: Sequence[Config]) -> str:
    models, nodes = (sorted(set(each)) for each in zip(*((c.model.name, c.nodes) for c in configs), strict=True))
    where = screen.plural(nodes[0], "node") if len(nodes) == 1 else f"{', '.join(map(str, nodes))} nodes"
    random = {config.algo.name for config in configs if algorithms.of(config.algo).messages_depend_on_values}
    return (
        f"{screen.plural(len(configs), 'run')} of {', '.join(models)} on {where}: compute and compress are as timed "
        "then, communicate on other networks is modelled, nothing is trained."
        + (f" The messages of {', '.join(sorted(random))} depend on values: random ones stand in." if random else "")
    )
