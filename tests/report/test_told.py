"""What docs/paper.md tells by hand holds: its numbers are those of the summaries."""

import statistics
from collections.abc import Iterable

import made_up_groups
import pytest
from told_in_paper import JPEG, told

from repro.figures import _times, momentum
from repro.report import intervals, summaries
from repro.report.group import Group
from repro.report.momentum import RULES, rule


def of_one_schedule(
    groups: Iterable[Group], model: str, schedule: str, precision: str = "float32"
) -> dict[tuple[str, float], float]:
    """Returns the last accuracy of each algorithm and density, in percent; two runs of one of these are an error."""
    found: dict[tuple[str, float], float] = {}
    for group in groups:
        if (group.model, group.schedule, group.settings["precision"]) == (model, schedule, precision):
            key = group.algo, group.settings["density"]
            assert key not in found, f"two groups of {key} on the {schedule} in {precision}"
            found[key] = 100 * group.curve[-1]["test_accuracy"]
    return found


def test_runs_of_other_schedules_and_precisions_are_kept_apart() -> None:
    compressed, written, bfloat16 = (Group(**made_up_groups.group("resnet20", "dense")) for _ in range(3))
    written.settings["scale_schedule"] = False
    bfloat16.settings["precision"] = "bfloat16"
    for row, group in enumerate((compressed, written, bfloat16)):
        group.curve[-1]["test_accuracy"] = 0.7 + row / 10
    every, schedule = (compressed, written, bfloat16), "schedule of 141 epochs compressed to 5"
    assert of_one_schedule(every, "resnet20", schedule) == {("dense", 1.0): pytest.approx(70)}
    assert of_one_schedule(every, "resnet20", "first 5 of 141 epochs") == {("dense", 1.0): pytest.approx(80)}
    assert of_one_schedule(every, "resnet20", schedule, "bfloat16") == {("dense", 1.0): pytest.approx(90)}
    with pytest.raises(AssertionError, match="two groups"):
        of_one_schedule((compressed, compressed), "resnet20", schedule)


def test_the_gaps_of_short_schedules_are_those_of_the_summaries() -> None:
    found = summaries.load()

    def finals(experiment: str, epochs: int, model: str = "resnet20") -> dict[tuple[str, float], float]:
        schedule = f"schedule of 141 epochs compressed to {epochs}"
        return of_one_schedule(found.groups(experiment), model, schedule)

    short, five, fifteen = finals("density_sensitivity", 3), finals("convergence", 5), finals("convergence", 15)
    behind = [short["dense", 1.0] - short["gtopk", 0.001], five["dense", 1.0] - five["gtopk", 0.001]]
    behind += [fifteen["dense", 1.0] - fifteen["gtopk", 0.001], short["dense", 1.0] - short["gtopk", 0.05]]
    behind += [fifteen["dense", 1.0] - fifteen["topk", 0.001]]
    assert told(
        "ahead by N points of accuracy after 3 epochs, N after 5 and N after 15 [...] at 0.001, by N ([...]a step: "
        "N after 15"
    ) == pytest.approx(behind, abs=0.051)
    vgg16 = finals("convergence", 4, "vgg16")
    of_all = [vgg16["gtopk", 0.001], vgg16["dense", 1.0], vgg16["topk", 0.001]]
    assert told("each entry 0.40 times: N %, beside N of dense and N of Top-k") == pytest.approx(of_all, abs=0.051)
    randomk = of_one_schedule(found.groups("families"), "resnet20", "schedule of 141 epochs compressed to 3")
    assert told("After 3 compressed epochs it has N % so") == pytest.approx([randomk["randomk", 0.001]], abs=0.051)


