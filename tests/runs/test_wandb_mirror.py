"""What W&B gets: read from the offline folder that `wandb sync` sends."""

import dataclasses
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from forked_cli import repro

from repro.config.compose import compose
from repro.runs import run_folder, status_file, wandb_mirror
from repro.runs.run_folder import RunFolder
from repro.runs.wandb_mirror import Mirror, redact

(QUIET,) = compose(["data=digits", "wandb.mode=disabled"])
ROOT = Path(__file__).parents[2]
STEP = {"kind": "step", "loss": 2.0, "bytes_sent": 100, "messages": 3}


def records(file: Path) -> Iterator[Any]:
    """The records of a run-ID.wandb file: a LevelDB log of protobufs in blocks of 32 KiB, after 7 bytes of its own."""
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # what its process still has in buffers reaches the disk
    data, place, record = file.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part of one
            found = Record()
            found.ParseFromString(record)
            yield found
            record = b""


def sent(folder: Path) -> tuple[Any, dict[str, Any], list[Any]]:
    """The run, its summary and its metrics, as the folder of one offline session has them."""
    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    run, summary, metrics = None, {}, []
    for record in records(file):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
        elif kind == "metric":
            metrics.append(record.metric)
        elif kind == "summary":
            for item in record.summary.update:
                summary["/".join(item.nested_key) or item.key] = json.loads(item.value_json)
    return run, summary, metrics


def history(folder: Path) -> dict[int, dict[str, Any]]:
    """What W&B shows over its steps, by step."""
    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    found: dict[int, dict[str, Any]] = {}
    for record in records(file):
        if record.WhichOneof("record_type") == "history":
            row = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
            found[row.pop("_step")] = row
    return found


