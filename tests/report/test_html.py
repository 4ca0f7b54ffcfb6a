"""The report, opened in a real browser."""

import dataclasses
import re
from html import escape
from pathlib import Path
from typing import Any

import committed_results
import made_up_results
import pytest
from chromium_page import Page
from without_torch import without_torch

from repro import figures
from repro.config import groups
from repro.report import html

OVERFLOWING = """
[...document.querySelectorAll("body *")].filter(one => !one.closest(".scroll") && !one.closest("svg")
  && one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(one => one.outerHTML.slice(0, 120))
"""


HOLES = """
[...document.querySelectorAll(".row")].map(row => {
  const space = row.getBoundingClientRect(), cards = [...row.children].map(card => card.getBoundingClientRect());
  return cards.reduce((sum, card) => sum + card.width * card.height, 0) / (space.width * space.height);
})
"""
UNFILLED = """
[...document.querySelectorAll("figure svg")].map(svg => {
  const card = svg.closest("figure").getBoundingClientRect(), drawing = svg.closest(".scroll").getBoundingClientRect();
  const caption = svg.closest("figure").querySelector("figcaption").lastElementChild.getBoundingClientRect();
  return [drawing.width / card.width, (caption.bottom - card.top) / card.height];
})
"""
PIXELS_A_POINT = """
[...document.querySelectorAll("figure svg")].map(svg => svg.getBoundingClientRect().width / svg.viewBox.baseVal.width)
"""
WIDTHS = ((390, False), (800, False), (1130, False), (1400, False), (1400, True))  # and whether on a dark screen
PAPER = 718  # A4 less its margins
COUNTED = ("conditions-not-met", "not-run", "not-reproduced")
SEEN = {
    "fits": "document.documentElement.scrollWidth <= document.documentElement.clientWidth",
    "overflowing": OVERFLOWING,
    "background": "getComputedStyle(document.body).backgroundColor",
    "pixels a point": PIXELS_A_POINT,
    "holes": HOLES,
    "unfilled": UNFILLED,
    "page": "document.documentElement.scrollWidth",
    "tables": "Math.max(...[...document.querySelectorAll('table')].map(t => t.clientWidth))",
    **{name: f"getComputedStyle(document.querySelector('.counts .{name}')).color" for name in COUNTED},
}


