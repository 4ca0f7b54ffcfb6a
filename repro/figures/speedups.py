"""Lists throughput on 32 nodes and the speed-ups of gTop-k: published, measured and simulated."""

from repro.figures import _draw, _times
from repro.iteration_time import DILATED
from repro.report import intervals
from repro.report.intervals import Interval
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "IV. Throughput on 32 nodes and speed-ups of gTop-k"
COMMAND = "repro run experiment=dilated"
ALSO = (_times.SIMULATE,)
NODES = 32
SOURCES = ("published", DILATED, "simulated", "measured")
OVER = {"dense": "over dense", "topk": "over Top-k"}
ALGOS = ("dense", "topk", "gtopk", "gtopk_butterfly")


def table(results: Results) -> list[Row]:
    rows, found, everything = [], factors(results), _times.beside_the_paper(results)
    for model in _draw.models_of(everything):
        for source in SOURCES:
            rates = {
                r["algo"]: r["samples_per_s"]
                for r in everything
                if (r["model"], r["source"], r["nodes"]) == (model, source, NODES)
            }
            if rates:
                over = {title: found.get((model, source, other)) for other, title in OVER.items()}
                rows.append(
                    {
                        "model": _draw.model_name(model),
                        "source": source,
                        **{f"{_draw.algo_name(a)} (samples/s per node)": rates.get(a) for a in ALGOS},
                        **{title: one and one.mean for title, one in over.items()},
                        **{
                            f"{title}, {intervals.LEVEL} interval": ends(one) if one and source == DILATED else None
                            for title, one in over.items()
                        },
                    }
                )
    return rows


def factors(results: Results) -> dict[tuple[str, str, str], Interval]:
    """Returns how many times as fast as the others the tree of gTop-k is, by network, source and the other algorithm.

    Those of the dilated lab have an interval, of the repeats of both; the tree is the paper's algorithm.
    """
    rates = {
        (row["model"], row["source"], row["algo"]): row["samples_per_s"]
        for row in _times.beside_the_paper(results)
        if row["nodes"] == NODES
    }
    timed = {
        (row["model"], row["algo"]): row["iterations_s"]
        for row in _times.on_the_papers_node(results)
        if row["nodes"] == NODES
    }
    return {
        (model, source, other): intervals.of_repeats(timed[model, other], timed[model, "gtopk"])
        if source == DILATED
        else intervals.point(rate / rates[model, source, other], "one time, not repeated")
        for (model, source, algo), rate in rates.items()
        for other in OVER
        if algo == "gtopk" and (model, source, other) in rates
    }


def ends(factor: Interval) -> str:
    return f"{factor.low:.3f} to {factor.high:.3f}" if factor.std is not None else factor.how
