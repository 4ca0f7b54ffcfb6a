"""Committed runs that reached a target with settings that a ranking does not have are named, to be typed."""

import made_up_groups
import pytest

from repro.config.compose import compose
from repro.report.group import Group
from repro.timing import other_settings, to_target

COMMITTED = to_target.trained()


@pytest.mark.parametrize("group", COMMITTED, ids=lambda group: group.runs[0])
def test_what_is_typed_makes_the_updates_of_the_run(group: Group) -> None:
    settings = group.settings
    place = [f"{name}={settings[name]}" for name in ("nodes", "batch_per_node", "accumulate")]
    data = [f"data={settings['data']['name']}"]
    (config,) = compose([f"model={group.model}", *data, *place, *other_settings.typed(group)])
    assert to_target.same(settings, config) and to_target.steps_alike(settings, config)
    assert to_target.inputs_alike(settings, config)


def test_the_committed_runs_with_large_updates_on_32_nodes_are_named() -> None:
    ranked = compose(["model=resnet20", "nodes=32", "algo=dense,gtopk", "density=0.001"])
    _, dense, line = other_settings.said(0.85, ranked, COMMITTED)
    assert dense.startswith("  algo=dense lr=0.4  (")
    words = "algo=gtopk_corrected density=0.032 'density_warmup=[]' algo.gain=40 algo.wire=gaps-bf16"
    assert line.startswith(f"  {words}  (87.3 %; epoch 84, n = 1)")
    (own,) = compose(["model=resnet20", "nodes=32", *words.replace("'", "").split()])
    (large,) = compose(["model=resnet20", "nodes=32", "algo=dense", "lr=0.4"])
    assert other_settings.said(0.85, [*ranked, own, large], COMMITTED) == []


def test_those_named_are_on_the_images_of_those_that_are_ranked() -> None:
    ranked = compose(["model=resnet20", "nodes=4", "algo=dense,topk", "density=0.001"])
    (data,) = {group.data for group in to_target.comparable(0.8, ranked, COMMITTED)}
    there = [group for group in COMMITTED if group.data == data]
    said = other_settings.said(0.8, ranked, COMMITTED)
    assert said == other_settings.said(0.8, ranked, there) and 1 < len(said) == len(set(said))


def test_only_runs_beside_those_that_are_ranked_and_that_got_there_are_named() -> None:
    ranked = compose(["model=resnet20", "nodes=4", "algo=dense"])
    made = {algo: made_up_groups.group("resnet20", algo) for algo in ("dense", "topk", "gtopk", "gtopk_butterfly")}
    for group in made.values():
        group["settings"] |= {"scale_schedule": False, "epochs": 141}
    made["gtopk"]["settings"]["nodes"] = 8
    made["gtopk_butterfly"]["settings"]["scale_schedule"], made["gtopk_butterfly"]["settings"]["epochs"] = True, 5
    groups = [Group(**group) for group in made.values()]
    _, line = other_settings.said(0.4, ranked, groups)
    assert line.startswith("  algo=topk density=0.001")
    assert other_settings.said(0.6, ranked, groups) == []
