"""A pass whose weights are cast, laid out and added up at once has the bits of one that does it layer by layer."""

import copy
import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from repro import models
from repro.cluster import threads
from repro.config import compose
from repro.train import cuda_graph
from repro.train.at_once import AtOnce
from repro.train.replica import Replica


def replica(name):
    return Replica(models.load(name, 10, 32, 0, torch.Generator().manual_seed(1)), 0.9, 1e-4)


def loss_of(one, autocast):
    generator = torch.Generator().manual_seed(3)
    images = torch.randn(4, 3, 32, 32, generator=generator).contiguous(memory_format=torch.channels_last)
    labels = torch.tensor([1, 2, 3, 4])

    def loss(forward=None):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = (forward or one.model)(images).float()
        return F.cross_entropy(logits, labels)

    return loss


@pytest.mark.parametrize(("name", "autocast"), [("resnet20", True), ("resnet20", False), ("vgg16", False)])
def test_the_bits_are_the_same(name, autocast):
    one, other = replica(name), replica(name)
    for _ in range(2):  # it adds
        loss = loss_of(one, autocast)()
        loss.backward()
        there = AtOnce(other, autocast).add_gradient(loss_of(other, autocast))
        assert torch.equal(loss, there)
    assert torch.equal(one.gradient, other.gradient) and one.gradient.abs().sum() > 0
    mine, its = one.model.state_dict(), other.model.state_dict()
    assert all(torch.equal(mine[key], its[key]) for key in mine)
    assert any("num_batches_tracked" in key and value == 2 for key, value in its.items())


class Normalised(nn.Linear):
    def forward(self, x):
        return F.linear(x, F.normalize(self.weight), self.bias)  # the norm in float32


class Own(nn.Module):
    """Reads weights in ways that are not those of its layers' kind."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
        self.last, self.scale = Normalised(8, 10), nn.Parameter(torch.ones(8))

    def forward(self, x):
        x = self.norm(self.first(x)).mean((2, 3)) * self.scale
        return self.last(self.second(x))


def test_a_layer_that_does_more_with_its_weights_has_the_same_bits():
    torch.manual_seed(0)
    one = Replica(Own(), 0.9, 1e-4)
    other = Replica(copy.deepcopy(one.model), 0.9, 1e-4)
    loss = loss_of(one, True)()
    loss.backward()
    assert torch.equal(loss, AtOnce(other, True).add_gradient(loss_of(other, True)))
    assert torch.equal(one.gradient, other.gradient) and one.gradient.abs().sum() > 0


def test_graphs_refuse_what_they_cannot_have(monkeypatch):
    asked = compose.compose(["cuda_graph=on", "nodes=33", "model=resnet20"])[0]
    monkeypatch.setattr(threads, "on_one_gpu", lambda config: True)
    model = models.sized_only(asked)
    for _ in range(2):
        holding = [reason for holds, reason in cuda_graph.refusals(asked, model) if holds]
        assert any("share streams" in reason for reason in holding) == (asked.nodes == 33)
        asked = dataclasses.replace(asked, nodes=32)


class Kernels(TorchDispatchMode):
    """Counts operators but those that give a view or memory, which start nothing on a GPU."""

    count, without = 0, {"view", "permute", "detach", "t", "unsqueeze", "expand", "split_with_sizes", "empty"}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function.overloadpacket.__name__ not in self.without
        return function(*args, **(kwargs or {}))


def test_it_starts_fewer_kernels():
    one = replica("resnet20")
    with Kernels() as apart:
        loss_of(one, True)().backward()
    at_once = AtOnce(one, True)
    with Kernels() as together:
        at_once.add_gradient(loss_of(one, True))
    assert together.count < 0.65 * apart.count
