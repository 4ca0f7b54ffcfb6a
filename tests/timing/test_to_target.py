"""What a configuration's committed curves predict of its time to an accuracy, and what the ranking says of it."""

import json
from dataclasses import replace

import made_up_groups
import pytest
from test_planner import STATED, configs
from typer.testing import CliRunner

from repro.cli import app
from repro.config.compose import compose
from repro.config.schema import Config
from repro.report import summaries, time_to_target
from repro.report.group import Group, rounded
from repro.report.time_to_target import Reach
from repro.timing import planner, predict, to_target

SOME, BUTTERFLY = "algo=dense,topk,fp16", "gtopk_butterfly"
SLOW = ("network.alpha_s=1e-4", "network.beta_s_per_byte=1e-6")


def groups(n_seeds: int = 1) -> list[Group]:
    """10 points of accuracy an epoch of 100 steps, on 4 nodes with 2 images each; Top-k is a point behind."""
    found = [Group(**made_up_groups.group("resnet20", algo, batch=2, n_seeds=n_seeds)) for algo in ("dense", "topk")]
    found[1].settings["algo"]["options"] = {}
    return found


def own(*overrides: str) -> dict[str, Config]:
    return {config.algo.name: config for config in configs(*overrides)}


def steps(target: float, config: Config, of: list[Group]) -> list[float]:
    found = to_target.reach(target, config, of)
    return [] if found is None else to_target.seconds(found.group, config, found.samples, 1.0, {})


def origin(target: float, found: list[Reach | None], of: list[Group], nodes: int = 4) -> str:
    return to_target.origin(target, found, list(own("algo=dense,topk", f"nodes={nodes}").values()), of)


def test_steps_to_a_target_are_those_of_trained_runs_by_samples() -> None:
    epoch = 100
    assert steps(0.3, own()["dense"], groups()) == [3 * epoch]
    assert steps(0.3, own("nodes=8")["dense"], groups()) == [3 * epoch / 2]
    assert steps(0.3, own()["ddp"], groups()) == [3 * epoch]  # the same mean gradient
    assert steps(0.3, own()["topk"], groups()) == [4 * epoch]
    assert steps(0.9, own()["dense"], groups()) == []
    assert to_target.reach(0.9, own()["dense"], groups()).best == 0.5
    assert to_target.reach(0.3, own()["fp16"], groups()) is None


def test_seeds_give_a_range_from_the_fewest_steps_to_the_most() -> None:
    epoch = 100
    assert steps(0.3, own()["dense"], groups(2)) == [3 * epoch, 4 * epoch]  # 30.35 % and 29.65 % after three


def test_other_updates_are_other_runs() -> None:
    """Momentum, correction, density, data: a curve made with other ones says nothing of this configuration."""
    for change in ("algo.correction=0.5 momentum=0", "density=0.01", "data=digits", "model=vgg16"):
        assert to_target.of(own(*change.split(), "algo=topk")["topk"], groups()) == []
    assert to_target.of(own("momentum=0.5")["dense"], groups()) == []
    assert len(to_target.of(own("algo=topk", "algo.wire=gaps")["topk"], groups())) == 1  # the same bits
    assert to_target.of(own("algo=topk", "algo.wire=packed")["topk"], groups()) == []


def test_a_run_is_found_whose_numbers_have_more_digits_than_a_summary() -> None:
    """A density was compared to nine digits, and what it begins with to all."""
    keys = ["algo=topk", "density=0.001953125", "density_warmup=[0.2512345678,0.0123456789]", "clip_grad=0.12345678"]
    dense, topk = groups()
    topk.settings.update(rounded({"density": 0.001953125, "density_warmup": [0.2512345678, 0.0123456789]}))
    topk.settings["clip_grad"] = rounded(0.12345678)
    assert to_target.of(own(*keys)["topk"], [dense, topk]) == [topk]
    assert to_target.of(own(*keys, "density=0.00195")["topk"], [dense, topk]) == []
    assert to_target.of(own(*keys, "density_warmup=[0.25,0.0123456789]")["topk"], [dense, topk]) == []


def test_the_committed_run_that_keeps_denses_accuracy_on_32_nodes_is_known_to_the_planner() -> None:
    typed = ["model=resnet20", "nodes=32", "density_warmup=[]", "algo.gain=40", "algo.wire=gaps-bf16"]
    known, unknown = (compose([*typed, "algo=gtopk_corrected", f"density={one}"])[0] for one in (0.032, 0.016))
    curves = to_target.trained()
    found = to_target.reach(0.85, known, to_target.comparable(0.85, [known], curves))
    assert found is not None and found.group.nodes == 32 and 81 < found.epochs[0] < 90, "after the rate dropped"
    assert to_target.reach(0.85, unknown, curves) is None


