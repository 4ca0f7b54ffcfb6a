"""Predicted pipelines: the closed form, and the messages that torch's schedule sends."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from thread_ranks import on_ranks
from typer.testing import CliRunner

from repro import cli, models
from repro.comm import replay
from repro.comm.traffic import Link, Round
from repro.config.compose import compose
from repro.config.schema import Config, ConfigError
from repro.timing import pipelined, strategies
from repro.train import combinations
from repro.train.split import Block, Split

WIRE = Link(1e-3, 1e-6)
FREE = Link(0.0, 0.0)


def parts(*seconds: float, entries: int = 1000) -> list[list[Block]]:
    return [[Block(one, 2 * one, 10, [1, entries], "float32", 0)] for one in seconds]


@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 1), (1, 3), (2, 2), (3, 7), (4, 4), (4, 16)])
def test_equal_stages_take_the_closed_form(stages, micro_batches):
    ends = pipelined.finish(pipelined.programs(parts(*[0.5] * stages), micro_batches), FREE)
    assert max(ends) == pytest.approx((micro_batches + stages - 1) * 1.5)


def test_the_slowest_stage_sets_the_pace():
    for micro_batches in (3, 30):
        ends = pipelined.finish(pipelined.programs(parts(0.1, 0.5, 0.1), micro_batches), FREE)
        assert micro_batches * 1.5 < max(ends) <= micro_batches * 1.5 + 4 * 0.3


def test_messages_take_their_time_on_the_wire():
    """Two stages, two micro-batches: forward, message, forward and backward, exchange, ..., message, backward."""
    ends = pipelined.finish(pipelined.programs(parts(0.5, 0.5), 2), WIRE)
    message = 1e-3 + 4000e-6
    assert max(ends) == pytest.approx((2 + 2 - 1) * 1.5 + 3 * message)


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 2), (2, 5), (3, 3), (4, 9)])
def test_each_message_has_its_other_end_and_none_is_forgotten(stages, micro_batches):
    own = pipelined.programs(parts(*[0.1] * stages), micro_batches)
    for stage, program in enumerate(own):
        ends = (stage > 0) + (stage < stages - 1)
        assert pipelined.sent(program) == micro_batches * ends * 4000
        rounds = [step for step in program if isinstance(step, Round)]
        assert sum(one.received for one in rounds) == micro_batches * ends * 4000
        assert pipelined.worked(program) == pytest.approx(micro_batches * 0.3)


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 4), (3, 5)])
def test_real_ranks_that_follow_the_programs_never_wait_in_vain(stages, micro_batches):
    own = pipelined.programs(parts(*[0.0] * stages, entries=7), micro_batches)

    def body(collective):
        for step in own[collective.rank]:
            if isinstance(step, Round):
                peer = step.source if step.to is None else step.to
                out, like = (torch.zeros(size, dtype=torch.uint8) for size in (step.sent, step.received))
                collective.shift(out, peer, peer, like)
        return collective.traffic.rounds

    for program, rounds in zip(own, on_ranks(stages, body, "gloo"), strict=True):
        assert [step for step in program if isinstance(step, Round)] == rounds


def test_stages_that_do_not_fit_each_other_are_reported():
    with pytest.raises(ValueError, match="wait for each other"):
        pipelined.finish([[Round(1, 4, None, 0)], [1.0]], FREE)


def test_memory_is_of_the_micro_batches_under_way():
    blocks = [[Block(0, 0, 10, [1], "float32", 100)], [Block(0, 0, 1, [1], "float32", 100)]]
    assert pipelined.memory(blocks, 8) == 4 * 4 * 10 + 2 * 100
    assert pipelined.memory([[*blocks[0], *blocks[1]]], 1) == 4 * 4 * 11 + 200


def pipeline(*words: str) -> pipelined.Pipelined:
    (config,) = compose(["model=resnet20", "nodes=8", "stages=2", "accumulate=2", "cluster=processes", *words])
    parameters = [sum(layer.numel() for layer in part.parameters()) for part in blocks_of(config)]
    blocks = [Block(0.1, 0.2, size, [1, 1000], "float32", 0) for size in parameters]
    return pipelined.iteration(config, Split(blocks, [5]), 0.0)


def blocks_of(config: Config) -> Sequence[torch.nn.Module]:
    return models.blocks(config.model.name, models.sized_only(config))


def test_averages_of_weights_are_sent_once_in_a_period_and_hide_in_the_background():
    """An iteration had those of a whole period."""
    dense, local, behind = (pipeline(*words) for words in (
        ["algo=dense"], ["algo=local_sgd", "algo.period=8"], ["algo=async_average", "algo.period=8", "algo.delay=7"]
    ))  # fmt: skip
    sent_s = max(replay.seconds(rounds, *WIRE) for rounds in dense.rounds)
    of_a_second: list[pipelined.Program] = [[1.0], [1.0]]  # in place of messages between the stages
    times = [dataclasses.replace(one, programs=of_a_second).parts(WIRE).total - 1 for one in (dense, local, behind)]
    assert times == [pytest.approx(sent_s), pytest.approx(sent_s / 8), pytest.approx(max(0.0, sent_s - 7) / 8)]
    between = dataclasses.replace(dense, rounds=[[[]], [[]]]).bytes_most()
    assert local.bytes_most() - between < (dense.bytes_most() - between) / 4
    with pytest.raises(ConfigError, match="^stages=2: algo=local_sgd does not send in every iteration"):
        combinations.check(
            compose(["nodes=4", "stages=2", "algo=local_sgd", "node=paper", "cluster=lab", "model=resnet20"])[0]
        )


def test_a_stages_messages_are_of_its_own_layers_and_buckets():
    """Of one matrix for a whole stage PowerSGD would send a tenth; buckets were one message."""
    layers, whole = pipeline("algo=powersgd"), pipeline("algo=dense")
    assert sum(max(map(pipelined.sent, rounds)) for rounds in layers.rounds) > 20_000
    bucketed = pipeline("algo=dense", "bucket_mb=0.2")
    turns = [[sum(one.repeat for one in rounds[0]) for rounds in each.rounds] for each in (whole, bucketed)]
    assert turns[1][1] > turns[0][1] and sum(map(pipelined.sent, whole.rounds[1])) == pytest.approx(
        sum(map(pipelined.sent, bucketed.rounds[1])), rel=1e-3
    )


@pytest.mark.parametrize("nodes", [2, 3, 6])
def test_strategies_predicts_any_number_of_nodes(nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two nodes it said that stages=4 is too many, and that stages must not be typed."""
    asked: list[Any] = []
    monkeypatch.setattr(strategies, "run", lambda configs, say, out: asked.extend(configs))
    done = CliRunner().invoke(cli.app, ["strategies", f"nodes={nodes}", "model=resnet20"])
    assert done.exit_code == 0, done.output
    assert {(config.model.name, config.nodes, config.stages) for config in asked} == {("resnet20", nodes, 1)}
