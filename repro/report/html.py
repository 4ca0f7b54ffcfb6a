"""The report: one self-contained page with every claim, figure and table, what ran, and the commands."""

from __future__ import annotations

import html
import re
from collections import Counter
from pathlib import Path
from string import Template

import yaml

from repro import figures, results, verdicts
from repro.figures import Item
from repro.results import Group, Results
from repro.tables import Row, for_people

NOT_RUN = '<p class="not-run">Not run. The command above makes its data.</p>'
TEMPLATE = Path(__file__).parent / "report.html"
COLOURS = {  # of the drawings -> of the page, light or dark
    "#000000": "currentColor",
    "#ffffff": "var(--card)",
    "#e0e0e0": "var(--grid)",
    "#d9d9d9": "var(--grid)",
    "#595959": "var(--soft)",
    "#4d4d4d": "var(--soft)",
}


def write(data: Results, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page(data), encoding="utf-8")


def page(data: Results) -> str:
    items = [(item, item.table(data)) for item in figures.load()]
    claims = next(rows for item, rows in items if item.name == "claims")
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        counts=_counts(claims),
        claims=table([{name: row[name] for name in CLAIM_COLUMNS} for row in claims], "cards"),
        figures="\n".join(figures.side_by_side(_figure, *zip(*(one for one in items if one[0].draw), strict=True))),
        tables="\n".join(_table(item, rows) for item, rows in items if not item.draw and item.name != "claims"),
        runs=table(what_ran(data), "cards")
        or "<p>Nothing yet. Begin with <code>repro run experiment=quickstart</code>.</p>",
        differences=table(yaml.safe_load((results.folder() / "differences.yaml").read_text()), "cards"),
        rules="".join(f"<li>{html.escape(rule)}</li>" for rule in verdicts.RULES),
    )


CLAIM_COLUMNS = ("claim", "published", "ours", "n", "seeds", "source", "verdict", "why", "command")


def what_ran(data: Results) -> list[Row]:
    """One row for the runs of an experiment that differ in algorithm, nodes or density alone."""
    parts: dict[tuple[str, ...], list[Group]] = {}
    for experiment, group in data.all_groups():
        steps = group.settings["steps"]
        schedule = group.schedule if steps is None else f"{steps} step{'s' if steps > 1 else ''}"
        versions, git = group.machine.get("versions", {}), group.machine.get("git") or {}
        same = {
            "experiment": experiment,
            "network": group.model,
            "data": group.data,
            "schedule": schedule,
            "seeds": " ".join(map(str, group.seeds)),
            "precision": group.settings["precision"],
            "where": ", ".join(group.machine.get("gpus") or [group.machine.get("cpu", "")]),
            "versions": ", ".join(f"{name} {versions[name]}" for name in ("python", "torch") if name in versions),
            "commit": git.get("commit", "")[:9] + (" + changes" if git.get("dirty") else ""),
        }
        parts.setdefault(tuple(same.values()), []).append(group)
    names = ("experiment", "network", "data", "schedule", "seeds", "precision", "where", "versions", "commit")
    rows = []
    for same_values, groups in parts.items():
        row: Row = dict(zip(names, same_values, strict=True))
        algorithms = ", ".join(sorted({group.algo for group in groups}))
        nodes = ", ".join(map(str, sorted({group.nodes for group in groups})))
        rows.append({"experiment": row.pop("experiment"), "algorithms": algorithms, "nodes": nodes, **row})
    return rows


def _counts(claims: list[Row]) -> str:
    count = Counter(row["verdict"] for row in claims)
    return "".join(f'<li class="{_class(word)}"><b>{count[word]}</b>{word}</li>' for word in verdicts.ORDER)


def _class(word: str) -> str:
    return word.replace(" ", "-")


def _figure(item: Item, rows: list[Row]) -> str:
    head = f'<h3 id="{item.name}">{html.escape(item.title)}</h3><code>{html.escape(item.command)}</code>'
    if not rows:
        return f"<figure>{head}{NOT_RUN}</figure>"
    drawing, width = svg(item, rows)
    wide = ' class="wide"' if width > 300 else ""
    return f'<figure{wide}>{head}<div class="scroll">{drawing}</div></figure>'


def svg(item: Item, rows: list[Row]) -> tuple[str, float]:
    """The figure as an SVG element that takes the page's colours, and its width in points."""
    text = figures.render(item, rows, ["svg"], transparent=True)["svg"].decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    width = float(re.search(r'width="([\d.]+)pt"', text)[1])  # type: ignore[index]
    text = re.sub(
        r'(<svg[^>]*?) width="[\d.]+pt"',
        rf'\1 role="img" aria-label="{html.escape(item.title)}"',
        text,
        count=1,
    )
    text = re.sub(r'(<svg[^>]*?) height="[\d.]+pt"', r"\1", text, count=1)
    for old, new in COLOURS.items():
        text = text.replace(old, new)
    # Ids are unique in one drawing alone.
    text = re.sub(r' id="([^"]+)"', rf' id="{item.name}-\1"', text)
    text = re.sub(r'(xlink:href="#|url\(#)', rf"\1{item.name}-", text)
    return text, width


def _table(item: Item, rows: list[Row]) -> str:
    command = f"<p><code>{html.escape(item.command)}</code></p>"
    body = table(rows) if rows else NOT_RUN
    title = f'<h3 id="{item.name}">{html.escape(item.title)}</h3>'
    return f'<section>{title}{command}<div class="scroll">{body}</div></section>'


def table(rows: list[Row], kind: str = "") -> str:
    """On a narrow page `cards` shows each row as a card; other tables scroll sideways in their frame."""
    if not rows:
        return ""
    kinds = {name: "number" if _numeric([row[name] for row in rows]) else "" for name in rows[0]}
    head = "".join(f'<th class="{kind}">{html.escape(name)}</th>' for name, kind in kinds.items())
    cells = ("".join(_cell(name, value, kinds[name]) for name, value in row.items()) for row in rows)
    body = "\n".join(f"<tr>{text}</tr>" for text in cells)
    return f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>'


def _numeric(column: list[object]) -> bool:
    return all(isinstance(value, int | float) for value in column if value not in (None, ""))


def _cell(name: str, value: object, kind: str) -> str:
    text = re.sub(r"(?<=\d) (?=[×%])", "\u00a0", html.escape(for_people(value, name)))  # no line begins with a unit
    kinds = [kind] if kind else []
    kinds += ["empty"] if value in (None, "") else []
    kinds += ["verdict", _class(str(value))] if name == "verdict" else []
    if str(value).startswith("repro "):
        text = f"<code>{re.sub('(?<=[=,_/])', '<wbr>', text)}</code>"  # rather there than inside a word
    return f'<td class="{" ".join(kinds)}" data-label="{html.escape(name)}">{text}</td>'
