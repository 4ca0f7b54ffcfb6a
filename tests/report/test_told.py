"""What docs/paper.md and docs/accuracy.md tell by hand of whole runs holds: it is what the tables have."""

import functools
import statistics

import committed_results
import pytest
from told_in_paper import told

from repro.figures import claims, gap_over_moves, whole_schedules
from repro.report import reference_curves
from repro.tables import Row

END, DROPPED, BELOW, LOSS = "end (%)", "after the first drop (%)", "below dense (points)", "training loss"
HIGH, EARLY = "high rate (%)", "first 5 epochs (%)"
MOVES, SENT = "times an entry moves", "a node's entry is sent"


@functools.cache
def rows() -> list[Row]:
    return whole_schedules.table(committed_results.load())


def row(algorithm: str, nodes: int = 4, data: str = "CIFAR-10 (JPEG folder)", **more: object) -> Row:
    """Returns the only row of these, of ResNet-20 and the paper's density and momentum where `more` does not say."""
    sparse = {} if algorithm == "dense" else {"density": 0.001}
    usual = {"model": "ResNet-20", "momentum": "momentum after aggregation", **sparse}
    wanted = usual | {"algorithm": algorithm, "nodes": nodes, "data": data} | more
    source = wanted.pop("source", "trained, bfloat16")
    (found,) = (one for one in rows() if one["source"] == source and all(one[name] == wanted[name] for name in wanted))
    return found


def test_the_ends_of_each_seed_on_4_nodes_are_told_as_the_table_has_them() -> None:
    dense, topk, gtopk = (row(name) for name in ("dense", "Top-k", "gTop-k"))
    ends = told("seeds 0, 1 and 2 of dense end at N, N and N %, of gTop-k at N, N and N %: the interval")
    assert ", ".join(f"{end:.2f}" for end in ends) == ", ".join(one["each seed's end (%)"] for one in (dense, gtopk))
    losses = told("its drops (a loss of N, dense N, Top-k N)")
    assert losses == pytest.approx([one[LOSS] for one in (gtopk, dense, topk)], abs=0.00051)
    assert gtopk[BELOW] == pytest.approx(0.5, abs=0.1), "half a point below dense"
    for sparse in (topk, gtopk):  # within a point at the end, behind in the first epochs, level at the high rate
        assert 0 < sparse[BELOW] < 1 and sparse[EARLY] < dense[EARLY] - 5
        assert sparse[HIGH] == pytest.approx(dense[HIGH], abs=0.5)
    assert gtopk[LOSS] > 1.1 * max(dense[LOSS], topk[LOSS])


def test_the_high_rate_is_told_as_the_table_has_it() -> None:
    said = told("ResNet-20 is nearly level (N to N points below), VGG-16 is not (Top-k N and gTop-k N below)")
    groups = [{}, {"data": "CIFAR-10"}, {"data": "CIFAR-10", "model": "VGG-16"}]
    below = [row("dense", **of)[HIGH] - row(name, **of)[HIGH] for of in groups for name in ("Top-k", "gTop-k")]
    assert said == pytest.approx([min(below[:4]), max(below[:4]), *below[4:]], abs=0.051)


def test_fewer_entries_are_told_as_the_table_has_them() -> None:
    usual, half, tenth = (row("gTop-k", density=density) for density in (0.001, 0.0005, 0.0001))
    assert usual[LOSS] < half[LOSS] < tenth[LOSS]
    entries, moves, below = told(
        "At 0.0001, N entries a step, an entry moves N times in 141 epochs, and gTop-k ends N points below"
    )
    assert entries == int(0.0001 * 269_722)
    assert [moves, below] == pytest.approx([tenth[MOVES], tenth[BELOW]], abs=0.051)
    assert told("in eight times the steps, and N points are lost") == [below]
    assert row("gTop-k", 32)[MOVES] == pytest.approx(moves, abs=0.2), "as often"


def test_k_of_all_that_are_gathered_end_where_the_table_has_them() -> None:
    said = told(
        "*k of k × P*, `experiment=select_from_k_times_P`), end at N %, gTop-k at N % and Top-k at N % (n = N each)"
    )
    assert said == pytest.approx([*(row(name)[END] for name in ("k of k × P", "gTop-k", "Top-k")), 3], abs=0.0051)
    assert {row(name)["n"] for name in ("k of k × P", "gTop-k", "Top-k")} == {3}
    claim = next(one for one in claims.table(committed_results.load()) if "k of the k × P entries" in one["claim"])
    assert claim["verdict"] == "reproduced"


