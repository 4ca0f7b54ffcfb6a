"""Time dilated in the lab: real namespaces, real links, and what is reported of them."""

import dataclasses
import functools
import socket
import struct
import threading
import time
from pathlib import Path

import pytest
import torch
from test_lab import nothing, possible  # noqa: F401  (a fixture)

from repro.cluster import lab, ranks, tcp
from repro.comm.collective import Collective
from repro.comm.common_start import PLAYED, from_common_start
from repro.comm.transport import MemoryTransport, Wires
from repro.config.compose import compose
from repro.config.schema import Config, ConfigError
from repro.report.from_run_folders import collect
from repro.runs import run_folder, status_file
from repro.timing import bench_links, dry_run, wire_replay
from repro.timing.before_run import before_a_run
from repro.train import loop, sweep

ALPHA = 0.436e-3  # of ethernet1g
REPEATS = 60  # at most; 12 s for those of dense


def config(nodes: int, dilation: int | str, *more: str) -> Config:
    return compose(["cluster=lab", f"nodes={nodes}", f"cluster.dilation={dilation}", "threads=1", *more])[0]


def times(
    configs: list[Config], enough: list[float], parameters: int, here: Config, rank: ranks.Rank, data: None
) -> list[float]:
    """The least seconds of each algorithm's messages, as the network would have them.

    A machine with much else to do wakes a rank too late in some of the repeats, or in all of a few, and two labs see
    each other. So there are more of them until the least is `enough`. More repeats make the least no larger than the
    network allows: what no repeat may be under is held against the least of all.
    """
    found = []
    for one, most in zip(configs, enough, strict=True):
        rounds = dry_run.all_rounds(one.algo, rank.size, parameters, parameters // 1000)[rank.number]
        play = wire_replay.play(rounds, rank.collective.transport)
        seconds = from_common_start(play, rank, 4)
        while min(seconds) / rank.dilation >= most and len(seconds) < REPEATS:
            seconds += from_common_start(play, rank, 4)
        found.append(min(seconds) / rank.dilation)
    return found


@pytest.mark.lab
def test_all_links_of_four_nodes_take_what_the_network_would_take():
    names = ("dense", "topk", "gtopk", "gtopk_butterfly")
    configs = [config(4, 8, f"algo={name}") for name in names]
    pairs, line = 400 * 8 * 8e-9, 400_000 * 4 * 8e-9
    least = {
        "dense": 6 * ALPHA + 1.5 * line, "topk": 2 * ALPHA + 3 * pairs,
        "gtopk": 4 * (ALPHA + pairs), "gtopk_butterfly": 2 * (ALPHA + pairs),
    }  # fmt: skip
    enough = [1.6 * least[name] for name in names]
    measured = ranks.launch(configs[0], functools.partial(times, configs, enough, 400_000), nothing)
    seconds = dict(zip(names, measured, strict=True))
    # A busy machine may be late; too early would be no lab. The machine's own latency is subtracted, as it was then.
    assert all(0.95 * least[name] < seconds[name] < 1.6 * least[name] for name in names), (seconds, least)


def time_outs(here: Config, rank: ranks.Rank, data: None) -> list[int]:
    """Returns the microseconds after which each of this rank's connections takes a packet for lost."""
    wire = rank.collective.transport
    wire.exchange(torch.zeros(100), 1 - rank.number, torch.zeros(100), 1 - rank.number)
    infos = [one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104) for one in wire.wires.values()]
    return [struct.unpack_from("=I", info, 8)[0] for info in infos]


@pytest.mark.lab
def test_a_packet_counts_as_lost_after_as_many_times_the_least_time_out() -> None:
    """Linux passed over a route's rto_min that was not locked: it was 0.2 s, as without dilation."""
    (microseconds,) = ranks.launch(config(2, 8), time_outs, nothing)
    assert 1.6e6 <= microseconds < 2.5e6


def test_what_of_tcp_cannot_be_set_is_named() -> None:
    """Where /proc/sys is read-only, as in many containers, all stayed as it was without a word."""
    here = Path("/proc/sys/kernel/osrelease").read_text()  # which nobody may write
    fixed = "../../kernel/osrelease"
    assert tcp.set_up({fixed: here, "tcp_no_such_setting": "1"}) == ["tcp_no_such_setting"]
    assert tcp.set_up({fixed: "another"}) == [fixed]


def own_trip(here: Config, rank: ranks.Rank, data: None) -> list:
    bench_links.PAIRS_S, bench_links.SIZES = 0.3, [64, 1 << 16]
    return bench_links.ping_pong(here, rank, data)


