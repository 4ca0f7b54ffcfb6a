"""Figures and tables: complete, stable to the byte, drawn from their rows alone, without torch."""

import io
from pathlib import Path

import committed_results
import made_up_results
import numpy as np
import odd_results
import pytest
from PIL import Image
from without_torch import without_torch

from repro import figures, tables
from repro.config import compose, groups
from repro.figures import _lab, tree_schedule
from repro.report import summaries

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
COMMITTED = committed_results.load()
ITEMS = figures.load()
FIGURES = [item for item in ITEMS if item.draw]
TABLES = [item for item in ITEMS if not item.draw]


@pytest.fixture(scope="module")
def data() -> summaries.Results:
    return made_up_results.everything()


def test_every_experiment_has_an_item_and_every_item_its_experiment() -> None:
    named = {item.experiment for item in ITEMS if item.experiment}
    assert named == set(groups.group_options("experiment"))
    others = {item.command for item in FIGURES if not item.experiment}
    assert others == {"repro bench network", _lab.COLLECTIVES}


def test_the_same_rows_give_the_same_bytes(data: summaries.Results) -> None:
    (item,) = figures.load(["convergence"])
    first, second = (figures.render(item, item.table(data), list(figures.METADATA)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_without_a_run_nothing_but_what_is_published_is_shown(item: figures.Item) -> None:
    """What three items have then follows from the paper's formulas, or is a claim that no run decides."""
    of_formulas = {"allreduce_time": {"as plotted", "with alpha"}, "complexities": {None}, "claims": {""}}
    rows = item.table(made_up_results.nothing())
    assert {row.get("source") for row in rows} <= of_formulas.get(item.name, {"published"})


@pytest.mark.parametrize("item", TABLES, ids=lambda item: item.name)
def test_tables_match_their_golden_csv(item: figures.Item, data: summaries.Results) -> None:
    """Made from tests/made_up_results.py. A difference means that a table says something else of the same results: if
    that is wanted, write the new text there."""
    rows = item.table(data)
    assert rows, item.name
    assert tables.to_csv(rows) == (GOLDEN / f"{item.name}.csv").read_text()


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_all_rows_have_the_columns_of_the_first(item: figures.Item, data: summaries.Results) -> None:
    for results in (data, COMMITTED):
        assert len({tuple(row) for row in item.table(results)}) <= 1


def test_our_selection_in_the_lab_says_which_processor_timed_it() -> None:
    rows = figures.load(["dilated_iterations"])[0].table(COMMITTED)
    named = {row["compress timed on"] for row in rows if row["node"] != "published"}
    assert named and all("family" in name for name in named)
    assert {row["compress timed on"] for row in rows if row["node"] == "published"} == {None}


def test_published_throughput_is_the_papers_and_gives_the_derived_means(data: summaries.Results) -> None:
    rows = [row for row in figures.load(["throughput"])[0].table(data) if row["source"] == "published"]
    for row in rows:
        assert row["samples_per_s"] == data.paper["throughput_per_node"][row["model"]][row["algo"]][row["nodes"]]
    speedups = [row for row in figures.load(["speedups"])[0].table(data) if row["source"] == "published"]
    assert len(rows) == 60 and len(speedups) == 5
    speedups = [row for row in speedups if row["model"] != "LSTM"]  # the published means are of the four others
    derived = data.paper["claims"]["means_of_the_four_cnns"]
    for column, key in (("over dense", "over_dense"), ("over Top-k", "over_topk")):
        assert sum(row[column] for row in speedups) / 4 == pytest.approx(derived[key], abs=0.005)


def test_the_commands_draw_what_is_committed_without_torch(tmp_path: Path) -> None:
    """Tables and some figures; the report of test_html.py has them all."""
    some = ["selection_example", "convergence", "residual_mass"]
    names = some + [item.name for item in FIGURES if not item.table(COMMITTED)]  # which are not drawn
    for arguments in (["figures", "--format", "png", *(f"--only={name}" for name in names)], ["tables"]):
        without_torch("plot", *arguments, "--out", str(tmp_path))
    drawn = {path.stem for path in tmp_path.glob("*.png")}
    assert drawn == {path.stem for path in tmp_path.glob("*.csv")} & {item.name for item in FIGURES} == set(some)
    for item in ITEMS:
        shown = (tmp_path / f"{item.name}.md").exists()
        assert shown == (item.draw is None and bool(item.table(COMMITTED))), item.name


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_what_is_committed_is_what_the_code_writes(item: figures.Item) -> None:
    """Rows and pictures are what people cite. A figure's are compared as seen: a processor may round otherwise."""
    rows, place = item.table(COMMITTED), ROOT / "results" / ("figures" if item.draw else "tables") / item.name
    if not rows:
        assert not place.with_suffix(".csv").exists()
        return
    written = {"csv": tables.to_csv} | ({} if item.draw else {"md": tables.to_markdown, "tex": tables.to_latex})
    for ending, form in written.items():
        assert place.with_suffix(f".{ending}").read_text() == form(rows), f"type repro plot and --only {item.name}"
    if item.draw:
        drawn = figures.render(item, rows, ["png"])["png"]
        here, there = (np.asarray(Image.open(file).convert("RGB"), int) for file in (io.BytesIO(drawn), f"{place}.png"))
        assert here.shape == there.shape and (abs(here - there).max(-1) > 40).sum() < 20


def test_unknown_names_and_formats_are_told() -> None:
    with pytest.raises(compose.ConfigError, match="no such figure"):
        figures.load(["convergance"])
    with pytest.raises(compose.ConfigError, match="pdf"):
        figures.render(FIGURES[0], FIGURES[0].table(made_up_results.everything()), ["gif"])


def test_messages_take_the_round_in_which_both_ends_are_there() -> None:
    """The tree on three ranks: 1 -> 0, then 2 -> 0, and the broadcast back."""
    all_rounds = [
        [(None, 0, 1, 8, 1), (None, 0, 2, 8, 1), (2, 8, None, 0, 1), (1, 8, None, 0, 1)],
        [(0, 8, None, 0, 1), (None, 0, 0, 8, 1)],
        [(0, 8, None, 0, 1), (None, 0, 0, 8, 1)],
    ]
    found = [(row["round"], row["from"], row["to"]) for row in tree_schedule.messages(all_rounds)]
    assert found == [(1, 1, 0), (2, 2, 0), (3, 0, 2), (4, 0, 1)]
    with pytest.raises(ValueError, match="fit together"):
        tree_schedule.messages([[(1, 8, None, 0, 1)], []])


def test_numbers_for_people() -> None:
    shown = {
        269722: "269,722",
        269: "269",
        0.0: "0",
        0.5: "0.5",
        12.3456: "12.35",
        123456.7: "123,457",
        3168991968.0: "3,168,991,968",
        1.5e-7: "1.5e-07",
    }
    assert {value: tables.for_people(value) for value in shown} == shown
    assert tables.for_people(None) == "–"
    assert tables.readable({"n": 2, "± (%)": 0.0354}) == {"n": "2", "± (%)": "0.04"}  # decimals line up
    assert tables.to_latex([{"a_b": "50 %", "n": 3}]) == (
        "\\begin{tabular}{lr}\n\\toprule\na\\_b & n \\\\\n\\midrule\n50 \\% & 3 \\\\\n\\bottomrule\n\\end{tabular}\n"
    )


@pytest.fixture(scope="module")
def usual(data: summaries.Results) -> dict[str, list[tables.Row]]:
    return {item.name: item.table(data) for item in ITEMS}


def test_a_figure_draws_what_it_was_made_for(usual: dict[str, list[tables.Row]]) -> None:
    for item in FIGURES:
        assert usual[item.name], item.name
        item.draw(usual[item.name])


@pytest.mark.parametrize("name", odd_results.ODD)
def test_a_figure_draws_what_there_is(name: str, usual: dict[str, list[tables.Row]]) -> None:
    """One run on a network of its own, as "Next" suggests at the end of each, kept all figures from being drawn."""
    for beside in (True, False):
        results = odd_results.odd(name, beside)
        for item in ITEMS:
            rows = item.table(results)
            assert len({tuple(row) for row in rows}) <= 1, item.name
            if item.draw and rows not in ([], usual[item.name]) and not beside:
                item.draw(rows)
