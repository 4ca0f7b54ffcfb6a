"""Reads the numbers that pages of docs/ tell by hand."""

import re
from pathlib import Path

JPEG = "cifar10 (JPEG folder)"  # what is told is of runs on these images, unless it says others
PAGES = [
    Path(__file__).parents[1] / "docs" / name for name in ("paper.md", "accuracy.md", "algorithms.md", "planner.md")
]
TEXT = " ".join(" ".join(page.read_text().split()) for page in PAGES)


def told(sentences: str) -> list[float]:
    """Returns the numbers that the pages have in place of each N of `sentences`, in which [...] is any text between."""
    between = re.escape(sentences).replace(r"\[\.\.\.\]", ".*?")
    pattern = re.sub(r"(?<![A-Za-z])N(?=th\b|\b)", lambda _: r"(-?\d+(?:\.\d+)?)", between)  # ResNet is none
    said = re.search(pattern, TEXT)
    assert said, f"the pages do not say: {sentences}"
    return [float(number) for number in said.groups()]
