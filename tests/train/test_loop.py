"""The loop: real networks, gradients that are not finite, and what it says of an iteration."""

import dataclasses
import json
import socket
import threading
import time

import pytest
import torch
from tiny_runs import QUICK, bits, config

from repro import models
from repro.cluster import preempt, stalls, watchdog
from repro.comm import common_start
from repro.config.compose import named_network
from repro.config.schema import ConfigError, RunError
from repro.iteration_time import IterationTime
from repro.rng import derive
from repro.runs import checkpoint, progress, run_folder
from repro.runs.wandb_mirror import Mirror
from repro.timing.before_run import before_a_run
from repro.train import evaluation, loop, saved_state, training
from repro.train.step import Worker, train_step


@pytest.mark.parametrize("model", ["alexnet", "resnet50"])
def test_the_imagenet_networks_train_on_a_folder_of_jpegs(model, imagenet_folder, tmp_path):
    images = ["data=imagenet", f"data.root={imagenet_folder}", "data.classes=4", "data.image_size=64"]
    run = config(tmp_path, f"model={model}", *images, "algo=gtopk", "nodes=2", "steps=3", "batch_per_node=2")
    assert loop.run(run)["state"] == "done"
    steps = [line for line in run_folder.read_metrics(run.folder) if line["kind"] == "step"]
    assert [line["step"] for line in steps] == [1, 2, 3]
    assert all(line["bytes_sent"] == 8 * line["k"] for line in steps)  # rank 0 of two: one broadcast


def test_a_batch_that_leaves_batchnorm_one_value_is_refused_before_anything_is_written(tmp_path):
    tiny = ["data=synthetic", "data.train_images=8", "data.test_images=4", "nodes=2", "steps=1", "batch_per_node=1"]
    one = config(tmp_path, *QUICK, *tiny, "data.image_size=4")
    with pytest.raises(ConfigError, match="4 x 4, BatchNorm in model=resnet20 has one value.*type batch_per_node=2"):
        loop.run(one)
    assert not one.folder.exists()
    assert loop.run(config(tmp_path, *QUICK, *tiny, "data.image_size=8"))["state"] == "done"


def test_a_gradient_that_is_not_finite_stops_the_run_and_names_step_and_rank(tmp_path, capsys):
    wild = config(tmp_path, *QUICK, "algo=gtopk", "nodes=2", "steps=20", "lr=1e30")
    with pytest.raises(RunError, match=r"step \d+: the gradient of rank [01] is not finite.*on_nonfinite=skip"):
        loop.run(wild)
    status = json.loads((wild.folder / "status.json").read_text())
    assert status["state"] == "failed" and "is not finite" in status["error"]
    skipping = config(tmp_path, *QUICK, "algo=gtopk", "nodes=2", "steps=4", "lr=1e30", "on_nonfinite=skip")
    assert loop.run(skipping)["state"] == "done"
    lines = [line for line in run_folder.read_metrics(skipping.folder) if line["kind"] == "step"]
    kept = next(number for number, line in enumerate(lines) if line.get("skipped"))
    assert 0 < kept < 3 and all(line.get("skipped") for line in lines[kept:]), "as its weights are not finite"
    said = f"{4 - kept} of 4 steps changed nothing, as a gradient was not finite, the last {4 - kept} among them: the w"
    assert f"warning: {said}" in capsys.readouterr().err, "it ended as done without a word"


def test_a_run_told_to_stop_while_it_evaluates_stops_at_once_and_goes_on(tmp_path, monkeypatch):
    """It made ten more steps first, for which the time limit may leave no time."""
    run, evaluate, told = config(tmp_path, *QUICK, "algo=gtopk", "nodes=2", "epochs=2"), evaluation.evaluate, []

    def evaluated(worker, advance):
        told.append(worker.rank.interrupt)
        return evaluate(worker, advance)

    monkeypatch.setattr(evaluation, "evaluate", evaluated)
    monkeypatch.setattr(preempt.Interrupt, "is_set", lambda self: self in told)
    assert loop.run(run)["state"] == "preempted"
    status = json.loads((run.folder / "status.json").read_text())
    assert status["step"] * 2 == status["steps"]
    monkeypatch.undo()
    assert loop.run(run)["state"] == "done"
    lines = run_folder.read_metrics(run.folder)
    assert [line["epoch"] for line in lines if line["kind"] == "eval"] == [1, 2]


