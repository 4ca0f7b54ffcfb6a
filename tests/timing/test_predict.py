"""Critical paths of messages, and the iterations that are predicted from them."""

import pytest
import torch
from algorithm_steps import CHOICES
from hypothesis import example, given
from hypothesis import strategies as st
from made_up_predictions import predicted

from repro.cluster import threads
from repro.comm import replay
from repro.comm.critical_paths import Path, critical_paths
from repro.comm.traffic import Round
from repro.config.compose import compose
from repro.config.parts import Algo
from repro.config.schema import ConfigError
from repro.timing import dry_run, node_profile, predict, simulate

M, K = 100_003, 1_003


@pytest.mark.parametrize("algo", CHOICES.values(), ids=CHOICES)
def test_critical_paths_give_the_replays_seconds_on_every_network(algo: Algo) -> None:
    all_rounds = dry_run.all_rounds(algo, 6, M, K)
    paths = critical_paths(all_rounds)
    for alpha, beta in ((0.0, 1e-9), (5e-3, 8e-11), (1e-4, 9e-9), (4e-5, 8e-8), (1e-6, 1e-10), (1.0, 0.0)):
        longest = max(path.seconds(alpha, beta) for path in paths)
        assert longest == pytest.approx(replay.seconds(all_rounds, alpha, beta), rel=1e-4)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 10**8)), min_size=1, max_size=6))
@example([(44, 22715921), (45, 0)])  # the most rounds have no bytes
def test_critical_paths_of_pairs_that_exchange_on_their_own(pairs: list[tuple[int, int]]) -> None:
    """Each pair is a chain of so many rounds, so the known chains are exactly those that can be the longest."""
    all_rounds = []
    for number, (rounds, size) in enumerate(pairs):
        one, other = 2 * number, 2 * number + 1
        all_rounds += [[Round(other, size, other, size)] * rounds, [Round(one, size, one, size)] * rounds]
    found = critical_paths(all_rounds)
    chains = [Path(rounds, rounds * size) for rounds, size in pairs]
    for alpha, beta in ((1.0, 0.0), (1.0, 1e-8), (1.0, 1e-6), (1.0, 1e-3)):
        longest = max(path.seconds(alpha, beta) for path in chains)
        assert max(path.seconds(alpha, beta) for path in found) == pytest.approx(longest, rel=1e-4)


def test_an_iteration_is_its_parts_and_agrees_with_simulate() -> None:
    one = predicted("algo=gtopk", "nodes=6", "network=ethernet1g")
    wire = one.config.network
    (row,) = simulate.run([one.config], "0.2+0.01", None, None)
    assert one.parts(wire.alpha_s, wire.beta_s_per_byte).communicate_s == pytest.approx(row["communicate_s"])
    assert one.seconds(wire.alpha_s, wire.beta_s_per_byte) == pytest.approx(row["iteration_s"])


def test_overlap_hides_what_backward_covers_and_no_more() -> None:
    plain, beside = predicted("algo=dense"), predicted("algo=dense", "bucket_mb=0.1", "overlap=on")
    assert len(beside.messages) > 5
    fast, slow = beside.parts(0.0, 1e-10), beside.parts(0.0, 1e-6)
    last = max(path.seconds(0.0, 1e-10) for path in beside.messages[-1])
    assert fast.exposed_s == pytest.approx(last)  # all but the last bucket
    assert slow.hidden_s <= 0.1 + 0.01  # half of the 0.2 s, and later buckets' compress
    assert beside.seconds(0.0, 1e-8) < plain.seconds(0.0, 1e-8)
    assert beside.parts(0.0, 1e-8).communicate_s == pytest.approx(plain.parts(0.0, 1e-8).communicate_s, rel=0.01)


def test_averages_in_the_background_hide_behind_the_steps_they_have() -> None:
    one = predicted("algo=async_average", "algo.period=4", "algo.delay=2")
    parts = one.parts(0.0, 1e-6)
    assert parts.hidden_s == pytest.approx(2 * 0.21 / 4) and parts.communicate_s > parts.hidden_s
    assert one.seconds(1e-6, 1e-10) == pytest.approx(0.21)


def test_ddp_is_predicted_where_its_ranks_could_not_be_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """`repro simulate algo=ddp nodes=8` asked for cluster=processes on a machine with one GPU."""
    monkeypatch.setattr(threads, "device_of", lambda config, place: torch.device("cuda", 0))
    assert predicted("algo=ddp", "nodes=8").seconds(1e-3, 1e-8) > 0.2
    with pytest.raises(ConfigError, match="overlap=on: one bucket"):
        predicted("algo=dense", "overlap=on")


def test_what_algorithms_relax() -> None:
    found = {name: predict.relaxes(algo) for name, algo in CHOICES.items()}
    assert {name for name, relax in found.items() if relax == "exact"} == {"dense", "ddp", "parameter_server"}
    assert {"gtopk", "bytegrad", "powersgd", "qadam"} <= {n for n, relax in found.items() if relax == "compressed"}
    assert {"local_sgd", "async_average", "decentralized"} <= {n for n, relax in found.items() if relax == "all"}


def test_a_micro_batch_but_the_last_fills_no_layer() -> None:
    (config,) = compose(["model=resnet20", "batch_per_node=2", "accumulate=4"])
    moments = node_profile.backward("0.8", config)
    assert max(moments) == pytest.approx(0.8) and min(moments) > 0.6 and moments[-1] < moments[0]
