"""Who may import whom (DESIGN.md, "Tree"), and what a quick command must not load."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import repro

ROOT = Path(repro.__file__).parent
FILES = {str(path.relative_to(ROOT)): path for path in sorted(ROOT.rglob("*.py"))}


def imported(path: Path) -> set[str]:
    """Full dotted names of what a file imports when it runs; what only type checkers see does not count."""
    found: set[str] = set()
    for node in _walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
    return found


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    typing_only = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    for child in [] if typing_only else ast.iter_child_nodes(node):
        yield from _walk(child)


def packages(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imported(path)}


def ours(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imported(path) if name.startswith("repro.")}


@pytest.mark.parametrize(
    ("package", "home"), {"hydra": "config.py", "omegaconf": "config.py", "wandb": "record.py"}.items()
)
def test_imported_in_one_file_alone(package: str, home: str) -> None:
    assert {name for name, path in FILES.items() if package in packages(path)} == {home}


def test_the_environment_is_read_where_the_design_says() -> None:
    allowed = {"environment.py", "record.py", "lab.py"}  # lab.py sets what gloo reads
    readers = {
        name
        for name, path in FILES.items()
        for node in _walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv")
    }
    assert readers <= allowed


def test_the_foundations_import_nothing_that_stands_on_them() -> None:
    assert ours(FILES["schema.py"]) == set()
    assert ours(FILES["choices.py"]) == {"schema"}
    assert ours(FILES["config.py"]) == {"schema", "choices"}
    assert ours(FILES["schedule.py"]) == set()
    assert ours(FILES["network.py"]) == set()
    assert ours(FILES["sparse.py"]) <= {"kernels", "sparse_torch"}


def test_algorithms_know_neither_the_trainer_nor_the_command_line() -> None:
    for name, path in FILES.items():
        if name.startswith("algorithms/"):
            assert not ours(path) & {"trainer", "training", "ranks", "record", "sweep", "commands"}, name


def test_figures_and_results_never_import_torch() -> None:
    code = "import sys, repro.results, repro.figures; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT.parent).returncode == 0
    for name, path in FILES.items():
        if name.startswith("figures/") or name in ("results.py", "tables.py", "verdicts.py"):
            assert not packages(path) & {"torch", "torchvision"}, name


@pytest.mark.parametrize(
    ("arguments", "banned"),
    [
        (["--help"], {"torch", "hydra", "wandb", "matplotlib", "numpy"}),
        (["run", "--help"], {"torch", "hydra", "wandb", "matplotlib", "numpy"}),
        (["run", "--show"], {"torch", "wandb", "matplotlib"}),
        (["data", "status"], {"torch", "hydra", "wandb", "matplotlib"}),
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
        [sys.executable, "-c", code, *arguments], cwd=ROOT.parent, capture_output=True, text=True, timeout=60
    )
    loaded = done.stdout.rpartition("LOADED")[2].split()
    assert "typer" in loaded
    assert not banned & set(loaded)
