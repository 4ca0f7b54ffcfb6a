"""Buckets and overlap: the same bits as without, whatever comes first; what they hide."""

import gc
import threading
import weakref
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from bucket_runs import CPU, config, trained
from thread_ranks import on_ranks

from repro import algorithms
from repro.algorithms import ddp
from repro.comm import bucket_spans
from repro.comm.collective import Collective
from repro.config.compose import compose
from repro.config.schema import RunError
from repro.runs import run_folder, status_file
from repro.timing.before_run import before_a_run
from repro.train import aggregator, buckets, loop
from repro.train.hierarchical import Hierarchical
from repro.train.step import Worker
from repro.user_loop import check_finite


def test_buckets_are_whole_layers_from_the_last_to_the_first():
    quarter = bucket_spans.MB // 4
    shapes = [(quarter // 2,), (quarter // 2,), (3, quarter), (10,), (quarter,)]
    found = bucket_spans.spans(shapes, 1.0)
    assert [(span.start, span.stop) for span in found] == [
        (4 * quarter + 10, 5 * quarter + 10),
        (quarter, 4 * quarter + 10),
        (0, quarter),
    ]
    assert bucket_spans.spans(shapes, 100.0) == [slice(0, 5 * quarter + 10)]
    assert bucket_spans.spans([(quarter,)] * 3, 2.0) == [slice(quarter, 3 * quarter), slice(0, quarter)]


def test_a_layer_without_entries_is_in_no_message_of_its_own():
    """A bucket of none came out, which nothing could be selected from; PowerSGD's hook divided by its zero rows."""
    assert bucket_spans.spans([(0,), (4,), (4,)], 16 / bucket_spans.MB) == [slice(4, 8), slice(0, 4)]
    assert ddp.factors([(0,), (0, 3), (4, 2)], 1) == [8]


@pytest.mark.parametrize("algo", ["dense", "topk", "gtopk_butterfly"])
def test_overlap_changes_no_bit(algo, tmp_path):
    choices = [f"algo={algo}", "steps=3", "bucket_mb=0.2", "scope=bucket", "accumulate=2"]
    off, on = (config(tmp_path / overlap, *choices, f"overlap={overlap}") for overlap in ("off", "on"))
    assert torch.equal(trained(off), trained(on))
    lines = {}
    for run in (off, on):
        steps = [line for line in run_folder.read_metrics(run.folder) if line["kind"] == "step"]
        lines[run.overlap] = [(line["loss"], line["bytes_sent"], line["k"], line["rounds"]) for line in steps]
    assert lines["off"] == lines["on"]


def test_dense_in_buckets_is_dense_and_a_sparse_bucket_sends_its_own_share(tmp_path):
    whole = trained(config(tmp_path / "whole", "algo=dense", "steps=2"))
    parts = trained(config(tmp_path / "parts", "algo=dense", "steps=2", "bucket_mb=0.3"))
    assert torch.allclose(whole, parts, atol=1e-6)
    run = config(tmp_path, "algo=topk", "steps=1", "bucket_mb=0.3", "scope=bucket")
    trained(run)
    (line,) = [line for line in run_folder.read_metrics(run.folder) if line["kind"] == "step"]
    assert line["k"] == line["selected"] == line["bytes_sent"] // 8


@pytest.mark.parametrize("name", ["randomk", "qsgd"])
def test_no_two_buckets_draw_the_same(name, tmp_path):
    run, rank = config(tmp_path, f"algo={name}", "bucket_mb=0.0009"), SimpleNamespace(device=CPU)
    x = torch.randn(256, generator=torch.Generator().manual_seed(1))

    def body(collective):
        whole, parts = (aggregator.load(run, [(256,)] * layers, rank) for layers in (1, 3))
        whole.density = parts.density = 0.5
        updates = parts.step(torch.cat([x, x, x]), collective).clone().split(256)
        return whole.step(x.clone(), collective), updates

    (alone, updates), _ = on_ranks(2, body)
    assert len({tuple(update.tolist()) for update in updates}) == 3
    assert torch.equal(alone, updates[-1])  # the first bucket is of the last layers; it draws as a whole gradient does


def test_a_run_in_overlapping_buckets_cut_in_two_ends_with_the_same_bits(tmp_path):
    choices = ["algo=gtopk_butterfly", "bucket_mb=0.3", "scope=bucket", "overlap=on"]
    straight = trained(config(tmp_path / "a", *choices, "steps=4"))
    halved = config(tmp_path / "b", *choices, "steps=4", "checkpoint_every=2")
    trained(halved)
    for path in (halved.folder / "checkpoints").glob("step-*4"):
        (path / "manifest.json").unlink()
    status_file.write(halved.folder, "running", 2, 4)
    assert torch.equal(trained(halved), straight)


def test_the_modelled_iteration_hides_what_backward_covers(tmp_path):
    """Of a compute that is timed, or stated: next to none hides next to nothing."""
    found = []
    for choices in (["overlap=off"], ["overlap=on"], ["overlap=on", "compute_s=1e-6"]):
        run = config(tmp_path, "algo=dense", "steps=1", "bucket_mb=0.2", *choices)
        loop.run(run, before_a_run)
        (line,) = [line for line in run_folder.read_metrics(run.folder) if line["kind"] == "iteration_time"]
        assert 0 <= line["hidden_s"] < line["communicate_s"]
        found.append(line)
    apart, beside, stated = found
    assert apart["hidden_s"] == 0 < beside["hidden_s"]
    assert stated["compute_s"] == 1e-6 and stated["hidden_s"] <= 1e-6 + stated["compress_s"]


def test_hidden_seconds_of_buckets_on_one_wire():
    assert bucket_spans.hidden_s([1.0, 3.0], [0.0, 0.0], [1.0, 1.0]) == 1.0  # the first is through before the second
    assert bucket_spans.hidden_s([1.0, 3.0], [0.0, 0.0], [5.0, 1.0]) == 2.0  # it ends at 6, backward at 3
    assert bucket_spans.hidden_s([1.0, 3.0], [0.5, 0.5], [5.0, 1.0]) == 2.5  # compress lengthens backward
    assert bucket_spans.hidden_s([2.0], [0.0], [4.0]) == 0.0
    alone = [bucket_spans.hidden_s([4.737], [0.0], [0.001 * number]) for number in range(1, 99)]
    assert all(0.0 <= hidden < 1e-14 for hidden in alone), "the sum rounds, and no time was hidden"


def test_a_bucket_starts_while_backward_goes_on():
    """The last layer's bucket must be there on all ranks before the first layer's backward may end."""
    seen = {}

    class Wait(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, done):
            ctx.done = done
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            seen[threading.current_thread().name] = ctx.done.wait(20)
            return gradient, None

    class Announce(algorithms.Algorithm):
        def __init__(self, done):
            self.done = done

        def step(self, gradient, collective):
            total = collective.all_reduce(gradient)
            self.done.set()
            return total

    def body(collective: Collective):
        done = threading.Event()
        layers = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
        gradient = torch.zeros(6)
        for number, layer in enumerate(layers):
            layer.grad = gradient[3 * number : 3 * number + 3]
        both = buckets.Buckets([slice(3, 6), slice(0, 3)], [Announce(done), Announce(done)])
        overlap = buckets.Overlap(both, layers, gradient, collective, lambda bucket: None)
        overlap.arm()
        (Wait.apply(layers[0].sum(), done) + layers[1].sum() * 2).backward()
        return both.step(gradient, collective), collective.hidden_s

    for total, hidden in on_ranks(2, body, "gloo"):
        assert total.tolist() == [2, 2, 2, 4, 4, 4] and hidden > 0
    assert list(seen.values()) == [True, True]


def two_buckets(algo):
    """Two layers of two entries, the gradient that their .grad views, and a bucket for each layer."""
    layers = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    gradient = torch.zeros(4)
    for number, layer in enumerate(layers):
        layer.grad = gradient[2 * number : 2 * number + 2]
    return layers, gradient, buckets.Buckets([slice(2, 4), slice(0, 2)], [algorithms.load(algo, 2) for _ in range(2)])


def test_layers_without_a_gradient_are_sent_as_zeros_and_errors_come_back():
    dense = compose(["algo=dense"])[0].algo

    def body(collective: Collective):
        layers, gradient, both = two_buckets(dense)
        limit = [10.0]

        def check(bucket):
            if bucket.max() > limit[0]:
                raise RunError("too large")

        overlap = buckets.Overlap(both, layers, gradient, collective, check)
        overlap.arm()
        (layers[0] * collective.rank).sum().backward()
        first = both.step(gradient, collective).tolist()
        limit[0] = -1.0
        overlap.arm()
        with pytest.raises(RunError, match="too large"):
            both.step(gradient, collective)
        return first

    assert on_ranks(2, body) == [[0.5, 0.5, 0, 0]] * 2


def test_after_a_bucket_that_one_rank_refuses_that_rank_sends_nothing():
    """Its next bucket went out, to ranks that still waited for this one: gloo ended the process."""
    dense = compose(["algo=dense"])[0].algo

    def body(collective: Collective):
        layers, gradient, both = two_buckets(dense)
        overlap = buckets.Overlap(both, layers, gradient, collective, lambda bucket: check_finite(bucket, ""))
        overlap.arm()
        (layers[0].sum() + layers[1].sum() * (torch.inf if collective.rank else 1.0)).backward()
        if collective.rank:
            overlap.thread.submit(int).result()  # both buckets were before it
            sent.append(collective.traffic.bytes_sent)
        both.step(gradient, collective)

    sent = list[int]()
    with pytest.raises(RuntimeError, match="this rank's gradient is not finite"):
        on_ranks(2, body)
    assert sent == [0]


def test_a_bucket_that_is_not_finite_stops_the_run(tmp_path):
    with pytest.raises(RunError, match=r"step \d+: the gradient of rank [01] is not finite"):
        loop.run(config(tmp_path, "algo=dense", "steps=20", "lr=1e30", "bucket_mb=0.3", "overlap=on"))


def test_no_bucket_is_full_before_the_one_in_front_of_it():
    assert bucket_spans.when_full([slice(5, 9), slice(0, 5)], [(5,), (4,)], [0.1, 0.2]) == [0.2, 0.2]


@pytest.mark.parametrize(
    "keys",
    [
        ["bucket_mb=0.1", "scope=bucket", "overlap=on"],
        ["probe_steps=[1]"],
        ["lr=1e30", "steps=20", "wandb.mode=disabled"],  # it diverges, and fails
    ],
)
def test_no_worker_outlives_its_run(keys, tmp_path, monkeypatch):
    """Hooks, a recorder and an error's traceback kept the network, the residuals and the threads of each rank.

    They were there until Python looked for what refers to itself, or to the end of the process.
    """
    workers, make = list[weakref.ref[Worker]](), Worker.__init__

    def remembered(self, *args, **kwargs):
        make(self, *args, **kwargs)
        workers.append(weakref.ref(self))

    monkeypatch.setattr(Worker, "__init__", remembered)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(RunError, match="not finite") if "steps=20" in keys else nullcontext():
            loop.run(config(tmp_path, "algo=gtopk", "steps=2", *keys))
        if "overlap=on" in keys:
            gc.collect()  # a thread that ends and PyTorch's hooks refer to each other
        assert len(workers) == 2 and [worker() for worker in workers] == [None, None]
    finally:
        gc.enable()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("buckets")]


class Begun(algorithms.Algorithm):
    """Keeps what it began with, as one of somebody's own may."""

    def begin(self, parameters):
        self.start = parameters.clone()

    def step(self, gradient, collective):
        return gradient


def test_parts_begin_with_their_own_parameters():
    both, start = buckets.Buckets([slice(2, 5), slice(0, 2)], [Begun(3), Begun(2)]), torch.arange(5.0)
    both.begin(start)
    assert [part.start.tolist() for part in both.parts] == [[2, 3, 4], [0, 1]]
    leader, other = (Hierarchical(lambda: Begun(5), ["a", "a"], rank) for rank in (0, 1))
    for one in (leader, other):
        one.begin(start)
    assert torch.equal(leader.inner.start, start) and other.inner is None


def test_what_a_bucket_takes_after_backward_has_ended_hides_nothing(monkeypatch):
    monkeypatch.setattr(buckets, "time", SimpleNamespace(perf_counter=lambda: 2.0))
    done = [
        SimpleNamespace(result=lambda span=span: span, cancel=bool) for span in ((1.0, 2.5), (0.5, 1.0), (3.0, 5.0))
    ]
    collective = SimpleNamespace(hidden_s=0.0)
    overlap = SimpleNamespace(armed=True, started=done, counts=[1, 1, 1], stream=None, collective=collective)
    buckets.Overlap.finish(overlap)
    assert collective.hidden_s == 1.5
