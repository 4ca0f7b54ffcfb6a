"""The algorithms in loops of a user's own: what one rank can show alone."""

import copy
import gc
import weakref
from contextlib import nullcontext
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torchrun_loops
from torchrun_loops import network

from repro import distributed, user_loop
from repro.algorithms import topk
from repro.config.schema import ConfigError
from repro.density import entries

M = torchrun_loops.weights(torchrun_loops.Network(0)).numel() - 3  # all but the frozen ones


def test_messages_beside_training_have_the_timeout_of_the_users_group(alone):
    """They had PyTorch's 30 minutes, as those of the hook and of async_average are sent over a group of their own."""
    cpu, limit = torch.device("cpu"), timedelta(seconds=77)
    group = dist.new_group([0], timeout=limit)
    beside = distributed.connect(group, cpu).aside().transport
    beside.all_reduce(torch.ones(1))
    assert beside.group is not group and beside.group.options._timeout == limit
    assert user_loop.timeout(object(), cpu) is None  # PyTorch has no public way to ask, and may change


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
    for first in range(3):  # the first two are dense, and let it into all ranks' weights
        net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 4))
        net.register_comm_hook(distributed.State(name, density=0.1), distributed.hook)
        for step in range(first + 1):
            with pytest.raises(RuntimeError, match='on_nonfinite="skip"') if step == first else nullcontext():
                (net(torchrun_loops.INPUTS[0]).sum() * float("inf" if step == first else 1)).backward()


def test_a_model_with_the_hook_can_be_copied_and_saved(alone, tmp_path):
    """TypeError: cannot pickle a queue. A copy, of an average of weights for one, is for evaluation."""
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 4))
    net.register_comm_hook(distributed.State("gtopk", density=0.1), distributed.hook)
    net(torchrun_loops.INPUTS[0]).sum().backward()
    torch.save(net, tmp_path / "net.pt")
    for other in (copy.deepcopy(net), torch.load(tmp_path / "net.pt", weights_only=False)):
        assert torch.equal(torchrun_loops.weights(other), torchrun_loops.weights(net))
        assert torch.equal(other.module(torchrun_loops.INPUTS[0]), net.module(torchrun_loops.INPUTS[0]))


def test_a_model_of_which_a_rank_holds_a_part_is_refused(alone):
    """All ranks' parts became those of the first, and each step averaged entries that have nothing in common."""
    from torch.distributed.tensor import distribute_module  # for two seconds, in one worker

    sharded = torch.nn.Linear(10, 4)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    distribute_module(sharded, mesh)
    optimizer = torch.optim.SGD(sharded.parameters(), lr=0.1)
    with pytest.raises(ConfigError, match="the model has a DTensor: each rank holds a part of it"):
        distributed.wrap(sharded, optimizer, "gtopk")


@pytest.mark.parametrize("state", [{}, {"state": {}, "param_groups": []}, {"0": {}}])
def test_what_is_no_state_of_a_hook_is_refused(state):
    """A state of the optimizer, or one that JSON had made text of, began anew in silence."""
    with pytest.raises(ConfigError, match="this is no state of a hook"):
        distributed.State("gtopk", density=0.1).load_state_dict(state)


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


def test_after_a_bucket_of_a_hook_that_overflows_no_other_of_the_step_leaves_a_residual(alone):
    """The scaler skips the step, and what the later buckets had selected for it was lost."""
    state = distributed.State("topk", density=0.1, on_nonfinite="skip")
    model = torch.nn.Sequential(*(torch.nn.Linear(100, 100, bias=False) for _ in range(3)))
    wrapped = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.01)
    wrapped.register_comm_hook(state, distributed.hook)
    for step in range(5):  # the first two are dense
        before = [algorithm.memory.residual.clone() for algorithm in state.buckets.values()]
        overflow = torch.inf if step == 3 else 1.0
        handle = model[2].weight.register_hook(lambda gradient, overflow=overflow: gradient * overflow)  # full first
        wrapped(torch.ones(2, 100)).square().sum().backward()
        handle.remove()
        after = [algorithm.memory.residual for algorithm in state.buckets.values()]
        if step > 2:
            same = [torch.equal(*both) for both in zip(before, after, strict=True)]
            assert same == [step == 3] * 3
            assert all(layer.weight.grad.isfinite().all() == (step != 3) for layer in model)
        wrapped.zero_grad()


def test_an_algorithm_begins_with_the_parameters_as_in_a_run(alone, monkeypatch: pytest.MonkeyPatch):
    """`repro run` shows them to each algorithm; here those alone saw them that mix weights."""
    seen = []
    monkeypatch.setattr(topk.Algorithm, "begin", lambda _, parameters: seen.append(parameters.clone()))
    model, optimizer = network()
    trained = torch.cat([x.detach().reshape(-1) for x in model.parameters() if x.requires_grad])
    distributed.wrap(model, optimizer, "topk")
    assert len(seen) == 1 and torch.equal(seen.pop(), trained)
    hooked = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 4, bias=False))
    hooked.register_comm_hook(distributed.State("topk"), distributed.hook)
    for step in range(4):
        hooked(torchrun_loops.INPUTS[0]).sum().backward()
        assert len(seen) == (step >= 2)
    assert torch.equal(seen[0], hooked.module.weight.detach().reshape(-1))


def test_a_model_that_is_wrapped_anew_keeps_nothing_of_the_wrap_before(alone):
    """Each left its gradient, its residual and two hooks with the model for good."""
    model, nodes = torchrun_loops.Network(0), []
    for _ in range(3):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        nodes.append(weakref.ref(distributed.wrap(model, optimizer, "gtopk", density=0.5)))
        model(torchrun_loops.INPUTS[0]).sum().backward()
        optimizer.step()
    gc.collect()
    assert [node() is None for node in nodes] == [True, True, False] and len(model._forward_pre_hooks) == 2


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


def test_a_hook_draws_by_the_seed_that_it_is_given():
    assert [distributed.State("qsgd", seed=seed).algo.options["seed"] for seed in (0, 3)] == [0, 3]
