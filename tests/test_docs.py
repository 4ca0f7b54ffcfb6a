"""The README and the pages of docs/: their links lead somewhere, their commands parse, and the site can be read."""

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
import yaml
from chromium_page import Page
from typer.core import TyperGroup

from repro import cli
from repro.config import groups
from repro.config.compose import compose
from repro.config.counts import doubled

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), ROOT / "launchers/README.md"]
SETTINGS = (
    "run",
    "launch",
    "simulate",
    "tune",
    "network",
    "collectives",
    "step",
    "regret",
    "gradient",
    "map",
    "strategies",
)
OF_THE_COMMAND = ("node", "parameters", "relax", "target")  # keys that are not those of `repro run`
SKIP = re.compile(r"\.\.\. |\.\.\.$|\b[A-Z]{3,}\b(?!\.yaml)|<")  # a pattern, no command: KEY=VALUE, NAME, PATH ...
OVERFLOWING = """
[...document.querySelectorAll(".md-content *")].filter(one => !one.closest("pre, .md-typeset__scrollwrap")
  && one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(one => one.outerHTML.slice(0, 120))
"""


def outside_fences(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """As the site's generator and hosts of repositories make them, for titles in ASCII."""
    titles = re.findall(r"^#+ (.+)$", outside_fences(page.read_text()), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip()) for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", outside_fences(page.read_text()))
    wrong = []
    for target in targets:
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if target.startswith("https://"):
            continue
        if not file.exists() or (anchor and anchor not in anchors(file)):
            wrong.append(target)
    assert wrong == []


def commands() -> Iterator[tuple[str, str]]:
    """Page and command of each line of a block that begins with one, and of each piece of code that does.

    Those of the committed trainings are left out: report/test_repeat.py composes them all.
    """
    for page in PAGES:
        text = page.read_text().partition("<!-- generated: trainings -->")[0]
        yaml_left_out = re.sub(r"^```yaml.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        lines = [line for line in yaml_left_out.splitlines() if "<!--" not in line]
        blocks = [re.split(r"  +|  # ", line.strip())[0] for line in lines]
        inline = [" ".join(one.split()) for one in re.findall(r"`([^`]+)`", outside_fences(text)) if "\n\n" not in one]
        for said in (*blocks, *inline):
            said = said.partition("uv && ")[2] or said
            said = said.removeprefix("$ ").removeprefix("uv run ").removeprefix("python -m ").strip()
            if said.startswith("repro ") and not SKIP.search(said) and "algo=signs" not in said:  # an example
                yield page.name, said


COMMANDS = sorted({command: page for page, command in commands()}.items())


def test_commands_are_found_in_the_pages() -> None:
    assert {"README.md", "index.md", "paper.md", "planner.md", "slurm.md", "commands.md"} <= {p for p, _ in commands()}
    assert len(COMMANDS) > 60


@pytest.mark.parametrize(("command", "page"), COMMANDS)
def test_every_command_parses(command: str, page: str) -> None:
    """The program's own parser takes its options, and the composer its settings; nothing is run."""
    command_or_group, name = typer.main.get_command(cli.app), "repro"
    words = shlex.split(command)[1:]
    while isinstance(command_or_group, TyperGroup) and words and not words[0].startswith("-"):
        name, *words = words
        assert name in command_or_group.commands, f"{page}: {command}"
        command_or_group = command_or_group.commands[name]
    options = {option for one in command_or_group.params for option in (*one.opts, *one.secondary_opts)} | {"--help"}
    assert {word for word in words[: words.index("--") if "--" in words else None] if word[:2] == "--"} <= options, page
    if isinstance(command_or_group, TyperGroup) or "--help" in words:
        return
    context = command_or_group.make_context(name, list(words))  # raises what a user would be told
    if name in SETTINGS:
        given = [value for value in context.params.values() if isinstance(value, tuple | list)]
        settings = [str(word) for value in given for word in value if re.match(r"[a-z_.0-9]+=", str(word))]
        compose(one_of_each([word for word in settings if word.partition("=")[0] not in OF_THE_COMMAND]))


def one_of_each(settings: list[str]) -> list[str]:
    """The settings, and values for what an experiment sweeps: a single run is composed, not hundreds."""
    given = {word.partition("=")[0]: word.replace("algo=all", "algo=dense") for word in settings}
    if "nodes" in given:
        given["nodes"] = f"nodes={doubled('nodes', given['nodes'][6:])}"
    return [*({"algo": "algo=gtopk", "model": "model=resnet20", "nodes": "nodes=4"} | given).values()]


@pytest.mark.parametrize("file", ["docs/own_loop.md", "repro/ddp_hook.py"])
def test_own_loops_are_told_of_all_algorithms_with_a_gain(file: str) -> None:
    """Who gives the optimizer momentum beside one has updates ten times as large, and the hook says so nowhere else."""
    text = " ".join((ROOT / file).read_text().split())
    named = re.search(r"([^.:]*) have a gain of 10 unless ", text)
    gains = {name for name in groups.group_options("algo") if groups.about(name).get("gain", 1.0) != 1.0}
    assert named is not None and set(re.findall(r"\w+", named[1])) - {"and"} == gains and "onebit" in gains


def test_the_page_on_own_loops_says_what_else_the_yamls_of_algorithms_set() -> None:
    """Of the loop they hold the optimizer and the density, which are the user's: nothing said what `repro run` has."""
    text = " ".join((ROOT / "docs/own_loop.md").read_text().split())
    told = text[text.index("Set it yourself: the learning rate") :].partition(" - ")[0]
    rates, momentum, densities = re.split(", no momentum for|, and the densities", told)
    files = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / "conf/algo").glob("*.yaml")}
    beside = {name: {k: v for k, v in file.items() if k != "algo"} for name, file in files.items() if "algo" in file}
    assert {key for keys in beside.values() for key in keys} == {"momentum", "lr", "density_warmup"}
    assert dict(re.findall(r"`(\w+)` \(([\d.]+)\)", rates)) == {
        name: f"{keys['lr']:g}" for name, keys in beside.items() if "lr" in keys
    }
    known = [name for name in beside if groups.replaces_momentum(name) or groups.about(name).get("gain", 1.0) != 1.0]
    others = {name for name, keys in beside.items() if keys.get("momentum") == 0 and name not in known}
    assert set(re.findall("`(.*?)`", momentum)) == others
    assert re.findall(r"`(\w+)` \((.*?)\)", densities) == [
        (name, ", ".join(f"{one:g}" for one in keys["density_warmup"]))
        for name, keys in beside.items()
        if "density_warmup" in keys
    ]


