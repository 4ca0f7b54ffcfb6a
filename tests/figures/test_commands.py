"""Which commands an item names: all whose summaries are in its rows, and no others."""

import re
from collections.abc import Sequence

import committed_results
import pytest

from repro import figures
from repro.report import page_parts, write_items
from repro.report.summaries import Results
from repro.tables import Row

DATA = committed_results.load()
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


def is_named(summary: str, commands: Sequence[str]) -> bool:
    word = re.escape(WORDS.get(summary, f"experiment={summary}"))
    return any(re.search(rf"{word}(?!\w)", command) for command in commands)


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_an_item_names_all_commands_that_feed_it_and_no_others(item: figures.Item) -> None:
    def rows(names: set[str]) -> list[Row]:
        return item.table(Results(DATA.paper, {name: DATA.summaries[name] for name in names}, DATA.reference))

    named, every = {name for name in DATA.summaries if is_named(name, item.commands)}, item.table(DATA)
    assert rows(named) == every, "something else feeds it too"
    for name in named:
        assert rows(named - {name}) != every, f"{name} does not feed it"
    for command in item.also:
        assert any(is_named(name, [command]) for name in named), f"{command} does not feed it"


def test_all_commands_are_shown_wherever_an_item_says_what_makes_it() -> None:
    """Also in the report: test_html.py."""
    both = "repro run experiment=tree_schedule; repro run experiment=bytes_per_step"
    listed = {row["item"]: row["command"] for row in write_items.overview(None, print)}
    assert listed["tree_and_bytes"] == both
    assert f"Made by `{both.replace('; ', '`, `')}`. " in page_parts.items(DATA, "")
