"""Each wire format with each algorithm that sends pairs: the bits, the bytes, and what rounding takes."""

import functools

import pytest
import socket_bytes
import torch
from algorithm_steps import CHOICES, UNGAINED, M, gradients, held, train
from thread_ranks import on_ranks
from tiny_runs import QUICK, bits, config, equal

from repro import algorithms
from repro.comm.cost_formulas import message_bytes
from repro.compression.pair_sizes import LOSSLESS, WIRES, most_bytes
from repro.config import compose
from repro.timing import dry_run
from repro.train import loop

NAMES = [name for name, choice in CHOICES.items() if algorithms.of(choice).sends_pairs]
EXACT = {  # what loses nothing: a name, and the options with which it does
    **{name: (name, {}) for name in NAMES if name not in ("gtopk", "gtopk_corrected", "dgc")},
    "tree": ("gtopk", {"residual": "exact"}),
    "dgc": ("dgc", {"momentum": 0.0}),
    "corrected": ("gtopk_corrected", {"gain": 1.0, "residual": "exact"}),
}
CPU = torch.device("cpu")
ROUNDING = [wire for wire in WIRES if wire not in LOSSLESS]


def conserved(ranks, x: torch.Tensor) -> bool:
    """Whether the updates and the residuals hold all that the gradients held, to the rounding of float32."""
    applied = ranks[0][0].double().sum(0) * len(ranks)
    kept = torch.stack([residual for _, residual in ranks]).double().sum(0)
    return torch.allclose(applied + kept, x.double().sum((0, 1)), atol=1e-5 * len(ranks))


def test_all_that_send_pairs_have_the_option():
    """randomk and scalecom sum the same entries of all ranks."""
    assert {name for name, choice in CHOICES.items() if choice.sparse} - set(NAMES) == {"randomk", "scalecom"}
    assert all("wire" in compose.declared("algo", name) for name in NAMES)


@pytest.mark.parametrize("size", [2, 3, 4, 7, 8, 32])
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("case", EXACT)
def test_nothing_is_lost(case, wire, size):
    name, options = EXACT[case]
    x = gradients(size, 3 if size < 32 else 1, "normal")
    ranks = train(name, size, x, 0.02, wire=wire, **options)
    assert ranks[0][0].any() and conserved(ranks, x)
    assert all(torch.equal(updates, ranks[0][0]) for updates, _ in ranks)


@pytest.mark.parametrize("size", [2, 3, 4, 7, 8, 32])
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("route", ["tree", "butterfly"])
def test_the_papers_rule_loses_by_merges_alone(route, wire, size):
    """Few entries in each gradient, so that no merge has more than k; and two ranks, whose merge loses nothing."""
    x = gradients(size, 2, "few") * 1.1
    assert x.any(1).any(0).sum() < 0.2 * M
    ranks = train("gtopk", size, x, 0.2, wire=wire, route=route)
    assert conserved(ranks, x)
    assert not torch.equal(ranks[0][0], train("gtopk", size, x, 0.2, route=route)[0][0]) or wire in LOSSLESS
    if size == 2:
        x = gradients(size, 3, "normal")
        assert conserved(train("gtopk", size, x, 0.02, wire=wire, route=route), x)


@pytest.mark.parametrize("size", [1, 3, 4, 8])
@pytest.mark.parametrize("name", NAMES)
def test_gaps_are_the_same_bits_in_fewer_bytes(name, size):
    x = gradients(size, 3, "normal")
    for (pairs, kept), (gaps, also) in zip(
        train(name, size, x, 0.02), train(name, size, x, 0.02, wire="gaps"), strict=True
    ):
        assert torch.equal(pairs, gaps) and torch.equal(kept, also)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wire", ROUNDING)
