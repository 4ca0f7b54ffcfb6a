"""Says what a key does, its default, its range and its source: from the comments of conf/, where they stand once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from repro.config import groups
from repro.config.compose import declared

LINE = re.compile(r"^( *)([\w.]+):(?: (.*?))?(?:\s+# (.*))?$")
MEANING = re.compile(r"^# ([\w.]+): (.+)$")  # in config.yaml, of a key whose own line says only its source


class Line(NamedTuple):
    """A key of a YAML file, dotted, its value as it is written there, and the comment behind it."""

    key: str
    value: str
    comment: str


def lines(path: Path) -> Iterator[Line]:
    above: list[tuple[int, str]] = []
    for line in path.read_text().splitlines():
        match = LINE.match(line)
        if not match or line.lstrip().startswith("#"):
            continue
        indent, key = len(match[1]), match[2]
        above = [one for one in above if one[0] < indent]
        yield Line(".".join([name for _, name in above] + [key]), match[3] or "", match[4] or "")
        above.append((indent, key))


def meanings() -> dict[str, str]:
    """Returns what keys do, of those that config.yaml says it of at its top."""
    text = (groups.conf_folder() / "config.yaml").read_text().splitlines()
    return {match[1]: match[2] for line in text if (match := MEANING.match(line))}


def head(group: str, name: str) -> str:
    """Returns the comment that the file of an option begins with."""
    text = (groups.conf_folder() / group / f"{name}.yaml").read_text().splitlines()
    comment = [line.removeprefix("#").strip() for line in text if line.startswith("#") and "@package" not in line]
    return " ".join(comment)


def explain(key: str) -> Iterator[str]:
    """Yields lines about a key, or about a group and its choices. Raises ConfigError where there is no such key."""
    group, _, name = key.partition("=")
    if name and group in groups.GROUPS:
        groups.check_option(group, name)
        yield f"{key}: {head(group, name)}"
        own = sorted({f"{group}.{each}" for each in declared(group, name)}.intersection(options()))
        if own:
            yield f"  has the keys {', '.join(own)}; --explain {own[0]} explains one"
        return
    if key in groups.GROUPS:
        yield f"{key}: one of the files of conf/{key}/"
        for name in groups.group_options(key):
            yield f"  {key}={name}: {head(key, name)}"
        return
    groups.check_fixed(key, f"--explain {key}")
    if key in groups.NESTED:
        own = [name for name in groups.root_keys() if name.startswith(f"{key}.")]
        yield f"{key}: has the keys {', '.join(own)}; --explain {own[0]} explains one"
        return
    where = list(_where(key))
    if key not in groups.root_keys():
        groups.check_key(key, [*groups.root_keys(), *options()], f"--explain {key}")
    config, meaning = groups.conf_folder() / "config.yaml", meanings().get(key)
    comments = [line.comment for _, line in where if line.comment]
    nothing = f"conf/{where[0][0].parent.name}/{where[0][0].name} says nothing of it: write a comment behind it"
    yield f"{key}: {meaning or next(iter(comments), nothing)}"
    group = key.rpartition(".")[0]
    files = [path for path, _ in where if path.parent.name == group]
    allowed = groups.allowed(key, declared(group, files[0].stem) if files else {})
    if allowed:
        yield f"  allowed: {allowed}"
    for path, line in where:
        setting = "default" if path == config else f"{path.parent.name}={path.stem}"
        said = beside(line.comment, allowed) if path != config or meaning else ""
        yield f"  {setting}: {line.value}{f'  # {said}' if said else ''}"


def beside(comment: str, allowed: str) -> str:
    """Returns a comment without the choices that it begins with, where they are told beside it."""
    return comment.removeprefix(allowed).lstrip(":; ")


def _where(key: str) -> Iterator[tuple[Path, Line]]:
    """Yields the files of conf/ that set a key, config.yaml first."""
    conf = groups.conf_folder()
    for line in lines(conf / "config.yaml"):
        if line.key == key and key not in groups.GROUPS:
            yield conf / "config.yaml", line
    for path in sorted(conf.glob("*/*.yaml")):
        at_root = "@package _global_" in path.read_text()
        for line in lines(path):
            told = line.key if at_root else f"{path.parent.name}.{line.key}"
            if told == key and line.key.rpartition(".")[2] not in groups.FIXED:
                yield path, line


def options() -> list[str]:
    """Returns the options of every group, as `algo.route`."""
    found = []
    for group in groups.KINDS:
        for name in groups.group_options(group):
            found += [f"{group}.{key}" for key in declared(group, name) if key not in groups.FIXED]
    return list(dict.fromkeys(found))
