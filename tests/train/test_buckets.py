"""Buckets and overlap: the same bits as without, whatever comes first; what they hide; levels of a cluster."""

import functools
import threading
from types import SimpleNamespace

import pytest
import thread_ranks
import torch
from thread_ranks import on_ranks
from tiny_runs import latest

from repro import algorithms, models
from repro.algorithms import ddp as pytorch_ddp
from repro.cluster import ranks
from repro.comm import bucket_spans
from repro.comm.collective import Collective
from repro.comm.subset import among
from repro.config.compose import compose
from repro.config.schema import Config, RunError
from repro.runs import checkpoint, run_folder
from repro.timing import dry_run, sleeping_model
from repro.timing.before_run import before_a_run
from repro.train import aggregator, buckets, loop
from repro.train.hierarchical import Hierarchical, inside
from repro.user_loop import check_finite

IMAGES = ["data=synthetic", "data.image_size=8", "data.train_images=64", "data.test_images=16"]
TINY = [*IMAGES, "batch_per_node=4", "density=0.01", "wandb.mode=disabled", "lr_warmup_epochs=0", "nodes=2"]
CPU = torch.device("cpu")


def config(folder, *overrides: str) -> Config:
    return compose([*TINY, f"results={folder}", *overrides])[0]


def weights(folder) -> torch.Tensor:
    _, target = latest(folder)
    return checkpoint.load(target, "shared.pt", CPU)["parameters"]


def trained(run: Config) -> torch.Tensor:
    assert loop.run(run, before_a_run)["state"] == "done"
    return weights(run.folder)


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
    run_folder.write_status(halved.folder, "running", 2, 4)
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


@pytest.mark.parametrize("machines", [["a", "a", "b", "b"], ["a", "b", "a", "c", "a"], ["a"] * 3, ["a", "b", "c"]])
def test_levels_give_the_mean_of_all_and_count_what_crosses_machines(machines):
    size, m = len(machines), 40
    x = torch.randint(-9, 10, (size, m), generator=torch.Generator().manual_seed(size)).float()
    dense = compose(["algo=dense"])[0].algo

    def body(collective: Collective):
        algorithm = Hierarchical(lambda: algorithms.load(dense, m), machines, collective.rank)
        update = algorithm.step(x[collective.rank].clone(), collective)
        return update, collective.traffic

    ranks = on_ranks(size, body, "gloo")
    assert all(torch.equal(update, ranks[0][0]) for update, _ in ranks)
    assert torch.allclose(ranks[0][0], x.mean(0), atol=1e-5)
    assert sum(t.bytes_sent for _, t in ranks) == sum(t.bytes_received for _, t in ranks)
    crossing = [t.bytes_sent - inside(machines, rank, t.rounds) for rank, (_, t) in enumerate(ranks)]
    leaders = [machines.index(machine) for machine in sorted(set(machines))]
    assert all(crossing[rank] == 0 for rank in range(size) if rank not in leaders)
    assert (sum(crossing) > 0) == (len(leaders) > 1)


def test_a_ring_among_some_ranks_gives_them_one_sum():
    def body(collective: Collective):
        if collective.rank == 1:
            return None
        x = torch.arange(7.0) + collective.rank
        return among(collective, [0, 2, 3]).all_reduce(x)

    found = on_ranks(4, body)
    assert all(torch.equal(found[rank], 3 * torch.arange(7.0) + 5) for rank in (0, 2, 3))


def test_a_run_on_made_up_machines(tmp_path):
    levels = ("nodes=4", "machines=2", "hierarchical=true", "bucket_mb=0.3", "scope=bucket", "overlap=on")
    run = config(tmp_path, "algo=gtopk_butterfly", *levels, "steps=2", "compare_every=1")
    assert loop.run(run, before_a_run)["state"] == "done"
    lines = [line for line in run_folder.read_metrics(run.folder) if line["kind"] == "step"]
    assert all(0 < line["bytes_inside"] < line["bytes_sent"] for line in lines)
    (time,) = [line for line in run_folder.read_metrics(run.folder) if line["kind"] == "iteration_time"]
    assert 0 < time["communicate_s"] < 0.1  # what stays inside a machine costs nothing


