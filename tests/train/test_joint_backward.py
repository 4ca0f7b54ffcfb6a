"""One pass for all ranks, against one backward each."""

import copy

import pytest
import torch
import torch.nn.functional as F
from tiny_runs import QUICK, bits, config, equal, latest
from torch.utils._python_dispatch import TorchDispatchMode

from repro import models
from repro.config.schema import RunError
from repro.runs import run_folder
from repro.train import aggregator, joint_backward, loop
from repro.train.replica import Replica

P, BATCH = 3, 2


def test_gradients_losses_and_statistics_are_those_of_each_rank():
    """In float64, as rounding in float32 moves an activation across zero here and there."""
    generator = torch.Generator().manual_seed(0)
    replicas, expected = [], []
    images = torch.randn(P, BATCH, 3, 16, 16, generator=generator, dtype=torch.float64)
    labels = torch.randint(10, (P, BATCH), generator=generator)
    for rank in range(P):
        model = models.load("resnet20", 10, 16, 0, generator).double()
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.uniform_(generator=generator)
        own = copy.deepcopy(model)
        loss = 0.5 * F.cross_entropy(own(images[rank]), labels[rank])
        loss.backward()
        expected.append((loss, [layer.grad for layer in own.parameters()], list(own.buffers())))
        replicas.append(Replica(model, 0.9, 0.0))
    buffers = joint_backward.stacked(replicas)
    losses = joint_backward.backward(list(zip(replicas, images, labels, strict=True)), buffers, share=0.5)
    for replica, found, (loss, gradients, buffers) in zip(replicas, losses, expected, strict=True):
        assert torch.allclose(found, loss, rtol=1e-12)
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        assert (replica.gradient - flat).norm() < 1e-9 * flat.norm()
        assert all(torch.allclose(*pair, rtol=1e-9) for pair in zip(replica.model.buffers(), buffers, strict=True))


class Launches(TorchDispatchMode):
    """Counts the operations that are no views: about as many kernels a GPU would have to start."""

    count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.count += not operation.is_view
        return operation(*args, **(kwargs or {}))


def test_eight_ranks_together_start_less_than_half_the_kernels():
    generator = torch.Generator()
    replicas = [Replica(models.load("resnet20", 10, 16, 0, generator), 0.9, 0.0) for _ in range(8)]
    handed = [(replica, torch.randn(2, 3, 16, 16), torch.tensor([0, 1])) for replica in replicas]
    with Launches() as apart:
        for replica, images, labels in handed:
            F.cross_entropy(replica.model(images), labels).backward()
    buffers = joint_backward.stacked(replicas)
    with Launches() as at_once:
        joint_backward.backward(handed, buffers)
    assert 0 < at_once.count < apart.count / 2


def test_a_run_of_ranks_together_learns_the_same_and_resumes(tmp_path):
    settings = [*QUICK, "algo=gtopk", "nodes=3", "accumulate=2", "checkpoint_every=2"]
    apart = config(tmp_path / "apart", *settings, "steps=4")
    one = config(tmp_path / "one", *settings, "steps=4", "together=on")
    cut = [config(tmp_path / "cut", *settings, f"steps={steps}", "together=on") for steps in (2, 4)]
    for run in (apart, one, cut[0]):
        loop.run(run)
    cut[0].folder.rename(cut[1].folder)
    (cut[1].folder / "status.json").unlink()
    loop.run(cut[1])
    assert equal(bits(one.folder), bits(cut[1].folder))
    losses = [
        [line["loss"] for line in run_folder.read_metrics(run.folder) if line["kind"] == "step"] for run in (apart, one)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)
    assert apart.run_id != one.run_id
    sizes = [(latest(run.folder)[1] / "rank-00001.pt").stat().st_size for run in (apart, one)]
    assert sizes[0] == sizes[1], "a rank's file has its own statistics alone"


def test_a_failure_inside_ends_all_ranks_with_its_message(tmp_path, monkeypatch):
    def fail(*_):
        raise MemoryError("no room for three ranks")

    monkeypatch.setattr(joint_backward, "backward", fail)
    with pytest.raises(RunError, match="rank 0: MemoryError: no room for three ranks"):
        loop.run(config(tmp_path, *QUICK, "algo=gtopk", "nodes=3", "steps=2", "together=on"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_ranks_are_together_unless_told(tmp_path):
    model = models.load("resnet20", 10, 32, 0, torch.Generator()).cuda()
    assert aggregator.joint(config(tmp_path), model)
    assert not aggregator.joint(config(tmp_path, "algo=decentralized"), model)
