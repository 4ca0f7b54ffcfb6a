"""Sets TCP for links on which time is dilated: its timers do not know that everything lasts D times as long.

- After a pause of a retransmission time-out TCP forgets its window. Compute that lasts D times as long would make
  pauses that the paper's never had: `tcp_slow_start_after_idle=0`, and windows that begin large.
- A receiver acknowledges after up to 40 ms: at once (`quickack`), since that wait cannot be dilated.
- A packet counts as lost after 200 ms at least, but a queue takes D times as long to drain: `rto_min` is D times that.
- A message of up to half a megabyte can come before its receiver asks for it. Of a larger one the rest waits, as with
  MPI: it would take the link from the message that the receiver waits for. With windows of 32 MB ByteGrad's exchange of
  VGG-16 took up to 1.8 times as long, more with every iteration, as a rank that was late made others late.
- Other queues and buffers stay what they are in bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

RTO_MS = 200  # Linux's own minimum
LOCK = 1 << 13  # RTAX_RTO_MIN, by its number: the kernel takes no rto_min of a route that is not locked
WINDOW = 1000  # segments, 1.4 MB
CONTROL = {  # the machine's may be one that paces (bbr): every kernel has reno, and without losses all fill the link
    "tcp_congestion_control": "reno",
}
SETTINGS = {
    "tcp_slow_start_after_idle": "0",
    "tcp_no_metrics_save": "1",  # else a connection would begin with what an earlier one met
    "tcp_rmem": "4096 1048576 1048576",  # half of it is window
    "tcp_wmem": "4096 4194304 33554432",
    "tcp_limit_output_bytes": "1048576",  # before the bucket, of one connection: less than its queue holds
}


def dilate(node: Any, wire: int, network: str, dilation: float) -> None:
    """Sets the routes of this process's network namespace.

    `node` is its netlink, `wire` the interface, `network` its prefix.
    """
    metrics = {"initcwnd": WINDOW, "initrwnd": WINDOW, "quickack": 1, "rto_min": int(RTO_MS * dilation), "lock": LOCK}
    node.route("replace", dst=network, oif=wire, scope="link", proto="kernel", metrics=metrics)


def set_up(settings: dict[str, str]) -> list[str]:
    """Sets this process's network namespace; returns what stayed as it was, where /proc/sys is read-only for one."""
    left = []
    for name, value in settings.items():
        file = Path(f"/proc/sys/net/ipv4/{name}")
        try:
            file.write_text(value)
        except OSError:  # or a kernel that has it for the whole machine only
            if not file.exists() or file.read_text().split() != value.split():
                left.append(name)
    return left
