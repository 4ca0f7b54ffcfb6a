"""Each claim of the paper: the published value, ours, n and seeds, where ours comes from, and the verdict.

n counts runs, and in the lab the fewest repeats of a measurement that the claim rests on.
"""

import dataclasses
from collections.abc import Iterator

from repro import verdicts
from repro.figures import _curves, _draw, _lab, _times, speedups
from repro.results import Group, Results
from repro.tables import Row
from repro.verdicts import Verdict

TITLE = "Claims and verdicts"
COMMAND = "repro plot tables --only claims"
SOURCES = {  # of speed-ups, and what makes them
    "measured": "repro run experiment=throughput",
    "modelled": "repro run experiment=throughput",
    "simulated": _times.SIMULATE,
}
MARGIN, SHAPE = 1.0, 5.0  # points of accuracy


def table(results: Results) -> list[Row]:
    return [*_accuracy(results), *_speed(results), *_network(results)]


def _row(
    claim: str,
    published: str,
    ours: str,
    verdict: Verdict,
    source: str,
    command: str,
    n: int | None = None,
    seeds: str = "",
) -> Row:
    return {
        "claim": claim,
        "published": published,
        "ours": ours,
        "n": n,
        "seeds": seeds,
        "source": source if verdict.word != "not run" else "",
        "verdict": verdict.word,
        "why": verdict.why,
        "command": command,
    }


def _accuracy(results: Results) -> Iterator[Row]:
    """Convergence claims: one algorithm's final accuracy beside that of a reference with the same settings."""
    for model, name in (
        ("resnet20", "ResNet-20"),
        ("vgg16", "VGG-16"),
        ("alexnet", "AlexNet"),
        ("resnet50", "ResNet-50"),
    ):
        found = _finals(results, "convergence", model)
        yield _compared(
            f"{name}: gTop-k converges like dense",
            "close to dense",
            found,
            "gtopk",
            "dense",
            "repro run experiment=convergence",
        )
    found = _finals(results, "select_from_k_times_P", "resnet20")
    yield _compared(
        "ResNet-20: k of the k × P entries are enough",
        "close to Top-k",
        found,
        "gtopk_from_topk",
        "topk",
        "repro run experiment=select_from_k_times_P",
    )
    command = "repro run experiment=density_sensitivity"
    groups = _curves.of_one_schedule([g for g in results.groups("density_sensitivity") if g.model == "resnet20"])
    by_density = {f"{g.settings['density']:g}": g for g in groups if g.algo == "gtopk"}
    for density in ("0.0005", "0.0001"):
        yield _compared(
            f"ResNet-20: density {density} converges like 0.001",
            "close to 0.001",
            by_density,
            density,
            "0.001",
            command,
        )


def _finals(results: Results, experiment: str, model: str) -> dict[str, Group]:
    groups = _curves.of_one_schedule([group for group in results.groups(experiment) if group.model == model])
    return {group.algo: group for group in groups if group.curve}


def _compared(claim: str, published: str, groups: dict[str, Group], ours: str, reference: str, command: str) -> Row:
    one, other = groups.get(ours), groups.get(reference)
    if one is None or other is None:
        return _row(claim, published, "", verdicts.not_run(), "", command)
    (mine, spread), (theirs, _) = accuracy(one), accuracy(other)
    verdict = verdicts.no_worse(mine, theirs, max(MARGIN, spread or 0.0), SHAPE)
    if one.schedule != f"{one.settings['schedule_epochs']} epochs":
        verdict = verdicts.at_most(verdict, "shape only", one.schedule)
        verdict = dataclasses.replace(verdict, why=f"{verdict.why}; {_moves(one)}")
    elif min(one.n, other.n) < 2:
        verdict = verdicts.at_most(verdict, "shape only", "one seed")
    text = f"{mine:.2f} % against {theirs:.2f} %"
    return _row(
        claim,
        published,
        text,
        verdict,
        f"trained, {one.data}",
        command,
        min(one.n, other.n),
        " ".join(map(str, one.seeds)),
    )


