"""The best number of stages of each strategy, and what the lab measured, never in one column."""

import json
from pathlib import Path

import made_up_results
import pytest
from matplotlib.colors import to_rgb

from repro import cli
from repro.config.compose import compose
from repro.config.schema import ConfigError
from repro.figures import strategies
from repro.timing import strategies as predicted


def test_the_fastest_that_trains_alike_is_marked() -> None:
    rows = strategies.table(made_up_results.everything())
    best = {(row["network"], row["nodes"]): row for row in rows if row["best"]}
    assert best["ethernet1g", 4]["strategy"] == "pipeline × dense" and best["ethernet1g", 4]["stages"] == 2
    assert best["infiniband100g", 8]["strategy"] == "gTop-k" and best["infiniband100g", 8]["over_dense"] == 3
    assert len(best) == 4
    named = {row["strategy"] for row in rows}
    assert {"pipeline", "averages, asynchronous", "dense, 4 batches a step"} <= named <= set(strategies.COLOURS)


def test_predicted_and_measured_have_columns_of_their_own() -> None:
    rows = strategies.table(made_up_results.everything())
    measured = [row for row in rows if row["source"].startswith("measured, dilated")]
    assert len(measured) == 2 and {row["stages"] for row in measured} == {1, 2}
    assert all((row["predicted_s"] is None) == (row in measured) == (row["measured_s"] is not None) for row in rows)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A copy of the committed predictions, which the command writes to."""
    copy = tmp_path / "split_predictions.json"
    copy.write_text(predicted.OUT.read_text())
    return copy


def test_predicting_one_network_keeps_the_others(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = json.loads(file.read_text())
    configs = compose(["experiment=strategies", "model=resnet20", "nodes=4"])
    asked: list[int] = []
    row = {"model": "resnet20", "nodes": 4, "images": 1, "seconds": lambda link: link.alpha_s}
    monkeypatch.setattr(predicted, "candidates", lambda config, blocks, nodes: asked.append(nodes) or [dict(row)])
    predicted.run(configs, print, file)
    others = [one for one in committed["rows"] if (one["model"], one["nodes"]) != ("resnet20", 4)]
    rows = json.loads(file.read_text())["rows"]
    assert asked == [4] and len(rows) == len(others) + len(predicted.WIRES)
    assert [one for one in rows if one in others] == others
    file.write_text(json.dumps(committed | {"networks": []}))
    with pytest.raises(ConfigError, match="other networks"):
        predicted.run(configs, print, file)


def test_one_summary_has_one_density_batch_and_machine(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of another density stood beside the old ones, and what this machine timed was filed under another."""
    committed = json.loads(file.read_text())
    monkeypatch.setattr(predicted, "candidates", lambda config, blocks, nodes: [])
    keys = ["experiment=strategies", "model=resnet20", "nodes=4"]
    for other, says in {
        "density=0.1": "made with other settings .density: 0.001, not 0.1.",
        "density=0.1,0.01": "density=0.01,0.1: strategies have one",
        "accumulate=2": "images of a step of resnet20 on a node: 128, not 64",
        "batch_per_node=128 accumulate=1": "batch_per_node=32 accumulate=4, not batch_per_node=128 accumulate=1",
        "accumulate=2,4": "model=resnet20: its strategies are of one batch, network and precision; type one",
        "data.classes=10,100": "model=resnet20: its strategies are of one batch, network and precision; type one",
        "algo=topk": "algo=topk: strategies are of dense and gtopk; leave algo out",
    }.items():
        with pytest.raises(ConfigError, match=says):
            predicted.run(compose([*keys, *other.split()]), print, file)
    del committed["blocks"]["resnet20"]
    committed["machine"]["cpu"] = "Another"
    file.write_text(json.dumps(committed))
    with pytest.raises(ConfigError, match="another kind of machine .Another., and resnet20 would be timed on this one"):
        predicted.run(compose(keys), print, file)


def test_rows_of_other_micro_batches_are_not_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file's own, its images alone were compared: 1 times 128 stood beside 4 times 32."""
    file = tmp_path / "predictions.json"
    row = {"model": "resnet20", "kind": "synchronous", "seconds": lambda link: link.alpha_s}
    monkeypatch.setattr(
        predicted, "candidates", lambda config, blocks, nodes: [row | {"nodes": nodes, "images": 128 * nodes}]
    )
    monkeypatch.setattr(predicted.stated_stages, "shares", lambda config: [])
    keys = ["experiment=strategies", "model=resnet20"]
    other = ["batch_per_node=128", "accumulate=1"]
    predicted.run(compose([*keys, "nodes=4", *other]), print, file)
    with pytest.raises(ConfigError, match="batch_per_node=128 accumulate=1, not batch_per_node=32 accumulate=4"):
        predicted.run(compose([*keys, "nodes=8"]), print, file)
    predicted.run(compose([*keys, "nodes=8", *other]), print, file)
    assert {one["nodes"] for one in json.loads(file.read_text())["rows"]} == {4, 8}


def test_blocks_of_another_network_or_precision_are_not_taken(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of 10 classes were taken for a network of 100, which ended in a traceback."""
    monkeypatch.setattr(predicted, "candidates", lambda config, blocks, nodes: [])
    keys = ["experiment=strategies", "model=resnet20", "nodes=4"]
    refused = {
        "data.classes=100": "resnet20: parameters=269722, not parameters=275572",
        "data.image_size=64": "resnet20: image_size=32, not image_size=64",
        "precision=bfloat16": "resnet20: precision=float32, not precision=bfloat16",
    }
    for _ in range(2):  # what the committed file does not say has the model's defaults; then the file says it
        for other, says in refused.items():
            with pytest.raises(ConfigError, match=rf"other settings \({says}\)"):
                predicted.run(compose([*keys, other]), print, file)
        predicted.run(compose(keys), print, file)
    assert json.loads(file.read_text())["settings"]["resnet20"]["parameters"] == 269722


@pytest.mark.parametrize(
    "typed",
    ["network=ethernet1g", "network.alpha_s=1e-3", "stages=2", "cuts=[3]", "bucket_mb=1", "overlap=on", "node=measured"]
    + ["algo.wire=gaps"],
)
def test_a_key_that_the_strategies_choose_is_refused(typed: str) -> None:
    """They were ignored, and the same was predicted as without them."""
    key = typed.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"^{key}=: repro strategies predicts .* Leave {key} out; model, nodes"):
        cli.app(["strategies", "algo=gtopk", "cluster=local", typed], standalone_mode=False)


@pytest.mark.parametrize("colour", strategies.COLOURS.values(), ids=strategies.COLOURS.keys())
def test_what_a_cell_says_can_be_read_on_its_colour(colour: str) -> None:
    """White on the green of gTop-k had a contrast of 3.4; small text needs 4.5 (WCAG 2.1, 1.4.3)."""
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in to_rgb(colour)]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05
    assert {"white": 1.05 / light, "black": light / 0.05}[strategies._ink_on(colour)] > 4.5


def test_a_folder_is_refused_where_a_file_is_to_go(tmp_path: Path) -> None:
    """It said: Is a directory."""
    with pytest.raises(ConfigError, match="is a folder, and a file is to go there"):
        predicted.run(compose(["experiment=strategies", "model=resnet20", "nodes=4"]), print, tmp_path)


def test_the_committed_predictions_are_those_of_their_blocks(file: Path) -> None:
    before = json.loads(file.read_text())
    predicted.run(compose(["experiment=strategies", "model=resnet20", "nodes=4"]), print, file)
    after = json.loads(file.read_text())
    assert after["rows"] == before["rows"] and after["blocks"] == before["blocks"]
