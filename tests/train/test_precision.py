"""The arithmetic of bfloat16 on a CPU that has no instructions for it, beside torch's own emulation."""

import json
import platform
from pathlib import Path

import pytest
import tiny_runs
import torch
import torch.nn.functional as F

from repro.config.compose import compose
from repro.runs import machine, status_file
from repro.train import loop, precision, sweep

SHAPES = ((3, 16, 12, 1), (16, 32, 8, 2), (64, 64, 4, 1))  # channels in and out, side, stride


def results(shape: tuple[int, int, int, int], arithmetic: object, kind: torch.dtype) -> list[torch.Tensor]:
    """Output, gradient of the input and of the weights of a convolution, then those of a linear layer."""
    read, out, side, stride = shape
    made = torch.Generator().manual_seed(0)
    x = torch.randn(8, read, side, side, generator=made)
    weights = (torch.randn(out, read, 3, 3, generator=made), torch.randn(10, out, generator=made))
    bias = torch.randn(10, generator=made)
    leaves = [tensor.bfloat16().to(kind).requires_grad_() for tensor in (x, *weights, bias)]
    with arithmetic:  # type: ignore[attr-defined]
        y = F.conv2d(leaves[0], leaves[1], stride=stride, padding=1)
        logits = F.linear(y.detach().mean((2, 3)), leaves[2], bias=leaves[3])
    y.backward(torch.linspace(-1, 1, y.numel()).bfloat16().to(y.dtype).view_as(y))
    logits.backward(torch.linspace(-1, 1, logits.numel()).bfloat16().to(logits.dtype).view_as(logits))
    return [
        tensor.detach().double() for tensor in (y, logits, *(leaf.grad for leaf in leaves if leaf.grad is not None))
    ]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_numbers_are_those_of_autocast(shape: tuple[int, int, int, int]) -> None:
    """But for the order of sums, which moves few entries by one bfloat16; both are rounded, as float64 shows.

    Where torch has no kernels of bfloat16 it sums gradients over images in bfloat16, too, and is further from float64.
    """
    near = 5e-4 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else 6e-3
    ours = results(shape, precision.Rounded(), torch.float32)
    autocast = results(shape, torch.autocast("cpu", torch.bfloat16), torch.float32)
    unrounded = results(shape, torch.autocast("cpu", enabled=False), torch.float64)
    for mine, its, true in zip(ours, autocast, unrounded, strict=True):
        assert (mine - its).norm() < near * its.norm()
        assert (mine - true).norm() < 1.01 * (its - true).norm()
        assert (mine - true).norm() < 4e-3 * true.norm()
        assert torch.equal(mine, mine.bfloat16().double())  # gradients of float32 leaves are rounded as well
        assert not torch.equal(mine, true)


def test_other_functions_are_autocasts_own_and_nothing_stays_behind() -> None:
    a = torch.ones(2, 2)
    with precision.Rounded():
        assert (a @ a).dtype == torch.bfloat16 and torch.is_autocast_enabled("cpu")
    assert (a @ a).dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    assert F.linear(a, a).dtype == torch.float32


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(architecture: str, native: bool, device: str = "cpu", kind: str = "bfloat16") -> str:
        able = {"architecture": architecture, "avx512_bf16": native}
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
        precision.emulates.cache_clear()
        try:
            return type(precision.arithmetic(kind, device)).__name__
        finally:
            precision.emulates.cache_clear()

    assert chosen("x86_64", False) == "Rounded"
    assert chosen("x86_64", True) == chosen("aarch64", False) == chosen("x86_64", False, "cuda") == "autocast"
    assert chosen("x86_64", False, kind="float32") == "nullcontext"


def test_a_resume_says_once_that_it_has_another_arithmetic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Torch's own sums in another order than float32 on rounded numbers, also where it emulates the instructions."""
    words = ["precision=bfloat16", "device=cpu", "nodes=1", "steps=4", "checkpoint_every=2"]
    config = tiny_runs.config(tmp_path, *tiny_runs.QUICK, *words)
    file = config.folder / "provenance.json"

    def resumed() -> str:
        (last,) = (config.folder / "checkpoints").glob("step-*4")
        (last / "manifest.json").unlink()
        status_file.write(config.folder, "preempted", 2, 4)
        loop.run(config)
        return capsys.readouterr().err

    def kinds() -> list[str | None]:
        record = json.loads(file.read_text())
        return [session.get("bfloat16") for session in (*record["earlier"], record)]

    def emulating(does: bool) -> str:
        monkeypatch.setattr(precision, "emulates", lambda: does)
        return resumed()

    monkeypatch.setattr(precision, "emulates", lambda: False)
    loop.run(config)
    assert "another arithmetic of bfloat16" not in emulating(False)
    assert "after step 2 (with another arithmetic of bfloat16, which may round unlike)" in emulating(True)
    assert "another arithmetic of bfloat16" not in emulating(True)
    assert kinds() == ["autocast"] * 2 + ["float32 on rounded numbers"] * 2
    record = json.loads(file.read_text())
    del record["bfloat16"]
    file.write_text(json.dumps(record))
    assert "another arithmetic of bfloat16" not in emulating(False), "an old folder does not say"


def test_only_networks_of_text_are_said_to_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "rates", lambda: {"float32_gflops": 184.0, "bfloat16_gflops": 32.2})
    words = ["precision=bfloat16", "device=cpu"]
    text, images = compose(["model=lstm_small,resnet20", *words])
    told = sweep._slow_precision([images, text])
    assert told is not None and "32.2" in told and "text" in told
    assert sweep._slow_precision([images]) is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    local, lab = compose(["model=lstm_small", "precision=bfloat16", "nodes=2", "cluster=local,lab"])
    assert sweep._slow_precision([local]) is None
    assert sweep._slow_precision([local, lab]) == told, "ranks of the lab are on the CPU"


def test_torch_tells_what_the_kernel_tells_of_the_processor() -> None:
    native = "avx512_bf16" in machine.processor()["extensions"]
    assert precision.emulates() == (platform.machine() == "x86_64" and not native)
