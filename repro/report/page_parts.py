"""Writes parts of the pages from the committed summaries: tables, status, figures, algorithms."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

import yaml

from repro import figures, tables
from repro.config import explain, groups
from repro.figures import _coverage, _draw, _times, kept_accuracy
from repro.figures.algorithms import cost
from repro.metric import ACCURACY
from repro.report import in_short, near_dense, reference, summaries, verdicts
from repro.report.as_published import as_published, other_schedule
from repro.report.group import Group
from repro.report.prefixes import Pooled
from repro.report.summaries import Results
from repro.tables import Row


def table(data: Results, name: str) -> str:
    """Returns a table of repro/figures/ in full."""
    return tables.to_markdown(_rows(data, name))


def status(data: Results, _: str) -> str:
    """Returns the result: how gTop-k fares, what lies beyond the paper, claims by verdict, and how trainings ended."""
    claims = _rows(data, "claims")
    asked = in_short.asked(claims)
    words = Counter(row["verdict"] for row in asked)
    counts = ", ".join(f"{count} {word}" for word, count in words.most_common())
    derived = sum(row["verdict"] == "reproduced" and "derived here" in row["published"] for row in asked)
    of_formulas = f" {_derived(derived, words['reproduced'])} from the paper's cost formulas." if derived else ""
    lines = in_short.sentences(data, claims)
    if kept := kept_accuracy.best(_rows(data, "kept_accuracy")):
        lines.append(f"**Beyond the paper.** {kept}")
    lines.append(f"Of {words.total()} claims of the paper that are checked here: {counts}.{of_formulas}")
    ended = tables.to_markdown(in_short.table(data))
    return "".join(f"- {line}\n" for line in lines) + (f"\n{ended}\n{in_short.of_images(data)}\n" if ended else "")


def _derived(derived: int, reproduced: int) -> str:
    which = "The reproduced one" if reproduced == 1 else f"Of the {reproduced} reproduced, {derived}"
    return f"{which} stands in nothing published and was derived here"


def measured(data: Results, experiment: str) -> str:
    """Returns how much of a dilated experiment's sweep was measured."""
    return _coverage.said(_times.dilated(data, experiment), experiment)


def claims(data: Results, _: str) -> str:
    """Returns the claims in few columns, because a page is narrow."""
    return tables.to_markdown(
        [
            {
                "claim": row["claim"],
                "published": row["published"],
                "ours": row["ours"],
                "verdict": f"**{row['verdict']}**: {row['why']}",
                "from": row["source"] and row["source"] + (f", n = {row['n']}" if row["n"] else ""),
                "command": f"`{row['command']}`",
            }
            for row in _rows(data, "claims")
        ]
    )


def codecs(_: Results, __: str) -> str:
    """Returns what each wire format takes to encode and decode, as benchmarks/pair_formats.py has measured it."""
    rows = summaries.read_json(summaries.folder() / "speed" / "pair_formats.jsonl")["rows"]
    shown = ("format", "bytes a pair", "encode ms", "decode ms", "both ms", "x pairs", "x copy", "lost")
    named = {"format": "`algo.wire`", "x pairs": "times `pairs`", "x copy": "times a copy", "lost": "lost by rounding"}
    table = tables.to_markdown(
        [{"processor": _processor(row)} | {named.get(name, name): row[name] for name in shown} for row in rows]
    )
    return (
        f"{table}\nMedians of {rows[0]['repeats']} repeats of all formats in turn: the processor time of one thread "
        f"for {rows[0]['pairs']:,} of {rows[0]['parameters']:,} entries (`python benchmarks/pair_formats.py --out "
        "results/speed/pair_formats.jsonl`, which adds a processor; only ratios are of one run). *Lost* is the norm of "
        "what rounding took over that of the values, which a residual keeps.\n"
    )


def _processor(row: Row) -> str:
    known = row["processor"]
    return f"{known['name']} (family {known['family']} model {known['model']})"


def rules(_: Results, __: str) -> str:
    return "".join(f"- {rule}\n" for rule in verdicts.RULES)


