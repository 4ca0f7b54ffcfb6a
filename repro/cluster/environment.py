"""Finds which rank this process is under srun or torchrun, and what else the environment says of the job."""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from repro.config.schema import Config, ConfigError

FIRST_PORT, PORTS = 15_000, 15_000  # below 32768: Linux gives those from there on to outgoing connections
TRIES = 16  # ports that one job step tries
# which say where SLURM is, and not what a job has
OF_SLURM = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_CLUSTERS")


@dataclass(frozen=True)
class Place:
    """Says which of all ranks this is, which of its machine's, and how it finds the others if srun started it."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    host: str = ""  # of rank 0
    ports: tuple[int, ...] = ()  # which rank 0 tries in turn
    token: str = ""  # names this start, so that two jobs on one machine never mix


def find_place(config: Config) -> Place | None:
    """Returns this process's place, or None where `config` starts the ranks. Raises ConfigError if they disagree."""
    place = discover()
    if place is not None and place.size != config.nodes:
        raise ConfigError(
            f"nodes={config.nodes}, but the launcher started {place.size} ranks; type nodes={place.size}, "
            f"or start {config.nodes} ranks"
        )
    if place is not None and config.cluster.name == "lab":  # no link would be shaped, and seconds said to be measured
        raise ConfigError(
            f"cluster=lab starts its ranks itself, on one machine, but a launcher started {place.size}; "
            "leave torchrun or srun out, or type cluster=environment"
        )
    if place is None and config.cluster.name == "environment":
        raise ConfigError("cluster=environment, but neither torchrun nor srun started this; type cluster=local")
    return place


def cpus_of_task() -> int | None:
    """Returns how many cores SLURM was asked to give each task; None where it was not asked, or a task has many ranks.

    Such a task is torchrun, which starts all ranks of its machine.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return None
    number = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return int(number) if number.isdecimal() else None


def discover(env: Mapping[str, str] = os.environ) -> Place | None:
    """Returns this process's place if torchrun or srun started it, else None.

    A job step of one task gives None: an interactive job's shell is one, and ranks may be started from there.
    """
    if _of_torchrun(env):
        keys = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        rank, size, local, local_size = (_integer(env, key) for key in keys)
        _integer(env, "MASTER_PORT")
        if "MASTER_ADDR" not in env:
            raise ConfigError(_lacks(env, "MASTER_ADDR"))
        return Place(rank, size, local, local_size)
    # sbatch sets SLURM_PROCID and SLURM_NTASKS in its script too; only srun adds SLURM_STEP_*.
    if "SLURM_STEP_NUM_TASKS" in env and env["SLURM_STEP_NUM_TASKS"] != "1":
        rank, size, local = (_integer(env, f"SLURM_{key}") for key in ("PROCID", "STEP_NUM_TASKS", "LOCALID"))
        local_size = _tasks_here(env)
        job, step = _integer(env, "SLURM_JOB_ID"), _integer(env, "SLURM_STEP_ID")
        token = f"{env.get('SLURM_CLUSTER_NAME', '')}/{job}.{step}.{env.get('SLURM_RESTART_COUNT', '0')}"
        return Place(rank, size, local, local_size, master_host(env), ports(job, step), token)
    return None


def job(env: Mapping[str, str] = os.environ) -> str | None:
    """Returns the SLURM job this process belongs to, as scontrol names it, or None.

    An array's task never gets its plain id: the last task's is the id of the whole array.
    """
    if "SLURM_ARRAY_JOB_ID" in env:
        return f"{env['SLURM_ARRAY_JOB_ID']}_{_integer(env, 'SLURM_ARRAY_TASK_ID')}"
    return env.get("SLURM_JOB_ID")


def start(env: Mapping[str, str] = os.environ) -> str | None:
    """Returns this start of this SLURM job as "JOB.RESTARTS", or None; SLURM ends one before it begins the next."""
    name = job(env)
    return name and f"{name}.{env.get('SLURM_RESTART_COUNT', '0')}"


def step(env: Mapping[str, str] = os.environ) -> str | None:
    """Returns what the ranks of one start have in common, and no other start of the same job has; None of a shell."""
    if _of_torchrun(env):
        return (
            f"torchrun {env.get('TORCHELASTIC_RUN_ID', '')} {env.get('MASTER_ADDR', '')}:{env.get('MASTER_PORT', '')}"
        )
    with suppress(ConfigError):  # half of what srun sets is refused before a run, and here somebody asks in a shell
        place = discover(env)
        return None if place is None else place.token
    return None


def outside_of_jobs(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the environment without what SLURM told this job and what the user told squeue.

    An array that is submitted from inside a job would take its binding to cores and its restarts for its own,
    squeue with SQUEUE_STATES would not tell all that waits, and sbatch with SBATCH_WAIT would answer at its end.
    """
    return {
        name: value
        for name, value in env.items()
        if name in OF_SLURM or not (name.startswith(("SLURM_", "SQUEUE_")) or name == "SBATCH_WAIT")
    }


