"""How the ranking by time to an accuracy tells what curves say: minutes, their range, or why there are none."""

import json
from dataclasses import replace

import committed_results
import pytest
from test_planner import STATED, configs
from test_to_target import BUTTERFLY, SOME, at, groups, origin, own
from typer.testing import CliRunner

from repro.cli import app
from repro.report import time_to_target
from repro.report.group import Group
from repro.timing import candidates, plan_report, planner, predict, to_target

SLOW = ("network.alpha_s=1e-4", "network.beta_s_per_byte=1e-6")


def ranked(target: float, of: list[Group], *overrides: str) -> list[planner.Choice]:
    return planner.rank(candidates.allowed(configs(*SLOW, *overrides), "compressed", [None]), STATED, target, of)


def test_the_ranking_shows_minutes_with_their_range_a_dash_with_the_best_or_that_there_is_no_curve() -> None:
    some, three = SOME, groups(2)
    cells = {row["algorithm"]: row["to target (min)"] for row in plan_report.rows(ranked(0.5, three, some))}
    assert cells["fp16"] == "– (no curve)"
    assert cells["dense"] == "– (best 50.0 %, not by all seeds)" and cells["topk"] == "– (best 49.0 %)"
    choices = ranked(0.3, three, some)
    assert [predict.label(choice.config) for choice in choices] == ["topk", "dense", "fp16"]
    low, high = choices[1].times_to_target_s
    assert high == pytest.approx(low * 4 / 3) and choices[1].to_target_s == pytest.approx((low + high) / 2)
    cells = {row["algorithm"]: row["to target (min)"] for row in plan_report.rows(choices)}
    assert cells["dense"] == f"{(low + high) / 120:.3g} ({low / 60:.3g} to {high / 60:.3g})"
    one = {row["algorithm"]: row["to target (min)"] for row in plan_report.rows(ranked(0.3, groups(), some))}
    assert one["dense"].endswith(" (n = 1)")
    assert "to target (min)" not in plan_report.rows(ranked(0.3, [], some))[0]


def test_steps_of_a_density_warmup_take_what_their_messages_do() -> None:
    """All steps to the target were priced at the density after it: the first epoch sends four times as many entries."""
    whole = {"epochs": 141, "scale_schedule": False}
    curves = [replace(one, settings=one.settings | whole) for one in groups()]
    choices = {predict.label(one.config): one for one in ranked(0.3, curves, SOME)}
    dense, topk = choices["dense"], choices["topk"]
    assert dense.times_to_target_s == [pytest.approx(300 * dense.seconds)]
    ((density, warm_s),) = topk.warm_s.items()
    assert density == 0.004 and warm_s > topk.seconds
    assert topk.times_to_target_s == [pytest.approx(100 * warm_s + 300 * topk.seconds)]
    assert topk.spread_s == 2 * topk.times_to_target_s


def test_a_curve_of_another_p_tells_its_accuracy_and_no_time() -> None:
    dense, topk = groups()
    both = [dense, topk, *at(2, replace(topk, settings=topk.settings | {"density": 0.01}), dense)]
    choices = ranked(0.3, both, "algo=dense,topk", "density=0.001,0.01", "nodes=4")
    cells = {(row["algorithm"], row["density"]): row["to target (min)"] for row in plan_report.rows(choices)}
    assert cells["topk", "0.01"] == "– (best 49.0 %, at P = 2)" and cells["topk", "0.001"].endswith("(n = 1)")
    said = origin(0.3, [choice.reach for choice in choices], both)
    assert "float32, P = 4; n = 1" in said
    missed = origin(0.9, [to_target.reach(0.9, own()["dense"], [dense])], [dense])
    assert missed.endswith("(schedule of 141 epochs compressed to 5, CIFAR-10 (JPEG folder), float32, P = 4)")


def test_a_curve_of_another_schedule_tells_its_accuracy_and_no_time() -> None:
    dense, topk = groups()
    whole = replace(topk, settings=topk.settings | {"epochs": 141, "scale_schedule": False})
    cells = {row["algorithm"]: row["to target (min)"] for row in plan_report.rows(ranked(0.495, [dense, whole], SOME))}
    assert cells["topk"] == "– (best 49.0 %, on another schedule)" and cells["dense"].endswith("(n = 1)")
    cells = {row["algorithm"]: row["to target (min)"] for row in plan_report.rows(ranked(0.3, [dense, whole], SOME))}
    assert cells["dense"] == "– (best 50.0 %, on another schedule)" and cells["topk"].endswith("(n = 1)")


def test_a_target_that_only_one_epoch_reached_has_no_minutes_and_says_why() -> None:
    dense, topk = groups()
    curve = [row | {"test_accuracy": value} for row, value in zip(dense.curve, (0.1, 0.5, 0.4, 0.4, 0.4), strict=True)]
    spike = [replace(dense, curve=curve)]
    found = to_target.reach(0.5, own()["dense"], spike)
    assert to_target.cell(found, ()) == "– (best 50.0 %, not twice in a row)"
    assert "the best is dense, 50.0 %, not twice in a row (schedule of" in origin(0.5, [found], spike)
    said = origin(0.3, [to_target.reach(0.3, own()["topk"], [topk])], [topk])
    assert f"it is reached at {time_to_target.RULE};" in said


