"""The analyses in benchmarks/ whose numbers stand on the pages: what is known of them in closed form."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_quadratics_limits_are_those_of_theory_and_the_committed_ones() -> None:
    quadratic = loaded("quadratic")
    step = 2.1e-2  # of a bisection
    for rule, expected in (("none", 2.0), ("after aggregation", 2 * 1.9 / 0.1)):
        assert quadratic.limit(rule, 1.0, 0) == pytest.approx(expected, rel=step)
    rows = json.loads((ROOT / "results/summaries/quadratic.json").read_text())["rows"]
    known = {(row["rule"], row["density"]): row["limits"] for row in rows}
    for rule in ("none", quadratic.RANDOM):
        assert quadratic.limit(rule, 0.1, 0) == pytest.approx(known[rule, 0.1][0], rel=2 * step)
