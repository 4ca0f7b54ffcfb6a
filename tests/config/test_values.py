"""Every key of conf/ has a type and a range: what lies outside is refused by name, what lies inside composes."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from repro.config import groups, schema, show
from repro.config.compose import compose, declared, to_yaml
from repro.config.schema import ConfigError
from repro.config.values import BOUNDS, range_text

NEEDED = {  # keys beside, where one bounds the other
    " machines": ["nodes=4096"],
    " stages": ["nodes=8"],
    " data.image_size": ["data.pad=0"],
    " data.sequence": ["model=lstm_small"],
    "algo=async_average algo.period": ["algo.delay=1"],
    "algo=async_average algo.delay": ["algo.period=10000"],
}
HUGE = ("lr", "nodes")  # a number and a whole number that get what no float holds


def number(kind: Any) -> bool:
    return {int: True, float: True}.get(kind, False) or any(map(number, getattr(kind, "__args__", ())))


def kind_and_range(key: str) -> tuple[Any, Any]:
    group, _, own = key.rpartition(".")
    kind = groups.NESTED.get(group, groups.KINDS.get(group, schema.Config))
    field = kind.__dataclass_fields__[own]
    return schema.hints_of(kind)[own], field.metadata


def keys() -> Iterator[tuple[str, str, Any, Any]]:
    """What to type before, the key, its type and its range: of the root, of groups, of each option's own keys."""
    for key in groups.root_keys():
        yield "", key, *kind_and_range(key)
    for group, kind in groups.KINDS.items():
        for field in kind.__dataclass_fields__:
            if field not in ("name", "options", *groups.FIXED):
                yield "", f"{group}.{field}", *kind_and_range(f"{group}.{field}")
        for option in groups.group_options(group):
            values = declared(group, option)
            for own in values:
                if own not in (*kind.__dataclass_fields__, *groups.FIXED):
                    found, allowed = groups.declaration(values, own)
                    choices = values.get("choices", {}).get(own)
                    yield f"{group}={option}", f"{group}.{own}", found, allowed if choices is None else choices


NUMBERS = [found for found in keys() if number(found[2]) and not isinstance(found[3], list)]
BOUNDED = [found for found in NUMBERS if {"low", "above"} & found[3].keys() and {"high", "below"} & found[3].keys()]


def neighbours(before: str, key: str, allowed: Any) -> list[str]:
    """What to type beside a key: the keys that bound it, at their defaults where `NEEDED` has no other value."""
    if f"{before} {key}" in NEEDED or not before:
        return NEEDED.get(f"{before} {key}", [])
    group, _, option = before.partition("=")
    bounds = [bound for bound in allowed.values() if isinstance(bound, str)]
    return [f"{group}.{bound}={declared(group, option)[bound]}" for bound in bounds]


def test_every_number_of_conf_has_a_range_or_choices() -> None:
    assert len(NUMBERS) > 60
    for before, key, _, allowed in NUMBERS:
        lower, upper = {"low", "above"} & allowed.keys(), {"high", "below"} & allowed.keys()
        assert lower and upper, f"{before} {key} has no range: `ranges:` in its YAML, or schema.key(low=, high=)"
        assert set(allowed) <= {*BOUNDS, "length", "result"}


def edges(kind: Any, allowed: dict[str, Any], needed: list[str]) -> tuple[list[float], list[float]]:
    """The first and the last value of the range, and those next to them outside it."""
    pairs = [text.split("=") for text in needed]
    beside = {name.rpartition(".")[2]: int(value) for name, value in pairs if value.isdigit()}
    whole = int in (kind, *getattr(kind, "__args__", ()))
    inside, outside = [], []
    for word, bound in allowed.items():
        if word not in BOUNDS:
            continue
        edge, up = beside[bound] if isinstance(bound, str) else bound, word in ("low", "above")
        away = math.inf if up else -math.inf
        step = (lambda x, to: x + (1 if to > 0 else -1)) if whole else math.nextafter
        inside.append(edge if word in ("low", "high") else step(edge, away))
        outside.append(step(edge, -away) if word in ("low", "high") else edge)
    return inside, outside


@pytest.mark.parametrize(
    ("before", "key", "kind", "allowed"), BOUNDED, ids=[f"{each[0]} {each[1]}" for each in BOUNDED]
)
def test_outside_its_range_a_key_is_refused_by_name_and_inside_it_composes(
    before: str, key: str, kind: Any, allowed: Any
) -> None:
    needed = neighbours(before, key, allowed)
    inside, outside = edges(kind, allowed, needed)
    length = allowed.get("length", 1)
    listed = "list" in str(kind)
    words = [word for word in (before, *needed) if word]

    def typed(value: float) -> str:
        return f"{key}=[{','.join([repr(value)] * length)}]" if listed else f"{key}={value!r}"

    for legal in inside:
        compose([*words, typed(legal)])
    beside = {text.rpartition("=")[0].rpartition(".")[2]: text.rpartition(".")[2] for text in needed}
    named = {word: beside[bound] if isinstance(bound, str) else bound for word, bound in allowed.items()}
    for wrong in [*outside, *((-(10**400), 10**400) if key in HUGE else ())]:
        with pytest.raises(ConfigError) as caught:
            compose([*words, typed(wrong)])
        said = str(caught.value)
        assert said.startswith(f"{key}=") and len(said) < 300
        assert range_text(named) in said or (abs(wrong) > 10**300 and "finite" in said)


def test_show_says_each_range_and_is_the_yaml_of_the_run() -> None:
    for algo in groups.group_options("algo"):
        (config,) = compose([f"algo={algo}", "data=synthetic", "results='a # b: c'"])
        shown = show.text(config)
        assert yaml.safe_load(shown) == yaml.safe_load(to_yaml(config))
        assert "nodes: 4  # at least 1 and at most 4096\n" in shown
    assert "rank: 2  # at least 1 and at most 4096" in show.text(compose(["algo=powersgd"])[0])
    assert "route: tree  # tree | butterfly" in show.text(compose(["algo=gtopk"])[0])
