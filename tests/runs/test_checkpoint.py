"""The same bits with threads and processes, across a stop and a start, after damage."""

import functools
import hashlib
import json
import shutil
import warnings
from pathlib import Path

import pytest
import thread_ranks
import torch
from tiny_runs import QUICK, bits, config, equal, latest

from repro.cluster import ranks
from repro.cluster.preempt import Interrupt
from repro.config.compose import compose
from repro.config.groups import group_options
from repro.config.schema import Config, RunError
from repro.runs import checkpoint, run_folder, status_file
from repro.train import evaluation, loop

TEXT = ["model=lstm_small", "model.width=8", "model.dropout=0.5", "data=text", "data.classes=50", "data.sequence=5"]
NAMES = [*group_options("algo"), "text"]  # the last: a network that carries a state through its rank's text


def whole(folder: Path, name: str, *overrides: str):
    """Four steps of an algorithm, uninterrupted, on few images that are augmented at random."""
    if name == "text":
        given = [*TEXT, f"data.root={folder.parent}", "batch_per_node=2", "algo=gtopk", "nodes=2", "steps=4"]
        return compose([*given, "wandb.mode=disabled", f"results={folder}", *overrides])[0]
    return config(folder, f"algo={name}", "nodes=2", "steps=4", *QUICK, *overrides)


@pytest.fixture(scope="module")
def threads(tmp_path_factory):
    """Each algorithm's run, with a checkpoint after step 2 that the processes do not write, and what it ends with.

    No library may warn of anything: a person would read that at each run.
    """
    folder = tmp_path_factory.mktemp("threads")

    @functools.cache
    def ends(name: str) -> tuple[Config, dict[str, object]]:
        run = whole(folder, name, "checkpoint_every=2")
        with warnings.catch_warnings():
            for kind in (UserWarning, FutureWarning):
                warnings.simplefilter("error", kind)
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated")  # ddp.py's filter, lost in pytest
            torch.set_warn_always(True)  # also where an earlier run was warned
            try:
                loop.run(run)
            finally:
                torch.set_warn_always(False)
        return run, bits(run.folder)

    return ends


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """The same by processes, which start once for each data set, as a start takes seconds, and do all its runs."""
    folder = tmp_path_factory.mktemp("processes")
    configs = {name: whole(folder, name, "cluster=processes") for name in NAMES}
    for names in (NAMES[:-1], NAMES[-1:]):
        runs = [configs[name] for name in names]
        ranks.launch(runs[0], functools.partial(thread_ranks.train_each, runs), loop.load_data)
    return lambda name: bits(configs[name].folder)