def test_what_rounds_rounds_and_what_it_takes_arrives_later(wire, name):
    """The same gradient again and again: without the residual, rounding would take the same each time."""
    x = gradients(4, 1, "normal").expand(30, 4, M)
    exact, rounded = (train(name, 4, x, 1.0, wire=format, **plain(name))[0][0] for format in ("pairs", wire))
    assert torch.allclose(exact.mean(0), x[0].mean(0), atol=1e-5)
    first, mean = ((updates - x[0].mean(0)).norm() for updates in (rounded[0], rounded.mean(0)))
    assert first > 0 and mean < 0.1 * first


def plain(name: str) -> dict:
    return {"dgc": {"momentum": 0.0, "selector": "exact"}}.get(name, UNGAINED.get(name, {}))


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("case", [*EXACT, "randomk", "scalecom", "onebit", "powersgd", "gained"])
def test_a_bfloat16_update_loses_nothing_by_its_rounding(case, size):
    gained = ("gtopk_corrected", {"residual": "exact", "gain": 10.0})
    name, options = gained if case == "gained" else EXACT.get(case, (case, {}))
    options = UNGAINED.get(name, {}) | options
    choice, x = compose.algorithm(name, options), gradients(size, 3, "normal", torch.bfloat16)

    def body(collective):
        algorithm = algorithms.load(choice, M)
        algorithm.density = 0.05
        updates = [algorithm.step(g.clone(), collective).clone() for g in x[:, collective.rank]]
        assert updates[0].dtype == torch.bfloat16
        return torch.stack(updates).double() / choice.gain, held(algorithm, collective.rank)

    assert conserved(on_ranks(size, body), x)


@pytest.mark.parametrize("name", ["topk", "gtopk_butterfly", "randomk", "onebit"])
def test_a_bfloat16_velocity_loses_nothing_by_its_rounding(name):
    """Of equal gradients it is nearly the same in each step, and so is what rounding takes."""
    choice = compose.algorithm(name, {"correction": 0.9, "gain": 1.0})
    x = gradients(4, 1, "normal", torch.bfloat16).expand(60, 4, M)

    def body(collective):
        algorithm, total = algorithms.load(choice, M), torch.zeros(M, dtype=torch.float64)
        algorithm.density, velocity = 0.2, torch.zeros(M, dtype=torch.float64)
        applied = torch.zeros(M, dtype=torch.float64)
        for gradient in x[:, collective.rank]:
            velocity = 0.9 * velocity + gradient.double()
            total += velocity
            applied += collective.size * algorithm.step(gradient.clone(), collective).double()
        return applied, held(algorithm, collective.rank).double(), total

    ranks = on_ranks(4, body)
    lost = ranks[0][0] + sum(rest for _, rest, _ in ranks) - sum(total for *_, total in ranks)
    assert lost.abs().sum() < 2e-5 * sum(total.abs().sum() for *_, total in ranks)


@pytest.mark.parametrize("size", [2, 3, 4, 7])
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", NAMES)
def test_counted_bytes_are_those_of_the_formula_and_of_the_dry_run(name, wire, size):
    k, m = 37, 10_007
    options = {"threshold_every": 1} if name == "oktopk" else {}
    choice = compose.algorithm(name, {"wire": wire, **options})
    x = torch.randn(2, size, m, generator=torch.Generator().manual_seed(0))

    def body(collective):
        algorithm = algorithms.load(choice, m)
        algorithm.density = (k + 0.5) / m
        for gradient in x[:, collective.rank]:
            collective.traffic = type(collective.traffic)()
            algorithm.step(gradient, collective)
        return collective.traffic

    counted = on_ranks(size, body)
    cost, most = algorithms.cost(choice, size, m, k), max(traffic.bytes_sent for traffic in counted)
    dry = max(sum(done.sent * done.repeat for done in own) for own in dry_run.all_rounds(choice, size, m, k))
    if algorithms.of(choice).messages_depend_on_values:
        assert cost.bytes / 8 < most <= cost.bytes and cost.bytes / 8 < dry <= cost.bytes
    else:
        assert most == dry == cost.bytes


