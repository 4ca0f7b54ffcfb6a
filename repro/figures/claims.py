"""Lists each claim of the paper: the published value, ours, n and seeds, where ours comes from, and the verdict.

n counts runs, and in the lab the fewest repeats of a measurement that the claim rests on.
"""

from collections.abc import Iterator
from dataclasses import replace

from repro.figures import _draw, _lab, _times, speedups
from repro.iteration_time import DILATED
from repro.report import intervals, moves, pairs, prefixes, reference_curves, same_machine, verdicts
from repro.report.as_published import as_published, other_conditions
from repro.report.group import Group
from repro.report.intervals import Interval
from repro.report.pairs import Pair
from repro.report.summaries import Results
from repro.report.verdicts import Verdict
from repro.tables import Row

TITLE = "Claims and verdicts"
COMMAND = "repro plot tables --only claims"
SOURCES = {  # of speed-ups, and the commands that make them
    DILATED: "repro run experiment=dilated",
    "measured": "repro run experiment=throughput",
    "simulated": _times.SIMULATE,
}
SLEPT = (
    "the published node's seconds, slept (compression: gTop-k's, for all), and real messages on shaped links (8 ns a "
    "byte, of the published fit 9)"
)


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
    """Yields convergence claims: one algorithm's final accuracy beside that of a reference with the same settings."""
    density = results.paper["training"]["density"]
    for model in (name for name in _draw.models() if name in results.paper["training"]["convergence"]):
        dense, gtopk = (_groups(results, "convergence", model, *of) for of in (("dense", 1.0), ("gtopk", density)))
        claim = f"{_draw.model_name(model)}: gTop-k converges like dense"
        command = f"repro run experiment=convergence model={model} algo=dense,gtopk"
        yield _compared(results, claim, "close to dense", gtopk, dense, command)
    of_k = "select_from_k_times_P"
    topk, chosen = (_groups(results, of_k, "resnet20", algo, density) for algo in ("topk", "gtopk_from_topk"))
    claim = "ResNet-20: k of the k × P entries are enough"
    yield _compared(results, claim, "close to Top-k", chosen, topk, f"repro run experiment={of_k}")
    command = "repro run experiment=density_sensitivity model=resnet20 algo=gtopk"
    for smaller in (0.0005, 0.0001):
        sparser, published = (
            _groups(results, "density_sensitivity", "resnet20", "gtopk", one) for one in (smaller, density)
        )
        claim = f"ResNet-20: density {smaller:g} converges like {density:g}"
        yield _compared(results, claim, f"close to {density:g}", sparser, published, command)


def _groups(results: Results, experiment: str, model: str, algo: str, density: float) -> list[Group]:
    groups = prefixes.with_whole_runs(results, experiment)
    alike = [g for g in groups if (g.model, g.algo, g.settings["density"]) == (model, algo, density)]
    return [group for group in alike if as_published(group.settings)]


def _compared(
    results: Results, claim: str, published: str, ours: list[Group], references: list[Group], command: str
) -> Row:
    pair = pairs.best(ours, references, lambda pair: not _unmet(results, pair))
    if pair is None:
        return _row(claim, published, "", verdicts.not_run(), "", command)
    difference = pair.difference(intervals.noise_of_repeats(results.reference))
    unmet = _unmet(results, pair)
    verdict = verdicts.no_worse(difference, unmet)
    if not unmet and pair.ours.encoded:
        verdict = replace(verdict, why=f"{verdict.why}; both on the same re-encoded images")
    one, other = pair.accuracies
    precision = pair.ours.settings["precision"]
    source = f"trained, {_draw.data_name(pair.ours.data)}" + ("" if precision == "float32" else f", {precision}")
    text = f"{one:.2f} % against {other:.2f} %"
    seeds = pair.seeds() or pair.ours.seeds
    return _row(claim, published, text, verdict, source, command, difference.n, " ".join(map(str, seeds)))


