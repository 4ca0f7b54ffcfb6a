import threading

import pytest
import torch
from torch import nn

from repro import models
from repro.config import ConfigError
from repro.dropout import Dropout


def load(name, classes=10, image_size=32, seed=0, **options):
    return models.load(name, classes, image_size, seed, torch.Generator().manual_seed(1), **options)


@pytest.mark.parametrize(
    ("name", "classes", "image_size", "parameters"),
    [
        ("resnet20", 10, 32, 269_722),
        ("vgg16", 10, 32, 14_728_266),
        ("alexnet", 1000, 224, 61_100_840),
        ("resnet50", 1000, 224, 25_557_032),
    ],
)
def test_parameter_counts_are_those_of_the_paper(name, classes, image_size, parameters):
    assert sum(p.numel() for p in load(name, classes, image_size).parameters()) == parameters


@pytest.mark.parametrize(
    ("name", "classes", "image_size"),
    [("resnet20", 7, 48), ("vgg16", 100, 64), ("alexnet", 4, 64), ("resnet50", 4, 64), ("resnet20", 10, 8)],
)
def test_classes_and_image_size_follow_the_data(name, classes, image_size):
    model = load(name, classes, image_size)
    logits = model(torch.randn(2, 3, image_size, image_size))
    assert logits.shape == (2, classes)
    logits.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_a_shortcut_of_resnet20_pads_channels_and_skips_pixels():
    block = load("resnet20").blocks[3]
    nn.init.zeros_(block.norm2.weight)  # leaves the shortcut alone
    x = torch.rand(2, 16, 32, 32)
    y = block(x)
    assert y.shape == (2, 32, 16, 16)
    assert torch.equal(y[:, :16], x[:, :, ::2, ::2]) and not y[:, 16:].any()


def test_threads_that_start_together_get_the_same_weights_and_leave_the_global_generator_alone():
    before = torch.random.get_rng_state()
    expected = {seed: load("resnet20", seed=seed).state_dict() for seed in (0, 1)}
    assert torch.equal(before, torch.random.get_rng_state())
    assert not torch.equal(expected[0]["conv.weight"], expected[1]["conv.weight"])

    ready, results = threading.Barrier(8), {}

    def build(rank):
        ready.wait()
        results[rank] = load("resnet20", seed=rank % 2).state_dict()

    threads = [threading.Thread(target=build, args=(rank,)) for rank in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for rank in range(8):
        assert all(torch.equal(value, expected[rank % 2][name]) for name, value in results[rank].items())


def test_dropout_draws_from_its_own_generator():
    x = torch.ones(4, 1000)
    first, again = (Dropout(0.3, torch.Generator().manual_seed(5)) for _ in range(2))
    torch.manual_seed(0)
    a = [first(x), first(x)]
    torch.manual_seed(1)
    assert torch.equal(a[0], again(x)) and torch.equal(a[1], again(x))
    assert not torch.equal(a[0], a[1])
    assert a[0].unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert a[0].mean().item() == pytest.approx(1, abs=0.05)
    assert torch.equal(first.eval()(x), x)


def test_alexnet_drops_by_the_ranks_generator_alone():
    generator = torch.Generator()
    model = models.load("alexnet", 4, 64, 0, generator)
    assert not any(isinstance(module, nn.Dropout) for module in model.modules())
    assert sum(isinstance(module, Dropout) for module in model.modules()) == 2
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        first, second = (model(x) for _ in generator.manual_seed(3) and range(2))
        generator.manual_seed(3)
        assert torch.equal(first, model(x)) and not torch.equal(first, second)


@pytest.mark.parametrize(("name", "image_size"), [("alexnet", 62), ("vgg16", 31), ("resnet50", 8)])
def test_images_that_are_too_small_are_named(name, image_size):
    with pytest.raises(ConfigError, match=f"{name} needs images of at least .* {image_size}x{image_size}"):
        load(name, 10, image_size)


def test_an_unknown_model_lists_the_known_ones():
    with pytest.raises(ConfigError, match="Choose one of alexnet, resnet20, resnet50, vgg16"):
        load("resnet")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_dropout_on_a_gpu_is_repeatable():
    def drop():
        return Dropout(0.5, torch.Generator("cuda").manual_seed(2))(torch.ones(100, device="cuda"))

    assert torch.equal(drop(), drop())
