"""The algorithms in loops of a user's own: what one rank can show alone, and what is refused."""

import copy
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
import torchrun_loops

from repro import distributed
from repro.config.compose import algorithm, compose
from repro.config.schema import ConfigError
from repro.density import entries

M = torchrun_loops.weights(torchrun_loops.Network(0)).numel() - 3  # all but the frozen ones


@pytest.fixture
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def network() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torchrun_loops.Network(0)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gtopk", {"route": "butterfly"}),
        ("topk", {"selector": "mstopk"}),
        ("qsgd", {"bits": 4, "seed": 3}),
        ("dgc", {}),
    ],
)
def test_chosen_as_on_the_command_line(name, options):
    keys = [f"{key if key == 'seed' else 'algo.' + key}={value}" for key, value in options.items()]
    seed = {"seed": options.pop("seed")} if "seed" in options else {}
    assert algorithm(name, options, **seed) == compose([f"algo={name}", *keys])[0].algo


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gtop", {}, r"algo=gtop: there is no such algo. Did you mean algo=gtopk\? Choose one of async_average"),
        ("all", {}, "algo=all: there is no such algo"),
        ("gtopk", {"rout": "tree"}, r"algo.rout=tree: there is no key algo.rout. Did you mean algo.route\?"),
        ("gtopk", {"route": "ring"}, "algo.route=ring: choose one of tree, butterfly"),
        ("gtopk", {"sparse": False}, "algo.sparse=False: there is no key algo.sparse"),
        ("local_sgd", {"period": 2.5}, "algo.period=2.5: expected a whole number"),
        ("local_sgd", {"period": 0}, "algo.period=0: must be at least 1"),
        ("gtopk", {"density": 2}, "density=2: must be at least 1e-12 and at most 1"),
        ("gtopk", {"density": "0.1"}, "density=0.1: expected a number"),
        ("gtopk", {"seed": -1}, "seed=-1: must be at least 0"),
        ("ddp", {}, "algo=ddp: DistributedDataParallel wraps the model itself"),
        ("topk", {"mask": "selected"}, "algo.mask=selected sets entries of velocities to zero, and there are none"),
    ],
)
def test_what_cannot_be_wrapped(name, options, message, alone):
    with pytest.raises(ConfigError, match=message):
        distributed.wrap(*network(), name, **options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("local_sgd", {}, "algo=local_sgd mixes weights and cannot be a hook"),
        ("ddp", {"hook": "fp16"}, "algo=ddp is DDP itself"),
        ("gtopk", {"clip": 1.0}, "clip=1 bounds the norm of a rank's whole gradient, and a hook sees a bucket"),
        ("bytegrad", {"bucket": "many"}, "algo.bucket=many: expected a whole number"),
    ],
)
def test_what_cannot_be_a_hook(name, options, message):
    with pytest.raises(ConfigError, match=message):
        distributed.State(name, **options)


def test_wrapped_without_ranks_or_with_the_wrong_parameters():
    model, optimizer = network()
    with pytest.raises(ConfigError, match="there is no process group: call torch.distributed.init_process_group"):
        distributed.wrap(model, optimizer, "gtopk")
    with pytest.raises(ConfigError, match="the optimizer must train parameters of the model"):
        distributed.wrap(torchrun_loops.Network(0), optimizer, "gtopk")
    model.second.double()
    with pytest.raises(ConfigError, match="torch.float32 on cpu, torch.float64 on cpu: all must be of one dtype"):
        distributed.wrap(model, optimizer, "gtopk")


def test_a_model_inside_ddp_is_not_wrapped_again(alone):
    model, optimizer = network()
    with pytest.raises(ConfigError, match="register distributed.hook on it"):
        distributed.wrap(torch.nn.parallel.DistributedDataParallel(model), optimizer, "gtopk")


def test_only_ddp_around_the_wrapped_model_is_refused(alone, monkeypatch: pytest.MonkeyPatch):
    """PyTorch remembers one active DDP for the process; threads of ranks that train another may leave it behind."""
    model, optimizer = network()
    distributed.wrap(model, optimizer, "gtopk")
    for active in (torch.nn.Sequential(torch.nn.Linear(2, 2)), torch.nn.Sequential(model)):
        monkeypatch.setattr(torch.nn.parallel.DistributedDataParallel, "_active_ddp_module", active)
        with pytest.raises(ConfigError, match="averages the gradients") if model in active else nullcontext():
            model(torchrun_loops.INPUTS[0])


def test_any_optimizer_and_what_is_refused_at_its_steps(alone):
    (model, optimizer), (same, plain) = network(), network()
    node = distributed.wrap(model, optimizer, "gtopk", density=1.0)
    for net, descent in ((model, optimizer), (same, plain)):
        net(torchrun_loops.INPUTS[0]).sum().backward()
        descent.step()
    assert torch.equal(torchrun_loops.weights(model), torchrun_loops.weights(same)) and node.traffic.bytes_sent == 0
    with pytest.raises(ConfigError, match=r"optimizer.step\(closure\)"):
        optimizer.step(lambda: 0.0)
    model.frozen.requires_grad_(True)
    model(torchrun_loops.INPUTS[0]).sum().backward()
    with pytest.raises(ConfigError, match="further parameters to train since distributed.wrap"):
        optimizer.step()


