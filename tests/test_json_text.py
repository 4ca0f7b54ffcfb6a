"""JSON has no NaN and no Infinity, in whatever file of ours it stands."""

import ast
import json
import math
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from tiny_runs import QUICK, config

import repro
from repro.json_text import json_text
from repro.runs import run_folder
from repro.train import loop

ROOT = Path(repro.__file__).parent
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def strict(text: str) -> object:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    return json.loads(text, parse_constant=refuse)


@given(VALUES)
@example({"loss": math.nan, "k": [1, math.inf, -math.inf]})
def test_what_is_not_finite_is_null_and_all_else_as_it_was(value: object) -> None:
    def expected(one: object) -> object:
        if isinstance(one, float) and not math.isfinite(one):
            return None
        if isinstance(one, dict):
            return {name: expected(item) for name, item in one.items()}
        return [expected(item) for item in one] if isinstance(one, list) else one

    assert strict(json_text(value)) == expected(value)


def test_json_is_written_in_one_place() -> None:
    """Elsewhere it is a key alone: of a run's settings, and of a cache."""
    writers = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("json.dumps", "json.dump")
    }
    assert writers == {"json_text.py", "config/schema.py", "models/__init__.py"}


def test_a_run_whose_loss_overflows_leaves_json(tmp_path: Path) -> None:
    wild = config(tmp_path, *QUICK, "algo=gtopk", "nodes=2", "steps=3", "lr=1e30", "on_nonfinite=skip")
    assert loop.run(wild)["state"] == "done"
    for path in (*wild.folder.glob("*.json"), wild.folder / "metrics.jsonl"):
        for text in path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]:
            strict(text)
    losses = [line["loss"] for line in run_folder.read_metrics(wild.folder) if line["kind"] == "step"]
    assert None in losses
