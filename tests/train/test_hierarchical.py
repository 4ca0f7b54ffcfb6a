"""Levels of a cluster: machines add up their ranks' gradients, and their leaders run the algorithm."""

from types import SimpleNamespace

import pytest
import torch
from bucket_runs import config
from thread_ranks import on_ranks

from repro import algorithms
from repro.comm.collective import Collective
from repro.comm.subset import among
from repro.config.compose import compose
from repro.config.schema import RunError
from repro.runs import run_folder
from repro.timing.before_run import before_a_run
from repro.train import loop
from repro.train.hierarchical import FILE, Hierarchical, inside, keep_machines


@pytest.mark.parametrize("machines", [["a", "a", "b", "b"], ["a", "b", "a", "c", "a"], ["a"] * 3, ["a", "b", "c"]])
def test_levels_give_the_mean_of_all_and_count_what_crosses_machines(machines):
    size, m = len(machines), 40
    x = torch.randint(-9, 10, (size, m), generator=torch.Generator().manual_seed(size)).float()
    dense = compose(["algo=dense"])[0].algo

    def body(collective: Collective):
        algorithm = Hierarchical(lambda: algorithms.load(dense, m), machines, collective.rank)
        update = algorithm.step(x[collective.rank].clone(), collective)
        return update, collective.traffic

    ranks = on_ranks(size, body, "gloo")
    assert all(torch.equal(update, ranks[0][0]) for update, _ in ranks)
    assert torch.allclose(ranks[0][0], x.mean(0), atol=1e-5)
    assert sum(t.bytes_sent for _, t in ranks) == sum(t.bytes_received for _, t in ranks)
    crossing = [t.bytes_sent - inside(machines, rank, t.rounds) for rank, (_, t) in enumerate(ranks)]
    leaders = [machines.index(machine) for machine in sorted(set(machines))]
    assert all(crossing[rank] == 0 for rank in range(size) if rank not in leaders)
    assert (sum(crossing) > 0) == (len(leaders) > 1)


def test_a_ring_among_some_ranks_gives_them_one_sum():
    def body(collective: Collective):
        if collective.rank == 1:
            return None
        x = torch.arange(7.0) + collective.rank
        return among(collective, [0, 2, 3]).all_reduce(x)

    found = on_ranks(4, body)
    assert all(torch.equal(found[rank], 3 * torch.arange(7.0) + 5) for rank in (0, 2, 3))


def test_a_run_on_made_up_machines(tmp_path):
    levels = ("nodes=4", "machines=2", "hierarchical=true", "bucket_mb=0.3", "scope=bucket", "overlap=on")
    run = config(tmp_path, "algo=gtopk_butterfly", *levels, "steps=2", "compare_every=1")
    assert loop.run(run, before_a_run)["state"] == "done"
    lines = [line for line in run_folder.read_metrics(run.folder) if line["kind"] == "step"]
    assert all(0 < line["bytes_inside"] < line["bytes_sent"] for line in lines)
    (time,) = [line for line in run_folder.read_metrics(run.folder) if line["kind"] == "iteration_time"]
    assert 0 < time["communicate_s"] < 0.1  # what stays inside a machine costs nothing


def test_a_run_whose_machines_are_not_known_any_more_says_so(tmp_path):
    """It took those of today, and summed in other groups than before."""
    run = config(tmp_path, "algo=dense", "nodes=4", "hierarchical=true")
    run.folder.mkdir(parents=True)
    checkpoints = run.folder / "checkpoints"
    rank = SimpleNamespace(
        number=0, size=4, machines=list("aabb"), control=SimpleNamespace(gather_objects=lambda item: 4 * [item])
    )
    keep_machines(run, rank, checkpoints)
    (checkpoints / "step-1").mkdir(parents=True)
    rank.machines = list("abab")
    keep_machines(run, rank, checkpoints)
    assert rank.machines == list("aabb")
    for damaged in ('["a", "a", "b"', '["a"]'):
        (run.folder / FILE).write_text(damaged)
        with pytest.raises(RunError, match="machines.json.*missing or damaged; type results=FOLDER"):
            keep_machines(run, rank, checkpoints)
        assert (run.folder / FILE).read_text() == damaged
