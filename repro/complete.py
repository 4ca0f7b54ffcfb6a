"""What the shell offers after `repro run`: keys, groups and their options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args, get_type_hints

import yaml

from repro.config import FIXED, GROUPS, conf_folder, group_options, root_keys
from repro.schema import Config, Wandb


def overrides(before: Sequence[str], incomplete: str) -> list[str]:
    """Candidates for the word under the cursor; `before` are the words of the command before it.

    bash splits words at "=": `model=res` arrives as "model", "=", "res", and only the value is to be given.
    """
    if incomplete == "=":
        return values(before[-1])
    if len(before) > 1 and before[-1] == "=":
        done, comma, last = incomplete.rpartition(",")
        return [done + comma + value for value in values(before[-2]) if value.startswith(last)]
    name, equals, text = incomplete.partition("=")
    if not equals:
        return [key + "=" for key in keys(chosen(before)) if key.startswith(name)]
    done, comma, last = text.rpartition(",")
    return [f"{name}={done}{comma}{value}" for value in values(name) if value.startswith(last)]


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
        own = own["model"] if group == "model" else own
        found += [f"{group}.{key}" for key in own if key not in FIXED]
    return found


def values(key: str) -> list[str]:
    """The values that a key can take, where they can be listed."""
    if key in GROUPS:
        return group_options(key)
    group, _, option = key.partition(".")
    if option and group in GROUPS:
        for path in sorted((conf_folder() / group).glob("*.yaml")):
            choices = (yaml.safe_load(path.read_text()) or {}).get("choices", {})
            if option in choices:
                return [str(choice) for choice in choices[option]]
    hints = get_type_hints(Wandb) if group == "wandb" else get_type_hints(Config)
    hint = hints.get(option or key)
    return (
        ["true", "false"]
        if hint is bool
        else [str(choice) for choice in get_args(hint) if isinstance(choice, str)]
    )
