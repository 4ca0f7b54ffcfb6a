"""Whole schedules, their first epochs and compressed ones: what shares a panel, and how it is told apart."""

import dataclasses
from typing import Any

import committed_results
import made_up_groups
import made_up_results
import matplotlib.style
import pytest

from repro import figures
from repro.config.compose import compose
from repro.figures import _curves, _legend, convergence
from repro.report import page_parts, summaries
from repro.report.as_published import as_published
from repro.report.group import Group
from repro.report.summaries import Results


def run(algo: str, epochs: int, model: str = "resnet20", scaled: bool = False) -> dict[str, Any]:
    """Five epochs of a curve, whatever `epochs` says."""
    made = made_up_groups.group(model, algo)
    made["settings"] |= {"epochs": epochs, "scale_schedule": scaled}
    made["runs"] = [f"{made['runs'][0]}-{epochs}-{scaled}"]
    return made


def results(*groups: dict[str, Any]) -> Results:
    return Results(summaries.paper(), {"convergence": {"groups": groups}}, made_up_results.REFERENCE)


def schedules(*groups: dict[str, Any]) -> set[tuple[str, str]]:
    rows = convergence.table(results(*groups))
    return {(row["algo"], row["schedule"]) for row in rows if row["source"] == "trained"}


def test_runs_of_the_schedule_as_it_is_go_before_compressed_ones() -> None:
    compressed = [run(algo, 5, scaled=True) for algo in ("dense", "gtopk")]
    assert schedules(*compressed) == {(a, "schedule of 141 epochs compressed to 5") for a in ("dense", "gtopk")}
    assert schedules(*compressed, run("gtopk", 15)) == {("gtopk", "first 15 of 141 epochs")}
    both = [run("gtopk", 15), run("gtopk", 141), run("dense", 15)]
    assert schedules(*compressed, *both) == {("gtopk", "141 epochs"), ("dense", "first 15 of 141 epochs")}


def test_the_reference_stands_beside_the_schedule_as_it_is_alone() -> None:
    def sources(*groups: dict[str, Any]) -> set[tuple[str, str]]:
        return {(row["source"], row["algo"]) for row in convergence.table(results(*groups))}

    assert sources(run("gtopk", 5, scaled=True)) == {("trained", "gtopk")}
    assert sources(run("gtopk", 15)) == {("trained", "gtopk"), ("reference", "dense"), ("reference", "topk")}
    assert sources() == set()


@pytest.mark.parametrize(
    "groups",
    [
        [run("gtopk", 141)],
        [run("dense", 15)],
        [run("gtopk", 141), run("dense", 15), run("topk", 5, "vgg16", scaled=True)],
        [run("gtopk", 95, "alexnet")],
    ],
    ids=["one whole run", "one short run", "whole, short and compressed", "a model without reference"],
)
def test_it_draws_what_is_there(groups: list[dict[str, Any]]) -> None:
    (item,) = figures.load(["convergence"])
    rows = item.table(results(*groups))
    assert figures.render(item, rows, ["png"])["png"].startswith(b"\x89PNG")


def test_the_first_epochs_look_unlike_a_whole_schedule() -> None:
    with matplotlib.style.context(figures.STYLE):
        figure = convergence.draw(convergence.table(results(run("gtopk", 141), run("dense", 15))))
    lines = {str(line.get_label()): line for axes in figure.axes for line in axes.get_lines()}
    assert {"gTop-k", "dense, first epochs", "reference, dense", "reference, Top-k"} <= set(lines)
    assert lines["dense, first epochs"].get_markerfacecolor() == "white" != lines["gTop-k"].get_markerfacecolor()
    assert lines["dense, first epochs"].get_linewidth() < lines["gTop-k"].get_linewidth()
    note = " ".join(_legend.notes_of(figure))
    assert "first 15 of 141 epochs, float32" in note and "141 epochs, float32" in note


def test_each_number_of_nodes_has_a_column_and_the_first_has_the_reference() -> None:
    """Curves of P = 4 and 32 were one line, from the end of one back to the beginning of the other."""
    many = [made | {"runs": [f"{made['runs'][0]}-32"]} for made in (run("dense", 141), run("gtopk", 141))]
    many = [made | {"settings": made["settings"] | {"nodes": 32}} for made in many]
    drawn = convergence.draw(convergence.table(results(*many, run("dense", 141), run("gtopk", 141))))
    panels = [panel for panel in drawn.axes if panel.get_xlabel() == "epoch"]
    titles = [panel.get_title() for panel in drawn.axes if panel.get_title()]
    assert titles == ["ResNet-20, P = 4", "ResNet-20, P = 32"]
    curves = [[line for line in panel.get_lines() if "rate" not in str(line.get_label())] for panel in panels]
    for of_panel in curves:
        assert all(list(line.get_xdata()) == sorted(set(line.get_xdata())) for line in of_panel)
    labels = [{str(line.get_label()) for line in of_panel} for of_panel in curves]
    assert [any("reference" in label for label in of_panel) for of_panel in labels] == [False, False, True, False]
    assert all({"dense", "gTop-k"} <= of_panel for of_panel in labels)