def _unmet(results: Results, pair: Pair) -> str:
    """Says which of the claim's conditions the runs lack; the first epochs of a schedule get their reference points.

    The reference's rate and momentum may be others than ours although both move the weights as far.
    """
    settings, lacking = pair.ours.settings, []
    if not pair.whole:
        often, whole = (_moves(results, pair, every) for every in (False, True))
        lacking.append(f"{pair.schedule}, in which an entry moves {often} times instead of {whole}")
        references = reference_curves.beside(results.reference, settings)
        if not pair.ours.compressed and (points := reference_curves.text(references, pair.epoch)):
            lacking.append(f"reference curves at epoch {pair.epoch:g}: {points}")
    theirs = results.paper["training"]["convergence"][pair.ours.model]
    if pair.ours.nodes != theirs.get("nodes", pair.ours.nodes):
        lacking.append(f"P = {pair.ours.nodes}, not {theirs['nodes']}")
    lacking += other_conditions(settings, results.paper)
    of_reference = other_conditions(pair.reference.settings, results.paper)
    lacking += [f"the reference's {word}" for word in of_reference if word not in lacking]
    data = results.paper["models"][pair.ours.model]["dataset"]
    if settings["data"]["name"] != data:
        lacking.append(f"{_draw.data_name(settings['data']['name'])}, not {_draw.data_name(data)}")
    return "; ".join(lacking)


def _moves(results: Results, pair: Pair, whole: bool) -> str:
    """Returns how often an entry moves in a run whose steps move k of m entries each, or in its whole schedule."""
    return f"{moves.selections(pair.ours, pair.epoch, results.networks, whole):.2g}"


def _speed(results: Results) -> Iterator[Row]:
    found = speedups.factors(results)
    timed = [name for name in _draw.models() if name in results.paper["breakdown_gtopk_32_nodes"]]  # not the LSTM
    for other, key in (("dense", "over_dense_at_32"), ("topk", "over_topk_at_32")):
        claim = results.paper["claims"][key]
        low, high = claim["range"]
        published = f"{low:g}–{high:g} ×, mean {claim['mean']:g}"
        for source, made_by in SOURCES.items():
            factors = {
                _draw.model_name(model): found[model, source, other]
                for model in _draw.models()
                if (model, source, other) in found
            }
            own = {_draw.model_name(model): found[model, "published", other].mean for model in timed}
            verdict = verdicts.within(factors, low, high, own, _not_the_papers_node(results, source))
            text = ", ".join(f"{name} {beside_limits(factor.mean, low, high)} ×" for name, factor in factors.items())
            if source == DILATED and factors:
                why = "; ".join([verdict.why, f"{intervals.LEVEL} intervals: {_ends(factors)}", SLEPT])
                verdict = replace(verdict, why=why)
            what = f"gTop-k {speedups.OVER[other]} on 32 nodes" + (", published node" if source == "simulated" else "")
            if factors or source != "measured":
                n = min((factor.n for factor in factors.values()), default=None) if source == DILATED else None
                yield _row(what, published, text, verdict, source, made_by, n)


def _ends(factors: dict[str, Interval]) -> str:
    """Writes the interval of each network's factor."""
    return ", ".join(f"{name} {speedups.ends(factor)}" for name, factor in factors.items())


def beside_limits(factor: float, *limits: float) -> str:
    """Writes a factor with two decimals, or with three where two would hide on which side of a limit it lies."""
    short = f"{factor:.2f}"
    return f"{factor:.3f}" if any(float(short) == limit != factor for limit in limits) else short


def _not_the_papers_node(results: Results, source: str) -> str:
    """Says why seconds from `source` do not meet the conditions of a claim about the paper's nodes; "" if they do."""
    if source == DILATED:
        return ""  # the published seconds of the node, slept, and real messages
    if source == "simulated":
        return "the published node's compute and compression, but no second was measured"
    gpu = results.paper["hardware"]["gpu"].split(",")[0]
    groups = [group for group in results.groups("throughput") if same_machine.gpus(group.machine)]
    measured = [group for group in groups if any(time["source"] == source for time in group.iteration_time)]
    theirs = all(any(gpu.split()[-1] in own for own in group.machine["gpus"]) for group in measured)
    return "" if theirs and measured else f"the node is no {gpu}"


