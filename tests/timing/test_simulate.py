"""`repro simulate`: the authors' model figure, its crossover, many nodes, and what node= may be."""

import dataclasses
import itertools
import json
import math
from pathlib import Path

import pytest
import torch
import yaml
from algorithm_steps import CHOICES

from repro import algorithms, cli
from repro.cluster import ranks
from repro.comm import cost_formulas, replay
from repro.comm.cost_formulas import message_bytes
from repro.comm.traffic import Link
from repro.compression.pair_sizes import WIRES
from repro.config.compose import compose
from repro.config.counts import counts, doubled
from repro.config.schema import ConfigError
from repro.timing import bench_collectives, bench_step, dry_run, node_profile, planner, predict, simulate
from repro.train.loop import load_data

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
    assert "gtopk communicates faster than topk from 8 nodes on" in " ".join(capsys.readouterr().out.split())


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
    monkeypatch.setattr(node_profile, "backward", lambda node, config: moments)
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
    (modelled, *_) = simulate.dry_run.all_rounds(config.algo, 4, 269722, 0, shapes=shapes)
    (row,) = simulate.run([config], "0.14+0.02", None, None)
    assert row["bytes_sent_most"] == sum(one.sent * one.repeat for one in modelled) > 40_000
    assert predict.relaxes(compose(words)[0].algo) == "exact"


def test_what_selects_takes_time_and_what_sends_its_weights_takes_none():
    """It went by the family: SparseLoCo selected in 0 s, and plain averages of two nodes had no known time."""
    of = {name: node_profile.published(compose(["model=resnet50", f"algo={name}"])[0]) for name in
          ("sparseloco", "decentralized", "low_precision_decentralized", "gtopk")}  # fmt: skip
    assert of["decentralized"].compress_s == 0 and of["gtopk"].compress_s > 0
    assert of["sparseloco"].compress_s is None and of["low_precision_decentralized"].compress_s is None


def test_the_published_profile_is_one_nodes_throughput():
    node = node_profile.published(compose(["model=resnet50"])[0])
    assert node.samples / node.compute_s == pytest.approx(PAPER["throughput_per_node"]["resnet50"]["single"])


def test_a_measured_profile_is_positive_and_compress_is_part_of_the_step():
    node = node_profile.profile("measured", compose(["model=resnet20", "batch_per_node=2", "nodes=8"])[0], 269722)
    assert node.compute_s > 0 and 0 < node.compress_s < 1


def test_the_rank_that_is_timed_leads_where_ranks_take_turns(monkeypatch):
    """Seven of eight steps of ScaleCom that were timed selected nothing."""
    config, made, steady = compose(["algo=scalecom", "nodes=8"])[0], [], dry_run.steady

    def counted(*of):
        algorithm = steady(*of)
        select = algorithm.memory.select
        algorithm.memory.select = lambda *what: made.append(0) or select(*what)
        return algorithm

    monkeypatch.setattr(dry_run, "steady", counted)
    monkeypatch.setattr(node_profile, "repeated", lambda once: [once() for _ in range(3)])
    node_profile.compress(config, 1000)
    assert len(made) == 4  # and a first that warms up


def test_rows_of_one_network_have_one_compute_with_the_threads_of_a_rank(monkeypatch):
    """It was timed again for each row, and with threads that no rank would have."""
    seen = []
    monkeypatch.setattr(node_profile, "ready", lambda *_: seen.append(torch.get_num_threads()) or [0.1])
    configs = compose(["model=resnet20", "nodes=4,8", "algo=dense,topk", "threads=2"])
    try:
        rows = simulate.run(configs, "measured", None, None)
    finally:
        torch.set_num_threads(1)
    assert seen == [2] and {row["compute_s"] for row in rows} == {0.1}


