"""Seconds in figures: what an iteration hides is not counted twice, and a model that is added shows up by itself."""

import shutil
from pathlib import Path
from typing import Any

import made_up_groups
import made_up_results
import pytest

from repro import figures
from repro.config import groups
from repro.figures import _coverage, _draw, _times, dilated_iterations, lab_iterations, time_breakdown, tradeoff_dilated
from repro.iteration_time import DILATED
from repro.report.summaries import Results

HIDDEN_S = 0.015


@pytest.fixture
def hiding() -> Results:
    """gTop-k takes 0.1 + 0.01 + 0.02 s, of which it hides HIDDEN_S; dense hides nothing."""
    groups: list[dict[str, Any]] = [
        made_up_groups.measured(made_up_groups.group("resnet20", "gtopk", nodes=32), "on", HIDDEN_S),
        made_up_groups.group("resnet20", "dense", nodes=32),
    ]
    return Results(made_up_results.nothing().paper, {name: {"groups": groups} for name in ("throughput", "lab")})


def test_rates_and_efficiency_are_of_the_iteration_as_it_took(hiding: Results) -> None:
    ours = {row["algo"]: row for row in _times.of_experiment(hiding, "throughput")}
    assert ours["gtopk"]["samples_per_s"] == pytest.approx(32 / (0.13 - HIDDEN_S))
    assert ours["gtopk"]["efficiency"] == pytest.approx(0.1 / (0.13 - HIDDEN_S))
    assert ours["dense"]["samples_per_s"] == pytest.approx(32 / 0.51)


def test_the_labs_iterations_are_as_long_as_they_took(hiding: Results) -> None:
    found = {row["algorithm"]: row for row in lab_iterations.table(hiding)}
    assert found["gTop-k"]["iteration (ms)"] == pytest.approx(1e3 * (0.13 - HIDDEN_S))
    assert found["gTop-k"]["communicate (ms)"] == pytest.approx(20)


def test_an_iteration_of_the_lab_is_compared_with_dense_on_its_own_network() -> None:
    """On the faster network communication takes a tenth: of dense 0.04 of 0.15 s, of gTop-k 0.002 of 0.112 s."""
    runs = [made_up_groups.on_both_networks(made_up_groups.group("resnet20", a)) for a in ("dense", "gtopk")]
    rows = lab_iterations.table(Results(made_up_results.nothing().paper, {"lab": {"groups": runs}}))
    gains = {row["network"]: row["over dense"] for row in rows if row["algorithm"] == "gTop-k"}
    assert gains == {
        "1 Gbps Ethernet": pytest.approx(0.51 / 0.13),
        "10 Gbps Ethernet": pytest.approx(0.15 / 0.112),
    }


def test_the_parts_of_the_breakdown_are_what_an_iteration_waits_for(hiding: Results) -> None:
    hiding.summaries["throughput"]["groups"][0]["machine"] = made_up_groups.MACHINE | {"gpus": ["NVIDIA H200"]}
    row = next(row for row in time_breakdown.table(hiding) if row["source"] == "measured")
    assert row["communicate_s"] == pytest.approx(0.02 - HIDDEN_S)
    panels = time_breakdown.draw([row]).axes
    assert [text.get_text() for text in panels[0].texts] == [f"{0.13 - HIDDEN_S:.3g} s"]


def test_a_new_model_is_in_the_figures_without_another_edit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copytree(groups.conf_folder(), tmp_path / "conf")
    (tmp_path / "conf" / "model" / "mynet.yaml").write_text("# @package _global_\nmodel:\n  name: mynet\n")
    monkeypatch.setattr(groups, "conf_folder", lambda: tmp_path / "conf")
    assert _draw.models()[: len(_draw.PAPER)] == [*_draw.PAPER] and "mynet" in _draw.models()
    data = made_up_results.everything()
    for name in ("convergence", "throughput", "dilated"):
        own = [group for group in data.summaries[name]["groups"] if group["settings"]["model"]["name"] == "resnet20"]
        data.summaries[name]["groups"] += [
            group | {"settings": group["settings"] | {"model": {"name": "mynet", "options": {}}}} for group in own
        ]
    items = {item.name: item for item in figures.load()}
    claims = {row["claim"] for row in items["claims"].table(data)}
    assert "mynet: gTop-k converges like dense" not in claims  # the paper claims nothing of it
    for name in ("accuracies", "settings", "speedups", "throughput_timed_here"):
        assert "mynet" in {row["model"] for row in items[name].table(data)}
    for name in ("convergence", "throughput", "time_breakdown"):
        item = items[name]
        assert item.draw is not None
        titles = [axes.get_title() or axes.get_title("left") for axes in item.draw(item.table(data)).axes]
        assert any(title.startswith("mynet") for title in titles)


