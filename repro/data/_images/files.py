"""Reads images in class folders too large for memory: threads decode them a few batches ahead of the training.

Threads, not DataLoader's worker processes: ranks may be threads of this process, and forking one that runs
gloo's and OpenMP's threads can deadlock, while spawning imports torch again for each worker of each rank.
Pillow releases the interpreter's lock while it decodes and resizes, so threads scale over the cores.
"""

import logging
import random
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from repro.config.schema import RunError
from repro.data._images import augment
from repro.data._images.crops import center_crop, random_resized_crop, shorter_side
from repro.data._images.decode import BadImage, decode, read_file
from repro.rng import derive

Sample = tuple[np.ndarray, int]


@dataclass
class FileImages:
    """Reads a data set's Samples (see repro.data) from files: `paths[i]` under `folder` is of class `labels[i]`."""

    folder: Path
    paths: list[str]
    labels: np.ndarray
    size: int
    mean: Tensor  # [3], of pixels in 0 to 1
    std: Tensor  # [3]
    skip_bad: bool
    workers: int  # threads per rank
    prefetch: int  # batches
    reported: set[str] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, batches: Iterable[np.ndarray], seed: int | None) -> Iterator[tuple[Tensor, Tensor]]:
        # the pool lives as long as this iterator: threads made before a fork would be missing after it
        pool = ThreadPoolExecutor(self.workers, "decode")
        waiting: deque[list[Future[Sample | None]]] = deque()
        try:
            for batch in batches:
                waiting.append([pool.submit(self._sample, int(i), seed) for i in batch])
                if len(waiting) > self.prefetch:
                    yield self._collate(waiting.popleft())
            while waiting:
                yield self._collate(waiting.popleft())
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _collate(self, futures: list[Future[Sample | None]]) -> tuple[Tensor, Tensor]:
        samples = [sample for future in futures if (sample := future.result()) is not None]
        images = torch.zeros(len(samples), self.size, self.size, 3, dtype=torch.uint8)
        for i, (image, _) in enumerate(samples):
            images[i] = torch.from_numpy(image)
        labels = torch.tensor([label for _, label in samples], dtype=torch.int64)
        return augment.normalise(images, self.mean, self.std), labels

    def _sample(self, index: int, seed: int | None) -> Sample | None:
        """Returns the image and its class. A skipped one is replaced: in training by the next of the data set, so
        that batches stay equal in size on every rank; in testing by nothing, so that none counts twice."""
        for i in range(index, index + len(self)):
            i %= len(self)
            try:
                return self._decode(i, seed), int(self.labels[i])
            except (OSError, BadImage) as error:
                self._report(self.folder / self.paths[i], error)
            if seed is None:
                return None
        raise RunError(f"no image in {self.folder} can be decoded")

    def _decode(self, index: int, seed: int | None) -> np.ndarray:
        image = decode(read_file(self.folder / self.paths[index]))
        if seed is None:
            return np.array(center_crop(image, self.size, shorter_side(self.size)))
        generator = random.Random(derive(seed, index))  # noqa: S311  (crops, no secrets)
        return np.array(random_resized_crop(image, self.size, generator))

    def _report(self, path: Path, error: Exception) -> None:
        if isinstance(error, OSError) or not self.skip_bad:  # a disk error is never skipped
            advice = (
                "Put it back, whole"
                if isinstance(error, OSError)
                else "Repair it, and the same command goes on, surely if the file's size stays; without it, or with "
                "on_bad_image=skip, it is another run, which starts anew"
            )
            raise RunError(f"the image {path} cannot be read: {error}. {advice}") from None
        if str(path) not in self.reported:
            self.reported.add(str(path))
            logging.getLogger(__name__).warning("skipped: the image %s cannot be decoded: %s", path, error)