def test_the_whole_schedule_is_told_as_the_summaries_have_it() -> None:
    found = summaries.load()
    of_four = [g for g in found.groups("convergence") if (g.model, g.nodes, g.data) == ("resnet20", 4, JPEG)]
    whole = [g for g in of_four if g.whole]
    runs = {g.algo: g for g in whole}
    losses = [g.curve[-1]["train_loss"] for name in ("dense", "topk", "gtopk") for g in whole if g.algo == name]
    three = [runs[name] for name in ("dense", "topk", "gtopk")]
    sentences = (
        "dense ends at N %, Top-k at N %, gTop-k at N %. By the mean of the first 5 epochs Top-k is N and gTop-k N "
        "points behind dense of the same seeds, by that of epochs 11 to 15 N and N, and by that of epochs 11 to 81, "
        "all of the high rate, N and N. The training loss ends at N, N and N:"
    )
    said = told(sentences)
    assert [g.seeds for g in three] == [[0, 1, 2], [0, 1], [0, 1, 2]]
    behind = [
        statistics.fmean(-ahead(run, three[0], seed, *epochs) for seed in run.seeds)
        for epochs in ((1, 5), (11, 15), (11, 81))
        for run in three[1:]
    ]
    expected = [*(100 * run.curve[-1]["test_accuracy"] for run in three), *behind]
    assert said[:9] == pytest.approx(expected, abs=0.051) and said[9:] == pytest.approx(losses, abs=0.00051)
    ends = told(
        "seeds 0, 1 and 2 of dense end at N, N and N %, of gTop-k at N, N and N %, seeds 0 and 1 of Top-k at N and N %"
    )
    in_order = [runs[name] for name in ("dense", "gtopk", "topk")]
    assert ends == pytest.approx([100 * own[-1] for run in in_order for own in run.seed_accuracies], abs=0.0051)
    (chosen,) = (g.curve[-1] for g in found.groups("select_from_k_times_P") if g.algo == "gtopk_from_topk" and g.whole)
    for density, sentence in (
        (0.0005, "half the density (0.0005) gTop-k has a loss of N, though it ends at N %"),
        (0.0001, "a tenth (0.0001), [...] one of N, and ends at N %"),
    ):
        (lower,) = (g for g in found.groups("density_sensitivity") if g.whole and g.settings["density"] == density)
        loss, accuracy = told(sentence)
        assert accuracy == pytest.approx(100 * lower.curve[-1]["test_accuracy"], abs=0.0051)
        assert loss == pytest.approx(lower.curve[-1]["train_loss"], abs=0.00051)
    accuracy, loss = told("chosen at once ([...]), end at N % with a loss of N (n = 1 each).")
    assert accuracy == pytest.approx(100 * chosen["test_accuracy"], abs=0.0051)
    assert loss == pytest.approx(chosen["train_loss"], abs=0.00051)


def of_seed(group: Group, seed: int) -> dict[float, float]:
    """Returns a seed's accuracies in percent by epoch."""
    curves = group.seed_accuracies or [[row["test_accuracy"] for row in group.curve]]
    values = dict(zip(group.seeds, curves, strict=True))[seed]
    return {row["epoch"]: 100 * value for row, value in zip(group.curve, values, strict=True)}


def ahead(run: Group, dense: Group, seed: int, first: int, last: int) -> float:
    """Returns by how many points it is ahead of dense of the same seed, on average over these epochs."""
    own, other = of_seed(run, seed), of_seed(dense, seed)
    return statistics.fmean(own[epoch] - other[epoch] for epoch in range(first, last + 1))


