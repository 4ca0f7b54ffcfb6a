"""`repro simulate`: the authors' model figure, its crossover, many nodes, and what node= may be."""

import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch
import yaml
from algorithm_steps import CHOICES

from repro import algorithms, cli
from repro.comm import cost_formulas, replay
from repro.comm.cost_formulas import message_bytes
from repro.comm.traffic import Link
from repro.compression.pair_sizes import WIRES
from repro.config.compose import compose
from repro.config.counts import counts, doubled
from repro.config.schema import ConfigError
from repro.figures import _times
from repro.report.summaries import Results
from repro.timing import bench_collectives, dry_run, node_profile, planner, predict, simulate, simulated_row

PAPER = yaml.safe_load((Path(__file__).parents[2] / "results" / "paper.yaml").read_text())


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
            "dense": cost_formulas.dense_ring(size, shape["m"], Link(wire["alpha_s"], beta)),
            "topk": math.log2(size) * 1e-3 + 8 * (size - 1) * k * beta,
            "gtopk": 2 * math.log2(size) * 1e-3 + 16 * k * beta * math.log2(size),
        }
        assert row["as_plotted_s"] == pytest.approx(plotted[row["algo"]])
    assert "gtopk communicates faster than topk from 8 nodes on, of these numbers" in " ".join(
        capsys.readouterr().out.split()
    )


def test_what_the_authors_did_not_plot_is_not_as_plotted():
    """A network a hundred times as fast had their start-up of 1 ms in that column."""
    for network in ("network=infiniband100g", "network.alpha_s=1e-6"):
        (row,) = simulate.run(compose(["algo=gtopk", "nodes=4", network]), "0.5+0.1", [26214400], None)
        assert row["closed_form_s"] is not None and row["as_plotted_s"] is None


def test_one_node_decides_nothing_and_a_network_without_cost_is_no_model(tmp_path: Path):
    assert simulate.crossovers(rows("algo=topk,gtopk", "nodes=1")) == []
    free = ["cluster=lab", "network.alpha_s=0", "network.beta_s_per_byte=0"]
    with pytest.raises(ConfigError, match="type network.alpha_s or network.beta_s_per_byte above 0"):
        bench_collectives.measure_collectives(compose(free), [1000], 1, tmp_path / "rows.jsonl")


def test_ddp_of_a_network_that_is_trained_with_a_clip_is_simulated():
    """It was refused for the clip, and a typed clip_grad=0 for being read by nothing."""
    (row,) = simulate.run(compose(["algo=ddp", "model=lstm_small", "data=ptb", "nodes=4"]), "0.5+0.1", None, None)
    assert row["iteration_s"] > 0.6


def test_throughput_and_efficiency_follow_from_the_parts():
    (row,) = rows("algo=gtopk", "nodes=6", "batch_per_node=32")
    assert row["iteration_s"] == pytest.approx(0.6 + row["communicate_s"])
    assert row["samples_per_s"] == pytest.approx(32 / row["iteration_s"])
    assert row["efficiency"] == pytest.approx(0.5 / row["iteration_s"])


def test_an_average_in_the_background_is_waited_for_where_compute_does_not_cover_it():
    """All of it was, where `repro tune` and `repro run` hide what two of four steps cover."""
    fast, slow = (rows("algo=async_average", "nodes=4", sizes=[size])[0] for size in (1_000_000, 100_000_000))
    assert fast["communicate_s"] > 0 and fast["iteration_s"] == pytest.approx(0.5)
    assert slow["iteration_s"] == pytest.approx(0.5 + slow["communicate_s"] - 2 * 0.5 / 4)