@pytest.mark.parametrize(
    "other",
    [
        "algo.selector=gaussian",
        "hierarchical=true machines=2",
        "clip_grad=0.1",
        "density_warmup=[0.25,0.1]",
        "bucket_mb=1 scope=bucket",
    ],
)
def test_a_planned_run_that_selects_or_clips_otherwise_has_no_curve_of_these(other: str) -> None:
    made = groups()
    assert to_target.of(own("algo=topk")["topk"], made) == made[1:]
    assert to_target.of(own("algo=topk", *other.split())["topk"], made) == []


@pytest.mark.parametrize(
    "other",
    [
        "lr=1e-7",
        "weight_decay=0",
        "lr_drops=[1]",
        "lr_drop_factor=0.5",
        "lr_warmup_epochs=0",
        "batch_per_node=1024",
        "accumulate=2",
    ],
)
def test_a_planned_run_with_another_rate_or_batch_has_no_curve_of_these(other: str) -> None:
    """With lr=1e-7 it was said to reach 70 % in the same 6 minutes, with batch_per_node=1024 in 12 seconds."""
    assert len(to_target.of(own()["dense"], groups())) == 1
    assert to_target.of(own(other)["dense"], groups()) == []
    assert len(to_target.of(own("batch_per_node=1", "accumulate=2", "nodes=16")["dense"], groups())) == 1


@pytest.mark.parametrize("other", ["data.flip=false", "data.pad=0", "data.std=[10,10,10]"])
def test_a_planned_run_on_other_inputs_has_no_curve_of_these(other: str) -> None:
    assert to_target.of(own(other)["dense"], groups()) == []
    (usual, changed) = (compose(["model=resnet20", "nodes=4", "algo=dense", *more])[0] for more in ([], [other]))
    assert to_target.of(usual, to_target.trained()) and not to_target.of(changed, to_target.trained())


def test_a_planned_network_of_another_size_has_no_curve_of_these() -> None:
    trained = [group.settings for group in to_target.trained() if group.model == "lstm_small"]
    for other, known in (("model.width=200", True), ("model.width=20", False), ("data.sequence=5", False)):
        (config,) = compose(["model=lstm_small", "data=text", other])
        assert [to_target.inputs_alike(settings, config) for settings in trained] == [known] * len(trained)


def test_dense_that_clips_is_another_run_too() -> None:
    assert to_target.of(own("clip_grad=0.1")["dense"], groups()) == []


def test_curves_of_one_precision_are_compared_the_planned_one_where_it_says_as_much() -> None:
    float32, bfloat16 = groups(), [replace(g, settings=g.settings | {"precision": "bfloat16"}) for g in groups()]
    every, planned = [*bfloat16, *float32], own("algo=dense,topk")
    assert to_target.comparable(0.3, list(planned.values()), every) == float32
    assert to_target.comparable(0.3, list(own("algo=dense,topk", "precision=bfloat16").values()), every) == bfloat16
    of_both = to_target.comparable(0.3, list(planned.values()), [*bfloat16, float32[0]])
    assert of_both == bfloat16, "the planned precision has dense alone"
    assert ", bfloat16, P = 4;" in origin(0.3, [to_target.reach(0.3, planned["topk"], of_both)], of_both)
    chosen = to_target.comparable(0.495, list(planned.values()), [float32[0], bfloat16[1]])
    missed = to_target.reach(0.3, planned["topk"], chosen, [bfloat16[1]])
    assert to_target.cell(missed, ()) == "– (best 49.0 %, in another precision)"
    original = replace(float32[1], data="cifar10")
    missed = to_target.reach(0.3, planned["topk"], float32[:1], [original])
    assert to_target.cell(missed, ()) == "– (best 49.0 %, on CIFAR-10)"


def at(nodes: int, *of: Group) -> list[Group]:
    return [replace(group, settings=group.settings | {"nodes": nodes}) for group in of]


def test_curves_of_one_p_are_compared_the_planned_one_if_two_algorithms_have_it() -> None:
    """Of each algorithm the curves of the planned P counted if it had any, else those of another P beside them."""
    here, there, planned = groups(), at(32, *groups()), list(own("algo=dense,topk", "nodes=32").values())
    assert to_target.comparable(0.3, planned, [*here, *there]) == there
    alone = [*here, there[0]]  # dense
    chosen = to_target.comparable(0.3, planned, alone)
    assert chosen == here
    assert {to_target.reach(0.3, one, chosen, alone).group.nodes for one in planned} == {4}
    only_dense = list(own("algo=dense", "nodes=32").values())
    assert to_target.comparable(0.3, only_dense, alone) == there[:1]


