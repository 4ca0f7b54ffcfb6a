"""Whether seconds of two summaries may be pooled: only those of one kind of machine that runs at one speed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from repro.config.schema import ConfigError

WHAT = ("cpu", "processor", "allocator", "gpus", "device")
SPEED_STEP = 1.3  # machines whose measured rates are within this factor count as one speed


def kinds(machines: Sequence[dict[str, Any]]) -> list[int]:
    """Returns a number for each machine: the same for those that are alike, or that others between them make so."""
    numbers = list(range(len(machines)))
    for i, one in enumerate(machines):
        for j in range(i):
            if numbers[j] != numbers[i] and alike(one, machines[j]):
                numbers = [numbers[i] if number == numbers[j] else number for number in numbers]
    return numbers


def alike(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Returns whether both are of one processor, and no rate of theirs differs by more than the step.

    Summaries that were made before `processor` and `rates` were measured are alike where the processor's name is.
    """
    rates, others = (machine.get("rates") or {} for machine in (a, b))
    same = all(a.get(name) == b.get(name) for name in WHAT) and rates.keys() == others.keys()
    return same and all(max(rates[name], others[name]) <= SPEED_STEP * min(rates[name], others[name]) for name in rates)


def check_added(
    file: Path, before: dict[str, Any], here: dict[str, Any], timed: Collection[str], asked: Iterable[str]
) -> None:
    """Raises ConfigError if one of `asked` would be timed here, and `file` holds what another machine timed."""
    new = [name for name in dict.fromkeys(asked) if name not in timed]
    if timed and new and not alike(before, here):
        raise ConfigError(
            f"{file} was timed on another kind of machine ({before.get('cpu')}), and {', '.join(new)} would be timed "
            f"on this one ({here.get('cpu')}). Name another file with --out."
        )


def gpus(machine: dict[str, Any]) -> list[str]:
    """Returns the GPUs of a machine on which a run computed; none where it computed beside them."""
    computed = str(machine.get("device", "cuda")).startswith("cuda")
    return list(machine.get("gpus") or []) if computed else []


def processor(machine: dict[str, Any]) -> str | None:
    """Returns which processor timed a run, as a name like "AMD EPYC" is that of several; None where it is unknown.

    Where it computed on a GPU, that is the processor.
    """
    if own := gpus(machine):
        return own[0]
    known = machine.get("processor") or {}
    if "family" not in known:
        return known.get("name")
    return f"{known['vendor']} family {known['family']} model {known['model']}"
