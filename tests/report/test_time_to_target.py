"""When curves reach a target: by seed, not by a spike, on one schedule, and what is said where they never do."""

from dataclasses import replace

import made_up_groups
import pytest

from repro.report import time_to_target
from repro.report.group import Group
from repro.report.summaries import Results


def group(algo: str = "dense", accuracies: list[list[float]] | None = None, epochs: int = 5, **settings) -> Group:
    """Ten points an epoch of 100 steps with 128 images each; or each seed's accuracies, an epoch at a time."""
    made = Group(**made_up_groups.group("resnet20", algo, n_seeds=len(accuracies or [0])))
    made = replace(made, settings=made.settings | {"epochs": epochs} | settings)
    if accuracies is None:
        return made
    curve = [
        {"epoch": n, "step": 100 * n, "test_accuracy": sum(one) / len(one), "test_accuracy_std": None}
        for n, one in enumerate(zip(*accuracies, strict=True), 1)
    ]
    return replace(made, curve=curve, seed_accuracies=accuracies if len(accuracies) > 1 else [])


def test_one_seed_has_one_epoch_and_says_that_it_is_one() -> None:
    found = time_to_target.reach([group()], 0.3)
    assert (found.epochs, found.samples, found.said()) == ((3,), (300 * 128,), "epoch 3, n = 1")


@pytest.mark.parametrize(
    ("curve", "said"),
    [
        ([0.6, 0.4, 0.6, 0.6, 0.4, 0.6, 0.7], "epoch 3 (1 to 6 within one run), n = 1"),
        ([0.4, 0.6, 0.6, 0.4, 0.6, 0.4], "epoch 2 (2 to 6 within one run, at whose end it is missed), n = 1"),
        ([0.6, 0.4, 0.4, 0.6], "epoch 4 (1 to 4 within one run), n = 1"),
        ([0.4, 0.6, 0.5, 0.7], "epoch 2, n = 1"),
    ],
)
def test_one_seed_has_a_range_from_its_first_epoch_there_to_that_from_which_it_stays(curve, said) -> None:
    found = time_to_target.reach([group(accuracies=[curve])], 0.5)
    assert found.said() == said
    low, high = found.spread
    assert low <= found.mean_samples <= high and (found.within is not None) == (low < high)


def test_the_range_over_seeds_comes_before_that_within_a_run() -> None:
    noisy = [0.6, 0.4, 0.6, 0.6, 0.4, 0.6]
    both = time_to_target.reach([group(accuracies=[noisy, [0.4, 0.6, 0.6, 0.6, 0.6, 0.6]])], 0.5)
    assert both.within is None and both.spread == (200 * 128, 300 * 128)
    begun, whole = begun_and_whole([0.1, 0.3, 0.4], noisy)
    left = time_to_target.reach([begun, whole], 0.5)
    assert left.said().startswith("epoch 3 (1 to 6 within one run), n = 1, 1 seed left out")


def test_a_perplexity_stays_where_it_is_no_higher_again() -> None:
    curve = [{"epoch": n, "step": n, "test_perplexity": value} for n, value in enumerate((119, 118, 130, 117), 1)]
    text = replace(group(data={"name": "ptb", "sequence": 35}), curve=curve)
    assert time_to_target.reach([text], 120).said() == "epoch 1 (1 to 4 within one run), n = 1"


def test_runs_with_other_settings_are_those_of_the_fewest_samples_on_the_images_that_are_compared() -> None:
    ends = (0.6, 0.7, 0.8, 0.9)
    others = [group("gtopk", [[0.1, 0.1, end / 2, end]], density=end / 10) for end in ends]
    soon = replace(group("topk", [[0.9, 0.9]]), data="cifar10 (others)")
    (first, *_) = time_to_target.beside([*others, soon], [group()], 0.4)
    assert first.group is others[2], "after 3 epochs"
    assert len(time_to_target.beside([*others, soon], [group()], 0.3)) == time_to_target.MOST
    assert [one.group for one in time_to_target.beside([*others, soon], [group()], 0.9)] == [others[3]]
    assert [one.group for one in time_to_target.beside([others[0], soon], [group()], 0.9)] == [soon]
    assert time_to_target.beside(others, [group()], 0.95) == []


