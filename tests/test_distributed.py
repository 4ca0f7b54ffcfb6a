"""The algorithms in loops of a user's own: two ranks under a real torchrun, and what one rank can show alone."""

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import own_loops
import pytest
import torch
import torch.distributed as dist

from repro import algorithms, choices, config, distributed
from repro.config import ConfigError, compose
from repro.schedule import entries

ROOT = Path(__file__).parent.parent
NAMES = [name for name in choices.group_options("algo") if name != "ddp"]
MIXING = [name for name in NAMES if algorithms.mixes(algorithms.of(config.algorithm(name, {})))]
EXAMPLES = ["own_loop", "ddp_hook"]
DIFFERENT = ["async_average", "low_precision_decentralized"]  # whose ranks hold different weights at the end
M = own_loops.weights(own_loops.Network(0)).numel() - 3  # all but the frozen ones


@pytest.fixture(scope="module")
def torchrun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """own_loops.py and the examples on two ranks: the folder with what the former found and the latter printed."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += ["tests/own_loops.py", str(folder), *(f"examples/{name}.py" for name in EXAMPLES)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def ranks(torchrun: Path) -> list[dict]:
    """What own_loops.py found on each rank."""
    return [torch.load(torchrun / f"rank-{rank}.pt") for rank in (0, 1)]


@pytest.mark.parametrize("script", EXAMPLES)
def test_the_examples_learn_and_say_what_they_send(script, torchrun):
    assert (torchrun / f"{script}-1.txt").read_text() == ""
    printed = (torchrun / f"{script}-0.txt").read_text().splitlines()
    found = [re.fullmatch(r"epoch \d: loss ([\d.]+), ([\d,]+) bytes sent a step", line) for line in printed]
    losses = [float(line[1]) for line in found]
    assert len(losses) == 5 and losses[-1] < losses[0] / 4
    m = 32 * 9 + 32 + 64 * 32 * 9 + 64 + 256 * 10 + 10
    assert int(found[-1][2].replace(",", "")) == pytest.approx(8 * 0.01 * m, abs=16)


@pytest.mark.parametrize("name", NAMES)
def test_ranks_agree_and_a_checkpoint_goes_on_with_the_same_bits(name, ranks):
    one, other = (rank["wrapped"][name] for rank in ranks)
    assert torch.equal(one["straight"], other["straight"]) == (name not in DIFFERENT)
    for found in (one, other):
        assert torch.equal(found["straight"], found["resumed"])
        assert torch.equal(found["straight"], found["stays"])  # zero_grad(set_to_none=False)


@pytest.mark.parametrize("name", ["dense", "parameter_server", "decentralized"])
def test_full_precision_is_sgd_on_all_the_data(name, ranks):
    """With peers that average all weights after each step, too: momentum and gradients are linear in them."""
    assert torch.allclose(ranks[0]["wrapped"][name]["straight"], ranks[0]["plain"], atol=1e-6)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in MIXING])
def test_the_last_steps_traffic_is_what_the_cost_says(name, ranks):
    algo = config.algorithm(name, own_loops.OPTIONS.get(name, {}))
    most = max(rank["wrapped"][name]["bytes"] for rank in ranks)
    given = {"shapes": [(30, 10), (30,), (4, 30), (4,), (5,)]} if name == "powersgd" else {}
    k = entries(own_loops.DENSITY, M)
    cost = importlib.import_module(f"repro.algorithms.{algo.module}").cost(2, M, k, **algo.options, **given).bytes
    if algorithms.messages_depend_on_values(algorithms.of(algo)):
        assert 0 < most <= cost
    else:
        assert most == cost


def test_a_group_of_some_ranks_and_wires_for_a_thread(ranks):
    assert all(torch.equal(rank["group"], rank["wrapped"]["async_average"]["straight"]) for rank in ranks)
    assert all(rank["alone"]["bytes"] == 0 for rank in ranks)
    assert not torch.equal(ranks[0]["alone"]["straight"], ranks[1]["alone"]["straight"])


@pytest.mark.parametrize("name", own_loops.HOOKS)
def test_ddps_hook(name, ranks):
    one, other = (rank["hooked"][name] for rank in ranks)
    assert torch.equal(one["weights"], other["weights"])
    if name == "dense":
        assert torch.allclose(one["weights"], ranks[0]["ddp"], atol=1e-6)
        return
    assert not torch.equal(one["weights"], ranks[0]["ddp"])
    assert len(one["sizes"]) > 1 and sum(one["sizes"]) == M - 5  # each parameter's residual in one bucket
    if name.startswith("gtopk"):
        assert one["bytes"] == sum(8 * entries(own_loops.DENSITY, size) for size in one["sizes"])


def test_ddps_hook_where_buckets_change_later_where_it_resumes_and_where_it_fails(ranks):
    assert sum(ranks[0]["static"]["sizes"]) == M - 5
    assert all(rank["resumed_hook"] for rank in ranks)
    assert all("the algorithm failed" in rank["broken_hook"] for rank in ranks)


def test_the_bench_finds_what_ddps_own_hooks_publish(ranks):
    m, factors = 200 * 200, 3 * (200 + 200)
    assert ranks[0]["benched"] == {"none": [4 * m] * 2, "fp16": [2 * m] * 2, "powersgd": [4 * factors] * 2}


# One rank.


@pytest.fixture
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def network() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = own_loops.Network(0)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gtopk", {"route": "butterfly"}),
        ("topk", {"selector": "mstopk"}),
        ("qsgd", {"bits": 4, "seed": 3}),
        ("dgc", {}),
    ],
)
def test_chosen_as_on_the_command_line(name, options):
    keys = [f"{key if key == 'seed' else 'algo.' + key}={value}" for key, value in options.items()]
    seed = {"seed": options.pop("seed")} if "seed" in options else {}
    assert config.algorithm(name, options, **seed) == compose([f"algo={name}", *keys])[0].algo


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gtop", {}, r"algo=gtop: there is no such algo. Did you mean algo=gtopk\? Choose one of async_average"),
        ("all", {}, "algo=all: there is no such algo"),
        ("gtopk", {"rout": "tree"}, r"algo.rout=tree: there is no key algo.rout. Did you mean algo.route\?"),
        ("gtopk", {"route": "ring"}, "algo.route=ring: choose one of tree, butterfly"),
        ("gtopk", {"sparse": False}, "algo.sparse=False: there is no key algo.sparse"),
        ("local_sgd", {"period": 2.5}, "algo.period=2.5: expected a whole number"),
        ("local_sgd", {"period": 0}, "algo.period=0: must be at least 1"),
        ("gtopk", {"density": 2}, "density=2: must be above 0 and at most 1"),
        ("gtopk", {"density": "0.1"}, "density=0.1: expected a number"),
        ("gtopk", {"seed": -1}, "seed=-1: must be at least 0"),
        ("ddp", {}, "algo=ddp: DistributedDataParallel wraps the model itself"),
    ],
)
def test_what_cannot_be_wrapped(name, options, message, alone):
    with pytest.raises(ConfigError, match=message):
        distributed.wrap(*network(), name, **options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("local_sgd", {}, "algo=local_sgd mixes weights and cannot be a hook"),
        ("ddp", {"hook": "fp16"}, "algo=ddp is DDP itself"),
        ("bytegrad", {"bucket": "many"}, "algo.bucket=many: expected a whole number"),
    ],
)
def test_what_cannot_be_a_hook(name, options, message):
    with pytest.raises(ConfigError, match=message):
        distributed.State(name, **options)


def test_wrapped_without_ranks_or_with_the_wrong_parameters():
    model, optimizer = network()
    with pytest.raises(ConfigError, match="there is no process group: call torch.distributed.init_process_group"):
        distributed.wrap(model, optimizer, "gtopk")
    with pytest.raises(ConfigError, match="the optimizer must train parameters of the model"):
        distributed.wrap(own_loops.Network(0), optimizer, "gtopk")
    model.second.double()
    with pytest.raises(ConfigError, match="torch.float32 on cpu, torch.float64 on cpu: all must be of one dtype"):
        distributed.wrap(model, optimizer, "gtopk")


def test_a_model_inside_ddp_is_not_wrapped_again(alone):
    model, optimizer = network()
    with pytest.raises(ConfigError, match="register distributed.hook on it"):
        distributed.wrap(torch.nn.parallel.DistributedDataParallel(model), optimizer, "gtopk")


def test_any_optimizer_and_what_is_refused_at_its_steps(alone):
    (model, optimizer), (same, plain) = network(), network()
    node = distributed.wrap(model, optimizer, "gtopk", density=1.0)
    for net, descent in ((model, optimizer), (same, plain)):
        net(own_loops.INPUTS[0]).sum().backward()
        net.unused.grad = torch.zeros(5)  # as wrapping counts it
        descent.step()
    assert torch.equal(own_loops.weights(model), own_loops.weights(same)) and node.traffic.bytes_sent == 0
    with pytest.raises(ConfigError, match=r"optimizer.step\(closure\)"):
        optimizer.step(lambda: 0.0)
    model.frozen.requires_grad_(True)
    model(own_loops.INPUTS[0]).sum().backward()
    with pytest.raises(ConfigError, match="further parameters to train since distributed.wrap"):
        optimizer.step()


def test_a_state_of_something_else_is_refused(alone):
    (model, optimizer), (_, plain) = network(), network()
    distributed.wrap(model, optimizer, "gtopk")
    with pytest.raises(ConfigError, match="from before distributed.wrap"):
        optimizer.load_state_dict(plain.state_dict())
    state = optimizer.state_dict()
    state["repro"] |= {"rank": 1, "nodes": 2}
    with pytest.raises(ConfigError, match="is of algo=gtopk rank=1 nodes=2, here is algo=gtopk rank=0 nodes=1"):
        optimizer.load_state_dict(state)


def test_density_may_change_between_steps(alone):
    model, optimizer = network()
    node = distributed.wrap(model, optimizer, "gtopk", density=0.5)
    for density in (0.5, 0.01):
        node.algorithm.density = density
        model(own_loops.INPUTS[0]).sum().backward()
        optimizer.step()
        assert node.gradient.count_nonzero() <= entries(density, M)
        optimizer.zero_grad()