def test_a_run_told_to_stop_while_it_is_rehearsed_is_not_failed(tmp_path):
    """It was, by a "KeyboardInterrupt", although it was asked to stop and go on later."""
    run, interrupt = config(tmp_path, *QUICK, "algo=dense", "nodes=2", "steps=1"), preempt.Interrupt()

    def rehearse(config, rank, data):
        interrupt.set()
        common_start.from_common_start(lambda: None, rank, 1)
        pytest.fail("it went on")

    assert loop.run(run, rehearse, interrupt)["state"] == "preempted"
    status = json.loads((run.folder / "status.json").read_text())
    assert (status["step"], status["error"]) == (0, None)
    assert loop.run(run, before_a_run)["state"] == "done"


def test_on_another_device_a_run_goes_on_with_draws_that_it_has_not_had(tmp_path, monkeypatch):
    """Dropout left out once more what it had in the first steps. A CPU stands for the other device here."""
    evaluate = evaluation.evaluate
    run, begins = config(tmp_path, *QUICK, "algo=dense", "nodes=2", "epochs=2"), {}

    def evaluated(worker, advance):
        begins.setdefault(worker.rank.number, []).append(worker.generator.initial_seed())
        return evaluate(worker, advance)

    monkeypatch.setattr(evaluation, "evaluate", evaluated)
    with monkeypatch.context() as told:
        told.setattr(preempt.Interrupt, "is_set", lambda self: bool(begins))
        assert loop.run(run)["state"] == "preempted"
    step = json.loads((run.folder / "status.json").read_text())["step"]
    monkeypatch.setattr(saved_state, "GENERATORS", {torch.Generator().get_state().numel()})
    assert loop.run(run)["state"] == "done"
    for rank, (first, second) in begins.items():
        assert first == derive(run.seed, rank, "dropout")
        assert second == derive(run.seed, rank, "dropout", step)


def test_a_step_that_is_skipped_leaves_nothing_behind(tmp_path, monkeypatch):
    """One batch of one rank left 38 of 38 statistics that were not finite, and no loss after it was."""
    compute = Worker._backward

    def backward(worker, batches):
        if worker.rank.number == 1 and worker.step == 2:
            batches = [(images * torch.inf, labels) for images, labels in batches]
        return compute(worker, batches)

    monkeypatch.setattr(Worker, "_backward", backward)
    run = config(tmp_path, *QUICK, "algo=gtopk", "nodes=2", "steps=4", "accumulate=2", "on_nonfinite=skip")
    loop.run(run)
    lines = list(run_folder.read_metrics(run.folder))
    losses = [line["loss"] for line in lines if line["kind"] == "step" and not line.get("skipped")]
    (last,) = (line for line in lines if line["kind"] == "eval")
    assert len(losses) == 3 and last["train_loss"] is not None and last["test_loss"] is not None
    for rank in range(2):
        assert all(torch.isfinite(x).all() for x in bits(run.folder)[f"rank-{rank:05d}.pt"]["statistics"])


