"""The state of a recurrent layer: it goes from one batch to the next, and no gradient does."""

import pytest
import torch

from repro import models
from repro.models import _carried

WORDS = torch.arange(24).view(2, 12) % 7


@pytest.fixture
def model():
    return models.load("lstm_small", 7, 0, 0, torch.Generator(), width=6)


def test_two_batches_give_the_logits_of_one_long_batch(model):
    with torch.no_grad():
        whole = model(WORDS).view(2, 12, 7)
        _carried.reset(model)
        parts = [model(WORDS[:, :5]).view(2, 5, 7), model(WORDS[:, 5:]).view(2, 7, 7)]
        assert torch.allclose(torch.cat(parts, 1), whole, atol=1e-6)
        _carried.reset(model)
        assert not torch.allclose(model(WORDS[:, 5:]).view(2, 7, 7), parts[1], atol=1e-6)


def test_no_gradient_goes_back_into_the_batch_before(model):
    model(WORDS[:1, :3])
    model(WORDS[:1, 3:6]).sum().backward()
    read = set(WORDS[0, 3:6].tolist())
    rows = {row for row, gradient in enumerate(model.embedding.weight.grad) if gradient.any()}
    assert rows == read


def test_another_text_is_read_from_zeros_and_leaves_the_state_as_it_was(model):
    with torch.no_grad():
        fresh = model(WORDS)
        before = _carried.states(model)
        with _carried.another_text(model):
            assert torch.equal(model(WORDS), fresh)
        after = _carried.states(model)
    assert all(
        torch.equal(a, b) for one, other in zip(before, after, strict=True) for a, b in zip(one, other, strict=True)
    )


def test_a_batch_of_other_rows_starts_from_zeros(model):
    with torch.no_grad():
        fresh = model(WORDS[:1])
        model(WORDS)
        assert torch.equal(model(WORDS[:1]), fresh)


def test_states_are_put_into_another_copy_of_the_network(model):
    other = models.load("lstm_small", 7, 0, 0, torch.Generator(), width=6)
    with torch.no_grad():
        model(WORDS)
        _carried.put(other, _carried.states(model))
        assert torch.equal(model(WORDS), other(WORDS))
    with pytest.raises(ValueError):
        _carried.put(other, [])
