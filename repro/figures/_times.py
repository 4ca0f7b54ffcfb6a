"""Collects the seconds of one iteration, split in three, from every source: published, simulated, and runs of ours."""

from collections import Counter

from repro.figures import _draw
from repro.iteration_time import DILATED, FIELDS, PARTS, IterationTime, is_dilated
from repro.report import same_machine
from repro.report.as_published import other_options
from repro.report.group import Group
from repro.report.summaries import Results, timed_batch
from repro.tables import Row

NODES = (4, 8, 16, 32)
PUBLISHED_ON = "ethernet1g"
COLUMNS = ("model", "algo", "nodes", "source", "network", "batch_per_node", *FIELDS, "samples_per_s", "efficiency",
           "dilation", "repeats")  # fmt: skip
PLACE = {"node": "paper", "overlap": "off"}  # of those iterations of the dilated lab that the paper timed too
USUAL = {"precision": "float32", "scope": "global", "hierarchical": False, "stages": 1}  # settings of what it timed
SIMULATE = f"repro simulate model={','.join(_draw.PAPER)} nodes=4,8,16,32 --out results/summaries/simulate.json"


def simulated(results: Results) -> list[Row]:
    """Returns `repro simulate` of published compute and compress, and our messages on the published alpha and beta."""
    summary = results.summaries.get("simulate", {})
    usual = {  # of rows that do not say theirs, as not all differ in it
        "network": (summary.get("network") or {}).get("name"),
        "density": summary.get("density"),
    }
    density, rows = results.paper.get("training", {}).get("density"), []
    for row in (usual | row for row in summary.get("rows", [])):
        exact = row.get("k") is None
        if (
            row["source"] != "paper"
            or row["compress_s"] is None
            or row["network"] != PUBLISHED_ON
            or _is_of_another_size(row, results)
            or not (exact or (row["density"] == density and row.get("wire") in (None, "pairs")))
        ):
            continue
        parts = sum(row[part] for part in PARTS)
        time = IterationTime.of(row | {"hidden_s": max(parts - row.get("iteration_s", parts), 0.0)})
        batch = timed_batch(results.paper, row["model"])
        rows.append(as_row(row["model"], row["algo"], row["nodes"], "simulated", PUBLISHED_ON, batch, time))
    return rows


def _is_of_another_size(row: Row, results: Results) -> bool:
    """Returns whether `repro simulate parameters=` took another size in place of the network's."""
    sizes = {row.get("parameters"), results.paper.get("models", {}).get(row["model"], {}).get("parameters")}
    return len(sizes - {None}) > 1


def of_experiment(results: Results, experiment: str) -> list[Row]:
    """Returns every iteration time that its finished runs have reported, measured and modelled kept apart."""
    groups = results.groups(experiment)
    return [
        row | _details(group) | {"as_timed": as_timed(results, group)} for group in groups for row in _of_group(group)
    ]


def _details(group: Group) -> Row:
    """Returns what tells iterations of an algorithm apart besides the columns of `as_row`."""
    settings = group.settings
    return {name: settings[name] for name in ("density", "precision")} | {"overlap": settings.get("overlap", "off")}


def _of_group(group: Group) -> list[Row]:
    here = group.model, group.algo, group.nodes
    return [
        as_row(*here, row["source"], row["network"], group.batch, IterationTime.of(row)) for row in group.iteration_time
    ]


def on_gpus(results: Results, overlap: str = "off") -> list[Row]:
    """Returns what `experiment=throughput` measured on GPUs of one kind, that with most runs: rates are compared.

    They have the settings of what the paper timed, or those with buckets in the background. What a CPU takes is another
    item's.
    """
    timed = [group for group in results.groups("throughput") if as_timed(results, group)]
    groups = [group for group in timed if same_machine.gpus(group.machine) and _sends(group) == overlap]
    kinds = Counter(str(group.machine["gpus"]) for group in groups)
    alike = [group for group in groups if str(group.machine["gpus"]) == kinds.most_common(1)[0][0]]
    return [row for group in alike for row in _of_group(group) if row["source"] == "measured"]


def beside_the_paper(results: Results) -> list[Row]:
    """Returns the published iterations, and those of ours that have a node like the paper's: all have equal columns."""
    ours = [{name: row.get(name) for name in COLUMNS} for row in on_the_papers_node(results)]
    return published(results) + ours + simulated(results) + on_gpus(results)


def dilated(results: Results, experiment: str = "dilated") -> list[Row]:
    """Returns the experiment's iterations: their source is DILATED, and `dilation` says by how much."""
    rows = []
    for group in results.groups(experiment):
        batch = group.batch
        modelled = [IterationTime.of(row).total for row in group.iteration_time if row["source"] == "modelled"]
        for row in in_lab(group):
            same = (group.model, group.algo, group.nodes, DILATED, row["network"], batch)
            rows.append(
                as_row(*same, IterationTime.of(row), row["dilation"], row["repeats"])
                | {name: row[name] for name in ("node", "iterations_s")}
                | {"overlap": group.settings["overlap"], "modelled_s": modelled[0] if modelled else None}
                | {"as_timed": as_timed(results, group), "authors": _authors(group)}
                | {"processor": same_machine.processor(group.machine), "stated_s": group.settings.get("compute_s")}
            )
    order = _draw.models_of(rows)
    return sorted(rows, key=lambda row: (order.index(row["model"]), row["node"], row["nodes"]))


