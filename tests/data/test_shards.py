import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.config.schema import ConfigError
from repro.data import _shards

settings = {
    "samples": st.integers(1, 400),
    "nodes": st.integers(1, 40),
    "seed": st.integers(0, 2**31 - 1),
    "epoch": st.integers(0, 200),
}


@given(**settings)
def test_shards_are_disjoint_and_equal_in_size(samples, nodes, seed, epoch):
    parts = [_shards.shard(samples, seed, epoch, rank, nodes) for rank in range(nodes)]
    assert {len(part) for part in parts} == {samples // nodes}
    together = np.concatenate(parts)
    assert len(set(together.tolist())) == len(together) == samples // nodes * nodes
    assert set(together.tolist()) <= set(range(samples))


@given(**settings)
def test_a_shard_is_a_pure_function(samples, nodes, seed, epoch):
    first = _shards.shard(samples, seed, epoch, nodes - 1, nodes)
    np.random.seed(epoch)  # nothing process-wide takes part
    np.testing.assert_array_equal(first, _shards.shard(samples, seed, epoch, nodes - 1, nodes))


def test_epochs_and_seeds_shuffle_differently():
    orders = [_shards.order(1000, seed, epoch).tolist() for seed in range(3) for epoch in range(3)]
    assert len({tuple(order) for order in orders}) == 9


def test_the_order_of_an_epoch_is_golden():
    """If this fails, every run's samples have changed: old checkpoints no longer resume to the same bits."""
    assert _shards.order(10, 0, 0).tolist() == [8, 1, 0, 3, 4, 9, 5, 6, 7, 2]


@given(batch=st.integers(1, 8), ways=st.sampled_from([(1, 8), (2, 4), (4, 2), (8, 1)]), seed=st.integers(0, 99))
def test_the_global_batch_does_not_depend_on_the_number_of_nodes(batch, ways, seed):
    nodes, per_node = ways
    spread = [_shards.train_batches(200, seed, 3, rank, nodes, per_node * batch, 0) for rank in range(nodes)]
    alone = list(_shards.train_batches(200, seed, 3, 0, 1, 8 * batch, 0))
    for parts, whole in zip(zip(*spread, strict=True), alone, strict=True):
        assert set(np.concatenate(parts).tolist()) == set(whole.tolist())


@given(start=st.integers(0, 12), **settings)
def test_a_position_resumes_the_epoch(start, samples, nodes, seed, epoch):
    batch = max(1, samples // nodes // 10)
    if samples < nodes:
        return
    straight = list(_shards.train_batches(samples, seed, epoch, 0, nodes, batch, 0))
    resumed = list(_shards.train_batches(samples, seed, epoch, 0, nodes, batch, start))
    assert len(straight) == _shards.steps_per_epoch(samples, nodes, batch)
    np.testing.assert_array_equal(np.array(straight[start:]), np.array(resumed))


@given(samples=st.integers(0, 200), nodes=st.integers(1, 40), batch=st.integers(1, 50))
def test_every_test_sample_is_read_once(samples, nodes, batch):
    batches = [b for rank in range(nodes) for b in _shards.test_batches(samples, rank, nodes, batch)]
    assert sorted(i for b in batches for i in b.tolist()) == list(range(samples))
    assert all(1 <= len(b) <= batch for b in batches)


def test_too_few_images_for_one_step_is_an_error():
    with pytest.raises(ConfigError, match="32 nodes with 64 samples each .* need 2048 training samples.*1437"):
        _shards.steps_per_epoch(1437, 32, 64)
