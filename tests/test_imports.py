"""Who may import whom (docs/design.md, "Tree"), and what a quick command must not load."""

import ast
import functools
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

import repro

ROOT = Path(repro.__file__).parent
FILES = {str(path.relative_to(ROOT)): path for path in sorted(ROOT.rglob("*.py"))}
MODULES = {
    ".".join(("repro", *Path(name).with_suffix("").parts)).removesuffix(".__init__"): FILES[name] for name in FILES
}
ORDER = (
    ("rng", "tables", "screen", "waiting", "children", "iteration_time", "clock", "density", "whole_files", "json_text")
    + ("metric", "clip", "state_form"),
    ("config",),
    ("compression",),
    ("comm",),
    ("algorithms", "models", "data"),
    ("cluster",),
    ("runs",),
    ("report", "figures"),
    ("train",),
    ("timing",),
    ("commands",),
    ("user_loop", "ddp_buckets"),
    ("ddp_hook",),
    ("distributed", "cli"),
    ("__main__",),
)
TINY = ["model=resnet20", "data=synthetic", "data.train_images=64", "data.test_images=16", "batch_per_node=4"]
HEIGHT = {wing: height for height, wings in enumerate(ORDER) for wing in wings}


def imported(path: Path) -> Iterator[str]:
    """Full dotted names of what a file imports, at its top, in a function or for type checkers alone."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, f"{path}: a relative import"
            names = (f"{node.module}.{name.name}" for name in node.names)
            yield from (name if name in MODULES else node.module for name in names)


def packages(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imported(path)}


@functools.cache
def arrows() -> dict[str, set[str]]:
    return {name: {other for other in imported(path) if other in MODULES} - {"repro"} for name, path in MODULES.items()}


def against_the_order(source: str, target: str) -> bool:
    """Whether a module of one wing imports one that stands above it or beside it; report and figures share a place."""
    here, there = (name.split(".")[1] for name in (source, target))
    return here != there and HEIGHT[there] >= HEIGHT[here] and {here, there} != {"report", "figures"}


def test_every_file_has_its_place() -> None:
    assert {name.split(".")[1] for name in MODULES if name != "repro"} == set(HEIGHT)


def test_the_tree_of_the_design_names_every_module() -> None:
    """By its name, or by a pattern; of the folders with one file for each, as figures, the folder alone."""
    tree = (ROOT.parent / "docs" / "design.md").read_text().split("## Tree")[1].split("## Contracts")[0]
    told = set(re.findall(r"[a-z_0-9*]+", tree))
    one_file_each = {"algorithms", "models", "data", "figures", "commands"}
    named = {module.split(".")[-1] for module in MODULES if not one_file_each.intersection(module.split("."))}
    assert {name for name in named if not any(fnmatch(name, word) for word in told)} == set()


def test_each_wing_imports_those_before_it() -> None:
    against = {(a, b) for a, targets in arrows().items() for b in targets if against_the_order(a, b)}
    assert not against


def test_no_module_imports_itself_in_a_circle() -> None:
    graphlib.TopologicalSorter(arrows()).prepare()  # raises CycleError, which names the circle


@pytest.mark.parametrize(
    ("package", "homes"),
    [
        ("hydra", {"config/compose.py", "config/sweeps.py"}),
        ("omegaconf", {"config/compose.py"}),
        ("wandb", {"runs/wandb_mirror.py"}),
    ],
)
def test_imported_nowhere_else(package: str, homes: set[str]) -> None:
    assert {name for name, path in FILES.items() if package in packages(path)} == homes


def test_the_environment_is_read_where_the_design_says() -> None:
    allowed = {"cluster/environment.py", "runs/wandb_mirror.py", "cluster/lab.py"}  # lab.py sets what gloo reads
    readers = {
        name
        for name, path in FILES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv")
    }
    assert readers <= allowed


def test_figures_and_results_never_import_torch() -> None:
    wings = [name for name in MODULES if name.startswith(("repro.figures", "repro.report"))]
    code = f"import sys, {', '.join(wings)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT.parent).returncode == 0
    for name in (*wings, "repro.tables", "repro.iteration_time", "repro.density"):
        assert not packages(MODULES[name]) & {"torch", "torchvision"}, name


@pytest.mark.parametrize(
    ("arguments", "banned"),
    [
        (["--help"], {"torch", "hydra", "wandb", "matplotlib", "numpy"}),
        (["run", "--help"], {"torch", "hydra", "wandb", "matplotlib", "numpy"}),
        (["export", "--help"], {"torch", "hydra", "wandb", "matplotlib", "numpy", "onnxruntime"}),
        (["predict", "--help"], {"torch", "hydra", "wandb", "matplotlib", "numpy", "onnxruntime"}),
        (["run", "--show"], {"torch", "wandb", "matplotlib"}),
        (["data", "status"], {"torch", "hydra", "wandb", "matplotlib"}),
        (["run", *TINY, "nodes=1", "steps=1", "results=runs"], {"matplotlib", "sympy"}),
    ],
    ids=lambda words: " ".join(sorted(words) if isinstance(words, set) else words),
)
def test_quick_commands_load_little(arguments: list[str], banned: set[str], tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['repro', *sys.argv[1:]]\n"
        "from repro.cli import main\n"
        "try: main()\n"
        "finally: print('LOADED', *{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr  # one that is refused loads little, too
    loaded = done.stdout.rpartition("LOADED")[2].split()
    assert "typer" in loaded
    assert not banned & set(loaded)
