"""Predicted pipelines: the closed form, and the messages that torch's schedule sends."""

import pytest
import torch
from thread_ranks import on_ranks

from repro.comm.traffic import Link, Round
from repro.timing import pipelined
from repro.train.split import Block

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