def in_lab(group: Group) -> list[Row]:
    """Returns the iterations that a group's stated nodes were measured in, with time dilated, each several times.

    Nodes that train there have no repeats, and are not among them.
    """
    return [row for row in group.iteration_time if is_dilated(row["source"]) and "repeats" in row]


def on_the_papers_node(results: Results, overlap: str = "off") -> list[Row]:
    """Returns those of `dilated` with the published compute and compress that are otherwise as what the paper timed.

    Of an iteration that was measured twice, as with other steps, it is the one of more repeats. The paper has none
    with overlap.
    """
    place = PLACE | {"network": PUBLISHED_ON, "overlap": overlap, "as_timed": True, "authors": "none"}
    most: dict[tuple[str, str, int], Row] = {}
    for row in (row for row in dilated(results) if place.items() <= row.items()):
        here = row["model"], row["algo"], row["nodes"]
        if here not in most or row["repeats"] > most[here]["repeats"]:
            most[here] = row
    return list(most.values())


def _sends(group: Group) -> str:
    """Returns whether buckets are sent during backward: on or off; "buckets" where they are sent after it."""
    overlap = str(group.settings.get("overlap", "off"))
    return "buckets" if overlap == "off" and group.settings.get("bucket_mb") else overlap


def as_timed(results: Results, group: Group) -> bool:
    """Returns whether iterations have the batch, density and messages of those that the paper timed."""
    settings, algo, model = group.settings, group.settings["algo"], group.model
    batch = group.batch
    exact = settings["density"] == 1 and not algo.get("sparse")
    return (
        (model not in results.paper["models"] or batch == timed_batch(results.paper, model))
        and (exact or settings["density"] == results.paper["training"]["density"])
        and algo.get("wire", "pairs") == "pairs"
        and not other_options(settings)
        and all(settings.get(name, value) == value for name, value in USUAL.items())
    )


def _authors(group: Group) -> str:
    """Returns which of the authors' ways with messages were measured, "none" for the messages as they are here."""
    return str(group.settings.get("cluster", {}).get("authors", "none"))


def as_row(
    model: str,
    algo: str,
    nodes: int,
    source: str,
    wire: str,
    batch: int,
    time: IterationTime,
    dilation: float | None = None,
    repeats: int | None = None,
) -> Row:
    """Returns an iteration's seconds as a row of a figure: rate and efficiency are of `batch` samples."""
    return {
        "model": model,
        "algo": algo,
        "nodes": nodes,
        "source": source,
        "network": wire,
        "batch_per_node": batch,
        **time.row(),
        "samples_per_s": batch / time.total,
        "efficiency": time.compute_s / time.total,
        "dilation": dilation,
        "repeats": repeats,
    }


def published(results: Results) -> list[Row]:
    """Returns throughput per node, and efficiency against the published single node, from the authors' script."""
    rows = []
    for model in _draw.PAPER:
        by_algo = results.paper["throughput_per_node"][model]
        for algo in ("dense", "topk", "gtopk"):
            for nodes, rate in by_algo[algo].items():
                rows.append(
                    {
                        "model": model,
                        "algo": algo,
                        "nodes": nodes,
                        "source": "published",
                        "network": PUBLISHED_ON,
                        "batch_per_node": None,
                        **dict.fromkeys(FIELDS),
                        "samples_per_s": rate,
                        "efficiency": rate / by_algo["single"],
                        "dilation": None,
                        "repeats": None,
                    }
                )
    return rows


def without_compress(rows: list[Row]) -> str:
    """Returns why ours have dense alone of some networks: their parts were simulated, without a published compress."""
    simulated_algos: dict[str, set[str]] = {}
    for row in rows:
        if row["source"] == "simulated":
            simulated_algos.setdefault(row["model"], set()).add(row["algo"])
    names = [_draw.model_name(model) for model, algos in simulated_algos.items() if algos == {"dense"}]
    return (
        f"{', '.join(names)}: ours are of dense alone, as no compression of it is published; sparse iterations with "
        "compression timed here are in the table dilated_iterations."
        if names
        else ""
    )


def slowed(rows: list[Row]) -> str:
    """Returns what a caption says of `rows` from the dilated lab: the dilation, and how often each was measured."""
    return f"time dilated {span(rows, 'dilation')} times, n = {span(rows, 'repeats')}"


def span(rows: list[Row], name: str) -> str:
    least, most = min(row[name] for row in rows), max(row[name] for row in rows)
    return f"{least:g}" if least == most else f"{least:g} to {most:g}"
