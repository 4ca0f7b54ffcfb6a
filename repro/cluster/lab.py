"""Emulates a cluster: every rank has its own network namespace, on links shaped to a bandwidth (Linux).

    rank 0: eth0 ==veth== node0 -+
    rank 1: eth0 ==veth== node1 -+- bridge, in a namespace of its own: the switch
    ...

Both ends of each veth pair hold a token bucket (`tbf`), so either direction carries `bits_per_s` and no
more, headers included, and two ranks that send to one node at once share its link. No namespace has a name or
a file: the launcher holds the switch open and each rank its own, so the kernel removes all of them with the
last of these processes, however it ends, and two labs cannot meet. The lab needs root, or a kernel that lets
users make namespaces.

A full bucket sends its first 0.4 ms of line time at once. So a message below 48 KB (at 1 Gbps) takes time for
its size only when others go before it, and after a pause a large one is 0.4 ms faster. With buckets of 32 KB,
two cores served them too late to keep links of 8 nodes full. Alpha is the latency of this machine's TCP, which
`repro bench network` measures; cluster.delay_s adds to it, where the kernel has `netem`.
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
from typing import Any

from repro.cluster import namespaces, tcp
from repro.config.parts import DILATIONS
from repro.config.schema import ConfigError

INTERFACE = "eth0"
LEAST_BITS_PER_S = 1e5  # a frame then takes an eighth of a second
MOST_BITS_PER_S = 8.0 * (2**32 - 1)  # pyroute2 hands over a bucket's bytes per second in 32 bits
BURST_S = 393e-6  # a bucket's depth in line time
LARGEST = 2 / 3  # the share of a bucket that TCP hands over at once; the rest bridges a timer that is late
BURST_BYTES = 4096, 1 << 17  # the smallest bucket (two and a half frames) and the largest
DELAYED = 1 << 17  # packets that netem may hold back at once; it drops the others
QUEUE_BYTES = 64 << 20  # before a bucket; longer than the windows of two senders, as a lost packet costs TCP 200 ms
FIRST_ADDRESS = ip_address("10.83.0.1")
PREFIX = 16
NETWORK = f"10.83.0.0/{PREFIX}"
PR_SET_TIMERSLACK = 29


@dataclass(frozen=True)
class Lab:
    """A switch that any process of this user can join as a rank, while the launcher lives."""

    bits_per_s: float
    network: str  # path of the switch's network namespace
    user: str | None  # path of the user namespace that owns it; None = made by root
    delay_s: float = 0.0  # one way, added to the machine's own latency
    dilation: float = 1.0  # D: everything lasts D times as long, and links carry 1/D of `bits_per_s`
    held: bool = False  # receivers hold messages (comm.sockets), and TCP is set for it

    @property
    def line_bits_per_s(self) -> float:
        return self.bits_per_s / self.dilation


@contextmanager
def lab(bits_per_s: float, delay_s: float = 0.0, dilation: float = 1.0, held: bool = False) -> Iterator[Lab]:
    """Makes a switch with links of `bits_per_s`. Raises ConfigError where this machine cannot have one."""
    if not 0 <= delay_s <= 1:
        raise ConfigError(f"cluster.delay_s={delay_s:g}: must be at least 0 and at most 1, in seconds")
    check_rate(bits_per_s, dilation)
    if not sys.platform.startswith("linux"):
        raise ConfigError(f"cluster=lab needs Linux network namespaces, and this is {sys.platform}; type cluster=local")
    with suppress(ImportError):
        import pyroute2  # noqa: F401
    if "pyroute2" not in sys.modules:
        raise ConfigError("cluster=lab needs pyroute2: pip install pyroute2, or type cluster=local")
    with namespaces.made() as (network, user):
        here = f"/proc/{os.getpid()}/fd"
        yield Lab(bits_per_s, f"{here}/{network}", None if user is None else f"{here}/{user}", delay_s, dilation, held)


def check_rate(bits_per_s: float, dilation: float | str = 1.0) -> None:
    """Raises ConfigError for links too slow for the ranks to find each other soon, or too fast for the kernel.

    A dilation of "auto" makes fast links slow enough, and is found among those that slow ones allow.
    """
    slow = 1.0 if dilation == "auto" else float(dilation)
    if bits_per_s / slow < LEAST_BITS_PER_S:
        by = f" / cluster.dilation, which is {bits_per_s:g} / {slow:g}" if slow != 1 else f", which is {bits_per_s:g}"
        less = "a smaller cluster.dilation, or " if slow != 1 else ""
        raise ConfigError(
            f"cluster=lab shapes its links to network.bits_per_s{by}: must be at least {LEAST_BITS_PER_S:g}; "
            f"type {less}network.bits_per_s=1e9"
        )
    slow = float(DILATIONS[-1]) if dilation == "auto" else slow
    if bits_per_s / slow > MOST_BITS_PER_S:
        at = "" if slow == 1 else f" with time dilated {slow:g} times"
        possible = bits_per_s / DILATIONS[-1] <= MOST_BITS_PER_S
        instead = "cluster.dilation=auto" if possible else "network.bits_per_s=1e11 cluster.dilation=auto"
        raise ConfigError(
            f"cluster=lab: a link of network.bits_per_s={bits_per_s:g} is too fast for it, which carries at most "
            f"{MOST_BITS_PER_S * slow:.3g}{at}; type {instead}"
        )


def address(rank: int) -> str:
    return str(FIRST_ADDRESS + rank)


def hardware_address(rank: int) -> str:
    return f"02:00:0a:53:{rank // 256:02x}:{rank % 256:02x}"


def enter(switch: Lab, rank: int, size: int = 0) -> str:
    """Puts this process on the switch as `rank` and returns its address; it knows where the others of `size` are.

    Asking for them (ARP) would fail with more than 1,024 pairs in all labs of a machine, which share one table.
    Call it in a process of its own before another thread starts: threads keep the namespaces they began with.
    Raises ConfigError where this kernel lacks what that takes, as netem for a delay.
    """
    from pyroute2 import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError

    # open both before joining either: inside the user namespace the launcher's descriptors belong to another user
    spaces = [(switch.user, namespaces.USER), (switch.network, namespaces.NETWORK)]
    opened = [(os.open(path, os.O_RDONLY | os.O_CLOEXEC), kind) for path, kind in spaces if path is not None]
    for descriptor, kind in opened:
        namespaces.call("setns", descriptor, kind)
        os.close(descriptor)
    try:
        with IPRoute() as hub:
            namespaces.call("unshare", namespaces.NETWORK)
            bridge = _bridge(hub)
            with IPRoute() as node, open("/proc/thread-self/ns/net") as home:
                port_name = f"node{rank}"
                peer = {"ifname": INTERFACE, "address": hardware_address(rank), "net_ns_fd": home.fileno()}
                hub.link("add", ifname=port_name, kind="veth", peer=peer)
                port = hub.link_lookup(ifname=port_name)[0]
                hub.link("set", index=port, master=bridge)
                _shape(hub, port, switch)
                wire = node.link_lookup(ifname=INTERFACE)[0]
                node.link("set", index=node.link_lookup(ifname="lo")[0], state="up")
                node.addr("add", index=wire, address=address(rank), prefixlen=PREFIX)
                _shape(node, wire, switch, switch.delay_s)
                for other in (number for number in range(size) if number != rank):
                    place = {"dst": address(other), "lladdr": hardware_address(other)}
                    node.neigh("add", ifindex=wire, state="permanent", **place)
                if switch.held:
                    tcp.dilate(node, wire, NETWORK, switch.dilation)
                    _wake_on_time()
    except NetlinkError as error:
        raise ConfigError(
            f"cluster=lab: this kernel refused a link or a queue ({error.args[-1]}). It needs veth, bridge and sch_tbf "
            "(modprobe veth bridge sch_tbf); without them type cluster=local"
        ) from None
    left = tcp.set_up(tcp.CONTROL | (tcp.SETTINGS if switch.held else {}))
    if left and rank == 0:
        print(
            f"warning: {', '.join(left)} cannot be set here (is /proc/sys read-only?): TCP keeps the machine's, and "
            "may wait where a link would not",
            file=sys.stderr,
            flush=True,
        )
    os.environ["GLOO_SOCKET_IFNAME"] = INTERFACE  # otherwise gloo looks up the machine's name
    return address(rank)


def burst(bits_per_s: float) -> int:
    """Returns how many bytes pass a full token bucket at once."""
    least, most = BURST_BYTES
    return int(min(max(bits_per_s / 8 * BURST_S, least), most))


def bytes_sent() -> int:
    """Returns how many bytes left this rank on its link: payload, acknowledgements, and the headers of every frame.

    Reads the token bucket's counter: the interface's own takes a burst of segments for one packet with one header.
    Raises ConfigError outside the lab.
    """
    from pyroute2 import IPRoute

    with IPRoute() as node:
        (wire,) = node.link_lookup(ifname=INTERFACE) or [None]
        for queue in node.get_qdiscs(wire) if wire else ():
            if queue.get_attr("TCA_KIND") == "tbf":
                return int(queue.get_attr("TCA_STATS2").get_attr("TCA_STATS_BASIC")["bytes"])
    raise ConfigError(f"this process has no shaped {INTERFACE}: bytes at the interface need cluster=lab")


def _bridge(hub: Any) -> int:
    """Returns the index of the switch's interface; the first rank to call this makes the switch."""
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        hub.link("add", ifname="switch", kind="bridge")
    except NetlinkError as error:
        if error.code != errno.EEXIST:
            raise
    index = hub.link_lookup(ifname="switch")[0]
    hub.link("set", index=index, state="up")
    return index


def _shape(ip: Any, index: int, switch: Lab, delay_s: float = 0.0) -> None:
    """Limits what this end of a link sends to its rate, after `delay_s`, and brings it up.

    Its bucket holds as many bytes as on a link that is not dilated.
    """
    from pyroute2.netlink.exceptions import NetlinkError

    depth, place = burst(switch.bits_per_s), {}
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
    rate = int(switch.line_bits_per_s / 8)
    ip.tc("add", "tbf", index, 0x10000, rate=rate, burst=depth, limit=QUEUE_BYTES, mtu=1514, **place)


def _wake_on_time() -> None:
    """Lets this thread, and those it starts, sleep to the microsecond; the kernel's own choice adds 50."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0)
