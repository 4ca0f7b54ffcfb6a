"""A replica's flat vectors and its SGD against the network's own parameters and torch.optim.SGD."""

import copy

import pytest
import torch

from repro.models import _carried
from repro.train.replica import Replica


@pytest.mark.parametrize("decay_of", ["all", "weights"])
def test_steps_are_those_of_torch_sgd_and_gradients_land_in_the_flat_vector(decay_of):
    generator = torch.Generator().manual_seed(0)
    theirs = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    replica = Replica(copy.deepcopy(theirs), momentum=0.9, weight_decay=0.1, decay_of=decay_of)
    of_biases = {"all": 0.1, "weights": 0.0}[decay_of]
    groups = [
        {"params": [p for p in theirs.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in theirs.parameters() if p.dim() == 1], "weight_decay": of_biases},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    for _ in range(5):
        x = torch.randn(8, 5, generator=generator)
        optimizer.zero_grad()
        theirs(x).square().mean().backward()
        optimizer.step()
        replica.gradient.zero_()
        replica.model(x).square().mean().backward()
        assert torch.equal(replica.gradient, torch.cat([p.grad.reshape(-1) for p in replica.model.parameters()]))
        replica.apply(replica.gradient, lr=0.1)
    expected = torch.cat([p.detach().reshape(-1) for p in theirs.parameters()])
    assert torch.allclose(replica.parameters, expected, rtol=1e-5, atol=1e-7)
    assert torch.equal(torch.cat([p.reshape(-1) for p in replica.model.parameters()]), replica.parameters)


def test_what_a_forward_pass_changes_can_be_put_back():
    replica = Replica(_carried.LSTM(4, 4, batch_first=True), momentum=0.0, weight_decay=0.0)
    replica.model.register_buffer("running_mean", torch.zeros(4))
    good, bad = torch.ones(2, 3, 4), torch.full((2, 3, 4), torch.nan)
    replica.model(good)
    before = replica.forward_state()
    replica.model.running_mean += torch.nan
    replica.model(bad)
    replica.put_back(before)
    assert torch.equal(replica.model.running_mean, torch.zeros(4)) and torch.isfinite(replica.model(good)).all()
