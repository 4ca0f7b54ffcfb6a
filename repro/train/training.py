"""The loop around `train_step`: epochs, schedules, evaluation, checkpoints, records, and resuming."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from repro.cluster import threads
from repro.comm.common_start import Stopped
from repro.config.schema import Config, RunError
from repro.data._shards import TEST_BATCH
from repro.runs import checkpoint, metrics, progress, recorded, run_folder
from repro.train import evaluation, measured, saved_state, schedule, split
from repro.train.hierarchical import inside, keep_machines
from repro.train.recorder import StepRecorder
from repro.train.sent import Sent
from repro.train.step import Batch, Worker, any_rank, train_step

if TYPE_CHECKING:
    from repro.cluster.ranks import Rank
    from repro.data import Dataset

    # What an iteration will take, as lines of metrics.jsonl, before the first step. Collective.
    BeforeRun = Callable[[Config, Rank, Dataset], list[dict[str, Any]]]

AGREE_EVERY = 10  # steps between two looks at whether any rank was told to stop
STATUS_S = 2.0  # seconds between two updates of status.json


class Training:
    """Holds the state of the loop: the worker, what it did since the last evaluation, and where it reports."""

    worker: Worker

    def __init__(self, config: Config, rank: Rank, data: Dataset, folder: run_folder.RunFolder | None):
        self.config, self.rank, self.data, self.folder = config, rank, data, folder
        self.checkpoints, self.recorded = config.folder / "checkpoints", config.folder / recorded.NAME
        self.per_epoch = data.steps_per_epoch(rank.size, config.batch)
        self.steps = config.steps or config.epochs * self.per_epoch
        # Since the last evaluation, without skipped steps: sum of losses, number of steps.
        self.window = torch.zeros(2, dtype=torch.float64)
        self.sent = Sent()
        self.began, self.made, self.told = time.perf_counter(), 0, 0.0  # the steps made since it began

    def run(self, before_run: BeforeRun | None) -> str:
        """Trains; returns the state it ends in: done, or preempted if any rank was told to stop."""
        try:
            step = self.begin(before_run)
        except Stopped:
            return self.tell("preempted", 0)
        if self.config.probe_steps:
            if self.folder is not None and (text := recorded.missed(self.config, step)):
                self.folder.progress.say(f"warning: {text}")
            algorithm, control = self.worker.algorithm, self.rank.control
            steps, worker = self.config.probe_steps, weakref.proxy(self.worker)  # which holds the recorder
            self.worker.algorithm = StepRecorder(algorithm, control, steps, self.recorded, lambda: int(worker.step))
        self.begin_clock()
        if self.due(step) and self.window[1] > 0:  # it was told to stop between the step and its evaluation
            self.evaluate(step)
            self.save(step)
        self.phase("training", self.steps, "steps", step)
        while step < self.steps:
            epoch, first = divmod(step, self.per_epoch)
            batches = iter(self.worker.batches(epoch, first * self.config.accumulate))
            for _ in range(first, min(self.per_epoch, first + self.steps - step)):
                self.rank.interrupt.stops_at = min(self.steps, step - step % AGREE_EVERY + AGREE_EVERY)
                self.one_step(step, list(islice(batches, self.config.micro_batches)))
                step += 1
                if step % AGREE_EVERY == 0 and any_rank(self.rank.control, self.rank.interrupt.is_set()):
                    if self.due(step) and not self.window[1]:  # all were skipped: nothing would tell the next session
                        self.evaluate(step)
                    self.save(step)
                    return self.tell("preempted", step)
                ends = step % self.per_epoch == 0 or step == self.steps  # which is saved once evaluated
                if not ends and self.due_to_save(step):
                    self.save(step)
                    self.phase("training", self.steps, "steps", step)
            if self.due(step):
                self.evaluate(step)
            if saved := self.due_to_save(step):
                self.save(step)
            if step < self.steps and any_rank(self.rank.control, self.rank.interrupt.is_set()):
                if not saved:
                    self.save(step)
                return self.tell("preempted", step)
            self.phase("training", self.steps, "steps", step)
        self.report_measured()
        skips = self.config.on_nonfinite == "skip"
        if skips and self.folder is not None and (text := metrics.left_out(self.config.folder)):
            self.folder.progress.say(f"warning: {text}")
        return self.tell("done", step)

    def due(self, step: int) -> bool:
        """Returns whether the ranks evaluate after `step`."""
        return step == self.steps or schedule.is_multiple(step, self.config.evaluate_every * self.per_epoch)

    def due_to_save(self, step: int) -> bool:
        """Returns whether the ranks save a checkpoint after `step`."""
        every = self.config.checkpoint_every, self.config.checkpoint_epochs * self.per_epoch
        return step == self.steps or any(schedule.is_multiple(step, steps) for steps in every)

    def begin_clock(self) -> None:
        self.began, self.made = time.perf_counter(), 0

    def one_step(self, step: int, batches: list[Batch]) -> None:
        epoch = step / self.per_epoch
        lr, density = schedule.learning_rate(epoch, self.config), schedule.density(epoch, self.config)
        done = train_step(self.worker, step + 1, batches, lr, density)
        if not done.skipped:
            self.sent.add(done.traffic, density)
            self.window += torch.tensor([done.loss, 1.0], dtype=torch.float64)
        self.made += 1
        if self.config.compare_every and (step + 1) % self.config.compare_every == 0:
            self.compare(step + 1)
        if self.folder is None:
            return
        traffic, period = done.traffic, self.worker.algorithm.period
        known = self.rank.own_machine and not self.worker.algorithm.wraps  # whose messages travel inside backward
        self.folder.log({
            "kind": "step", "step": step + 1, "epoch": (step + 1) / self.per_epoch, "loss": done.loss, "lr": lr,
            "density": density, "k": self.worker.entries(density),
            "selected": done.selected,
            "bytes_sent": traffic.bytes_sent, "messages": traffic.messages, "framing": traffic.framing,
            "rounds": sum(r.repeat for r in traffic.rounds),
            **(done.time.row() if known else dict.fromkeys(done.time.row())),
            **({"skipped": True} if done.skipped else {}),
            **({"period": period} if period > 1 else {}),
            **({"bytes_activations": done.activations} if self.config.stages > 1 else {}),
            **({"varies": True} if self.worker.algorithm.messages_depend_on_values else {}),
            **({"bytes_inside": inside(self.rank.machines, 0, traffic.rounds)} if self.config.hierarchical else {}),
        })  # fmt: skip
        if time.monotonic() - self.told > STATUS_S:
            self.tell("running", step + 1)

    def compare(self, step: int) -> None:
        """Raises RunError unless all ranks of a stage hold the same bits, or the algorithm mixes parameters."""
        if self.worker.algorithm.mixes:
            return
        digests = self.rank.control.gather_objects(self.worker.replica.digest())
        stages = self.config.stages
        strays = [number for number, digest in enumerate(digests) if digest != digests[number % stages]]
        if strays:
            names, first = ", ".join(map(str, strays)), strays[0] % stages
            raise RunError(f"after step {step} the parameters of rank {names} differ from those of rank {first}")

    def evaluate(self, step: int) -> None:
        seconds = time.perf_counter() - self.began
        self.phase("evaluating", self.data.test_steps(self.rank.size, TEST_BATCH), "batches")
        found, control = evaluation.evaluate(self.worker, self.advance), self.rank.control
        window = control.all_reduce(self.window.clone())
        sent = self.sent.over_ranks(control)
        samples = self.made * control.size * self.config.batch
        if self.folder is not None:
            self.folder.log({
                "kind": "eval", "step": step, "epoch": step / self.per_epoch,
                "train_loss": (window[0] / window[1]).item(), **found, **sent,
                "samples_per_s": samples / seconds if samples else None,
            })  # fmt: skip
        self.window.zero_()
        self.begin_clock()

    def report_measured(self) -> None:
        """Logs the iteration of a rank that has its machine to itself, unless a session that ended here has."""
        if self.folder is None or self.rank.size == 1 or not self.rank.own_machine:
            return
        lines, origin = run_folder.read_metrics(self.config.folder), self.folder.provenance
        if lines[-1]["kind"] == "iteration_time":
            return
        sessions, timed_on = [*origin["earlier"], origin], origin.get("timed_on", origin)
        time = measured.iteration(lines, sessions, timed_on, self.worker.algorithm.period)
        if time is not None:
            self.folder.log(run_folder.time_line(self.config, "measured", time))

    def begin(self, before_run: BeforeRun | None) -> int:
        """Makes every rank's worker as the last usable checkpoint left it; returns its step, 0 if there is none."""
        if self.config.stages > 1:
            self.phase("timing blocks")
        if not threads.as_threads(self.config):
            checkpoint.check_shared(self.config.folder, self.rank.control)
        keep_machines(self.config, self.rank, self.checkpoints)
        divided = split.of_run(self.config, self.rank)
        passed_over: list[str] = []  # on rank 0
        chosen = self.choices(passed_over) if self.rank.number == 0 else iter(())
        while (found := self.rank.control.gather_objects(next(chosen, None))[0]) is not None:
            self.worker = Worker(self.config, self.rank, self.data, split=divided)
            self.worker.settle()
            problem = saved_state.load(self.worker, self.window, self.sent, found.folder, found.step)
            problems = [text for text in self.rank.control.gather_objects(problem) if text]
            if not problems:
                if self.folder is not None:
                    self.folder.resume(found.step, found.metrics, passed_over)
                    self.tell_sizes(self.folder)
                return found.step
            passed_over.append(f"the checkpoint of step {found.step} cannot be loaded: {problems[0]}")
            del self.worker
        if self.folder is not None:
            self.folder.resume(0, None, passed_over)
        if before_run is not None:
            self.phase("timing one rank")
            # with a worker of its own, which is gone before this one takes memory
            for line in before_run(self.config, self.rank, self.data):
                if self.folder is not None:
                    self.folder.log(line)
        self.phase("starting")
        self.window.zero_()
        self.sent = Sent()  # a checkpoint that some ranks could not load may have set it
        self.worker = Worker(self.config, self.rank, self.data, split=divided)
        if self.folder is not None:
            self.tell_sizes(self.folder)
        return 0

    def tell_sizes(self, folder: run_folder.RunFolder) -> None:
        sent = progress.sent(self.config, self.worker.replica.gradient.numel(), self.worker.entries)
        if (divided := self.worker.split) is not None:
            cuts = ",".join(map(str, divided.cuts))
            sent += f", in the first of {self.config.stages} stages (cuts=[{cuts}])"
        if self.config.hierarchical:
            machines = len(set(self.rank.machines))
            alone = "; all nodes are on one machine, and between machines nothing travels (machines=2 divides them)"
            sent += f", between {machines} machines" if machines > 1 else alone
        folder.progress.say(f"  in {self.config.folder.parent}\n  {sent}")

    def phase(self, name: str, total: int | None = None, unit: str = "", done: int = 0) -> None:
        if self.folder is not None:
            self.folder.progress.phase(name, total, unit, done)

    def advance(self) -> None:
        if self.folder is not None:
            self.folder.progress.advance()

    def choices(self, passed_over: list[str]) -> Iterator[checkpoint.Checkpoint]:
        """Yields the checkpoints that may be gone on from, newest first; appends why others may not."""
        for found, damage in checkpoint.newest_first(self.checkpoints):
            if damage is None and found.step > self.steps:
                damage = f"it is beyond the last step, {self.steps}"
            damage = damage or metrics.lacking(self.config.folder, found.step, found.metrics)
            damage = damage or (recorded.damaged(self.recorded) if self.config.probe_steps else None)
            if damage is None:
                yield found
            else:
                passed_over.append(f"the checkpoint of step {found.step} is not used: {damage}")

    def save(self, step: int) -> None:
        self.phase("saving")
        began = time.perf_counter()
        files = saved_state.files(self.worker, self.window, self.sent)
        reached = None if self.folder is None else self.folder.metrics.position
        checkpoint.save(self.checkpoints, step, files, self.rank.control, reached, self.rank.waits)
        self.began += time.perf_counter() - began  # no time of training: samples_per_s leaves it out

    def tell(self, state: str, step: int) -> str:
        self.told = time.monotonic()
        if self.folder is not None:
            self.folder.status(state, step, self.steps)
        return state
