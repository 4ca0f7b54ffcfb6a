"""Writes rows as text files: CSV (the plotted numbers), Markdown and LaTeX booktabs."""

import csv
import io
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]  # column -> str | int | float | bool | None; every row of a table has the same columns

_LATEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
        "<": r"$<$",
        ">": r"$>$",
        "α": r"$\alpha$",
        "β": r"$\beta$",
        "ρ": r"$\rho$",
        "×": r"$\times$",
        "±": r"$\pm$",
        "≥": r"$\ge$",
        "≤": r"$\le$",
        "µ": r"$\mu$",
        "–": "--",
        "\u00a0": "~",
    }
)


def to_latex_text(text: str) -> str:
    """Escapes what is special in LaTeX; the result is ASCII for all that figures and tables say."""
    return text.translate(_LATEX)


def number(value: Any, digits: int) -> str:
    """Writes one cell with `digits` significant digits for floats, without thousands separators; "" for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    return str(value)


def for_people(value: Any, column: str = "") -> str:
    """Writes one cell for readers: four significant digits, without an exponent where that is short.

    A column of percentages has two decimals; an absent value is a dash.
    """
    if value is None or value == "":
        return "–"
    if isinstance(value, float) and column.endswith("(%)"):
        return f"{value:.2f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float) and (value == 0 or 1e-4 <= abs(value) < 1e12):
        digits = max(0, 3 - _magnitude(value))
        text = f"{value:,.{digits}f}" if abs(value) >= 10_000 else f"{value:.{digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return number(value, 4)


def readable(row: Row) -> dict[str, str]:
    return {column: for_people(cell, column) for column, cell in row.items()}


def _magnitude(value: float) -> int:
    return int(f"{abs(value):e}".split("e")[1])


def to_csv(rows: Sequence[Row]) -> str:
    """Writes six significant digits: enough to redraw, few enough to be the same on every machine."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if rows:
        writer.writerow(rows[0])
        writer.writerows([number(cell, 6) for cell in row.values()] for row in rows)
    return out.getvalue()


def to_markdown(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    lines = [list(rows[0]), ["---"] * len(rows[0])] + [list(readable(row).values()) for row in rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def to_latex(rows: Sequence[Row]) -> str:
    """Writes a booktabs tabular to \\input; the preamble needs \\usepackage{booktabs}."""
    if not rows:
        return ""
    lines = [list(rows[0])] + [list(readable(row).values()) for row in rows]
    head, *body = [" & ".join(to_latex_text(cell) for cell in line) + r" \\" for line in lines]
    align = "".join("r" if all(_is_number(row[column]) for row in rows) else "l" for column in rows[0])
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{align}}}",
            r"\toprule",
            head,
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _is_number(cell: Any) -> bool:
    return cell is None or isinstance(cell, int | float)
