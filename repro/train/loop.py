"""The loop around `train_step`: epochs, schedules, evaluation, checkpoints, records, and the way back after a crash."""

from __future__ import annotations

import statistics
import time
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from repro import algorithms, checkpoint, iteration, ranks, record, schedule
from repro.collective import CollectiveError
from repro.config import Config, ConfigError, RunError
from repro.evaluation import evaluate
from repro.hierarchical import inside
from repro.probe import Probe
from repro.trainer import Batch, Step, Worker, any_rank, train_step

if TYPE_CHECKING:
    from pathlib import Path

    from repro.data import Dataset
    from repro.preempt import Interrupt
    from repro.ranks import Rank

AGREE_EVERY = 10  # steps between two looks at whether any rank was told to stop
STATUS_S = 2.0  # seconds between two updates of status.json


def run(config: Config, interrupt: Interrupt | None = None) -> dict[str, Any]:
    """Train as `config` says, from its last good checkpoint if there is one; a run that is done stays as it is.

    Returns the summary; another rank than 0 that torchrun or srun started, its state alone. Raises RunError.
    """
    try:
        return ranks.launch(config, train, load_data, interrupt)
    except RunError as error:
        record.failed(config.folder, str(error))  # rank 0 may have died before it could say so
        raise


def load_data(config: Config) -> Dataset:
    from repro import data

    return data.load(config.data, config.seed, config.on_bad_image)


def train(config: Config, rank: Rank, data: Dataset) -> dict[str, Any]:
    """One rank's whole run. Rank 0 keeps the run folder and returns its summary."""
    if rank.control.gather_objects(record.state(config.folder))[0] == "done":
        return record.summary(config.folder)
    if rank.rank:
        return {"state": Training(config, rank, data, None).run()}
    with record.RunFolder(config, description=data.description, device=rank.device) as folder:
        try:
            Training(config, rank, data, folder).run()
        except CollectiveError as error:
            raise rank.cause(error) from error
    return record.summary(config.folder)


