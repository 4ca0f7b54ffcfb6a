"""The reference curves that stand beside a run: same model and rate, as many samples a step."""

import dataclasses

import committed_results

from repro.config.compose import compose
from repro.report import reference_curves

RUNS = committed_results.load().reference
BESIDE = "dense 84.84 % (P = 8, batch 16), Top-k 81.45 % (P = 8, batch 16), Top-k 80.40 % (P = 4, batch 32)"


def jobs(model: str, samples: int, lr: float = 0.1) -> set[int]:
    return {run["job"] for run in reference_curves.as_large(RUNS, model, samples, lr)}


def test_those_of_steps_as_large_and_all_their_repeats() -> None:
    """Dense of 256 samples a step stood beside Top-k of 128, and ended below it."""
    assert jobs("vgg16", 512) == {129435, 129436, 129439, 129440}
    assert jobs("resnet20", 128) == {129255, 129104, 129352}, "8 x 16 of both, 4 x 32 of Top-k"
    assert jobs("resnet20", 1024) == {129257, 129093}
    assert jobs("resnet20", 256, lr=0.01) == {129099, 129105}
    assert jobs("alexnet", 1024) == jobs("vgg16", 4096) == set()


def test_top_k_at_density_1_is_dense() -> None:
    assert {reference_curves.algo(run) for run in RUNS if run["density"] == 1} == {"dense"}
    assert {reference_curves.algo(run) for run in RUNS if run["density"] < 1} == {"topk", "randomk"}


def test_what_they_had_reached_at_an_epoch() -> None:
    beside = reference_curves.as_large(RUNS, "resnet20", 128, 0.1)
    assert reference_curves.text(beside, 15.0) == BESIDE
    assert reference_curves.text(beside, 0.5) == reference_curves.text(beside, 500.0) == ""


def at(words: str, epoch: float) -> str:
    (config,) = compose(["model=resnet20", *words.split()])
    return reference_curves.at(RUNS, dataclasses.asdict(config), epoch)


def test_a_run_has_them_beside_it_on_their_data_at_their_rate_and_momentum() -> None:
    assert at("algo=gtopk nodes=4", 15) == at("algo=gtopk_corrected nodes=4", 15) == BESIDE
    assert at("algo=gtopk nodes=4 batch_per_node=16 accumulate=2", 15) == BESIDE
    assert at("algo=gtopk nodes=2 batch_per_node=64", 15) == BESIDE
    assert at("algo=gtopk nodes=4 stages=2 cluster=processes", 15) == BESIDE, "all four bring a batch"
    assert "dense 67.03 % (P = 8, batch 128), Top-k 54.02 %" in at("algo=gtopk nodes=32", 15)
    for words in ("data=digits", "lr=0.7", "batch_per_node=48", "lr=1.0 momentum=0.0", "momentum=0.0"):
        assert at(f"algo=gtopk nodes=4 {words}", 15) == "", words
    assert at("algo=gtopk nodes=4", 15.5) == "", "they were evaluated at the end of epochs"


def test_the_file_is_read_alone() -> None:
    assert reference_curves.load() == RUNS
