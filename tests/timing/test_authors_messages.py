"""gTop-k's tree with what the authors' code does: bytes, barriers and merges, counted.

On real links: tests/cluster/test_dilation.py."""

import pytest

from repro.comm import replay
from repro.config.compose import compose
from repro.config.schema import Config, ConfigError
from repro.timing import authors_messages, dry_run

ALPHA, BETA = 1e-3, 1e-8
PARAMETERS, K = 100_000, 100


def config(authors: str, nodes: int = 4, *more: str) -> Config:
    words = ("cluster=lab", "cluster.dilation=8", "node=paper", "model=resnet20", "batch_per_node=128", "algo=gtopk")
    return compose([*words, f"nodes={nodes}", f"cluster.authors={authors}", "data=synthetic", "threads=1", *more])[0]


def modelled(authors: str, nodes: int) -> float:
    one = config(authors, nodes)
    rounds = dry_run.all_rounds(one.algo, nodes, PARAMETERS, K)
    return replay.seconds(authors_messages.changed(one, rounds), ALPHA, BETA)


@pytest.mark.parametrize(("nodes", "levels"), [(2, 1), (4, 2), (6, 3), (8, 3), (32, 5)])
def test_bytes_double_and_each_round_of_merges_ends_in_a_barrier(nodes: int, levels: int) -> None:
    """A barrier is `levels` messages of one byte; the tree and its broadcast are 2 x levels messages of k pairs."""
    pairs, barrier = 8 * K * BETA, levels * (ALPHA + authors_messages.EMPTY * BETA)
    assert modelled("none", nodes) == pytest.approx(2 * levels * (ALPHA + pairs))
    assert modelled("pairs", nodes) == pytest.approx(2 * levels * (ALPHA + 2 * pairs))
    assert modelled("barriers", nodes) == pytest.approx(2 * levels * (ALPHA + pairs) + levels * barrier)
    assert modelled("all", nodes) == pytest.approx(2 * levels * (ALPHA + 2 * pairs) + levels * barrier)
    assert modelled("merges", nodes) == modelled("none", nodes)


def test_merges_are_timed_only_where_they_are_asked_for() -> None:
    assert authors_messages.work(config("barriers"), PARAMETERS) == (0.0, 0.0)
    work = authors_messages.work(config("merges"), PARAMETERS)
    assert 0 < work.merge_s < 1 and 0 < work.finish_s < 1
    assert authors_messages.Work(2.0, 3.0).inside(32) == 5 * 2.0 + 3.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["algo=topk"], "type algo=gtopk node=paper cluster=lab"),
        (["node=null"], "type algo=gtopk node=paper cluster=lab"),
        (["nodes=1"], "type nodes=2 or more"),
        (["bucket_mb=1"], "no bucket_mb"),
        (["cluster.authors=both"], "pairs"),
        (["algo.route=butterfly"], "whole pairs along a tree; leave algo.route and algo.wire out"),
        (["algo.wire=packed"], "whole pairs along a tree; leave algo.route and algo.wire out"),
    ],
)
def test_what_cannot_be_made_like_theirs_is_told(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config("all", 4, *words)