MEGABYTES = 24


def two_to_one(here: Config, rank: ranks.Rank, data: None) -> tuple[int, float]:
    """Ranks 1 and 2 send to rank 0 at once, which reads the one and then the other.

    Two times, as windows grow, and then three. Returns how many segments were sent again, and the seconds until rank 0
    had the first message: the least of these three, as a rank that this machine wakes late begins late.
    """
    x, wire = torch.zeros(MEGABYTES << 20, dtype=torch.uint8), rank.collective.transport
    first_s = []
    for _ in range(5):
        rank.control.barrier()
        began = time.monotonic()
        if rank.number:
            wire.send(x, 0)
        else:
            wire.recv(x, 1)
            first_s.append(time.monotonic() - began)
            wire.recv(x, 2)
    names, values = (line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line[:4] == "Tcp:")
    lost = torch.tensor([int(values[names.index("RetransSegs")])])
    rank.control.all_reduce(lost)
    return int(lost), min(first_s[2:], default=0.0)


@pytest.mark.lab
def test_two_large_messages_to_one_rank_lose_nothing_on_the_way():
    again, first_s = ranks.launch(config(3, 8, "network=ethernet10g"), two_to_one, nothing)
    size = MEGABYTES << 20
    assert again < 6 * size // 1448 / 1000  # with windows of 32 MB, a queue of 4 MB lost 180
    assert first_s < 1.6 * 8 * 8e-10 * size, "what nobody waits for yet takes the link from what is waited for"


@pytest.mark.lab
def test_alpha_is_measured_back_and_a_full_bucket_lets_nothing_through_at_once():
    small, large = ranks.launch(config(2, 8), own_trip, nothing)
    assert small["seconds"] == pytest.approx(ALPHA, rel=0.15)  # 5 % on a machine that has nothing else to do
    assert large["seconds"] > 0.98 * (ALPHA + 65_536 * 8e-9)


@pytest.mark.lab
def test_an_iteration_of_stated_compute_is_recorded_as_dilated(tmp_path: Path):
    one = config(
        2, 8, "node=paper", "model=resnet20", "batch_per_node=128", "data=synthetic", "algo=gtopk",
        "wandb.mode=disabled", f"results={tmp_path}",
    )  # fmt: skip
    summary = loop.run(one, before_a_run)
    assert summary["state"] == "done" and summary["source"] == "measured, dilated 8 x"
    modelled, measured = [line for line in run_folder.read_metrics(one.folder) if line["kind"] == "iteration_time"]
    assert modelled["source"] == "modelled" and "dilation" not in modelled
    assert (measured["dilation"], measured["repeats"], measured["node"]) == (8, 9, "paper")
    assert measured["compute_s"] == pytest.approx(128 / 920.632)  # published; nobody waited 8 times as long for nothing
    assert measured["communicate_s"] == pytest.approx(modelled["communicate_s"], rel=0.5)
    assert status_file.state(one.folder) == "done"
    found, left_out = collect(tmp_path)
    assert left_out == [] and [len(group["iteration_time"]) for group in found["default"]["groups"]] == [2]


@pytest.mark.lab
def test_buckets_of_ddp_are_summed_by_gloo_beside_stated_compute(tmp_path: Path):
    """Two nodes send each other half of 269,722 float32 twice: 8.6 ms at 1 Gbps, of which backward hides nothing."""
    one = config(
        2, 8, "node=stated", "compute_s=0.02", "model=resnet20", "data=synthetic", "algo=ddp", "steps=2",
        "wandb.mode=disabled", f"results={tmp_path}",
    )  # fmt: skip
    summary = loop.run(one, before_a_run)
    assert summary["source"] == "measured, dilated 8 x, latency not held"
    modelled, measured = [line for line in run_folder.read_metrics(one.folder) if line["kind"] == "iteration_time"]
    assert (measured["node"], measured["repeats"], len(measured["iterations_s"])) == ("stated", 2, 2)
    assert (measured["compute_s"], measured["compress_s"], measured["hidden_s"]) == (0.02, 0.0, 0.0)
    wire = 269_722 * 4 * 8e-9
    assert modelled["communicate_s"] == pytest.approx(2 * ALPHA + 269_722 * 4 * 9e-9, rel=0.01)
    assert 0.9 * wire < measured["communicate_s"] < 3 * wire


