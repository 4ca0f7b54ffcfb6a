"""Copies a run to Weights & Biases, in the only module that imports wandb; metrics.jsonl stays the truth."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from repro.cluster import environment, preempt
from repro.config.schema import Config
from repro.iteration_time import is_measured
from repro.runs import progress, run_name
from repro.tables import Row

UPLOAD_S = 60.0  # that a job waits for at a run's end: at its time limit it still has to go back into the queue

ON = "Training goes on; metrics.jsonl has everything."
SECRET = 16  # characters: no key is shorter, and a text like 0 or null is part of every file
# (experiment, folder of all runs, where to draw) -> the experiment's figures by name, and its claims with verdicts.
# Both are of every finished run there, so that the last run's copy has them all.
Draw = Callable[[str, Path, Path], tuple[dict[str, Path], list[Row]]]


def identity_of(config: Config, earlier: dict[str, Any], start: str) -> str:
    """Returns W&B's id of a run: the one that `earlier` provenance holds, or one of its own for a run that starts now.

    A folder may be removed and its run trained again, and W&B drops lines of earlier steps than an id has.
    """
    plain = f"{config.folder.parent.name}-{config.run_id}"
    if earlier:
        return str(earlier.get("wandb_id", plain[:128]))  # runs of before do not hold it
    return f"{plain[:113]}-{re.sub('[^0-9]', '', start)[:14]}"


def _said(error: Exception) -> str:
    return redact(str(error)).rstrip(". ")


def redact(text: str) -> str:
    """Removes the W&B key from a text that will be written."""
    secret = os.environ.get("WANDB_API_KEY")
    return text.replace(secret, "WANDB_API_KEY") if secret and len(secret) >= SECRET else text


class Mirror:
    """Copies a run to W&B. It never asks, and when it fails, training goes on and one line says so."""

    def __init__(self, config: Config, identity: str, draw: Draw | None = None):
        """`identity` is W&B's id of the run, by which a later session goes on with it."""
        self.run: Any = None
        self.step = 0  # of the last line that said one
        self.config, self.identity, self.draw = config, identity, draw
        if config.wandb.mode != "disabled":
            with preempt.shielded():
                self._try(self._start, config)

    def _start(self, config: Config) -> None:
        import wandb

        if wandb.run is not None:  # of a mirror that failed: init would go on with it
            wandb.run.finish()
        mode = config.wandb.mode
        try:
            if mode == "online" and not _logged_in(wandb):
                progress.warn("wandb.mode=online, but there is no API key: going on offline. `wandb login` stores one.")
                mode = "offline"
            self.run = self._begun(config, mode)
        except Exception as error:  # no network, say
            if mode != "online":
                raise
            progress.warn(f"W&B: {_said(error)}. Going on offline: `wandb sync` sends the run's copy later.")
            self.run = self._begun(config, "offline")
        self.step = self.run.starting_step  # W&B drops lines of earlier steps
        # Runs of other batches lie over each other by epoch; by step they would not.
        self.run.define_metric("eval/epoch")
        self.run.define_metric("eval/*", step_metric="eval/epoch")

    def _begun(self, config: Config, mode: Literal["online", "offline", "disabled"]) -> Any:
        """Returns W&B's run, begun."""
        import wandb

        known = "finish_timeout" in getattr(wandb.Settings, "model_fields", {})
        limited = bool(environment.job()) and known
        limit: dict[str, Any] = {"finish_timeout": UPLOAD_S, "finish_timeout_raises": True} if limited else {}
        return wandb.init(
            mode=mode, entity=config.wandb.entity, project=config.wandb.project,
            group=config.experiment, name=run_name.name(config), tags=run_name.tags(config),
            id=self.identity,
            resume="allow" if mode == "online" else None,
            dir=config.folder, config=dataclasses.asdict(config),
            settings=wandb.Settings(silent=True, console="off", init_timeout=30, x_disable_stats=True, **limit),
        )  # fmt: skip

    def log(self, line: dict[str, Any]) -> None:
        if self.run is not None:
            self.step = line.get("step", self.step)  # without one W&B would count the line as a step
            values = {f"{_group(line)}/{k}": v for k, v in line.items() if k not in ("kind", "step") and v is not None}
            self._try(self.run.log, values, step=self.step)

    def finish(self, values: dict[str, Any], ok: bool) -> None:
        if self.run is not None:
            self._try(self.run.summary.update, {k: v for k, v in values.items() if v is not None})
        if self.run is not None and self.draw is not None and values.get("state") == "done":
            self._try_figures(self.draw)
        if self.run is not None:
            online = "--no-skip-online " if self.run.settings.mode == "online" else ""
            folder = shlex.quote(str(self.config.folder / "wandb"))
            unsent = f"What it has not got is sent by `wandb sync --yes {online}{folder}`."
            self._try(self.run.finish, exit_code=0 if ok else 1, told=unsent)

    def _figures(self, draw: Draw) -> None:
        import wandb

        drawn, claims = draw(self.config.experiment, Path(self.config.results), self.config.folder / "figures")
        shown: dict[str, Any] = {f"figures/{name}": wandb.Image(str(path)) for name, path in drawn.items()}
        if claims:
            rows = [[str(cell or "") for cell in row.values()] for row in claims]
            shown["claims"] = wandb.Table(columns=list(claims[0]), data=rows)
            self.run.summary.update({f"verdict/{row['claim']}": row["verdict"] for row in claims})
        if shown:
            self.run.log(shown)

    def _try_figures(self, draw: Draw) -> None:
        """Draws them; without them the run is finished all the same."""
        try:
            self._figures(draw)
        except Exception as error:  # whatever is wrong with a figure, or with results of other runs
            progress.warn(f"W&B: {_said(error)}. The run's copy has no figures; metrics.jsonl has everything.")

    def _try(self, action: Any, *arguments: Any, told: str = ON, **options: Any) -> None:
        try:
            action(*arguments, **options)
        except Exception as error:  # whatever W&B does, the run does not end by it
            self.run = None
            progress.warn(f"W&B: {_said(error)}. {told}")


def _group(line: dict[str, Any]) -> str:
    """Returns under which key W&B has a line; iterations of several networks and sources have one each."""
    kind = str(line["kind"])
    if kind != "iteration_time":
        return kind
    return f"{kind}/{line.get('network')}/{'measured' if is_measured(str(line.get('source'))) else 'modelled'}"


def _logged_in(wandb: Any) -> bool:
    try:
        return wandb.login(prompt=False)
    except TypeError:  # before 0.30 it could not be told not to ask
        return bool(wandb.api.api_key)