@pytest.mark.parametrize(
    "algo",
    ["dense", "gtopk_corrected", "gtopk algo.correction=0.9 momentum=0", "dgc algo.selector=exact density_warmup=[]"],
)
def test_weights_decay_as_fast_wherever_momentum_comes(algo, tmp_path, monkeypatch):
    """DGC's momentum comes before its selection, as a correction does, or a gain comes in its place: the decay must
    make up for all of them."""
    norms = []

    def nothing(worker, batches):
        worker.replica.gradient.zero_()
        norms.append(worker.replica.parameters.detach().double().norm().item())
        return 0.0

    monkeypatch.setattr(Worker, "_backward", nothing)
    long = ["data.train_images=800", "lr=0.1", "weight_decay=1e-4", "evaluate_every=9"]
    loop.run(config(tmp_path, *QUICK, *f"algo={algo}".split(), "nodes=1", "steps=70", *long))
    a_step = 1 - (norms[-1] / norms[-21]) ** (1 / 20)  # after fifty momentum has come to its end
    assert a_step == pytest.approx(0.1 * 1e-4 / (1 - 0.9), rel=0.02)


def test_biases_decay_unless_weights_alone_are_to(tmp_path, monkeypatch):
    def nothing(worker, batches):
        worker.replica.gradient.zero_()
        return 0.0

    monkeypatch.setattr(Worker, "_backward", nothing)
    ends = {}
    for of in ("all", "weights"):
        keys = ["algo=dense", "nodes=1", "steps=2", "lr=0.1", "weight_decay=0.1", f"weight_decay_of={of}"]
        loop.run(run := config(tmp_path, *QUICK, *keys))
        ends[of] = bits(run.folder)["shared.pt"]["parameters"]
    network = models.load("resnet20", 10, 8, 0, torch.Generator())
    begun = torch.cat([layer.detach().reshape(-1) for layer in network.parameters()])
    vectors = torch.cat([torch.full_like(layer.reshape(-1), layer.dim() == 1) for layer in network.parameters()]).bool()
    assert torch.equal(ends["weights"][vectors], begun[vectors])
    assert torch.allclose(ends["weights"][~vectors], ends["all"][~vectors])
    assert (ends["all"][vectors] != begun[vectors]).any() and (ends["all"][~vectors] != begun[~vectors]).any()


def test_each_phase_has_its_label_and_its_own_bar(tmp_path, monkeypatch):
    """The bar stood at 0/? while a rank was timed, and at 100 % while it evaluated."""
    seen = []

    class Seen(progress.Lines):
        def phase(self, name, total=None, unit="", done=0):
            seen.append((name, total, unit, done))

        def advance(self):
            seen.append("one")

        def log(self, line):
            if line["kind"] == "eval" or line.get("step") == 2:
                seen.append(line["kind"])

    monkeypatch.setattr(progress, "show", Seen)
    run = config(tmp_path, *QUICK, "algo=gtopk", "nodes=2", "steps=2", "data.test_images=600")
    loop.run(run, before_a_run)
    assert [mark[0] if isinstance(mark, tuple) else mark for mark in seen] == [
        "starting", "timing one rank", "starting", "training", "step", "evaluating", "one", "one", "eval", "saving",
        "training", "finishing",
    ]  # fmt: skip
    assert seen[3] == ("training", 2, "steps", 0) and ("evaluating", 2, "batches", 0) in seen


def test_an_iteration_is_modelled_on_further_networks_too(tmp_path):
    choices = ("algo=dense", "nodes=2", "steps=1", *QUICK)
    run = config(tmp_path, *choices, "also_on=[ethernet10g,infiniband100g]")
    assert run.run_id == config(tmp_path, *choices).run_id
    found = loop.run(run, before_a_run)
    lines = [line for line in run_folder.read_metrics(run.folder) if line["kind"] == "iteration_time"]
    assert [line["network"] for line in lines] == ["ethernet1g", "ethernet10g", "infiniband100g"]
    for line in lines:
        wire = named_network(line["network"])
        halves = 2 * (wire.alpha_s + 269_722 / 2 * 4 * wire.beta_s_per_byte)
        assert line["communicate_s"] == pytest.approx(halves)
    assert found["communicate_s"] == lines[0]["communicate_s"]