def test_momentum_is_told_as_the_figure_has_it() -> None:
    after, before, masked, none = RULES
    trained = [row for row in momentum.table(summaries.load()) if row["source"] == "trained" and row["epoch"] == 15]
    by = {(row["nodes"], row["algo"], row["rule"]): row for row in trained}
    four = [by[4, "dense", after], by[4, "gTop-k", after], by[4, "gTop-k", none]]
    many = [by[32, algo, where] for algo in ("dense", "gTop-k") for where in (after, none)]
    many += [by[32, "gTop-k (exact rule)", none], by[32, "Top-k", none], by[32, "gTop-k (clipped)", masked]]
    others = [by[4, name, momentum_rule] for name in ("Top-k", "1-bit SGD") for momentum_rule in (after, none)]
    others.append(by[4, "dense", none])
    assert [row["n"] for row in others] == [2, 2, 2, 2, 1]
    paired = [by[4, f"gTop-k {name}", where] for name in ("butterfly", "exact") for where in (after, none)]
    assert [row["n"] for row in paired] == [1, 2, 2, 2]
    single = [by[4, "gTop-k", before], by[4, "gTop-k", masked], by[4, "gTop-k (clipped)", masked]]
    single.append(by[4, "gTop-k (delivered)", masked])
    exact_rule = [by[4, "gTop-k (exact rule)", where] for where in (after, none)]
    assert [row["n"] for row in exact_rule] == [2, 2]
    for rows, sentence in (
        (
            single,
            "momentum before selection has N %, N % masked and N % clipped too, N % where only what is delivered "
            "leaves the velocity (n = 1 each).",
        ),
        (exact_rule, "The exact residual rule has N % with momentum and N % without it (n = 2 each)."),
        (
            [
                by[4, name, where]
                for name in ("Top-k", "gTop-k exact", "gTop-k butterfly")
                for where in (before, masked)
            ],
            "gains by both, if less than by having no momentum: N % with momentum before selection, N % masked; gTop-k "
            "exact has N % with momentum before selection, N % masked, and gTop-k butterfly N and N %.",
        ),
        ([by[4, "1-bit SGD", before]], "1-bit SGD has N % with momentum before selection (n = 1 each)."),
        ([by[4, "Top-k (delivered, boost 6)", masked]], "counted up to 6 times (`algo.boost=6`), have N % (n = 1)."),
        ([by[4, "random-k (lr 0.01)", none]], "has N % without it at a learning rate of 0.01 (n = 1):"),
        (
            four,
            "next) dense has N % (n = N), gTop-k N % (n = N), and without momentum at ten times the learning rate "
            "N % (n = N;",
        ),
        (
            others,
            "Top-k has N % with momentum and N % without, 1-bit SGD N % and N %, "
            "and dense itself N % without (n = 2, 2, 2, 2 and 1);",
        ),
        (
            paired,
            "butterfly has N % with and N % without, gTop-k exact N % with and N % without (n = 1, 2, 2 and 2).",
        ),
        (
            many,
            "dense has N % then and N % without momentum at ten times the learning rate, gTop-k N and N %, with the "
            "exact residual rule N % without momentum, Top-k without momentum N %, "
            "and gTop-k with momentum before selection, masked and clipped, N %:",
        ),
    ):
        counted = "(n = N" in sentence
        expected = [value for row in rows for value in (100 * row["test_accuracy"], row["n"])[: 1 + counted]]
        assert told(sentence) == pytest.approx(expected, abs=0.051)
        assert counted or rows in (paired, others, exact_rule) or all(row["n"] == 1 for row in rows)


def test_gtopk_exact_beside_gtopk_is_told_as_the_summaries_have_it() -> None:
    found = summaries.load()
    (exact,) = (g for g in found.groups("momentum") if g.algo == "gtopk_exact" and g.settings["momentum"] == 0.9)
    (whole,) = (
        g
        for g in found.groups("convergence")
        if (g.model, g.nodes, g.data, g.algo, g.whole) == ("resnet20", 4, JPEG, "gtopk", True)
    )
    assert exact.seeds == [0, 1] == whole.seeds[:2] and exact.schedule == "first 15 of 141 epochs"

    def late(group: Group, seed: int) -> float:
        rows = zip(group.curve, group.seed_accuracies[seed], strict=True)
        return statistics.fmean(100 * own for row, own in rows if 11 <= row["epoch"] <= 15)

    said = told("gTop-k exact is N and N points below gTop-k of the same seed:")
    assert said == pytest.approx([late(whole, seed) - late(exact, seed) for seed in (0, 1)], abs=0.0051)


