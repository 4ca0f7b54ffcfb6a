"""Tells runs by the paper's rules, and other algorithms as their files have them, from variants of the same name."""

from __future__ import annotations

from typing import Any

from repro.compression.pair_sizes import LOSSLESS
from repro.config import groups

# of algo, where summaries do not say
OPTIONS = {"selector": "exact", "correction": 0.0, "mask": "none", "clip": 0.0, "boost": 1.0, "gain": 1.0}

SCHEDULE = {  # what steers the updates of a whole run, and how it is said
    "schedule_epochs": "epochs of the schedule:",
    "lr": "learning rate",
    "lr_warmup_epochs": "epochs of learning rate warm-up:",
    "lr_warmup_from": "learning rate warm-up from",
    "lr_drops": "learning rate drops at epochs",
    "lr_drop_factor": "learning rate drops to times",
    "momentum": "momentum",
    "weight_decay": "weight decay",
    "weight_decay_of": "weight decay of",
}


def as_published(settings: dict[str, Any]) -> bool:
    """Returns whether a run has the paper's rules of what is selected, from what, and of how it is applied.

    The k largest of each node's whole gradient are selected exactly, clipped and warmed up as the authors' code does,
    and travel unrounded; what is lost goes where the paper says, and momentum comes after aggregation. Where the file
    of an algorithm that is not the paper's says otherwise, that is its rule.
    """
    algo, model = settings["algo"], settings["model"]["name"]
    own = groups.about_known(algo["name"])
    return (
        bool(settings["momentum"]) == bool(groups.algo_default(algo["name"], model, "momentum"))
        and all(algo.get(name, usual) == own.get(name, usual) for name, usual in OPTIONS.items())
        and not other_options(settings)
        and algo.get("wire", "pairs") in LOSSLESS
        and settings.get("scope", "global") == "global"
        and not settings.get("hierarchical")
        and (settings.get("clip_grad") or 0.0) == groups.default(model, "clip_grad")
        and _warmed_up(settings, groups.algo_default(algo["name"], model, "density_warmup"))
    )


def _warmed_up(settings: dict[str, Any], usual: list[float]) -> bool:
    """Returns whether density falls as usual, or as far of that as is above the run's own."""
    above = [density for density in usual if density > settings["density"]]
    return settings["density"] == 1 or settings.get("density_warmup", above) in (usual, above)


def other_options(settings: dict[str, Any]) -> list[str]:
    """Says what of the route and the residual rule is not as in the algorithm's own file, or as in gTop-k's."""
    algo = settings["algo"]
    own = {"route": "tree", "residual": "paper"} | groups.about_known(algo["name"])
    used = own | algo["options"]
    route = [str(used["route"])] if used["route"] != own["route"] else []
    return route + ([f"{used['residual']} rule"] if used["residual"] != own["residual"] else [])


def other_schedule(settings: dict[str, Any]) -> list[str]:
    """Says in what a run's schedule is not that of the network's file, or of the algorithm's; [] where it is."""
    algo, model = settings["algo"]["name"], settings["model"]["name"]
    if model not in groups.group_options("model"):
        return []
    usual = {name: groups.algo_default(algo, model, name) for name in SCHEDULE}
    own = {name: settings.get(name, usual[name]) for name in SCHEDULE}
    other = [name for name in SCHEDULE if usual[name] is not None and own[name] != usual[name]]
    return [f"{SCHEDULE[name]} {own[name]}, not {usual[name]}" for name in other]


def other_conditions(settings: dict[str, Any], paper: dict[str, Any]) -> list[str]:
    """Says in what a run's batch and schedule are not those of the published convergence run; [] where they are."""
    batch = settings["batch_per_node"] * settings["accumulate"]
    theirs = paper["training"]["convergence"].get(settings["model"]["name"], {}).get("batch_per_node", batch)
    unlike = [f"batch {batch} per node, not {theirs}"] if batch != theirs else []
    return unlike + other_schedule(settings)