def test_buckets_of_ddp_are_sent_while_backward_runs(monkeypatch, tmp_path):
    """They were one all-reduce after it: 233 ms where `repro tune` predicts 190."""
    (config,) = compose(["model=vgg16", "algo=ddp", "nodes=8", "network=ethernet10g", "batch_per_node=2"])
    shapes = node_profile.layers(config)
    moments = torch.linspace(0.14, 0.07, len(shapes)).tolist()  # the last layer's gradient comes first
    monkeypatch.setattr(node_profile, "backward", lambda *_: moments)
    (row,) = simulate.run([config], "0.14+0.02", None, None)
    predicted = planner.rank([config], "0.14+0.02", None, [])[0].time
    assert row["iteration_s"] == pytest.approx(predicted.total)
    assert row["communicate_s"] == pytest.approx(predicted.communicate_s)
    assert 0.14 < row["iteration_s"] < 0.14 + 0.9 * row["communicate_s"]
    spans = algorithms.spans(config, shapes)
    assert len(spans) > 1 and row["rounds_most"] == len(spans) * 2 * 7
    with pytest.raises(ConfigError, match="^algo=ddp: .*leave parameters out"):
        simulate.run([config], "0.14+0.02", [10_000], None)
    with pytest.raises(ConfigError, match="^algo=ddp: .*leave --trace out"):
        simulate.run([config], "0.14+0.02", None, None, tmp_path)


def test_only_the_last_of_the_published_micro_batches_has_gradients_to_send(monkeypatch):
    """The published seconds of ResNet-50 are of 16 micro-batches; its DDP hid behind the backward of all of them."""
    monkeypatch.setattr(node_profile, "ready", lambda config, batch: torch.linspace(1, 0.5, 161).tolist())
    (config,) = compose(["model=resnet50", "algo=ddp", "nodes=32"])
    (row,) = simulate.run([config], "paper", None, None)
    hidden_s = row["compute_s"] + row["communicate_s"] - row["iteration_s"]
    assert 0.01 < hidden_s < row["compute_s"] / 16 / 2


def test_a_hook_of_ddp_compresses_and_sends_its_layers_factors():
    """It was exact, its compress 0, and of PowerSGD one nearly square matrix was counted for all layers."""
    words = ["model=resnet20", "algo=ddp", "nodes=4", "cluster=processes"]
    for hook in ("fp16", "powersgd"):
        (config,) = compose([*words, f"algo.hook={hook}"])
        assert predict.relaxes(config.algo) == "compressed"
        assert node_profile.published(config).compress_s is None
    shapes = node_profile.layers(config)
    (modelled, *_) = simulated_row.dry_run.all_rounds(config.algo, 4, 269722, 0, shapes=shapes)
    (row,) = simulate.run([config], "0.14+0.02", None, None)
    assert row["bytes_sent_most"] == sum(one.sent * one.repeat for one in modelled) > 40_000
    assert predict.relaxes(compose(words)[0].algo) == "exact"


def test_all_cores_record_what_one_would():
    config = compose(["algo=gtopk_butterfly", f"nodes={simulated_row.SHARED + 3}"])[0]
    recorded = simulated_row.dry_run.all_rounds(config.algo, config.nodes, 1000, 10)
    assert simulated_row.all_rounds(config, 1000, 10) == recorded


def test_messages_that_depend_on_values_are_recorded_by_one_core(monkeypatch):
    """Each of the cores ran all the ranks."""
    monkeypatch.setattr(simulated_row, "SHARED", 2)
    monkeypatch.setattr(simulated_row, "ProcessPoolExecutor", None)
    config = compose(["algo=oktopk", "nodes=4"])[0]
    assert len(simulated_row.all_rounds(config, 1000, 10)) == 4
    assert simulated_row.dry_run.all_rounds(config.algo, 4, 1000, 10, range(4, 4)) == []


def test_the_command_writes_a_summary(tmp_path):
    out = tmp_path / "simulated.json"
    words = "simulate model=vgg16 algo=dense,gtopk nodes=4,8,...,16 node=0.2 --out"
    cli.app([*words.split(), str(out)], standalone_mode=False)
    report = json.loads(out.read_text())
    assert [row["nodes"] for row in report["rows"]] == 2 * [4, 8, 16]
    assert {row["parameters"] for row in report["rows"]} == {14728266}
    assert report["density"] == 0.001, "dense, which comes first, has none"


