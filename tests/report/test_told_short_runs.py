"""What docs/accuracy.md tells by hand of short runs holds: its numbers are those of the summaries."""

import statistics

import committed_results
import pytest
from told_in_paper import JPEG, told

from repro.figures import families, gap_over_moves, momentum, momentum_rules, wire_formats
from repro.report import intervals
from repro.report.group import Group
from repro.report.momentum import RULES
from repro.report.momentum import rule as momentum_rule
from repro.report.prefixes import Pooled


def usual(group: Group, epochs: int, precision: str) -> bool:
    """Returns whether it is of ResNet-20 on 4 nodes at the paper's density, with so many epochs."""
    settings = group.settings
    of_four = (group.model, group.nodes, group.data) == ("resnet20", 4, JPEG) and settings["density"] in (1, 0.001)
    return of_four and (settings["epochs"], settings["precision"], settings["steps"]) == (epochs, precision, None)


def of_seeds(group: Group, epochs: range) -> dict[int, float]:
    """Returns each seed's mean accuracy of these epochs, in percent."""
    curves = group.seed_accuracies or [[row["test_accuracy"] for row in group.curve]]
    at = [place for place, row in enumerate(group.curve) if row["epoch"] in epochs]
    return {s: 100 * statistics.fmean(own[p] for p in at) for s, own in zip(group.seeds, curves, strict=True)}


LATE = range(11, 16)


def _of_15_epochs(experiment: str, algo: str) -> list[Group]:
    return [g for g in committed_results.load().groups(experiment) if g.algo == algo and usual(g, 15, "bfloat16")]


def _by_rule(nodes: int, precision: str) -> dict[tuple[str, str], Pooled]:
    """Returns the runs of the momentum figure over the first 15 epochs, by name and rule."""
    return {
        (momentum.name(pooled), momentum_rule(pooled.group.settings)): pooled
        for pooled, _, epoch, _ in momentum.runs(committed_results.load())
        if (pooled.group.nodes, pooled.group.settings["precision"], epoch) == (nodes, precision, 15)
        and not pooled.group.compressed
    }


def test_compressed_schedules_are_told_as_the_summaries_have_them() -> None:
    found = committed_results.load()

    def below(experiment: str, epochs: int, density: float = 0.001) -> tuple[float, int]:
        groups = [g for g in found.groups(experiment) if g.model == "resnet20" and g.nodes == 4 and g.compressed]
        of_these = [g for g in groups if (g.settings["epochs"], g.settings["precision"]) == (epochs, "float32")]
        (dense,) = (g for g in of_these if g.algo == "dense")
        (sparse,) = (g for g in of_these if (g.algo, g.settings["density"]) == ("gtopk", density))
        both = dense.curve[-1]["test_accuracy"], sparse.curve[-1]["test_accuracy"]
        return 100 * (both[0] - both[1]), min(dense.n, sparse.n)

    gaps = [below("density_sensitivity", 3), below("convergence", 5), below("convergence", 15)]
    said = told(
        "Compressed to 3 epochs, gTop-k is N points below dense, to 5, N, and to 15, N ([...] float32; n = N, N and N)"
    )
    assert said == pytest.approx([*(gap for gap, _ in gaps), *(n for _, n in gaps)], abs=0.051)
    fewest, _ = below("density_sensitivity", 3, 0.0001)
    said = told("compressed to 3 epochs, with [...] puts gTop-k N points behind, and at a density of 0.0001 N (n = N)")
    assert said == [round(gaps[0][0]), round(fewest), 1]
    assert fewest == max(
        row["below_dense"] for row in gap_over_moves.table(found) if row["schedule"].endswith("compressed to 3")
    )
    (denser,) = told("and gTop-k is N points below dense then (n = 1;")
    assert (denser, 1) == pytest.approx(below("density_sensitivity", 3, 0.05), abs=0.051)
    dense, sparse = (
        next(g for g in found.groups("convergence") if g.algo == name and not g.compressed and usual(g, 15, "float32"))
        for name in ("dense", "gtopk")
    )
    late = [statistics.fmean(of_seeds(group, LATE).values()) for group in (dense, sparse)]
    said = told("leave it N points behind by the mean of the last 5 (float32, n = N)")
    assert said == pytest.approx([late[0] - late[1], dense.n], abs=0.051) and dense.n == sparse.n


