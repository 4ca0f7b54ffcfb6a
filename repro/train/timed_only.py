"""Runs that train nothing: their compute is stated (`node=`), and what an iteration takes is measured in the lab."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from repro.cluster import ranks
from repro.comm.collective import CollectiveError
from repro.config.schema import Config
from repro.runs import run_folder, status_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from repro.cluster.preempt import Interrupt
    from repro.cluster.ranks import Rank

    Lines = Callable[[Config, Rank, Any], list[dict[str, Any]]]

DESCRIPTION = "none: nothing is trained"


def run(config: Config, before_run: Lines, interrupt: Interrupt | None) -> Any:
    """Measures as `config` says; returns the summary. Raises RunError."""
    failed = functools.partial(status_file.failed, config)
    return ranks.launch(
        config, functools.partial(time_it, before_run=before_run), ranks.no_data, interrupt, failed=failed
    )


def time_it(config: Config, rank: Rank, data: None, before_run: Lines) -> dict[str, Any]:
    """Does one rank's part. Rank 0 keeps the run folder and returns its summary.

    A measurement that is complete is kept, also where a rank was told to stop meanwhile.
    """
    if rank.number:
        return {"state": "preempted" if _measured(config, rank, before_run) is None else "done"}
    with run_folder.RunFolder(config, DESCRIPTION, rank.device, waits=rank.waits) as folder:
        folder.resume(0)
        try:
            lines = _measured(config, rank, before_run)
        except CollectiveError as error:
            raise rank.cause(error) from error
        for line in lines or []:
            folder.log(line)
        folder.status("preempted" if lines is None else "done", int(lines is not None), 1)
    return run_folder.summary(config.folder)


def _measured(config: Config, rank: Rank, before_run: Lines) -> list[dict[str, Any]] | None:
    """Returns the lines; None, on all ranks, where any was told to stop before the measurement was complete."""
    try:
        return before_run(config, rank, None)
    except KeyboardInterrupt:
        return None
