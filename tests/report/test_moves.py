"""How often an entry moves, against the densities of the steps that a run would take."""

import dataclasses

import made_up_groups
import pytest

from repro.config.compose import compose
from repro.report import moves
from repro.report.group import Group
from repro.train import schedule


def test_the_whole_schedule_of_a_compressed_run_has_warm_ups_of_full_length() -> None:
    made = made_up_groups.group("resnet20", "gtopk")
    short, whole = (
        Group(**made | {"curve": [{"epoch": epochs, "step": 390 * epochs}], "settings": made["settings"] | own})
        for epochs in (3, 141)
        for own in [{"epochs": epochs, "schedule_epochs": 141, "scale_schedule": True, "density_warmup": [0.004]}]
    )
    assert short.compressed and whole.whole
    assert moves.selections(short, 3, {}, whole=True) == moves.selections(whole, 141, {})


def test_an_entry_moves_as_often_as_k_is_of_all_and_k_is_rounded_down() -> None:
    """At a density of 0.0001 ResNet-20 sends 26 entries, of which 26.97 would be the density's."""
    found = moves.summed(0.0001, [0.01], 10, 1010, 269_722)
    assert found == pytest.approx((10 * 2697 + 1000 * 26) / 269_722)


@pytest.mark.parametrize(
    "words",
    [
        ["epochs=3"],
        ["epochs=141", "density_warmup=[]"],
        ["epochs=4", "density_warmup=[0.25,0.0625,0.015625]"],
        ["epochs=3", "scale_schedule=true", "density_warmup=[0.1,0.01]"],
        ["epochs=1", "density_warmup=[0.25,0.0625]"],
    ],
)
@pytest.mark.parametrize("per_epoch", [48, 391])
def test_the_densities_are_those_of_the_schedule(words: list[str], per_epoch: int) -> None:
    (config,) = compose(["algo=gtopk", *words])
    steps = config.epochs * per_epoch
    expected = sum(schedule.density(step / per_epoch, config) for step in range(steps))
    compressed = config.epochs / config.schedule_epochs if config.scale_schedule else 1.0
    found = moves.summed(config.density, config.density_warmup, per_epoch * compressed, steps)
    assert found == pytest.approx(expected)
    part = dataclasses.replace(config, density_warmup=[])
    assert moves.summed(part.density, part.density_warmup, per_epoch, steps) == pytest.approx(part.density * steps)


def test_a_compressed_run_has_a_compressed_warm_up_of_its_density() -> None:
    """10 epochs in 5: the warm-up of one takes half of one."""
    made = made_up_groups.group("resnet20", "gtopk")
    one = Group(**made | {"settings": made["settings"] | {"schedule_epochs": 10, "density_warmup": [0.004]}})
    assert one.compressed and moves.at_densities(one, 64000) == pytest.approx({0.004: 6400, 0.001: 57600})


def test_a_density_that_comes_twice_counts_twice_and_a_warm_up_may_not_end() -> None:
    made = made_up_groups.group("resnet20", "gtopk")
    twice = made["settings"] | {"scale_schedule": False, "density_warmup": [0.01, 0.001, 0.01]}
    one = Group(**made | {"settings": twice})  # 100 steps of 128 samples an epoch
    assert moves.at_densities(one, 51_200) == pytest.approx({0.01: 25_600, 0.001: 25_600})
    assert moves.at_densities(one, 6_400) == pytest.approx({0.01: 6_400, 0.001: 0})