def test_wire_formats_are_told_as_the_table_has_them() -> None:
    rows = {row["format"]: row for row in wire_formats.table(committed_results.load())}
    rounded, packed = (
        sorted(float(value) for value in rows[name]["each seed above pairs (points)"].split(", "))
        for name in ("gaps-bf16", "packed")
    )
    assert rows["gaps-bf16"]["to (points)"] < 0, "the interval leaves out zero"
    said = told("`gaps-bf16` is below `pairs` with each of three shared seeds, by N to N points")
    assert said == pytest.approx([-rounded[-1], -rounded[0]], abs=0.051) and len(rounded) == 3
    (again,) = (g for g in _of_15_epochs("wire_formats", "gtopk") if g.settings["algo"]["wire"] == "pairs")
    (whole,) = (
        g for g in committed_results.load().groups("convergence") if g.algo == "gtopk" and usual(g, 141, "bfloat16")
    )
    said = told(
        "A seed that was trained twice counts once, by its mean: of `pairs`, seed N is N % (a whole run) and N %."
    )
    assert again.seeds == [2] and said == pytest.approx(
        [2, of_seeds(whole, LATE)[2], of_seeds(again, LATE)[2]], abs=0.0051
    )
    above, below, *deviations = told(
        "is N above twice and N below, as its seeds deviate by N points and those of `pairs` by N."
    )
    assert packed == pytest.approx([-below, above, above], abs=0.051)
    assert deviations == pytest.approx([rows[name]["± (%)"] for name in ("packed", "pairs")], abs=0.051)


def test_bfloat16_beside_float32_is_told_as_the_summaries_have_it() -> None:
    late: dict[tuple[str, str], dict[int, float]] = {}
    for group in committed_results.load().groups("convergence"):
        for precision in ("float32", "bfloat16"):
            lengths = (15, group.settings["schedule_epochs"])
            if not group.compressed and any(usual(group, epochs, precision) for epochs in lengths):
                late.setdefault((group.algo, precision), {}).update(of_seeds(group, LATE))
    gaps = [
        intervals.of_pairs([late[algo, "bfloat16"][seed] - late[algo, "float32"][seed] for seed in (0, 1)])
        for algo in ("dense", "gtopk")
    ]
    said = told("dense has N points less in bfloat16 (90 % interval -N to +N) and gTop-k N more (-N to +N):")
    assert gaps[0].mean < 0 < gaps[1].mean
    assert said == pytest.approx([part for gap in gaps for part in (abs(gap.mean), -gap.low, gap.high)], abs=0.051)


def test_bfloat16_beside_float32_on_32_nodes_is_told_as_the_summaries_have_it() -> None:
    after, _, masked, none = RULES
    both = [_by_rule(32, precision) for precision in ("bfloat16", "float32")]
    twins = {case: both[0][case].above(both[1][case]) for case in both[0].keys() & both[1].keys()}
    said = told(
        "On 32 nodes seven runs have a twin in float32 (seed 0): in bfloat16 dense has N points more, and N without "
        "momentum, Top-k without momentum N, gTop-k N, without momentum N and by the exact rule N, and clipped N; N on "
        "average, and such differences deviate by N"
    )
    order = [
        ("dense", after), ("dense", none), ("Top-k", none), ("gTop-k", after), ("gTop-k", none),
        ("gTop-k (exact rule)", none), ("gTop-k (clipped)", masked),
    ]  # fmt: skip
    assert twins.keys() == set(order) and {twin.n for twin in twins.values()} == {1}
    points = [twins[case].mean for case in order]
    assert said == pytest.approx([*points, statistics.fmean(points), statistics.stdev(points)], abs=0.051)
    assert abs(statistics.fmean(points)) < intervals.t95(6) * statistics.stdev(points) / 7**0.5


def test_gtopk_exact_beside_gtopk_is_told_as_the_summaries_have_it() -> None:
    found = committed_results.load()
    (exact,) = (g for g in _of_15_epochs("momentum", "gtopk_exact") if g.settings["momentum"] == 0.9)
    (whole,) = (g for g in found.groups("convergence") if g.algo == "gtopk" and usual(g, 141, "bfloat16"))
    own, other = of_seeds(exact, LATE), of_seeds(whole, LATE)
    assert exact.schedule == "first 15 of 141 epochs" and exact.seeds == [0, 1]
    said = told("with momentum `gtopk_exact` is N and N points below `gtopk` of the same seed")
    assert said == pytest.approx([other[seed] - own[seed] for seed in (0, 1)], abs=0.0051)