def changed(made: dict[str, Any], **settings: Any) -> dict[str, Any]:
    data = settings.pop("data", made["data"])
    name = " ".join(map(str, (*settings.values(), data)))
    return made | {"runs": [f"{made['runs'][0]}-{name}"], "settings": made["settings"] | settings, "data": data}


@pytest.mark.parametrize(
    ("other", "told"),
    [({"precision": "bfloat16"}, ("bfloat16", "float32")), ({"data": "cifar10"}, ("CIFAR-10", "JPEG"))],
    ids=["precision", "data"],
)
def test_unlike_data_or_precision_share_no_panel(other: dict[str, Any], told: tuple[str, str]) -> None:
    """The last dense of the file, of other images, stood beside sparse runs, and the one like them was gone."""
    alike = [run("dense", 141), run("gtopk", 141)]
    rows = convergence.table(results(*alike, changed(run("dense", 141), **other), changed(run("topk", 15), **other)))
    titles = [panel.get_title() for panel in convergence.draw(rows).axes if panel.get_title()]
    assert len(titles) == 2 and all(any(word in title for title in titles) for word in told)
    kinds = {(row["algo"], row["data"], row["precision"]) for row in rows if row["source"] == "trained"}
    assert len(kinds) == 4
    short = [changed(run(algo, 15), **other) for algo in ("dense", "topk")]
    rows = convergence.table(results(*alike, *short))
    assert {row["algo"] for row in rows if row["source"] == "trained"} == {"dense", "gtopk"}, "shorter ones alone"
    rows = convergence.table(results(*alike, changed(run("dense", 96), **other)))
    assert "first 96 of 141 epochs" in {row["schedule"] for row in rows if row["source"] == "trained"}


def test_encoded_images_have_a_panel_until_all_their_runs_got_as_far_on_the_originals() -> None:
    encoded = [run("dense", 96), run("gtopk", 96)]
    originals = [changed(run(algo, 141), data="cifar10") for algo in ("dense", "gtopk")]

    def shown(*groups: dict[str, Any]) -> set[str]:
        return {row["data"] for row in convergence.table(results(*groups)) if row["source"] == "trained"}

    assert shown(*encoded, originals[0]) == {encoded[0]["data"], "cifar10"}
    assert shown(*encoded, *originals) == {"cifar10"}
    assert shown(*encoded, originals[0], changed(run("gtopk", 95), data="cifar10")) == {encoded[0]["data"], "cifar10"}


def test_a_run_that_stops_after_some_steps_counts_by_its_epochs() -> None:
    """One of two steps had a column of its own, and took the place of the reference curves."""
    tried = changed(run("dense", 141), steps=2, nodes=2, batch_per_node=4)
    tried["curve"] = [row | {"epoch": 0.01} for row in tried["curve"][:1]]
    rows = convergence.table(results(tried, run("dense", 141), run("gtopk", 141)))
    assert {row["source"] for row in rows} == {"trained", "reference"}
    beside = changed(run("topk", 141), steps=2)
    beside["curve"], beside["data"] = tried["curve"], "digits"
    rows = convergence.table(results(beside, run("dense", 141), run("gtopk", 141)))
    assert "digits" not in {row["data"] for row in rows}


def test_another_density_is_another_curve_with_its_label() -> None:
    """Both were one line, from the end of one back to the beginning of the other."""
    groups = run("gtopk", 141), changed(run("gtopk", 141), density=0.01, density_warmup=[]), run("dense", 141)
    figure = convergence.draw(convergence.table(results(*groups)))
    drawn = [line for panel in figure.axes for line in panel.get_lines()]
    assert {"gTop-k, ρ = 0.001", "gTop-k, ρ = 0.01", "dense"} <= {str(line.get_label()) for line in drawn}
    for line in drawn:
        if "rate" not in str(line.get_label()):
            assert list(line.get_xdata()) == sorted(set(line.get_xdata()))


def test_the_minutes_are_those_of_the_published_throughput() -> None:
    paper = summaries.paper()
    rows = [row for row in convergence.table(results(run("gtopk", 141), run("gtopk_butterfly", 141)))]
    last = {row["algo"]: row["published_s"] for row in rows if row["epoch"] == 5}
    assert last["gtopk"] == pytest.approx(500 * 32 / paper["throughput_per_node"]["resnet20"]["gtopk"][4])
    assert last["gtopk_butterfly"] is None, "nothing was published of it"


