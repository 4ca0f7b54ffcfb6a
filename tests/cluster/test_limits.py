"""Ordinary limits, lost readers and signals, on real processes of the command line, some of them another user's."""

import dataclasses
import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from cli_process import torchrun

from repro import models
from repro.cluster import limits, memory, processes, ranks, start
from repro.cluster.preempt import Interrupt
from repro.config.compose import compose
from repro.config.schema import ConfigError, RunError

ROOT = Path(__file__).parents[2]
SMALL = ["data=synthetic", "data.train_images=128", "data.test_images=16", "data.image_size=8", "batch_per_node=4",
         "wandb.mode=disabled"]  # fmt: skip
RUN = [sys.executable, "-m", "repro", "run", *SMALL]
HERE = {**os.environ, "PYTHONPATH": str(ROOT)}
SIDES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def state(folder: Path) -> dict:
    (file,) = folder.rglob("status.json")
    return json.loads(file.read_text())


def allow_files(soft: int, hard: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_soft_limit_is_raised_and_a_full_stderr_and_a_reader_that_leaves_end_nothing(tmp_path: Path) -> None:
    """12 ranks as threads need 180 open files and have 64 at first."""
    run = [*RUN, "nodes=12", "steps=1", f"results={tmp_path}"]
    with open("/dev/full", "w") as full:
        done = subprocess.Popen(
            run, cwd=tmp_path, env=HERE, stdout=subprocess.PIPE, stderr=full, preexec_fn=lambda: allow_files(64, 4096)
        )  # fmt: skip
        done.stdout.close()  # as `| head -0` does
        assert done.wait(timeout=120) == 0
    assert state(tmp_path)["state"] == "done"


def files_of_a_rank(said: Path) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "none"}  # fmt: skip
    (config,) = compose([*SMALL, "model=resnet20", "nodes=1"])
    found = ranks.launch(config, lambda *_: resource.getrlimit(resource.RLIMIT_NOFILE), ranks.no_data)
    said.write_text(json.dumps(found))


def test_a_rank_that_a_launcher_starts_has_its_soft_limit_raised(tmp_path: Path) -> None:
    """SLURM gives its tasks that of the shell, often 1,024, which about 250 ranks exceed."""
    process = multiprocessing.get_context("forkserver").Process(target=files_of_a_rank, args=[tmp_path / "said"])
    process.start()
    process.join(60)
    soft, hard = json.loads((tmp_path / "said").read_text())
    assert soft == hard > 256


def test_closed_output_takes_no_file_of_the_run(tmp_path: Path) -> None:
    """The first file opened would otherwise be given the number of stderr, and get what is written there."""
    command = f"{' '.join(RUN)} nodes=1 steps=1 'results={tmp_path}' >&- 2>&-"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=HERE, timeout=120)
    assert done.returncode == 0 and state(tmp_path)["state"] == "done"
    (metrics,) = tmp_path.rglob("metrics.jsonl")
    assert all(json.loads(line)["kind"] for line in metrics.read_text().splitlines())


def test_a_result_that_a_full_disk_took_is_not_called_success(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*RUN, "--show"], env=HERE, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (
        done.returncode == 1
        and done.stderr == "repro: not all of the output could be written: No space left on device\n"
    )


