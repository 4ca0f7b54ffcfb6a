"""Saved states of the library for own loops: what they hold, and what is refused."""

import copy
import re
from pathlib import Path

import pytest
import torch
import torchrun_loops
import unlike_ranks
from torchrun_loops import network

from repro import algorithms, distributed
from repro.config import groups
from repro.config.compose import algorithm
from repro.config.schema import ConfigError


def test_a_state_of_something_else_is_refused(alone):
    (model, optimizer), (_, plain) = network(), network()
    distributed.wrap(model, optimizer, "gtopk")
    with pytest.raises(ConfigError, match="from before distributed.wrap"):
        optimizer.load_state_dict(plain.state_dict())
    state = optimizer.state_dict()
    state["state"]["repro"] |= {"rank": 1}
    with pytest.raises(ConfigError, match="algo=gtopk rank=0 nodes=1; each rank loads its own"):
        optimizer.load_state_dict(state)


def test_a_run_goes_on_with_another_algorithm_as_the_error_says(alone):
    """It said that each rank loads its own, of which there was none."""
    model, optimizer = network()
    distributed.wrap(model, optimizer, "gtopk", density=0.05)
    model(torchrun_loops.INPUTS[0]).square().sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    found = unlike_ranks.goes_on(model.state_dict(), state, "topk", None)
    assert "here is algo=topk rank=0 nodes=1; residuals fit only that algorithm on that many nodes" in found["told"]
    assert found["steps"] == [2, 2, 2, 2] and found["moved"] and "repro" not in state["state"]


@pytest.mark.parametrize(
    ("saved", "loaded", "size", "message"),
    [
        ({}, {"correction": 0.9}, 4, "this state of the optimizer does not fit the algorithm here: it has other keys"),
        ({"correction": 0.9}, {}, 4, "other keys than residual. Give it the model and the options"),
        ({}, {}, 5, r"residual has shape \[16\], not \[20\]. Give it the model"),
    ],
)
def test_a_state_of_another_form_is_refused(saved, loaded, size, message, alone):
    """It gave a KeyError or a RuntimeError, or left the velocity out."""
    optimizers = []
    for options, inputs in ((saved, 4), (loaded, size)):
        model = torch.nn.Linear(inputs, 4, bias=False)
        optimizers.append(torch.optim.SGD(model.parameters(), lr=0.1))
        distributed.wrap(model, optimizers[-1], "gtopk", **options)
    with pytest.raises(ConfigError, match=message):
        optimizers[1].load_state_dict(optimizers[0].state_dict())


def test_a_state_of_other_layers_of_the_same_size_is_refused(alone):
    model, optimizer = branches()
    train(model, optimizer, [True])
    state = optimizer.state_dict()
    other = torch.nn.Linear(29, 1)  # as many entries
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    distributed.wrap(other, optimizer, "gtopk")
    with pytest.raises(ConfigError, match="is of 4 parameters, here are 2: give it the model"):
        optimizer.load_state_dict(state)


def hooked(state: distributed.State, inputs: int = 4) -> dict:
    """Three steps of a model inside DDP, of which the last has residuals."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(inputs, 4))
    model.register_comm_hook(state, distributed.hook)
    for _ in range(3):
        model(torch.ones(2, inputs)).square().sum().backward()
    return state.state_dict()


def test_a_hooks_state_of_something_else_is_refused(alone):
    """Another algorithm's was loaded without a word, and one without the velocity gave a KeyError."""
    saved = hooked(distributed.State("gtopk", density=0.2))

    def load(name: str, changed: dict, inputs: int = 4, **options: float) -> None:
        state = distributed.State(name, **options)
        state.load_state_dict(copy.deepcopy({**saved, **changed}))
        hooked(state, inputs)

    load("gtopk", {})
    told = "the hook is of algo=gtopk rank=0 nodes=1, here is algo=topk rank=0 nodes=1; residuals fit.*load nothing"
    with pytest.raises(ConfigError, match=told):
        load("topk", {})
    with pytest.raises(ConfigError, match="is of algo=gtopk rank=1 nodes=2, here is algo=gtopk rank=0"):
        load("gtopk", {"place": {"algo": "gtopk", "rank": 1, "nodes": 2}})
    with pytest.raises(ConfigError, match="the hook does not fit the algorithm here: it has other keys than residual"):
        load("gtopk", {}, correction=0.9)
    with pytest.raises(ConfigError, match="other buckets than in the run whose State was loaded"):
        load("gtopk", {}, inputs=5)
    with pytest.raises(ConfigError, match=r"residual has shape \[20\], not \[24\]"):
        load("gtopk", {"shapes": []}, inputs=5)  # as a state from before
    with pytest.raises(ConfigError, match="other buckets than in the run whose State was loaded"):
        load("gtopk", {"layout": {0: [0, 1, 2]}})
    del saved["place"], saved["shapes"]  # a state from before
    load("gtopk", {})


