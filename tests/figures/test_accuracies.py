"""The first epochs of a schedule stand beside whole runs of the same setting, and reference curves, where they end."""

from pathlib import Path
from typing import Any

import made_up_groups
import made_up_results
import pytest
import tiny_runs

from repro.figures import accuracies
from repro.report import from_run_folders
from repro.report.finished_run import Run
from repro.report.summaries import Results
from repro.tables import Row

WHOLE, REFERENCE = accuracies.BESIDE
OTHERS = "dense 60.00 % (P = 4, batch 32), dense 60.20 % (P = 4, batch 32), dense 60.10 % (P = 4, batch 32), "
OTHERS += "Top-k 59.00 % (P = 4, batch 32), Top-k 59.40 % (P = 4, batch 32)"


def run(epochs: int, algo: str = "dense", seed: int = 0, **settings: Any) -> dict[str, Any]:
    """Of the schedule as it is written; accuracy is 10 points an epoch, and a point more with each seed."""
    made = made_up_groups.group("resnet20", algo)
    made["settings"] |= {"scale_schedule": False, "epochs": epochs} | settings
    made["curve"] = [row | {"test_accuracy": row["test_accuracy"] + seed / 100} for row in made["curve"][:epochs]]
    return made | {"seeds": [seed], "runs": [f"{algo}-{epochs}-{seed}-{settings}"]}


def table(*groups: dict[str, Any]) -> list[Row]:
    return accuracies.table(Results({}, {"convergence": {"groups": list(groups)}}, made_up_results.REFERENCE))


def test_a_prefix_stands_beside_whole_runs_of_its_setting_and_the_reference_where_it_ends() -> None:
    """Its accuracy at the high learning rate stood alone, and read as if the run had failed."""
    whole, prefix = table(run(141, seed=1), run(2))
    assert (whole[WHOLE], whole[REFERENCE]) == (None, None)
    assert prefix["schedule"] == "first 2 of 141 epochs" and prefix["test accuracy (%)"] == pytest.approx(20)
    assert (prefix[WHOLE], prefix[REFERENCE]) == (pytest.approx(21), OTHERS)


@pytest.mark.parametrize(
    "whole",
    [
        run(141, "topk"),
        run(141, precision="bfloat16"),
        run(141) | {"data": "cifar10", "fingerprint": "another"},
        run(3),
        run(3, scale_schedule=True),
    ],
    ids=["algorithm", "precision", "images", "prefix", "compressed"],
)
def test_unlike_runs_are_not_beside_a_prefix(whole: dict[str, Any]) -> None:
    rows = table(whole, run(2))
    assert all(WHOLE not in row for row in rows), "a column that no row has is left out"
    assert [row[REFERENCE] for row in rows if row["schedule"] == "first 2 of 141 epochs"] == [OTHERS]


def test_an_algorithm_is_below_dense_by_the_mean_of_the_last_epochs_of_the_seeds_of_both() -> None:
    """One epoch at the high rate put two seeds 1.3 points apart that are 3.7 by the mean of five."""

    def of_seeds(algo: str, *last: float) -> dict[str, Any]:
        made = run(5, algo) | {"seeds": list(range(len(last))), "runs": [f"{algo}-{seed}" for seed in range(len(last))]}
        return made | {"seed_accuracies": [[0.1, 0.2, 0.3, 0.4, end] for end in last]}

    dense, sparse = table(of_seeds("dense", 0.5, 0.6, 0.9), of_seeds("gtopk", 0.45, 0.45))
    assert [dense[name] for name in accuracies.BELOW] == [None] * 5
    assert [sparse[name] for name in accuracies.BELOW[:3]] == [5, 2, pytest.approx((1 + 3) / 2)]
    assert sparse["from (points)"] < 0 < sparse["to (points)"]
    (alone,) = (row for row in table(of_seeds("dense", 0.5), of_seeds("gtopk", 0.45)) if row["algorithm"] == "gTop-k")
    assert [alone.get(name) for name in accuracies.BELOW] == [5, 1, pytest.approx(2), None, None], "of unknown noise"


def test_a_run_says_how_fast_its_machine_trained_where_that_is_known() -> None:
    assert all(accuracies.RATE not in row for row in table(run(141)))
    known, old = table(
        run(141) | {"seed_rates": [{"seed": 0, "samples_per_s": 1234.5, "processor": None}]},
        run(141, "gtopk") | {"iteration_time": []},
    )
    assert (known[accuracies.RATE], old[accuracies.RATE]) == ("1234 (seed 0, processor not recorded)", None)


def of_rates(folder: Path, *rates: float) -> float | None:
    lines = [{"kind": "eval", "samples_per_s": rate} for rate in rates]
    return from_run_folders._quiet(Run(tiny_runs.config(folder), {}, lines, []))


def test_the_rate_of_a_run_is_that_of_its_quiet_stretches(tmp_path: Path) -> None:
    """The upper quartile: a restart or another program slows some epochs, and the fastest may be chance."""
    assert of_rates(tmp_path, 10.0) == 10
    assert of_rates(tmp_path, 10.0, 100.0) == 77.5
    assert of_rates(tmp_path, 10.0, 100.0, 50.0) == 75
    lines = [{"kind": "eval", "samples_per_s": rate} for rate in (100.0, 80.0, None, 90.0, 20.0, 110.0)]
    config = tiny_runs.config(tmp_path)
    of = from_run_folders._quiet
    assert of(Run(config, {}, lines, [])) == 100.0
    assert of(Run(config, {}, [], [])) is None
    for cpu, rate in (("this", 100.0), ("another", None)):
        assert of(Run(config, {"cpu": "this", "earlier": [{"cpu": cpu}]}, lines, [])) == rate


def test_without_prefixes_there_are_no_such_columns() -> None:
    for rows in (table(run(141), run(2, scale_schedule=True)), table(run(2, lr=0.7))):
        assert rows and not {WHOLE, REFERENCE} & set(rows[0])


def test_other_data_has_no_reference_curves() -> None:
    digits = run(2)
    digits["settings"]["data"] = digits["settings"]["data"] | {"name": "digits"}
    text = made_up_groups.read(made_up_groups.group("lstm_small", "dense"))
    text["settings"] |= {"scale_schedule": False}
    rows = table(digits, text)
    assert len(rows) == 2 and all(not {WHOLE, REFERENCE} & set(row) for row in rows)
