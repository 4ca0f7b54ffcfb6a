"""cluster.dilation=auto: which dilation is tried, what is kept of it, and how a run's own messages are weighed."""

import dataclasses
import json
from pathlib import Path

import pytest
from test_dilation import config
from test_lab import possible  # noqa: F401  (a fixture)

from repro import algorithms
from repro.cluster import dilation, lab
from repro.cluster.preempt import Interrupt
from repro.comm import replay
from repro.config.compose import compose
from repro.config.schema import Config, ConfigError, RunError
from repro.timing import dry_run, node_profile
from repro.train import loop


def test_auto_takes_the_least_that_is_enough_and_keeps_it(tmp_path: Path):
    one, tried = compose(["cluster=lab", "cluster.dilation=auto", f"results={tmp_path}"])[0], []

    def launch(trial: Config, main: object) -> dict[int, float]:
        tried.append(trial.cluster.dilation)
        return dict.fromkeys((dilation.SMALL, dilation.LARGE), 1 + 1 / trial.cluster.dilation)

    assert dilation.resolve(one, launch) == 32
    assert dilation.resolve(one, launch) == 32
    assert tried == [8, 16, 32]
    assert [*json.loads((tmp_path / dilation.FILE).read_text()).values()][0]["8"]["2048"] == 1.125
    assert dilation.resolve(config(4, 8), launch) == 8


def test_what_failed_everywhere_is_tried_again_another_time(tmp_path: Path) -> None:
    """The advice to try again when the machine has less to do got the same answer at once, without a trial."""
    one, slow = compose(["cluster=lab", "cluster.dilation=auto", f"results={tmp_path}"])[0], 9.0

    def launch(trial: Config, main: object) -> dict[int, float]:
        return dict.fromkeys((dilation.SMALL, dilation.LARGE), slow)

    with pytest.raises(RunError, match="less else to do"):
        dilation.resolve(one, launch)
    slow = 1.0
    assert dilation.resolve(one, launch) == 8


def test_auto_begins_where_a_fast_network_can_be_shaped(tmp_path: Path) -> None:
    """At 400 Gbps it began at 8, which is refused with the advice to type cluster.dilation=auto."""
    words = ["cluster=lab", "cluster.dilation=auto", "network.bits_per_s=4e11", f"results={tmp_path}"]
    for nodes in (1, 2):
        (one,) = compose([*words, f"nodes={nodes}"])
        assert dilation.resolve(one, lambda *_: {dilation.SMALL: 1.0, dilation.LARGE: 1.0}) == 16
        assert dilation.expected(one, [(1_000_000,)]) == 16
    lab.check_rate(4e11, 16)
    with pytest.raises(ConfigError, match=r"at most 2.75e\+11 with time dilated 8 times; type cluster.dilation=auto"):
        lab.check_rate(4e11, 8)
    with pytest.raises(ConfigError, match=r"dilated 1024 times; type network.bits_per_s=1e11 cluster.dilation=auto"):
        lab.check_rate(1e15, "auto")


@pytest.mark.parametrize(("network", "count"), [("ethernet1g", 1 << 21), ("ethernet100g", 2_500_000)])
def test_large_messages_are_large_beside_the_latency_of_a_fast_network(network: str, count: int):
    """At 100 Gbps 2 MB take 168 microseconds, and the latency 50: it would absorb that two cores are slow."""
    assert dilation.large(compose([f"network={network}"])[0].network) == count


@pytest.mark.parametrize("text", ["", '{"a": ', "[1]", '{"a": 8}', '{"a": {"8": {"2048": 1}}}', b"\xff\xfe"])
def test_a_damaged_answer_counts_as_absent(text: str | bytes, tmp_path: Path):
    one = compose(["cluster=lab", "cluster.dilation=auto", f"results={tmp_path}"])[0]
    file = tmp_path / dilation.FILE
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert dilation.kept(file) == {}
    assert dilation.resolve(one, lambda *_: {dilation.SMALL: 1.0, dilation.LARGE: 1.0}) == 8
    assert [[*tried] for tried in dilation.kept(file).values()] == [["8"]]


