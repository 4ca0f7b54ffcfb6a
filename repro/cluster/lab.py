"""The emulated cluster: every rank in a network namespace of its own, on links shaped to a bandwidth (Linux).

    rank 0: eth0 ==veth== node0 -+
    rank 1: eth0 ==veth== node1 -+- bridge, in a namespace of its own: the switch
    ...

Both ends of each veth pair hold a token bucket (`tbf`), so either direction carries `bits_per_s` and no
more, headers included, and two that send to one node at once share its link. No namespace has a name or a
file: the launcher holds the switch open and each rank its own, so the kernel takes all of it down with the
last of these processes, however they end, and two labs cannot meet. It needs root, or a kernel that lets
users make namespaces.

A full bucket lets its first 0.4 ms pass at once. So a message below 48 KB (at 1 Gbps) pays for its size
only when others go before it, and after a pause a large one is that much faster. With 32 KB, two cores
served the buckets too late to keep links of 8 nodes full. Alpha is what this machine's TCP takes, and
`repro bench network` measures it; cluster.delay_s holds every message back for longer, where the kernel has `netem`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from repro.schema import ConfigError

INTERFACE = "eth0"
BURST_S = 393e-6  # a bucket's depth in line time
LARGEST = 2 / 3  # of a bucket, that TCP hands over at once: what is left of it bridges a timer that is late
BURST_BYTES = 4096, 1 << 17  # its least (two frames and a half) and its most
DELAYED = 1 << 17  # packets that may be under way at once; netem drops what is more
QUEUE_BYTES = 4 << 20  # before a bucket; deep, as a lost packet would cost TCP's 200 ms
FIRST_ADDRESS = ip_address("10.83.0.1")
PREFIX = 16
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000


@dataclass(frozen=True)
class Lab:
    """A switch that ranks can join; any process of this user can, while the launcher lives."""

    bits_per_s: float
    network: str  # path of the switch's network namespace
    user: str | None  # path of the user namespace that owns it; None = made by root
    delay_s: float = 0.0  # one way, beside what the machine takes


@contextmanager
def lab(bits_per_s: float, delay_s: float = 0.0) -> Iterator[Lab]:
    """A switch with links of `bits_per_s`. Raises ConfigError where this machine cannot have one."""
    if not 0 <= delay_s <= 1:
        raise ConfigError(f"cluster.delay_s={delay_s:g}: must be at least 0 and at most 1, in seconds")
    if bits_per_s <= 0:
        raise ConfigError(
            f"cluster=lab shapes its links to network.bits_per_s, which is {bits_per_s:g}; type network.bits_per_s=1e9"
        )
    if not sys.platform.startswith("linux"):
        raise ConfigError(f"cluster=lab needs Linux network namespaces, and this is {sys.platform}; type cluster=local")
    with suppress(ImportError):
        import pyroute2  # noqa: F401
    if "pyroute2" not in sys.modules:
        raise ConfigError("cluster=lab needs pyroute2: pip install pyroute2, or type cluster=local")
    with _namespaces() as (network, user):
        here = f"/proc/{os.getpid()}/fd"
        yield Lab(bits_per_s, f"{here}/{network}", None if user is None else f"{here}/{user}", delay_s)


def address(rank: int) -> str:
    return str(FIRST_ADDRESS + rank)


def enter(switch: Lab, rank: int) -> str:
    """Put this process on the switch as `rank` and return its address.

    Call it in a process of its own before another thread starts: threads keep the namespaces they began with.
    Raises ConfigError where the switch has a delay and this kernel no netem.
    """
    from pyroute2 import IPRoute

    if switch.user is not None:
        _join(switch.user, CLONE_NEWUSER)
    _join(switch.network, CLONE_NEWNET)
    with IPRoute() as hub:
        _call("unshare", CLONE_NEWNET)
        bridge = _bridge(hub)
        with IPRoute() as own, open("/proc/thread-self/ns/net") as home:
            port_name = f"node{rank}"
            peer = {"ifname": INTERFACE, "net_ns_fd": home.fileno()}
            hub.link("add", ifname=port_name, kind="veth", peer=peer)
            port = hub.link_lookup(ifname=port_name)[0]
            hub.link("set", index=port, master=bridge)
            _shape(hub, port, switch.bits_per_s)
            wire = own.link_lookup(ifname=INTERFACE)[0]
            own.link("set", index=own.link_lookup(ifname="lo")[0], state="up")
            own.addr("add", index=wire, address=address(rank), prefixlen=PREFIX)
            _shape(own, wire, switch.bits_per_s, switch.delay_s)
    # The congestion control of the machine may be one that paces (bbr); reno is in every kernel and in every
    # namespace's gift, and without losses all of them fill the link.
    with suppress(OSError):
        Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text("reno")
    os.environ["GLOO_SOCKET_IFNAME"] = INTERFACE  # otherwise gloo looks up the machine's name
    return address(rank)


def burst(bits_per_s: float) -> int:
    """Bytes that pass a full token bucket at once."""
    least, most = BURST_BYTES
    return int(min(max(bits_per_s / 8 * BURST_S, least), most))


def bytes_sent() -> int:
    """What has left this rank on its link: payload, acknowledgements, and the headers of every frame.

    By the token bucket's counter: the interface's own takes a burst of segments for one packet with one
    header.
    """
    from pyroute2 import IPRoute

    with IPRoute() as own:
        (wire,) = own.link_lookup(ifname=INTERFACE) or [None]
        for queue in own.get_qdiscs(wire) if wire else ():
            if queue.get_attr("TCA_KIND") == "tbf":
                return int(queue.get_attr("TCA_STATS2").get_attr("TCA_STATS_BASIC")["bytes"])
    raise ConfigError(f"this process has no shaped {INTERFACE}: bytes at the interface need cluster=lab")


def _bridge(hub: Any) -> int:
    """The switch, made by whoever comes first."""
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        hub.link("add", ifname="switch", kind="bridge")
    except NetlinkError as error:
        if error.code != errno.EEXIST:
            raise
    index = hub.link_lookup(ifname="switch")[0]
    hub.link("set", index=index, state="up")
    return index


def _shape(ip: Any, index: int, bits_per_s: float, delay_s: float = 0.0) -> None:
    """Hold what this end sends to `bits_per_s`, after `delay_s`, and bring it up."""
    from pyroute2.netlink.exceptions import NetlinkError

    depth, place = burst(bits_per_s), {}
    # TCP hands over up to 64 KB at once; more than a bucket holds would be cut up, at ten times the work.
    ip.link("set", index=index, state="up", gso_max_size=min(int(depth * LARGEST), 1 << 16))
    if delay_s:
        try:
            ip.tc("add", "netem", index, 0x20000, delay=round(delay_s * 1e6), limit=DELAYED)
        except NetlinkError as error:
            raise ConfigError(
                f"cluster.delay_s={delay_s:g}: this kernel has no netem ({error.args[-1]}). Load it "
                "(modprobe sch_netem), or leave cluster.delay_s out: latency is then what this machine's TCP takes"
            ) from None
        place = {"parent": 0x20001}
    ip.tc("add", "tbf", index, 0x10000, rate=int(bits_per_s / 8), burst=depth, limit=QUEUE_BYTES, mtu=1514, **place)


@contextmanager
def _namespaces() -> Iterator[tuple[int, int | None]]:
    """File descriptors of a fresh network namespace and, without root, of the user namespace around it.

    A child makes them and is gone once they are held here. It only makes system calls, as it may be the
    fork of a process with threads.
    """
    ready, made = os.pipe()
    wait, leave = os.pipe()
    uid, gid = os.geteuid(), os.getegid()
    child = os.fork()
    if child == 0:
        try:
            os.close(leave)
            os.write(made, _make(uid, gid))
            os.read(wait, 1)
        finally:
            os._exit(0)
    os.close(made)
    os.close(wait)
    held: list[int] = []
    try:
        answer = os.read(ready, 80).decode()
        if answer not in ("root", "user"):
            raise ConfigError(
                f"cluster=lab cannot make network namespaces here ({answer or 'no answer'}): be root, "
                "or allow user namespaces (sysctl user.max_user_namespaces), or type cluster=local"
            )
        for kind in ("net", "user")[: 1 if answer == "root" else 2]:
            held.append(os.open(f"/proc/{child}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC))
        os.close(leave)
        leave = -1
        os.waitpid(child, 0)
        yield held[0], held[1] if len(held) > 1 else None
    finally:
        if leave >= 0:
            os.close(leave)
            os.waitpid(child, 0)
        os.close(ready)
        for descriptor in held:
            os.close(descriptor)


def _make(uid: int, gid: int) -> bytes:
    """In the child: enter new namespaces; say how, or why not."""
    try:
        with suppress(PermissionError):
            _call("unshare", CLONE_NEWNET)
            return b"root"
        _call("unshare", CLONE_NEWUSER | CLONE_NEWNET)
        for file, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            Path(f"/proc/self/{file}").write_text(text)
        return b"user"
    except OSError as error:
        return str(error.strerror).encode()[:80]


def _join(path: str, kind: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _call("setns", descriptor, kind)
    finally:
        os.close(descriptor)


def _call(name: str, *arguments: int) -> None:
    """A system call that Python has from 3.12 on only. Raises OSError."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