def test_several_seeds_have_their_range_and_all_must_get_there() -> None:
    seeds = group(accuracies=[[0.1, 0.5, 0.8, 0.9], [0.1, 0.2, 0.4, 0.8]])
    found = time_to_target.reach([seeds], 0.5)
    assert found.epochs == (2, 4) and found.mean_samples == 300 * 128
    assert found.said() == "epochs 2 to 4, n = 2"
    missed = time_to_target.reach([seeds], 0.85)
    assert missed.samples == () and missed.best == pytest.approx(0.85)
    assert missed.said() == "not by all seeds in 4 epochs, best 85.0 %"
    assert time_to_target.reach([seeds], 0.95).said() == "not in 4 epochs, best 85.0 %"


def test_one_noisy_epoch_is_not_the_first_that_counts() -> None:
    """gTop-k's committed curve has 85.17 % at epoch 75 alone, and stays above 85 % from where the rate drops."""
    curve = [0.8371, 0.8517, 0.8248, 0.8395, 0.8244, 0.8903, 0.8899]
    assert time_to_target.reach([group(accuracies=[curve])], 0.85).epochs == (6,)
    steady = [0.8, 0.86, 0.87, 0.84, 0.83, 0.83, 0.85]
    assert time_to_target.reach([group(accuracies=[curve, steady])], 0.85).epochs == (6, 2)


def test_the_last_evaluation_counts_alone_and_what_only_spikes_says_so() -> None:
    assert time_to_target.reach([group(accuracies=[[0.1, 0.6, 0.4, 0.7]])], 0.55).epochs == (4,)
    missed = time_to_target.reach([group(accuracies=[[0.1, 0.6, 0.4, 0.5]])], 0.55)
    assert missed.samples == () and missed.said() == "not twice in a row in 4 epochs, best 60.0 %"


def test_a_perplexity_that_dips_once_is_not_there_yet() -> None:
    curve = [{"epoch": n, "step": n, "test_perplexity": value} for n, value in enumerate((200, 119, 130, 118, 117), 1)]
    text = replace(group(data={"name": "ptb", "sequence": 35}), curve=curve)
    assert text.metric.falls and time_to_target.reach([text], 120).epochs == (4,)


def test_where_seeds_are_known_by_their_deviation_alone_it_stands_for_them() -> None:
    curve = [{"epoch": n, "step": 100 * n, "test_accuracy": 0.1 * n, "test_accuracy_std": 0.1} for n in range(1, 8)]
    old = replace(group(), seeds=[0, 1], curve=curve)
    assert time_to_target.reach([old], 0.45).epochs == (4, 6)
    assert time_to_target.reach([old], 0.65).samples == ()


def test_curves_of_one_schedule_are_compared_where_most_get_there_and_as_written_first() -> None:
    compressed = [group(algo) for algo in ("dense", "topk", "gtopk")]
    written = [group(algo, epochs=141, scale_schedule=False) for algo in ("dense", "topk")]
    assert time_to_target.comparable([*compressed, *written], 0.2) == compressed
    assert time_to_target.comparable([*compressed[:2], *written], 0.2) == written
    assert time_to_target.comparable([*compressed, *written], 0.99) == written
    assert time_to_target.comparable([], 0.5) == []
    assert time_to_target.schedule(compressed[0]) == "141 epochs compressed to 5"
    assert time_to_target.schedule(written[0]) == "141 epochs"


def test_curves_of_two_precisions_are_never_compared() -> None:
    float32 = [group("dense"), group("topk")]
    bfloat16 = [group("gtopk", precision="bfloat16")]
    assert time_to_target.comparable([*bfloat16, *float32], 0.2) == float32
    assert time_to_target.comparable([*bfloat16, float32[0]], 0.2, precision="bfloat16") == bfloat16


def test_curves_of_other_images_are_never_compared() -> None:
    jpeg = [group("dense"), group("topk"), group("gtopk")]
    original = [replace(made, data="cifar10 (others)", curve=[*made.curve[:3], high(0.9)]) for made in jpeg[:2]]
    assert time_to_target.comparable([*jpeg, *original], 0.2) == jpeg
    assert time_to_target.comparable([*jpeg, *original], 0.8) == original


def high(accuracy: float) -> dict[str, float | None]:
    return {"epoch": 4, "step": 400, "test_accuracy": accuracy, "test_accuracy_std": None}


def test_of_runs_alike_the_soonest_counts_and_else_the_best() -> None:
    slow, fast = group(accuracies=[[0.1, 0.2, 0.6]]), group(accuracies=[[0.1, 0.5, 0.5]], overlap="on")
    assert time_to_target.soonest([slow, fast], 0.5).group is fast
    assert time_to_target.soonest([slow, fast], 0.6).group is slow
    assert time_to_target.soonest([slow, fast], 0.7).group is slow  # 60 % is its best
    assert time_to_target.soonest([], 0.5) is None


