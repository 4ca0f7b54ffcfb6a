"""The emulated cluster on real shaped links: what it carries, how fast, and that nothing stays behind."""

import ctypes
import functools
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import thread_ranks
import torch
from cli_process import repro
from pyroute2.netlink.exceptions import NetlinkError

from repro import algorithms
from repro.cluster import lab, ranks
from repro.comm import replay
from repro.comm.common_start import from_common_start
from repro.comm.traffic import framing
from repro.compression.pair_sizes import WIRES
from repro.config.compose import compose
from repro.config.schema import Config, ConfigError
from repro.timing import dry_run, wire_replay

MBIT = 1e6
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def possible(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("lab"):
        try:
            with lab.lab(MBIT):
                pass
        except ConfigError as error:
            pytest.skip(str(error))


def config(nodes: int, bits_per_s: float, *more: str) -> Config:
    return compose(["cluster=lab", f"nodes={nodes}", f"network.bits_per_s={bits_per_s}", "algo=gtopk", *more])[0]


def nothing(config: Config) -> None:
    pass


def gradient(rank: int) -> torch.Tensor:
    return torch.randn(4000, generator=torch.Generator().manual_seed(rank))


def one_step(config: Config, rank: ranks.Rank, data: None) -> torch.Tensor:
    return step(config, rank.collective)


def step(config: Config, collective) -> torch.Tensor:
    algorithm = algorithms.load(config.algo, 4000)
    algorithm.density = 0.01
    return algorithm.step(gradient(collective.rank), collective)


@pytest.mark.lab
def test_a_step_in_the_lab_has_the_bits_of_a_step_of_threads():
    one = config(7, 100 * MBIT)
    here = thread_ranks.on_ranks(7, functools.partial(step, one), "gloo")
    assert torch.equal(ranks.launch(one, one_step, nothing), here[0])


def measure_all(configs: list[Config], config: Config, rank: ranks.Rank, data: None) -> list:
    return [measure(400_000, one, rank) for one in configs]


def measure(parameters: int, config: Config, rank: ranks.Rank) -> tuple[float, float, float]:
    """Seconds of the step's messages, their lower bound, and counted bytes over bytes at the interfaces.

    Counted are the messages and their headers; those of TCP, and its acknowledgements, are the rest.
    """
    all_rounds = dry_run.all_rounds(config.algo, rank.size, parameters, parameters // 10)
    play = wire_replay.play(all_rounds[rank.number], rank.collective.transport)
    before = lab.bytes_sent()
    seconds = min(from_common_start(play, rank, 3))
    sent = rank.control.gather_objects(lab.bytes_sent() - before)
    counted = 3 * sum(done.sent * done.repeat + framing(done) for rounds in all_rounds for done in rounds)
    return seconds, replay.seconds(all_rounds, 0.0, 8 / config.network.bits_per_s), counted / sum(sent)


@pytest.mark.lab
def test_links_carry_their_bandwidth_and_no_more_and_every_counted_byte_crosses_them():
    wires = [f"algo.wire={wire}" for wire in WIRES]
    configs = [config(4, 100 * MBIT, words) for words in ("algo=dense", *wires)]
    for seconds, bound, ratio in ranks.launch(configs[0], functools.partial(measure_all, configs), nothing):
        assert 0.9 < ratio < 1.0
        assert 0.95 * bound < seconds < 3 * bound  # a busy machine may be late; too early would be no lab


def there_and_back(config: Config, rank: ranks.Rank, data: None) -> float:
    def exchange() -> None:
        rank.collective.exchange(torch.ones(1), 1 - rank.number)

    return min(from_common_start(exchange, rank, 3))


@pytest.mark.lab
def test_a_delay_is_kept_or_the_kernel_is_said_to_have_none():
    late = compose(["cluster=lab", "nodes=2", "cluster.delay_s=0.05"])[0]
    try:
        assert 0.05 < ranks.launch(late, there_and_back, nothing) < 0.2
    except ConfigError as error:
        assert "cluster.delay_s=0.05: this kernel has no netem" in str(error)


SLEEP = """
import pathlib, time
from repro.cluster import ranks
from repro.config.compose import compose

def nothing(config):
    pass

def main(config, rank, data):
    rank.collective.barrier()
    if rank.number == 0:
        print("running", flush=True)
    while not pathlib.Path({over!r}).exists():
        time.sleep(0.1)
    rank.collective.barrier()

if __name__ == "__main__":
    ranks.launch(compose(["cluster=lab", "nodes=3", "cluster.dilation={dilation}"])[0], main, nothing)
    print("done", flush=True)
"""


def start(tmp_path: Path, name: str, dilation: int = 1) -> subprocess.Popen:
    """A lab that is there until it is killed, or until there is a file of its name."""
    script = tmp_path / f"{name}.py"
    script.write_text(SLEEP.format(over=str(tmp_path / name), dilation=dilation))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    # A group of its own, by which its ranks are found when it is dead.
    return subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT,
        start_new_session=True,
    )  # fmt: skip


def session(leader: int) -> set[str]:
    """The network namespaces of all processes of a session."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(process.name)) == leader:
                found.add(os.readlink(process / "ns" / "net"))
        except OSError:  # it ended meanwhile
            continue
    return found


@pytest.mark.lab
def test_two_labs_at_once_and_kill_9_leaves_nothing(tmp_path):
    links = sorted(os.listdir("/sys/class/net"))
    killed, other = start(tmp_path, "killed", 8), start(tmp_path, "other")
    try:
        assert killed.stdout.readline() == other.stdout.readline() == "running\n"
        one, two = session(killed.pid), session(other.pid)
        # three ranks, and the launcher in the machine's own network
        assert len(one) == len(two) == 4, (one, two, session(killed.pid), killed.poll(), other.poll())
        assert len(one & two) == 1
        assert sorted(os.listdir("/sys/class/net")) == links  # in which nothing of a lab is
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        deadline = time.monotonic() + 15
        while session(killed.pid) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not session(killed.pid)
        assert session(other.pid) == two
        (tmp_path / "other").touch()
        assert other.stdout.readline() == "done\n"
        assert other.wait() == 0
    finally:
        for process in (killed, other):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.stdout.close()


def as_nobody(pipe) -> None:
    """Make a lab and enter it, with no right but that to make user namespaces."""
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    PR_SET_DUMPABLE = 4  # as it is for a process that has been this user's from the start
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    try:
        with lab.lab(MBIT) as switch:
            pipe.send((switch.user is not None, lab.enter(switch, 5), lab.bytes_sent()))
    except ConfigError as error:
        pipe.send(str(error))


@pytest.mark.lab
def test_a_user_without_rights_has_a_lab_where_the_kernel_lets_users_make_namespaces():
    if os.geteuid():
        pytest.skip("the other tests run as a user without rights already")
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=as_nobody, args=(there,))
    child.start()
    answer = here.recv() if here.poll(20) else "no answer"
    child.join(20)
    if "cannot make network namespaces here" in str(answer):
        pytest.skip(answer)
    assert answer[:2] == (True, "10.83.0.6") and child.exitcode == 0


def refused_by_the_kernel(said: multiprocessing.connection.Connection) -> None:
    def refuses(*_: object) -> None:
        raise NetlinkError(2, "no such queue")

    lab._shape = refuses
    try:
        with lab.lab(MBIT) as switch:
            lab.enter(switch, 0, 1)
    except ConfigError as error:
        said.send(str(error))


@pytest.mark.lab
def test_a_kernel_without_what_the_lab_takes_is_told_what_to_load():
    """It was `rank 0: NetlinkError(2, 'No such file or directory')`."""
    here, there = multiprocessing.get_context("fork").Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=refused_by_the_kernel, args=(there,))
    child.start()
    assert here.poll(30)
    assert re.search("refused a link or a queue .no such queue.*sch_tbf.*type cluster=local", here.recv())
    child.join()


def test_a_delay_of_minutes_is_refused():
    with pytest.raises(ConfigError, match="cluster.delay_s=60: must be at least 0 and at most 1"), lab.lab(MBIT, 60):
        pass


def test_a_network_without_a_line_rate_is_refused():
    with pytest.raises(ConfigError, match="network.bits_per_s=1e9"), lab.lab(0.0):
        pass


@pytest.mark.lab
def test_what_the_planner_chose_and_what_collectives_take_are_measured_on_the_links(tmp_path):
    """The two measurements that nothing else here runs, each as a command."""
    small = ["model=resnet20", "data.image_size=8", "data.classes=2", "batch_per_node=2", "network.bits_per_s=1e8"]
    regret = repro("bench", "regret", *small, "nodes=2", "algo=dense,gtopk", "--out", "r.json", cwd=tmp_path)
    assert regret.returncode == 0, regret.stderr
    (row,) = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert set(row["measured_s"]) == set(row["predicted_s"]) >= {"dense", "gtopk"}
    assert row["best_s"] == min(row["measured_s"].values()) and row["choice_s"] == row["measured_s"][row["choice"]]
    assert row["regret"] == pytest.approx(row["choice_s"] / row["best_s"], rel=1e-4) and row["alpha_s"] > 0
    assert row["beta_s_per_byte"] > 0.95 * 8e-8, "no link is faster than its rate"
    words = ["nodes=2", "algo=dense,gtopk", "--parameters", "100k", "--repeats", "3", "--out", "c.jsonl"]
    measured = repro("bench", "collectives", *words, cwd=tmp_path)
    assert measured.returncode == 0, measured.stderr
    dense, gtopk = map(json.loads, (tmp_path / "c.jsonl").read_text().splitlines())
    assert (dense["algo"], dense["k"], gtopk["algo"], gtopk["k"]) == ("dense", None, "gtopk", 100)
    assert dense["bound"] == pytest.approx(100_000 * 4 * 8e-9) and dense["seconds"] > 0.95 * dense["bound"]
    for one in (dense, gtopk):
        assert one["to_bound"] == pytest.approx(one["seconds"] / one["bound"])
        assert one["to_model"] == pytest.approx(one["seconds"] / one["modelled"]) and one["counted_to_wire"] < 1
    assert dense["counted_to_wire"] > 0.85, "its messages are nearly all that crosses"
