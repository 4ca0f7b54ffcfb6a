"""What `wrap` and the hook refuse, and what they say then, on one rank alone."""

from contextlib import nullcontext

import pytest
import torch
import torchrun_loops
from torchrun_loops import network

from repro import distributed
from repro.algorithms import gtopk
from repro.config.compose import algorithm, compose
from repro.config.schema import ConfigError


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


def test_what_is_no_name_and_no_optimizer_is_said(alone):
    """An algorithm's class gave a TypeError, and a scheduler an AttributeError."""
    model, optimizer = network()
    for call in (lambda: distributed.wrap(model, optimizer, gtopk.Algorithm), lambda: distributed.State(None)):
        with pytest.raises(ConfigError, match="an algorithm is named by a text, .* installed with pip install -e"):
            call()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for call in (
        lambda: distributed.wrap(model, scheduler, "gtopk"),
        lambda: distributed.State("gtopk", optimizer=scheduler),
    ):
        with pytest.raises(ConfigError, match="must be a torch.optim.Optimizer, and this is a StepLR"):
            call()


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


def test_a_fused_optimizer_behind_a_scaler_is_refused(alone):
    model = torch.nn.Linear(10, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    distributed.wrap(model, optimizer, "gtopk")
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(model(torchrun_loops.INPUTS[0]).sum()).backward()
    with pytest.raises(ConfigError, match="make it with fused=False"):
        scaler.step(optimizer)


def test_a_sparse_gradient_is_refused(alone):
    model = torch.nn.Embedding(4, 3, sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    distributed.wrap(model, optimizer, "gtopk")
    model(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(ConfigError, match=r"shape \(4, 3\) has a sparse gradient.*leave out sparse=True"):
        optimizer.step()
    hooked = torch.nn.parallel.DistributedDataParallel(torch.nn.Embedding(4, 3, sparse=True))
    hooked.register_comm_hook(distributed.State("gtopk"), distributed.hook)
    with pytest.raises(
        (ConfigError, RuntimeError), match=r"shape \(4, 3\) has a sparse gradient.*leave out sparse=True"
    ):
        hooked(torch.tensor([1, 2])).sum().backward()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        *((name, {}, f"algo={name} takes the place of momentum") for name in ("demo", "dgc", "qadam")),
        *(
            (name, {}, "algo.gain=10 takes the place.* its weight_decay then counts 10 times less")
            for name in ("gtopk_corrected", "gtopk_exact", "onebit")
        ),
        ("topk", {"correction": 0.9}, "algo.correction=0.9 takes the place of momentum"),
        ("topk", {"gain": 10.0}, "algo.gain=10 takes the place of momentum"),
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


def test_momentum_twice_is_refused_by_a_hook_that_sees_the_optimizer(alone):
    """Its loss went up, and nothing said so: a hook is given gradients alone."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with pytest.raises(ConfigError, match="algo.gain=10 takes the place of momentum"):
        distributed.State("gtopk_exact", optimizer=optimizer)
    distributed.State("gtopk_exact", gain=1, optimizer=optimizer)
    optimizer.param_groups[0]["momentum"] = 0.0
    model.register_comm_hook(distributed.State("gtopk_exact", optimizer=optimizer), distributed.hook)
    model(torchrun_loops.INPUTS[0]).sum().backward()
    optimizer.param_groups[0]["momentum"] = 0.9
    with pytest.raises(ConfigError, match="algo.gain=10 takes the place of momentum"):
        model(torchrun_loops.INPUTS[0]).sum().backward()


def test_a_second_backward_before_a_step_is_refused_by_a_hook_that_sees_the_optimizer(alone):
    """The first's update went into the next gradient, and grew by the gain with each."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.register_comm_hook(distributed.State("topk", density=0.1, optimizer=optimizer), distributed.hook)
    for _ in range(4):
        with model.no_sync():
            model(torchrun_loops.INPUTS[0]).sum().backward()
        model(torchrun_loops.INPUTS[0]).sum().backward()
        optimizer.step()
    model(torchrun_loops.INPUTS[0]).sum().backward()
    with pytest.raises(ConfigError, match=r"a second backward before optimizer.step\(\).*model.no_sync"):
        model(torchrun_loops.INPUTS[0]).sum().backward()


@pytest.mark.parametrize("density", [0.0, -1.0, 2.0, float("nan"), "much"])
def test_a_density_set_between_steps_is_checked(density, alone):
    """More than 1 sent pairs that no parameter has, 0 sent one, and a text ended in a TypeError."""
    model, optimizer = network()
    node = distributed.wrap(model, optimizer, "gtopk")
    node.algorithm.density = density
    model(torchrun_loops.INPUTS[0]).sum().backward()
    with pytest.raises(ConfigError, match="^density="):
        optimizer.step()
    parallel, state = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 4)), distributed.State("gtopk")
    state.density = density
    parallel.register_comm_hook(state, distributed.hook)
    with pytest.raises(ConfigError, match="^density="):
        parallel(torchrun_loops.INPUTS[0]).sum().backward()


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
