"""Downloads files despite interruptions: what has arrived stays in FILE.part, where the next try goes on."""

import hashlib
import http.client
import math
import urllib.error
import urllib.request
from pathlib import Path

from repro import screen
from repro.config.schema import ConfigError
from repro.waiting import track

CHUNK = 1 << 20


def download(url: str, path: Path, md5: str, otherwise: str) -> None:
    """Fetches `url` to `path`, whole and with this checksum, or not at all.

    Raises ConfigError that says what failed and, with `otherwise`, what else can be done.
    """
    part = path.with_name(path.name + ".part")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        _continue(url, part)
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        size = part.stat().st_size if part.is_file() else 0
        kept = f" {screen.size(size)} are kept in {part}; the same command goes on from there." if size else ""
        raise ConfigError(f"{url} could not be downloaded: {reason}.{kept} {otherwise}") from None
    if (actual := md5_of(part)) != md5:
        part.unlink()
        raise ConfigError(f"{url} gave another file: md5 {actual}, expected {md5}; deleted. {otherwise}")
    part.replace(path)


def md5_of(path: Path) -> str:
    """Returns the checksum that the archive's publisher gives; it guards against damage and mix-ups."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _continue(url: str, part: Path) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})  # noqa: S310
    try:
        response = urllib.request.urlopen(request, timeout=30)  # noqa: S310  (http or https: `prepare` looks)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing is missing; the checksum tells whether it is right
            return
        raise
    with response, part.open("ab" if response.status == 206 else "wb") as file:
        length = response.headers.get("Content-Length")
        chunks = iter(lambda: response.read(CHUNK), b"")
        text = f"downloading {url}" + (f" ({screen.size(int(length))})" if length else "")
        arrived = 0
        for chunk in track(chunks, text, math.ceil(int(length) / CHUNK) if length else None):
            arrived += file.write(chunk)
    if length and arrived < int(length):
        raise ConnectionError(f"the connection ended {screen.size(int(length) - arrived)} early")
