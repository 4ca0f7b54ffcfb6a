"""Owners of a folder that are SLURM jobs, and many at once; tests/runs/test_run_folder.py has the simpler cases."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import own_mounts
import pytest

from repro.runs import lock
from repro.runs.lock import Held, Lock, ended, holder


def left_behind(folder, **changes) -> None:
    """An owner.json as another process left it."""
    owner = {"pid": os.getpid(), "start": "0", "host": socket.gethostname(), "since": "then", "job": None}
    (folder / "owner.json").write_text(json.dumps({**owner, **changes}))


def test_a_second_owner_is_told_who_holds_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "12")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    first = Lock(tmp_path)
    with pytest.raises(Held, match=rf"process {os.getpid()} on {socket.gethostname()} \(SLURM job 12_3\) since"):
        Lock(tmp_path)
    first.release()
    Lock(tmp_path).release()


def test_an_earlier_start_of_the_same_job_has_ended(tmp_path, monkeypatch):
    """SLURM requeued the job onto another host: no wait for the heartbeat to run out."""
    left_behind(tmp_path, host="elsewhere", job="12_3.0")
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "12")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    assert holder(tmp_path) is not None
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert holder(tmp_path) is None
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "4")
    assert holder(tmp_path) is not None


def test_an_owner_in_another_container_of_this_name_lives_by_its_date(tmp_path):
    """Its process is not to be seen from here: two trained into one folder."""
    left_behind(tmp_path, start="1", kernel=f"{lock._kernel()} of another")
    assert holder(tmp_path) is not None
    date = (tmp_path / "owner.json").stat().st_mtime - lock.STALE_S
    os.utime(tmp_path / "owner.json", (date, date))
    assert holder(tmp_path) is None
    left_behind(tmp_path, start="1", kernel=lock._kernel())
    assert holder(tmp_path) is None, "of here it is gone at once"


def test_another_users_owner_lives_by_its_date_where_proc_hides_it():
    """With hidepid it seemed to be gone: the run was called failed, and its folder taken from the one that trained."""
    with tempfile.TemporaryDirectory() as name:  # pytest's own are not for other users
        folder = Path(name)
        folder.chmod(0o755)

        def lives() -> bool:
            own_mounts.mount("proc", Path("/proc"), "proc", options="hidepid=2")
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            return lock.process_start(os.getppid()) is None and holder(folder) is not None

        first = Lock(folder)
        assert own_mounts.holds(lives)
        date = (folder / "owner.json").stat().st_mtime - lock.STALE_S
        os.utime(folder / "owner.json", (date, date))
        assert not own_mounts.holds(lives)
        first.release()


@pytest.mark.parametrize("away", [-3600, 3600, 10**9])
def test_an_owner_elsewhere_lives_by_its_date_and_not_by_one_of_the_future(tmp_path, away):
    """Its heartbeat keeps the date near the file system's own clock, so one far from it, either way, is nobody's."""
    owner = {"pid": 1, "start": "1", "host": "elsewhere", "since": "now"}
    (tmp_path / "owner.json").write_text(json.dumps(owner))
    date = (tmp_path / "owner.json").stat().st_mtime
    os.utime(tmp_path / "owner.json", (date, date - lock.STALE_S + 20))
    assert holder(tmp_path) == owner
    date += away
    os.utime(tmp_path / "owner.json", (date, date))
    assert holder(tmp_path) is None
    Lock(tmp_path).release()


def test_an_owner_keeps_its_date_new_often_enough(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "HEARTBEAT_S", 0.02)
    mine = Lock(tmp_path)
    before = (tmp_path / "owner.json").stat().st_mtime - lock.STALE_S
    os.utime(tmp_path / "owner.json", (before, before))
    for _ in range(500):
        if (tmp_path / "owner.json").stat().st_mtime > before:
            break
        time.sleep(0.02)
    assert (tmp_path / "owner.json").stat().st_mtime > before + lock.STALE_S / 2
    mine.release()
    monkeypatch.undo()
    assert lock.STALE_S >= 4 * lock.HEARTBEAT_S, "three beats may be late"


def test_an_owner_that_was_stopped_ends_once_another_has_the_folder(tmp_path):
    """Both would write into it."""
    code = "import sys, time; from pathlib import Path; from repro.runs import lock; lock.HEARTBEAT_S = 0.1\n"
    code += "lock.Lock(Path(sys.argv[1])); print(flush=True); time.sleep(60)"
    owner = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=-1, stderr=-1, text=True)
    assert owner.stdout.readline() == "\n"
    left_behind(tmp_path, host="elsewhere", pid=7)
    _, said = owner.communicate(timeout=30)
    assert owner.returncode == 1 and "is process 7's on elsewhere since then" in said and "Traceback" not in said
    assert json.loads((tmp_path / "owner.json").read_text())["pid"] == 7


def test_ended():
    assert ended("12_3.0", "12_3.1") and ended("12_3.9", "12_3.10")
    assert not ended("12_3.1", "12_3.1") and not ended("12_3.0", "12_4.1")
    assert not ended(None, "12.1") and not ended("12.0", None)


def test_a_torn_owner_file_is_nobody(tmp_path):
    (tmp_path / "owner.json").write_text('{"pid": 1')
    assert holder(tmp_path) is None


def test_eight_starters_one_owner(tmp_path):
    """All at once on a stale lock: exactly one gets it."""
    left_behind(tmp_path)
    code = (
        "import sys, time; from pathlib import Path; from repro.runs.lock import Held, Lock\n"
        "try: Lock(Path(sys.argv[1])); print('mine', flush=True); sys.stdin.read()\n"
        "except Held: print('held', flush=True)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    starters = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    said = [starter.stdout.readline().strip() for starter in starters if starter.stdout]
    for starter in starters:
        starter.communicate("")
    assert sorted(said) == ["held"] * 7 + ["mine"]