@pytest.mark.parametrize("name", CHOICES)
def test_the_messages_of_every_algorithm_cost_what_its_formula_says(name):
    """Of a model that no number of nodes divides; a bound where messages depend on values."""
    config = dataclasses.replace(compose(["nodes=6"])[0], algo=CHOICES[name])
    algorithm = algorithms.of(config.algo)
    m, k = 100_003, 1_003
    rounds = simulated_row.all_rounds(config, m, k)
    cost = algorithms.cost(config.algo, config.nodes, m, k)
    most = max(sum(done.sent * done.repeat for done in own) for own in rounds)
    longest = max(sum(done.repeat for done in own) for own in rounds)
    if algorithm.messages_depend_on_values:
        assert cost.bytes / 8 < most <= cost.bytes and cost.rounds / 4 < longest <= cost.rounds
    else:
        assert (most, longest) == cost
    assert replay.seconds(rounds, 1e-3, 1e-9) > 0


@pytest.mark.parametrize("wire", WIRES)
def test_the_model_knows_the_wire_format(wire, capsys):
    """Rounds, closed form and crossover follow the bytes of k pairs; the authors' figure has pairs alone."""
    m = 1_000_000
    found = rows("algo=topk,gtopk,gtopk_butterfly", "nodes=4,8,16,32", f"algo.wire={wire}", sizes=[m])
    message = message_bytes(wire, 1000, m)
    for row in found:
        assert row["wire"] == wire and row["communicate_s"] == pytest.approx(row["closed_form_s"])
        assert (row["as_plotted_s"] is not None) == (wire == "pairs" and row["algo"] != "gtopk_butterfly")
        messages = row["nodes"] - 1 if row["algo"] == "topk" else math.log2(row["nodes"])
        assert row["bytes_sent_most"] == message * messages
        assert row["socket_bytes_most"] == row["bytes_sent_most"] + 144 * math.log2(row["nodes"])
        assert row["bytes_sent_mean"] <= row["bytes_sent_most"]
    routed = rows("algo=gtopk", "algo.route=butterfly", "nodes=8", f"algo.wire={wire}", sizes=[m])
    assert routed[0]["as_plotted_s"] is None, "nor is the butterfly, whatever it is called"
    assert ("topk in packed from" in " ".join(capsys.readouterr().out.split())) == (wire == "packed")


def test_rates_are_of_a_node_and_its_batch_is_named(capsys):
    """VGG-16's 629 images/s on 32 nodes were read as those of all of them."""
    (gtopk,) = simulate.run(compose(["model=vgg16", "algo=gtopk", "nodes=32"]), "paper", None, None)
    assert gtopk["samples_per_s"] == pytest.approx(gtopk["samples"] / gtopk["iteration_s"])
    said, (cells,), _ = simulate.told([gtopk], "ethernet1g", "images")
    assert "batch 128 per node" in said and "batch per node" not in cells
    assert cells["images/s per node"] == gtopk["samples_per_s"]
    two = simulate.run(compose(["model=vgg16,alexnet", "algo=gtopk", "nodes=32"]), "paper", None, None)
    said, cells, _ = simulate.told(two, "ethernet1g", "images")
    assert "batch" not in said and [row["batch per node"] for row in cells] == [128, 64]


def test_what_is_swept_has_a_column_and_is_not_compared(capsys):
    """Rows of other networks were called the first's, and one density's Top-k was compared with another's gTop-k."""
    sweep = ["nodes=4,8,16", "algo=topk,gtopk", "network=ethernet1g,infiniband100g", "density=0.0001,0.01"]
    found = simulate.run(compose(sweep), "0.5+0.1", [1_000_000], None)
    said = " ".join(capsys.readouterr().out.split())
    faster = "gtopk communicates faster than topk"
    assert said.count(faster) == 4 and f"network=infiniband100g, density=0.01: {faster}" in said
    assert "network ethernet1g" not in said and said.count("infiniband100g") >= 12
    assert {(row["network"], row["density"], row["k"]) for row in found} == {
        (name, f"{density:g}", round(density * 1_000_000))
        for name in ("ethernet1g", "infiniband100g") for density in (0.0001, 0.01)
    }  # fmt: skip
    simulate.run(compose(["nodes=4", "algo=topk,gtopk", "algo.wire=pairs,gaps"]), "0.5+0.1", [1_000_000], None)
    assert "algo.wire" in capsys.readouterr().out
    of_a_node = ["nodes=4", "algo=topk,gtopk", "batch_per_node=32,64", "precision=float32,bfloat16"]
    found = simulate.run(compose(of_a_node), "0.5+0.1", [1_000_000], None)
    assert len({(row["algo"], row["batch_per_node"], row["precision"]) for row in found}) == 8
    assert simulate.swept(compose(["model=resnet20", "algo=dense", "device=cpu,cuda"])) == ["device"]
    assert simulate.swept(compose(["model=resnet20,vgg16", "algo=dense,gtopk"])) == [], "each has its own batch"


