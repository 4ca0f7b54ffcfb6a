"""Which commands an item names: all whose summaries are in its rows, and no others."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from repro import figures
from repro.report import html, page_parts, summaries, write_items
from repro.report.summaries import Results

DATA = summaries.load()
WORDS = {  # of the command that writes a summary, if no experiment is called as it is
    "algorithms": "summaries/algorithms.json",
    "lab/dilated/collectives": "lab/dilated/collectives.jsonl",
    "lab/dilation": "benchmarks/dilation.sh",
    "lab/dilation_dense": "benchmarks/dilation.sh",
    "lab/network": "repro bench network",
    "quadratic": "benchmarks/quadratic.py",
    "regret": "repro bench regret",
    "simulate": "summaries/simulate.json",
    "split_predictions": "repro strategies",
}
OF_ALL = ("claims", "hardware")  # claims name their commands row by row; hardware is read from all experiments
ITEMS = [item for item in figures.load() if item.name not in OF_ALL]


def feeding(item: figures.Item) -> set[str]:
    """The summaries without which its rows would be others."""
    read = Noting(DATA.summaries)
    rows = item.table(Results(DATA.paper, read, DATA.reference))
    without = {name: {one: DATA.summaries[one] for one in DATA.summaries if one != name} for name in read.names}
    return {name for name, rest in without.items() if item.table(Results(DATA.paper, rest, DATA.reference)) != rows}


class Noting(Mapping[str, Any]):
    """Summaries that note which are read: without one that is not, the rows are the same."""

    def __init__(self, summaries: dict[str, Any]):
        self.summaries, self.names = summaries, set[str]()

    def __getitem__(self, name: str) -> Any:
        self.names |= {name} & self.summaries.keys()
        return self.summaries[name]

    def __iter__(self) -> Iterator[str]:
        self.names |= self.summaries.keys()
        return iter(self.summaries)

    def __len__(self) -> int:
        self.names |= self.summaries.keys()
        return len(self.summaries)


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_an_item_names_all_commands_that_feed_it_and_no_others(item: figures.Item) -> None:
    words = {name: WORDS.get(name, f"experiment={name}") for name in feeding(item)}
    for name, word in words.items():
        assert any(word in command for command in item.commands), f"{name} feeds it too"
    for command in item.also:
        assert any(word in command for word in words.values()), f"{command} does not feed it"


def test_all_commands_are_shown_wherever_an_item_says_what_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = "repro run experiment=tree_schedule; repro run experiment=bytes_per_step"
    listed = {row["item"]: row["command"] for row in write_items.overview(None, print)}
    assert listed["tree_and_bytes"] == both
    assert f"Made by `{both.replace('; ', '`, `')}`. " in page_parts.items(DATA, "")
    page = tmp_path / "report.html"
    monkeypatch.setattr(html, "svg", lambda *_: ("", [], (1.0, 1.0)))  # what is drawn is not what is asked here
    html.write(DATA, page)
    assert all(f"<code>{command}</code>" in page.read_text() for command in both.split("; "))