def test_a_curve_of_another_p_tells_its_accuracy_and_no_time() -> None:
    dense, topk = groups()
    both = [dense, topk, *at(2, replace(topk, settings=topk.settings | {"density": 0.01}), dense)]
    choices = ranked(0.3, both, "algo=dense,topk", "density=0.001,0.01", "nodes=4")
    cells = {(row["algorithm"], row["density"]): row["to target (min)"] for row in planner.rows(choices)}
    assert cells["topk", "0.01"] == "– (best 49.0 %, at P = 2)" and cells["topk", "0.001"].endswith("(n = 1)")
    said = origin(0.3, [choice.reach for choice in choices], both)
    assert "float32, P = 4; n = 1" in said
    missed = origin(0.9, [to_target.reach(0.9, own()["dense"], [dense])], [dense])
    assert missed.endswith("(schedule of 141 epochs compressed to 5, CIFAR-10 (JPEG folder), float32, P = 4)")


def test_seeds_that_end_at_unlike_epochs_are_one_curve_with_a_range() -> None:
    """One seed, so that no spread is known, was said of the luckier of two."""
    (dense, _), whole = groups(), {"epochs": 141, "scale_schedule": False}
    slow = [row | {"test_accuracy": row["test_accuracy"] - 0.1} for row in dense.curve]
    seeds = [
        replace(dense, settings=dense.settings | whole, curve=slow),
        replace(dense, settings=dense.settings | whole | {"epochs": 4}, seeds=[1], curve=dense.curve[:4]),
    ]
    assert steps(0.3, own()["dense"], seeds) == [300, 400]
    assert "P = 4; n = 2 seeds; ranges" in origin(0.3, [to_target.reach(0.3, own()["dense"], seeds)], seeds)
    seeds[1].curve[2:] = []
    said = origin(0.3, [to_target.reach(0.3, own()["dense"], seeds)], seeds)
    assert "n = 1: one seed; seeds of dense trained for too few epochs are left out; ranges" in said


def ranked(target: float, of: list[Group], *overrides: str) -> list[planner.Choice]:
    return planner.rank(planner.candidates(configs(*SLOW, *overrides), "compressed", [None]), STATED, target, of)


def test_the_ranking_shows_minutes_with_their_range_a_dash_with_the_best_or_that_there_is_no_curve() -> None:
    some, three = SOME, groups(2)
    cells = {row["algorithm"]: row["to target (min)"] for row in planner.rows(ranked(0.5, three, some))}
    assert cells["fp16"] == "– (no curve)"
    assert cells["dense"] == "– (best 50.0 %, not by all seeds)" and cells["topk"] == "– (best 49.0 %)"
    choices = ranked(0.3, three, some)
    assert [predict.label(choice.config) for choice in choices] == ["topk", "dense", "fp16"]
    low, high = choices[1].times_to_target_s
    assert high == pytest.approx(low * 4 / 3) and choices[1].to_target_s == pytest.approx((low + high) / 2)
    cells = {row["algorithm"]: row["to target (min)"] for row in planner.rows(choices)}
    assert cells["dense"] == f"{(low + high) / 120:.3g} ({low / 60:.3g} to {high / 60:.3g})"
    one = {row["algorithm"]: row["to target (min)"] for row in planner.rows(ranked(0.3, groups(), some))}
    assert one["dense"].endswith(" (n = 1)")
    assert "to target (min)" not in planner.rows(ranked(0.3, [], some))[0]


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


def test_a_curve_of_another_schedule_tells_its_accuracy_and_no_time() -> None:
    dense, topk = groups()
    whole = replace(topk, settings=topk.settings | {"epochs": 141, "scale_schedule": False})
    cells = {row["algorithm"]: row["to target (min)"] for row in planner.rows(ranked(0.495, [dense, whole], SOME))}
    assert cells["topk"] == "– (best 49.0 %, on another schedule)" and cells["dense"].endswith("(n = 1)")
    cells = {row["algorithm"]: row["to target (min)"] for row in planner.rows(ranked(0.3, [dense, whole], SOME))}
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
    (kept,) = (group for group in summaries.load().groups("convergence") if group.whole and group.algo == BUTTERFLY)
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
        (row,) = planner.rows([choice])
        assert row["to target (min)"] == f"{choice.to_target_s / 60:.3g} ({low} to {high}{ends}"


def test_the_file_has_the_seconds_of_each_seed(tmp_path) -> None:
    choices = ranked(0.3, groups(2), "algo=dense,topk,fp16")
    planner.write(choices, STATED, [], tmp_path / "plan.json")
    first, second, third = json.loads((tmp_path / "plan.json").read_text())["ranked"]
    assert first["curve"].endswith("n = 2") and len(second["to_target_by_seed_s"]) == 2
    assert (third["to_target_s"], third["to_target_by_seed_s"], third["curve"]) == (None, [], None)
