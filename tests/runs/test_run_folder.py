"""The run folder: what is written, what survives a kill, and who owns it."""

import dataclasses
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_runs
from typer.testing import CliRunner

from repro import cli
from repro.children import usable_cores
from repro.config.compose import compose, from_yaml
from repro.config.schema import Config, ConfigError
from repro.runs import lock, places, run_folder, status_file
from repro.runs.lock import Held, Lock
from repro.runs.run_folder import RunFolder
from repro.train import loop

(QUIET,) = compose(["data=digits", "wandb.mode=disabled"])
ROOT = Path(__file__).parents[2]
STEP = {"kind": "step", "loss": 2.0, "bytes_sent": 100, "messages": 3}


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return dataclasses.replace(QUIET, results=str(tmp_path))


def open_folder(config: Config) -> RunFolder:
    return RunFolder(config, description="digits", device="cpu")


def test_a_run_folder_from_start_to_end(config: Config) -> None:
    with open_folder(config) as folder:
        folder.resume(0)
        assert status_file.state(config.folder) == "running"
        for step in (1, 2):
            folder.log({**STEP, "step": step})
        folder.log({"kind": "eval", "step": 2, "epoch": 1.0, "train_loss": 1.5, "test_loss": 1.6,
                    "test_accuracy": 0.5, "samples_per_s": 10.0})  # fmt: skip
        times = {"kind": "iteration_time", "network": "ethernet1g", "nodes": 4, "communicate_s": 3.0}
        folder.log({**times, "source": "measured", "compute_s": 1.0, "compress_s": 2.0})
        folder.log({**times, "source": "modelled", "compute_s": 9.0, "compress_s": 9.0})
        folder.log({**times, "source": "modelled", "network": "ethernet10g", "compute_s": 9.0, "compress_s": 9.0})
        folder.status("done", 2, 2)
    found = run_folder.summary(config.folder)
    assert (found["state"], found["step"], found["steps"]) == ("done", 2, 2)
    assert (found["test_accuracy"], found["loss"], found["bytes_sent_per_step"]) == (0.5, 1.5, 100)
    assert (found["source"], found["compute_s"]) == ("measured", 1.0)
    assert from_yaml(config.folder / "config.yaml") == config
    origin = json.loads((config.folder / "provenance.json").read_text())
    assert origin["end"] and origin["data"] == "digits" and origin["versions"]["torch"]
    assert origin["processor"]["name"] and origin["rates"]["float32_gflops"] > 0
    assert origin["cpus"] == usable_cores()
    root = Path(__file__).parents[2]
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True).stdout.strip()
    assert origin["git"]["commit"] == head or not (root / ".git").exists()
    assert (found["samples_per_s"], found["epochs"]) == (10.0, 1.0)
    assert lock.holder(config.folder) is None


def test_resume_cuts_what_was_written_beyond_the_checkpoint_and_a_torn_line(config: Config) -> None:
    config.folder.mkdir(parents=True)
    metrics = config.folder / "metrics.jsonl"
    steps = [{**STEP, "step": step} for step in range(1, 9)]
    lines = [{"kind": "iteration_time", "source": "modelled"}, *steps]
    metrics.write_text("\n".join(json.dumps(line) for line in lines) + '\n{"kind": "step", "st')
    assert len(run_folder.read_metrics(config.folder)) == 9
    with open_folder(config) as folder:
        folder.resume(5)
        folder.log({**STEP, "step": 6})
        folder.status("done", 6, 6)
    kept = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [line.get("step") for line in kept] == [None, 1, 2, 3, 4, 5, 6]


