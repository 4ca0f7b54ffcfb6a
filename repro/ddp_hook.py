"""Makes algorithms a communication hook of DistributedDataParallel; users find it in `repro.distributed`."""

# DDP reads the annotations of a hook, so they are no texts in this file.
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future
from torch.optim import Optimizer

from repro import algorithms, user_loop
from repro.algorithms import Algorithm
from repro.clip import finite
from repro.comm.collective import Collective
from repro.comm.primitives import mean
from repro.comm.traffic import Traffic
from repro.config import compose
from repro.config.schema import ConfigError
from repro.ddp_buckets import Layout

LAYOUT, SHAPES, PLACE = "layout", "shapes", "place"  # of the buckets, and whose they are, in the state of a hook
WHAT = "the hook"  # in messages
DENSE_STEPS = 2  # DDP forms its buckets anew after the first step, with static_graph=True after the second


class Copied:
    """Stands for a State in a copy of DDP's model, for an average of weights or a file: it sends for none."""

    def start(self, bucket: dist.GradBucket) -> Future[Tensor]:
        raise ConfigError("this model is a copy of one with a hook: train it in a DistributedDataParallel of its own")


class State:
    """Holds one algorithm for each of DDP's buckets, made as for `wrap`. Raises ConfigError.

    `density` may be changed between steps; `traffic` is that of the last step. The first two steps are dense, as DDP
    then forms its buckets anew: register the hook before the model's first backward. After `load_state_dict`, before
    the first step, a run goes on with the same bits: while the new DDP has not formed the buckets that were saved, the
    gradient is put together as they have it, and sent after backward, not beside it. A state saved within the first two
    steps begins with them again.

    Each backward through DDP is a step of the algorithm. Make all but the last before an `optimizer.step()`, and those
    whose gradients you throw away (a GAN's discriminator has some of its generator's step), inside DDP's `no_sync()`:
    else the update would be sent once more with the next gradient, and residuals would keep what was thrown away. With
    the optimizer given here, a second backward before its step raises ConfigError, unless on_nonfinite="skip", as a
    scaler leaves steps out.

    The optimizer must have no momentum where the algorithm or `correction` brings one, or a gain stands in its place:
    gtopk_corrected, gtopk_exact, onebit and scalecom have a gain of 10 unless gain=1 is given, and updates 10 times as
    large. The hook sees the optimizer only if it is given here: then momentum raises ConfigError, here or at a step.

    Nor does it see which parameters a step leaves out: DDP with find_unused_parameters=True throws their part of an
    update away, after the algorithm took it out of its residual. Give a model that needs this to `wrap`, without DDP.

    A gradient that is not finite raises RuntimeError in backward, as it would stay in the residual. For a GradScaler,
    whose first scales are too large, type on_nonfinite="skip": the ranks then agree on each bucket before it is sent,
    by a message of one number, and where one has overflowed, all get what is not finite in it and in the buckets after
    it, so that every scaler skips the step. What was sent of the step's earlier buckets is lost with it. Residuals are
    kept at the scale of their time.
    """

    def __init__(
        self,
        name: str,
        density: float | None = None,
        seed: int = 0,
        group: dist.ProcessGroup | None = None,
        on_nonfinite: Literal["stop", "skip"] = "stop",
        optimizer: Optimizer | None = None,
        **options: Any,
    ):
        if on_nonfinite not in ("stop", "skip"):
            raise ConfigError(f"on_nonfinite={on_nonfinite}: choose from stop, skip")
        self.skips = on_nonfinite == "skip"
        self.algo, self.density, self.group = compose.algorithm(name, options, seed, density), density, group
        kind = algorithms.of(self.algo)
        if kind.mixes or kind.wraps:
            what = "mixes weights" if kind.mixes else "is DDP itself"
            raise ConfigError(f"algo={name} {what} and cannot be a hook of DDP's gradients; choose algo=dense, for one")
        if self.algo.clip > 0:
            raise ConfigError(
                f"clip={self.algo.clip:g} bounds the norm of a rank's whole gradient, and a hook sees a bucket of it "
                "at a time; leave it out, or use distributed.wrap"
            )
        if optimizer is not None:
            user_loop.check_optimizer(optimizer)
            optimizer.register_step_post_hook(self.stepped)
        user_loop.check_momentum(self.algo, optimizer)
        self.optimizer = optimizer
        self.buckets: dict[int, Algorithm] = {}
        self.saved: dict[int, Any] = {}  # states of buckets that have not come yet
        self.layout, self.waiting = Layout(), list[tuple[Future[Tensor], Tensor]]()
        self.place: dict[str, Any] = {}  # whose the loaded state is, then whose this one is; {} = not known
        self.collective: Collective | None = None
        self.steps, self.ended = 0, True  # steps done; whether the last bucket was the last of its step
        self.unused = False  # whether the optimizer has not stepped since
        self.failed: Exception | None = None  # of a bucket of this step
        self.overflowed = False  # whether a bucket of this step was not finite on any rank: the scalers will skip it
        self.thread = ThreadPoolExecutor(1, "hook", torch.set_num_threads, (torch.get_num_threads(),))

    def __reduce__(self) -> tuple[type[Copied], tuple[()]]:
        return Copied, ()

    @property
    def traffic(self) -> Traffic:
        return Traffic() if self.collective is None else self.collective.traffic

    def start(self, bucket: dist.GradBucket) -> Future[Tensor]:
        """Aggregates the bucket on a thread, while backward fills the next one; in one order on all ranks."""
        gradient, layers = bucket.buffer(), bucket.parameters()
        user_loop.check_not_sparse(gradient, layers[0].shape)
        if self.collective is None:  # wires of its own: DDP may speak over the group meanwhile
            collective = user_loop.connect(self.group, gradient.device).aside()
            own = {**user_loop.asked(self.algo, self.density), "on_nonfinite": "skip" if self.skips else "stop"}
            user_loop.check_alike("distributed.State", own, collective)
            here = user_loop.place(self.algo, collective)
            if self.place:
                user_loop.check_place(self.place, here, WHAT, "load nothing into the State")
            self.place, self.collective = here, collective
        if self.ended:
            user_loop.check_momentum(self.algo, self.optimizer)  # to which a scheduler may bring some
            if self.unused and self.optimizer is not None and not self.skips:  # a scaler leaves steps out
                raise ConfigError(
                    "a second backward before optimizer.step(): each is a step of the algorithm. Make all but the "
                    "last, and those whose gradients are thrown away, inside `with model.no_sync():`"
                )
            user_loop.check_density(self.algo, self.density)
            self.collective.traffic, self.failed, self.overflowed = Traffic(), None, False
        forming, number = self.steps < DENSE_STEPS, bucket.index()
        resumed = forming and bool(self.layout.buckets)
        if self.steps == 0:
            self.layout.first(layers)
        if not forming:
            self.layout.final(number, layers)
        if resumed:
            self.layout.hold(layers, bucket.gradients())
            if bucket.is_last() and not self.buckets:  # here, as DDP makes a RuntimeError of what the thread raises
                self.layout.check()
                self.buckets = {
                    saved: self.algorithm(saved, self.layout.members(saved)) for saved in self.layout.buckets
                }
        elif not forming and number not in self.buckets:
            self.buckets[number] = self.algorithm(number, layers)
        algorithm = None if forming else self.buckets[number]
        self.ended = bucket.is_last()
        self.steps += self.ended
        self.unused = self.ended

        cuda = gradient.is_cuda
        stream = torch.cuda.stream(torch.cuda.current_stream(gradient.device)) if cuda else nullcontext()
        ready: Future[Tensor] = Future(devices=[gradient.device] if cuda else [])
        if resumed:
            done = ready.then(lambda all_of_them: (all_of_them.value(), gradient)[1])
        else:
            done = ready.then(lambda _: self.next_bucket(gradient, algorithm))  # what it raises reaches backward()
        self.waiting.append((ready, gradient))
        if self.ended or not resumed:
            waiting, self.waiting = self.waiting, []
            self.thread.submit(self.begin, waiting, stream, resumed)
        return done

    def stepped(self, *_: Any) -> None:
        self.unused = False

    @torch.no_grad()
    def begin(
        self, waiting: list[tuple[Future[Tensor], Tensor]], stream: AbstractContextManager[Any], resumed: bool
    ) -> None:
        """Aggregates the buckets that wait, on the thread; after a resume all of a step at once.

        A future's callbacks have a stream of their own, which waits for what this `stream` has done to its value alone:
        so the value is the gradient.
        """
        with stream:
            try:
                if resumed:
                    self.layout.aggregate(self.one_bucket)
            except Exception as error:
                for ready, _ in waiting:
                    ready.set_exception(error)  # type: ignore[arg-type]  # it is typed as a result
                return
            for ready, gradient in waiting:
                ready.set_result(gradient)

    def next_bucket(self, gradient: Tensor, algorithm: Algorithm | None) -> Tensor:
        """Aggregates a bucket; after one of its step that failed raises too, as other ranks still expect that one's."""
        if self.failed is None:
            try:
                return self.aggregate(gradient, algorithm)
            except Exception as error:
                self.failed = error
        raise self.failed

    def one_bucket(self, number: int, gradient: Tensor) -> Tensor:
        """Returns the update of a bucket that was saved, while DDP has others."""
        return self.aggregate(gradient, self.buckets[number])

    def algorithm(self, number: int, layers: Sequence[Tensor]) -> Algorithm:
        made = user_loop.make(algorithms.of_bucket(self.algo, number), self.density, layers, layers[0].device)
        user_loop.begin(made, layers)
        if number in self.saved:
            user_loop.check_form(self.saved[number], made, WHAT)
            made.load_state_dict(self.saved.pop(number))
        return made

    @torch.no_grad()
    def aggregate(self, gradient: Tensor, algorithm: Algorithm | None) -> Tensor:
        assert self.collective is not None  # noqa: S101  (for the type checker: `start` made it)
        if not self.skips:
            user_loop.check_finite(gradient, 'For a GradScaler type distributed.State(..., on_nonfinite="skip")')
        if algorithm is None:
            return mean(gradient, self.collective)
        if self.density is not None and self.algo.sparse:
            algorithm.density = self.density
        self.overflowed = self.overflowed or (self.skips and self.anywhere_infinite(gradient))
        if self.overflowed:  # on all ranks: nothing more leaves a residual for a step that is not taken
            return gradient.fill_(torch.nan)
        return algorithm.step(gradient, self.collective)

    def anywhere_infinite(self, gradient: Tensor) -> bool:
        """Returns whether any rank's part of a bucket is not finite. Collective; not in the traffic of steps."""
        assert self.collective is not None  # noqa: S101  (for the type checker: `start` made it)
        flag = torch.tensor([float(not finite(gradient))], device=gradient.device)
        return bool(Collective(self.collective.transport).all_reduce(flag).item())

    def state_dict(self) -> dict[int | str, Any]:
        """Returns the state of this rank; each rank saves its own."""
        kept = self.saved | {number: algorithm.state_dict() for number, algorithm in self.buckets.items()}
        return {**kept, LAYOUT: dict(self.layout.buckets), SHAPES: self.layout.ordered(), PLACE: self.place}

    def load_state_dict(self, state: dict[int | str, Any]) -> None:
        """Raises ConfigError after the first step: DDP would have formed its buckets.

        So is what no State returned; what is not of this algorithm, rank or model is refused in the first step, which
        knows them.
        """
        if self.steps or not self.ended:
            raise ConfigError("load the State of a hook before the first step of a new DistributedDataParallel")
        if LAYOUT not in state and not any(isinstance(number, int) for number in state):
            raise ConfigError("this is no state of a hook: load what state_dict() of a distributed.State returned")
        self.saved = {number: kept for number, kept in state.items() if isinstance(number, int)}
        self.layout, self.buckets = Layout(dict(state.get(LAYOUT, {})), list(state.get(SHAPES, []))), {}
        self.place = state.get(PLACE, {})  # states from before have neither


def hook(state: State | Copied, bucket: dist.GradBucket) -> Future[Tensor]:
    """Returns the average update for a bucket of gradients, as `DistributedDataParallel.register_comm_hook` asks."""
    return state.start(bucket)