def test_where_momentum_is_best_is_told_as_the_figure_has_it() -> None:
    after, before, masked, none = RULES
    trained = [row for row in momentum.table(committed_results.load()) if row["source"] == "trained"]
    first = {
        (row["algo"], row["rule"]): row["test_accuracy"] for row in trained if (row["nodes"], row["epoch"]) == (4, 15)
    }
    many = {
        (row["algo"], row["rule"]): row["test_accuracy"]
        for row in trained
        if (row["nodes"], row["epoch"], row["precision"]) == (32, 15, "float32")
    }
    compressed = [
        name
        for name, rule in first
        if rule == after and not name.startswith("dense") and "warm-up" not in name and name != "random-k"
    ]  # which diverges with momentum, and has another rate without
    assert {"gTop-k", "Top-k", "1-bit SGD", "gTop-k exact", "gTop-k butterfly"} <= set(compressed)
    shared = _by_rule(4, "bfloat16")
    loses = {name: shared[name, none].above(shared[name, after]) for name in compressed}
    said = told(
        "Top-k and 1-bit SGD N to N points against none (of the seeds that both have, n = N).** It is the worst"
    )
    points = {name: lost.mean for name, lost in loses.items()}
    assert said == pytest.approx([min(points.values()), max(points.values()), 2], abs=0.051)
    assert {lost.n for lost in loses.values()} == {2}
    for name in compressed:
        with_any = [value for (algo, rule), value in first.items() if algo == name and rule != none]
        assert (first[name, none] > max(with_any)) == (name != "gTop-k exact"), "as well or better without"
        assert first[name, after] == min(with_any), "after aggregation is the worst"
        if (name, masked) in first:
            assert first[name, masked] > first[name, after]
    ahead_with_it = shared["dense", after].above(shared["dense", none])
    assert told("Dense is N points ahead with it (n = N)") == pytest.approx([ahead_with_it.mean, 2], abs=0.051)
    assert ahead_with_it.n == 2
    assert first["gTop-k (clipped)", masked] < first["gTop-k", after] < first["gTop-k", masked]
    by_rule = {momentum_rule(g.settings): of_seeds(g, LATE) for g in _of_15_epochs("momentum", "gtopk_exact")}
    both, *each = told("gTop-k exact, which masked momentum leaves N points ahead (n = [...]: N ahead and N behind)")
    ahead = [by_rule[masked][seed] - by_rule[none][seed] for seed in (0, 1)]
    assert [both, each[0], -each[1]] == pytest.approx([sum(ahead) / 2, *ahead], abs=0.051)
    names = ("gTop-k (exact rule)", "gTop-k butterfly", "gTop-k")
    said = told(
        "exact rule loses most by the tree (N points) and by the butterfly about as much as the paper's (N and N)"
    )
    assert (
        said == pytest.approx([points[name] for name in names], abs=0.051)
        and max(points, key=points.__getitem__) == names[0]
    )
    said = told("without density warm-up (`density_warmup=[]`) gTop-k has N % with momentum and N without (seed 0)")
    without = [100 * first["gTop-k without density warm-up", rule] for rule in (after, none)]
    assert said == pytest.approx(without, abs=0.051) and without[0] < without[1]
    assert many["gTop-k (clipped)", masked] < many["gTop-k", after]


def test_less_weight_decay_is_told_to_help_whatever_the_rule() -> None:
    after, _, masked, none = RULES
    runs = {
        (g.algo, momentum_rule(g.settings), g.settings["algo"].get("mask", "none"), g.settings["weight_decay"]): g
        for experiment, epochs in (("convergence", 141), ("momentum", 15))
        for g in committed_results.load().groups(experiment)
        if usual(g, epochs, "bfloat16") and 0 in g.seeds
        if (g.settings["algo"].get("gain") or 1.0) == 1.0 and not g.settings["algo"].get("clip")
    }
    told_of = told(
        "(`weight_decay=1e-5`) dense has N % in place of N, Top-k without momentum N in place of N, masked Top-k N in "
        "place of N, masked gTop-k N in place of N, and what that later code [...] N in place of N (means"
    )
    kinds = [
        ("dense", after, "none"),
        ("topk", none, "none"),
        ("topk", masked, "selected"),
        ("gtopk", masked, "selected"),
        ("topk", masked, "delivered"),
    ]
    own = [of_seeds(runs[*one, decay], LATE)[0] for one in kinds for decay in (1e-5, 1e-4)]
    assert told_of == pytest.approx(own, abs=0.051)
    assert max(own[::2]) == own[2], "none is ahead, too"


