"""What the shell offers after `repro run`: keys, groups and their options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args, get_type_hints

import yaml

from repro.choices import FIXED, GROUPS, NESTED, conf_folder, group_options, root_keys
from repro.schema import Config


def overrides(before: Sequence[str], incomplete: str) -> list[str]:
    """Candidates for the word under the cursor; `before` are the words of the command before it.

    bash splits words at "=": `model=res` arrives as "model", "=", "res" (and `model=` as "model", "", because
    click drops a lone "="), and only the value is to be given. Other shells keep the word whole.
    """
    words = ["", "", *before]
    if words[-1] == "=":
        return _values(words[-2], "", incomplete)
    if not incomplete and words[-2] != "=" and words[-1] in keys(chosen(before)):
        return _values(words[-1], "", "")
    name, equals, text = incomplete.partition("=")
    if equals:
        return _values(name, name + "=", text)
    return [key + "=" for key in keys(chosen(before)) if key.startswith(name)]


def _values(key: str, prefix: str, text: str) -> list[str]:
    """What can follow in `text`, of whose values a comma ends each but the last."""
    done, comma, last = text.rpartition(",")
    return [f"{prefix}{done}{comma}{value}" for value in values(key) if value.startswith(last)]


def chosen(before: Sequence[str]) -> dict[str, str]:
    """The groups' options chosen so far, with config.yaml's where none is."""
    defaults: dict[str, str] = {}
    for entry in yaml.safe_load((conf_folder() / "config.yaml").read_text())["defaults"]:
        if isinstance(entry, dict):
            defaults |= {group: option for group, option in entry.items() if option}
    words = " ".join(before).replace(" = ", "=").split()
    return defaults | {k: v for k, _, v in (word.partition("=") for word in words) if k in GROUPS}


def keys(groups: dict[str, str]) -> list[str]:
    """Groups, root keys, and the chosen options' own keys."""
    found = [*GROUPS, *root_keys()]
    for group, option in groups.items():
        path = conf_folder() / group / f"{option}.yaml"
        if group == "experiment" or not path.exists():
            continue
        own = yaml.safe_load(path.read_text())
        found += [f"{group}.{key}" for key in own.get(group, own) if key not in FIXED]
    return found


def values(key: str) -> list[str]:
    """The values that a key can take, where they can be listed."""
    if key in GROUPS:
        return group_options(key)
    group, _, option = key.partition(".")
    if option and group in GROUPS:
        for path in sorted((conf_folder() / group).glob("*.yaml")):
            file: dict[str, Any] = yaml.safe_load(path.read_text()) or {}
            choices = file.get(group, file).get("choices", {})
            if option in choices:
                return [str(choice) for choice in choices[option]]
    hints = get_type_hints(NESTED.get(group, Config))
    hint = hints.get(option or key)
    return ["true", "false"] if hint is bool else [str(choice) for choice in get_args(hint) if isinstance(choice, str)]
