"""Seconds of unlike machines are never pooled."""

import json

import pytest
from made_up_groups import group

from repro.figures import accuracies, hardware
from repro.iteration_time import IterationTime
from repro.report import pool_seeds, same_machine, summaries
from repro.report.group import Group, alike, rounded

EPYC = {"cpu": "AMD EPYC", "rates": {"float32_gflops": 130.0, "copy_gb_per_s": 10.0}}
SLOW = EPYC | {"rates": {"float32_gflops": 45.0, "copy_gb_per_s": 10.0}}


def test_one_name_at_another_speed_is_another_machine() -> None:
    assert same_machine.alike(EPYC, EPYC | {"host": "elsewhere"})
    assert not same_machine.alike(EPYC, SLOW)
    assert same_machine.alike({"cpu": "AMD EPYC"}, {"cpu": "AMD EPYC"})  # as old summaries tell it
    assert not same_machine.alike(EPYC, {"cpu": "AMD EPYC"})
    by_a_hair = [EPYC | {"rates": EPYC["rates"] | {"float32_gflops": rate}} for rate in (1.3**18.49, 1.3**18.51)]
    assert same_machine.alike(*by_a_hair)


def test_seconds_are_common_to_alike_machines_and_those_between() -> None:
    """Two of one processor whose rates lay on both sides of a step had their own compute in one table."""
    speeds = [EPYC | {"rates": {"float32_gflops": rate}} for rate in (130.0, 45.0, 200.0, 160.0)]
    assert not same_machine.alike(speeds[0], speeds[2])
    first, slow, fast, between = same_machine.kinds(speeds)
    assert first == fast == between != slow
    assert len(set(same_machine.kinds(speeds[:3]))) == 3


def test_a_gpu_beside_which_a_run_computed_is_none_of_its_own() -> None:
    both = {"cpu": "AMD EPYC", "processor": {"name": "EPYC"}, "gpus": ["NVIDIA H200"]}
    assert same_machine.processor(both | {"device": "cuda:0"}) == "NVIDIA H200"
    assert same_machine.processor(both | {"device": "cpu"}) == "EPYC"
    assert same_machine.gpus(both | {"device": "cpu"}) == []


def test_compute_of_unlike_machines_is_not_averaged() -> None:
    made = [group("resnet20", "gtopk") for _ in range(2)]
    for one, machine, seconds in zip(made, (EPYC, SLOW), (0.1, 0.3), strict=True):
        one["machine"] = machine
        for time in one["iteration_time"]:
            time["compute_s"] = seconds
    found = alike([Group(**one) for one in made])
    assert [each.iteration_time[0]["compute_s"] for each in found] == [0.1, 0.3]


def test_compute_stays_with_what_was_measured_to_hide_behind_it() -> None:
    """A slow run's hidden seconds stood behind the others' median compute, and gave an iteration nobody measured."""
    made = [group("resnet20", "gtopk") for _ in range(3)]
    for one, seconds, hidden in zip(made, (0.1, 0.2, 0.4), (0.0, 0.0, 0.01), strict=True):
        one["machine"] = EPYC
        (time,) = one["iteration_time"]
        one["iteration_time"] = [
            time | {"source": source, "compute_s": seconds, "hidden_s": hidden} for source in ("modelled", "measured")
        ]
    found = [each.iteration_time for each in alike([Group(**one) for one in made])]
    assert [[time["compute_s"] for time in each] for each in found] == [[0.2, 0.2], [0.2, 0.2], [0.2, 0.4]]
    assert [time["hidden_s"] for time in found[2]] == [0.005, 0.01], "half as much compute hides half as much"
    slow, exact = IterationTime.of(found[2][1]), IterationTime(0.2, 0.0, 1.0)
    assert slow.speedup_over(exact) == pytest.approx(1.4 / slow.total), (
        "dense computes as long as what it is compared with"
    )


def test_compute_of_a_stage_is_not_averaged_with_that_of_a_whole_network() -> None:
    made = [group("resnet20", "gtopk") for _ in range(2)]
    for one, stages, seconds in zip(made, (1, 4), (0.4, 0.1), strict=True):
        one["settings"] = one["settings"] | {"stages": stages}
        for time in one["iteration_time"]:
            time["compute_s"] = seconds
    found = alike([Group(**one) for one in made])
    assert [each.iteration_time[0]["compute_s"] for each in found] == [0.4, 0.1]


def test_pooled_seeds_keep_the_seconds_of_the_machine_that_is_named() -> None:
    there = group("resnet20", "gtopk") | {"machine": EPYC}
    new = json.loads(json.dumps(there)) | {"seeds": [7], "runs": ["seven"], "machine": SLOW}
    for time in new["iteration_time"]:
        time["compute_s"] = 99.0
    there["seed_rates"], new["seed_rates"] = ([{"seed": seed, "samples_per_s": 9.0}] for seed in (0, 7))
    pooled = pool_seeds.of_both(there, new)
    assert pooled["seeds"] == [*there["seeds"], 7] and pooled["machine"] == EPYC
    assert [row["seed"] for row in pooled["seed_rates"]] == [0, 7] and pooled["timed_runs"] == len(there["seeds"])
    later = pool_seeds.of_both(there | {"iteration_time": []}, new)
    assert (later["machine"], later["timed_runs"]) == (SLOW, 1)
    assert [time["compute_s"] for time in pooled["iteration_time"]] == [
        time["compute_s"] for time in rounded(there["iteration_time"])
    ]


def test_machines_of_one_name_and_unlike_processors_have_a_row_each() -> None:
    made = [group("resnet20", algo) for algo in ("dense", "topk", "gtopk")]
    known = {"vendor": "AuthenticAMD", "model": "1", "name": "AMD EPYC"}
    processors = ({}, {"processor": known | {"family": "23"}}, {"processor": known | {"family": "26"}})
    for one, more in zip(made, processors, strict=True):
        one["machine"] = {"cpu": "AMD EPYC", "cpus": 2} | more
    rows = hardware.table(summaries.Results(summaries.paper(), {"convergence": {"groups": made}}))
    assert [row["device"] for row in rows[1:]] == [
        "AMD EPYC, 2 cores",
        "AMD EPYC (AuthenticAMD family 23 model 1), 2 cores",
        "AMD EPYC (AuthenticAMD family 26 model 1), 2 cores",
    ]


def test_the_table_of_accuracies_says_which_processor_timed_an_iteration() -> None:
    made = [group("resnet20", algo) for algo in ("dense", "topk", "gtopk")]
    for one, family in zip(made, ("23", "26"), strict=False):
        one["machine"] = EPYC | {"processor": {"vendor": "AuthenticAMD", "family": family, "model": "1"}}
    rows = accuracies.table(summaries.Results(summaries.paper(), {"convergence": {"groups": made}}))
    assert [row["timed on"] for row in rows] == [
        "AuthenticAMD family 23 model 1",
        "AuthenticAMD family 26 model 1",
        None,
    ]
