"""The algorithms in loops of a user's own: what one rank can show alone, and what is refused."""

import copy
from contextlib import nullcontext
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torchrun_loops
from torchrun_loops import network

from repro import distributed, user_loop
from repro.algorithms import gtopk
from repro.config.compose import algorithm, compose
from repro.config.schema import ConfigError
from repro.density import entries

M = torchrun_loops.weights(torchrun_loops.Network(0)).numel() - 3  # all but the frozen ones


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


def test_messages_beside_training_have_the_timeout_of_the_users_group(alone):
    """They had PyTorch's 30 minutes, as those of the hook and of async_average are sent over a group of their own."""
    cpu, limit = torch.device("cpu"), timedelta(seconds=77)
    group = dist.new_group([0], timeout=limit)
    beside = distributed.connect(group, cpu).aside().transport
    beside.all_reduce(torch.ones(1))
    assert beside.group is not group and beside.group._get_backend(cpu).options._timeout == limit
    assert user_loop.timeout(object(), cpu) is None  # PyTorch has no public way to ask, and may change


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


@pytest.mark.parametrize("name", ["gtopk", "dense"])
def test_a_gradient_that_is_not_finite_is_no_part_of_a_residual(name, alone):
    model, optimizer = network()
    node = distributed.wrap(model, optimizer, name, density=0.1)
    for scale, refused in ((1.0, False), (float("inf"), True), (1.0, False)):
        optimizer.zero_grad()
        (scale * model(torchrun_loops.INPUTS[0]).square().sum()).backward()
        with pytest.raises(RuntimeError, match="rank's gradient is not finite: lower") if refused else nullcontext():
            optimizer.step()
    assert node.algorithm.memory is None or node.algorithm.memory.residual.isfinite().all()
    assert torchrun_loops.weights(model).isfinite().all()
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 4))
    net.register_comm_hook(distributed.State(name, density=0.1), distributed.hook)
    for step in range(3):  # the first two are dense
        with pytest.raises(RuntimeError, match='on_nonfinite="skip"') if step == 2 else nullcontext():
            (net(torchrun_loops.INPUTS[0]).sum() * float("inf" if step == 2 else 1)).backward()


def test_a_fused_optimizer_behind_a_scaler_is_refused(alone):
    model = torch.nn.Linear(10, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    distributed.wrap(model, optimizer, "gtopk")
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(model(torchrun_loops.INPUTS[0]).sum()).backward()
    with pytest.raises(ConfigError, match="make it with fused=False"):
        scaler.step(optimizer)


def test_a_step_that_calls_the_step_of_its_base_is_one_step(alone, monkeypatch: pytest.MonkeyPatch):
    """PyTorch hooks the step of each class, and the algorithm took two."""

    class Own(torch.optim.SGD):
        fails = False

        def step(self, closure=None):
            if self.fails:
                raise ValueError("of its own")
            return super().step(closure)

    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # from the first one on its class is hooked
    model = torchrun_loops.Network(0)
    optimizer = Own(model.parameters(), lr=0.1)
    node = distributed.wrap(model, optimizer, "gtopk", density=0.05)
    taken, step = [], node.algorithm.step
    monkeypatch.setattr(node.algorithm, "step", lambda *given: taken.append(1) or step(*given))
    for number in range(4):
        optimizer.fails = number == 1
        model(torchrun_loops.INPUTS[number]).square().mean().backward()
        with pytest.raises(ValueError, match="of its own") if optimizer.fails else nullcontext():
            optimizer.step()
        assert len(taken) == number + 1


def test_no_two_buckets_of_a_hook_draw_the_same(alone):
    state = distributed.State("randomk", density=0.1)
    model = torch.nn.Sequential(*(torch.nn.Linear(100, 100, bias=False) for _ in range(2)))
    wrapped = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.01)
    wrapped.register_comm_hook(state, distributed.hook)
    for _ in range(3):
        wrapped(torch.ones(2, 100)).square().sum().backward()
    first, second = (algorithm.chosen for algorithm in state.buckets.values())
    assert len(first) == len(second) == 1000 and not torch.equal(first, second)


def test_after_a_bucket_of_a_hook_that_is_refused_no_other_of_the_step_is_sent(alone):
    """Other ranks still expected the first, and gloo ended the process."""
    state = distributed.State("topk", density=0.1)
    model = torch.nn.Sequential(*(torch.nn.Linear(100, 100, bias=False) for _ in range(3)))
    wrapped = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.01)
    wrapped.register_comm_hook(state, distributed.hook)
    sent, inner = [], state.aggregate

    def aggregate(gradient, algorithm):
        update = inner(gradient, algorithm)
        sent.append(update.numel())
        return update

    state.aggregate = aggregate
    for step in range(4):  # the first two are dense
        refused = step == 3
        sent.clear()
        model[2].weight.register_hook(lambda gradient, refused=refused: gradient * (torch.inf if refused else 1.0))
        with pytest.raises(RuntimeError, match="gradient is not finite") if refused else nullcontext():
            wrapped(torch.ones(2, 100)).sum().backward()
        state.thread.submit(int).result()  # all buckets were before it
        assert len(sent) == (0 if refused else 3) or step < 2


def test_a_sparse_gradient_is_refused(alone):
    model = torch.nn.Embedding(4, 3, sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    distributed.wrap(model, optimizer, "gtopk")
    model(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(ConfigError, match=r"shape \(4, 3\) has a sparse gradient.*leave out sparse=True"):
        optimizer.step()


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


def test_density_may_change_between_steps(alone):
    model, optimizer = network()
    node = distributed.wrap(model, optimizer, "gtopk", density=0.5)
    for density in (0.5, 0.01):
        node.algorithm.density = density
        model(torchrun_loops.INPUTS[0]).sum().backward()
        optimizer.step()
        assert node.gradient.count_nonzero() <= entries(density, M)
        optimizer.zero_grad()


def test_a_wrapped_model_is_copied_averaged_and_saved_as_a_plain_one(alone, tmp_path):
    """What the hooks are of has a process group, which cannot be copied."""
    model = torchrun_loops.Network(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    distributed.wrap(model, optimizer, "gtopk", density=0.05)
    average = torch.optim.swa_utils.AveragedModel(model)
    for number in range(2):
        model(torchrun_loops.INPUTS[number]).square().mean().backward()
        optimizer.step()
        average.update_parameters(model)
    torch.save(model, tmp_path / "model")
    saved, copied = torch.load(tmp_path / "model", weights_only=False), copy.deepcopy(model)
    for one in (saved, copied):
        assert torch.equal(one(torchrun_loops.INPUTS[0]), model(torchrun_loops.INPUTS[0]))
    assert average(torchrun_loops.INPUTS[0]).shape == model(torchrun_loops.INPUTS[0]).shape


def test_a_state_is_of_one_model(alone):
    state = distributed.State("gtopk", density=0.1)
    models = [torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 10, bias=False)) for _ in range(2)]
    for model in models:
        model.register_comm_hook(state, distributed.hook)
    with pytest.raises((ConfigError, RuntimeError), match="a State is of one DistributedDataParallel"):
        for _ in range(4):
            for model in models:
                model(torch.ones(2, 10)).square().sum().backward()
