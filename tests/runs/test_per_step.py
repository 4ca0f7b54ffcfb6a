"""What a run says of its bytes: the usual step, the range where sizes depend on values, the busiest rank."""

import pytest
from thread_ranks import on_ranks
from tiny_runs import QUICK, config

from repro.comm.traffic import Traffic
from repro.report.from_run_folders import collect
from repro.report.group import Group
from repro.runs import per_step, run_folder
from repro.train import loop
from repro.train.sent import Sent


def step(number: int, sent: int, density: float = 0.01, **more) -> dict:
    return {"kind": "step", "step": number, "bytes_sent": sent, "density": density, **more}


def test_of_steps_that_depend_on_values_the_mean_and_range_of_the_last_density_count():
    lines = [step(n, sent, varies=True) for n, sent in enumerate([100, 400, 100])]
    lines.insert(0, step(0, 9000, density=0.1, varies=True))
    lines.insert(2, step(0, 0, varies=True, skipped=True))
    assert per_step.usual(lines, "bytes_sent") == 200
    assert per_step.between(lines, "bytes_sent") == (100, 400)


def test_of_other_steps_the_last_or_its_period_counts():
    lines = [step(1, 800), step(2, 100), step(3, 100)]
    assert per_step.usual(lines, "bytes_sent") == 100 and per_step.between(lines, "bytes_sent") is None
    assert per_step.usual([step(1, 7), step(2, 0, period=2), step(3, 100, period=2)], "bytes_sent") == 50
    assert per_step.usual([], "bytes_sent") is None and per_step.counted([]) == {}


def test_what_ranks_sent_is_of_the_steps_that_rank_0s_is_of():
    """The last evaluation was of steps of two densities, or of a part of those whose mean rank 0 has."""
    lines = [step(n, 500, varies=True) for n in range(1, 9)]
    lines[0]["density"] = 0.1
    for at, mean, worst in ((8, 700, 900), (5, 300, 400), (1, 9000, 9000)):
        lines.insert(at, {"kind": "eval", "step": at, "bytes_sent_mean_rank": mean, "bytes_sent_worst_rank": worst})
    counted = per_step.counted(lines)
    assert counted["bytes_sent_mean_rank"] == pytest.approx((4 * 300 + 3 * 700) / 7)
    assert counted["bytes_sent_worst_rank"] == pytest.approx((4 * 400 + 3 * 900) / 7)
    alike = [{**line, "varies": False} for line in lines]
    assert per_step.counted(alike)["bytes_sent_mean_rank"] == 700
    sent, one = Sent(), on_ranks(1, lambda collective: collective)[0]
    for density, size in ((0.1, 9000), (0.01, 500), (0.01, 500)):
        sent.add(Traffic(bytes_sent=size), density)
    assert sent.over_ranks(one)["bytes_sent_mean_rank"] == 500


@pytest.mark.parametrize(("algo", "varies"), {"oktopk": True, "gtopk": False}.items())
def test_a_run_tells_the_mean_the_range_and_the_busiest_rank(algo, varies, tmp_path):
    run = config(tmp_path, *QUICK, f"algo={algo}", "nodes=4", "steps=6", "density=0.01", "density_warmup=[]")
    loop.run(run)
    lines = run_folder.read_metrics(run.folder)
    sent = [line["bytes_sent"] for line in lines if line["kind"] == "step"]
    assert run_folder.summary(run.folder)["bytes_sent_per_step"] == pytest.approx(sum(sent) / len(sent))
    assert (len(set(sent)) > 1) == varies
    ((_, summary),) = collect(tmp_path)[0].items()
    (group,) = [Group(**group) for group in summary["groups"]]
    counted = group.per_step
    assert counted["bytes_sent_worst_rank"] >= counted["bytes_sent_mean_rank"] > 0
    assert ("bytes_sent_least" in counted) == varies
    if varies:
        assert (counted["bytes_sent_least"], counted["bytes_sent_most"]) == (min(sent), max(sent))
    else:  # rank 0 of the tree sends two messages, rank 2 one up and one down, the others one
        message = 8 * counted["k"]
        assert counted["bytes_sent_worst_rank"] == 2 * message
        assert counted["bytes_sent_mean_rank"] == pytest.approx(1.5 * message)
        assert group.socket_bytes == 2 * message + 2 * 144