def test_a_dilation_of_one_leaves_run_ids_as_they_were():
    plain, said = (
        compose(["cluster=lab"])[0],
        compose(["cluster=lab", "cluster.dilation=1", "cluster.alpha=machine"])[0],
    )
    assert plain.run_id == said.run_id == "resnet20-cifar10-gtopk-d0.001-n4-s0-e753eb61"
    assert config(4, 8).run_id != plain.run_id


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cluster=lab", "cluster.dilation=3"], "cluster.dilation=3: choose one of 1,"),
        (["cluster.dilation=8"], "there is no key cluster.dilation"),
        (["node=paper"], "node=paper: only the lab measures with stated compute; type cluster=lab"),
        (["cluster=lab", "node=published"], "node=published: choose one of paper, paper_compute, measured, stated"),
        (["cluster=lab", "node=stated"], "node=stated: type compute_s=SECONDS too"),
    ],
)
def test_what_is_not_offered_is_said(words: list[str], message: str):
    with pytest.raises(ConfigError, match=message):
        compose(words)


def test_a_rank_that_sleeps_in_place_of_work_is_no_rank_that_hangs():
    rank = ranks.Rank(*[Collective(MemoryTransport(0, Wires(1)))] * 2, None, False, None)
    sleeper = threading.Thread(target=lambda: rank.sleep_until(time.monotonic() + 1))
    assert rank.position()[0] is None
    sleeper.start()
    while rank.position()[0] is None and sleeper.is_alive():
        time.sleep(0.01)
    assert rank.position()[0] == "its work, asleep"
    sleeper.join()
    assert rank.position()[0] is None


def test_a_rank_that_plays_messages_again_is_no_rank_that_hangs():
    """On slow links, or in a dilated lab, it waits for minutes, in no Collective and without any work."""
    rank = ranks.Rank(*[Collective(MemoryTransport(0, Wires(1)))] * 2, None, False, None)
    begun, over, seconds = threading.Event(), threading.Event(), []

    def play() -> None:
        rank.sleep_until(time.monotonic())  # a stage's work between its messages
        begun.set()
        over.wait(10)

    player = threading.Thread(target=lambda: seconds.extend(from_common_start(play, rank, 1)))
    player.start()
    assert begun.wait(10) and rank.position()[0] == PLAYED
    over.set()
    player.join()
    assert rank.position()[0] is None and len(seconds) == 1


def test_links_that_would_be_too_slow_are_refused(tmp_path: Path):
    slow = dataclasses.replace(config(2, 32).network, bits_per_s=1e6)
    with pytest.raises(ConfigError, match="at least"), lab.lab(slow.bits_per_s, dilation=32):
        pass
    both = r"network.bits_per_s / cluster.dilation, which is 1e\+06 / 32: .* type a smaller cluster.dilation, or"
    words = ["cluster=lab", "node=paper", "model=resnet20", "network.bits_per_s=1e6", "wandb.mode=disabled"]
    with pytest.raises(ConfigError, match=both):  # before the first run of a sweep begins
        sweep.run(compose([*words, "cluster.dilation=1,32", f"results={tmp_path}"]), None)
    assert not list(tmp_path.rglob("status.json"))


def test_links_that_are_too_fast_for_the_kernels_buckets_are_refused():
    """Each rank ended with struct.error: 'I' format requires 0 <= number <= 4294967295."""
    fast = compose(["network=ethernet100g"])[0].network.bits_per_s
    with pytest.raises(ConfigError, match="at most 3.44e\\+10; type cluster.dilation=auto"), lab.lab(fast):
        pass


@pytest.mark.lab
def test_what_the_authors_code_adds_is_measured_on_real_links(tmp_path: Path):
    seconds = {}
    for authors in ("none", "all"):
        one = config(
            4, 8, f"cluster.authors={authors}", "node=paper", "model=resnet20", "batch_per_node=128", "data=synthetic",
            "algo=gtopk", "wandb.mode=disabled", f"results={tmp_path}",
        )  # fmt: skip
        loop.run(one, before_a_run)
        lines = [line for line in run_folder.read_metrics(one.folder) if line["kind"] == "iteration_time"]
        seconds[authors] = [line["communicate_s"] for line in lines]
    modelled, measured = (seconds["all"][i] - seconds["none"][i] for i in (0, 1))
    barriers, bytes_s = 2 * 2 * (ALPHA + 9e-9), 4 * 269 * 8 * 9e-9
    assert barriers + bytes_s < modelled < 2 * (barriers + bytes_s), "and a little for two merges of 269 pairs"
    # Ranks that wait have sent their part of a barrier before, unlike in the model. A busy machine may be late.
    assert 0.5 * modelled < measured < 2 * modelled
