"""The cost model: closed forms, the replay of any rounds, and what both must have in common."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.comm import cost_formulas, replay, traffic
from repro.comm.link_fit import fit
from repro.comm.traffic import Link, Round
from repro.config.compose import algorithm
from repro.timing.dry_run import all_rounds

ALGOS = ("dense", "topk", "gtopk", "gtopk_butterfly", "gtopk_from_topk")
links = st.builds(Link, st.floats(1e-7, 1e-2), st.floats(1e-11, 1e-7))
CONFIGS = {algo: algorithm(algo, {}) for algo in ALGOS}


@settings(max_examples=10, deadline=None)
@given(links, st.integers(1, 5), st.integers(1, 100_000), st.integers(1, 1000))
def test_the_replay_of_recorded_rounds_equals_the_closed_form(link, power, k, times):
    size, parameters = 2**power, times * 2**power
    expected = {
        "dense": cost_formulas.dense_ring(size, parameters, link),
        "topk": cost_formulas.topk_allgather(size, k, link),
        "gtopk": cost_formulas.gtopk_tree_and_broadcast(size, k, link),
        "gtopk_butterfly": cost_formulas.gtopk_butterfly(size, k, link),
    }
    for algo, seconds in expected.items():
        rounds = all_rounds(CONFIGS[algo], size, parameters, k)
        assert replay.seconds(rounds, *link) == pytest.approx(seconds, rel=1e-9), algo


@settings(max_examples=10, deadline=None)
@given(links, st.integers(2, 33), st.integers(1, 100_000))
def test_forms_that_hold_for_any_number_of_nodes(link, size, k):
    dense, topk, tree = (all_rounds(CONFIGS[algo], size, size * 10, k) for algo in ALGOS[:3])
    assert replay.seconds(dense, *link) == pytest.approx(cost_formulas.dense_ring(size, size * 10, link))
    assert replay.seconds(topk, *link) == pytest.approx(cost_formulas.topk_allgather(size, k, link))
    assert replay.seconds(tree, *link) <= cost_formulas.gtopk_tree_and_broadcast(size, k, link) * (1 + 1e-9)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 7, 12, 31, 64])
@pytest.mark.parametrize("algo", ALGOS)
def test_all_bytes_sent_are_received(algo, size):
    rounds = [done for own in all_rounds(CONFIGS[algo], size, 1001, 10) for done in own]
    sent = sum(done.repeat * done.sent for done in rounds)
    assert sent == sum(done.repeat * done.received for done in rounds)
    assert (sent > 0) == (size > 1)


def test_a_parameter_server_has_one_link_for_all():
    size, parameters, link = 9, 1000, Link(1e-3, 1e-6)
    amount = 4 * parameters
    workers = [[Round(0, amount, None, 0), Round(None, 0, 0, amount)] for _ in range(1, size)]
    server = [Round(None, 0, rank, amount) for rank in range(1, size)]
    server += [Round(rank, amount, None, 0) for rank in range(1, size)]
    seconds = replay.seconds([server, *workers], *link)
    assert seconds == pytest.approx(2 * (size - 1) * link.seconds(amount))


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 9), st.integers(1, 12), st.integers(0, 2**32))
def test_repeated_rounds_equal_the_same_rounds_written_out(size, repeat, seed):
    """Also with links that all differ and ranks that come at different times."""
    dice = random.Random(seed)
    slow = {(a, b): Link(dice.random(), dice.random()) for a in range(size) for b in range(size)}
    late = [Round((rank + 1) % size, 0, (rank - 1) % size, 0) for rank in range(size)]
    ring = [traffic.ring(rank, size, 10, 4)._replace(repeat=repeat) for rank in range(size)]
    short = [[late[rank], ring[rank], late[rank]] for rank in range(size)]
    long = [[late[rank], *repeat * [ring[rank]._replace(repeat=1)], late[rank]] for rank in range(size)]
    assert replay.finish(short, 1.0, 1.0, slow) == pytest.approx(replay.finish(long, 1.0, 1.0, slow))


def test_a_slow_node_slows_the_ring_in_every_round_and_the_tree_only_where_it_is_used():
    size, link, slow = 8, Link(0.0, 1e-9), Link(0.0, 1e-8)
    ring = [[traffic.ring(rank, size, 8000, 4)] for rank in range(size)]
    assert replay.seconds(ring, *link, {3: slow}) == pytest.approx(10 * replay.seconds(ring, *link))
    tree = all_rounds(CONFIGS["gtopk"], size, 8000, 100)
    leaf, one = replay.seconds(tree, *link, {7: slow}), replay.seconds(tree, *link) / 6
    assert leaf == pytest.approx(10 * one + 4 * one + 10 * one)  # its merge first, its broadcast last
    assert replay.seconds(tree, *link, {(7, 6): slow}) == pytest.approx(15 * one)


def test_a_message_without_its_other_end_is_an_error():
    with pytest.raises(ValueError, match="rank 0 waits forever in its round 0"):
        replay.seconds([[Round(1, 8, None, 0)], []], 1.0, 1.0)
    with pytest.raises(ValueError, match="8 bytes at one end, 4 at the other|4 bytes at one end, 8"):
        replay.seconds([[Round(1, 8, None, 0)], [Round(None, 0, 0, 4)]], 1.0, 1.0)


@pytest.mark.parametrize("other", [{"repeat": 3}, {"sent": 4, "received": 4}])
def test_rounds_that_are_repeated_unlike_are_an_error(other: dict[str, int]) -> None:
    first = Round(1, 8, 1, 8, repeat=2)
    with pytest.raises(ValueError, match="ranks 0 and 1 repeat unlike rounds"):
        replay.seconds([[first], [first._replace(to=0, source=0, **other)]], 1.0, 1.0)


def test_the_papers_crossover():
    """With alpha, gTop-k by tree loses to Top-k up to P = 4 and wins from P = 8 (cost_formulas, note)."""
    link, k = Link(0.436e-3, 9e-9), 26214
    tree = {size: cost_formulas.gtopk_tree_and_broadcast(size, k, link) for size in (2, 4, 8, 16)}
    gather = {size: cost_formulas.topk_allgather(size, k, link) for size in tree}
    assert [size for size in tree if tree[size] < gather[size]] == [8, 16]


@given(links.filter(lambda link: link.alpha_s > 64 * link.beta_s_per_byte), st.integers(0, 2**32))
def test_the_fit_finds_alpha_and_beta_and_says_how_well(link, seed):
    sizes, dice = [4**power for power in range(3, 13)], random.Random(seed)
    exact = fit(sizes, [link.seconds(size) for size in sizes])
    assert (exact.alpha_s, exact.beta_s_per_byte) == pytest.approx(link, rel=1e-3)
    assert exact.misfit < 1e-3
    noisy = fit(sizes, [link.seconds(size) * dice.uniform(0.9, 1.1) for size in sizes])
    if link.alpha_s < 4**11 * link.beta_s_per_byte:  # else all messages cost alpha, and beta is unknown
        assert abs(noisy.beta_s_per_byte - link.beta_s_per_byte) < 6 * noisy.beta_error
    assert noisy.misfit < 0.3


def test_a_slow_direction_is_not_the_other_and_of_two_slow_nodes_the_slower_counts():
    message, link = [[Round(1, 100, None, 0)], [Round(None, 0, 0, 100)]], Link(1.0, 0.01)
    slow, slower = Link(2.0, 0.01), Link(3.0, 0.01)
    assert replay.seconds(message, *link, {(0, 1): slow}) == slow.seconds(100)
    assert replay.seconds(message, *link, {(1, 0): slow}) == link.seconds(100)
    for nodes in ({0: slow, 1: slower}, {0: slower, 1: slow}):
        assert replay.seconds(message, *link, nodes) == slower.seconds(100)


def test_a_repeated_message_begins_when_its_receiver_is_there_too():
    """Rank 4 keeps rank 1 for 10 s; the slow link from 0 to 1 keeps 1 on, and so 2 in the second round."""
    ring = [Round((rank + 1) % 4, 0, (rank - 1) % 4, 0, repeat=2) for rank in range(4)]
    slow = {(4, 1): Link(10.0, 0.0), (0, 1): Link(5.0, 0.0)}
    rounds = [[ring[0]], [Round(None, 0, 4, 0), ring[1]], [ring[2]], [ring[3]], [Round(1, 0, None, 0)]]
    assert replay.finish(rounds, 1.0, 0.0, slow) == [20, 20, 16, 16, 10]


def test_errors_are_those_of_least_squares_and_the_misfit_that_of_the_worst_point():
    from scipy import optimize  # scikit-learn brings it; here, as it takes a second

    dice, sizes = random.Random(0), np.array([4.0**power for power in range(3, 13)])
    times = np.array([(1e-4 + 1e-9 * size) * dice.uniform(0.7, 1.4) for size in sizes])
    found = fit(sizes.tolist(), times.tolist())
    best = (found.alpha_s, found.beta_s_per_byte)
    _, covariance = optimize.curve_fit(lambda n, a, b: np.log(a + b * n), sizes, np.log(times), best)
    assert (found.alpha_error, found.beta_error) == pytest.approx(np.sqrt(np.diag(covariance)), rel=1e-3)
    line = best[0] + best[1] * sizes
    assert found.misfit == pytest.approx(max(*(times / line), *(line / times)) - 1)
