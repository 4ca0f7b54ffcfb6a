"""Says what there is to know of a run that is done already, to who asked for it again."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from repro.config.schema import Config
from repro.runs import missing, recorded, same_code, same_data, status_file


def tell(config: Config) -> None:
    for line in _lines(config):
        print(line, file=sys.stderr, flush=True)


def of_other_code(configs: Iterable[Config]) -> Iterator[str]:
    """Yields a line on each run that is done and was trained with other code than would train it now."""
    for config in configs:
        if status_file.state(config.folder) == "done" and (code := _other_code(config)):
            yield f"{config.folder} is done already, {code}."


def _other_code(config: Config) -> str:
    return same_code.told(status_file.read_object(config.folder / "provenance.json"), config)


def _lines(config: Config) -> Iterator[str]:
    before = same_data.trained_on(config.folder)
    on = f", on {before}" if before is not None and before.fingerprint else ""
    code = _other_code(config)
    again = f", {code}" if code else "; remove the folder to run it again"
    yield f"{config.folder} is done already{on}{again}."
    for text in (*missing.mended(config), recorded.missed(config)):
        if text:
            yield f"warning: {text}"
