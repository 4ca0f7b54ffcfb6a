"""`repro simulate`: the authors' model figure, its crossover, many nodes, and what node= may be."""

import dataclasses
import importlib
import json
import math
from pathlib import Path

import pytest
import yaml
from steps import CHOICES

from repro import cli, network, profiles, simulate
from repro.config import ConfigError, compose
from repro.numbers import counts, doubled

PAPER = yaml.safe_load((Path(__file__).parent.parent / "results" / "paper.yaml").read_text())


def rows(*overrides: str, sizes=(26214400,)):
    return simulate.run(compose([*overrides, "network=ethernet1g"]), "0.5+0.1", list(sizes), None)


def test_the_authors_model_figure_with_alpha_and_as_plotted(capsys):
    shape, wire = PAPER["model_figure"]["left"], PAPER["network"]
    nodes = ",".join(map(str, shape["nodes"]))
    found = rows("algo=dense,topk,gtopk", f"nodes={nodes}", sizes=[shape["m"]])
    k = math.floor(shape["density"] * shape["m"])
    for row in found:
        size, beta = row["nodes"], wire["beta_s_per_byte"]
        assert row["communicate_s"] == pytest.approx(row["closed_form_s"])
        plotted = {
            "dense": network.dense_ring(size, shape["m"], network.Link(wire["alpha_s"], beta)),
            "topk": math.log2(size) * 1e-3 + 8 * (size - 1) * k * beta,
            "gtopk": 2 * math.log2(size) * 1e-3 + 16 * k * beta * math.log2(size),
        }
        assert row["as_plotted_s"] == pytest.approx(plotted[row["algo"]])
    assert "gtopk beats topk from 8 nodes on" in capsys.readouterr().out


def test_throughput_and_efficiency_follow_from_the_parts():
    (row,) = rows("algo=gtopk", "nodes=6", "batch_per_node=32")
    assert row["iteration_s"] == pytest.approx(0.6 + row["communicate_s"])
    assert row["samples_per_s"] == pytest.approx(32 / row["iteration_s"])
    assert row["efficiency"] == pytest.approx(0.5 / row["iteration_s"])


def test_the_published_profile_is_one_nodes_throughput():
    node = profiles.published(compose(["model=resnet50"])[0])
    assert node.samples / node.compute_s == pytest.approx(PAPER["throughput_per_node"]["resnet50"]["single"])


def test_a_measured_profile_is_positive_and_compress_is_part_of_the_step():
    node = profiles.profile("measured", compose(["model=resnet20", "batch_per_node=2", "nodes=8"])[0], 269722)
    assert node.compute_s > 0 and 0 < node.compress_s < 1


def test_all_cores_record_what_one_would():
    config = compose(["algo=gtopk_butterfly", f"nodes={simulate.SHARED + 3}"])[0]
    alone = simulate.rehearsal.schedule(config.algo, config.nodes, 1000, 10)
    assert simulate.schedule(config, 1000, 10) == alone


def test_the_command_writes_a_summary(tmp_path):
    out = tmp_path / "simulated.json"
    words = "simulate model=vgg16 algo=dense,gtopk nodes=4,8,...,16 node=0.2 --out"
    cli.app([*words.split(), str(out)], standalone_mode=False)
    report = json.loads(out.read_text())
    assert [row["nodes"] for row in report["rows"]] == 2 * [4, 8, 16]
    assert {row["parameters"] for row in report["rows"]} == {14728266}


@pytest.mark.parametrize("name", CHOICES)
def test_the_messages_of_every_algorithm_cost_what_its_formula_says(name):
    """Of a model that no number of nodes divides; a bound where messages depend on values."""
    config = dataclasses.replace(compose(["nodes=6"])[0], algo=CHOICES[name])
    module = importlib.import_module(f"repro.algorithms.{config.algo.module}")
    m, k = 100_003, 1_003
    rounds = simulate.schedule(config, m, k)
    cost = module.cost(config.nodes, m, k, **config.algo.options)
    most = max(sum(done.sent * done.repeat for done in own) for own in rounds)
    longest = max(sum(done.repeat for done in own) for own in rounds)
    if getattr(module.Algorithm, "messages_depend_on_values", False):
        assert cost.bytes / 8 < most <= cost.bytes and cost.rounds / 4 < longest <= cost.rounds
    else:
        assert (most, longest) == cost
    assert network.seconds(rounds, 1e-3, 1e-9) > 0


def test_layers_are_what_low_rank_is_about():
    """Without them a model is one nearly square matrix, which would send far less than its layers do."""
    config = compose(["algo=powersgd", "model=resnet20", "nodes=4"])[0]
    (with_layers,), (without,) = (simulate.run([config], "0.1", sizes, None) for sizes in (None, [269722]))
    assert with_layers["bytes_sent_most"] > 3 * without["bytes_sent_most"]


def test_what_people_type():
    assert counts("parameters", "270k,2.7M,61100840") == [270_000, 2_700_000, 61_100_840]
    assert doubled("4,8,...,64") == "4,8,16,32,64"
    assert doubled("3,5,31") == "3,5,31"
    for wrong in ("0", "x", "-1k", ""):
        with pytest.raises(ConfigError, match="positive number"):
            counts("parameters", wrong)
    for wrong in ("...,8", "8,...,4", "4,..."):
        with pytest.raises(ConfigError, match="dots"):
            doubled(wrong)
    with pytest.raises(ConfigError, match="choose paper, measured"):
        rows_of = compose(["nodes=2"])
        simulate.run(rows_of, "fast", None, None)