@socket_bytes.needs_tcp_info
@pytest.mark.parametrize("name", ["dense", *NAMES])
def test_counted_bytes_and_headers_are_those_at_the_sockets(name):
    """Of the second step over gloo: in the first, Ok-Topk sums two numbers, of which gloo makes fewer messages."""
    size, x = 3, torch.randn(2, 3, 9999, generator=torch.Generator().manual_seed(0))
    for wire in WIRES if name in NAMES else ("pairs",):
        choice = compose.algorithm(name, {"wire": wire} if name in NAMES else {})

        def first(collective, choice=choice):
            algorithm = algorithms.load(choice, x.shape[-1])
            algorithm.step(x[0, collective.rank].clone(), collective)
            return algorithm

        begun = on_ranks(size, first, over="gloo")

        def second(collective, begun=begun):
            begun[collective.rank].step(x[1, collective.rank].clone(), collective)
            return collective.traffic.bytes_sent + collective.traffic.framing

        counted, at_the_sockets = socket_bytes.of(size, second)
        assert sum(counted) == at_the_sockets


@pytest.mark.parametrize("wire", WIRES)
def test_parts_take_no_more_than_is_said(wire):
    source = torch.Generator().manual_seed(0)
    for k, m, parts in [(100, 1000, 3), (5000, 5_000_000, 31), (7, 10**9, 7), (60_000, 61_100_840, 4)]:
        for _ in range(50):
            cuts = sorted(torch.randint(0, k + 1, (parts - 1,), generator=source).tolist())
            lengths = [stop - start for start, stop in zip([0, *cuts], [*cuts, k], strict=True)]
            assert sum(message_bytes(wire, n, m) for n in lengths) <= most_bytes(wire, k, m, parts)


def test_whole_runs_end_alike_and_only_what_rounds_is_another_run(tmp_path):
    """Parameters, momentum and residuals of all ranks, after steps of a network, on threads."""
    run = [*QUICK, "algo=gtopk_butterfly", "nodes=3", "steps=6"]
    ended = {}
    for wire in ("pairs", "gaps", "packed"):
        one = config(tmp_path, *run, f"algo.wire={wire}")
        assert (one.run_id == config(tmp_path, *run).run_id) == (wire == "pairs")
        assert loop.run(one)["state"] == "done"
        ended[wire] = bits(one.folder)
    assert equal(ended["gaps"], ended["pairs"]) and len(ended["pairs"]) == 4
    assert not equal(ended["packed"], ended["pairs"])


def test_a_wrong_format_says_what_there_is():
    with pytest.raises(compose.ConfigError, match="choose one of pairs, gaps, gaps-bf16, packed"):
        compose.compose(["algo=topk", "algo.wire=rice"])
    with pytest.raises(compose.ConfigError, match="there is no key algo.wire"):
        compose.compose(["algo=randomk", "algo.wire=gaps"])


def test_what_rounds_moves_as_much_and_holds_back_as_much_over_many_steps():
    """By the paper's rule, which loses mass: gradients with a mean and much noise, of entries of unlike scale."""
    size, m, steps = 4, 20_000, 150
    scale = torch.randn(m, generator=torch.Generator().manual_seed(0)).mul(1.5).exp()
    mean = torch.randn(m, generator=torch.Generator().manual_seed(1)) * scale / 5

    def body(wire, collective):
        algorithm = algorithms.load(compose.algorithm("gtopk", {"wire": wire}), m, CPU, [])
        noise, moved = torch.Generator().manual_seed(collective.rank), torch.zeros(m, dtype=torch.float64)
        for _ in range(steps):
            moved += algorithm.step(mean + scale * torch.randn(m, generator=noise), collective)
        return torch.stack([moved.abs().sum(), algorithm.state_dict()["residual"].double().abs().sum()])

    of = {wire: sum(on_ranks(size, functools.partial(body, wire))) for wire in ("pairs", *ROUNDING)}
    for wire in ROUNDING:
        assert torch.allclose(of[wire], of["pairs"], rtol=0.005), wire
