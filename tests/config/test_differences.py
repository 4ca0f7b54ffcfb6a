"""Which settings a table of several runs must show."""

import dataclasses

from repro.config.compose import compose
from repro.config.differences import differing, flat


def columns(*overrides: str) -> list[str]:
    return differing([flat(dataclasses.asdict(config)) for config in compose(list(overrides))])


def test_options_of_a_group_that_differ_are_columns() -> None:
    """They were left out, and two rows of other results read alike."""
    assert columns("algo=gtopk", "algo.route=tree,butterfly") == ["algo.route"]
    assert columns("data=synthetic", "data.noise=8,16", "seed=0,1") == ["data.noise", "seed"]
    assert columns("network.alpha_s=1e-4,1e-3") == ["network.alpha_s"]
    assert columns("algo=gtopk", "density_warmup=[],[0.5]") == ["density_warmup"]


def test_what_follows_from_a_choice_is_none() -> None:
    """gTop-k has a route and dense has none; dense has no warm-up; where a run is kept changes nothing."""
    assert columns("algo=dense,gtopk") == ["algo", "density"]
    assert columns("algo=topk,gtopk", "nodes=2,4") == ["algo", "nodes"]
    assert columns("results=a,b") == []
