"""The reference curves that stand beside a run: same model, batch and rate, as many nodes or nearly so."""

import dataclasses

import committed_results

from repro.config.compose import compose
from repro.report import reference_curves

RUNS = committed_results.load().reference


def jobs(model: str, batch: int, nodes: int, lr: float = 0.1) -> set[int]:
    return {run["job"] for run in reference_curves.nearest(RUNS, model, batch, lr, nodes)}


def test_the_nearest_number_of_nodes_and_all_its_repeats() -> None:
    assert jobs("vgg16", 128, 4) == {129435, 129436, 129439, 129440}
    assert jobs("vgg16", 128, 32) == {130263, 130264, 130672, 130673}
    assert jobs("resnet20", 32, 4) == {129146, 129352}, "dense was run on 8 nodes alone"
    assert jobs("resnet20", 32, 8, lr=0.01) == {129099, 129105}
    assert jobs("alexnet", 256, 4) == set()


def test_top_k_at_density_1_is_dense() -> None:
    assert {reference_curves.algo(run) for run in RUNS if run["density"] == 1} == {"dense"}
    assert {reference_curves.algo(run) for run in RUNS if run["density"] < 1} == {"topk", "randomk"}


def test_what_they_had_reached_at_an_epoch() -> None:
    beside = reference_curves.nearest(RUNS, "resnet20", 32, 0.1, 4)
    assert reference_curves.text(beside, 15.0) == "dense 82.06 % (P = 8), Top-k 80.40 % (P = 4)"
    assert reference_curves.text(beside, 0.5) == reference_curves.text(beside, 500.0) == ""


def at(words: str, epoch: float) -> str:
    (config,) = compose(["model=resnet20", *words.split()])
    return reference_curves.at(RUNS, dataclasses.asdict(config), epoch)


def test_a_run_has_them_beside_it_on_their_data_at_their_rate_and_momentum() -> None:
    beside = "dense 82.06 % (P = 8), Top-k 80.40 % (P = 4)"
    assert at("algo=gtopk nodes=4", 15) == at("algo=gtopk_corrected nodes=4", 15) == beside
    assert at("algo=gtopk nodes=4 batch_per_node=16 accumulate=2", 15) == beside
    for words in ("data=digits", "lr=0.7", "batch_per_node=48", "lr=1.0 momentum=0.0", "momentum=0.0"):
        assert at(f"algo=gtopk nodes=4 {words}", 15) == "", words
    assert at("algo=gtopk nodes=4", 15.5) == "", "they were evaluated at the end of epochs"


def test_the_file_is_read_alone() -> None:
    assert reference_curves.load() == RUNS