def begun_and_whole(begun: list[float], whole: list[float], **settings) -> list[Group]:
    """Seed 1 has only the first epochs of its schedule, seed 0 all of them."""
    of_whole = group(accuracies=[whole], epochs=141, scale_schedule=False, **settings)
    return [replace(group(accuracies=[begun], epochs=3, scale_schedule=False, **settings), seeds=[1]), of_whole]


def test_seeds_of_one_setting_count_together_wherever_their_curves_end() -> None:
    """The luckier one stood for both: 9 epochs, n = 1, where the seeds of dense took 9 and 13."""
    found = time_to_target.soonest(begun_and_whole([0.1, 0.5, 0.6], [0.1, 0.2, 0.4, 0.5, 0.8]), 0.5)
    assert sorted(found.epochs) == [2, 4] and found.mean_samples == 300 * 128
    assert found.said() == "epochs 2 to 4, n = 2"
    again = begun_and_whole([0.1, 0.5, 0.6], [0.1, 0.2, 0.4, 0.5, 0.8])
    again[0].seeds[0] = 0
    assert time_to_target.soonest(again, 0.5).said() == "epoch 4, n = 1", "the longest curve of a seed counts"


def test_luck_of_one_seed_does_not_decide_which_setting_is_soonest() -> None:
    lucky = begun_and_whole([0.6, 0.6, 0.6], [0.1, 0.2, 0.4, 0.4, 0.6])
    steady = group(accuracies=[[0.1, 0.6, 0.6]], epochs=141, scale_schedule=False, overlap="on")
    assert time_to_target.soonest([*lucky, steady], 0.5).group is steady  # after 2 epochs, not after 1 and 5


def test_a_seed_that_ends_before_the_target_is_left_out_and_it_is_said() -> None:
    begun, whole = begun_and_whole([0.1, 0.3, 0.4], [0.1, 0.2, 0.4, 0.5, 0.8])
    found = time_to_target.soonest([begun, whole], 0.5)
    assert (found.epochs, found.n) == ((4,), 1)
    assert found.said() == "epoch 4, n = 1, 1 seed left out, trained for too few epochs"
    assert time_to_target.soonest([begun], 0.5).said() == "not in 3 epochs, best 40.0 %"


def test_a_whole_run_that_misses_the_target_is_not_left_out() -> None:
    found = time_to_target.soonest(begun_and_whole([0.1, 0.5, 0.6], [0.1, 0.2, 0.4, 0.4, 0.4]), 0.5)
    assert found.samples == () and found.said() == "not in 5 epochs, best 40.0 %"


def test_seeds_of_unlike_p_or_data_do_not_count_together() -> None:
    begun, whole = begun_and_whole([0.1, 0.5, 0.6], [0.1, 0.2, 0.4, 0.5, 0.8])
    for other in (replace(begun, settings=begun.settings | {"nodes": 8}), replace(begun, data="other images")):
        assert [found.n for found in time_to_target.reaches([other, whole], 0.5)] == [1, 1]


def test_curves_of_one_p_are_compared_the_asked_one_if_two_algorithms_have_it() -> None:
    at_4 = [group(algo, nodes=4) for algo in ("dense", "topk", "gtopk")]
    at_32 = [group(algo, nodes=32) for algo in ("dense", "topk")]
    assert time_to_target.comparable([*at_4, *at_32], 0.2, nodes=32) == at_32
    assert time_to_target.comparable([*at_4, *at_32], 0.99, nodes=32) == at_32
    assert time_to_target.comparable([*at_4, *at_32], 0.2, nodes=8) == at_4
    assert time_to_target.comparable([*at_4, at_32[0]], 0.2, nodes=32) == at_4
    assert time_to_target.comparable([*at_32, *at_4[:2]], 0.2, nodes=8) == at_4[:2]  # the fewest nodes


def test_one_evaluation_at_the_end_is_no_curve() -> None:
    made = made_up_groups.group("resnet20", "dense")
    one = made | {"curve": made["curve"][-1:]}
    results = Results({}, {"convergence": {"groups": [made]}, "families": {"groups": [one]}, "lab": {"groups": [made]}})
    assert len(time_to_target.trained(results)) == 1


def test_of_a_compressed_run_of_so_many_steps_seeds_that_miss_the_target_are_left_out() -> None:
    found = time_to_target.reach([group(accuracies=[[0.1, 0.5, 0.8], [0.1, 0.2, 0.4]], steps=300)], 0.5)
    assert found.said() == "epoch 2, n = 1, 1 seed left out, trained for too few epochs"
