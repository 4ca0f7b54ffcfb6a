"""Stages of a pipeline: the numbers of a network that is not split, all bytes counted, and a run that goes on."""

import dataclasses
import functools
import itertools
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import socket_bytes
import torch
from tiny_runs import QUICK, bits, config, equal, latest

from repro.cluster import ranks
from repro.comm.traffic import HEADERS_BYTES, Round
from repro.config.schema import Config, ConfigError, RunError
from repro.runs import run_folder, status_file
from repro.timing import pipelined
from repro.train import combinations, loop, split, trained
from repro.train.step import Worker

PIPED = ["nodes=4", "cluster=processes", "compare_every=1"]


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_a_partition_is_the_best_of_all(parts):
    generator = torch.Generator().manual_seed(parts)
    for count in (parts, parts + 1, 9):
        seconds = torch.rand(count, generator=generator).tolist()

        def slowest(cuts: tuple[int, ...], seconds: list[float] = seconds) -> float:
            return max(sum(seconds[a:b]) for a, b in itertools.pairwise([0, *cuts, len(seconds)]))

        cuts = split.partition(seconds, parts)
        every = itertools.combinations(range(1, count), parts - 1)
        assert slowest(tuple(cuts)) == pytest.approx(min(map(slowest, every)), abs=0)
        assert cuts == sorted({*cuts}) and len(cuts) == parts - 1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["nodes=5"], "stages=2: must divide nodes=5; type stages=5, or nodes=4"),
        (["nodes=12", "stages=12"], "stages=12: model=resnet20 can be divided into at most 11"),
        (["cuts=[0]"], "cuts=0: must be at least 1"),
        (["cuts=[11]"], "must be 1 ascending numbers from 1 to 10"),
        (["stages=3", "nodes=3", "cuts=[4,2]"], "must be 2 ascending numbers from 1 to 10"),
        (["stages=1", "cuts=[4]"], "there is one stage; type stages=2 or more"),
        (["cluster=local"], "type cluster=processes"),
        (["algo=ddp"], "stages=2: algo=ddp looks at each layer's backward"),
        (["algo=dense", "bucket_mb=1", "overlap=on"], "type overlap=off"),
        (["hierarchical=true"], "leave hierarchical out"),
        (["probe_steps=[1]"], "leave probe_steps out"),
        (["algo.clip=1"], "type algo.clip=0"),
        (["clip_grad=1"], "type clip_grad=0"),
        (["compute_s=1"], "leave compute_s out"),
        (["nodes=6", "algo=decentralized", "algo.topology=shift_one"], "nodes=3 must be even"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_has_no_stages_says_what_to_type(overrides, message, tmp_path):
    with pytest.raises(ConfigError) as caught:
        combinations.check(config(tmp_path, "nodes=4", "cluster=processes", "stages=2", *overrides))
    assert message in str(caught.value)


def test_what_has_stages_is_let_through_and_old_runs_keep_their_names(tmp_path):
    combinations.check(config(tmp_path, "nodes=4", "cluster=processes", "stages=2", "cuts=[5]", "algo=gtopk"))
    assert config(tmp_path, "stages=1", "cuts=[]").run_id == config(tmp_path).run_id


def runs(folder: Path) -> dict[str, Config]:
    """Returns what the processes of one start do, one after the other: each start imports for seconds."""
    made = {
        "two": ["algo=dense", "stages=2", "accumulate=2"],
        "four": ["algo=dense", "stages=4", "accumulate=2", "cuts=[2,5,9]"],
        "gtopk": ["algo=gtopk", "stages=2", "checkpoint_every=2"],
        "local_sgd": ["algo=local_sgd", "algo.period=2", "stages=2", "steps=5"],  # ends between two averages
    }
    return {name: config(folder, *QUICK, *PIPED, "steps=4", "lr=0.01", *words) for name, words in made.items()}


def each(
    configs: dict[str, Config], config: Config, rank: ranks.Rank, data: Any
) -> tuple[Any, list[tuple[int, int, list[Any]]]]:
    """Trains all; ends one a second time, from its middle on. Returns what it held before, and `at_sockets`."""
    for one in configs.values():
        loop.train(one, rank, data)
    again = configs["gtopk"]
    straight = bits(again.folder)
    rank.control.barrier()
    if rank.number == 0:
        for path in (again.folder / "checkpoints").glob("step-*4"):  # as if killed after step 2
            (path / "manifest.json").unlink()
        status_file.write(again.folder, "running", 2, 4)
    rank.control.barrier()
    loop.train(again, rank, data)
    return straight, rank.control.gather_objects(at_sockets(configs["four"], rank, data))


def at_sockets(config: Config, rank: ranks.Rank, data: Any) -> tuple[int, int, list[Any]]:
    """Returns of a pass of the pipeline the bytes at this process's sockets, those counted as sent, and the rounds."""
    worker = Worker(config, rank, data, split=split.of_run(config, rank))
    batches = list(itertools.islice(worker.batches(0), config.micro_batches))
    worker.backward(batches)  # connects
    store: Any = rank.store
    pipeline = worker.pipeline
    assert pipeline is not None
    rank.control.barrier()
    start = socket_bytes.received(store.port)
    rank.control.barrier()
    barrier, start = socket_bytes.received(store.port) - start, socket_bytes.received(store.port)
    images = [(one,) for one, _ in batches] if worker.stage == 0 else None
    labels = [one for _, one in batches] if worker.stage == config.stages - 1 else None
    pipeline.schedule.step(arg_mbs=images, target_mbs=labels, return_outputs=False)
    sent = pipeline.collective.traffic
    rank.control.barrier()
    came = socket_bytes.received(store.port) - start - barrier
    return came, sent.bytes_sent + sent.framing, sent.rounds


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    configs = runs(tmp_path_factory.mktemp("piped"))
    straight, bytes_of_ranks = ranks.launch(configs["two"], functools.partial(each, configs), loop.load_data)
    return configs, straight, bytes_of_ranks


def parameters(run: Config) -> torch.Tensor:
    """Returns those of the newest checkpoint, of all stages one after the other."""
    held: Any = bits(run.folder)
    return torch.cat([held[name]["parameters"] for name in sorted(held) if name.startswith("shared")])


@pytest.mark.parametrize("name", ["two", "four"])
def test_stages_train_as_the_whole_network_does(done, name, tmp_path):
    """The same micro-batches on as many nodes, BatchNorm's statistics among them: to rounding."""
    piped = done[0][name]
    alone = config(tmp_path, *QUICK, "algo=dense", "nodes=4", "steps=4", "accumulate=2", "lr=0.01")
    loop.run(alone)
    losses = [
        next(line["train_loss"] for line in run_folder.read_metrics(run.folder) if line["kind"] == "eval")
        for run in (alone, piped)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert torch.allclose(parameters(alone), parameters(piped), atol=2e-4)
    lines = [line for line in run_folder.read_metrics(piped.folder) if line["kind"] == "step"]
    assert len({line["loss"] for line in lines}) == len(lines) == 4


@pytest.mark.parametrize("name", ["two", "four", "gtopk"])
def test_activations_and_gradients_are_counted(done, name):
    """Rank 0, a first stage, sends each micro-batch's activations, and what its algorithm sends to the other one."""
    run = done[0][name]
    part = split.kept(run.folder).parts(split.kept(run.folder).blocks)[0]
    activations = run.micro_batches * part[-1].nbytes
    parameters = sum(block.parameters for block in part)
    (*_, line) = [line for line in run_folder.read_metrics(run.folder) if line["kind"] == "step"]
    gradients = {"two": 4 * 2 * -(-parameters // 2), "four": 0, "gtopk": 8 * line["k"]}[name]
    assert line["bytes_activations"] == activations > 0
    assert line["bytes_sent"] == activations + gradients


def test_what_is_counted_is_what_is_at_the_sockets(done):
    """All bytes of the tensors; gloo leaves out one of a message's three headers where its receiver waits already."""
    came, counted, rounds = zip(*done[2], strict=True)
    left_out, rest = divmod(sum(counted) - sum(came), HEADERS_BYTES // 3)
    assert rest == 0 and abs(left_out) <= sum(map(len, rounds)) and sum(came) > 400_000


def test_predicted_messages_are_those_that_torch_sends(done):
    run = done[0]["four"]
    parts = split.kept(run.folder).parts(split.kept(run.folder).blocks)
    for program, (_, _, rounds) in zip(pipelined.programs(parts, run.micro_batches), done[2], strict=True):
        assert [step for step in program if isinstance(step, Round)] == rounds


def test_a_run_cut_in_two_ends_with_the_same_bits(done):
    configs, straight, _ = done
    assert equal(straight, bits(configs["gtopk"].folder))


def test_averages_of_weights_are_those_of_each_stage(done):
    """How far two networks are from their mean: the squares of what their stages are add up."""
    run = done[0]["local_sgd"]
    (*_, line) = [line for line in run_folder.read_metrics(run.folder) if line["kind"] == "eval"]
    held: Any = bits(run.folder)
    own = [held[f"rank-0000{rank}.pt"]["replica"]["parameters"] for rank in range(4)]
    networks = torch.stack([torch.cat(own[:2]), torch.cat(own[2:])])
    expected = (networks - networks.mean(0)).square().sum(1).mean().sqrt().item()
    assert line["consensus_distance"] == pytest.approx(expected, rel=1e-4) and expected > 0


def test_the_trained_network_is_whole(done, tmp_path):
    run = dataclasses.replace(done[0]["gtopk"], results=str(tmp_path))
    shutil.copytree(done[0]["gtopk"].folder, run.folder)
    network = trained.load(run.folder).model
    assert torch.equal(torch.cat([p.reshape(-1) for p in network.parameters()]), parameters(run))
    (run.folder / split.FILE).write_text("{}")
    with pytest.raises(ConfigError, match="stages of the run, is missing or damaged"):
        trained.load(run.folder)
    with pytest.raises(RunError, match=r"is missing or damaged; type cuts=\[...\] as it had them, or results=FOLDER"):
        split.of_run(run, SimpleNamespace(number=0))  # other cuts could load no checkpoint
    assert latest(run.folder)[0] == 4


def test_stages_are_balanced_by_forward_and_backward() -> None:
    blocks = [split.Block(1.0, backward_s, 1, [1], "float32", 1) for backward_s in (9.0, 1.0, 1.0, 1.0)]
    assert split.balanced(blocks, 2) == [1]
