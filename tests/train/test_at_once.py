"""A pass whose weights are cast, laid out and added up at once has the bits of one that does it layer by layer."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from repro import models
from repro.train.at_once import AtOnce
from repro.train.replica import Replica


def replica(name, image_size=32):
    model = models.load(name, 10, image_size, 0, torch.Generator().manual_seed(1))
    return Replica(model.train(), 0.9, 1e-4)


def batch(image_size=32):
    torch.manual_seed(3)
    images = torch.randn(4, 3, image_size, image_size).contiguous(memory_format=torch.channels_last)
    return images, torch.tensor([1, 2, 3, 4])


def loss_of(one, autocast):
    images, labels = batch()

    def loss(forward=None):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = (forward or one.model)(images).float()
        return F.cross_entropy(logits, labels)

    return loss


@pytest.mark.parametrize(("name", "autocast"), [("resnet20", True), ("resnet20", False), ("vgg16", False)])
def test_the_bits_are_the_same(name, autocast):
    one = replica(name)
    other = copy.deepcopy(one.model)
    other = Replica(other, 0.9, 1e-4)
    for _ in range(2):  # it adds
        loss = loss_of(one, autocast)()
        loss.backward()
        there = AtOnce(other, autocast).add_gradient(loss_of(other, autocast))
        assert torch.equal(loss, there)
    assert torch.equal(one.gradient, other.gradient) and one.gradient.abs().sum() > 0
    mine, its = one.model.state_dict(), other.model.state_dict()
    assert all(torch.equal(mine[key], its[key]) for key in mine)
    assert any("num_batches_tracked" in key and value == 2 for key, value in its.items())


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
    assert together.count < 0.6 * apart.count