def sbatch_goes_elsewhere() -> bool:
    """Returns whether a variable sends sbatch alone to another cluster than squeue asks."""
    return bool(os.environ.get("SBATCH_CLUSTERS"))


def first_host(nodelist: str) -> str:
    """Returns the first name of a SLURM node list: "gpu[003-4,7],m1" -> "gpu003"."""
    first = re.split(r",(?![^\[]*\])", nodelist, maxsplit=1)[0]
    return re.sub(r"\[([^],-]+)[^]]*\]", r"\1", first)


def tasks_per_node(counts: str) -> list[int]:
    """Returns how many tasks each node of a step has: "3,2(x2)" -> [3, 2, 2]."""
    groups = re.findall(r"(\d+)(?:\(x(\d+)\))?", counts)
    return [int(tasks) for tasks, times in groups for _ in range(int(times or 1))]


def master_host(env: Mapping[str, str]) -> str:
    """Returns the step's first host, where rank 0 is.

    If its name does not resolve, returns the address srun started from: in a batch job the same machine.
    """
    host = first_host(env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST", ""))
    with suppress(OSError):
        socket.getaddrinfo(host, None)
        return host
    return env.get("SLURM_LAUNCH_NODE_IPADDR", host)


def own_address() -> str:
    """Returns this machine's IPv4 address as gloo finds it: of the interface it is told, else of the machine's name.

    "" where that is unknown or leads nowhere else.
    """
    import fcntl

    SIOCGIFADDR = 0x8915
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "").partition(",")[0].encode()
    try:
        if not interface:
            address = socket.gethostbyname(socket.gethostname())
        else:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
                answer = fcntl.ioctl(any_socket.fileno(), SIOCGIFADDR, struct.pack("256s", interface[:15]))
            address = socket.inet_ntoa(answer[20:24])
        socket.create_server((address, 0)).close()  # a name may lead to a router; gloo takes the loopback there
    except OSError:
        return ""
    return "" if address.startswith("127.") else address


def ports(job: int, step: int) -> tuple[int, ...]:
    """Returns the ports a job step tries in turn; neighbouring jobs (an array's tasks) begin at different ones."""
    start = 31 * job + step
    return tuple(FIRST_PORT + (start + 997 * i) % PORTS for i in range(TRIES))


def _of_torchrun(env: Mapping[str, str]) -> bool:
    """Returns whether RANK and WORLD_SIZE are torchrun's: enroot and many batch scripts copy SLURM's numbers there."""
    if "RANK" not in env or "WORLD_SIZE" not in env:
        return False
    tasks = env.get("SLURM_STEP_NUM_TASKS")
    copied = tasks is not None and (tasks != "1" or env["WORLD_SIZE"] == "1")
    return not copied or "LOCAL_WORLD_SIZE" in env or "TORCHELASTIC_RUN_ID" in env


def _tasks_here(env: Mapping[str, str]) -> int:
    """Returns how many of a step's tasks are on this node."""
    counts, node = tasks_per_node(env.get("SLURM_STEP_TASKS_PER_NODE", "")), _integer(env, "SLURM_NODEID")
    if not counts:
        raise ConfigError(_lacks(env, "SLURM_STEP_TASKS_PER_NODE"))
    if not 0 <= node < len(counts):
        raise ConfigError(_lacks(env, "SLURM_NODEID"))
    return counts[node]


def _integer(env: Mapping[str, str], key: str) -> int:
    try:
        return int(env[key])
    except (KeyError, ValueError):
        raise ConfigError(_lacks(env, key)) from None


def _lacks(env: Mapping[str, str], key: str) -> str:
    what = f"is {env[key]!r}" if key in env else "is not set"
    return (
        f"{key} {what}, but other variables say that torchrun or srun started this process; "
        "start it with one of them, or unset RANK, WORLD_SIZE and SLURM_*"
    )
