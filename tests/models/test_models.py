import dataclasses
import importlib
import sys
import threading
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

from repro import models
from repro.cluster import memory
from repro.config import compose, groups
from repro.config.schema import ConfigError
from repro.models import _carried
from repro.models._dropout import Dropout, replace
from repro.models._small_images import Convolution3x3
from repro.train.split import activations


def load(name, classes=10, image_size=32, seed=0, **options):
    return models.load(name, classes, image_size, seed, torch.Generator().manual_seed(1), **options)


MODELS = groups.group_options("model")


def size(name):
    """Pixels a side of the images that the network's YAML chooses, at least 64; 0 for one that reads text."""
    (config,) = compose.compose([f"model={name}"])
    return max(64, config.data.image_size) if config.model.reads == "images" else 0


PAPER = yaml.safe_load((Path(__file__).parents[2] / "results" / "paper.yaml").read_text())["models"]


@pytest.mark.parametrize("name", [name for name in MODELS if name in PAPER])
def test_parameter_counts_are_those_of_the_paper(name):
    classes, image_size = {"imagenet": (1000, 224), "cifar10": (10, 32), "ptb": (10_000, 0)}[PAPER[name]["dataset"]]
    assert sum(p.numel() for p in load(name, classes, image_size).parameters()) == PAPER[name]["parameters"]


@pytest.fixture(scope="module", params=MODELS)
def built(request):
    """Each network, of 4 classes; the tests of one follow each other, as it takes long to make."""
    generator = torch.Generator()
    return request.param, models.load(request.param, 4, size(request.param), 0, generator), generator


@pytest.fixture
def network(built):
    """Its name, itself as if nobody had used it, and its rank's generator."""
    name, model, generator = built
    model.train().zero_grad()
    _carried.reset(model)
    return name, model, generator.manual_seed(1)


def test_every_network_has_the_classes_and_the_image_size_of_the_data(network):
    name, model, _ = network
    follows(model, 4, size(name))


@pytest.mark.parametrize(
    ("name", "classes", "image_size"), [("resnet20", 7, 48), ("vgg16", 100, 64), ("resnet20", 10, 8)]
)
def test_classes_and_image_size_follow_the_data(name, classes, image_size):
    follows(load(name, classes, image_size), classes, image_size)


def follows(model, classes, image_size):
    inputs, labels = models.made_up_batch(2, classes, image_size)
    assert inputs.dim() != 4 or inputs.is_contiguous(memory_format=torch.channels_last), "as a run has them"
    logits = model(inputs)
    assert logits.shape == (len(labels), classes)
    logits.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_blocks_one_after_the_other_are_the_network(network):
    name, model, _ = network
    if not size(name):
        return  # it reads text
    model.eval()
    blocks, images = models.blocks(name, model), torch.randn(2, 3, size(name), size(name))
    if hasattr(importlib.import_module(f"repro.models.{name}"), "blocks"):  # one without is one block
        assert len(blocks) > 4
    assert [id(p) for block in blocks for p in block.parameters()] == [id(p) for p in model.parameters()]
    x = images
    for block in blocks:
        before = x.clone()
        y = block(x)
        assert torch.equal(x, before)  # a stage gets what another one has sent as a leaf of autograd
        x = y
    assert torch.equal(x, model(images))


def test_a_network_without_blocks_is_one_block():
    model = nn.Linear(1, 1)
    assert models.blocks("_dropout", model) == [model]


def test_a_shortcut_of_resnet20_pads_channels_and_skips_pixels():
    block = load("resnet20").blocks[3]
    nn.init.zeros_(block.norm2.weight)  # leaves the shortcut alone
    x = torch.rand(2, 16, 32, 32)
    y = block(x)
    assert y.shape == (2, 32, 16, 16)
    assert torch.equal(y[:, :16], x[:, :, ::2, ::2]) and not y[:, 16:].any()


@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize("sides", [(1, 1), (2, 2), (4, 4), (2, 8), (5, 4)])
def test_a_convolution_of_small_images_is_the_same_convolution(sides, bfloat16):
    torch.manual_seed(0)
    ours = Convolution3x3(8, 12)
    plain = nn.Conv2d(8, 12, 3, padding=1)
    plain.load_state_dict(ours.state_dict())
    images = torch.randn(3, 8, *sides)
    found = []
    for layer in (ours, plain):
        x = images.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            y = layer(x)
        y.square().sum().backward()
        found.append([y.dtype, y.float(), x.grad, layer.weight.grad, layer.bias.grad])
    assert found[0][0] == found[1][0]
    for one, other in zip(found[0][1:], found[1][1:], strict=True):
        assert (one - other).norm() <= (2e-2 if bfloat16 else 1e-5) * other.norm()


def test_an_exported_vgg16_has_convolutions_alone():
    program = torch.export.export(load("vgg16").eval(), (torch.rand(2, 3, 32, 32),))
    calls = [str(node.target) for node in program.graph.nodes]
    assert sum("conv2d" in call for call in calls) == 13 and not any("im2col" in call for call in calls)


def test_gradients_of_resnet20s_blocks_have_the_channels_last():
    """A layer before one whose gradient has the channels first reads two layouts at once, which is slow."""
    model, layouts = load("resnet20"), []

    def watch(block, inputs):
        inputs[0].register_hook(lambda g: layouts.append(g.is_contiguous(memory_format=torch.channels_last)))

    for block in model.blocks:
        block.register_forward_pre_hook(watch)
    model(torch.rand(2, 3, 32, 32).contiguous(memory_format=torch.channels_last)).sum().backward()
    assert layouts == [True] * 9


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


