"""Writes the reference pages: every key of conf/ with default, range, meaning and source, and every command's help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from repro import tables
from repro.config import compose, explain, groups

BY_MODEL = "by the model"


def keys() -> str:
    """Returns a table of the keys that are in no group."""
    documented = {line.key: line for line in explain.lines(groups.conf_folder() / "config.yaml")}
    rows, meanings = [], explain.meanings()
    for name in groups.root_keys():
        _, value, comment = documented.get(name, explain.Line(name, BY_MODEL, ""))
        allowed = groups.allowed(name, {})
        shown = value if value == BY_MODEL else f"`{value}`"
        told = _told(meanings.get(name), comment, allowed)
        rows.append({"key": f"`{name}`", "default": shown, "allowed": allowed, "meaning and source": told})
    return tables.to_markdown(rows)


def options(group: str) -> str:
    """Returns one section for each file of conf/GROUP; an experiment's section is the file itself."""
    sections = []
    for name in groups.group_options(group):
        if group == "experiment":
            text = (groups.conf_folder() / group / f"{name}.yaml").read_text()
            sections.append(f"### {group}={name}\n\n```yaml\n{text}```\n")
            continue
        own = f"{explain.head(group, name)}\n\n{option_keys(group, name)}"
        sections.append(f"### {group}={name}\n\n{own}".rstrip() + "\n")
    return "\n".join(sections)


def experiments() -> str:
    """Returns a row for each experiment: what it is for, and what it costs."""
    rows = []
    for name in groups.group_options("experiment"):
        text = (groups.conf_folder() / "experiment" / f"{name}.yaml").read_text()
        what = explain.head("experiment", name).partition(" Cost: ")[0]
        cost = text.partition("# Cost: ")[2].partition("\n")[0]
        rows.append({"experiment": f"[`{name}`](#experiment{name.lower()})", "what": what, "cost": cost})
    return tables.to_markdown(rows)


def option_keys(group: str, name: str) -> str:
    """Returns a table of the file's own keys; "" where it has none."""
    path = groups.conf_folder() / group / f"{name}.yaml"
    declared = compose.declared(group, name)
    rows, own = [], {key: text for key, text in explain.meanings().items() if key.startswith(f"{group}.")}
    for key, value, comment in explain.lines(path):
        last = key.rpartition(".")[2]
        hidden = (
            last in groups.FIXED
            or {"choices", "ranges"} & set(key.split("."))
            or key.split(".")[0] in ("defaults", "sweep")
        )
        if hidden or not value:
            continue
        at_root = "@package _global_" in path.read_text() or "." in key
        shown = key if at_root else f"{group}.{key}"
        rows.append({
            "key": f"`{shown}`",
            "default": f"`{value}`",
            "allowed": (allowed := groups.allowed(shown, declared)),
            "meaning and source": _told(own.get(shown), comment, allowed),
        })  # fmt: skip
    return tables.to_markdown(rows)


def _told(meaning: str | None, comment: str, allowed: str) -> str:
    return "; ".join(part for part in (meaning, explain.beside(comment, allowed)) if part)


def commands(root: Any) -> str:
    """Returns a section for each command below `root`, the group of the whole program: help, arguments, options."""
    return "\n".join(_command(context) for context in _contexts(typer.Context(root, info_name="repro")))


def _contexts(context: typer.Context) -> Iterator[typer.Context]:
    """Yields the contexts of the commands below, but not those of groups."""
    group = cast(TyperGroup, context.command)
    for name in group.list_commands(context):
        command = cast(TyperCommand, group.get_command(context, name))
        below = typer.Context(command, info_name=name, parent=context)
        if isinstance(command, TyperGroup):
            yield from _contexts(below)
        else:
            yield below


def _command(context: typer.Context) -> str:
    command = context.command
    title = context.command_path
    usage = command.collect_usage_pieces(context)
    parts = [f"## {title}\n", f"```text\n{' '.join([title, *usage])}\n```\n"]
    for paragraph in re.split(r"\n\s*\n", (command.help or "").strip()):
        examples = paragraph.startswith("\b")
        text = paragraph.strip("\b\n")
        parts.append(f"```text\n{text}\n```\n" if examples else f"{' '.join(text.split())}\n")
    records = [param.get_help_record(context) for param in command.get_params(context)]
    parts += [f"- `{' '.join(names.split())}` {' '.join(text.split())}" for names, text in filter(None, records)]
    return "\n".join(parts) + "\n"