def _network(results: Results) -> Iterator[Row]:
    wire, got = results.paper["network"], _lab.network(results)
    fitted = [point["repeats"] for point in got.get("points", []) if point["fitted"]]
    unmet = "a shaped link without switch or network card" if "cluster=lab" in got.get("command", "") else ""
    for name, unit, scale in (("alpha_s", "ms", 1e3), ("beta_s_per_byte", "ns per byte", 1e9)):
        ours = got.get(name)
        symbol = name.split("_")[0]
        yield _row(
            f"1 Gbps Ethernet: {symbol}",
            f"{scale * wire[name]:.3g} {unit}",
            "" if ours is None else f"{scale * ours:.3g} {unit}",
            verdicts.near(_fitted(got, name, len(fitted)), wire[name], unmet),
            "measured in the lab",
            "repro bench network",
            min(fitted, default=None),
        )
    published = results.paper["claims"]["crossover"]["gtopk_wins_from"]
    measured = _lab.collectives(results)
    rows = compared(measured)
    factors = crossover(rows)
    text = ", ".join(f"P = {nodes}: {factor.mean:.2f} ×" for nodes, factor in factors.items())
    size = f", m = {_millions(rows[0]['parameters'])}" if rows else ""
    verdict = verdicts.first_win(factors, published)
    if rows:
        verdict = replace(verdict, why=f"{verdict.why}; {_messages_alone(results)}")
    yield _row(
        f"Messages of gTop-k's tree take less time than Top-k's from P = 8{size}",
        f"from P = {published} (derived here from its cost formulas, which count messages alone)",
        "; ".join([text, *_smaller(measured, rows)]),
        verdict,
        DILATED,
        _lab.COLLECTIVES,
        min((row["repeats"] for row in rows), default=None),
    )


def _messages_alone(results: Results) -> str:
    """Says what the crossover of messages leaves out, and which published rates, with all in them, do not have it."""
    rates = {name: one for name, one in results.paper["throughput_per_node"].items() if isinstance(one, dict)}
    first = min(min(one["topk"]) for one in rates.values())
    ahead = [_draw.model_name(name) for name, one in rates.items() if one["gtopk"][first] > one["topk"][first]]
    return (
        "merges of gTop-k and sums of Top-k are left out; published rates, which have them, are higher with gTop-k "
        f"on {first} nodes already: {', '.join(ahead) or 'none'}"
    )


def _fitted(got: Row, name: str, points: int) -> Interval | None:
    """Returns a parameter of the fitted line with its interval; the line takes two of the degrees of freedom."""
    if name not in got:
        return None
    half = intervals.t95(points - 2) * got[f"{name.split('_')[0]}_error"]
    how = f"{intervals.LEVEL} interval of a line through {points} points"
    return Interval(got[name], got[name] - half, got[name] + half, points, None, how)


def compared(rows: list[Row]) -> list[Row]:
    """Returns the measurements of gTop-k's tree and of Top-k at the m nearest to the authors' 26.2 million."""
    rows = [row for row in rows if row["algo"] in ("gtopk", "topk")]
    nearest = min((row["parameters"] for row in rows), key=lambda m: abs(m - 26_214_400), default=0)
    return [row for row in rows if row["parameters"] == nearest]


def _smaller(measured: list[Row], rows: list[Row]) -> Iterator[str]:
    """Says for each m below that of `rows` on how many nodes gTop-k's tree was measured to be faster than Top-k."""
    of_both = [row for row in measured if row["algo"] in ("gtopk", "topk")]
    sizes = {row["parameters"] for row in of_both}
    for size in sorted((m for m in sizes if any(m < row["parameters"] for row in rows)), reverse=True):
        factors = crossover([row for row in of_both if row["parameters"] == size])
        wins = ", ".join(f"{nodes} ({factor.mean:.2f} ×)" for nodes, factor in factors.items() if factor.low > 1)
        open_ = ", ".join(
            f"{nodes} ({factor.low:.2f} to {factor.high:.2f} ×)"
            for nodes, factor in factors.items()
            if factor.low <= 1 <= factor.high
        )
        where = (
            f"faster only at P = {wins}" if wins else f"not shown to be faster at any P up to {max(factors, default=0)}"
        )
        if factors:
            yield f"m = {_millions(size)}: {where}" + (f", undecided at P = {open_}" if open_ else "")


def _millions(parameters: int) -> str:
    return f"{parameters / 1e6:.3g} million"


def crossover(rows: list[Row]) -> dict[int, Interval]:
    """Returns by what factor gTop-k's tree was faster than Top-k, by number of nodes; `rows` have one m."""
    times = {(row["algo"], row["nodes"]): (row["seconds"], row["spread"], row["repeats"]) for row in rows}
    nodes = sorted({nodes for algo, nodes in times if algo == "topk" and ("gtopk", nodes) in times})
    return {p: intervals.of_factor(times["topk", p], times["gtopk", p]) for p in nodes}