def test_ddp_itself_trains_like_dense_and_its_bytes_are_counted_by_formula(tmp_path):
    dense, ddp = (config(tmp_path, f"algo={name}", "steps=3", "accumulate=2") for name in ("dense", "ddp"))
    assert torch.allclose(trained(dense), trained(ddp), atol=1e-5)
    (*_, line) = [line for line in run_folder.read_metrics(ddp.folder) if line["kind"] == "step"]
    assert line["bytes_sent"] == pytest.approx(4 * 269722, rel=1e-5)
    assert line["rounds"] == 2  # the ring of one bucket
    (time,) = [line for line in run_folder.read_metrics(ddp.folder) if line["kind"] == "iteration_time"]
    assert time["communicate_s"] > 0


def test_what_ddp_has_sent_in_a_step_that_is_skipped_is_counted(tmp_path):
    run = config(tmp_path, "algo=ddp", "steps=4", "lr=1e30", "on_nonfinite=skip")
    assert loop.run(run)["state"] == "done"
    lines = [line for line in run_folder.read_metrics(run.folder) if line["kind"] == "step"]
    assert any(line.get("skipped") for line in lines)
    assert len({line["bytes_sent"] for line in lines}) == 1 and lines[0]["bytes_sent"] > 1e6


def test_the_hooks_of_ddp_send_less(tmp_path):
    """Both by the same processes, each of which imports for seconds what DDP needs."""
    settings = ["algo=ddp", "steps=4", "compare_every=1", "cluster=processes"]
    share = {"fp16": 0.5, "powersgd": 0.05}
    runs = {hook: config(tmp_path, *settings, f"algo.hook={hook}") for hook in share}
    main = functools.partial(thread_ranks.train_each, list(runs.values()))
    ranks.launch(runs["fp16"], main, loop.load_data)
    for hook, run in runs.items():
        assert run_folder.state(run.folder) == "done"
        (*_, line) = [line for line in run_folder.read_metrics(run.folder) if line["kind"] == "step"]
        tolerance = 0.5 if hook == "powersgd" else 1e-3
        assert line["bytes_sent"] == pytest.approx(4 * 269722 * share[hook], rel=tolerance)
        shapes = [layer.shape for layer in models.sized_only(run).parameters()]
        (modelled, _) = dry_run.all_rounds(run.algo, 2, 269722, 0, shapes=shapes)
        assert sum(r.sent * r.repeat for r in modelled) == pytest.approx(line["bytes_sent"], rel=1e-3)
    first, second, third, fourth = (
        line["bytes_sent"] for line in run_folder.read_metrics(run.folder) if line["kind"] == "step"
    )
    assert first == second == pytest.approx(4 * 269722, rel=1e-3) and third == fourth < first / 10  # as PyTorch's hook


@pytest.mark.parametrize("bucket_mb", [25.0, 4.0])
def test_ddps_buckets_are_those_whose_messages_are_counted(bucket_mb):
    shapes = [(1000, 500)] * 20  # 1.9 MB each
    ddp = pytorch_ddp.Algorithm(1, bucket_mb=bucket_mb)

    def body(collective):
        wrapped = ddp.wrap(sleeping_model.StandIn(shapes, [0.0] * len(shapes), lambda: 0.0, lambda _: None), collective)
        for _ in range(3):  # DDP settles on its buckets after the first
            wrapped().backward()
        return wrapped._get_ddp_logging_data()["rebuilt_bucket_sizes"]

    (sizes,) = on_ranks(1, body, "gloo")
    assert [int(size) // 4 for size in sizes.split(",")] == ddp.messages


def test_ddp_over_gloo_finds_a_backend_for_what_a_gpu_holds():
    """Ranks that are processes may share a GPU; DDP asks for one in its constructor."""

    def backends(collective):
        group = pytorch_ddp.process_group(collective)
        return [group._get_backend(torch.device(name)) for name in ("cpu", "cuda")]

    for on_cpu, on_gpu in on_ranks(2, backends, "gloo"):
        assert on_cpu == on_gpu
