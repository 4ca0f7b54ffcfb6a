"""The iteration that is modelled before a run, of algorithms that do not send alike in each step, and of stages."""

from types import SimpleNamespace

import pytest
import torch
from tiny_runs import QUICK, config

from repro.comm.replay import seconds
from repro.config.compose import named_network
from repro.runs import run_folder
from repro.timing import before_run, dry_run
from repro.timing.before_run import before_a_run
from repro.timing.one_rank import Calibration
from repro.train import loop

M = 269_722  # parameters of ResNet-20


def modelled(folder, *words: str) -> dict[str, float]:
    run = config(folder, *QUICK, "nodes=2", "steps=1", *words)
    loop.run(run, before_a_run)
    (line,) = [line for line in run_folder.read_metrics(run.folder) if line["kind"] == "iteration_time"]
    return line


def test_what_is_sent_every_few_steps_takes_its_share_of_one(tmp_path) -> None:
    wire = named_network("ethernet1g")
    whole = 2 * (wire.alpha_s + M / 2 * 4 * wire.beta_s_per_byte)
    assert modelled(tmp_path, "algo=local_sgd", "algo.period=4")["communicate_s"] == pytest.approx(whole / 4)
    hidden = Calibration(1.0, 0.0, [], 4, 2, [], []).iteration(10.0).hidden_s
    assert hidden == 0.5, "two steps of the four may cover a message, of which a fourth is of each step"


def test_a_warm_up_of_dense_steps_is_not_what_is_modelled(tmp_path) -> None:
    wire, line = named_network("ethernet1g"), modelled(tmp_path, "algo=qadam", "algo.warmup_steps=1000")
    run = config(tmp_path, "algo=qadam", "nodes=2")
    rounds = dry_run.all_rounds(run.algo, 2, M, M)
    assert line["communicate_s"] == pytest.approx(seconds(rounds, wire.alpha_s, wire.beta_s_per_byte), rel=0.01)
    assert line["communicate_s"] < 0.2 * 2 * (wire.alpha_s + M / 2 * 4 * wire.beta_s_per_byte)


def test_stages_are_modelled_on_each_network_before_they_train(tmp_path) -> None:
    words = ["nodes=4", "stages=2", "cluster=processes", "algo=gtopk", "also_on=[ethernet100m]"]
    run = config(tmp_path, *QUICK, *words)
    run.folder.mkdir(parents=True)
    control = SimpleNamespace(gather_objects=lambda item: 4 * [item])
    rank = SimpleNamespace(number=0, size=4, device=torch.device("cpu"), control=control, machines=4 * ["one"])
    usual, slow = before_run.of_stages(run, rank)
    assert (usual["network"], slow["network"], usual["source"]) == ("ethernet1g", "ethernet100m", "modelled")
    assert slow["compute_s"] > 0 and slow["communicate_s"] > usual["communicate_s"] > 0
    rank.number = 1
    assert before_run.of_stages(run, rank) == []