def test_a_hard_limit_names_the_nodes_that_fit(tmp_path: Path) -> None:
    run = [*RUN, "nodes=32", f"results={tmp_path}"]
    done = subprocess.run(
        run, cwd=tmp_path, env=HERE, timeout=120, preexec_fn=lambda: allow_files(512, 1024), **SIDES
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    fits = int(re.search(r"type nodes=(\d+)", done.stderr)[1])
    assert limits.open_files(fits, processes=False) <= 1024 < limits.open_files(fits + 1, processes=False)
    assert not list(tmp_path.rglob("metrics.jsonl"))


@pytest.mark.parametrize("groups", [1, 2])
def test_the_formula_has_the_open_files_of_ranks(groups: int) -> None:
    """Within a fifth, beside what a process has open in any case."""
    store, size, before = dist.HashStore(), 9, len(os.listdir("/proc/self/fd"))
    wires: list = [None] * size

    def join(rank: int) -> None:
        from repro.comm import transport

        wires[rank] = transport.gloo(store, rank, size, 60)
        wires[rank].all_reduce(torch.ones(1))
        if groups == 2:
            wires[rank].aside().all_reduce(torch.ones(1))

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    opened = len(os.listdir("/proc/self/fd")) - before
    for wire in wires:
        wire.close()
    assert 0.8 * opened <= limits.open_files(size, False, groups) - limits.FILES <= 1.2 * opened


@pytest.mark.parametrize(
    ("asked", "groups"), [("algo=dense", 1), ("algo=async_average", 2), ("algo=dense cluster.messages=memory", 0)]
)
def test_a_run_whose_averages_are_made_beside_it_has_twice_the_sockets(asked: str, groups: int) -> None:
    assert limits.groups_of_sockets(compose(asked.split())[0]) == groups


def test_starting_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "HURRY_S", 0.2)
    store = dist.HashStore()
    with pytest.raises(RunError, match="rank 1, 2 did not start within 0.5 s after the others") as missing:
        start.assemble(store, 0, 3, 0.5, Interrupt())
    assert start.is_lost(str(missing.value))
    with pytest.raises(RunError, match="rank 1, 2 did not"):  # told by another rank: at once
        start.assemble(store, 1, 3, 1000, Interrupt())
    told = Interrupt()
    told.handle(signal.SIGTERM, None)
    with pytest.raises(KeyboardInterrupt):
        start.assemble(dist.HashStore(), 0, 2, 1000, told)
    assert (
        str(start.failed(dist.HashStore(), 1, KeyboardInterrupt())) == "rank 1 was stopped at once by a second Ctrl-C"
    )
    ends = [(RunError("rank 1 could not start"), None), (KeyboardInterrupt(), int(signal.SIGTERM))]
    with pytest.raises(KeyboardInterrupt):  # as one rank stops, the others learn of it as of an error
        processes._outcome(ends, 2, told, dist.HashStore())
    with pytest.raises(RunError):
        processes._outcome(ends, 2, Interrupt(), dist.HashStore())


def test_a_rank_that_cannot_start_says_so_also_without_a_store() -> None:
    """The store is rank 0's, and may have gone with it: that was a traceback of torch's."""
    server = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    store = dist.TCPStore("127.0.0.1", server.port, None, False, wait_for_workers=False)
    del server
    error = start.failed(store, 1, RuntimeError("Broken pipe"))
    assert str(error) == "rank 0 ended while rank 1 started: look in the log for its error"
    assert str(start.failed(store, 1, RunError("no port is free"))) == "no port is free"


CANNOT = """
import os
from repro.cluster import ranks
from repro.config.compose import compose
from repro.config.schema import ConfigError, RunError
from repro.train import loop, possible

def lacks(what):
    def check(config):
        if os.environ["RANK"] == "1":
            raise ConfigError(f"this machine lacks {what}")
    return check

possible.check = lacks("a GPU")
one, other = compose(["nodes=2", "data=synthetic", "seed=0,1", "timeout_s=60", "wandb.mode=disabled"])
for begin in (lambda: ranks.launch(one, None, lacks("the images")), lambda: loop.run(other)):
    try:
        begin()
    except (ConfigError, RunError) as error:
        # In one call, as both write there: a print without a buffer gives the end of its line alone.
        os.write(1, f"{type(error).__name__} of rank {os.environ['RANK']}: {error}\\n".encode())
"""


def test_a_rank_that_cannot_begin_ends_the_others_at_once(tmp_path: Path) -> None:
    """They waited `timeout_s`, half an hour, and said that it had not started."""
    (tmp_path / "cannot.py").write_text(CANNOT)
    run = [*torchrun(2, tmp_path / "logs"), "cannot.py"]
    here = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(run, capture_output=True, text=True, timeout=50, cwd=tmp_path, env=here)
    said = [f"ConfigError of rank 1: this machine lacks {what}" for what in ("a GPU", "the images")]
    said += [
        f"RunError of rank 0: rank 1 could not start: this machine lacks {what}" for what in ("a GPU", "the images")
    ]
    assert sorted(done.stdout.splitlines()) == said, done.stderr


