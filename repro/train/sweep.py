"""Trains several runs one after another, and says before them what they take and after them what came out."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from repro import data
from repro.cluster import environment, lab, preempt, start
from repro.config.groups import cost
from repro.config.schema import Config, ConfigError, RunError
from repro.runs import done, lock, machine, places, provenance, run_folder, same_code, same_data, status_file
from repro.screen import plural
from repro.train import ending
from repro.train.time_left import Forecast, TimeLeft
from repro.waiting import waiting
from repro.whole_files import explain

if TYPE_CHECKING:
    from repro.train.training import BeforeRun

    Foresee = Callable[[list[Config]], Forecast]


def run(
    configs: list[Config],
    before_run: BeforeRun,
    given: Sequence[str] | None = None,
    forecast: Foresee | None = None,
) -> int:
    """Trains the runs that are not done, resumes those begun, and prints one table. Returns the exit code.

    `before_run` predicts the seconds of an iteration of a new run. `given` holds the settings that were typed, for what
    it offers to type next. `forecast` says how long several runs will take, and how much disk.
    Raises ConfigError before the first run.
    If USR2 stops it, it puts its SLURM job back into the queue; if TERM or INT does, it does not.
    """
    with preempt.listening() as interrupt:
        return _run(configs, before_run, interrupt, given, forecast)


def _run(
    configs: list[Config],
    before_run: BeforeRun,
    interrupt: preempt.Interrupt,
    given: Sequence[str] | None,
    forecast: Foresee | None,
) -> int:
    place = _place(configs)
    speaks = place is None or place.rank == 0  # of the ranks that torchrun or srun started, one talks
    try:
        configs = same_data.chosen(configs, lambda text: _say(text, speaks))
        _check(configs)
    except ConfigError as error:
        if place is not None:
            start.tell(configs[0], place, error, all_runs=True)
        raise
    left = [config for config in configs if status_file.state(config.folder) != "done"]
    if speaks and left:  # their folders are to name the code that is loaded now
        provenance.own_code()
        for config in {(one.algo.name, one.algo.corrected): one for one in left}.values():
            same_code.digests(config)
    for line in _announced(configs, left):
        _say(line, speaks)
    if speaks and (slow := _slow_precision(left)):
        _say(slow, speaks)
    said = forecast(left) if speaks and left and forecast is not None and _many(configs) else None
    if said is not None:
        _say(f"  {said.text}", speaks)
    summaries, failures, time_left = [], 0, TimeLeft(configs, left, said)
    try:
        for config in configs:
            # a signal reaches ranks of several processes at different moments: they go by what they agreed on
            stopped = interrupt.is_set() if place is None else interrupt.agreed
            if stopped:
                summary = run_folder.summary(config.folder)
                summaries.append({**summary, "state": summary["state"] or "not begun"})
            else:
                summary = _guarded(
                    config, before_run, interrupt, starts_ranks=place is None, speaks=speaks, only=len(configs) == 1
                )
                lost = summary.pop("lost", False)
                summaries.append(summary)
                failures += summary["state"] not in ("done", "preempted")
                stopped = summary["state"] == "preempted"
            if place is not None and not stopped and lost:
                _say("Stopped: without that rank none of the other runs can begin.", speaks and len(configs) > 1)
                break
            if stopped:
                _say("Stopped as asked; the same command goes on from here.", speaks)
                break
            if config in left and (text := time_left.after(config, summary["state"] == "done")):
                _say(text, speaks)
    except KeyboardInterrupt:
        _say("Stopped; the same command goes on from the last checkpoint.", speaks)
        return 130
    if speaks:
        _say("", speaks)
        ending.report(configs[: len(summaries)], summaries, given)
        if stopped and not interrupt.final and environment.job():
            text, again = preempt.requeue()
            _say(text, speaks)
            failures += not again  # else SLURM would book the job as completed
    return 1 if failures else 130 if interrupt.final else 0


def _place(configs: list[Config]) -> environment.Place | None:
    """Returns which of the ranks that were started for all points this process is. Raises ConfigError."""
    return [environment.find_place(config) for config in configs][-1]


def _announced(configs: list[Config], left: list[Config]) -> Iterator[str]:
    """Yields what will run, and what its file says of its cost."""
    if not _many(configs):
        return
    experiment = configs[0].experiment
    done = f", {len(configs) - len(left)} of them done already" if len(left) < len(configs) else ""
    named = "" if experiment == "default" else f"experiment={experiment}: "
    yield f"{named}{plural(len(configs), 'run')}{done}"
    price = cost(experiment)
    if price is not None:
        yield f"  its file says: {price}"


def _slow_precision(left: list[Config]) -> str | None:
    """Returns what to say where runs train on the CPU in a precision that it emulates.

    Networks of images do not: see `precision.Rounded`, which has no recurrent layers.
    """
    emulated = (
        one.model.reads == "text" and one.precision == "bfloat16" and one.node is None and _on_cpu(one) for one in left
    )
    return machine.slow_bfloat16(machine.rates()) if any(emulated) else None


def _on_cpu(config: Config) -> bool:
    if config.device != "auto":
        return config.device == "cpu"
    from repro.cluster.devices import of_first  # loads torch

    return of_first(config).type == "cpu"


def _many(configs: list[Config]) -> bool:
    return len(configs) > 1 or configs[0].experiment != "default"


def _check(configs: list[Config]) -> None:
    """Checks every run that is not done before the first starts; what needs torch, which takes seconds, last.

    Raises ConfigError. What is done may be in a folder that is for reading alone.
    """
    open_ = [config for config in configs if status_file.state(config.folder) != "done"]
    for config in open_:
        if config.cluster.name == "lab":
            lab.check_rate(config.network.bits_per_s, config.cluster.dilation)
        places.check_folder(config.folder, "Name another place with results=FOLDER.")
    largest: dict[str, Config] = {}  # of the runs on the same images, which are counted once
    for config in (one for one in open_ if one.node is None):
        largest[str(config.data)] = max(config, largest.get(str(config.data), config), key=lambda c: c.samples_per_step)
    downloads = any(data.downloads(config.data) for config in largest.values())
    if downloads:  # which takes longer than to import torch, and may be for nothing
        _check_possible(open_)
    for config in largest.values():
        data.fetch(config.data)
        data.check_batches(config.data, config.nodes, config.batch)
    if len(open_) > 1 and not downloads:  # one alone is asked as it starts
        _check_possible(open_)


def _check_possible(configs: list[Config]) -> None:
    possible = _loop().possible
    for config in configs:
        possible.check(config)


def _loop() -> Any:
    with waiting("starting"):
        gc.disable()  # about a tenth of what importing torch takes is looking for garbage, of which it leaves none
        from repro.train import loop

        gc.enable()
    return loop


def _guarded(
    config: Config, before_run: BeforeRun, interrupt: preempt.Interrupt, starts_ranks: bool, speaks: bool, only: bool
) -> dict[str, Any]:
    """Trains one run; returns its summary. In a sweep, any failure is printed and kept in it, and the rest runs.

    `lost` in it says that ranks are not there any more.
    """
    try:
        return _one(config, before_run, interrupt, starts_ranks, speaks)
    except Exception as error:
        if only and not isinstance(error, RunError):
            raise
        lost = isinstance(error, RunError) and start.is_lost(str(error))
        if isinstance(error, RunError | ConfigError | OSError):
            text = explain(error) if isinstance(error, OSError) else str(error)
            _say(f"repro: {text}", True)
            if speaks:
                status_file.refused(config, text)
        else:  # a defect of this suite: its traceback is wanted
            traceback.print_exception(error)
    gc.collect()  # what failed had the networks of all ranks, and parts of it may refer to each other
    return {**run_folder.summary(config.folder), "state": "failed", "lost": lost}


def _one(
    config: Config, before_run: BeforeRun, interrupt: preempt.Interrupt, starts_ranks: bool, speaks: bool
) -> dict[str, Any]:
    if not starts_ranks:  # ranks that look at the folder at different moments could disagree: `loop` asks rank 0
        return dict(_loop().run(config, before_run, interrupt))
    if status_file.state(config.folder) == "done":
        done.tell(config)  # this process alone is here, and speaks
        return run_folder.summary(config.folder)
    owner = lock.holder(config.folder)
    if owner is not None and not lock.is_mine(owner):
        _say(f"{config.folder} is in use by process {owner['pid']} on {owner['host']}; left out.", speaks)
        return {**run_folder.summary(config.folder), "state": "in use"}
    return dict(_loop().run(config, before_run, interrupt))


def _say(text: str, speaks: bool) -> None:
    if speaks:
        print(text, file=sys.stderr, flush=True)
