"""Reads the numbers that docs/paper.md tells by hand."""

import re
from pathlib import Path

JPEG = "cifar10 (JPEG folder)"  # what is told is of runs on these images, unless it says others
TEXT = " ".join((Path(__file__).parents[1] / "docs/paper.md").read_text().split())


def told(sentences: str) -> list[float]:
    """Returns the numbers that the page has in place of each N of `sentences`, in which [...] is any text between."""
    pattern = re.escape(sentences).replace(r"\[\.\.\.\]", ".*?").replace("N", r"(-?\d+(?:\.\d+)?)")
    said = re.search(pattern, TEXT)
    assert said, f"the page does not say: {sentences}"
    return [float(number) for number in said.groups()]
