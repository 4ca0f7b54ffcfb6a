"""The measured iteration is that of all sessions on one kind of machine, however short the last one was."""

import json
import socket
import threading
from typing import Any

import pytest
from tiny_runs import QUICK, config

from repro.runs import run_folder, status_file
from repro.train import loop, measured

HERE, ELSEWHERE = {"cpu": "this one"}, {"cpu": "another"}


def step(number: int, seconds: float | None, **more: Any) -> dict[str, Any]:
    times = dict.fromkeys(("compute_s", "compress_s", "communicate_s", "hidden_s"), seconds)
    return {"kind": "step", "step": number, "density": 0.01, **times, **more}


def compute(lines: list[dict[str, Any]], *sessions: dict[str, Any], period: int = 1) -> float | None:
    found = measured.iteration(lines, sessions, HERE, period)
    return None if found is None else found.compute_s


def test_each_session_warms_up_for_two_steps() -> None:
    lines = [*(step(number, float(number)) for number in range(1, 6)), step(6, 99.0)]
    first = {"resumed_at": 0} | HERE
    assert compute(lines, first) == 4.5
    assert compute(lines, first, {"resumed_at": 5} | HERE) == 4.0
    assert compute(lines, first, {"resumed_at": 2} | HERE) == 52.0
    assert compute(lines, first, {"resumed_at": 5} | HERE, {"resumed_at": 2} | HERE, period=2) == 52.0
    assert compute(lines[:2], first) is None


def test_the_measured_iteration_is_a_steps_where_who_computes_long_waits_less() -> None:
    """The sum of the parts' medians was 1.1 s, which is half of what a step took."""
    kinds = [(1.0, 0.1), (1.0, 1.1), (2.0, 0.1)]
    lines = [
        step(number, 0.0, compute_s=kinds[number % 3][0], communicate_s=kinds[number % 3][1]) for number in range(60)
    ]
    found = measured.iteration(lines, [{"resumed_at": 0} | HERE], HERE, 1)
    assert found is not None and found.total == pytest.approx(2.1)


def test_an_algorithm_of_a_period_has_the_mean_of_whole_periods() -> None:
    lines = [step(number, 9.0 if number % 4 == 0 else 1.0) for number in range(1, 11)]
    assert compute(lines, {"resumed_at": 0} | HERE, period=4) == 3.0, "of steps 3 to 10 two communicate"
    assert compute(lines[:9], {"resumed_at": 0} | HERE, period=4) == 3.0, "steps 3 to 9 hold one period more than once"
    assert compute(lines[:5], {"resumed_at": 0} | HERE, period=4) == pytest.approx(11 / 3), "less than a period"
    lines = [step(number, 9.0 if number % 4 == 0 else 1.0) for number in range(1, 21)]
    sessions = {"resumed_at": 0} | HERE, {"resumed_at": 9} | HERE
    assert compute(lines, *sessions, period=4) == 3.0, "of each session, not of what all of them have together"


def test_only_steps_of_the_machine_that_timed_the_run_count() -> None:
    lines = [step(number, float(number)) for number in range(1, 9)]
    assert compute(lines, {"resumed_at": 0} | HERE, {"resumed_at": 4} | ELSEWHERE) == 3.5
    assert compute(lines, {"resumed_at": 0} | ELSEWHERE) is None
    old = {"host": "a", "device": "cpu"}  # which did not say where it began
    assert compute(lines, old, {"resumed_at": 4} | HERE) == 7.5


def test_skipped_steps_other_densities_and_unknown_seconds_do_not_count() -> None:
    odd = [step(3, 3.0, density=0.5), step(4, 4.0, skipped=True), step(5, None)]
    assert compute([*odd, step(6, 6.0)], {"resumed_at": 0} | HERE) == 6.0


def test_a_run_stopped_near_its_end_has_its_measured_iteration_once(tmp_path, monkeypatch) -> None:
    """It had none, as the last session's steps all warmed up."""
    monkeypatch.setattr(socket, "gethostname", lambda: threading.current_thread().name)  # a machine for each rank
    run = config(tmp_path, *QUICK, "algo=gtopk", "nodes=2", "steps=6", "checkpoint_every=1", "density_warmup=[]")

    def measured_lines() -> list[dict[str, Any]]:
        lines = run_folder.read_metrics(run.folder)
        steps = sorted(line["compute_s"] for line in lines if line["kind"] == "step" and line["step"] > 2)
        found = [line for line in lines if line["kind"] == "iteration_time"]
        assert steps[0] <= found[0]["compute_s"] <= steps[-1]
        return found

    loop.run(run)
    (whole,) = measured_lines()
    status_file.write(run.folder, "running", 6, 6)  # as if killed before it could say that it is done
    loop.run(run)
    assert measured_lines() == [whole]

    (run.folder / "checkpoints" / "step-000000006" / "manifest.json").unlink()  # as if killed before the last step
    file = run.folder / "metrics.jsonl"
    lines = [line for line in file.read_bytes().splitlines(keepends=True) if b"iteration_time" not in line]
    file.write_bytes(b"".join(lines))
    status_file.write(run.folder, "running", 5, 6)
    loop.run(run)
    (again,) = measured_lines()
    assert again["source"] == "measured" and json.loads((run.folder / "status.json").read_text())["state"] == "done"
