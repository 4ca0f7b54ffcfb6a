"""Lists what gTop-k sends in each wire format, and what rounding there does to accuracy (not in the paper)."""

import math

from repro.compression.pair_sizes import LOSSLESS, WIRES
from repro.figures import _curves, _draw
from repro.metric import ACCURACY
from repro.report import intervals, prefixes, same_settings
from repro.report.group import Group
from repro.report.prefixes import Pooled
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Wire formats: bytes a pair, and accuracy beside that of pairs"
COMMAND = "repro run experiment=wire_formats"
ALSO = (_curves.CONVERGENCE, "repro run experiment=bytes_per_step")


def table(results: Results) -> list[Row]:
    """Returns a row for each format; a lossless one has the bits of `pairs`, so that one run stands for both.

    Whole runs of the same settings are seeds of their first epochs. Of several settings it has the one of most runs.
    Before the learning rate drops accuracies are means of `prefixes.EPOCHS`, and one pair of seeds has no interval:
    the reference curves' repeats are apart by more there than at their end.
    """
    groups = [group for group in results.groups("wire_formats", ACCURACY) if group.curve]
    if not groups:
        return []
    settings = [_but_for_the_wire(group) for group in groups]
    like = max(groups, key=lambda group: (settings.count(_but_for_the_wire(group)), group.epochs))
    alike = [group for group in (*groups, *results.groups("convergence", ACCURACY)) if _are_alike(group, like)]
    shortest = min((group for group in groups if _are_alike(group, like)), key=lambda group: group.epochs)
    over = prefixes.averaged(like, shortest.epochs)
    by_wire = {_wire(pooled.group): pooled for pooled in prefixes.at_epoch(alike, shortest.epochs, over)}
    at = shortest.schedule, over
    sent, noise = _sent(results, like), intervals.noise_of_repeats(results.reference) if over == 1 else None
    return [_row(wire, by_wire, at, sent, noise) for wire in WIRES if wire in by_wire or wire in LOSSLESS]


def _wire(group: Group) -> str:
    return group.settings["algo"].get("wire", "pairs")


def _but_for_the_wire(group: Group) -> str:
    algo = group.settings["algo"] | {"wire": "pairs"}
    settings = vars(group) | {"settings": group.settings | {"algo": algo}}
    return same_settings.identity(settings, whole=not group.compressed)


def _are_alike(group: Group, other: Group) -> bool:
    same = _but_for_the_wire(group) == _but_for_the_wire(other)
    return same and same_settings.same_data(vars(group), vars(other))


def _sent(results: Results, like: Group) -> dict[str, float]:
    """Returns the bytes that a node sends in a step, by format: they do not depend on what is trained."""
    counted = [group for group in results.groups("bytes_per_step") if group.per_step.get("bytes_sent") is not None]
    place = like.model, like.algo, like.nodes, like.per_step.get("k")
    same = [group for group in counted if (group.model, group.algo, group.nodes, group.per_step.get("k")) == place]
    return {_wire(group): group.per_step["bytes_sent"] for group in same}


def _row(
    wire: str, by_wire: dict[str, Pooled], at: tuple[str, int], sent: dict[str, float], noise: float | None
) -> Row:
    """`at`: the schedule, of how many epochs to its end the mean is; `noise`: of a difference of two runs, if known."""
    pairs, own = (by_wire.get("pairs" if one in LOSSLESS else one) for one in ("pairs", wire))
    group = next(iter(by_wire.values())).group
    seeds = sorted(own.accuracies.keys() & pairs.accuracies.keys()) if own and pairs and own is not pairs else []
    each = [own.accuracies[seed] - pairs.accuracies[seed] for seed in seeds] if own and pairs else []
    apart = intervals.of_pairs(each, noise) if each else None
    low, high = (apart.low, apart.high) if apart and math.isfinite(apart.low) else (None, None)
    return {
        "format": wire,
        "source": "trained" if wire in by_wire else "trained as pairs",
        "model": _draw.model_name(group.model),
        "nodes": group.nodes,
        "schedule": at[0],
        "epochs averaged": at[1],
        "precision": group.settings["precision"],
        "bytes per node and step": sent.get(wire),
        "bytes a pair": 8 * sent[wire] / sent["pairs"] if {wire, "pairs"} <= sent.keys() else None,
        "n": own.n if own else None,
        "test accuracy (%)": own.mean if own else None,
        "± (%)": own.std if own else None,
        "shared seeds": apart.n if apart else None,
        "above pairs (points)": apart.mean if apart else None,
        "from (points)": low,
        "to (points)": high,
        "each seed above pairs (points)": ", ".join(f"{value:.2f}" for value in each) or None,
    }
