"""Lists what the shell offers after `repro run`: keys, groups and their options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import yaml

from repro.config.groups import FIXED, GROUPS, KINDS, NESTED, allowed, choices_of, conf_folder, group_options, root_keys
from repro.config.schema import Config
from repro.config.values import hints_of


def overrides(
    before: Sequence[str], incomplete: str, own: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> list[tuple[str, str]]:
    """Returns candidates for the word under the cursor, each with a help text for the shell, such as a key's range.

    `before` holds the words of the command before it. bash splits words at "=": `model=res` arrives as "model", "=",
    "res" (and `model=` as "model", "", because click drops a lone "="), and expects only the value. Other shells
    keep the word whole. `own` has the command's own keys, and what they can be.
    """
    words = ["", "", *before]
    if words[-1] == "=":
        return _values(words[-2], "", incomplete, own)
    offered = {**dict.fromkeys(own, ""), **keys(chosen(before))}
    if not incomplete and words[-2] != "=" and words[-1] in offered:
        return _values(words[-1], "", "", own)
    name, equals, text = incomplete.partition("=")
    if equals:
        return _values(name, name + "=", text, own)
    return [(key + "=", help_text) for key, help_text in offered.items() if key.startswith(name)]


def _values(key: str, prefix: str, text: str, own: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Completes the last of the comma-separated values in `text`."""
    done, comma, last = text.rpartition(",")
    known = own[key] if key in own else values(key)
    return [(f"{prefix}{done}{comma}{value}", "") for value in known if value.startswith(last)]


def chosen(before: Sequence[str]) -> dict[str, str]:
    """Returns the option of each group chosen so far, or else the default of config.yaml."""
    defaults: dict[str, str] = {}
    for entry in yaml.safe_load((conf_folder() / "config.yaml").read_text())["defaults"]:
        if isinstance(entry, dict):
            defaults |= {group: option for group, option in entry.items() if option}
    words = " ".join(before).replace(" = ", "=").split()
    return defaults | {k: v for k, _, v in (word.partition("=") for word in words) if k in GROUPS}


def keys(groups: dict[str, str]) -> dict[str, str]:
    """Returns groups, root keys and the chosen options' own keys, each with its range or choices in words."""
    offered = {**dict.fromkeys(GROUPS, ""), **{key: allowed(key, {}) for key in root_keys()}}
    for group, option in groups.items():
        path = conf_folder() / group / f"{option}.yaml"
        if group == "experiment" or not path.exists():
            continue
        settings = yaml.safe_load(path.read_text())
        settings = settings.get(group, settings)
        offered |= {f"{group}.{key}": allowed(f"{group}.{key}", settings) for key in settings if key not in FIXED}
    return offered


def values(key: str) -> list[str]:
    """Returns the values that a key can take, if they can be listed."""
    if key in GROUPS:
        return group_options(key)
    group, _, option = key.partition(".")
    if option and group in GROUPS:
        for path in sorted((conf_folder() / group).glob("*.yaml")):
            file: dict[str, Any] = yaml.safe_load(path.read_text()) or {}
            settings = file.get(group, file)
            if option in settings.get("choices", {}):
                return [str(choice) for choice in settings["choices"][option]]
            if isinstance(settings.get(option), bool):
                return ["true", "false"]
    hints = hints_of({**KINDS, **NESTED}.get(group, Config))
    return [str(choice) for choice in choices_of(hints.get(option or key))]