def test_a_state_of_a_hook_registered_late_is_refused(alone):
    """It trained two steps with residuals on other parameters: DDP's first buckets are not those it has later."""

    def trained(state: distributed.State, before: int) -> dict:
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 6), torch.nn.Linear(6, 4))
        net[0], net[2] = net[2], net[0]  # the layer used last is registered first
        net.forward = lambda x: net[0](net[1](net[2](x)))  # gradients come in the order of registration
        model = torch.nn.parallel.DistributedDataParallel(net)
        for step in range(before + 3):
            if step == before:
                model.register_comm_hook(state, distributed.hook)
            model(torch.ones(2, 4)).square().sum().backward()
        return state.state_dict()

    saved = trained(distributed.State("gtopk", density=0.2), 2)
    late = distributed.State("gtopk", density=0.2)
    late.load_state_dict(saved)
    with pytest.raises(ConfigError, match="register the hook before the first backward, in that run as in this one"):
        trained(late, 0)


def test_a_state_from_before_its_place_changed_is_read(alone):
    model, optimizer = network()
    node = distributed.wrap(model, optimizer, "gtopk", density=0.01)
    model(torchrun_loops.INPUTS[0]).sum().backward()
    optimizer.step()
    residual = node.algorithm.state_dict()["residual"].clone()
    state = optimizer.state_dict()
    state["repro"] = state["state"].pop("repro")
    model, optimizer = network()
    node = distributed.wrap(model, optimizer, "gtopk", density=0.01)
    optimizer.load_state_dict(state)
    assert residual.any() and torch.equal(node.algorithm.state_dict()["residual"], residual)


def test_a_state_loaded_before_wrap_is_refused(alone):
    """Its residual was dropped without a word."""
    model, optimizer = network()
    distributed.wrap(model, optimizer, "gtopk")
    model(torchrun_loops.INPUTS[0]).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    model, optimizer = network()
    optimizer.load_state_dict(state)
    with pytest.raises(ConfigError, match="loaded before distributed.wrap, and its residuals would be lost"):
        distributed.wrap(model, optimizer, "gtopk")
    model, optimizer = network()
    distributed.wrap(model, optimizer, "gtopk")
    optimizer.load_state_dict(state)
    assert "repro" not in optimizer.state


class Branches(torch.nn.Module):
    """Uses the second layer where it is told to."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)

    def forward(self, inputs: torch.Tensor, both: bool) -> torch.Tensor:
        return self.first(inputs) + self.second(inputs) if both else self.first(inputs)


def branches(state: dict | None = None) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Branches()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    distributed.wrap(model, optimizer, "gtopk", density=0.2)
    if state:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    return model, optimizer


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, uses: list[bool]) -> torch.Tensor:
    for both in uses:
        optimizer.zero_grad()
        model(torch.ones(2, 4), both).square().sum().backward()
        optimizer.step()
    return torchrun_loops.weights(model)


def test_a_resumed_run_goes_on_with_a_layer_that_its_first_step_does_not_use(alone):
    """The layer was left out, and its next gradient refused."""
    straight = train(*branches(), [True, False, True])
    model, optimizer = branches()
    train(model, optimizer, [True])
    state = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    assert torch.equal(straight, train(*branches(state), [False, True]))
    del state["optimizer"]["state"]["repro"]["used"]  # a file from before
    train(*branches(state), [True, False])


def test_a_layer_that_begins_later_is_trained_where_the_first_step_has_zeros_for_it(alone):
    """So says the error of its first gradient, which said to use it at once."""
    model, optimizer = branches()
    train(model, optimizer, [False])
    with pytest.raises(ConfigError, match="p.grad = torch.zeros_like") as told:
        train(model, optimizer, [True])
    (line,) = re.findall("`(.*?)`", str(told.value))
    model, optimizer = branches()
    before = model.second.weight.detach().clone()
    model(torch.ones(2, 4), False).square().sum().backward()
    for p in model.parameters():
        if p.grad is None:
            exec(line, {"p": p, "torch": torch})
    optimizer.step()
    assert torch.equal(model.second.weight, before)
    train(model, optimizer, [True, True])
    assert not torch.equal(model.second.weight, before)


def test_a_step_before_any_backward_settles_nothing(alone):
    """It marked all parameters as unused."""
    model, optimizer = branches()
    optimizer.step()
    assert torch.equal(train(model, optimizer, [True, False]), train(*branches(), [True, False]))


def test_the_page_says_of_all_algorithms_that_mix_weights_whose_models_are_saved():
    """It had each rank save the optimizer alone, and the others' weights were lost."""
    page = " ".join((Path(__file__).parents[1] / "docs/own_loop.md").read_text().split())
    named = re.search("([^.]*), which mix weights, a rank's weights are its own: each rank saves its model too", page)
    mixing = {name for name in groups.group_options("algo") if algorithms.of(algorithm(name, {})).mixes}
    assert named is not None and set(re.findall("`(.*?)`", named[1])) == mixing and "local_sgd" in mixing
