"""Writes parts of the pages from the committed summaries: tables, status, figures, algorithms."""

from __future__ import annotations

from collections import Counter
from typing import Any

import yaml

from repro import figures, tables
from repro.config import explain, groups
from repro.figures import _coverage, _draw, _times, kept_accuracy
from repro.figures.algorithms import formula
from repro.metric import ACCURACY
from repro.report import pairs, reference, reference_curves, summaries, verdicts
from repro.report.as_published import as_published
from repro.report.group import Group
from repro.report.summaries import Results
from repro.tables import Row


def table(data: Results, name: str) -> str:
    """Returns a table of repro/figures/ in full."""
    return tables.to_markdown(_rows(data, name))


def status(data: Results, _: str) -> str:
    """Returns a line each: claims by verdict, the longest training, what lies beyond it, the speed-up on 32 nodes."""
    # A speed-up has a row for each way to obtain its seconds: that of the first, which is measured, counts.
    asked = {row["claim"].removesuffix(", published node"): row for row in reversed(_rows(data, "claims"))}
    words = Counter(row["verdict"] for row in asked.values())
    counts = ", ".join(f"{count} {word}" for word, count in words.most_common())
    derived = sum(row["verdict"] == "reproduced" and "derived here" in row["published"] for row in asked.values())
    of_formulas = f" ({derived} of them derived here from the paper's cost formulas)" if derived else ""
    lines = [f"**Claims.** Of {words.total()} claims of the paper that are checked here: {counts}{of_formulas}."]
    densities = 1, data.paper["training"]["density"]
    trained = [
        group
        for group in data.groups("convergence", ACCURACY)
        if group.curve and group.settings["density"] in densities and as_published(group.settings)
    ]
    if trained:
        most = max(group.epochs for group in trained)
        found = {(one.encoded, one.data, one.model, one.nodes): one for one in reversed(trained) if one.epochs == most}
        longest = [found[place] for place in sorted(found)]  # the original images first
        several = len({group.data for group in longest}) > 1
        of_each = "; ".join(_ends(group, trained, several) for group in longest)
        lines.append(f"**Accuracy.** The longest training so far is {of_each}.{_images(data, longest)}")
    if kept := kept_accuracy.best(_rows(data, "kept_accuracy")):
        lines.append(f"**Beyond the paper.** {kept}")
    lines += [
        f"**Time.** {row['claim']}: {row['ours']} ({row['source']}, n = {row['n']}); published {row['published']}."
        for row in _rows(data, "claims")
        if row["claim"] == "gTop-k over dense on 32 nodes" and row["n"]
    ]
    return "".join(f"- {line}\n" for line in lines)


def _images(data: Results, longest: list[Group]) -> str:
    """Says which images were encoded once more, and what others obtained with the originals; "" if none were."""
    encoded = [group for group in longest if group.encoded]
    if not encoded:
        return ""
    first = encoded[0]
    known = reference_curves.beside(data.reference, first.model, first.batch, first.settings["lr"], first.nodes)
    ends = sorted(run["test_accuracy"][-1] for run in known)
    others = f": with the originals others had {ends[0]:.1f} to {ends[-1]:.1f} %" if ends else ""
    name = first.settings["data"]["name"] if encoded == longest else first.data
    return f" The images of {_draw.data_name(name)} were encoded once more, as JPEG{others}."


def _ends(longest: Group, trained: list[Group], name_data: bool) -> str:
    """Says how the algorithms ended that were trained like this run, on as many nodes."""
    comparable = [group for group in trained if pairs.alike(group, longest)]
    alike = [group for group in comparable if group.schedule == longest.schedule]
    places = _draw.algos_of([{"algo": one.algo} for one in alike])
    alike.sort(key=lambda one: places.index(one.algo))
    accuracies = ", ".join(f"{_draw.algo_name(one.algo)} {100 * one.curve[-1]['test_accuracy']:.2f} %" for one in alike)
    about = [longest.schedule, longest.settings["precision"], *([_draw.data_name(longest.data)] * name_data)]
    return (
        f"{_draw.model_name(longest.model)} on {longest.nodes} nodes ({', '.join(about)}): {accuracies} "
        f"(n = {_times.span([{'n': one.n} for one in alike], 'n')})"
    )


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
    order = sorted(about, key=lambda name: (families[name] != "sparse", families[name], name))
    sections, family = [], ""
    for name in order:
        if families[name] != family:
            family = families[name]
            sections.append(f"## {family.capitalize()}\n")
        sections.append(_algorithm(name, about[name], data))
    return "\n".join(sections)


def _algorithm(name: str, about: dict[str, Any], data: Results) -> str:
    module = about.get("file") or name
    rows: dict[str, str | None] = {
        "source": about.get("source"),
        "formula": f"`{about['update']}`" if "update" in about else None,
        "bytes and rounds of P nodes": formula(module),
        "counted": _counted(name, data),
        "error feedback": about.get("error_feedback"),
        "when to use it": about.get("use"),
        "accuracy": _accuracy(name, data),
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
    row = _first(data.summaries.get("algorithms", {}).get("rows", []), algo=name)
    if row is None:
        return None
    more = (
        f" ({row['socket_bytes_most']:,.0f} at the socket, {row['bytes_sent_mean']:,.0f} from the mean node)"
        if "bytes_sent_mean" in row
        else ""
    )
    return (
        f"{row['bytes_sent_most']:,.0f} bytes a step from the busiest of {row['nodes']} nodes{more}, "
        f"{row['rounds_most']:g} rounds, with m = {row['parameters']:,}"
    )


def _accuracy(name: str, data: Results) -> str | None:
    row = _first(_rows(data, "families"), algo=name)
    return row and (
        f"{100 * row['test_accuracy']:.2f} % ({_draw.model_name(row['model'])}, {row['nodes']} nodes, "
        f"{row['schedule']}, n = {row['n']}, {_draw.data_name(row['data'])})"
    )


def _time(name: str, data: Results) -> str | None:
    title = groups.title("algo", name)
    rows = [row for row in _rows(data, "relaxations") if (row["algorithm"], row["network"]) == (title, _link())]
    if rows:
        row = max(rows, key=lambda row: row["nodes"])
        gain = row["over dense"]
        return (
            f"{row['iteration (ms)']:,.0f} ms an iteration"
            + ("" if gain is None else f", {gain:.2f} times as fast as dense")
            + f" ({row['source']}: {row['model']}, {row['nodes']} nodes, links of 1 Gbps, n = {row['n']})"
        )
    row = _first(_rows(data, "families"), algo=name)
    return row and (
        f"{tables.for_people(row['ethernet1g_ms'])} ms an iteration ({row['time_source']}: "
        f"{_draw.model_name(row['model'])}, {row['nodes']} nodes, 1 Gbps)"
    )


def _link() -> str:
    return groups.title("network", "ethernet1g")


def _rows(data: Results, item: str) -> list[Row]:
    return figures.load([item])[0].table(data)


def _first(rows: list[Row], **wanted: Any) -> Any:
    return next((row for row in rows if wanted.items() <= row.items()), None)