def test_the_test_command_of_the_readme_is_what_ci_runs() -> None:
    lines = [line.strip() for line in (ROOT / "README.md").read_text().splitlines()]
    assert "pip install uv && uv run pytest" in lines
    run = (ROOT / ".ci/run").read_text().splitlines()
    assert "pip install -q uv" in run and "uv run pytest" in run


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("material") is None:
        pytest.skip("no mkdocs-material: uv sync --group docs")
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.browser
def test_the_site_is_read_without_a_network_on_a_phone_and_a_screen(site: Path, tab: Page) -> None:
    for page in sorted(site.glob("*.html")):
        if page.name == "404.html":  # for web servers: its paths begin at their root
            continue
        for width in (390, 1400):
            tab.open(page, width)
            wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
            assert not tab.evaluate(wide), (page.name, width)
            assert tab.evaluate(OVERFLOWING) == [], (page.name, width)
            assert [url for url in tab.requests if not url.startswith(("file:", "data:", "about:"))] == []
            assert tab.complaints == [], page.name


@pytest.mark.browser
def test_the_search_finds_pages_that_are_opened_as_files(site: Path, tab: Page) -> None:
    tab.open(site / "index.html", 1400)
    found = tab.call("Runtime.evaluate", expression=SEARCH, awaitPromise=True, returnByValue=True)
    assert any("algorithms.html" in link for link in found["result"]["value"])


SEARCH = """
new Promise(done => {
  const field = document.querySelector("[data-md-component=search-query]")
  field.focus()
  field.value = "butterfly"
  field.dispatchEvent(new Event("keyup", { bubbles: true }))
  const links = () => [...document.querySelectorAll("a.md-search-result__link")].map(one => one.href)
  let left = 100
  const look = () => links().length || !left-- ? done(links()) : setTimeout(look, 100)
  look()
})
"""