def test_what_is_timed_here_is_timed_on_the_device_of_a_run(monkeypatch):
    """`repro tune` timed the processor, and trained on the GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = compose(["model=resnet20", "nodes=4", "device=cuda"])[0]
    for action in (lambda: node_profile.profile("measured", config, 1000), lambda: node_profile.compress(config, 1000)):
        with pytest.raises(ConfigError, match="torch finds no GPU here"):
            action()


@pytest.mark.parametrize("node", ["paper", "0.14"])
def test_what_is_not_timed_has_no_iteration_time(node, capsys):
    """Quantised and low-rank algorithms had a compress of 0 s, and so the shortest iterations."""
    configs = compose(["model=vgg16", "nodes=8", "algo=dense,gtopk,onebit,powersgd,local_sgd"])
    found = {row["algo"]: row for row in simulate.run(configs, node, [10_000], None)}
    timed = {name for name, row in found.items() if row["iteration_s"] is not None}
    assert timed == {"dense", "local_sgd"} | ({"gtopk"} if node == "paper" else set())
    for name in found.keys() - timed:
        assert found[name]["compress_s"] is found[name]["samples_per_s"] is found[name]["efficiency"] is None
        assert found[name]["communicate_s"] > 0
    assert found["dense"]["compress_s"] == found["local_sgd"]["compress_s"] == 0
    said = capsys.readouterr().out
    assert "No iteration time for" in said and "onebit, powersgd" in said and "node=measured" in said
    stated = {row["algo"]: row["compress_s"] for row in simulate.run(configs, "0.14+0.09", [10_000], None)}
    assert stated == {"dense": 0, "gtopk": 0.09, "onebit": 0.09, "powersgd": 0.09, "local_sgd": 0}
    assert "No iteration time" not in capsys.readouterr().out


def test_all_cores_record_what_one_would():
    config = compose(["algo=gtopk_butterfly", f"nodes={simulate.SHARED + 3}"])[0]
    recorded = simulate.dry_run.all_rounds(config.algo, config.nodes, 1000, 10)
    assert simulate.all_rounds(config, 1000, 10) == recorded


def test_messages_that_depend_on_values_are_recorded_by_one_core(monkeypatch):
    """Each of the cores ran all the ranks."""
    monkeypatch.setattr(simulate, "SHARED", 2)
    monkeypatch.setattr(simulate, "ProcessPoolExecutor", None)
    config = compose(["algo=oktopk", "nodes=4"])[0]
    assert len(simulate.all_rounds(config, 1000, 10)) == 4
    assert simulate.dry_run.all_rounds(config.algo, 4, 1000, 10, range(4, 4)) == []


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
    rounds = simulate.all_rounds(config, m, k)
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
    assert simulate.swept(compose(["model=resnet20,vgg16", "algo=dense,gtopk"])) == [], "each has its own batch"


@pytest.mark.parametrize("key", ["hierarchical=true", "bucket_mb=1", "overlap=on", "machines=2"])
def test_what_is_not_simulated_is_refused(key):
    """Whole gradients between nodes of one level were simulated, or measured, in their place."""
    with pytest.raises(ConfigError, match=f"^{key}: not simulated"):
        rows("algo=dense", "nodes=4", key)
    with pytest.raises(ConfigError, match=f"^{key}: not simulated or measured"):
        bench_collectives.measure_collectives(compose(["cluster=lab", "nodes=2", key]), [1000], 3, Path("nowhere"))


def test_collectives_that_would_have_one_name_are_refused(tmp_path):
    """Two rows of gtopk, one of each wire format, could not be told apart."""
    configs = compose(["cluster=lab", "nodes=2", "algo=gtopk", "algo.wire=pairs,gaps"])
    with pytest.raises(ConfigError, match="^algo.wire: rows that differ in nothing else have one name in rows.jsonl"):
        bench_collectives.measure_collectives(configs, [1000], 3, tmp_path / "rows.jsonl")


def test_a_plain_loop_has_as_many_batches_as_steps_and_one_in_each(tmp_path):
    """It ended with its epoch, and its rate counted all steps."""
    (config,) = compose(["data=synthetic", "data.train_images=32", "nodes=2", "batch_per_node=8", "accumulate=2"])
    feed = bench_step.endless(config, load_data(config), 1)
    shapes = [images.shape for images, _ in itertools.islice(feed, 5)]  # 2 an epoch
    assert shapes == [(8, 3, 32, 32)] * 5
    with pytest.raises(ConfigError, match="leave accumulate and stages out"):
        bench_step.measure_steps([config], 1, 1, tmp_path)


def test_stages_and_stated_compute_are_refused_where_they_do_nothing():
    with pytest.raises(ConfigError, match="stages=2: pipelines are predicted by `repro strategies`"):
        bench_collectives.measure_collectives(compose(["cluster=lab", "stages=2"]), [1000], 3, Path("nowhere"))
    with pytest.raises(ConfigError, match="compute_s=0.2: .*type node=0.2"):
        rows("algo=dense", "nodes=4", "compute_s=0.2")


@pytest.mark.parametrize(
    ("command", "says"),
    {
        "tune model=resnet20 nodes=4 algo=dense": "node= here; type node=0.2",
        "map nodes=2 model=resnet20 algo=dense": "tradeoff.node= here; type tradeoff.node=0.2",
        "bench regret": "timed on this machine here; leave compute_s out",
        "strategies model=resnet20 nodes=4": "the published ones here; leave compute_s out",
    }.items(),
)
def test_a_command_that_does_not_read_compute_s_says_what_it_reads(
    command: str, says: str, tmp_path, monkeypatch
) -> None:
    """They dropped it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ranks, "launch", None)
    with pytest.raises(ConfigError, match=f"^compute_s=0.2: the seconds of a node are {says}"):
        cli.app([*command.split(), "compute_s=0.2"], standalone_mode=False)


@pytest.mark.parametrize("command", ["network", "collectives", "step", "regret"])
def test_a_measurement_refuses_stated_compute(command: str, tmp_path, monkeypatch) -> None:
    """Three of them dropped it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ranks, "launch", None)
    with pytest.raises(ConfigError, match="^node=paper: all is measured here, .*; leave node out"):
        cli.app(["bench", command, "cluster=lab", "nodes=2", "node=paper"], standalone_mode=False)


def test_published_seconds_are_of_the_published_batch_unless_none_is_typed():
    """512 images took the seconds of 128."""
    words = ["simulate", "model=resnet20", "nodes=4", "algo=dense", "parameters=10k"]
    cli.app(words, standalone_mode=False)
    cli.app([*words, "batch_per_node=64", "accumulate=2"], standalone_mode=False)
    for key in ("batch_per_node=512", "accumulate=2"):
        with pytest.raises(ConfigError, match="of 128 samples a step, not .*; type batch_per_node="):
            cli.app([*words, key], standalone_mode=False)
    for batch in (3, 256):
        with pytest.raises(
            ConfigError, match=f"samples a step, not {batch * 32}; type batch_per_node=128 accumulate=1"
        ):
            cli.app([*words, "batch_per_node=32", f"accumulate={batch}"], standalone_mode=False)
    with pytest.raises(ConfigError, match="of 128 samples a step, not 512; type batch_per_node=128"):
        node_profile.backward("paper", compose(["model=resnet20", "batch_per_node=512"])[0])


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