@pytest.mark.parametrize("name", NAMES)
def test_threads_and_processes_give_the_same_bits(name, threads, processes):
    assert equal(threads(name)[1], processes(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_run_cut_in_two_ends_with_the_same_bits(name, threads):
    """Weights, momentum, residuals, generators, statistics; four steps against two, a stop, and two more."""
    run, straight = threads(name)
    go_on_after_two_of_four(run)
    assert equal(straight, bits(run.folder))
    steps = [line["step"] for line in run_folder.read_metrics(run.folder) if line["kind"] == "step"]
    assert steps == [1, 2, 3, 4]


def go_on_after_two_of_four(run: Config) -> None:
    go_on_after(run, 2, 4)


def go_on_after(run: Config, step: int, steps: int) -> None:
    for path in (run.folder / "checkpoints").glob(f"step-*{steps}"):  # as if killed after `step`
        (path / "manifest.json").unlink()
    status_file.write(run.folder, "running", step, steps)
    assert latest(run.folder)[0] == step
    loop.run(run)


@pytest.mark.parametrize("more", [["algo.bucket_mb=0.1"], ["algo.hook=fp16", "accumulate=2"]])
def test_ddp_cut_in_two_adds_three_gradients_in_the_same_order(more, tmp_path):
    """It begins with other buckets than it goes on with, and from three nodes on a sum depends on them."""
    run = config(tmp_path, "algo=ddp", "nodes=3", "steps=4", "checkpoint_every=2", *QUICK, *more)
    loop.run(run)
    straight, counted = bits(run.folder), of_steps(run, "messages")
    go_on_after_two_of_four(run)
    assert equal(straight, bits(run.folder)) and of_steps(run, "messages") == counted
    assert counted[0] == 2 * 2 < counted[1] if len(more) == 1 else counted[0] == counted[1]


def test_ddps_powersgd_goes_on_with_its_residual_and_counts_what_it_sends(tmp_path):
    """It began with two whole sums again, counted as such, and without what it owed and the factors it had."""
    run = config(tmp_path, "algo=ddp", "algo.hook=powersgd", "nodes=2", "steps=6", "checkpoint_every=4", *QUICK,
                 "cluster=processes")  # fmt: skip
    loop.run(run)
    straight, sent = bits(run.folder), of_steps(run, "bytes_sent")
    go_on_after(run, 4, 6)
    assert equal(straight, bits(run.folder))
    assert of_steps(run, "bytes_sent") == sent and sent[1] > 10 * sent[2]


def of_steps(run: Config, key: str) -> list[int]:
    return [line[key] for line in run_folder.read_metrics(run.folder) if line["kind"] == "step"]


def test_a_folder_that_not_all_ranks_share_is_refused_before_the_first_step(tmp_path, monkeypatch):
    """Every checkpoint lacked rank 1's part, which was found when the run was to go on from one."""
    monkeypatch.setattr(checkpoint, "SEEN_S", 0.2)
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
    assert thread_ranks.on_ranks(2, lambda control: checkpoint.check_shared(tmp_path / "a", control)) == [None, None]

    def body(control):
        with pytest.raises(RunError, match="rank 1 on .*: results= must name one folder"):
            checkpoint.check_shared(tmp_path / "ab"[control.rank], control)

    thread_ranks.on_ranks(2, body)
    assert not [*tmp_path.glob("*/.*")]


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before_and_says_so(tmp_path, capsys):
    run = config(tmp_path, *QUICK, "algo=gtopk", "nodes=2", "steps=3", "checkpoint_every=1")
    loop.run(run)
    whole = bits(run.folder)
    newest = max((run.folder / "checkpoints").glob("step-*"))
    (newest / "rank-00001.pt").write_bytes((newest / "rank-00001.pt").read_bytes()[:100])
    status_file.write(run.folder, "running", 3, 3)  # as if it died right after that checkpoint
    loop.run(run)
    assert "after step 2: the checkpoint of step 3 is not used: rank-00001.pt has changed\n" in capsys.readouterr().err
    assert equal(bits(run.folder), whole)


def test_a_damaged_byte_of_the_metrics_costs_no_checkpoint(tmp_path, capsys):
    run = config(tmp_path, *QUICK, "algo=gtopk", "nodes=2", "steps=3", "checkpoint_every=1")
    loop.run(run)
    whole, metrics = bits(run.folder), run.folder / "metrics.jsonl"
    damaged = metrics.read_bytes().replace(b'"kind"', b'"k#nd"', 1)
    metrics.write_bytes(damaged)
    status_file.write(run.folder, "running", 3, 3)
    loop.run(run)
    aside = run.folder / "damaged-1"
    assert f"is not what it was then; what was there is in {aside}\n" in capsys.readouterr().err
    assert (aside / "metrics.jsonl").read_bytes() == damaged
    assert equal(bits(aside), whole) and equal(bits(run.folder), whole)
    metrics.write_bytes(damaged)
    status_file.write(run.folder, "running", 3, 3)
    loop.run(run)
    assert equal(bits(run.folder / "damaged-2"), whole)


def test_a_damaged_record_of_steps_costs_one_session_and_not_all_that_follow(tmp_path, capsys):
    """It stayed where it was, and no session got to the step whose record would have replaced it."""
    run = config(tmp_path, *QUICK, "algo=gtopk", "nodes=2", "steps=3", "checkpoint_every=1", "probe_steps=[3]")
    loop.run(run)
    whole = bits(run.folder)
    (run.folder / "recorded.json").write_text("[{")
    status_file.write(run.folder, "running", 3, 3)

    def stops(*_):
        raise RuntimeError("the session is over")

    with pytest.raises(RunError, match="over"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Training, "begin_clock", stops)
        loop.run(run)
    assert "recorded.json is damaged" in capsys.readouterr().err
    assert (run.folder / "damaged-1" / "recorded.json").read_text() == "[{"
    shutil.move(run.folder / "damaged-1" / "checkpoints", run.folder / "checkpoints")
    loop.run(run)
    assert "recorded.json is damaged" not in capsys.readouterr().err
    assert equal(bits(run.folder), whole)


def test_metrics_of_whole_epochs_without_a_checkpoint_are_kept_aside(tmp_path, capsys):
    """A finished run whose checkpoints had been removed lost them without a word, once a byte of them had changed."""
    run = config(tmp_path, *QUICK, "algo=gtopk", "nodes=2", "steps=3")
    loop.run(run)
    metrics = run.folder / "metrics.jsonl"
    shutil.rmtree(run.folder / "checkpoints")
    metrics.write_bytes(metrics.read_bytes() + b"\n")
    before = metrics.read_bytes()
    loop.run(run)
    aside = run.folder / "damaged-1"
    said = capsys.readouterr().err
    assert f"from its first step: no checkpoint of its steps is left; what was there is in {aside}\n" in said
    assert (aside / "metrics.jsonl").read_bytes() == before


def test_only_every_second_epoch_is_saved_and_the_end(tmp_path, capsys):
    run = config(tmp_path, *QUICK, "algo=gtopk", "nodes=4", "epochs=3", "checkpoint_epochs=2")  # epochs of 4 steps
    loop.run(run)
    whole, metrics = bits(run.folder), run_folder.read_metrics(run.folder)
    first, last = sorted((run.folder / "checkpoints").glob("step-*"))
    assert [place.name[-2:] for place in (first, last)] == ["08", "12"]
    shutil.rmtree(last)
    status_file.write(run.folder, "running", 11, 12)  # killed in the third epoch
    loop.run(run)
    assert "after step 8" in capsys.readouterr().err
    assert equal(bits(run.folder), whole)
    assert [line["step"] for line in run_folder.read_metrics(run.folder)] == [line["step"] for line in metrics]


def test_a_run_that_is_told_to_stop_at_an_epochs_end_is_saved_there(tmp_path, monkeypatch):
    """Where only every second epoch is: it said preempted, and would have gone on from the start."""
    interrupt, evaluate = Interrupt(), evaluation.evaluate
    monkeypatch.setattr(evaluation, "evaluate", lambda *arguments: interrupt.set() or evaluate(*arguments))
    run = config(tmp_path, *QUICK, "algo=gtopk", "nodes=4", "epochs=3", "checkpoint_epochs=2")
    loop.run(run, interrupt=interrupt)
    assert status_file.state(run.folder) == "preempted" and latest(run.folder)[0] == 4


def test_a_run_goes_on_where_the_generator_is_of_another_kind_of_device(tmp_path, capsys):
    """CUDA's state has 16 bytes, a CPU's thousands. A network without dropout draws none."""

    def but_draws(states):
        return {
            name: {key: part for key, part in state.items() if key != "generator"} for name, state in states.items()
        }

    run = config(tmp_path, *QUICK, "algo=gtopk", "nodes=2", "steps=3", "checkpoint_every=2")
    loop.run(run)
    whole = but_draws(bits(run.folder))
    places = sorted((run.folder / "checkpoints").glob("step-*"))
    for place in places[1:]:
        shutil.rmtree(place)
    manifest = json.loads((places[0] / "manifest.json").read_text())
    for name in ("rank-00000.pt", "rank-00001.pt"):
        state = torch.load(places[0] / name)
        torch.save(state | {"generator": torch.zeros(16, dtype=torch.uint8)}, places[0] / name)
        manifest["sha256"][name] = hashlib.sha256((places[0] / name).read_bytes()).hexdigest()
    (places[0] / "manifest.json").write_text(json.dumps(manifest))
    status_file.write(run.folder, "running", 2, 3)
    loop.run(run)
    assert "after step 2" in capsys.readouterr().err
    assert equal(but_draws(bits(run.folder)), whole)


def test_memory_that_runs_out_is_no_damage(tmp_path, monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(torch, "load", full)
    with pytest.raises(torch.OutOfMemoryError):
        checkpoint.load(tmp_path, "rank-00000.pt", torch.device("cpu"))


def test_a_file_that_is_no_checkpoint_is_refused_without_torchs_advice_to_run_it(tmp_path):
    class Odd:
        def __reduce__(self):
            return print, ("run",)

    torch.save({"a": Odd()}, tmp_path / "odd.pt")
    (tmp_path / "torn.pt").write_bytes((tmp_path / "odd.pt").read_bytes()[:100])
    (tmp_path / "empty.pt").write_bytes(b"")
    for name in ("odd.pt", "torn.pt", "empty.pt", "missing.pt"):
        with pytest.raises(RunError, match=f"{name} is no file of a checkpoint") as caught:
            checkpoint.load(tmp_path, name, torch.device("cpu"))
        assert "weights_only" not in str(caught.value) and "\n" not in str(caught.value)
