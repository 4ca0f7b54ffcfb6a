"""Splits the KEY=VALUE words that commands take, and completes them in the shell."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from repro.config.schema import Config


UNREAD = (  # where nothing is trained; "wandb." is every wandb.KEY
    "steps", "epochs", "seed", "lr", "lr_warmup_epochs", "lr_warmup_from", "lr_drops", "lr_drop_factor",
    "momentum", "weight_decay", "weight_decay_of", "clip_grad", "schedule_epochs", "scale_schedule",
    "density_warmup", "on_nonfinite", "also_on", "evaluate_every", "checkpoint_epochs", "checkpoint_every",
    "compare_every", "probe_steps", "results", "wandb.", "scope", "cuda_graph", "timeout_s", "on_bad_image",
    "cluster.messages", "cluster.delay_s", "cluster.dilation", "cluster.alpha",
)  # fmt: skip
ELSEWHERE = "; --out says where the predictions go"


def take(words: Iterable[str] | None, own: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Returns the values of a command's own keys, by default those of `own`, and all other words as they are."""
    values, rest = dict(own), []
    for word in words or []:
        key, equals, value = word.partition("=")
        if equals and key in own:
            values[key] = value
        else:
            rest.append(word)
    return values, rest


def refuse(typed: Sequence[str] | None, keys: Sequence[str], reason: str, instead: str = "") -> None:
    """Raises ConfigError where one of `keys` was typed, which a command chooses itself; "algo." is every algo.KEY."""
    from repro.config import compose, sweeps

    for key in sweeps.once(list(typed or [])):
        if _named(key, keys):
            raise compose.ConfigError(f"{key}=: {reason}. Leave {key} out{instead}")


def _named(key: str, keys: Sequence[str]) -> bool:
    group, dot, _ = key.partition(".")
    return key in keys or bool(dot and f"{group}." in keys)


def refuse_grid(configs: Sequence[Config], typed: Sequence[str] | None) -> None:
    """Raises ConfigError for an experiment that predicts on a grid of networks, and trains nothing."""
    from repro.config import compose

    if any(config.tradeoff.bits_per_s for config in configs):
        read = [word for word in typed or [] if not _named(word.partition("=")[0], UNREAD)]
        raise compose.ConfigError(f"a grid of networks trains nothing; type {shlex.join(['repro', 'map', *read])}")


def refuse_unread(
    typed: Sequence[str] | None, read: Sequence[str], reason: str, instead: str = "", but: Sequence[str] = ()
) -> None:
    """Raises ConfigError where a key was typed that is not among `read`: "algo" is algo= and every algo.KEY.

    `but` are refused with words of their own.
    """
    from repro.config import groups

    of_groups = [name + dot for name in groups.KINDS if name not in read for dot in ("", ".")]
    unread = [*of_groups, *(key for key in groups.root_keys() if key not in (*read, *but))]
    refuse(typed, unread, reason, f"; {', '.join(read)} are read{instead}")


def single(overrides: Sequence[str] | None, defaults: dict[str, str], command: str) -> Config:
    """Composes the one setting that `command` measures. Raises ConfigError for several."""
    from repro.config import compose

    first, *others = compose.typed(list(overrides or []), defaults)
    if others:
        raise compose.ConfigError(f"{command} measures one setting, and these are {len(others) + 1}; leave commas out")
    return first


def words(values: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in values.items()]


def listed(only: Iterable[str] | None) -> list[str]:
    """Returns the names that an option was given, with commas or more than once."""
    return [name for text in only or [] for name in text.split(",")]


def refuse_text(typed: Sequence[str] | None, command: str) -> None:
    """Raises ConfigError where a network for text was typed; the experiment sets the size of images."""
    from repro.config import compose

    for word in typed or []:
        key, _, values = word.partition("=")
        for name in values.split(",") if key == "model" else ():
            if compose.declared("model", name).get("reads") == "text":
                raise compose.ConfigError(f"model={name} reads text, and `repro {command}` predicts networks of images")


OF_THE_LAB = (  # for `refuse`, where a network is its alpha and beta alone
    ("network.bits_per_s",), "that is the bandwidth of the lab's links, and seconds are predicted from "
    "network.alpha_s and network.beta_s_per_byte", ", and type network.beta_s_per_byte=SECONDS",
)  # fmt: skip

Completion = Callable[[typer.Context, str], list[tuple[str, str]]]


def completing(own: Callable[[], Mapping[str, Sequence[str]]]) -> Completion:
    """Returns what completes a parameter called `overrides`; `own`: the command's own keys, and values for them."""

    def complete(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
        from repro.config import completion

        return completion.overrides(ctx.params.get("overrides") or [], incomplete, own())

    return complete


complete = completing(dict)


def complete_key(incomplete: str) -> list[str]:
    from repro.config import explain, groups

    known = [*groups.GROUPS, *groups.root_keys(), *explain.options()]
    return [key for key in known if key.startswith(incomplete)]


Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", autocompletion=complete, help="Settings; commas sweep."),
]