@pytest.fixture(scope="module", params=["committed", "missing"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is committed; and what is not, made up, with all the rest said to be not run."""
    file = tmp_path_factory.mktemp("report") / "report.html"
    if request.param == "committed":
        without_torch("report", "--out", str(file))
        return file
    made, committed = made_up_results.everything(), committed_results.load()
    names = {item.name for item in figures.load() if not item.table(committed)}
    html.write(dataclasses.replace(made, summaries={n: s for n, s in made.summaries.items() if n in names}), file)
    return file


@pytest.fixture(scope="module")
def views(page: Path, tab: Page) -> dict[Any, dict[str, Any]]:
    """What SEEN is in a browser at all WIDTHS and on "paper", and what it asked for: to open the page takes seconds."""
    found: dict[Any, dict[str, Any]] = {}
    for width, dark in WIDTHS:
        tab.open(page, width, dark)
        found[width, dark] = {name: tab.evaluate(seen) for name, seen in SEEN.items()}
        found[width, dark] |= {"requests": tab.requests, "complaints": tab.complaints}
    tab.call("Emulation.setDeviceMetricsOverride", width=PAPER, height=900, deviceScaleFactor=1, mobile=False)
    tab.call("Emulation.setEmulatedMedia", media="print", features=[])
    found["paper"] = {name: tab.evaluate(seen) for name, seen in SEEN.items()}
    return found


def test_every_item_is_there_once_and_nothing_is_loaded_from_elsewhere(page: Path) -> None:
    text = page.read_text()
    drawn, not_run = text.count("<svg"), text.count(f"{html.NOT_RUN}</figure>")
    assert drawn > 0 and drawn + not_run == sum(item.draw is not None for item in figures.load())
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert {item.name for item in figures.load()} <= set(ids)
    links = re.findall(r'(?:src|href)="([^"]+)"|url\(([^)]+)\)', text)
    assert all((a or b).startswith(("#", "data:")) for a, b in links)


def test_a_drawing_takes_the_pages_colours_for_what_is_nearly_black_or_white(page: Path) -> None:
    """A band of light grey under light marks, and dark words on a dark page, could not be read there."""
    greys = {int(grey, 16) for grey, _ in re.findall(r"#(([0-9a-f]{2})\2\2)\b", page.read_text().partition("<svg")[2])}
    on_green, bars = 0x1A1A1A, {0xD1D1D1, 0xE7E7E7}  # words on a cell of that colour; areas with nothing on them
    assert {hex(grey) for grey in greys - {on_green, *bars} if not 0x707070 <= grey <= 0xB4B4B4} == set()


def test_an_item_says_all_commands_that_make_it(page: Path) -> None:
    text, drawn = page.read_text(), [item for item in figures.load() if item.draw]
    assert any(len(item.commands) > 1 for item in drawn)
    assert [one for item in drawn for one in item.commands if f"<code>{escape(one)}</code>" not in text] == []


@pytest.mark.browser
@pytest.mark.parametrize(("width", "dark"), WIDTHS)
def test_it_fits_and_is_quiet_in_a_real_browser(width: int, dark: bool, views: dict[Any, dict[str, Any]]) -> None:
    seen = views[width, dark]
    assert seen["fits"] and seen["overflowing"] == []
    assert [url for url in seen["requests"] if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in seen["requests"] if url.startswith("file:")]) == 1
    assert seen["complaints"] == []
    assert seen["background"] == ("rgb(22, 24, 27)" if dark else "rgb(255, 255, 255)")


@pytest.mark.browser
def test_figures_leave_no_hole_and_can_be_read_at_all_widths(views: dict[Any, dict[str, Any]]) -> None:
    """Text of 7 points has at least 8.75 pixels; what has no room for that scrolls."""
    assert all(min(views[at]["pixels a point"]) >= 1.25 for at in WIDTHS)
    wide = views[1400, False]
    assert min(wide["holes"]) > 0.95
    assert min(across for across, _ in wide["unfilled"]) > 0.9 and min(down for _, down in wide["unfilled"]) > 0.75


@pytest.mark.browser
def test_only_what_was_refuted_is_red(views: dict[Any, dict[str, Any]]) -> None:
    for dark in (False, True):
        for name in COUNTED:
            red, green, blue = map(int, re.findall(r"\d+", views[1400, dark][name]))
            assert (red == green == blue) is (name != "not-reproduced"), name


def test_the_title_says_what_the_page_shows(page: Path) -> None:
    (title,), (head,) = (re.findall(f"<{tag}>(.*?)</{tag}>", page.read_text()) for tag in ("title", "h1"))
    counts = {
        word: int(n) for n, word in re.findall(r"<li class=\"[\w-]+\"><b>(\d+)</b>([\w ]+)</li>", page.read_text())
    }
    open_ = counts["undecided"] + counts["conditions not met"] + counts["not run"]
    assert (
        title
        == head
        == (
            f"The gTop-k paper, claim by claim: of {sum(counts.values())}, {counts['reproduced']} reproduced, "
            f"{counts['not reproduced']} not reproduced, {open_} still open"
        )
    )


def test_names_are_for_people_but_in_commands(page: Path) -> None:
    text = re.sub(r"<code>.*?</code>|<svg.*?</svg>|<style>.*?</style>|<[^>]+>", " ", page.read_text(), flags=re.DOTALL)
    ids = {name for name in groups.group_options("algo") if groups.title("algo", name) != name}
    assert ids.isdisjoint(re.split(r"[\s,;:]+", text))
    assert "gTop-k butterfly" in text


def test_narrow_figures_stand_in_twos_and_none_is_lost() -> None:
    one, two = "single", "double"
    assert html.rows_of_figures([two, one, one, two]) == [[0], [1, 2], [3]]
    assert html.rows_of_figures([one, two, one, one]) == [[0, 2], [1], [3]]
    assert html.rows_of_figures([one, two, two]) == [[0], [1], [2]]
    assert html.rows_of_figures([]) == []


@pytest.mark.browser
def test_nothing_is_cut_off_on_paper(views: dict[Any, dict[str, Any]]) -> None:
    assert views["paper"]["page"] <= PAPER and views["paper"]["tables"] <= PAPER


def test_no_text_of_a_user_leaves_its_place_in_a_drawing() -> None:
    """matplotlib repeats labels in comments, and escapes them today; the page has no comments at all."""
    evil = "x--><script>alert(1)</script><!--"
    made = made_up_results.everything()
    for group in made.summaries["convergence"]["groups"]:
        group["settings"]["model"] = {**group["settings"]["model"], "name": evil}
        group["data"] = evil
    (item,) = figures.load(["convergence"])
    drawing, *_ = html.svg(item, item.table(made), "double")
    assert "<!--" not in drawing and "-->" not in drawing and "<script" not in drawing


def test_the_page_may_load_and_run_nothing(page: Path) -> None:
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page.read_text())
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules == {
        "default-src": "'none'", "style-src": "'unsafe-inline'", "img-src": "data:", "base-uri": "'none'",
        "form-action": "'none'",
    }  # fmt: skip
    assert page.read_text().index(policy) < page.read_text().index("<style")
