"""The README's results section: generated from the committed summaries, between two markers."""

from __future__ import annotations

from pathlib import Path

from repro import figures, results, tables
from repro.results import Results
from repro.schema import ConfigError

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"


def update(file: Path, write: bool) -> bool:
    """Whether the README was up to date; if not, and `write`, it is brought up to date. Raises ConfigError."""
    text = file.read_text() if file.exists() else ""
    if BEGIN not in text or END not in text:
        raise ConfigError(f"{file} has no {BEGIN} and {END} between which the results table could go.")
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    fresh = f"{before}{BEGIN}\n{section(results.load())}{END}{after}"
    if fresh != text and write:
        file.write_text(fresh)
    return fresh == text


def section(data: Results) -> str:
    """Claims with verdicts, final accuracies, the algorithms, and one row for each figure and table."""
    claims, accuracies = (item.table(data) for item in figures.load(["claims", "accuracies"]))
    parts = [
        "Published values are those of the authors' script, code and article "
        "([results/paper.yaml](results/paper.yaml)).",
        tables.to_markdown([_claim(row) for row in claims]),
    ]
    if accuracies:
        keep = (
            "network",
            "algorithm",
            "data",
            "nodes",
            "schedule",
            "n",
            "test accuracy (%)",
            "± (%)",
            "bytes per node and step",
        )
        parts.append(tables.to_markdown([{name: row[name] for name in keep} for row in accuracies]))
    parts.append(tables.to_markdown(figures.load(["algorithms"])[0].table(data)))
    parts.append(tables.to_markdown([_item(item, data) for item in figures.load()]))
    return "\n".join(parts)


def _claim(row: tables.Row) -> tables.Row:
    ours = row["ours"] or f"`{row['command']}`"
    return {
        "claim": row["claim"],
        "published": row["published"],
        "ours": ours,
        "n": row["n"],
        "source": row["source"],
        "verdict": row["verdict"],
    }


def _item(item: figures.Item, data: Results) -> tables.Row:
    rows = item.table(data)
    kind, path = (
        ("figure", f"results/figures/{item.name}.png") if item.draw else ("table", f"results/tables/{item.name}.md")
    )
    shown = f"[{item.title}]({path})" if rows else item.title
    return {
        "item": shown,
        "kind": kind,
        "data of ours": "yes" if item.ours(rows) else "not run",
        "made by": f"`{item.command}`",
    }
