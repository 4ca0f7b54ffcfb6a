"""Checks whether this machine lets one user start so many ranks: open files, and tasks (processes and threads).

The counts were measured on runs of 2 to 32 ranks. What does not fit is refused before any rank starts: inside gloo or
OpenMP a limit ends the process without a helpful message.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from repro import algorithms
from repro.cluster import threads
from repro.config.schema import Config, ConfigError

FILES = 40  # that a process has open beside its connections: code, data, the run folder, the mirror
TASKS = 16  # of the launcher: itself, torch's pools, the progress bar, the mirror
UNLIMITED = sys.maxsize


def check(config: Config) -> None:
    """Lifts the soft limits to the hard ones. Raises ConfigError with the number of nodes that fit."""
    processes = config.cluster.forks
    kind, other = ("processes", "") if processes else ("threads", " or cluster=processes")
    files = lift("RLIMIT_NOFILE")
    groups = groups_of_sockets(config)
    need = functools.partial(open_files, processes=processes, groups=groups)
    _refuse(config, kind, "open files", need, files, f"`ulimit -Hn`{other}")
    room = tasks_left()
    _refuse(config, kind, "tasks more", lambda nodes: tasks(nodes, processes, config.threads or 1, groups), room,
            "`ulimit -u`, or the limit on tasks of this container or service")  # fmt: skip


def groups_of_sockets(config: Config) -> int:
    """Returns how often every two ranks are connected: averages in the background have sockets of their own."""
    if threads.in_memory(config):
        return 0
    return 2 if algorithms.delay(config.algo) else 1


def open_files(nodes: int, processes: bool, groups: int = 1) -> int:
    """Returns how many files one process opens at most: gloo connects every two ranks; each listens and has a loop."""
    return FILES + groups * (4 * nodes if processes else nodes * (nodes + 3))


def tasks(nodes: int, processes: bool, of_rank: int, groups: int = 1) -> int:
    """Returns how many tasks all ranks need.

    A rank is one, and has a heartbeat and three threads of gloo, with a second group four more; a process
    also watches its launcher and has torch's.
    """
    return TASKS + nodes * ((8 if processes else 5) + 4 * max(0, groups - 1) + of_rank - 1)


def tasks_left() -> int:
    """Returns how many more tasks this user and this control group may start."""
    rooms = [maximum - current for maximum, current in control_groups("pids", "pids.max", "pids.current")]
    if os.geteuid() and sys.platform.startswith("linux"):  # the limit does not bind root
        limit = lift("RLIMIT_NPROC")
        rooms.append(limit if limit == UNLIMITED else limit - _tasks_of(os.getuid()))
    return max(0, min(rooms, default=UNLIMITED))


def _refuse(config: Config, kind: str, what: str, need: Callable[[int], int], room: int, limit: str) -> None:
    if need(config.nodes) <= room:
        return
    fit = next((nodes for nodes in range(config.nodes - 1, 0, -1) if need(nodes) <= room), 0)
    advice = f"{fit} nodes fit: type nodes={fit}, or raise {limit}" if fit else f"not even one node fits: raise {limit}"
    raise ConfigError(
        f"nodes={config.nodes}: as {kind} they need about {need(config.nodes)} {what}, and {room} are allowed; {advice}"
    )


def lift(name: str) -> int:
    """Lifts this process's soft limit to its hard one, which needs no privileges, and returns it."""
    import resource

    kind = getattr(resource, name)
    soft, hard = resource.getrlimit(kind)
    if soft != hard:
        try:
            resource.setrlimit(kind, (hard, hard))
            soft = hard
        except (OSError, ValueError):  # macOS: the kernel has a lower one
            pass
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def _tasks_of(user: int) -> int:
    """Counts the tasks under `user`'s limit: the threads of all processes it owns."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            lines = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        except (OSError, ValueError):  # it ended meanwhile
            continue
        if int(lines["Uid"].split()[0]) == user:
            count += int(lines["Threads"])
    return count


def control_groups(controller: str, maximum: str, current: str, freed: Sequence[str] = ()) -> Iterator[tuple[int, int]]:
    """Returns (limit, use) of this process's control group and of those around it, where they have a limit.

    `freed` names what the kernel gives back when it is asked for more, in its CONTROLLER.stat: not in use.
    """
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for _, names, path in (line.split(":", 2) for line in lines):
        if names and controller not in names.split(","):
            continue
        top = Path("/sys/fs/cgroup", controller if names else "")
        folder = top / path.lstrip("/")
        for group in (folder, *folder.parents):
            try:
                limit, use = (group / maximum).read_text().strip(), (group / current).read_text().strip()
                if limit.isdigit():
                    yield int(limit), int(use) - (_sum(group / f"{controller}.stat", freed) if freed else 0)
            except OSError:
                pass
            if group == top:
                break


def _sum(file: Path, names: Sequence[str]) -> int:
    values = dict(line.split() for line in file.read_text().splitlines())
    return sum(int(values.get(name, 0)) for name in names)
