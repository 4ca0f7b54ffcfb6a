"""The reference curves that stand beside a run: same model, batch and rate, as many nodes or nearly so."""

from repro.report import reference_curves, summaries

RUNS = summaries.load().reference


def jobs(model: str, batch: int, nodes: int, lr: float = 0.1) -> set[int]:
    return {run["job"] for run in reference_curves.beside(RUNS, model, batch, lr, nodes)}


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
    beside = reference_curves.beside(RUNS, "resnet20", 32, 0.1, 4)
    assert reference_curves.text(beside, 15.0) == "dense 82.06 % (P = 8), Top-k 80.40 % (P = 4)"
    assert reference_curves.text(beside, 0.5) == reference_curves.text(beside, 500.0) == ""
