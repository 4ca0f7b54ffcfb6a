"""The loop: the same bits with threads and processes, across a stop and a start, after damage."""

import functools
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import parallel
import pytest
import torch

from repro import checkpoint, ranks, record, training
from repro.choices import group_options
from repro.config import RunError, compose, named_network

NAMES = group_options("algo")
TINY = ["data=digits", "batch_per_node=4", "density=0.01", "wandb.mode=disabled", "lr_warmup_epochs=0"]
QUICK = [
    "data=synthetic",
    "data.image_size=8",
    "data.train_images=64",
    "data.test_images=16",
    "data.pad=1",
    "data.flip=true",
]


def config(folder: Path, *overrides: str):
    return compose([*TINY, f"results={folder}", *overrides])[0]


def bits(folder: Path) -> dict[str, object]:
    """Everything that the newest checkpoint holds, by file."""
    found = checkpoint.latest(folder / "checkpoints")
    assert found is not None
    return {path.name: checkpoint.load(found[1], path.name, torch.device("cpu")) for path in found[1].glob("*.pt")}


def equal(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b


def whole(folder: Path, name: str, *overrides: str):
    """Four steps of an algorithm, uninterrupted, on few images that are augmented at random."""
    return config(folder, f"algo={name}", "nodes=2", "steps=4", *QUICK, *overrides)


@pytest.fixture(scope="module")
def threads(tmp_path_factory):
    """What each algorithm's run ends with."""
    folder = tmp_path_factory.mktemp("threads")

    @functools.cache
    def ends(name: str) -> dict[str, object]:
        training.run(whole(folder, name))
        return bits(whole(folder, name).folder)

    return ends


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """The same by processes. They start once, and do all the runs one after the other, as each start takes seconds."""
    folder = tmp_path_factory.mktemp("processes")
    configs = {name: whole(folder, name, "cluster=processes") for name in NAMES}
    ranks.launch(configs["dense"], functools.partial(parallel.train_each, list(configs.values())), training.load_data)
    return lambda name: bits(configs[name].folder)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_cut_in_two_ends_with_the_same_bits(name, threads, tmp_path):
    """Weights, momentum, residuals, generators, statistics; four steps against two, a stop, and two more."""
    halved = whole(tmp_path, name, "checkpoint_every=2")
    training.run(halved)
    for path in (halved.folder / "checkpoints").glob("step-*4"):  # as if killed after step 2
        (path / "manifest.json").unlink()
    record.write_status(halved.folder, "running", 2, 4)
    training.run(halved)
    assert equal(threads(name), bits(halved.folder))
    steps = [line["step"] for line in record.read_metrics(halved.folder) if line["kind"] == "step"]
    assert steps == [1, 2, 3, 4]


@pytest.mark.parametrize("name", NAMES)
def test_threads_and_processes_give_the_same_bits(name, threads, processes):
    assert equal(threads(name), processes(name))


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before_with_a_warning(tmp_path):
    run = config(tmp_path, *QUICK, "algo=gtopk", "nodes=2", "steps=3", "checkpoint_every=1")
    training.run(run)
    whole = bits(run.folder)
    newest = max((run.folder / "checkpoints").glob("step-*"))
    (newest / "rank-00001.pt").write_bytes((newest / "rank-00001.pt").read_bytes()[:100])
    record.write_status(run.folder, "running", 3, 3)  # as if it died right after that checkpoint
    with pytest.warns(UserWarning, match="not usable .*rank-00001.pt has changed"):
        training.run(run)
    assert equal(bits(run.folder), whole)


def test_kill_9_and_the_same_command_again_goes_on(tmp_path):
    settings = [*QUICK, "algo=gtopk", "nodes=2", "steps=12"]
    command = [sys.executable, "-m", "repro", "run", *TINY, *settings, "checkpoint_every=2", f"results={tmp_path}"]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    folder = config(tmp_path, *settings, "checkpoint_every=2").folder
    deadline = time.monotonic() + 120
    while checkpoint.latest(folder / "checkpoints") is None and time.monotonic() < deadline:
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert json.loads((folder / "status.json").read_text())["state"] == "running"
    again = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stderr
    assert "resum" in again.stdout + again.stderr
    steps = [line["step"] for line in record.read_metrics(folder) if line["kind"] == "step"]
    assert steps == list(range(1, 13))
    straight = config(tmp_path / "straight", *settings)
    training.run(straight)
    assert equal(bits(folder), bits(straight.folder))


@pytest.mark.parametrize("model", ["alexnet", "resnet50"])
def test_the_imagenet_networks_train_on_a_folder_of_jpegs(model, imagenet_folder, tmp_path):
    images = ["data=imagenet", f"data.root={imagenet_folder}", "data.classes=4", "data.image_size=64"]
    run = config(tmp_path, f"model={model}", *images, "algo=gtopk", "nodes=2", "steps=3", "batch_per_node=2")
    assert training.run(run)["state"] == "done"
    steps = [line for line in record.read_metrics(run.folder) if line["kind"] == "step"]
    assert [line["step"] for line in steps] == [1, 2, 3]
    assert all(line["bytes_sent"] == 8 * line["k"] for line in steps)  # rank 0 of two: one broadcast


def test_a_gradient_that_is_not_finite_stops_the_run_and_names_step_and_rank(tmp_path):
    wild = config(tmp_path, *QUICK, "algo=gtopk", "nodes=2", "steps=20", "lr=1e30")
    with pytest.raises(RunError, match=r"step \d+: the gradient of rank [01] is not finite.*on_nonfinite=skip"):
        training.run(wild)
    status = json.loads((wild.folder / "status.json").read_text())
    assert status["state"] == "failed" and "is not finite" in status["error"]
    skipping = config(tmp_path, *QUICK, "algo=gtopk", "nodes=2", "steps=4", "lr=1e30", "on_nonfinite=skip")
    assert training.run(skipping)["state"] == "done"
    assert any(line.get("skipped") for line in record.read_metrics(skipping.folder))


def test_an_iteration_is_modelled_on_further_networks_too(tmp_path):
    choices = ("algo=dense", "nodes=2", "steps=1", *QUICK)
    run = config(tmp_path, *choices, "also_on=[ethernet10g,infiniband100g]")
    assert run.run_id == config(tmp_path, *choices).run_id
    found = training.run(run)
    lines = [line for line in record.read_metrics(run.folder) if line["kind"] == "iteration_time"]
    assert [line["network"] for line in lines] == ["ethernet1g", "ethernet10g", "infiniband100g"]
    for line in lines:
        wire = named_network(line["network"])
        halves = 2 * (wire.alpha_s + 269_722 / 2 * 4 * wire.beta_s_per_byte)
        assert line["communicate_s"] == pytest.approx(halves)
    assert found["communicate_s"] == lines[0]["communicate_s"]