def test_the_quadratics_limits_are_told_as_they_were_computed() -> None:
    limits = {
        (row["rule"], row["density"]): statistics.fmean(row["limits"])
        for row in committed_results.load().summaries["quadratic"]["rows"]
    }
    said = told(
        "with momentum dense is stable up to updates, lr / (1 - momentum), N times as large as without (N times the "
        "learning rate). With momentum after aggregation that factor is N at a density of N, N at N and N at N, one "
        "entry of its N"
    )
    assert said.pop(1) == round((1 - 0.9) * limits["after aggregation", 1.0] / limits["none", 1.0], 1)
    whole, *sparse = (limits["after aggregation", at] / limits["none", at] for at in (1.0, *said[2:7:2]))
    assert said[0] == round(whole) and said[1:6:2] == pytest.approx(sparse, abs=0.0051)
    assert said[7] == 1 / said[6] == 400
    at_some = {rule: limit for (rule, density), limit in limits.items() if density == 0.01 and "random" not in rule}
    assert min(at_some, key=at_some.__getitem__).endswith("masked")


def test_masks_and_clips_are_told_as_the_table_has_them() -> None:
    rows = momentum_rules.table(committed_results.load())

    def accuracies(algorithm: str, nodes: int = 4, schedule: str = "first 15 of 141 epochs") -> dict[str, float]:
        at = [row for row in rows if row["nodes"] == nodes and row["schedule"].startswith(schedule)]
        at = [row for row in at if nodes == 4 or row["source"].endswith("float32")]
        (row,) = (row for row in at if row["algorithm"] == algorithm)
        return {name: float(str(row[name]).split(" ")[0]) for name in row if row[name] and "(n)" in name}

    after, none = "momentum after aggregation, % (n)", "no momentum, % (n)"
    masked = "before selection, masked, % (n)"
    shared = _by_rule(4, "bfloat16")
    gains = [
        shared[name, RULES[2]].above(shared[name, RULES[1]])
        for name in ("Top-k", "gTop-k butterfly", "gTop-k exact", "gTop-k")
    ]
    said = told(
        "a mask gains N points with Top-k, N with gTop-k butterfly, N with gTop-k exact and N with gTop-k (of the "
        "seeds that both have, n = N, N, N and N: undecided)"
    )
    assert said == pytest.approx([*(gain.mean for gain in gains), *(gain.n for gain in gains)], abs=0.051)
    on_32, clipped = accuracies("gTop-k", 32), "gTop-k (clipped)"
    said = told(
        "after 15 epochs it harms there (N %). On 32 nodes it has N %, where gTop-k has N with the paper's momentum "
        "and N without (float32)."
    )
    assert said == [accuracies(clipped)[masked], accuracies(clipped, 32)[masked], on_32[after], on_32[none]]
    steps = "first 150 steps"
    assert accuracies(clipped, 4, steps)[masked] > accuracies("gTop-k", 4, steps)[masked], "it helped in 150 steps"


def test_ten_times_the_density_is_told_as_the_figure_has_it() -> None:
    rows = families.table(committed_results.load())
    found = {
        (row["algo"], row["density"]): 100 * row["accuracy_of_seed_0"] for row in rows if row["accuracy_of_seed_0"]
    }
    first = told(
        "of seed 0 gTop-k has N % at 0.01 and N at 0.001, Top-k N and N, gTop-k butterfly N and N, k of k × P N "
        "and N, gTop-k by a parameter server N and N, gTop-k corrected N and N, gTop-k exact N and N, ScaleCom N and "
        "N, DGC N and N; SparDL N and N, Ok-Topk N and N and random-k, whose rate is low, N and N, where dense has N "
        "(n = N each"
    )
    algos = ("gtopk", "topk", "gtopk_butterfly", "gtopk_from_topk", "gtopk_parameter_server", "gtopk_corrected",
             "gtopk_exact", "scalecom", "dgc", "spardl", "oktopk", "randomk")  # fmt: skip
    expected = [found[algo, density] for algo in algos for density in (0.01, 0.001)]
    assert first == pytest.approx([*expected, found["dense", 1.0], 1], abs=0.051)
    gains = {algo: found[algo, 0.01] - found[algo, 0.001] for algo in algos}
    assert {algo for algo, gain in gains.items() if gain > 2.0} == {"oktopk", "randomk"}
    assert min(found["gtopk_corrected", density] for density in (0.01, 0.001)) > max(
        found["gtopk", density] for density in (0.01, 0.001)
    )