def _moves(group: Group) -> str:
    """What a short schedule leaves gTop-k, whose steps move k of m entries each."""
    moved, full = group.curve[-1]["step"] * group.settings["density"], group.settings["schedule_epochs"]
    return f"each entry moved {moved:.2g} times, in {full} epochs {moved * full / group.epochs:.2g}"


def accuracy(group: Group) -> tuple[float, float | None]:
    """Final test accuracy in percent, mean and deviation over the seeds."""
    last = group.curve[-1]
    return 100 * last["test_accuracy"], None if last["test_accuracy_std"] is None else 100 * last["test_accuracy_std"]


def _speed(results: Results) -> Iterator[Row]:
    rows = speedups.table(results)
    for column, key in (("over dense", "over_dense_at_32"), ("over Top-k", "over_topk_at_32")):
        claim = results.paper["claims"][key]
        published = f"{claim['range'][0]:g}–{claim['range'][1]:g} ×, mean {claim['mean']:g}"
        for source, made_by in SOURCES.items():
            got = [row for row in rows if row["source"] == source and row[column] is not None]
            verdict = verdicts.within([row[column] for row in got], *claim["range"])
            if source != "measured":
                verdict = verdicts.at_most(verdict, "shape only", f"{source} seconds")
            text = ", ".join(f"{_draw.model_name(row['network'])} {row[column]:.2f} ×" for row in got)
            what = f"gTop-k {column} on 32 nodes" + (", published node" if source == "simulated" else "")
            if got or source != "measured":
                yield _row(what, published, text, verdict, source, made_by)


def _network(results: Results) -> Iterator[Row]:
    wire, got = results.paper["network"], _lab.network(results)
    repeats = min((point["repeats"] for point in got.get("points", []) if point["fitted"]), default=None)
    for name, unit, scale in (("alpha_s", "ms", 1e3), ("beta_s_per_byte", "ns per byte", 1e9)):
        ours = got.get(name)
        symbol = name.split("_")[0]
        yield _row(
            f"1 Gbps Ethernet: {symbol}",
            f"{scale * wire[name]:.3g} {unit}",
            "" if ours is None else f"{scale * ours:.3g} {unit}",
            verdicts.near(ours, wire[name]),
            "measured in the lab",
            "repro bench network",
            repeats,
        )
    published = results.paper["claims"]["crossover"]["gtopk_wins_from"]
    rows = compared(_lab.collectives(results))
    wins = crossover(rows)
    text = ", ".join(f"P = {nodes}: {'gTop-k' if won else 'Top-k'}" for nodes, won in wins.items())
    yield _row(
        "gTop-k (tree) is faster than Top-k from P = 8",
        f"from P = {published} (cost formulas)",
        text,
        verdicts.first_win(wins, published),
        "measured in the lab",
        "repro bench collectives",
        min((row["repeats"] for row in rows), default=None),
    )


def compared(rows: list[Row]) -> list[Row]:
    """The measurements of gTop-k's tree and of Top-k at the m nearest to the authors' 26.2 million."""
    rows = [row for row in rows if row["algo"] in ("gtopk", "topk")]
    nearest = min((row["parameters"] for row in rows), key=lambda m: abs(m - 26_214_400), default=0)
    return [row for row in rows if row["parameters"] == nearest]


def crossover(rows: list[Row]) -> dict[int, bool]:
    """Whether gTop-k's tree beat Top-k, by number of nodes, of rows with one m."""
    seconds = {(row["algo"], row["nodes"]): row["seconds"] for row in rows}
    nodes = sorted({nodes for algo, nodes in seconds if algo == "topk" and ("gtopk", nodes) in seconds})
    return {p: seconds["gtopk", p] < seconds["topk", p] for p in nodes}
