"""PyTorch's DistributedDataParallel as an algorithm: dense's weights, its buckets, its hooks, its bytes."""

import functools
import math

import pytest
import thread_ranks
import torch
from bucket_runs import config, trained
from thread_ranks import on_ranks

from repro import algorithms, models
from repro.algorithms import ddp as pytorch_ddp
from repro.cluster import ranks
from repro.comm.traffic import ring
from repro.config.compose import compose
from repro.runs import run_folder, status_file
from repro.timing import dry_run, sleeping_model
from repro.train import loop
from repro.train.step import Worker


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


def test_a_rank_in_an_evaluation_is_in_no_collective(tmp_path, monkeypatch):
    """It was said to be in DDP's backward, and one that hung was taken for one that waits."""
    seen, logits = {True: set(), False: set()}, Worker.logits

    def noted(worker, *arguments):
        seen[worker.replica.model.training].add(worker.rank.position()[0])
        return logits(worker, *arguments)

    monkeypatch.setattr(Worker, "logits", noted)
    assert loop.run(config(tmp_path, "algo=ddp", "steps=2"))["state"] == "done"
    assert seen == {True: {"DistributedDataParallel's backward"}, False: {None}}


def test_the_hooks_of_ddp_send_less(tmp_path):
    """Both by the same processes, each of which imports for seconds what DDP needs."""
    settings = ["algo=ddp", "steps=4", "compare_every=1", "cluster=processes"]
    share = {"fp16": 0.5, "powersgd": 0.05}
    runs = {hook: config(tmp_path, *settings, f"algo.hook={hook}") for hook in share}
    main = functools.partial(thread_ranks.train_each, list(runs.values()))
    ranks.launch(runs["fp16"], main, loop.load_data)
    for hook, run in runs.items():
        assert status_file.state(run.folder) == "done"
        (*_, line) = [line for line in run_folder.read_metrics(run.folder) if line["kind"] == "step"]
        tolerance = 0.5 if hook == "powersgd" else 1e-3
        assert line["bytes_sent"] == pytest.approx(4 * 269722 * share[hook], rel=tolerance)
        shapes = [layer.shape for layer in models.sized_only(run).parameters()]
        (modelled, _) = dry_run.all_rounds(run.algo, 2, 269722, 0, shapes=shapes)
        assert sum(r.sent * r.repeat for r in modelled) == line["bytes_sent"]
        assert sum(r.repeat for r in modelled) == line["rounds"] == (6 if hook == "powersgd" else 2)
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


@pytest.mark.parametrize("rank", [1, 4])
@pytest.mark.parametrize("model", ["resnet20", "vgg16"])
def test_what_is_modelled_of_powersgds_hook_is_what_it_sends(model: str, rank: int) -> None:
    """Two all-reduces were: a third less latency than it has."""
    words = [f"model={model}", "algo=ddp", "algo.hook=powersgd", f"algo.rank={rank}", "nodes=4", "cluster=processes"]
    (run,) = compose(words)
    shapes = [layer.shape for layer in models.sized_only(run).parameters()]
    parameters, sums = sum(map(math.prod, shapes)), pytorch_ddp.factors(shapes, rank)
    modelled = dry_run.all_rounds(run.algo, 4, parameters, 0, shapes=shapes)
    assert modelled == [[ring(number, 4, elements, 4) for elements in sums] for number in range(4)]
    path = algorithms.step_path(run, shapes)
    assert (path.rounds, path.bytes) == (6 * 3, pytest.approx(1.5 * 4 * sum(sums), rel=1e-3))
