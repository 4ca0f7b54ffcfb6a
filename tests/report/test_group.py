"""What a summary's group says of its runs, and how those of several read side by side."""

from typing import Any

import pytest
from made_up_groups import group

from repro.figures import accuracies
from repro.report import group as of_group
from repro.report import summaries
from repro.report.group import Group


def test_rows_of_other_settings_do_not_read_alike() -> None:
    """Two gTop-k at 93 and 8 % differed in a density that the table did not show."""
    found = [group("resnet20", "gtopk"), group("resnet20", "gtopk", density=0.5), group("vgg16", "gtopk")]
    rows = accuracies.table(summaries.Results({}, {"convergence": {"groups": found}}))
    assert [row["density"] for row in rows] == [0.001, 0.5, 0.001]
    assert "density" not in accuracies.table(summaries.Results({}, {"convergence": {"groups": found[:1]}}))[0]


@pytest.mark.parametrize(
    ("epochs", "steps", "scaled", "said"),
    [
        (141, None, False, "141 epochs"),
        (141, None, True, "141 epochs"),
        (15, None, False, "first 15 of 141 epochs"),
        (15, None, True, "schedule of 141 epochs compressed to 15"),
        (141, 20, False, "first 20 steps of 141 epochs"),
        (3, 150, True, "first 150 steps of the schedule of 141 epochs compressed to 3"),
    ],
)
def test_a_run_says_how_much_of_the_schedule_it_has(epochs: int, steps: int | None, scaled: bool, said: str) -> None:
    made = group("resnet20", "gtopk")
    made["settings"] |= {"epochs": epochs, "steps": steps, "scale_schedule": scaled}
    found = Group(**made)
    assert found.schedule == said
    assert found.whole == (said == "141 epochs")


def test_a_group_whose_machine_has_no_number_of_cores_can_be_compared():
    """A null, as old folders may have, ended every figure."""
    made = group("resnet20", "dense")
    unknown = made | {"machine": made["machine"] | {"cpus": None}, "settings": made["settings"] | {"threads": None}}
    stated = made | {"settings": made["settings"] | {"threads": 1}}
    assert of_group._compute(Group(**unknown)) == of_group._compute(Group(**stated))


def test_what_computes_the_same_takes_the_same_compute_seconds():
    def run(algo: str, compute_s: float, batch: int = 32, stated: float | None = None) -> dict[str, Any]:
        own = group("resnet20", algo)
        (time,) = own["iteration_time"]
        settings = own["settings"] | {"batch_per_node": batch, "compute_s": stated}
        return own | {"settings": settings, "iteration_time": [time | {"compute_s": compute_s}]}

    def at(other: dict[str, Any], compute_s: float) -> dict[str, Any]:
        own = run("dense", compute_s)
        return own | {"settings": own["settings"] | other}

    unlike = [at({"precision": "bfloat16"}, 7.0), at({"threads": 2}, 8.0)]
    runs = [run("dense", 3.0), run("topk", 1.0), run("gtopk", 2.0), run("gtopk", 9.0, 64), run("dense", 5.0, 32, 5.0)]
    runs += unlike
    runs[0]["settings"]["model"] = runs[0]["settings"]["model"] | {"reads": "images"}  # which old summaries lack
    found = summaries.Results({}, {"made_up": {"groups": runs}}).groups("made_up")
    assert [own.time.compute_s for own in found] == [2.0, 2.0, 2.0, 9.0, 5.0, 7.0, 8.0]
    assert [own.time.communicate_s for own in found] == [run["iteration_time"][0]["communicate_s"] for run in runs]
