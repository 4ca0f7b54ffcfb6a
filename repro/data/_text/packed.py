"""Loads a text that was packed into one file: numbers of words, and the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from repro.config.parts import Data
from repro.config.schema import ConfigError
from repro.data import Content, Dataset, _pack


def load(path: Path, tests: Sequence[str], held_out: str, data: Data, seed: int, again: str) -> Dataset:
    """Returns the data set of `path`, tested on the one of `tests` that is `held_out`.

    Raises ConfigError, with `again` as what to type if a bit changed.
    """
    from repro.data._text import sequences  # here: torch takes seconds to import, status does without

    arrays = _pack.read(path, ["train", held_out], again)
    train, test = (sequences.of(arrays[name], data.classes, data.sequence) for name in ("train", held_out))
    if len(test) == 0:
        raise ConfigError(
            f"{path}: its text to test with has {len(arrays[held_out])} words, less than one sample of "
            f"data.sequence={data.sequence}. Take a longer text, or a shorter sequence."
        )
    has = content(path, tests, again)
    return sequences.Text(
        name=data.name,
        description=has.description if has else data.name,
        fingerprint=has.fingerprint if has else "",
        classes=data.classes,
        image_size=0,
        seed=seed,
        train=train,
        test=test,
    )


def samples(path: Path, data: Data, again: str) -> int:
    """Returns how many training samples the text has."""
    return max(0, len(_pack.read(path, ["train"], again)["train"]) - 1) // data.sequence


def content(path: Path, tests: Sequence[str], again: str) -> Content | None:
    """Returns which text is packed in `path`, None if there is none. Its checksums say so, no word is read."""
    if not (_pack.is_there(path) and _pack.is_whole(path)):
        return None
    source = str(_pack.read(path, ["source"], again)["source"])
    description = f"{path.stem} ({source})" if source else path.stem
    return Content(description, _pack.fingerprint(path, ["train", "vocabulary", *tests], again))


def status(path: Path, tests: Sequence[str], how: str, again: str) -> dict[str, Any]:
    """Returns the row of `repro data status`; the words to test with are those of the first of `tests`."""
    told = {"path": path, "size": 0, "how": _pack.told(how, path.parent)}
    try:
        told["size"] = size = path.stat().st_size if _pack.is_there(path) else 0
        if (has := content(path, tests, again)) is None:
            return {"state": "damaged" if size else "missing", **told}
        held = _pack.read(path, ["train", "vocabulary", tests[0]], again)
    except _pack.Unreadable as error:
        return {"state": error.state, **told, "how": _pack.ASK}
    except ConfigError:
        return {"state": "damaged", **told}
    words = int(np.count_nonzero(held["vocabulary"] == ord("\n"))) + 1
    counts = (len(held["train"]), len(held[tests[0]]))
    return {
        "state": "ready", **told, "kind": "words", "classes": words, "images": counts, "fingerprint": has.fingerprint,
    }  # fmt: skip