def test_a_session_that_may_round_unlike_says_so(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    """One with another number of threads, from as many cores as there were, went on to other bits without a word."""
    file = config.folder / "provenance.json"
    with open_folder(config) as folder:
        folder.resume(0)
    for changed, expected in (
        ({}, ""),
        ({"threads": -1}, " (with another number of threads, which may round unlike)"),
        ({"processor": {"name": "8086"}, "versions": {"torch": "0"}}, " (with another processor and another torch, "),
        ({"versions": "damaged"}, ""),
        ({"device": "cuda:1"}, " (with another device, which may round unlike)"),
    ):
        file.write_text(json.dumps(json.loads(file.read_text()) | changed))
        with open_folder(config) as folder:
            folder.resume(3)
        said = capsys.readouterr().err
        assert f"after step 3{expected}" in said and ("with another" in said) == bool(expected)


def test_a_start_that_trained_nothing_hides_no_other_rounding(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """With one between, which failed before its first step, a session went on with other threads without a word."""
    file = config.folder / "provenance.json"
    with open_folder(config) as folder:
        folder.resume(0)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"threads": -1}))
    with open_folder(config):
        pass  # it ends before it goes on
    with open_folder(config) as folder:
        folder.resume(3)
    assert "after step 3 (with another number of threads, which may round unlike)" in capsys.readouterr().err


def test_a_failure_is_written_and_an_earlier_session_kept(config: Config) -> None:
    with pytest.raises(ValueError, match="broken"), open_folder(config) as folder:
        folder.status("running", 3, 9)
        raise ValueError("broken")
    status = json.loads((config.folder / "status.json").read_text())
    assert (status["state"], status["step"], status["error"]) == ("failed", 3, "ValueError: broken")
    with open_folder(config) as folder:
        folder.status("done", 9, 9)
    assert len(json.loads((config.folder / "provenance.json").read_text())["earlier"]) == 1


def test_failed_speaks_for_a_rank_0_that_could_not(config: Config) -> None:
    with open_folder(config):
        status_file.failed(config, "rank 2 died")
    assert json.loads((config.folder / "status.json").read_text())["error"] == "rank 2 died"
    status_file.failed(config, "a later, less informative one")
    assert json.loads((config.folder / "status.json").read_text())["error"] == "rank 2 died"


def test_a_run_that_does_not_begin_or_go_on_is_known_to_have_failed(config: Config) -> None:
    """Without a folder nobody saw it, and the reason of one that was stopped before stayed in the log."""
    status_file.failed(config, "rank 1 did not start")
    assert (status_file.state(config.folder), run_folder.summary(config.folder)["state"]) == ("failed", "failed")
    for tell in (status_file.failed, status_file.refused):
        status_file.write(config.folder, "preempted", 3, 9)
        tell(config, "no GPU here")
        status = json.loads((config.folder / "status.json").read_text())
        assert (status["state"], status["step"], status["error"]) == ("failed", 3, "no GPU here")
    status_file.write(config.folder, "done", 9, 9)
    status_file.failed(config, "too late")
    status_file.refused(config, "too late")
    assert status_file.state(config.folder) == "done"


def test_a_full_disk_is_no_done_run(config: Config) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with pytest.raises(OSError, match="No space"), open_folder(config) as folder:
        folder.metrics.stream = open("/dev/full", "ab")  # noqa: SIM115
        folder.metrics.check = lambda: None  # it is another file
        folder.log({**STEP, "step": 1})
    assert status_file.state(config.folder) == "failed"


def test_an_unwritable_place_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for wrong in (tmp_path / "file" / "run", Path("/proc/nothing/run"), Path("/dev/null/x")):
        with pytest.raises(ConfigError, match="results=FOLDER"):
            places.check_folder(wrong, "Name another place with results=FOLDER.")
    places.check_folder(tmp_path / "a" / "b", "")
    places.check_file(tmp_path / "a" / "b.json")
    with pytest.raises(ConfigError, match="is a folder"):
        places.check_file(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]  # asking leaves nothing behind