def test_the_measured_iteration_is_one_of_the_density_that_the_run_ends_with(tmp_path, monkeypatch):
    """Most steps of a short run are in its density warm-up: their median is no time of what follows it."""

    def stepped(worker, step, batches, lr, density):
        done = train_step(worker, step, batches, lr, density)
        return dataclasses.replace(done, time=IterationTime(1.0, density, 2.0))

    monkeypatch.setattr(socket, "gethostname", lambda: threading.current_thread().name)  # a machine for each rank
    monkeypatch.setattr(training, "train_step", stepped)
    run = config(tmp_path, *QUICK, "algo=gtopk", "nodes=2", "steps=12", "density_warmup=[0.25]")  # 8 steps an epoch
    loop.run(run)
    (line,) = (line for line in run_folder.read_metrics(run.folder) if line["kind"] == "iteration_time")
    assert (line["source"], line["compress_s"]) == ("measured", run.density)


@pytest.mark.parametrize("algo, inside", [("ddp", "DistributedDataParallel's backward"), ("dense", None)])
def test_a_rank_that_may_wait_inside_backward_is_seen_there(algo, inside, tmp_path, monkeypatch):
    """One that hung beside DDP's ranks was not found, as nobody was seen to wait for it."""
    compute, seen = Worker._backward, set()

    def backward(worker, batches):
        seen.add(worker.rank.position()[0])
        return compute(worker, batches)

    monkeypatch.setattr(Worker, "_backward", backward)
    loop.run(config(tmp_path, *QUICK, f"algo={algo}", "nodes=2", "steps=2"))
    assert seen == {inside}


def test_samples_per_second_leave_out_what_saving_takes(tmp_path, monkeypatch):
    """Whatever the machine's speed: the epoch's seconds and the saving's do not overlap."""
    save, evaluate, times = checkpoint.save, evaluation.evaluate, []

    def evaluated(*arguments):
        times.append(time.perf_counter())
        found = evaluate(*arguments)
        times.append(time.perf_counter())
        return found

    monkeypatch.setattr(checkpoint, "save", lambda *arguments: time.sleep(0.3) or save(*arguments))
    monkeypatch.setattr(evaluation, "evaluate", evaluated)
    run = config(tmp_path, *QUICK, "nodes=1", "algo=dense", "epochs=2")
    loop.run(run)
    _, second = (line for line in run_folder.read_metrics(run.folder) if line["kind"] == "eval")
    between = times[2] - times[1]  # the first evaluation's end, its checkpoint, the second epoch
    assert 64 / second["samples_per_s"] + 0.3 <= between


def test_a_slow_upload_to_wandb_is_no_rank_that_hangs(tmp_path, monkeypatch):
    """Rank 0 uploads when the run is done, while the others wait for it at their last barrier."""
    monkeypatch.setattr(watchdog, "BEAT_S", 0.2)
    monkeypatch.setattr(watchdog, "STUCK_S", 0.3)
    monkeypatch.setattr(stalls, "STILL_BEATS", 2)
    monkeypatch.setattr(Mirror, "finish", lambda *_, **__: time.sleep(3))
    summary = loop.run(config(tmp_path, *QUICK, "nodes=2", "steps=1"))
    assert summary["state"] == "done"


def test_what_a_message_hides_is_no_compression_less(tmp_path, monkeypatch):
    """Seconds of communication beside backward are not in those of the algorithm, nor taken from them."""
    times = []

    def stepped(worker, step, batches, lr, density):
        real = worker.algorithm.step

        def beside(gradient, collective):
            collective.seconds += 5.0
            collective.hidden_s += 5.0
            return real(gradient, collective)

        worker.algorithm.step = beside
        done = train_step(worker, step, batches, lr, density)
        worker.algorithm.step = real
        times.append(done.time)
        return done

    monkeypatch.setattr(training, "train_step", stepped)
    loop.run(config(tmp_path, *QUICK, "algo=gtopk", "nodes=2", "steps=2"))
    assert len(times) == 4
    assert all(time.hidden_s == 5 <= time.communicate_s and -1 < time.compress_s < 4 for time in times)