def test_layers_are_what_low_rank_is_about():
    """Without them a model is one nearly square matrix, which would send far less than its layers do."""
    config = compose(["algo=powersgd", "model=resnet20", "nodes=4"])[0]
    (with_layers,), (without,) = (simulate.run([config], "0.1", sizes, None) for sizes in (None, [269722]))
    assert with_layers["bytes_sent_most"] > 3 * without["bytes_sent_most"]


def test_what_people_type():
    assert counts("parameters", "270k,2.7M,61100840") == [270_000, 2_700_000, 61_100_840]
    assert doubled("nodes", "4,8,...,64") == "4,8,16,32,64"
    assert doubled("nodes", "3,5,31") == "3,5,31"
    for wrong in ("0", "x", "-1k", ""):
        with pytest.raises(ConfigError, match="positive number"):
            counts("parameters", wrong)
    assert doubled("parameters", "270k,...,1M") == "270k,540000,1M"
    for wrong in ("...,8", "8,...,4", "4,...", "x,...,8", "0,...,8"):
        with pytest.raises(ConfigError, match="parameters=.*dots"):
            doubled("parameters", wrong)
    with pytest.raises(ConfigError, match="choose paper, measured"):
        rows_of = compose(["nodes=2"])
        simulate.run(rows_of, "fast", None, None)


@pytest.mark.parametrize("sweep", ["network=ethernet1g,ethernet10g", "network=ethernet1g density=0.001,0.01"])
def test_a_sweep_written_where_figures_read_has_what_they_draw(sweep: str, tmp_path: Path) -> None:
    """Its network was null, of which figures asked the name, and its densities were text, which are no number."""
    out = tmp_path / "simulate.json"
    simulate.run(compose(["model=resnet20", "algo=dense,gtopk", "nodes=4", *sweep.split()]), "paper", None, out)
    results = Results(PAPER, {"simulate": json.loads(out.read_text())})
    assert [row["algo"] for row in _times.simulated(results)] == ["dense", "gtopk"]


def test_a_gradient_of_another_size_is_not_drawn_as_the_networks(tmp_path: Path) -> None:
    out, drawn = tmp_path / "simulate.json", []
    for sizes in (None, [26_214_400]):
        simulate.run(compose(["model=resnet20", "algo=gtopk", "nodes=4", "network=ethernet1g"]), "paper", sizes, out)
        drawn.append(_times.simulated(Results(PAPER, {"simulate": json.loads(out.read_text())})))
    assert [len(rows) for rows in drawn] == [1, 0]


def test_bytes_at_the_socket_are_of_a_step_too():
    (config,) = compose(["algo=local_sgd", "algo.period=4", "nodes=4", "model=resnet20"])
    (row,) = simulate.run([config], "0.1+0", None, None)
    assert row["socket_bytes_most"] - row["bytes_sent_most"] == 144 * 2 * row["rounds_most"]  # two messages a round


def test_more_nodes_than_messages_can_be_told_apart_of_are_refused():
    """Half of 8,192 packed messages are as large as the stand-in's gradient: they were counted as a share of it."""
    algo = compose(["algo=topk", "algo.wire=packed"])[0].algo
    with pytest.raises(ConfigError, match="nodes=8192: rounds are recorded for at most 8191 nodes"):
        dry_run.all_rounds(algo, 8192, 1_000_000, 1000)
