"""Invariants that every algorithm must keep; a new file in algorithms/ with its YAML is found and tested here."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from algorithm_steps import CHOICES, M, gradients, train
from thread_ranks import on_ranks

from repro import algorithms
from repro.comm.critical_paths import critical_paths
from repro.comm.replay import seconds
from repro.config import compose
from repro.config.groups import about

# Those that mix weights are tested in test_mixing.py.
NAMES = [name for name, choice in CHOICES.items() if not algorithms.of(choice).mixes]
SPARSE = [name for name in NAMES if CHOICES[name].sparse]
SIZES = [1, 2, 3, 4, 6, 7, 8]

# The settings at which an algorithm with momentum of its own feeds back gradients, and nothing else.
PLAIN = {
    "dgc": {"momentum": 0.0},
    "qadam": {"warmup_steps": 0, "beta1": 0.0, "eps": 1.0},
    "demo": {"decay": 1.0, "sign": False, "average": "nodes"},
}
# How far the update may be from the mean gradient, where entries are -9 to 9: a quantum there, and one back.
ERRORS = {"bytegrad": 2 * 18 / 255, "qsgd": 2 * 9 / 127, "fp16": 9 * 2**-10}

ABOUT = {name: about(name) for name in NAMES}
CONSERVING = [name for name in NAMES if ABOUT[name]["error_feedback"] in ("node", "node and owner")]
CONSERVING.append("demo")  # with OPTIONS, by which nothing decays
SCALING = [name for name in NAMES if algorithms.of(CHOICES[name]).scales]
LOSSY = [name for name in NAMES if ABOUT[name]["family"] in ("quantised", "low rank")]


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_the_class_answers_as_its_instances_do(choice):
    """What is asked without an instance; and traits that say that a method is there, beside the method."""
    base, kind, algorithm = algorithms.Algorithm, algorithms.of(choice), algorithms.load(choice, M)
    assert kind.__bases__ == (base,)
    assert (kind.mixes, kind.wraps) == (kind.mix is not base.mix, kind.wrap is not base.wrap)
    assert (algorithms.period(choice), algorithms.delay(choice)) == (algorithm.period, algorithm.delay)
    assert (algorithms.period(choice) > 1) == ("period" in choice.options) and kind.cost is not base.cost
    assert kind.wraps == (kind.own_bucket_mb(**choice.options) is not None)
    assert (algorithm.selected is not None) == (choice.sparse and choice.name != "randomk")
    assert about(choice.module)["cost"]
    keeps = about(choice.module)["error_feedback"].startswith("node")
    assert (algorithms.residuals(algorithm)[0] is not None) == keeps


@pytest.mark.parametrize(
    ("size", "kind"),
    [*((size, "ties") for size in SIZES), *((size, kind) for size in (3, 4) for kind in ("few", "zero"))],
)
@pytest.mark.parametrize("name", NAMES)
def test_all_ranks_get_the_same_bits(name, size, kind):
    first, *others = [updates for updates, _ in train(name, size, gradients(size, 3, kind), 0.01)]
    assert all(torch.equal(first.view(torch.int32), other.view(torch.int32)) for other in others)


@pytest.mark.parametrize("size", [2, 3, 4, 7])
@pytest.mark.parametrize("name", NAMES)
def test_gloo_carries_the_same_bits_as_memory(name, size):
    """All sums are of integers, but for two; those are as exact as the order of their terms."""
    close = {"powersgd": 1e-4, "fp16": ERRORS["fp16"]}.get(name, 0.0)
    x = gradients(size, 3, "ties")
    for real, short in zip(*(train(name, size, x, 0.01, over=over) for over in ("gloo", "memory")), strict=True):
        assert all(torch.allclose(one, other, rtol=0, atol=close) for one, other in zip(real, short, strict=True))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CONSERVING)
def test_nothing_is_lost(name, size):
    if (name, size) == ("qadam", 1):
        return  # it is Adam, which has no errors to keep
    x = gradients(size, 4, "ties")
    ranks = train(name, size, x, 0.01, **PLAIN.get(name, {}))
    applied = ranks[0][0].double().sum(0) * size
    kept = torch.stack([residual for _, residual in ranks]).double().sum(0)
    assert torch.allclose(applied + kept, x.double().sum((0, 1)), atol=1e-3)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in [*LOSSY, *SCALING]])
def test_density_one_is_dense(name):
    x = gradients(4, 2, "ties")
    for updates, _ in train(name, 4, x, 1.0, **PLAIN.get(name, {})):
        assert torch.allclose(updates, x.mean(1))


@pytest.mark.parametrize("name", [name for name in LOSSY if ABOUT[name]["error_feedback"] == "none"])
@pytest.mark.parametrize("size", [2, 3, 8])
def test_without_error_feedback_the_update_is_within_the_stated_error(name, size):
    x = gradients(size, 3, "ties")
    updates = train(name, size, x, 1.0)[0][0]
    assert name in ERRORS, "a codec without error feedback states its error, in ERRORS"
    assert (updates - x.mean(1)).abs().max() <= ERRORS[name]


@pytest.mark.parametrize("name", [name for name in LOSSY if name in CONSERVING])
def test_with_error_feedback_the_same_gradient_again_and_again_arrives(name):
    """What is lost stays bounded, so the mean of T updates is off by that over T."""
    x = gradients(3, 1, "normal").expand(300, 3, M)
    updates = train(name, 3, x, 1.0, **PLAIN.get(name, {}))[0][0]
    errors = [(updates[:steps].mean(0) - x[0].mean(0)).norm() / x[0].mean(0).norm() for steps in (30, 300)]
    assert errors[1] < 0.4 * errors[0] and errors[1] < 0.1


@pytest.mark.parametrize("name", [name for name in NAMES if not algorithms.of(CHOICES[name]).scales])
def test_one_rank_is_sgd(name):
    x = gradients(1, 4, "ties")
    assert torch.equal(train(name, 1, x, 1.0, **PLAIN.get(name, {}))[0][0], x[:, 0])


def test_one_rank_with_1_bit_adam_is_adam():
    x = gradients(1, 4, "ties")
    alone = train("qadam", 1, x, 1.0, warmup_steps=2)[0][0]
    weight = torch.nn.Parameter(torch.zeros(M))
    adam = torch.optim.Adam([weight], lr=1.0)
    for gradient, update in zip(x[:, 0], alone, strict=True):
        before = weight.detach().clone()
        weight.grad = gradient
        adam.step()
        assert torch.allclose(before - weight.detach(), update, atol=1e-5)


@pytest.mark.parametrize("name", SPARSE)
def test_at_most_k_entries_a_rank_reach_the_update(name):
    """Ok-Topk alone does not count: a threshold of earlier steps may let more through."""
    k, size = 10, 4
    updates = train(name, size, gradients(size, 3, "ties"), k / M)[0][0]
    every = k * size if ABOUT[name].get("union") else k
    most = torch.tensor([k, k * size, k * size] if name == "oktopk" else [every] * 3)
    assert (updates.count_nonzero(1) <= most).all() and updates.any()


@pytest.mark.parametrize("name", SPARSE)
def test_ranks_select_the_same_entries_if_the_yaml_says_that_all_send_them(name):
    x = gradients(4, 1, "normal")

    def body(collective):
        algorithm = algorithms.load(CHOICES[name], M)
        algorithm.density = 0.02
        algorithm.step(x[0, collective.rank].clone(), collective)
        return set(algorithm.chosen.tolist())

    first, *others = on_ranks(4, body)
    assert all(other == first for other in others) == ABOUT[name].get("all_send", False)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_dtype_of_gradient(name, dtype):
    x = gradients(3, 2, "ties", dtype)
    choice = CHOICES[name]

    def body(collective):
        algorithm = algorithms.load(choice, M)
        algorithm.density = 0.05
        return [algorithm.step(g.clone(), collective).clone() for g in x[:, collective.rank]]

    ranks = on_ranks(3, body)
    assert ranks[0][0].dtype == dtype
    assert all(torch.equal(a, b) for rank in ranks for a, b in zip(ranks[0], rank, strict=True))


@pytest.mark.parametrize("name", CONSERVING)
def test_a_lower_default_precision_of_pytorch_loses_nothing(name):
    """Residuals had PyTorch's default dtype, and lost what they were added."""
    x = gradients(3, 3, "normal", torch.bfloat16)
    was = train(name, 3, x, 0.05)
    torch.set_default_dtype(torch.bfloat16)
    try:
        found = train(name, 3, x, 0.05)
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(
        a.dtype == b.dtype and torch.equal(a, b)
        for own in zip(was, found, strict=True)
        for a, b in zip(*own, strict=True)
    )


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_a_number_is_in_an_update_and_stops_no_other(name):
    """Ok-Topk hid it, and then sent nothing; DeMo's sign of it was 0: a model that diverged stood still in silence."""
    x = gradients(2, 9, "normal")
    x[1, 0, : M // 2] = torch.nan
    (updates, _), *_ = train(name, 2, x, 0.05, **({"threshold_every": 4} if name == "oktopk" else {}))
    assert updates.isnan().any() and (updates != 0).any(1).all()


@pytest.mark.parametrize("name", NAMES)
def test_state_saved_and_loaded_goes_on_with_the_same_bits(name):
    x = gradients(4, 4, "ties")
    straight = train(name, 4, x, 0.02)[0][0]
    choice = CHOICES[name]

    def body(collective):
        updates, state = [], None
        for g in x[:, collective.rank]:
            algorithm = algorithms.load(choice, M)  # a new one each step: nothing may live outside the state
            algorithm.density = 0.02
            if state is not None:
                algorithm.load_state_dict(state)
            updates.append(algorithm.step(g.clone(), collective).clone())
            state = algorithm.state_dict()
        return torch.stack(updates)

    assert torch.equal(on_ranks(4, body)[0], straight)


@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.parametrize("name", NAMES)
def test_what_is_counted_is_what_its_cost_says(name, size):
    """Of the third step, in the phase that most steps are in; a bound where messages depend on values.

    Ok-Topk's thresholds are set anew here; what stale ones let through: test_sums_by_owners_cost_what_is_published.
    """
    k, x = 10, gradients(size, 3, "normal")
    choice = compose.algorithm(name, {"threshold_every": 1} if name == "oktopk" else {})

    def body(collective):
        algorithm = algorithms.load(choice, M)
        algorithm.density = k / M
        algorithm.skip_warmup()
        for gradient in x[:, collective.rank]:
            collective.traffic = type(collective.traffic)()
            algorithm.step(gradient.clone(), collective)
        return collective.traffic, algorithm.messages_depend_on_values

    ranks = on_ranks(size, body)
    bytes_, rounds = algorithms.cost(choice, size, M, k)
    most = max(traffic.bytes_sent for traffic, _ in ranks)
    longest = max(sum(done.repeat for done in traffic.rounds) for traffic, _ in ranks)
    path = algorithms.of(choice).path(algorithms.cost(choice, size, M, k), size, **choice.options)
    waited = [tuple(chain) for chain in critical_paths([traffic.rounds for traffic, _ in ranks])]
    if ranks[0][1]:
        assert most <= bytes_ and longest <= rounds and (most > bytes_ / 8 or size == 1)
        assert all(chain[0] <= path.rounds and chain[1] <= path.bytes for chain in waited)
    else:
        assert (most, longest) == (bytes_, rounds)
        assert waited == [(path.rounds, path.bytes)]
    assert (seconds([traffic.rounds for traffic, _ in ranks], 1e-3, 1e-9) > 0) == (size > 1)


# Each rank of these multiplies or factorises matrices for itself: their docstrings say on which machines that agrees.
ALIKE = ("powersgd", "demo")
OLDER = {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "ATEN_CPU_CAPABILITY": "avx2"}


def hashes() -> dict[str, str]:
    """Of each algorithm's updates; and which instructions torch uses."""
    found = {"instructions": torch.backends.cpu.get_cpu_capability()}
    for name in NAMES:
        updates = torch.stack([updates for updates, _ in train(name, 2, gradients(2, 4, "ties") / 7, 0.01)])
        found[name] = hashlib.sha256(updates.numpy().tobytes()).hexdigest()
    return found


def test_unlike_processors_get_the_same_bits():
    """A rank on one with fewer instructions, which libraries of mathematics use, must not drift from the others."""
    words = [sys.executable, "-c", "import json, test_algorithms; print(json.dumps(test_algorithms.hashes()))"]
    folders = {"PYTHONPATH": os.pathsep.join(map(str, [Path(__file__).parent, *Path(__file__).parents[1:2]]))}
    done = subprocess.run(words, env=os.environ | folders | OLDER, check=True, capture_output=True, text=True)
    new, old = hashes(), json.loads(done.stdout)
    told = new.pop("instructions"), old.pop("instructions")
    assert told == ("AVX512", "AVX2") or "AVX512" not in told
    unlike = {name for name in NAMES if new[name] != old[name]}
    assert {*new} == {*old} == {*NAMES} and unlike <= {*ALIKE}, unlike
