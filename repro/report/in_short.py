"""Says the result in three sentences, and how the whole trainings ended in a table, from the committed summaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from repro.figures import _draw, _times, speedups
from repro.metric import ACCURACY
from repro.report import pairs, reference_curves
from repro.report.as_published import as_published, other_conditions
from repro.report.group import Group
from repro.report.pairs import Pair
from repro.report.summaries import Results
from repro.tables import Row

COMPARED = ("dense", "topk", "gtopk")  # by the paper


@dataclass(frozen=True)
class Ends:
    """Holds trainings of one network on so many nodes, on the same images and over one schedule, by algorithm."""

    longest: Group
    by_algo: dict[str, Group]
    other: list[str]  # in what batch and schedule are not the published ones; [] where they are

    @property
    def trained(self) -> str:
        """Returns how much of the schedule that is, and in what it is not the published one."""
        return ", ".join([self.longest.schedule, *self.other])

    def percent(self, algo: str) -> float:
        return 100 * float(self.by_algo[algo].curve[-1]["test_accuracy"])

    @property
    def pair(self) -> Pair | None:
        """Returns gTop-k beside dense, of the seeds that both have; None where one of both is missing."""
        if {"dense", "gtopk"} <= self.by_algo.keys():
            return pairs.of(self.by_algo["gtopk"], self.by_algo["dense"])
        return None

    @property
    def below(self) -> float | None:
        """Returns by how many points gTop-k ends below dense."""
        if (pair := self.pair) is None:
            return None
        ours, dense = pair.accuracies
        return dense - ours

    @property
    def seeds(self) -> str:
        """Returns the number of seeds of each, `1` or `1 to 2`."""
        return _times.span([{"n": group.n} for group in self.by_algo.values()], "n")


def ends(data: Results) -> list[Ends]:
    """Returns the trainings at the paper's density and by its rules that say most (`_worth`), those on the original
    images first.

    It is one for each network, number of nodes and kind of images. Once dense and gTop-k were both trained whole as
    published, on whatever network, only whole trainings are told.
    """
    densities = 1, data.paper["training"]["density"]
    trained = [
        group
        for group in data.groups("convergence", ACCURACY)
        if group.curve and group.settings["density"] in densities and as_published(group.settings)
    ]
    found = [_beside(group, trained, data.paper) for group in trained if group.algo in COMPARED]
    if any(one.pair and one.longest.whole and not one.other for one in found):
        found = [one for one in found if one.longest.whole]
    places: dict[tuple[bool, str, str, int], list[Ends]] = {}
    for one in found:
        group = one.longest
        places.setdefault((group.encoded, group.data, group.model, group.nodes), []).append(one)
    return [max(places[place], key=_worth) for place in sorted(places)]


def _worth(one: Ends) -> tuple[Any, ...]:
    """Ranks dense and gTop-k beside each other first, then what is as published, the longest and of most seeds."""
    group, pair = one.longest, one.pair
    length = pairs.worth(pair) if pair else (not group.compressed, group.epochs, group.n)
    return pair is not None, not one.other, length, len(one.by_algo)


def _beside(longest: Group, trained: list[Group], paper: dict[str, Any]) -> Ends:
    """Returns this run and those that may be compared with it, of the same epochs of the schedule."""

    def other(group: Group) -> list[str]:
        return other_conditions(group.settings, paper)

    alike = [group for group in trained if pairs.alike(group, longest) and group.schedule == longest.schedule]
    ranked = sorted(alike, key=lambda group: (not other(group), group.n))
    by_algo = {group.algo: group for group in [*ranked, longest] if group.algo in COMPARED}
    return Ends(longest, by_algo, list(dict.fromkeys(word for group in by_algo.values() for word in other(group))))


def sentences(data: Results, claims: list[Row]) -> list[str]:
    """Returns the result: accuracy on the fewest nodes and on the most, and time; what was not run is left out."""
    compared = [one for one in ends(data) if one.below is not None]
    nodes = sorted({one.longest.nodes for one in compared})
    words = {(row["claim"].partition(": gTop-k converges")[0], row["ours"]): row["verdict"] for row in claims}
    said = [_accuracy([one for one in compared if one.longest.nodes == few], words) for few in nodes[:1]]
    said += [
        _accuracy([one for one in compared if one.longest.nodes == many], words, compared) for many in nodes[1:][-1:]
    ]
    said += [
        f"On {speedups.NODES} nodes and 1 Gbps iterations of gTop-k are faster than those of dense by these factors: "
        f"{row['ours']}. Published: {row['published']}. Ours: {row['source']}, n = {row['n']}."
        for row in claims
        if row["claim"] == f"gTop-k over dense on {speedups.NODES} nodes" and row["n"]
    ]
    return said


def _accuracy(compared: list[Ends], words: dict[tuple[str, str], str], every: Sequence[Ends] = ()) -> str:
    """Says how far gTop-k ends from dense with each network, and where steps are larger than others' of `every`."""
    models = _draw.models_of({"model": one.longest.model} for one in compared)
    schedules = {_over(one) for one in compared}
    over = schedules.pop() if len(schedules) == 1 else None  # else each tells its own
    *most, last = [_of_model([one for one in compared if one.longest.model == model], words, over) for model in models]
    each = [*([", ".join(most)] if most else []), last]
    nodes = compared[0].longest.nodes
    timed = ", where the paper times it," if nodes == speedups.NODES else ""
    largest, least = _samples(compared[0]), min(map(_samples, every), default=0)
    same_rate = len({one.longest.settings["lr"] for one in every}) == 1
    if every and largest > least and same_rate:
        timed += f" a step has {largest:,} samples at the same learning rate, and"
    return f"On {nodes} nodes{timed} gTop-k ends {' and '.join(each)}{over or ''}."