def test_what_of_a_sweep_was_measured_is_counted_from_its_file() -> None:
    """By number of nodes 11 iterations a model, 5 of them of `node=paper` and not overlapped; of the LSTM 6 and 1."""
    place = {"node": "paper", "overlap": "off"}
    of_paper = [cell for cell in _coverage.cells("dilated") if place.items() <= cell.items()]
    assert (len(_coverage.cells("dilated")), len(of_paper)) == (4 * (4 * 11 + 6), 4 * (4 * 5 + 1))
    some = [cell for cell in of_paper if cell["nodes"] == 32 or (cell["nodes"], cell["model"]) == (8, "vgg16")][:-2]
    assert _coverage.said(some, "dilated", lambda cell: place.items() <= cell.items()) == (
        "Measured: 24 of 84 iterations drawn here of experiment=dilated's 200; "
        "19 of 21 on 32 nodes (ResNet-20, VGG-16, AlexNet 4 of 5, ResNet-50), 0 of 21 on 16 nodes, "
        "5 of 21 on 8 nodes (VGG-16), 0 of 21 on 4 nodes."
    )
    assert _coverage.said([], "dilated").startswith(
        "Measured: 0 of 200 iterations of experiment=dilated; 0 of 50 on 32"
    )


def test_gains_are_over_the_best_exact_iteration_with_compress_and_without() -> None:
    rows = tradeoff_dilated.table(made_up_results.everything())
    ours = {(row["model"], row["algo"], row["gbps"]): row for row in rows if row["source"] != "published"}
    one = ours["vgg16_imagenet", "gtopk", 10]  # dense takes 0.1 + 0.4 s, gTop-k 0.1 + 0.05 + 0.002
    assert one["gain"] == pytest.approx(0.5 / 0.102) and one["gain_with_compress"] == pytest.approx(0.5 / 0.152)
    assert "latency not held" in ours["resnet50", "ddp", 1]["source"]
    theirs = {(row["algo"], row["gbps"]): row["gain"] for row in rows if row["source"] == "published"}
    assert theirs["bytegrad", 100] == pytest.approx(21_800 / 9_700) and theirs["claim", 10] == 1.95


def test_dense_is_decomposed_and_what_backward_hides_is_drawn_inside_of_compute() -> None:
    rows = [row for row in time_breakdown.table(made_up_results.everything()) if row["algo"] == "dense"]
    plain, beside = (
        next(row for row in rows if (row["overlap"], row["source"]) == (o, DILATED)) for o in ("off", "on")
    )
    assert plain["communicate_s"] == pytest.approx(0.44) and plain["hidden_s"] == 0
    assert beside["communicate_s"] == pytest.approx(0.34) and beside["hidden_s"] == pytest.approx(0.1)
    (panel,) = time_breakdown.draw([beside]).axes
    left, width = (panel.patches[-1].get_x(), panel.patches[-1].get_width())
    assert left + width == pytest.approx(100 * 0.11 / 0.45) and width == pytest.approx(100 * 0.1 / 0.45)


def test_an_iteration_of_the_lab_may_be_timed_on_a_processor_without_family() -> None:
    """The kernel of an ARM machine gives neither vendor nor family."""
    groups = [made_up_groups.dilated(made_up_groups.group("resnet20", a), "off") for a in ("topk", "gtopk", "dense")]
    for group, processor in zip(groups, ({"name": "aarch64"}, {"extensions": ["asimd"]}, {}), strict=True):
        group["machine"] = made_up_groups.MACHINE | {"processor": processor}
        group["iteration_time"] = [time | {"node": "paper_compute"} for time in group["iteration_time"]]
    rows = dilated_iterations.table(Results(made_up_results.nothing().paper, {"dilated": {"groups": groups}}))
    assert {row["algorithm"]: row["compress timed on"] for row in rows} == {
        "Top-k": "aarch64", "gTop-k": None, "dense": None
    }  # fmt: skip
