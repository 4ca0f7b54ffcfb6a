"""A private SLURM on this machine: munged, slurmctld and four slurmd, all of it under one folder.

Debian's slurm-wlm allows several `slurmd -N` on one host. Nothing of the system is touched: own key,
own ports, own state, and every daemon is stopped by the pid that was started here.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "squeue", "scancel")

# cred_expire is also how long a requeued job waits before it starts again (default 120 s, at least 5).
CONF = """\
ClusterName=repro
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
ReturnToService=2
KillWait=5
InactiveLimit=0
MinJobAge=86400
MaxArraySize=8
JobRequeue=1
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str | None:
    """Why a private SLURM cannot run here, or None if it can."""
    if os.geteuid() != 0:
        return "the private SLURM needs root"
    missing = [program for program in PROGRAMS if not _which(program)]
    return f"{', '.join(missing)} not found: apt-get install slurm-wlm munge" if missing else None


@dataclass
class Cluster:
    """A running SLURM; `env` is what its commands and the programs that call them need."""

    folder: Path
    env: dict[str, str]
    daemons: list[subprocess.Popen]

    def run(self, *command: str, timeout: float = 20, check: bool = True) -> str:
        """Run one SLURM command; returns its standard output."""
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=timeout)
        if check and done.returncode:
            raise RuntimeError(f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def queue(self) -> dict[str, str]:
        """Every unfinished job: "<array job>_<task>" -> PENDING, RUNNING, COMPLETING ..."""
        lines = self.run("squeue", "--noheader", "--array", "--format=%i %T").splitlines()
        return dict(line.split(maxsplit=1) for line in lines)

    def wait_until(self, condition, seconds: float, what: str) -> None:
        """Poll `condition()` until it holds; fail with `what`, the queue and the logs of the daemons."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(subprocess.TimeoutExpired):  # a crowded machine
                if condition():
                    return
            time.sleep(0.5)
        logs = "\n".join(p.read_text()[-1500:] for p in sorted(self.folder.glob("slurm*.log")))
        raise AssertionError(f"after {seconds} s not so: {what}; queue: {self.queue()}\n{logs}")

    def wait_empty(self, seconds: float) -> None:
        """Wait until no job is pending or running."""
        self.wait_until(lambda: not self.queue(), seconds, "the queue is empty")


@contextlib.contextmanager
def started(folder: Path, cpus: int = 4) -> Iterator[Cluster]:
    """Start a SLURM of four nodes with `cpus` CPUs each under `folder` (short path: it holds a socket)."""
    nodes = 4
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "state").mkdir()
    host, ports = socket.gethostname(), _free_ports(1 + nodes)
    lines = [
        f"NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[i]} CPUs={cpus} State=UNKNOWN"
        for i in range(1, nodes + 1)
    ]
    conf = folder / "slurm.conf"
    conf.write_text(CONF.format(host=host, folder=folder, ports=ports, nodes="\n".join(lines)))
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SBATCH_"))}
    env = inherited | {"SLURM_CONF": str(conf), "SBATCH_WAIT": "1"}  # as some set it, and scripts need
    cluster = Cluster(folder, env, [])
    try:
        _start_munge(cluster)
        _start(cluster, "slurmctld", "-D", "-c", "-f", str(conf))
        for i in range(1, nodes + 1):
            _start(cluster, "slurmd", "-D", "-c", "-f", str(conf), "-N", f"n{i}")
        cluster.wait_until(lambda: _idle_nodes(cluster) == nodes, 60, f"{nodes} idle nodes")
        yield cluster
    finally:
        _stop(cluster)


def _start_munge(cluster: Cluster) -> None:
    key, sock = cluster.folder / "munge.key", cluster.folder / "munge.socket"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    cluster.folder.chmod(0o755)
    files = [f"--{name}-file={cluster.folder}/munge.{name}" for name in ("pid", "log", "seed")]
    _start(cluster, "munged", "--foreground", "--force", f"--socket={sock}", f"--key-file={key}", *files)
    cluster.wait_until(sock.exists, 20, "munged listens")


def _start(cluster: Cluster, program: str, *arguments: str) -> None:
    path = _which(program)
    with open(cluster.folder / f"{program}.out", "ab") as out:
        streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
        daemon = subprocess.Popen(
            [str(path), *arguments],
            env=cluster.env,
            start_new_session=True,
            preexec_fn=_die_with_parent,
            **streams,
        )
    cluster.daemons.append(daemon)


def _die_with_parent() -> None:
    """Even if the tests are killed outright, no daemon stays: prctl(PR_SET_PDEATHSIG, SIGKILL)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _stop(cluster: Cluster) -> None:
    """Cancel what runs, then end each daemon by its pid, the last started first."""
    if len(cluster.daemons) > 1:
        with contextlib.suppress(Exception):
            cluster.run("scancel", "--full", "--user=root", check=False, timeout=10)
            cluster.wait_empty(20)
    for daemon in reversed(cluster.daemons):
        daemon.terminate()
    for daemon in reversed(cluster.daemons):
        try:
            daemon.wait(timeout=10)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def _idle_nodes(cluster: Cluster) -> int:
    states = cluster.run("sinfo", "--noheader", "--Node", "--format=%t", check=False).split()
    return sum(state.startswith("idle") for state in states)


def _which(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _free_ports(count: int) -> list[int]:
    """Below those that Linux gives to outgoing connections: such a one might take it before SLURM does."""
    found: list[int] = []
    for port in random.sample(range(20_000, 32_768), 1000):
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("", port))
            found.append(port)
        if len(found) == count:
            break
    return found