def _samples(one: Ends) -> int:
    """Returns the samples of a step."""
    return int(one.longest.nodes * one.longest.batch)


def _over(one: Ends) -> str:
    return f", over {one.trained}" if one.longest.whole else f", over the {one.trained}"


def _of_model(compared: list[Ends], words: dict[tuple[str, str], str], over: str | None) -> str:
    """Says it on the original images, where there are runs on them, and then on others if more seeds have those."""
    first, *others = compared
    more = [f"{_apart(one)}: {_ends(one, words, over)}" for one in others if _seeds(one) > _seeds(first)]
    said = "; ".join([_ends(first, words, over), *more])
    return f"{_apart(first)} with {_draw.model_name(first.longest.model)} ({said})"


def _apart(one: Ends) -> str:
    below = one.below or 0.0
    return f"{abs(below):.2f} points {'below' if below >= 0 else 'above'} dense"


def _ends(one: Ends, words: dict[tuple[str, str], str], over: str | None) -> str:
    assert one.pair is not None  # noqa: S101  (for the type checker: `sentences` leaves others out)
    accuracies = "{:.2f} % against {:.2f} %".format(*one.pair.accuracies)
    images = ", re-encoded images" if one.longest.encoded else ""
    word = words.get((_draw.model_name(one.longest.model), accuracies))
    own = _over(one) if over is None else ""
    return f"{accuracies}{images}{own}, n = {_seeds(one)}{f': {word}' if word else ''}"


def _seeds(one: Ends) -> int:
    if (pair := one.pair) is None:
        return 0
    return len(pair.seeds()) or min(pair.ours.n, pair.reference.n)  # older summaries kept no seed's own


def asked(claims: list[Row]) -> list[Row]:
    """Returns one row for each claim: of a speed-up the measured one, beside which a simulated one may stand."""
    return list({row["claim"].removesuffix(", published node"): row for row in reversed(claims)}.values())


def table(data: Results) -> list[Row]:
    """Returns a row for each network, number of nodes and kind of images: test accuracies at the end, in percent.

    Those of dense and gTop-k are of the seeds that both have.
    """
    return [
        {
            "network": _draw.model_name(one.longest.model),
            "nodes": one.longest.nodes,
            "images": _draw.data_name(one.longest.data),
            "trained": one.trained,
            "precision": one.longest.settings["precision"],
            **{f"{_draw.algo_name(algo)} (%)": _cell(one, algo) for algo in COMPARED},
            "gTop-k below dense (points)": "–" if one.below is None else f"{one.below:.2f}",
            "seeds": one.seeds,
        }
        for one in ends(data)
    ]


def _cell(one: Ends, algo: str) -> str:
    if algo not in one.by_algo:
        return "–"
    paired = dict(zip(("gtopk", "dense"), one.pair.accuracies, strict=True)) if one.pair else {}
    return f"{paired.get(algo, one.percent(algo)):.2f}"


def of_images(data: Results) -> str:
    """Says which images were encoded once more, and what others obtained with the originals; "" if none were."""
    encoded = [one.longest for one in ends(data) if one.longest.encoded]
    if not encoded:
        return ""
    first = encoded[0]
    known = reference_curves.beside(data.reference, first.settings)
    told = reference_curves.text(known, min((len(run["test_accuracy"]) for run in known), default=0))
    had = (
        f" Public logs of {_draw.model_name(first.model)} on the originals, with as large steps, end at: {told}."
        if told
        else ""
    )
    return f"The images of {_draw.data_name(first.data)} were encoded once more, as JPEG.{had}"