def test_no_momentum_over_the_whole_schedule_is_told_as_the_summaries_have_it() -> None:
    found = summaries.load()
    (none,) = (group for group in found.groups("momentum") if group.whole and group.algo == "gtopk")
    of_four = [g for g in found.groups("convergence") if (g.model, g.nodes, g.data) == ("resnet20", 4, JPEG)]
    whole = {g.algo: g for g in of_four if g.whole}
    assert rule(none.settings) == RULES[3]
    runs = [none, whole["gtopk"], whole["dense"]]
    ends = [(100 * run.curve[-1]["test_accuracy"], run.curve[-1]["train_loss"]) for run in runs]

    sentences = (
        "end at N % with a training loss of N, where gTop-k with momentum has N % and N and dense N % and N "
        "(n = 3 each). Before the first drop of the learning rate it is ahead of dense of the same seed, by N points "
        "on average over epochs 11 to 81, and over the last 19 epochs N behind; gTop-k with momentum is N ahead and N "
        "behind with that seed, N behind and N ahead with seed 1."
    )
    said = told(sentences)
    high, low = (11, 81), (123, 141)
    of = [(none, 0, 1, high), (none, 0, -1, low), (runs[1], 0, 1, high), (runs[1], 0, -1, low)]
    of += [(runs[1], 1, -1, high), (runs[1], 1, 1, low)]
    means = [sign * ahead(run, whole["dense"], seed, *epochs) for run, seed, sign, epochs in of]
    assert [run.n for run in runs] == [1, 3, 3]
    assert said[:6:2] == pytest.approx([accuracy for accuracy, _ in ends], abs=0.0051)
    assert said[1:6:2] == pytest.approx([loss for _, loss in ends], abs=0.00051)
    assert said[6:] == pytest.approx(means, abs=0.051)


def test_bfloat16_beside_float32_is_told_as_the_summaries_have_it() -> None:
    fifteenth, late = {}, {}
    for group in summaries.load().groups("convergence"):
        written = not group.settings["scale_schedule"] or group.whole
        usual = (group.model, group.nodes) == ("resnet20", 4) and group.settings["density"] in (1.0, 0.001)
        if usual and written:
            curves = group.seed_accuracies or [[row["test_accuracy"] for row in group.curve]]
            epochs = [row["epoch"] for row in group.curve]
            for seed, curve in zip(group.seeds, curves, strict=True):
                key = group.algo, group.settings["precision"], seed
                fifteenth.setdefault(key, 100 * curve[epochs.index(15)])
                late.setdefault(key, 100 * statistics.fmean(curve[epochs.index(epoch)] for epoch in range(11, 16)))
    sentences = (
        "dense has N and N % in float32, N and N % in bfloat16; gTop-k has N and N % in float32, N and N % in bfloat16."
    )
    expected = [fifteenth[a, p, s] for a in ("dense", "gtopk") for p in ("float32", "bfloat16") for s in (0, 1)]
    assert told(sentences) == pytest.approx(expected, abs=0.0051)
    gaps = [
        intervals.of_pairs([late[a, "bfloat16", seed] - late[a, "float32", seed] for seed in (0, 1)])
        for a in ("dense", "gtopk")
    ]
    expected = [part for gap in gaps for part in (abs(gap.mean), -gap.low, gap.high)]
    assert gaps[0].mean < 0 < gaps[1].mean
    said = told(
        "By the mean of epochs 11 to 15 dense has N points less in bfloat16 (90 % interval -N to +N) and gTop-k N more "
        "(-N to +N):"
    )
    assert said == pytest.approx(expected, abs=0.051)


def test_the_seconds_of_a_batch_are_those_of_the_summaries() -> None:
    found = summaries.load()
    ours, theirs = told("VGG-16 takes one core N s, their GPU N s")
    seconds = [
        row["compute_s"]
        for row in _times.of_experiment(found, "throughput")
        if (row["model"], row["source"]) == ("vgg16", "modelled")
    ]
    assert seconds and seconds == pytest.approx([ours] * len(seconds), abs=0.051)
    assert found.paper["breakdown_gtopk_32_nodes"]["vgg16"]["compute"] == pytest.approx(theirs, abs=0.0051)