def test_drops_are_marked_on_curves_over_minutes_each_at_its_own_time() -> None:
    """Dotted lines were on the rows over epochs alone: over minutes accuracy jumped where nothing said why."""
    groups = [changed(run(algo, 141), lr_drops=[2.5, 4.0]) for algo in ("dense", "gtopk")]
    rows = [row for row in convergence.table(results(*groups)) if row["source"] == "trained"]
    figure = convergence.draw(rows)
    (panel,) = (panel for panel in figure.axes if "minutes" in panel.get_xlabel())
    ticks = {
        algo: (list(line.get_xdata()), list(line.get_ydata()))
        for algo, line in zip(
            ("dense", "gtopk"), (one for one in panel.get_lines() if one.get_label() == _curves.DROP), strict=True
        )
    }
    paper = summaries.paper()["throughput_per_node"]["resnet20"]
    for algo, behind in (("dense", 0), ("gtopk", 2)):
        epoch_min = 100 * 32 / paper[algo][4] / 60
        xs, ys = ticks[algo]
        assert xs == pytest.approx([2.5 * epoch_min, 4 * epoch_min])
        assert ys == pytest.approx([25 - behind, 40 - behind]), "on the curve"
    assert ticks["dense"][0] != ticks["gtopk"][0]
    others = [panel for panel in figure.axes if panel.get_xlabel() == "epoch"]
    assert others and not any(line.get_label() == _curves.DROP for one in others for line in one.get_lines())
    assert any(line.startswith("Ticks under curves over minutes") for line in _legend.notes_of(figure))
    before = convergence.draw(convergence.table(results(run("dense", 15))))
    assert not any(line.startswith("Ticks") for line in _legend.notes_of(before)), "it ends before the first drop"


VARIANTS: list[dict[str, Any]] = [
    {"algo": {"wire": "packed"}},
    {"algo": {"correction": 0.9, "mask": "selected"}},
    {"algo": {"clip": 1.0}},
    {"algo": {"boost": 1.01}},
    {"algo": {"gain": 10.0}, "momentum": 0.0},
    {"algo": {"options": {"residual": "exact"}}},
    {"algo": {"options": {"route": "butterfly"}}},
    {"algo": {"selector": "sampled"}},
    {"scope": "bucket"},
    {"momentum": 0.0, "lr": 1.0},
]


def variant(of: dict[str, Any], epochs: int, algo: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    made = of["settings"] | {"epochs": epochs, "algo": of["settings"]["algo"] | (algo or {})} | settings
    return of | {"settings": made, "runs": ["a variant"]}


@pytest.mark.parametrize("changed", VARIANTS, ids=str)
def test_a_variant_of_gtopk_does_not_stand_for_it(changed: dict[str, Any]) -> None:
    """It had been drawn in its place, and named twice in the README, both times as gTop-k."""
    plain = [run("dense", 141), run("gtopk", 15)]
    beside = results(*plain, variant(plain[1], 141, **changed))
    assert convergence.table(beside) == convergence.table(results(*plain))
    whole = [run("dense", 141), run("gtopk", 141)]
    others = variant(whole[1], 141, **changed), variant(whole[1], 141, density=0.01)
    assert page_parts.status(results(*whole, *others), "") == page_parts.status(results(*whole), "")
    for of in (made_up_results.everything().summaries["convergence"]["groups"], [*whole, run("topk", 141)]):
        groups = [Group(**one) for one in of]
        assert all(as_published(group.settings) for group in groups)
        assert not as_published(variant(of[2], 141, **changed)["settings"])


def test_a_whole_run_at_another_rate_or_batch_does_not_stand_for_the_usual_one() -> None:
    plain = [run("dense", 141), run("gtopk", 15)]
    assert convergence.table(results(*plain, variant(plain[1], 141, lr=0.05))) == convergence.table(results(*plain))
    large = convergence.table(results(*plain, variant(plain[1], 141, accumulate=4)))
    assert {row["batch_per_node"] for row in large if row["source"] == "trained"} == {32, 128}


def test_what_the_file_of_an_algorithm_says_is_no_variant_of_it() -> None:
    names = ("families", "density_sensitivity", "batch_sensitivity", "language", "select_from_k_times_P")
    committed = [group for name in names for group in committed_results.load().groups(name)]
    assert len({group.algo for group in committed}) > 20
    others = {group.algo for group in committed if not as_published(group.settings)}
    assert not others, "each is as the defaults of today have it"
    (config,) = compose(["algo=gtopk_corrected"])
    assert as_published(dataclasses.asdict(config))


def test_minutes_say_at_what_batch_each_network_was_timed_and_which_way_they_err() -> None:
    """Said was batch 128 of all, and too few minutes with any other."""

    def said(*batches: tuple[str, int]) -> str:
        made = [made_up_groups.group(model, "dense", batch=batch) for model, batch in batches]
        item = next(item for item in figures.load() if item.name == "convergence")
        _, notes = figures.drawn(item, item.table(results(*made)))
        return next(note for note in notes if note.startswith("Minutes"))

    usual = said(("resnet20", 128), ("vgg16", 128))
    assert "timed at batch 128 per node. An algorithm" in usual
    mixed = said(("resnet20", 32), ("vgg16", 128), ("alexnet", 256), ("resnet50", 64))
    assert "batches per node: 128 (ResNet-20 and VGG-16), 64 (AlexNet), 256 (ResNet-50). " in mixed
    assert (
        "smaller batch of ResNet-20 and ResNet-50 a sample needs more exchanges, so that the minutes are too few"
        in mixed
    )
    assert "larger batch of AlexNet a sample needs fewer exchanges, so that the minutes are too many" in mixed
