"""What a configuration's committed curves predict of its time to an accuracy."""

from dataclasses import replace

import made_up_groups
import pytest
from test_planner import configs

from repro.config.compose import compose
from repro.config.schema import Config
from repro.report.group import Group, rounded
from repro.report.time_to_target import Reach
from repro.timing import to_target

SOME, BUTTERFLY = "algo=dense,topk,fp16", "gtopk_butterfly"


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


@pytest.mark.parametrize("algo", ["powersgd", "qsgd", "randomk"])
def test_curves_are_of_any_seed(algo: str) -> None:
    """What an algorithm draws follows the run's seed: planned with another, it had no curve."""
    typed, curves = ["model=resnet20", "data=cifar10", "nodes=4", f"algo={algo}"], to_target.trained()
    found = [to_target.of(compose([*typed, *words])[0], curves) for words in ([], ["seed=7"], ["algo.seed=7"])]
    assert found[0] == found[1] != [] and found[2] == [], "typed, it is another rule"


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
    assert trained
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


def test_where_no_run_reached_the_target_the_longest_are_compared() -> None:
    """Runs cut short in the planned precision stood beside another algorithm's whole ones, 13 points below."""
    whole = [replace(g, settings=g.settings | {"precision": "bfloat16"}) for g in groups()]
    short = [replace(g, curve=g.curve[:1], settings=g.settings | {"epochs": 1}) for g in groups()]
    planned = list(own("algo=dense,topk").values())
    assert to_target.comparable(0.999, planned, [*short, *whole]) == whole


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


def test_a_step_of_several_micro_batches_takes_all_their_samples() -> None:
    assert steps(0.3, own("batch_per_node=1", "accumulate=2")["dense"], groups()) == [300]


def test_what_committed_runs_say_of_other_p_stands_beside_the_samples_that_are_taken_from_here() -> None:
    few, many = groups(), [replace(one, settings=one.settings | {"nodes": 16}) for one in groups()]
    many = [replace(one, curve=[row | {"step": 3 * row["step"]} for row in one.curve]) for one in many]
    plan = own("nodes=8")["dense"]
    reached = [to_target.reach(0.3, plan, few)]
    said = to_target.origin(0.3, reached, [plan], few)
    assert "contradict" not in said
    said = to_target.origin(0.3, reached, [plan], [*few, *many])
    assert said.endswith(
        f"Committed runs contradict that: from P = {few[0].nodes} to 16 dense needed 12.0 times as many"
    )