def test_the_tree_and_no_momentum_end_where_gtopk_does() -> None:
    ends = [row("gTop-k"), row("k of k × P"), row("gTop-k", momentum="no momentum")]
    assert max(one[END] for one in ends) - min(one[END] for one in ends) < 0.5
    assert ends[2][HIGH] > row("dense")[HIGH] + 0.5, "it leads at the high rate"
    assert ends[2][LOSS] == pytest.approx(row("dense")[LOSS], abs=0.005), "fits as well as dense"


def test_what_the_images_cost_is_told_as_the_table_has_it() -> None:
    (lost,) = told("dense with the JPEGs has N points less after the first drop")
    original = row("dense", data="CIFAR-10")
    assert lost == pytest.approx(original[DROPPED] - row("dense")[DROPPED], abs=0.051)
    every = [
        row(name, data="CIFAR-10")[stretch] - row(name)[stretch]
        for name in ("dense", "Top-k", "gTop-k")
        for stretch in (DROPPED, END)
    ]
    assert told("all algorithms lose N to N points by") == pytest.approx([min(every), max(every)], abs=0.051)
    others = (row(name, 8, "CIFAR-10", source="reference", **{"batch per node": 16}) for name in ("dense", "Top-k"))
    for own, other in zip((original, row("Top-k", data="CIFAR-10")), others, strict=True):
        assert own[DROPPED] == pytest.approx(other[DROPPED], abs=1), "where others are"


def test_vgg16_is_told_as_the_table_has_it() -> None:
    dense, gtopk = (row(name, data="CIFAR-10", model="VGG-16") for name in ("dense", "gTop-k"))
    other = row("dense", data="CIFAR-10", model="VGG-16", source="reference")
    curves = [
        run["test_accuracy"]
        for run in reference_curves.as_large(committed_results.load().reference, "vgg16", 512, 0.1)
        if (reference_curves.algo(run), run["nodes"]) == ("dense", 4)
    ]
    trained = [
        group
        for group in committed_results.load().groups("convergence")
        if (group.model, group.algo) == ("vgg16", "dense")
    ]
    (weights,) = (group for group in trained if group.settings.get("weight_decay_of") == "weights")
    (usual,) = (group for group in trained if group.whole)
    early, late = range(6, 11), range(11, 16)
    ours = [
        statistics.fmean(100 * group.at(epoch)["test_accuracy"] for epoch in epochs)
        for group in (weights, usual)
        for epochs in (early, late)
    ]
    theirs = [statistics.fmean(curve[epoch - 1] for epoch in epochs) for epochs in (early, late) for curve in curves]
    said = told(
        "VGG-16's dense has N % by the mean of epochs 6 to 10 and N % by that of 11 to 15, all decaying N and N, and "
        "the two reference curves N and N, then N and N (the originals, bfloat16, n = N)"
    )
    assert said == pytest.approx([*ours, *theirs, weights.n], abs=0.0051)
    assert (weights.settings["lr_warmup_epochs"], weights.settings["lr_warmup_from"]) == (5, "zero")
    assert told("With VGG-16 it ends N points below dense (n = N)") == [pytest.approx(gtopk[BELOW], abs=0.0051), 1]
    assert told("Its dense is N points lower") == pytest.approx([other[DROPPED] - dense[DROPPED]], abs=0.0051)
    assert other[HIGH] - dense[HIGH] > other[DROPPED] - dense[DROPPED], "and more at the high rate"


def test_the_decay_of_weights_alone_is_told_as_the_summaries_have_it() -> None:
    found = committed_results.load()
    dense = [
        group
        for group in found.groups("convergence")
        if (group.model, group.algo, group.nodes, group.data) == ("resnet20", "dense", 4, "cifar10")
    ]
    (weights,) = (group for group in dense if group.settings.get("weight_decay_of") == "weights")
    (usual,) = (group for group in dense if group.whole)
    assert (weights.settings["lr_warmup_epochs"], weights.settings["precision"], weights.n) == (5, "bfloat16", 1)
    (curve,) = (
        run["test_accuracy"]
        for run in reference_curves.as_large(found.reference, "resnet20", 128, 0.1)
        if reference_curves.algo(run) == "dense"
    )
    said = told("has N % by the mean of epochs 20 to 40, N % with all decaying, and the reference's N %")
    own = [
        statistics.fmean(100 * one.at(epoch)["test_accuracy"] for epoch in range(20, 41)) for one in (weights, usual)
    ]
    assert said == pytest.approx([*own, statistics.fmean(curve[19:40])], abs=0.0051)