def test_runs_are_listed_while_others_start(tmp_path: Path) -> None:
    """What a start tries the folder with is gone a moment later, and who lists runs does not look into it."""
    start = "places.check_folder(Path(sys.argv[1]))"
    code = f"import sys\nfrom pathlib import Path\nfrom repro.runs import places\n{start}\nprint()\nwhile True: {start}"
    starts = subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE)
    try:
        starts.stdout.readline()
        for _ in range(3000):
            assert run_folder.run_folders(tmp_path) == []
    finally:
        starts.kill()
        starts.communicate()


def test_no_key_of_wandb_is_written(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "secret" * 8)
    monkeypatch.setattr(sys, "argv", ["repro", "run", "x=" + "secret" * 8])
    with pytest.raises(ValueError, match="secret"), open_folder(config):
        raise ValueError("key " + "secret" * 8)
    for path in config.folder.iterdir():
        assert "secretsecret" not in path.read_text(), path


def test_a_second_start_in_one_job_leaves_the_status_of_the_first(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds no folder, and wrote into that of the run that lives that it had failed."""
    srun = {
        "JOB_ID": "7", "STEP_ID": "0", "PROCID": "0", "LOCALID": "0", "NODEID": "0", "STEP_NUM_TASKS": "2",
        "STEP_TASKS_PER_NODE": "2", "STEP_NODELIST": "localhost",
    }  # fmt: skip
    for name, value in srun.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    with open_folder(config) as folder:
        owner = config.folder / "owner.json"
        owner.write_text(json.dumps(json.loads(owner.read_text()) | {"pid": 1, "host": "elsewhere"}))
        monkeypatch.setenv("SLURM_STEP_ID", "1")
        status_file.failed(config, "another step")
        assert status_file.state(config.folder) == "running"
        monkeypatch.setenv("SLURM_STEP_ID", "0")
        monkeypatch.setenv("SLURM_PROCID", "1")
        status_file.failed(config, "a rank of this step")
        assert status_file.state(config.folder) == "failed"
        folder.lock.stopped.set()


def test_a_process_of_this_number_elsewhere_is_another(config: Config) -> None:
    """Processes of containers have equal, small numbers: the second one wrote `failed` over a run that lived."""
    with open_folder(config) as folder:
        owner = config.folder / "owner.json"
        said = json.loads(owner.read_text())
        assert lock.is_mine(said)
        owner.write_text(json.dumps(said | {"host": "elsewhere"}))
        status_file.failed(config, "in use")
        assert status_file.state(config.folder) == "running"
        owner.write_text(json.dumps(said))
        status_file.failed(config, "a rank of this process")
        assert status_file.state(config.folder) == "failed"
        folder.lock.stopped.set()


HOLD = "import sys, time; from repro.runs.lock import Lock; from pathlib import Path\n"
HOLD += "lock = Lock(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"


def hold(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_one_owner_at_a_time_until_it_is_killed(tmp_path: Path) -> None:
    other = hold(tmp_path)
    try:
        with pytest.raises(Held, match=f"process {other.pid} on "):
            Lock(tmp_path)
    finally:
        other.send_signal(signal.SIGKILL)
        other.wait()
    mine = Lock(tmp_path)
    with pytest.raises(Held):
        Lock(tmp_path)
    mine.release()
    assert not (tmp_path / "owner.json").exists()


def test_status_names_what_was_begun_where_an_experiment_was_not(tmp_path: Path) -> None:
    done = tiny_runs.config(tmp_path, *tiny_runs.QUICK, "steps=1", "nodes=1")
    loop.run(done)
    shown = CliRunner().invoke(cli.app, ["status", "quickstart", "--results", str(tmp_path)])
    assert shown.output.strip() == f"quickstart: no runs of it are under {tmp_path}; there are default"


def test_a_pid_used_again_is_another_process(tmp_path: Path) -> None:
    mine = Lock(tmp_path)
    (tmp_path / "owner.json").write_text(json.dumps({**mine.me, "start": "1"}))
    assert lock.holder(tmp_path) is None