def test_a_state_of_something_else_is_refused(alone):
    (model, optimizer), (_, plain) = network(), network()
    distributed.wrap(model, optimizer, "gtopk")
    with pytest.raises(ConfigError, match="from before distributed.wrap"):
        optimizer.load_state_dict(plain.state_dict())
    state = optimizer.state_dict()
    state["state"]["repro"] |= {"rank": 1, "nodes": 2}
    with pytest.raises(ConfigError, match="is of algo=gtopk rank=1 nodes=2, here is algo=gtopk rank=0 nodes=1"):
        optimizer.load_state_dict(state)


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
    with pytest.raises(ConfigError, match="the hook is of algo=gtopk rank=0 nodes=1, here is algo=topk rank=0 nodes=1"):
        load("topk", {})
    with pytest.raises(ConfigError, match="is of algo=gtopk rank=1 nodes=2, here is algo=gtopk rank=0"):
        load("gtopk", {"place": {"algo": "gtopk", "rank": 1, "nodes": 2}})
    with pytest.raises(ConfigError, match="the hook does not fit the algorithm here: it has other keys than residual"):
        load("gtopk", {}, correction=0.9)
    with pytest.raises(ConfigError, match=r"residual has shape \[20\], not \[24\]"):
        load("gtopk", {}, inputs=5)
    with pytest.raises(ConfigError, match="other buckets than in the run whose State was loaded"):
        load("gtopk", {"layout": {0: [0, 1, 2]}})
    del saved["place"]  # a state from before
    load("gtopk", {})


def test_no_two_buckets_of_a_hook_draw_the_same(alone):
    state = distributed.State("randomk", density=0.1)
    model = torch.nn.Sequential(*(torch.nn.Linear(100, 100, bias=False) for _ in range(2)))
    wrapped = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.01)
    wrapped.register_comm_hook(state, distributed.hook)
    for _ in range(3):
        wrapped(torch.ones(2, 100)).square().sum().backward()
    first, second = (algorithm.chosen for algorithm in state.buckets.values())
    assert len(first) == len(second) == 1000 and not torch.equal(first, second)


def test_a_sparse_gradient_is_refused(alone):
    model = torch.nn.Embedding(4, 3, sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    distributed.wrap(model, optimizer, "gtopk")
    model(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(ConfigError, match=r"shape \(4, 3\) has a sparse gradient.*leave out sparse=True"):
        optimizer.step()


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


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        *((name, {}, f"algo={name} has momentum of its own") for name in ("demo", "dgc", "gtopk_corrected", "qadam")),
        ("topk", {"correction": 0.9}, "algo.correction=0.9 is momentum"),
    ],
)
def test_momentum_twice_is_refused(name, options, message, alone):
    """It trained to nothing. A scheduler may bring momentum later, so the steps look too."""
    for optimizer_of in (
        lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        lambda model: torch.optim.AdamW(model.parameters()),
    ):
        model = torchrun_loops.Network(0)
        with pytest.raises(ConfigError, match=message):
            distributed.wrap(model, optimizer_of(model), name, **options)
    model = torchrun_loops.Network(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    distributed.wrap(model, optimizer, name, **options)
    model(torchrun_loops.INPUTS[0]).sum().backward()
    optimizer.step()
    optimizer.param_groups[0]["momentum"] = 0.9
    with pytest.raises(ConfigError, match=message):
        optimizer.step()


def test_a_layer_that_is_frozen_later_is_refused(alone):
    model, optimizer = network()
    distributed.wrap(model, optimizer, "gtopk")
    model.first.requires_grad_(False)
    model(torchrun_loops.INPUTS[0]).sum().backward()
    with pytest.raises(ConfigError, match="frozen since distributed.wrap.*make an optimizer of the others"):
        optimizer.step()


def test_wrapping_twice_is_refused(alone):
    model, optimizer = network()
    distributed.wrap(model, optimizer, "gtopk")
    with pytest.raises(ConfigError, match="wrapped already: call distributed.wrap once"):
        distributed.wrap(model, optimizer, "dense")


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


@pytest.mark.parametrize("name", ["dense", "onebit", "gtopk"])
def test_an_unused_parameter_is_left_alone_as_pytorch_leaves_it(name, alone):
    """Weight decay shrank it, and the signs of 1-bit SGD moved it."""
    model = torchrun_loops.Network(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.5)
    distributed.wrap(model, optimizer, name)
    before = model.unused.detach().clone()
    for _ in range(2):
        model(torchrun_loops.INPUTS[0]).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert model.unused.grad is None and torch.equal(model.unused, before)
    model.unused.sum().backward()
    with pytest.raises(ConfigError, match=r"shape \(5,\) got its first gradient after the first step"):
        optimizer.step()


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


def test_a_step_before_any_backward_settles_nothing(alone):
    """It marked all parameters as unused."""
    model, optimizer = branches()
    optimizer.step()
    assert torch.equal(train(model, optimizer, [True, False]), train(*branches(), [True, False]))


def test_density_may_change_between_steps(alone):
    model, optimizer = network()
    node = distributed.wrap(model, optimizer, "gtopk", density=0.5)
    for density in (0.5, 0.01):
        node.algorithm.density = density
        model(torchrun_loops.INPUTS[0]).sum().backward()
        optimizer.step()
        assert node.gradient.count_nonzero() <= entries(density, M)
        optimizer.zero_grad()