def test_32_nodes_are_told_as_the_table_has_them() -> None:
    dense, topk, gtopk = (row(name, 32) for name in ("dense", "Top-k", "gTop-k"))
    none = row("gTop-k corrected", 32, momentum="no momentum")
    said = told("end below dense:** Top-k by N points, gTop-k by N, and without momentum by N (n = N).")
    assert said == pytest.approx([topk[BELOW], gtopk[BELOW], none[BELOW], 1], abs=0.051)
    again = told("end below dense:** Top-k by N points, gTop-k without momentum by N, gTop-k by N (n = N each).")
    assert again == [said[0], said[2], said[1], 1]
    ends = told("On 32 nodes it stays: N % without momentum and N % with it (n = 1)")
    assert ends == pytest.approx([none[END], gtopk[END]], abs=0.0051)
    assert [one["n"] for one in (dense, topk, gtopk, none)] == [1, 1, 1, 1]


def test_a_density_that_grows_with_the_nodes_is_told_as_the_table_has_it() -> None:
    kept = row("gTop-k corrected (lr 4)", 32, density=0.032, momentum="no momentum")
    ahead, times, n = told("it ends N points above dense, with a Nth of its bytes (n = N,")
    (own,) = (g for g in committed_results.load().groups("many_nodes") if g.settings["density"] == 0.032 and g.whole)
    (dense,) = (g for g in committed_results.load().groups("convergence") if (g.algo, g.nodes) == ("dense", 32))
    assert own.busiest_bytes and dense.busiest_bytes
    assert (ahead, times, n) == (pytest.approx(-kept[BELOW]), round(dense.busiest_bytes / own.busiest_bytes), kept["n"])
    (large,) = (g for g in committed_results.load().groups("many_nodes") if g.algo == "dense" and g.whole)
    end, usual, ours = (100 * g.curve[-1]["test_accuracy"] for g in (large, dense, own))
    over = told("Dense with updates as large (`lr=N`) ends N points above dense and N above gTop-k (n = N")
    assert over == pytest.approx([large.settings["lr"], end - usual, end - ours, large.n], abs=0.0051)
    short = told("ends [N points above dense](#N-nodes) on N nodes and N below dense with updates as large (n = N each")
    assert short == pytest.approx([ours - usual, 32, 32, end - ours, 1], abs=0.051)
    (pair,) = told("in N bytes a pair (`algo.wire=gaps-bf16`)")
    assert pair == pytest.approx(own.busiest_bytes / (own.per_step["messages"] * own.per_step["k"]), abs=0.051)
    gains = [
        statistics.fmean(
            100 * (one["test_accuracy"] - dense.at(one["epoch"])["test_accuracy"])
            for one in own.curve
            if first <= one["epoch"] <= last
        )
        for first, last in ((11, 15), (60, 80), (84, 141))
    ]
    assert gains[0] > 1 and gains[1] < -1 and gains[2] > 0, "a lead that is lost, and comes back after the drop"


def test_what_tells_whole_runs_apart_is_told_as_the_figure_has_it() -> None:
    from scipy.stats import spearmanr  # here, as it takes a second

    whole = [one for one in gap_over_moves.table(committed_results.load()) if one["whole"]]
    own = [one for one in whole if one["source"] == "trained"]
    found = [
        spearmanr([one[x] for one in of], [one["below_dense"] for one in of])[0]
        for of in (whole, own)
        for x in ("sent", "moves")
    ]
    said = told(
        "over the N whole runs, ours and the reference curves, the rank correlation of the gap with it is N, with the "
        "moves N, and over our own N N and N,"
    )
    assert [said[0], said[3]] == [len(whole), len(own)]
    assert [*said[1:3], *said[4:]] == pytest.approx(found, abs=0.0051)
