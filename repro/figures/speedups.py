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
ALGOS = ("dense", "topk", "gtopk", "gtopk_butterfly")


def table(results: Results) -> list[Row]:
    rows = []
    everything = _times.beside_the_paper(results)
    for model in _draw.models_of(everything):
        for source in ("published", DILATED, "simulated", "measured"):
            rates = {
                r["algo"]: r["samples_per_s"]
                for r in everything
                if (r["model"], r["source"], r["nodes"]) == (model, source, NODES)
            }
            if rates:
                rows.append(
                    {
                        "model": _draw.model_name(model),
                        "source": source,
                        **{f"{_draw.algo_name(a)} (samples/s per node)": rates.get(a) for a in ALGOS},
                        "over dense": _ratio(results, model, source, rates, "dense"),
                        "over Top-k": _ratio(results, model, source, rates, "topk"),
                        **{
                            f"{title}, {intervals.LEVEL} interval": _interval(results, model, source, rates, other)
                            for title, other in (("over dense", "dense"), ("over Top-k", "topk"))
                        },
                    }
                )
    return rows


def _ratio(results: Results, model: str, source: str, rates: dict[str, float], other: str) -> float | None:
    """Returns the speed-up of gTop-k's tree, the paper's algorithm; None where one of the two is missing."""
    if "gtopk" not in rates or other not in rates:
        return None
    return dilated(results, model, other).mean if source == DILATED else rates["gtopk"] / rates[other]


def _interval(results: Results, model: str, source: str, rates: dict[str, float], other: str) -> str | None:
    """Returns the interval of a speed-up that was repeated."""
    return ends(dilated(results, model, other)) if source == DILATED and {"gtopk", other} <= rates.keys() else None


def ends(factor: Interval) -> str:
    return f"{factor.low:.3f} to {factor.high:.3f}" if factor.std is not None else factor.how


def dilated(results: Results, model: str, other: str) -> Interval:
    """Returns by what factor gTop-k's dilated iterations on 32 nodes were faster, from the repeats of both."""
    rows = [row for row in _times.on_the_papers_node(results) if (row["model"], row["nodes"]) == (model, NODES)]
    times = {row["algo"]: row["iterations_s"] for row in rows}
    return intervals.of_repeats(times[other], times["gtopk"])
