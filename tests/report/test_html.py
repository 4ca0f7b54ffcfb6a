"""The report, opened in a real browser."""

import dataclasses
import re
from pathlib import Path

import browser
import made_up
import pytest
from alone import without_torch

from repro import figures, report, results

OVERFLOWING = """
[...document.querySelectorAll("body *")].filter(one => !one.closest(".scroll") && !one.closest("svg")
  && one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(one => one.outerHTML.slice(0, 120))
"""


@pytest.fixture(scope="module", params=["committed", "missing"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is committed; and what is not, made up, with all the rest said to be not run."""
    file = tmp_path_factory.mktemp("report") / "report.html"
    if request.param == "committed":
        without_torch("report", "--out", str(file))
        return file
    made, committed = made_up.everything(), results.load()
    names = {item.name for item in figures.load() if not item.table(committed)}
    report.write(dataclasses.replace(made, summaries={n: s for n, s in made.summaries.items() if n in names}), file)
    return file


def test_every_item_is_there_once_and_nothing_is_loaded_from_elsewhere(page: Path) -> None:
    text = page.read_text()
    drawn = text.count("<svg")
    assert drawn == sum(item.draw is not None for item in figures.load()) or "Not run. The command" in text
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert {item.name for item in figures.load()} <= set(ids)
    links = re.findall(r'(?:src|href)="([^"]+)"|url\(([^)]+)\)', text)
    assert all((a or b).startswith(("#", "data:")) for a, b in links)


@pytest.mark.browser
def test_it_fits_and_is_quiet_in_a_real_browser(page: Path, tmp_path: Path) -> None:
    if browser.CHROMIUM is None:
        pytest.skip("no chromium: apt-get install chromium")
    with browser.chromium(tmp_path) as tab:
        for width in (390, 800, 1060, 1400):
            for dark in (False, True):
                tab.open(page, width, dark)
                assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
                assert tab.evaluate(OVERFLOWING) == []
                assert [url for url in tab.requests if not url.startswith(("file:", "data:"))] == []
                assert len([url for url in tab.requests if url.startswith("file:")]) == 1
                assert tab.complaints == []
                colour = tab.evaluate("getComputedStyle(document.body).backgroundColor")
                assert colour == ("rgb(22, 24, 27)" if dark else "rgb(255, 255, 255)")


@pytest.mark.browser
def test_nothing_is_cut_off_on_paper(page: Path, tmp_path: Path) -> None:
    if browser.CHROMIUM is None:
        pytest.skip("no chromium: apt-get install chromium")
    with browser.chromium(tmp_path) as tab:
        tab.open(page, 718)  # A4 less its margins
        tab.call("Emulation.setEmulatedMedia", media="print")
        assert tab.evaluate("document.documentElement.scrollWidth <= 718")
        assert tab.evaluate("Math.max(...[...document.querySelectorAll('table')].map(t => t.clientWidth))") <= 718
