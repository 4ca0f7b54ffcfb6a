"""Chooses the samples a rank reads, by pure functions of (seed, epoch, rank, nodes): a position suffices to resume.

Rank r of P takes every P-th sample of the epoch's order, from r on. Batch i of all ranks together is the
same set of samples for every P that divides the same global batch. A text is not shuffled: it is cut into as many rows
as all ranks read side by side, each rank has some that follow each other, and each row is read from its beginning.
"""

from collections.abc import Iterator

import numpy as np

from repro.config.schema import ConfigError
from repro.rng import derive

TEST_BATCH = 250  # images that a rank evaluates at once
TEST_ROWS = 20  # authors' code: rows of a text that are evaluated side by side, by all ranks together


def order(samples: int, seed: int, epoch: int) -> np.ndarray:
    """Returns the epoch's permutation of range(samples)."""
    return np.random.Generator(np.random.PCG64(derive(seed, "shuffle", epoch))).permutation(samples)


def shard(samples: int, seed: int, epoch: int, rank: int, nodes: int) -> np.ndarray:
    """Returns this rank's samples of an epoch, [samples // nodes]; the few left over differ from epoch to epoch."""
    return order(samples, seed, epoch)[: samples // nodes * nodes][rank::nodes]


def steps_per_epoch(samples: int, nodes: int, batch: int) -> int:
    """Returns how many full batches every rank has. Raises ConfigError if there is none."""
    steps = samples // nodes // batch
    if steps == 0:
        raise ConfigError(
            f"{nodes} nodes with {batch} samples each (batch_per_node times accumulate) need {nodes * batch} training "
            f"samples for one step, there are {samples}. Lower nodes, batch_per_node or accumulate."
        )
    return steps


def train_batches(
    samples: int, seed: int, epoch: int, rank: int, nodes: int, batch: int, start_batch: int
) -> Iterator[np.ndarray]:
    """Yields the shard in batches [batch] from `start_batch` on, without what does not fill a batch."""
    mine = shard(samples, seed, epoch, rank, nodes)
    for i in range(start_batch, steps_per_epoch(samples, nodes, batch)):
        yield mine[i * batch : (i + 1) * batch]


def test_batches(samples: int, rank: int, nodes: int, batch: int) -> Iterator[np.ndarray]:
    """Yields this rank's batches: over all ranks every sample once, in a fixed order; the last may be smaller."""
    mine = np.arange(rank, samples, nodes)
    for start in range(0, len(mine), batch):
        yield mine[start : start + batch]


def train_rows(samples: int, rank: int, nodes: int, batch: int, start_batch: int) -> Iterator[np.ndarray]:
    """Yields batches [batch] of a text from `start_batch` on: sample i of a row follows sample i of the batch before.

    The few samples at the end of the text that do not fill a batch of all ranks are left out.
    """
    steps = steps_per_epoch(samples, nodes, batch)
    first = (rank * batch + np.arange(batch)) * steps
    for i in range(start_batch, steps):
        yield first + i


def test_rows(samples: int, rank: int, nodes: int) -> Iterator[np.ndarray]:
    """Yields this rank's rows of a text, as `train_rows` does; over all ranks they are the same for any number of them.

    At most TEST_ROWS - 1 samples at the end of the text are left out.
    """
    rows = min(TEST_ROWS, samples)
    first = np.arange(rank, rows, nodes) * (samples // rows)
    for i in range(samples // rows if len(first) else 0):
        yield first + i