def differences(_: Results, __: str) -> str:
    rows = yaml.safe_load((summaries.folder() / "differences.yaml").read_text())
    names = {"what": "subject", "theirs": "the authors' code and scripts", "ours": "here"}
    return tables.to_markdown([{names[name]: text for name, text in row.items()} for row in rows])


def items(data: Results, _: str) -> str:
    """Returns one section for each figure that has data, and a table of all the other items."""
    sections, others = [], []
    for item in figures.load():
        rows = item.table(data)
        made_by = ", ".join(f"`{command}`" for command in item.commands)
        if item.draw and rows:
            ours = "" if item.ours(rows) else " Published values alone: not run here."
            sections.append(
                f"### {item.title}\n\n![{item.title}](../results/figures/{item.name}.png)\n\n"
                f"Made by {made_by}.{ours} "
                f"[Numbers](../results/figures/{item.name}.csv), [PDF](../results/figures/{item.name}.pdf).\n"
            )
        else:
            shown = f"[{item.title}](../results/tables/{item.name}.md)" if rows and not item.draw else item.title
            others.append({"table": shown, "made by": made_by if rows else f"not run: {made_by}"})
    return "\n".join([*sections, "### Tables\n", tables.to_markdown(others)])


def algorithms(data: Results, _: str) -> str:
    """Returns one section for each file of conf/algo/, by family, the paper's family first."""
    about = {name: groups.about(name) for name in groups.group_options("algo")}
    families = {name: str(keys.get("family", "other")) for name, keys in about.items()}
    order = sorted(
        about, key=lambda name: (families[name] != "sparse", families[name], name not in in_short.COMPARED, name)
    )
    whole = [one for one in in_short.ends(data) if one.longest.whole and not one.other]
    sections, family = [], ""
    for name in order:
        if families[name] != family:
            family = families[name]
            sections.append(f"## {family.capitalize()}\n")
        sections.append(_algorithm(name, about[name], data, whole))
    return "\n".join(sections)


def _algorithm(name: str, about: dict[str, Any], data: Results, whole: list[in_short.Ends]) -> str:
    module = about.get("file") or name
    rows: dict[str, str | None] = {
        "source": about.get("source"),
        "update": f"`{about['update']}`" if "update" in about else None,
        "bytes and rounds of P nodes": cost(module),
        "counted": _counted(name, data),
        "error feedback": about.get("error_feedback"),
        "unlike": about.get("unlike"),
        "when to use it": about.get("use"),
        "accuracy": _accuracy(name, data, whole),
        "time": _time(name, data),
        "run it": f"`repro run algo={name}`",
        "code": f"[`repro/algorithms/{module}.py`](../repro/algorithms/{module}.py)",
    }
    facts = tables.to_markdown([{"": key, f"`algo={name}`": value} for key, value in rows.items() if value])
    options = reference.option_keys("algo", name)
    return f"### {groups.title('algo', name)}\n\n{explain.head('algo', name)}\n\n{facts}" + (
        f"\n{options}" if options else ""
    )


def _counted(name: str, data: Results) -> str | None:
    rows = data.summaries.get("algorithms", {}).get("rows", [])
    row = next((row for row in rows if row["algo"] == name), None)
    if row is None:
        return None
    more = (
        f" ({row['socket_bytes_most']:,.0f} at the socket, {row['bytes_sent_mean']:,.0f} from the mean node)"
        if "bytes_sent_mean" in row
        else ""
    )
    return (
        f"{row['bytes_sent_most']:,.0f} bytes a step from the busiest of {row['nodes']} nodes{more}, "
        f"{row['rounds_most']:g} rounds, with m = {row['parameters']:,}{_range(name, data)}"
    )


def _range(name: str, data: Results) -> str:
    """Says how far the bytes of a step go where they depend on values, in the runs that its accuracy is of."""
    found = near_dense.longest(data, name, groups.default(near_dense.MODEL, "density"))
    sent = found.group.per_step if found else {}
    if found is None or not sent.get("bytes_sent_least"):
        return ""
    group = found.group
    return (
        f"; they depend on values: in a training rank 0 of {group.nodes} nodes sent {sent['bytes_sent']:,.0f} a step "
        f"on average, {sent['bytes_sent_least']:,.0f} to {sent['bytes_sent_most']:,.0f} "
        f"({_draw.model_name(group.model)}, {group.schedule}, seed {group.seeds[0]})"  # a summary keeps its first's
    )