def offline(folder: Path, **changes: Any) -> Any:
    return dataclasses.replace(
        QUIET, results=str(folder), wandb=dataclasses.replace(QUIET.wandb, mode="offline", **changes)
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One run of an experiment that decides claims, one of an experiment that decides none, by one command."""
    results = tmp_path_factory.mktemp("results")
    words = "experiment=convergence,quickstart model=resnet20 data=digits algo=gtopk seed=0 nodes=2 epochs=1 steps=2"
    words += f" batch_per_node=4 lr_warmup_epochs=0 wandb.mode=offline wandb.entity=a-team results={results}"
    done = repro("run", *words.split(), cwd=Path.cwd())
    assert done.returncode == 0 and "W&B" not in done.stderr, done.stderr
    return {name: next(results.glob(f"{name}/*")) for name in ("convergence", "quickstart")}


def test_a_run_has_its_team_group_tags_and_a_readable_name(finished: dict[str, Path]) -> None:
    run, _, metrics = sent(finished["convergence"])
    assert (run.entity, run.project, run.run_group) == ("a-team", "repro", "convergence")
    assert list(run.tags) == ["resnet20", "gtopk", "P=2"]
    assert run.display_name.startswith("gTop-k, ResNet-20 on digits, P=2, seed=0 ")
    steps = {metric.name or metric.glob_name: metric.step_metric for metric in metrics}
    assert steps["eval/*"] == "eval/epoch", "runs of other batches lie over each other by epoch"


def test_a_run_has_the_claims_of_its_experiment_alone(finished: dict[str, Path]) -> None:
    """Every run of any experiment had a table of all claims."""
    (media,) = finished["convergence"].glob("wandb/offline-run-*/files/media")
    (image,), (table,) = media.glob("images/figures/convergence_*.png"), media.glob("table/claims_*.table.json")
    assert image.read_bytes().startswith(b"\x89PNG")
    claims = json.loads(table.read_text())
    place, verdict = claims["columns"].index("claim"), claims["columns"].index("verdict")
    verdicts = {row[place]: row[verdict] for row in claims["data"]}
    assert verdicts["ResNet-20: gTop-k converges like dense"] == "not run"  # dense is not there yet
    assert len(verdicts) == len(claims["data"]) == 4, "one of each network"
    _, summary, _ = sent(finished["convergence"])
    said = {key.removeprefix("verdict/"): value for key, value in summary.items() if key.startswith("verdict/")}
    assert said == verdicts
    _, other, _ = sent(finished["quickstart"])
    assert other["state"] == "done" and not [key for key in other if key.startswith(("claims", "verdict"))]


def test_a_key_that_is_part_of_every_file_is_not_removed_from_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """WANDB_API_KEY=null, or 0, as a dummy: status.json was no JSON any more, and a done run began again."""
    for key, text in (("null", '{"error": null}'), ("0", '{"step": 60}')):
        monkeypatch.setenv("WANDB_API_KEY", key)
        assert redact(text) == text
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    assert redact("a" + "k" * 40) == "aWANDB_API_KEY"


def test_an_upload_that_has_no_time_is_told_with_what_sends_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a job W&B gave up after its limit without a word, and a sync passes over what was online."""
    import wandb

    seen: dict[str, Any] = {}
    monkeypatch.setattr(wandb, "init", lambda **given: seen.update(given) or Online())
    monkeypatch.setattr(wandb_mirror, "_logged_in", lambda _: True)
    monkeypatch.setattr(wandb_mirror.environment, "job", lambda: "1")
    (run,) = compose(["wandb.mode=online", f"results={tmp_path}"])
    mirror = Mirror(run, "identity")
    mirror.finish({}, ok=True)
    assert seen["settings"].finish_timeout_raises
    said = " ".join(capsys.readouterr().err.split())
    assert f"timed out. What it has not got is sent by `wandb sync --yes --no-skip-online {run.folder}/wandb`" in said


class Online:
    """A run of W&B, online, whose upload takes too long."""

    starting_step, summary, settings = 0, {}, SimpleNamespace(mode="online")

    def define_metric(self, *_: Any, **__: Any) -> None: ...

    def finish(self, exit_code: int) -> None:
        raise TimeoutError("it timed out")


def test_the_command_of_the_docs_finds_the_offline_folders(finished: dict[str, Path]) -> None:
    (command,) = {
        line.strip() for line in (ROOT / "docs" / "index.md").read_text().splitlines() if "wandb sync" in line
    }
    pattern = command.split()[-1]
    assert pattern.startswith("results/runs/")
    results = finished["convergence"].parents[1]
    folders = sorted(results.glob(pattern.removeprefix("results/runs/")))
    assert len(folders) == 2
    words = [sys.executable, "-m", "wandb", *command.split()[1:-1], "--dry-run", *map(str, folders)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=results)
    shown = done.stdout + done.stderr
    assert done.returncode == 0 and all(folder.name in shown for folder in folders), shown


def test_the_mirror_offline_and_its_failure(tmp_path: Path) -> None:
    config = offline(tmp_path)
    with RunFolder(config, "digits", "cpu") as folder:
        folder.log({**STEP, "step": 1})
        assert folder.mirror.run is not None
        folder.mirror.run.finish()  # what follows fails inside W&B
        folder.log({**STEP, "step": 2})
        folder.status("done", 2, 2)
    assert list((config.folder / "wandb").glob("offline-run-*/*.wandb"))
    assert [line["step"] for line in run_folder.read_metrics(config.folder)] == [1, 2]


def test_a_mirror_that_failed_takes_nothing_of_the_next_run(tmp_path: Path) -> None:
    """W&B held its run for active and gave it to the next one, whose steps went there."""
    first, second = (dataclasses.replace(offline(tmp_path), seed=seed) for seed in (0, 1))
    with RunFolder(first, "digits", "cpu") as folder:
        folder.log({**STEP, "step": 5})
        folder.mirror._try(folder.mirror.run.log, "no mapping")
        assert folder.mirror.run is None
        folder.status("done", 5, 5)
    with RunFolder(second, "digits", "cpu") as folder:
        for step in (1, 2):
            folder.log({**STEP, "step": step})
        folder.status("done", 2, 2)
    (run, _, _), (other, _, _) = sent(first.folder), sent(second.folder)
    assert run.run_id != other.run_id and other.display_name.endswith("seed=1")
    assert list(history(first.folder)) == [5] and list(history(second.folder)) == [1, 2]


def test_a_folder_that_cannot_be_begun_leaves_no_run_of_wandb_behind(tmp_path: Path) -> None:
    import wandb

    config = offline(tmp_path)
    (config.folder / "status.json").mkdir(parents=True)
    with pytest.raises(IsADirectoryError), RunFolder(config, "digits", "cpu"):
        pass
    assert list(config.folder.glob("wandb/offline-run-*")) and wandb.run is None


def test_a_run_whose_folder_was_removed_is_another_run_of_wandb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one id for both, W&B would take no step of the second before the last of the first."""
    config = offline(tmp_path)

    def session(now: str) -> str:
        monkeypatch.setattr(status_file, "now", lambda: now)
        with RunFolder(config, "digits", "cpu") as folder:
            folder.status("preempted", 1, 2)
        files = list(config.folder.glob("wandb/offline-run-*/*.wandb"))
        (identity,) = {record.run.run_id for file in files for record in records(file) if record.HasField("run")}
        shutil.rmtree(config.folder / "wandb")
        return identity

    plain = f"default-{config.run_id}"
    first = session("2026-01-02T03:04:05+0000")
    assert first == session("2026-01-02T04:00:00+0000") == f"{plain}-20260102030405"
    shutil.rmtree(config.folder)
    assert session("2026-01-02T05:00:00+0000") == f"{plain}-20260102050000"
    file = config.folder / "provenance.json"
    said = json.loads(file.read_text())
    del said["wandb_id"]  # as runs of before have it
    file.write_text(json.dumps(said))
    assert session("2026-01-02T06:00:00+0000") == plain


def test_lines_without_a_step_cost_no_step(tmp_path: Path) -> None:
    """Each of them moved W&B on by one, which then dropped as many of the first steps."""
    config = offline(tmp_path)
    time = {"kind": "iteration_time", "nodes": 2}
    with RunFolder(config, "digits", "cpu") as folder:
        for seconds, network in enumerate(("ethernet1g", "ethernet10g", "infiniband100g")):
            folder.log({**time, "source": "modelled", "network": network, "compute_s": seconds})
        for step in (1, 2, 3):
            folder.log({**STEP, "step": step})
        folder.log({"kind": "eval", "step": 3, "epoch": 1.0, "train_loss": 1.5, "test_accuracy": 0.5,
                    "samples_per_s": 10.0})  # fmt: skip
        folder.log({**time, "source": "measured", "network": "ethernet1g", "compute_s": 7})
        folder.status("done", 3, 3)
    rows = history(config.folder)
    assert list(rows) == [0, 1, 2, 3]
    assert [rows[step]["step/loss"] for step in (1, 2, 3)] == [2.0] * 3
    names = ("ethernet1g", "ethernet10g", "infiniband100g")
    assert [rows[0][f"iteration_time/{name}/modelled/compute_s"] for name in names] == [0, 1, 2]
    assert rows[3]["eval/train_loss"] == 1.5
    assert rows[3]["iteration_time/ethernet1g/measured/compute_s"] == 7


def test_a_figure_that_cannot_be_drawn_does_not_end_the_mirror(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run had stayed open in W&B, as if it had crashed."""
    import wandb

    def draw(*_: Any) -> Any:
        raise KeyError("no such column")

    config = offline(tmp_path)
    with RunFolder(config, "digits", "cpu", draw=draw) as folder:
        folder.log({**STEP, "step": 1})
        folder.status("done", 1, 1)
    assert folder.mirror.run is not None and wandb.run is None, "W&B forgets a run that is finished"
    assert "no such column" in capsys.readouterr().err


def online(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A run in a process of its own, with what W&B is told there; it says which offline folders it has."""
    code = (
        "import dataclasses, sys\nfrom repro.config.compose import compose\n"
        "from repro.runs.run_folder import RunFolder\n"
        f"(config,) = compose(['data=digits', 'wandb.mode=online', 'results={tmp_path}'])\n"
        "with RunFolder(config, 'digits', 'cpu') as folder: folder.status('done', 1, 1)\n"
        "print(*config.folder.glob('wandb/offline-run-*'))"
    )
    everything = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    everything.pop("WANDB_API_KEY", None)
    return subprocess.run(
        [sys.executable, "-c", code], env=everything | environment, capture_output=True, text=True, timeout=120,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_online_without_a_key_goes_on_offline_and_does_not_ask(tmp_path: Path) -> None:
    done = online(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "offline-run-" in done.stdout
    assert "no API key" in done.stderr


def test_online_without_a_network_goes_on_offline(tmp_path: Path) -> None:
    """The run had no copy at all."""
    key = "a" * 40
    done = online(tmp_path, WANDB_API_KEY=key, WANDB_BASE_URL="http://127.0.0.1:9")
    assert done.returncode == 0, done.stderr
    assert "offline-run-" in done.stdout and "Going on offline" in done.stderr
    assert key not in done.stderr


@pytest.mark.parametrize("ok", [True, False])
def test_wandb_has_the_settings_of_the_run_and_how_it_ended(ok: bool, tmp_path: Path) -> None:
    config = offline(tmp_path)
    mirror = Mirror(config, "one")
    mirror.finish({"state": "done" if ok else "failed"}, ok)
    run, _, _ = sent(config.folder)
    said = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert said["lr"] == config.lr and said["algo"]["name"] == config.algo.name and said["seed"] == config.seed
    (file,) = config.folder.glob("wandb/offline-run-*/*.wandb")
    codes = [record.exit.exit_code for record in records(file) if record.WhichOneof("record_type") == "exit"]
    assert codes == [0 if ok else 1]