class Training:
    """The state of the loop: the worker, what it did since the last evaluation, and where it reports."""

    worker: Worker

    def __init__(self, config: Config, rank: Rank, data: Dataset, folder: record.RunFolder | None):
        self.config, self.rank, self.data, self.folder = config, rank, data, folder
        self.checkpoints = config.folder / "checkpoints"
        self.per_epoch = data.steps_per_epoch(rank.size, config.batch_per_node * config.accumulate)
        self.steps = config.steps or config.epochs * self.per_epoch
        self.window = torch.zeros(2, dtype=torch.float64)  # since the last evaluation: sum of losses, number of steps
        self.began, self.told = time.perf_counter(), 0.0
        self.spans: list[Step] = []

    def run(self) -> str:
        """Returns the state it ends in: done, or preempted if any rank was told to stop."""
        step = self.begin()
        if self.config.probe_steps:
            if algorithms.mixes(self.worker.algorithm):
                raise ConfigError(
                    f"probe_steps={self.config.probe_steps}: what is selected and kept can be recorded of algorithms "
                    f"that send gradients; algo={self.config.algo.name} mixes weights. Leave probe_steps out"
                )
            if not isinstance(self.worker.algorithm, algorithms.of(self.config.algo)):
                raise ConfigError("probe_steps looks at whole gradients: leave bucket_mb and hierarchical out")
            steps, file = self.config.probe_steps, self.config.folder / "recorded.json"
            self.worker.algorithm = Probe(self.worker.algorithm, self.rank.control, steps, file, step)
        self.began = time.perf_counter()
        while step < self.steps:
            epoch, first = divmod(step, self.per_epoch)
            batches = iter(self.worker.batches(epoch, first * self.config.accumulate))
            for _ in range(first, min(self.per_epoch, first + self.steps - step)):
                self.one_step(step, list(islice(batches, self.config.accumulate)))
                step += 1
                if step % AGREE_EVERY == 0 and any_rank(self.rank.control, self.rank.interrupt.is_set()):
                    self.save(step)
                    return self.tell("preempted", step)
                every = self.config.checkpoint_every
                if every and step % every == 0 and step % self.per_epoch:  # an epoch's end is saved once evaluated
                    self.save(step)
            if step == self.steps or (epoch + 1) % self.config.evaluate_every == 0:
                self.evaluate(step)
            self.save(step)
        self.report_measured()
        return self.tell("done", step)

    def one_step(self, step: int, batches: list[Batch]) -> None:
        epoch = step / self.per_epoch
        lr, density = schedule.learning_rate(epoch, self.config), schedule.density(epoch, self.config)
        done = train_step(self.worker, step + 1, batches, lr, density)
        self.window += torch.tensor([done.loss, 1.0], dtype=torch.float64)
        if self.config.compare_every and (step + 1) % self.config.compare_every == 0:
            self.compare(step + 1)
        if self.folder is None:
            return
        alone, traffic, period = self.rank.alone, done.traffic, algorithms.period(self.worker.algorithm)
        if alone:
            self.spans.append(done)
        self.folder.log({
            "kind": "step", "step": step + 1, "epoch": (step + 1) / self.per_epoch, "loss": done.loss, "lr": lr,
            "density": density, "k": self.worker.entries(density),
            "selected": done.selected,
            "bytes_sent": traffic.bytes_sent, "messages": traffic.messages,
            "rounds": sum(r.repeat for r in traffic.rounds),
            "compute_s": done.compute_s if alone else None, "compress_s": done.compress_s if alone else None,
            "communicate_s": done.communicate_s if alone else None, "hidden_s": done.hidden_s if alone else None,
            **({"skipped": True} if done.skipped else {}),
            **({"period": period} if period > 1 else {}),
            **({"bytes_inside": inside(self.rank.machines, 0, traffic.rounds)} if self.config.hierarchical else {}),
        })  # fmt: skip
        if time.monotonic() - self.told > STATUS_S:
            self.tell("running", step + 1)

    def compare(self, step: int) -> None:
        """Every rank must hold the same parameters, to the bit, unless the algorithm mixes them."""
        if algorithms.mixes(self.worker.algorithm):
            return
        digests = self.rank.control.gather_objects(self.worker.replica.digest())
        strays = [str(number) for number, digest in enumerate(digests) if digest != digests[0]]
        if strays:
            raise RunError(f"after step {step} the parameters of rank {', '.join(strays)} differ from those of rank 0")

    def evaluate(self, step: int) -> None:
        seconds = time.perf_counter() - self.began
        found, control = evaluate(self.worker), self.rank.control
        window = control.all_reduce(self.window.clone())
        samples = self.window[1].item() * control.size * self.config.batch_per_node * self.config.accumulate
        if self.folder is not None:
            self.folder.log({
                "kind": "eval", "step": step, "epoch": step / self.per_epoch,
                "train_loss": (window[0] / window[1]).item(), **found, "samples_per_s": samples / seconds,
            })  # fmt: skip
        self.window.zero_()
        self.began = time.perf_counter()

    def calibrate(self) -> None:
        for line in iteration.before_a_run(self.config, self.rank, self.data):
            if self.folder is not None:
                self.folder.log(line)

    def report_measured(self) -> None:
        """The median step of a rank that has its machine to itself; the first steps only warm up.

        The mean step of an algorithm that does not communicate in every one.
        """
        spans = [span for span in self.spans[2:] if not span.skipped]
        if self.rank.alone and self.rank.size > 1 and spans:
            parts = ("compute_s", "compress_s", "communicate_s", "hidden_s")
            middle = statistics.median if algorithms.period(self.worker.algorithm) == 1 else statistics.fmean
            found = (middle(getattr(span, part) for span in spans) for part in parts)
            if self.folder is not None:
                self.folder.log(iteration.line(self.config, "measured", *found))

    def begin(self) -> int:
        """Make every rank's worker, as the last good checkpoint left it; return that step, 0 if there is none."""
        found = checkpoint.latest(self.checkpoints) if self.rank.rank == 0 else None
        found = self.rank.control.gather_objects(found)[0]
        step = 0 if found is None else found[0]
        if self.folder is not None:
            self.folder.resume(step)
        if found is None:
            self.calibrate()  # with a worker of its own, which is gone before this one takes memory
        self.worker = Worker(self.config, self.rank, self.data)
        if found is not None:
            self.restore(found[1])
        return step

    def restore(self, target: Path) -> None:
        worker = self.worker
        own = checkpoint.load(target, f"rank-{self.rank.rank:05d}.pt", self.rank.device)
        replica = own.get("replica") or checkpoint.load(target, "shared.pt", self.rank.device)
        worker.replica.load_state_dict(replica)
        worker.algorithm.load_state_dict(own["algorithm"])
        worker.generator.set_state(own["generator"].cpu())
        for buffer, saved in zip(worker.replica.statistics(), own["statistics"], strict=True):
            buffer.copy_(saved)
        self.window.copy_(own["window"])

    def save(self, step: int) -> None:
        """Parameters and momentum once for all ranks that hold them alike, else each rank's own beside its residual."""
        worker = self.worker
        own = {
            "algorithm": worker.algorithm.state_dict(), "generator": worker.generator.get_state(),
            "statistics": worker.replica.statistics(), "window": self.window,
        }  # fmt: skip
        files: dict[str, Any] = {f"rank-{self.rank.rank:05d}.pt": own}
        if algorithms.mixes(worker.algorithm):
            own["replica"] = worker.replica.state_dict()
        elif self.rank.rank == 0:
            files["shared.pt"] = worker.replica.state_dict()
        checkpoint.save(self.checkpoints, step, files, self.rank.control)

    def tell(self, state: str, step: int) -> str:
        self.told = time.monotonic()
        if self.folder is not None:
            self.folder.status(state, step, self.steps)
        return state