@pytest.fixture(scope="module")
def nobody() -> Iterator[tuple[list[str], Path]]:
    """How to start Python as a user without rights, with a folder of its own; what only root reads is mounted there."""
    if os.geteuid():
        pytest.skip("only root can become another user")
    home = Path(tempfile.mkdtemp(prefix="repro-nobody-"))
    packages = Path(torch.__file__).parents[1]
    try:
        for name in ("python", "packages", "code", "home"):
            (home / name).mkdir()
        home.chmod(0o755)
        kernels = ROOT / "repro" / "compression" / "__pycache__"  # a copy to write to: to compile them takes 30 s
        shutil.copytree(kernels, home / "kernels")
        for folder in (home / "home", home / "kernels"):
            os.chown(folder, 65534, 65534)
        mounts = {"python": sys.base_prefix, "packages": packages, "code": ROOT}
        mounts[f"code/{kernels.relative_to(ROOT)}"] = home / "kernels"
        script = " && ".join(f"mount --bind '{source}' '{home / name}'" for name, source in mounts.items())
        python = Path(home, "python", "bin", f"python3.{sys.version_info.minor}")
        become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all",
                  "env", "-i", f"HOME={home / 'home'}", f"PYTHONPATH={home / 'code'}:{home / 'packages'}",
                  f"LD_LIBRARY_PATH={home / 'python' / 'lib'}",  # whose name the interpreter has by its own place
            "PATH=/usr/bin:/bin", str(python)]  # fmt: skip
        try:
            subprocess.run(["unshare", "-m", "sh", "-c", script], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no mount namespace here: {error}")
        yield ["unshare", "-m", "sh", "-c", f'{script} && cd {home}/home && exec "$@"', "sh", *become], home / "home"
    finally:
        for name in ("python", "packages", "code"):
            (home / name).rmdir()  # never what might be mounted there
        shutil.rmtree(home)


@pytest.mark.lab
def test_another_user_has_a_lab(nobody: tuple[list[str], Path]) -> None:
    """Two ranks in processes of their own, which is where the launcher's namespaces are joined."""
    python, home = nobody
    run = [*python, "-m", "repro", "run", *SMALL, "nodes=2", "steps=1", "cluster=lab", "results=runs"]
    done = subprocess.run(run, timeout=300, **SIDES)
    if "cannot make network namespaces here" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    assert state(home)["state"] == "done" and os.stat(home / "runs").st_uid == 65534


FILLED = """
import resource, os
from repro.cluster import limits, ranks
from repro.config.compose import compose
from repro.config.schema import RunError

def share(config):
    limit = limits._tasks_of(os.getuid()) + {more}
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))

if __name__ == "__main__":
    ranks.launch(compose(["nodes=8", "cluster={cluster}", "threads=1"])[0], print, share)
"""


def test_a_user_who_may_start_no_more_tasks_is_told_before_anything_starts(nobody: tuple[list[str], Path]) -> None:
    python, home = nobody
    run = [*python, "-m", "repro", "run", *SMALL, "nodes=32", "threads=1", "results=refused"]
    done = subprocess.run(["prlimit", "--nproc=100:100", *run], timeout=120, **SIDES)
    assert done.returncode == 2, done.stderr
    assert re.search(
        r"nodes=32: as threads they need about \d+ tasks more, and \d+ are allowed; \d+ nodes fit", done.stderr
    )
    assert not list(home.glob("refused/**/metrics.jsonl"))


def test_ranks_that_cannot_start_end_the_others_within_a_minute(nobody: tuple[list[str], Path]) -> None:
    """The limit is met after the check, as where another program of the user takes what was free."""
    python, _ = nobody
    began = time.monotonic()
    done = subprocess.run([*python, "-c", FILLED.format(more=6, cluster="local")], timeout=120, **SIDES)
    assert done.returncode and re.search("can't start new thread|could not start|Resource temporarily", done.stderr)
    assert time.monotonic() - began < 60


def test_a_config_that_fits_is_not_refused() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        limits.check(compose(["nodes=4"])[0])
        with pytest.raises(ConfigError, match="as threads they need about 16789544 open files"):
            limits.check(compose(["nodes=4096"])[0])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_what_memory_cannot_hold_is_said_with_the_nodes_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    large = compose(["model=alexnet", "nodes=32", "data=synthetic", "data.image_size=224", "device=cpu"])[0]
    monkeypatch.setattr(memory, "available", lambda: 20e9)
    monkeypatch.setattr(memory, "held", lambda: 0.0)  # whatever other tests kept free
    with pytest.raises(
        ConfigError, match=r"nodes=32 of model=alexnet need about \d+\.\d GB of memory, and 20.0 GB"
    ) as said:
        memory.check(large)
    fits = int(re.search(r"type nodes=(\d+)", str(said.value))[1])
    within = [memory.needed(dataclasses.replace(large, nodes=nodes)) <= 20e9 for nodes in (fits, fits + 1)]
    assert within == [True, False]
    parameters = sum(layer.numel() for layer in models.load("resnet20", 10, 32, 0, torch.Generator()).parameters())
    assert memory.outputs(compose(["model=resnet20"])[0])[0] == parameters
