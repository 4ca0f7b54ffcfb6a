"""Runs one training on its ranks, from what can be refused before it to its summary; the loop is in training.py."""

from __future__ import annotations

import functools
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from repro.cluster import ranks, start
from repro.cluster.environment import find_place
from repro.cluster.stalls import TERMINAL
from repro.comm.collective import CollectiveError
from repro.comm.common_start import Stopped
from repro.config.schema import Config, ConfigError, RunError
from repro.report import write_items
from repro.runs import done, machine, progress, provenance, run_folder, same_data, status_file
from repro.train import possible, timed_only
from repro.train.hierarchical import elsewhere
from repro.train.precision import of_bfloat16
from repro.train.training import Training
from repro.waiting import waiting

if TYPE_CHECKING:
    from repro.cluster.preempt import Interrupt
    from repro.cluster.ranks import Rank
    from repro.data import Dataset
    from repro.train.training import BeforeRun


def run(config: Config, before_run: BeforeRun | None = None, interrupt: Interrupt | None = None) -> dict[str, Any]:
    """Trains as `config` says, from its last good checkpoint if there is one; a run that is done stays as it is.

    Returns the summary; on other ranks than 0 that torchrun or srun started, only the state. Told to stop while the
    lab's dilation is still being tried, it writes nothing. Raises RunError, and ConfigError before anything is written.
    """
    _check_possible(config)
    if interrupt is not None:
        interrupt.stops_at = None  # that of the run before
    machine.rates()  # for provenance.json: nothing else of ours runs yet
    try:
        if config.node is not None and before_run is not None:
            return timed_only.run(config, before_run, interrupt)
        main = functools.partial(train, before_run=before_run)
        failed = functools.partial(status_file.failed, config)
        return ranks.launch(config, main, load_data, interrupt, failed)
    except RunError as error:
        status_file.failed(config, str(error))  # rank 0 may have died before it could say so
        raise
    except Stopped:
        return {**run_folder.summary(config.folder), "state": "preempted"}
    except KeyboardInterrupt:
        status_file.failed(config, "stopped at once by a second Ctrl-C")
        raise


def _check_possible(config: Config) -> None:
    """Raises ConfigError; the ranks that wait for this one, on a machine that lacks a GPU for example, end with it."""
    try:
        possible.check(config)
    except ConfigError as error:
        if (place := find_place(config)) is not None:
            start.tell(config, place, error)
        raise


def load_data(config: Config) -> Dataset:
    from repro import data

    with waiting(f"reading {config.data.name}") if ranks.with_rank_0(config) else nullcontext():
        dataset = data.load(config.data, config.seed, config.on_bad_image)
    same_data.check(config, data.Content(dataset.description, dataset.fingerprint))
    # before ranks start for nothing
    steps = dataset.steps_per_epoch(config.nodes, config.batch)
    if config.probe_steps and max(config.probe_steps) > (last := config.steps or config.epochs * steps):
        raise ConfigError(f"probe_steps={config.probe_steps}: the run ends after step {last}; type smaller ones")
    return dataset


def train(config: Config, rank: Rank, data: Dataset, before_run: BeforeRun | None = None) -> dict[str, Any]:
    """Does one rank's whole run. Rank 0 keeps the run folder and returns its summary."""
    here = provenance.of_rank(str(rank.device))
    seen = rank.control.gather_objects((status_file.state(config.folder), data.fingerprint, here))
    if strays := [str(number) for number, (_, fingerprint, _) in enumerate(seen) if fingerprint != seen[0][1]]:
        raise RunError(
            f"rank {', '.join(strays)} has other data under data.root={config.data.root} than rank 0: "
            "`repro data status` on each machine shows their fingerprints"
        )
    if seen[0][0] == "done":
        if rank.number == 0:
            with rank.waits(TERMINAL):
                done.tell(config)
                if text := elsewhere(config, rank.machines):
                    progress.warn(text)
        return run_folder.summary(config.folder)
    if rank.number:
        return {"state": Training(config, rank, data, None).run(before_run)}
    known: dict[str, Any] = {"ranks": provenance.of_ranks([place for _, _, place in seen])}
    if arithmetic := of_bfloat16(config.precision, rank.device.type):
        known[provenance.BFLOAT16] = arithmetic
    with run_folder.RunFolder(
        config, data.description, rank.device, data.fingerprint, write_items.of_experiment, rank.waits, known
    ) as folder:
        try:
            Training(config, rank, data, folder).run(before_run)
        except CollectiveError as error:
            raise rank.cause(error) from error
    return run_folder.summary(config.folder)