def test_it_says_on_which_curves_it_rests() -> None:
    reaches = [choice.reach for choice in ranked(0.3, groups(), "algo=dense,topk")]
    said = origin(0.3, reaches, groups())
    how = "(schedule of 141 epochs compressed to 5, CIFAR-10 (JPEG folder), float32, P = 4"
    assert f"{how}; n = 1: one seed; ranges are over seeds, or, {time_to_target.WITHIN})" in said
    assert "n = 2 seeds" in origin(0.3, [to_target.reach(0.3, own()["dense"], groups(2))], groups(2))
    missed = origin(0.9, [choice.reach for choice in ranked(0.9, groups(), "algo=dense,topk")], groups())
    assert missed.startswith("target=0.9: no committed run of these reached it; the best is dense, 50.0 % (schedule of")
    assert "has a curve of this model and data" in origin(0.9, [None], [])


def test_where_the_planned_p_missed_the_target_the_curves_that_reached_it_are_named() -> None:
    """It said that no committed run reached it."""
    lower = [replace(group, curve=group.curve[:4]) for group in at(32, *groups())]
    every = [*(replace(group, data="cifar10") for group in groups()), *lower]
    choices = ranked(0.45, every, "algo=dense,topk", "nodes=32")
    assert [choice.to_target_s for choice in choices] == [None, None]
    said = origin(0.45, [choice.reach for choice in choices], every, nodes=32)
    assert said.startswith("target=0.45: none of the curves that are compared reached it, so that all are ranked by")
    assert "the best is dense, 40.0 % (schedule of 141 epochs compressed to 5, CIFAR-10 (JPEG folder), float32" in said
    assert "CIFAR-10, float32, P = 4): dense, epoch 5, n = 1; topk, epoch 5, n = 1" in said
    best = origin(0.9, [choice.reach for choice in choices], every, nodes=32)
    assert best.startswith("target=0.9: no committed run of these reached it; the best is dense, 50.0 %")
    assert best.endswith("CIFAR-10, float32, P = 4)"), "the best of all, not of those that are compared"


def test_what_is_trained_with_is_said_to_have_missed_the_target() -> None:
    dense, topk = groups()
    reached, missed = (to_target.reach(target, own()["dense"], [dense]) for target in (0.3, 0.9))
    assert to_target.caution(0.3, reached) == ""
    assert "known to reach 0.9 here: its own curve missed it, best 50.0 % (sch" in to_target.caution(0.9, missed)
    assert to_target.caution(0.9, None).endswith("no committed run of it has a curve")
    there = to_target.reach(0.3, own("nodes=32")["topk"], at(32, dense), [topk])
    assert "its own curve reached it, best 49.0 %" in to_target.caution(0.3, there)
    assert to_target.caution(0.3, there).endswith("float32, P = 4)")


def test_the_command_never_says_to_train_with_what_missed_the_target_without_saying_so() -> None:
    """On 32 nodes it said so of gTop-k butterfly, with 87.7 %, and that none of these had reached 90 %."""
    words = ["tune", "model=resnet20", "nodes=32", "target=0.90", f"node={STATED}", "bucket_mb=null", "algo.wire=pairs"]
    done = CliRunner().invoke(app, [*words, f"algo=dense,topk,gtopk,{BUTTERFLY}", "density=0.001", "threads=1"])
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "no committed run" not in said and "P = 4): topk, epoch 82, n = 1" in said
    before, with_it = said.split(" Train with it (")
    assert f"algo={BUTTERFLY}" in with_it
    (kept,) = (
        group for group in committed_results.load().groups("convergence") if group.whole and group.algo == BUTTERFLY
    )
    best = 100 * max(row["test_accuracy"] for row in kept.curve)
    assert f"not known to reach 0.9 here: its own curve missed it, best {best:.1f} % (schedule of" in before


def test_one_seed_has_the_range_within_its_run() -> None:
    """n = 1 showed no range, though accuracy moves by points from one epoch to the next."""
    dense, _ = groups()
    for values, range_in_epochs, ends in (
        ((0.5, 0.4, 0.5, 0.5, 0.4), (1, 5), " within one run, at whose end it is missed)"),
        ((0.5, 0.4, 0.5, 0.5, 0.5), (1, 3), " within one run)"),
    ):
        curve = [row | {"test_accuracy": value} for row, value in zip(dense.curve, values, strict=True)]
        (choice,) = ranked(0.45, [replace(dense, curve=curve)], "algo=dense")
        low, high = (f"{epoch / 3 * choice.to_target_s / 60:.3g}" for epoch in range_in_epochs)
        (row,) = plan_report.rows([choice])
        assert row["to target (min)"] == f"{choice.to_target_s / 60:.3g} ({low} to {high}{ends}"


def test_the_file_has_the_seconds_of_each_seed(tmp_path) -> None:
    choices = ranked(0.3, groups(2), "algo=dense,topk,fp16")
    plan_report.write(choices, STATED, [], tmp_path / "plan.json")
    first, second, third = json.loads((tmp_path / "plan.json").read_text())["ranked"]
    assert first["curve"].endswith("n = 2") and len(second["to_target_by_seed_s"]) == 2
    assert (third["to_target_s"], third["to_target_by_seed_s"], third["curve"]) == (None, [], None)
