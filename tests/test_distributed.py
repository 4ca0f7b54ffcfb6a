"""The algorithms in loops of a user's own, on two ranks under a real torchrun."""

import json
import os
import re
import subprocess
from pathlib import Path

import cli_process
import pytest
import torch
import torchrun_loops

from repro import algorithms
from repro.config import groups
from repro.config.compose import algorithm
from repro.density import entries

ROOT = Path(__file__).parent.parent
NAMES = [name for name in groups.group_options("algo") if name != "ddp"]
MIXING = [name for name in NAMES if algorithms.of(algorithm(name, {})).mixes]
EXAMPLES = ["own_loop", "ddp_hook"]
DIFFERENT = ["async_average", "low_precision_decentralized"]  # whose ranks hold different weights at the end
M = torchrun_loops.weights(torchrun_loops.Network(0)).numel() - 3  # all but the frozen ones


@pytest.fixture(scope="module")
def torchrun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """torchrun_loops.py and the examples on two ranks: the folder with what the former found and the latter printed."""
    folder = tmp_path_factory.mktemp("ranks")
    command = cli_process.torchrun(2, folder / "logs")
    scripts = [*(f"examples/{name}.py" for name in EXAMPLES), "tests/unlike_ranks.py"]
    command += ["tests/torchrun_loops.py", str(folder), *scripts]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def ranks(torchrun: Path) -> list[dict]:
    """What torchrun_loops.py found on each rank."""
    return [torch.load(torchrun / f"rank-{rank}.pt") for rank in (0, 1)]


@pytest.fixture(scope="module")
def told(torchrun: Path) -> list[dict]:
    """What unlike_ranks.py found on each rank."""
    return [json.loads((torchrun / f"unlike_ranks-{rank}.txt").read_text()) for rank in (0, 1)]


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
    algo = algorithm(name, torchrun_loops.OPTIONS.get(name, {}))
    most = max(rank["wrapped"][name]["bytes"] for rank in ranks)
    given = {"shapes": [(30, 10), (30,), (4, 30), (4,), (5,)]} if algorithms.of(algo).takes_shapes else {}
    k = entries(torchrun_loops.DENSITY, M)
    cost = algorithms.of(algo).cost(2, M, k, **algo.options, **given).bytes
    if algorithms.of(algo).messages_depend_on_values:
        assert 0 < most <= cost
    else:
        assert most == cost


def test_a_group_of_some_ranks_and_wires_for_a_thread(ranks):
    assert all(torch.equal(rank["group"], rank["wrapped"]["async_average"]["straight"]) for rank in ranks)
    assert all(rank["alone"]["bytes"] == 0 for rank in ranks)
    assert not torch.equal(ranks[0]["alone"]["straight"], ranks[1]["alone"]["straight"])


@pytest.mark.parametrize("name", torchrun_loops.HOOKS)
def test_ddps_hook(name, ranks):
    one, other = (rank["hooked"][name] for rank in ranks)
    assert torch.equal(one["weights"], other["weights"])
    if name == "dense":
        assert torch.allclose(one["weights"], ranks[0]["ddp"], atol=1e-6)
        return
    assert not torch.equal(one["weights"], ranks[0]["ddp"])
    assert len(one["sizes"]) > 1 and sum(one["sizes"]) == M - 5  # each parameter's residual in one bucket
    if name.startswith("gtopk"):
        assert one["bytes"] == sum(8 * entries(torchrun_loops.DENSITY, size) for size in one["sizes"])


def test_ddps_hook_where_buckets_change_later_and_where_it_fails(ranks):
    assert sum(ranks[0]["static"]["sizes"]) == M - 5
    assert all("the algorithm failed" in rank["broken_hook"] for rank in ranks)


def test_a_run_goes_on_with_fewer_nodes_as_the_error_says(told):
    """It said that each rank loads its own, and there was none for another number of nodes."""
    for number, rank in enumerate(told):
        found = rank["fewer_nodes"]
        assert f"rank={number} nodes=2, here is algo=gtopk rank=0 nodes=1; residuals fit only" in found["told"]
        assert found["steps"] == [2, 2, 2, 2] and found["moved"]


def test_ranks_that_call_unlike_are_told_on_all_of_them(told):
    """They trained two models without a word, or waited for messages of another size until gloo ended the process."""
    expected = [
        "rank 1 has gain=10.0, rank 0 gain=1.0: all ranks call distributed.wrap alike",
        "rank 1 has route=tree, rank 0 route=butterfly: all ranks",
        "rank 1 has seed=1, rank 0 seed=0: all ranks",
        "rank 1 has density=0.5, rank 0 density=0.1: all ranks",
        "rank 1 has algo=dense, rank 0 algo=topk: all ranks",
        "rank 1 has parameter weight=[3, 10] of torch.float32, trained, rank 0 parameter weight=[4, 10] of torch.",
        "nothing was raised",
        "rank 1 has density=0.5, rank 0 density=0.1: all ranks call distributed.State alike",
        "rank 1 has on_nonfinite=skip, rank 0 on_nonfinite=stop: all ranks call distributed.State alike",
    ]
    for rank in told:
        assert all(a.startswith(b) for a, b in zip(rank["called_unlike"], expected, strict=True)), rank["called_unlike"]


def test_a_step_that_overflows_on_one_rank_is_skipped_on_all(ranks):
    """What was not finite had stayed in the residual, and no later step moved the weights."""
    one, other = (rank["overflowed"] for rank in ranks)
    assert one["moved"] == other["moved"] == [step != 4 for step in range(8)]
    assert one["scale"] == other["scale"] == 2.0**15
    assert torch.equal(one["weights"], other["weights"])
    assert all(found["residual"].isfinite().all() and found["residual"].any() for found in (one, other))


@pytest.mark.parametrize("name", [*torchrun_loops.RESUMED, "static"])
def test_a_resumed_hook_goes_on_with_the_same_bits(name, ranks):
    """It began again with two dense steps, since DDP forms its buckets anew."""
    for rank in ranks:
        found = rank["resumed_static"] if name == "static" else rank["resumed_hook"][name]
        assert torch.equal(found["straight"], found["resumed"])
        kept = zip(found["straight kept"], found["resumed kept"], strict=True)
        assert all(torch.equal(one, other) for one, other in kept)


def test_residuals_of_other_buckets_are_refused(ranks):
    assert all("other buckets than in the run whose State was loaded" in rank["other_buckets"] for rank in ranks)


def test_a_model_trained_through_ddp_is_not_averaged_twice(ranks):
    assert all("and distributed.wrap would once more" in rank["averaged_twice"] for rank in ranks)


def test_a_parameter_that_one_rank_uses_moves_on_all(ranks):
    one, other = (rank["used_by_one"] for rank in ranks)
    assert torch.equal(one, other) and one.abs().min() > 0.05


def test_the_bench_finds_what_ddps_own_hooks_publish(ranks):
    m, factors = 200 * 200, 3 * (200 + 200)
    assert ranks[0]["benched"] == {"none": [4 * m] * 2, "fp16": [2 * m] * 2, "powersgd": [4 * factors] * 2}
