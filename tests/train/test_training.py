"""Ranks of one training: threads in turn, messages in memory, and the same bits on all."""

import json
import os
import threading
import time
import weakref
from types import SimpleNamespace

import pytest
from tiny_runs import QUICK, bits, config, equal

from repro.cluster import ranks
from repro.config.schema import RunError
from repro.runs import run_folder
from repro.timing.before_run import before_a_run
from repro.train import loop, schedule
from repro.train.replica import Replica
from repro.train.step import Worker
from repro.train.training import Training


def test_threads_take_turns_to_compute_and_hold_one_replica_each(tmp_path, monkeypatch):
    cores, computing, replicas, alive = len(os.sched_getaffinity(0)), set(), weakref.WeakSet(), []
    most, micro_batches = [], []
    compute, made = Worker._backward, Replica.__init__

    def backward(worker, batches):
        computing.add(worker.rank.number)
        most.append(len(computing))
        micro_batches.append(len(batches))
        loss = compute(worker, batches)
        computing.remove(worker.rank.number)
        return loss

    def init(replica, *arguments):
        made(replica, *arguments)
        replicas.add(replica)
        alive.append(len(replicas))

    monkeypatch.setattr(Worker, "_backward", backward)
    monkeypatch.setattr(Replica, "__init__", init)
    size = 2 * cores + 1
    loop.run(config(tmp_path, *QUICK, "algo=gtopk", f"nodes={size}", "steps=3", "accumulate=2"), before_a_run)
    assert max(most) <= cores
    # for what is recorded one micro-batch is enough; what is timed is a whole step, on rank 0 alone
    assert micro_batches.count(1) == size and micro_batches.count(2) > 3 * size
    assert len(alive) == 2 * size and max(alive) <= size


def each_on_its_own_machine(run, rank, data):
    rank.own_machine = True
    return loop.train(run, rank, data)


def test_a_node_that_waits_to_agree_on_a_step_communicates(tmp_path, monkeypatch):
    """With on_nonfinite=skip all ranks ask each other first: the wait for a slow one was told as computing."""
    backward = Worker._backward

    def slow(worker, batches):
        time.sleep(0.5 * worker.rank.number)
        return backward(worker, batches)

    monkeypatch.setattr(Worker, "_backward", slow)
    run = config(tmp_path, *QUICK, "algo=dense", "nodes=2", "steps=3", "on_nonfinite=skip", "threads=1")
    ranks.launch(run, each_on_its_own_machine, loop.load_data)
    steps = [line for line in run_folder.read_metrics(run.folder) if line["kind"] == "step"]
    # of the least disturbed steps: wrongly booked, each computed for half a second and waited for none
    assert max(line["communicate_s"] for line in steps) > 0.3 > min(line["compute_s"] for line in steps)
    assert min(abs(line["compress_s"]) for line in steps) < 0.1


def test_what_ddp_sends_inside_backward_is_not_told_as_computing(tmp_path):
    run = config(tmp_path, *QUICK, "algo=ddp", "nodes=2", "steps=4")
    ranks.launch(run, each_on_its_own_machine, loop.load_data)
    lines = run_folder.read_metrics(run.folder)
    assert [line["compute_s"] for line in lines if line["kind"] == "step"] == [None] * 4
    assert not [line for line in lines if line.get("source") == "measured"]


@pytest.mark.parametrize("algo", ["dense", "gtopk", "oktopk", "decentralized"])
def test_messages_in_memory_train_to_the_bit_as_gloos_do(algo, tmp_path, monkeypatch):
    """Their bytes are counted alike, so that the records are the same too, but for seconds."""
    found = {}
    for messages in ("gloo", "memory"):
        asked = [f"algo={algo}", "nodes=3", "steps=4", f"cluster.messages={messages}"]
        run = config(tmp_path / messages, *QUICK, *asked)
        if messages == "memory":
            monkeypatch.setattr(ranks, "_join", None)
        assert loop.run(run)["state"] == "done"
        steps = [line for line in run_folder.read_metrics(run.folder) if line["kind"] == "step"]
        counted = [[line[name] for name in ("loss", "bytes_sent", "messages")] for line in steps]
        found[messages] = run.run_id, bits(run.folder), counted
    assert len(counted) == 4 and equal(found["gloo"], found["memory"])