def test_one_node_has_no_messages_to_weigh(tmp_path: Path):
    """What a sweep of nodes=1,2,4 will take is asked of each: dividing by what no messages take ended it."""
    alone = compose(["cluster=lab", "nodes=1", "cluster.dilation=auto", "node=paper", f"results={tmp_path}"])[0]
    assert dilation.expected(alone, [(1_000_000,)]) == dilation.resolve(alone, lambda *_: pytest.fail("nothing to try"))


def test_auto_weighs_small_and_large_messages_as_a_run_has_them(tmp_path: Path):
    """Dense of a large network hardly waits for latency: what small messages need, it does not."""
    words = ["cluster=lab", "cluster.dilation=auto", "nodes=32", "node=paper", "model=vgg16", "batch_per_node=128"]
    least = {}
    for algo in ("dense", "gtopk"):
        one = compose([*words, f"algo={algo}", "density_warmup=[]", f"results={tmp_path}"])[0]
        least[algo] = dilation.resolve(
            one, lambda trial, _: {dilation.SMALL: 1 + 8 / trial.cluster.dilation, dilation.LARGE: 1.02}
        )
    assert least == {"dense": 8, "gtopk": 128}
    assert dilation.latency_share(compose(["cluster=lab", "cluster.dilation=auto"])[0]) is None


@pytest.mark.parametrize(
    "words",
    [
        ["algo=powersgd"],
        ["algo=ddp"],
        ["algo=gtopk", "bucket_mb=1", "scope=bucket"],
        ["algo=gtopk"],
        ["algo=gtopk_butterfly"],
        ["algo=parameter_server"],
        ["algo=gtopk_parameter_server"],
        ["algo=dense", "bucket_mb=25"],
        ["algo=demo"],
    ],
)
def test_latency_is_weighed_as_it_is_in_the_runs_own_messages(words: list[str]):
    """One message for all buckets, or one square matrix for all layers, had a tenth or four times of its latency."""
    lab = ["cluster=lab", "cluster.dilation=auto", "nodes=8", "node=paper", "model=resnet50", "density_warmup=[]"]
    (config,) = compose([*lab, "data=synthetic", "data.image_size=224", "data.classes=1000", *words])
    shapes = node_profile.layers(config)
    parts = dry_run.in_parts(config, config.nodes, shapes, algorithms.spans(config, shapes))
    alpha_s, beta_s = config.network.alpha_s, config.network.beta_s_per_byte
    both_s, bytes_s = (
        sum(replay.seconds(part, alpha, beta_s) for part in parts) for alpha, beta in ((alpha_s, beta_s), (0.0, beta_s))
    )
    assert dilation.latency_share(config) == pytest.approx(1 - bytes_s / both_s, rel=0.1)


def test_auto_tries_no_dilation_that_makes_links_too_slow(tmp_path: Path) -> None:
    """It measured some, and then said that the bandwidth that was asked for was another."""
    asked = dataclasses.replace(config(2, "auto"), results=str(tmp_path))
    asked = dataclasses.replace(asked, network=dataclasses.replace(asked.network, bits_per_s=1e6))
    tried: list[float] = []

    def launch(trial, main):
        tried.append(trial.cluster.dilation)
        return {dilation.SMALL: 9.0, dilation.LARGE: 9.0}

    with pytest.raises(RunError, match="no less than 100000 bit/s"):
        dilation.resolve(asked, launch)
    assert tried and max(tried) <= 10


def test_a_network_without_costs_has_no_share_of_latency() -> None:
    """ZeroDivisionError."""
    words = ["cluster=lab", "cluster.dilation=auto", "node=paper", "network.alpha_s=0", "network.beta_s_per_byte=0"]
    assert dilation.latency_share(compose(words)[0]) is None


@pytest.mark.lab
@pytest.mark.usefixtures("possible")
def test_a_run_that_is_told_to_stop_while_dilations_are_tried_has_not_begun(tmp_path: Path) -> None:
    """One signal was booked as a failed run, "stopped at once by a second Ctrl-C", and SLURM got no run back."""
    words = ["cluster=lab", "cluster.dilation=auto", "nodes=2", "node=paper", f"results={tmp_path}"]
    (one,), told = compose(words), Interrupt()
    told.set()
    assert loop.run(one, lambda *_: pytest.fail("it did not stop"), told)["state"] == "preempted"
    assert not (one.folder / "status.json").exists() and not (tmp_path / dilation.FILE).exists()
