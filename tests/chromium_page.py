"""A page in headless Chromium, driven over a pipe by the DevTools protocol: no driver and no package
needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """One tab. `requests` and `complaints` hold what it asked for and what its console said."""

    def __init__(self, reader: int, writer: int):
        self.reader, self.writer, self.buffer, self.last, self.session = reader, writer, b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    @property
    def requests(self) -> list[str]:
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    @property
    def complaints(self) -> list[Any]:
        return [
            e
            for e in self.events
            if e["method"] in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        ]

    def open(self, file: Path, width: int, dark: bool = False) -> None:
        phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=file.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._take(self._read())

    def evaluate(self, expression: str) -> Any:
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._take(answer)

    def _take(self, message: dict[str, Any]) -> None:
        if "method" in message:
            self.events.append(message)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            part = os.read(self.reader, 1 << 16)
            if not part:
                raise RuntimeError("Chromium ended")
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)


@contextmanager
def chromium(folder: Path) -> Iterator[Page]:
    """`folder` holds the browser's profile."""
    if CHROMIUM is None:
        pytest.skip("no chromium: apt-get install chromium")
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()

    def wires() -> None:
        """The browser reads its commands from descriptor 3 and answers on 4."""
        first, second = os.dup(to_read), os.dup(from_write)
        os.dup2(first, 3)
        os.dup2(second, 4)

    options = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--remote-debugging-pipe",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-dev-shm-usage",
        f"--user-data-dir={folder}",
    ]
    process = subprocess.Popen(
        [CHROMIUM, *options],
        preexec_fn=wires,
        close_fds=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(from_write)
    try:
        yield Page(from_read, to_write)
    finally:
        process.terminate()
        process.wait(timeout=20)
        os.close(to_write)
        os.close(from_read)