def test_a_rank_whose_parameters_have_other_bits_ends_the_run_by_name(tmp_path, monkeypatch):
    update = Replica.apply

    def one_bit_off(replica, *arguments):
        update(replica, *arguments)
        if threading.current_thread().name == "rank-3":
            replica.parameters.data[0] += 1

    monkeypatch.setattr(Replica, "apply", one_bit_off)
    words = [*QUICK, "nodes=4", "steps=3", "compare_every=2", "algo=dense"]
    with pytest.raises(RunError, match="after step 2 the parameters of rank 3 differ from those of rank 0"):
        loop.run(config(tmp_path, *words))


def test_ranks_are_compared_with_those_of_their_stage(tmp_path):
    one = object.__new__(Training)
    one.config = config(tmp_path, "nodes=6", "stages=2")
    one.worker = SimpleNamespace(algorithm=SimpleNamespace(mixes=False), replica=SimpleNamespace(digest=lambda: ""))
    told = ["first", "second"] * 3
    one.rank = SimpleNamespace(control=SimpleNamespace(gather_objects=lambda digest: told))
    one.compare(10)
    told[3] = told[5] = "another"
    with pytest.raises(RunError, match="after step 10 the parameters of rank 3, 5 differ from those of rank 1"):
        one.compare(10)


def test_an_error_that_nobody_foresaw_leaves_its_traceback_in_the_run_folder(tmp_path, monkeypatch):
    run, backward = config(tmp_path, *QUICK, "algo=topk", "nodes=2", "steps=2"), Worker._backward

    def broken(worker, batches):
        return 1 / 0 if worker.rank.number == 1 else backward(worker, batches)

    monkeypatch.setattr(Worker, "_backward", broken)
    with pytest.raises(RunError, match="rank 1: ZeroDivisionError: division by zero .traceback in .*error-rank-1.txt"):
        loop.run(run)
    text = (run.folder / "error-rank-1.txt").read_text()
    assert text.startswith("Traceback") and "in broken" in text and not (run.folder / "error-rank-0.txt").exists()
    status = json.loads((run.folder / "status.json").read_text())
    assert status["state"] == "failed" and "error-rank-1.txt" in status["error"]


def test_steps_are_taken_at_the_rate_of_the_schedule(tmp_path):
    warm = ["lr_warmup_epochs=1", "schedule_epochs=3", "lr_drops=[2]", "epochs=3"]
    run = config(tmp_path, *QUICK, "algo=dense", "nodes=2", *warm)
    loop.run(run)
    rates = [line["lr"] for line in run_folder.read_metrics(run.folder) if line["kind"] == "step"]
    assert rates == [schedule.learning_rate(step / 8, run) for step in range(24)] and len(set(rates)) > 8


def test_samples_per_second_are_those_of_all_nodes_over_the_seconds_of_their_steps(tmp_path, monkeypatch):
    begin = Training.begin_clock

    def began(training):
        begin(training)
        training.began = 0.0

    monkeypatch.setattr(Training, "begin_clock", began)
    stopped = SimpleNamespace(perf_counter=lambda: 4.0, monotonic=time.monotonic)
    monkeypatch.setattr("repro.train.training.time", stopped)
    run = config(tmp_path, *QUICK, "algo=dense", "nodes=2", "epochs=1", "accumulate=2")
    loop.run(run)
    rates = [line["samples_per_s"] for line in run_folder.read_metrics(run.folder) if line["kind"] == "eval"]
    assert rates == [64 / 4.0]
