"""Seconds in figures: what an iteration hides is not counted twice, and a model that is added shows up by itself."""

import shutil
from pathlib import Path
from typing import Any

import committed_results
import made_up_groups
import made_up_results
import pytest

from repro import figures
from repro.config import groups
from repro.figures import (
    _coverage,
    _draw,
    _times,
    authors_messages,
    dilated_iterations,
    dilated_predictions,
    lab_iterations,
    strategies,
    time_breakdown,
    tradeoff_dilated,
)
from repro.iteration_time import DILATED
from repro.report import summaries
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
    group = hiding.summaries["throughput"]["groups"][0]
    group["settings"]["batch_per_node"] = 128  # as the paper timed it
    group["machine"] = made_up_groups.MACHINE | {"gpus": ["NVIDIA H200"]}
    row = next(row for row in time_breakdown.table(hiding) if row["source"] == "measured")
    assert (row["overlap"], row["communicate_s"]) == ("on", pytest.approx(0.02 - HIDDEN_S))
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


def added(results: Results, experiment: str, like: dict[str, Any], slower: float = 2.0, **settings: Any) -> Results:
    """The results with another run of the experiment, whose messages take `slower` times as long as those of `like`."""
    times = [row | {"communicate_s": slower * row["communicate_s"], "repeats": 1} for row in like["iteration_time"]]
    times[-1] |= {"network": settings.pop("network", times[-1]["network"])}
    if "iterations_s" in times[-1]:
        times[-1]["iterations_s"] = [slower * times[-1]["iterations_s"][0]]
    other = like | {"settings": like["settings"] | settings, "iteration_time": times, "runs": ["another"]}
    groups = [*results.summaries[experiment]["groups"], other]
    return Results(results.paper, results.summaries | {experiment: {"groups": groups}}, results.reference)


@pytest.mark.parametrize(
    "settings",
    [
        {"network": "ethernet10g"},
        {"batch_per_node": 32},
        {"density": 0.01},
        {"precision": "bfloat16"},
        {"steps": 1},
        {"algo": {"name": "gtopk", "wire": "packed", "options": {}}},
        {"cluster": {"authors": "all"}},
    ],
    ids=str,
)
def test_the_papers_iterations_are_of_its_network_batch_and_density(settings: dict[str, Any]) -> None:
    made = made_up_results.everything()
    like = made.summaries["dilated"]["groups"][-1]
    assert (like["settings"]["algo"]["name"], like["settings"]["nodes"]) == ("gtopk", 32)
    more = added(made, "dilated", like, **settings)
    assert len(_times.dilated(more)) == len(_times.dilated(made)) + 1
    for name in ("speedups", "claims", "throughput", "time_breakdown"):
        (item,) = figures.load([name])
        assert item.table(more) == item.table(made)


def test_all_that_the_dilated_lab_committed_of_the_papers_node_is_as_the_paper_timed() -> None:
    rows = [row for row in _times.dilated(committed_results.load()) if _times.PLACE.items() <= row.items()]
    assert _times.on_the_papers_node(committed_results.load()) == rows and rows


def test_the_published_parts_of_32_nodes_stand_beside_runs_on_as_many() -> None:
    made = made_up_results.everything()
    like = made.summaries["authors_messages"]["groups"][0]
    for settings in ({"nodes": 8}, {"batch_per_node": 32}, {"network": "ethernet10g"}, {"steps": 1}):
        more = added(made, "authors_messages", like, **settings)
        assert authors_messages.table(more) == authors_messages.table(made)


def test_iterations_of_another_batch_or_precision_have_rows_and_a_dense_of_their_own() -> None:
    made = made_up_results.everything()
    dense, _, gtopk, _ = made.summaries["lab"]["groups"]
    more = added(made, "lab", dense, batch_per_node=128)
    more = added(added(more, "lab", gtopk, 3.0, batch_per_node=128), "lab", gtopk, 4.0, precision="bfloat16")
    before, after = lab_iterations.table(made), lab_iterations.table(more)
    published = {row["batch per node"]: row[lab_iterations.PUBLISHED] for row in after if row["algorithm"] == "gTop-k"}
    assert published[32] is None and published[128] > 1, "it was timed with 128 samples a node"
    beside = ("batch per node", "precision", lab_iterations.PUBLISHED)
    assert [{k: v for k, v in row.items() if k not in beside} for row in after[: len(before)]] == before
    gains = {
        (row["batch per node"], row["precision"]): row["over dense"] for row in after if row["algorithm"] == "gTop-k"
    }
    assert gains == {
        (32, "float32"): pytest.approx(0.51 / 0.13),
        (128, "float32"): pytest.approx(0.91 / 0.17),
        (32, "bfloat16"): None,
    }


def test_a_split_is_compared_with_dense_on_its_own_network_and_batch() -> None:
    made = made_up_results.everything()
    dense, staged = made.summaries["strategies"]["groups"]
    more = added(added(made, "strategies", dense, network="ethernet10g"), "strategies", staged, 4.0, accumulate=4)
    before, after = strategies.measured(made), strategies.measured(more)
    assert [row for row in after if row in before] == before
    fast, alone = (row for row in after if row not in before)
    assert (fast["network"], fast["over_dense"]) == ("ethernet10g", 1)
    assert (alone["stages"], alone["over_dense"]) == (2, None), "no dense run has its batch"


def test_a_density_that_was_not_predicted_is_not_drawn_beside_what_was() -> None:
    made = made_up_results.everything()
    dense, _ = made.summaries["strategies"]["groups"]
    sparse = {"algo": dense["settings"]["algo"] | {"name": "gtopk", "sparse": True}}
    assert len(strategies.measured(added(made, "strategies", dense, density=0.001, **sparse))) == 3
    assert len(strategies.measured(added(made, "strategies", dense, density=0.01, **sparse))) == 2


def test_a_planner_chooses_among_iterations_of_one_wire() -> None:
    made = made_up_results.everything()
    before = dilated_predictions.table(made)
    more = made
    for like in made.summaries["dilated"]["groups"][-3::2]:  # Top-k and gTop-k on 32 nodes
        more = added(more, "dilated", like, network="ethernet10g")
    after = dilated_predictions.table(more)
    assert [row for row in after if row in before[:-2]] == before[:-2]
    (other,) = [row for row in after[:-2] if row not in before]
    assert (other["network"], other["candidates"]) == ("10 Gbps Ethernet", 2)


def test_iterations_in_buckets_are_not_among_those_that_the_paper_timed() -> None:
    paper = made_up_results.nothing().paper
    plain, other = (made_up_groups.group("resnet20", "dense", nodes=4) for _ in range(2))
    for one in (plain, other):
        one["settings"] |= {"batch_per_node": summaries.timed_batch(paper, "resnet20")}
        one["machine"] = one["machine"] | {"gpus": ["A GPU"]}
        one["iteration_time"] = [time | {"source": "measured"} for time in one["iteration_time"][:1]]
    other["settings"] |= {"overlap": "on", "bucket_mb": 25.0}
    assert len(_times.on_gpus(Results(paper, {"throughput": {"groups": [plain]}}))) == 1
    assert len(_times.on_gpus(Results(paper, {"throughput": {"groups": [plain, other]}}))) == 1