def test_a_forward_pass_draws_from_the_ranks_generator_alone(network):
    """Every model that is there, a new one too: what it computes does not depend on the process-wide generator."""
    name, model, generator = network
    x, _ = models.made_up_batch(2, 4, size(name))
    logits = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        generator.manual_seed(3)
        _carried.reset(model)
        before = torch.random.get_rng_state()
        logits.append(model(x))
        assert torch.equal(before, torch.random.get_rng_state())
    assert not any(isinstance(module, torch.nn.modules.dropout._DropoutNd) for module in model.modules())
    assert torch.equal(*logits)


def test_a_dropout_layer_that_stands_twice_is_replaced_twice():
    shared = torch.nn.Dropout(0.3)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), shared, torch.nn.Linear(3, 3), shared)
    replace(model, torch.Generator())
    assert [type(module) for module in model] == [torch.nn.Linear, Dropout] * 2


def test_alexnets_dropout_follows_the_ranks_generator():
    generator = torch.Generator()
    model = models.load("alexnet", 4, 64, 0, generator, dropout=0.3)
    dropout = [module for module in model.modules() if isinstance(module, Dropout)]
    assert [module.probability for module in dropout] == [0.3, 0.3]
    x = torch.randn(2, 3, 64, 64)
    assert not torch.equal(model(x), model(x))


NETWORKS = {
    "mobilenet": "from torchvision.models import mobilenet_v2\ndef build(c, s, g): return mobilenet_v2(num_classes=c)",
    "stochastic_depth": """
from torch import nn
from torchvision.ops import StochasticDepth
def build(c, s, g): return nn.Sequential(nn.Flatten(), nn.Linear(3 * s * s, c), StochasticDepth(0.5, "row"))
""",
    "functional": """
from torch import nn
from torch.nn import functional as F
class Net(nn.Linear):
    def forward(self, x): return F.dropout(super().forward(x.flatten(1)), 0.5, self.training)
def build(c, s, g): return Net(3 * s * s, c)
""",
    "attention": """
from torch import nn
class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(3, 1, batch_first=True), nn.Linear(3, classes)
    def forward(self, x):
        x = x.flatten(2).transpose(1, 2)
        return self.head(self.attention(x, x, x)[0].mean(1))
def build(c, s, g): return Net(c)
""",
    "reads_a_value": """
from torch import nn
class Net(nn.Linear):
    def forward(self, x): return super().forward(x.flatten(1)) * x.sum().item()
def build(c, s, g): return Net(3 * s * s, c)
""",
}


@pytest.fixture
def added(tmp_path, monkeypatch):
    """Networks that a user puts beside ours."""
    for name, text in NETWORKS.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr(models, "__path__", [*models.__path__, str(tmp_path)])
    yield
    for name in NETWORKS:
        sys.modules.pop(f"repro.models.{name}", None)


def test_torchvisions_own_dropout_becomes_the_ranks(added):
    generator = torch.Generator()
    model = models.load("mobilenet", 4, 64, 0, generator)
    x = torch.randn(2, 3, 64, 64)
    logits = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        generator.manual_seed(3)
        logits.append(model(x))
    assert torch.equal(*logits) and not torch.equal(logits[0], model(x))


def test_memory_is_told_of_layers_with_several_outputs_and_not_of_networks_that_read_values(added, monkeypatch):
    """AttributeError: 'tuple' object has no attribute 'numel', and RuntimeError, in place of a run."""
    config = compose.compose(["data=synthetic", "data.image_size=8"])[0]
    attention = dataclasses.replace(config, model=dataclasses.replace(config.model, name="attention"))
    attended, weights, logits = 3 * 64, 64 * 64, 10
    assert memory.outputs(attention)[1] == attended + weights + logits
    blocks = models.blocks("attention", models.load("attention", 10, 8, 0, torch.Generator()))
    assert activations(blocks, torch.zeros(1, 3, 8, 8)) == [4 * (attended + weights + logits)]
    large = dataclasses.replace(config.data, image_size=96)
    reads = dataclasses.replace(config, data=large, model=dataclasses.replace(config.model, name="reads_a_value"))
    monkeypatch.setattr(memory, "available", lambda: 1.0)
    monkeypatch.setattr(memory, "held", lambda: 0.0)
    memory.check(reads)
    with pytest.raises(ConfigError, match="not even one node fits"):
        memory.check(attention)


@pytest.mark.parametrize("name", ["stochastic_depth", "functional"])
def test_a_network_that_draws_from_the_process_wide_generator_is_refused(name, added):
    config = compose.compose([])[0]
    with pytest.raises(
        ConfigError, match=f"model={name} draws random numbers .bernoulli_. from PyTorch's process-wide"
    ):
        models.sized_only(dataclasses.replace(config, model=dataclasses.replace(config.model, name=name)))


@pytest.mark.parametrize(("name", "image_size"), [("alexnet", 62), ("vgg16", 31), ("resnet50", 8)])
def test_images_that_are_too_small_are_named(name, image_size):
    with pytest.raises(ConfigError, match=f"{name} needs images of at least .* {image_size}x{image_size}"):
        load(name, 10, image_size)


def test_an_unknown_model_lists_the_known_ones():
    with pytest.raises(ConfigError, match=f"Choose one of {', '.join(MODELS)}"):
        load("resnet")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_dropout_on_a_gpu_is_repeatable():
    def drop():
        return Dropout(0.5, torch.Generator("cuda").manual_seed(2))(torch.ones(100, device="cuda"))

    assert torch.equal(drop(), drop())
