"""Writes the report: one self-contained page with every claim, figure and table, what ran, and the commands."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from string import Template

import yaml

from repro import figures
from repro.config.groups import title
from repro.figures import Item
from repro.report import in_short, same_machine, summaries, verdicts
from repro.report.group import Group
from repro.report.summaries import Results
from repro.screen import plural
from repro.tables import Row, for_people
from repro.whole_files import write_whole

NOT_RUN = '<p class="not-run">Not run. The command above makes its data.</p>'
TEMPLATE = Path(__file__).parent / "page.html"
COLOURS = {  # a drawing's colour -> the page's, light or dark
    "#000000": "currentColor",
    "#ffffff": "var(--card)",
    "#e0e0e0": "var(--grid)",
    "#d9d9d9": "var(--grid)",
    "#595959": "var(--soft)",
    "#4c4c4c": "var(--soft)",
    "#ededed": "var(--grid)",
    "#737373": "var(--soft)",
}


def write(data: Results, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, page(data))


def page(data: Results) -> str:
    items = [(item, item.table(data)) for item in figures.load()]
    claims = next(rows for item, rows in items if item.name == "claims")
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        counts=_counts(in_short.asked(claims)),
        in_short="".join(f"<p>{html.escape(said)}</p>" for said in in_short.sentences(data, claims)),
        claims=table([{name: row[name] for name in CLAIM_COLUMNS} for row in claims], "cards"),
        title=headline(in_short.asked(claims)),
        figures=gallery([(item, rows) for item, rows in items if item.draw]),
        tables="\n".join(_table(item, rows) for item, rows in items if not item.draw and item.name != "claims"),
        runs=table(what_ran(data), "cards")
        or "<p>Nothing yet. Begin with <code>repro run experiment=quickstart</code>.</p>",
        differences=table(yaml.safe_load((summaries.folder() / "differences.yaml").read_text()), "cards"),
        rules="".join(f"<li>{html.escape(rule)}</li>" for rule in verdicts.RULES),
    )


CLAIM_COLUMNS = ("claim", "published", "ours", "n", "seeds", "source", "verdict", "why", "command")


def what_ran(data: Results) -> list[Row]:
    """Returns one row for all runs of an experiment that differ only in algorithm, nodes or density."""
    parts: dict[tuple[str, ...], list[Group]] = {}
    for experiment, group in data.all_groups():
        steps = group.settings["steps"]
        schedule = group.schedule if steps is None else f"{steps} step{'s' if steps > 1 else ''}"
        versions, git = group.machine.get("versions", {}), group.machine.get("git") or {}
        same = {
            "experiment": experiment,
            "model": title("model", group.model),
            "data": title("data", group.data),
            "schedule": schedule,
            "seeds": " ".join(map(str, group.seeds)),
            "precision": group.settings["precision"],
            "where": ", ".join(same_machine.gpus(group.machine) or [group.machine.get("cpu", "")]),
            "versions": ", ".join(f"{name} {versions[name]}" for name in ("python", "torch") if name in versions),
            "commit": git.get("commit", "")[:9] + (" + changes" if git.get("dirty") else ""),
        }
        parts.setdefault(tuple(same.values()), []).append(group)
    names = ("experiment", "model", "data", "schedule", "seeds", "precision", "where", "versions", "commit")
    rows = []
    for same_values, groups in parts.items():
        row: Row = dict(zip(names, same_values, strict=True))
        algorithms = ", ".join(sorted({title("algo", group.algo) for group in groups}))
        nodes = ", ".join(map(str, sorted({group.nodes for group in groups})))
        rows.append({"experiment": row.pop("experiment"), "algorithms": algorithms, "nodes": nodes, **row})
    return rows


def headline(claims: list[Row]) -> str:
    """Says what the page shows: how many claims of the paper were checked, and how that ended."""
    count = Counter(row["verdict"] for row in claims)
    open_ = count["undecided"] + count["conditions not met"] + count["not run"]
    return (
        f"The gTop-k paper, claim by claim: of {len(claims)}, {count['reproduced']} reproduced, "
        f"{count['not reproduced']} not reproduced, {open_} still open"
    )


def _counts(claims: list[Row]) -> str:
    count = Counter(row["verdict"] for row in claims)
    return "".join(f'<li class="{_class(word)}"><b>{count[word]}</b>{word}</li>' for word in verdicts.ORDER)


def _class(word: str) -> str:
    return word.replace(" ", "-")


def gallery(items: list[tuple[Item, list[Row]]]) -> str:
    """Returns the figures in rows: one over the whole width, or two beside each other at the same height.

    A figure of one column that is left alone is drawn over two, so that no row has a hole. What is not run stands at
    the end.
    """
    drawn = [(item, rows) for item, rows in items if rows]
    rows_of = rows_of_figures([item.width for item, _ in drawn])
    widths = {place: "single" if len(row) > 1 else "double" for row in rows_of for place in row}
    shown = [(*drawn[place], widths[place]) for row in rows_of for place in row]
    figure = iter(figures.side_by_side(_figure, *zip(*shown, strict=True)) if shown else ())
    text = "".join(f'<div class="row">{"".join(next(figure) for _ in row)}</div>\n' for row in rows_of)
    return text + "".join(f'<div class="row"><figure>{_head(item)}{NOT_RUN}</figure></div>\n' for item, rows in items
                          if not rows)  # fmt: skip


def rows_of_figures(widths: Sequence[str]) -> list[list[int]]:
    """Returns the places of the figures in each row: narrow ones in twos, which may pass a wide one, else in order."""
    rows: list[list[int]] = []
    waiting: list[int] = []
    held: list[list[int]] = []  # wide ones that follow a narrow one which has no partner yet
    for place, width in enumerate(widths):
        if width == "double":
            (held if waiting else rows).append([place])
        elif waiting:
            rows += [[waiting.pop(), place], *held]
            held = []
        else:
            waiting = [place]
    return rows + [[place] for place in waiting] + held


def _figure(item: Item, rows: list[Row], width: str) -> str:
    drawing, notes, (wide, high) = svg(item, rows, width)
    caption = "".join(f"<p>{html.escape(line)}</p>" for line in notes)
    return (
        f'<figure class="{width}" style="flex-grow: {wide / high:.3f}">{_head(item)}<div class="scroll">{drawing}</div>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _commands(item: Item) -> str:
    """Returns what makes the item, all but its own command folded: figures of a row are equally high without them."""
    first, *others = (f"<code>{html.escape(command)}</code>" for command in item.commands)
    if not others:
        return first
    said = f"and {plural(len(others), 'other command')}"
    return f'{first}<details class="soft"><summary>{said}</summary>{", ".join(others)}</details>'


def _head(item: Item) -> str:
    return f'<h3 id="{item.name}">{html.escape(item.title)}</h3>{_commands(item)}'


def svg(item: Item, rows: list[Row], width: str) -> tuple[str, list[str], tuple[float, float]]:
    """Returns the figure as an SVG element that takes the page's colours, its notes, and its size in points."""
    files = figures.render(item, rows, ["svg"], notes=False, width=width, transparent=True)
    text, notes = (files[kind].decode() for kind in ("svg", "txt"))
    text = text[text.index("<svg") :]
    # Comments repeat the labels, which may hold what a user typed: a browser must not end one where it pleases.
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->\n?", "", text, flags=re.S)
    wide, high = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text).groups())  # type: ignore[union-attr]
    for size in ("width", "height"):  # the page gives it its size
        text = re.sub(rf'(<svg[^>]*?) {size}="[\d.]+pt"', r"\1", text, count=1)
    text = text.replace("<svg", f'<svg role="img" aria-label="{html.escape(item.title)}"', 1)
    for old, new in COLOURS.items():
        text = text.replace(old, new)
    # Ids are unique only within one drawing.
    text = re.sub(r' id="([^"]+)"', rf' id="{item.name}-\1"', text)
    text = re.sub(r'(xlink:href="#|url\(#)', rf"\1{item.name}-", text)
    return text, notes.splitlines()[2:], (wide, high)


def _table(item: Item, rows: list[Row]) -> str:
    command = f'<div class="made-by">{_commands(item)}</div>'
    body = table(rows) if rows else NOT_RUN
    title = f'<h3 id="{item.name}">{html.escape(item.title)}</h3>'
    return f'<section>{title}{command}<div class="scroll">{body}</div></section>'


def table(rows: list[Row], kind: str = "") -> str:
    """Returns rows as HTML. On a narrow page `cards` shows each row as a card; other tables scroll sideways."""
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
        text = f"<code>{re.sub('(?<=[=,_/])', '<wbr>', text)}</code>"  # a line breaks there rather than inside a word
    return f'<td class="{" ".join(kinds)}" data-label="{html.escape(name)}">{text}</td>'