def _accuracy(name: str, data: Results, whole: list[in_short.Ends]) -> str | None:
    """Returns that of a whole run, else dense's beside it where both were trained longest, else that of a variant."""
    compared = (one.by_algo[name] for one in whole if name in one.by_algo)
    others = (group for _, group in data.all_groups() if _is_usual(group, name))
    if group := next((group for group in (*compared, *others) if group.whole), None):
        return _of_runs(f"{100 * group.curve[-1]['test_accuracy']:.2f} %", _told(group))
    if found := near_dense.longest(data, name, groups.default(near_dense.MODEL, "density")):
        told = _told(found.group) | {"epochs averaged": found.epochs}
        if not found.group.compressed and found.epoch != found.group.epochs:
            told["schedule"] += f" up to epoch {found.epoch:g}"
        return _beside_dense(found.ours, found.dense, told)
    row = _among_families(name, data)  # whose schedule names what is not by the algorithm's own rules
    return None if row is None else _of_runs(f"{100 * row['test_accuracy']:.2f} %", row)


def _told(group: Group) -> Row:
    of_group = {name: getattr(group, name) for name in ("model", "nodes", "schedule", "n", "data")}
    return of_group | {"precision": group.settings["precision"], "epochs averaged": 1}


def _of_runs(accuracy: str, row: Row) -> str:
    mean = f", mean of the last {row['epochs averaged']} epochs" if row["epochs averaged"] > 1 else ""
    return (
        f"{accuracy} ({_draw.model_name(row['model'])}, {row['nodes']} nodes, {row['schedule']}{mean}, "
        f"{row['precision']}, n = {row['n']}, {_draw.data_name(row['data'])})"
    )


def _beside_dense(ours: Pooled, dense: Pooled, told: Row) -> str:
    """Says what both have: of the seeds that both have, if there are any."""
    n, same = ours.n, ""
    both: tuple[float, ...] = ours.mean, dense.mean
    if seeds := ours.accuracies.keys() & dense.accuracies:
        n, same = len(seeds), f"of the same seed{'s' * (len(seeds) > 1)} "
        both = tuple(statistics.fmean(one.accuracies[seed] for seed in seeds) for one in (ours, dense))
    return _of_runs(f"{both[0]:.2f} %, where dense {same}has {both[1]:.2f} %", told | {"n": n})


def _among_families(name: str, data: Results) -> Row | None:
    """Returns an algorithm's row of the figure of all algorithms, at its least density."""
    rows = [row for row in _rows(data, "families") if row["algo"] == name]
    return min(rows, key=lambda row: row["density"], default=None)


def _is_usual(group: Group, name: str) -> bool:
    """Returns whether a run is of this algorithm as its file has it, at the density that is compared."""
    return (
        group.algo == name
        and group.metric == ACCURACY
        and group.settings["density"] == groups.default(group.model, "density")
        and as_published(group.settings)
        and not other_schedule(group.settings)
    )


def _time(name: str, data: Results) -> str | None:
    title = groups.title("algo", name)
    rows = [row for row in _rows(data, "relaxations") if (row["algorithm"], row["network"]) == (title, _link())]
    if rows:
        row = max(rows, key=lambda row: row["nodes"])
        gain = row["over dense"]
        return (
            f"{row['iteration (ms)']:,.0f} ms an iteration"
            + ("" if gain is None else f", {gain:.2f} times as fast as dense that computes as long")
            + f" ({row['source']}: {row['model']}, {row['nodes']} nodes, links of 1 Gbps, n = {row['n']})"
        )
    alone = _among_families(name, data)
    if alone is None or alone["ethernet1g_ms"] is None:
        return None
    return (
        f"{tables.for_people(alone['ethernet1g_ms'])} ms an iteration ({alone['time_source']}: "
        f"{_draw.model_name(alone['model'])}, {alone['nodes']} nodes, 1 Gbps)"
    )


def _link() -> str:
    return groups.title("network", "ethernet1g")


def _rows(data: Results, item: str) -> list[Row]:
    return figures.load([item])[0].table(data)
