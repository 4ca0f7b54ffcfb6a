"""Runs that were trained with other code of their algorithm than is there now."""

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny_runs

from repro.commands.run import before_a_run
from repro.report.from_run_folders import collect
from repro.runs import done, provenance, same_code, status_file
from repro.train import loop, sweep

WORDS = [*tiny_runs.QUICK, "algo=gtopk", "nodes=1", "steps=4", "checkpoint_every=2"]
DONE = "is done already, trained with other code of gtopk.py; remove the folder to train it anew."
RESUMED = "warning: the steps before were trained with other code of gtopk.py; remove "


def test_other_code_of_the_algorithm_is_told_where_a_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commit is the same before and after, and old numbers, or a run of both, came without a word."""
    config = tiny_runs.config(tmp_path, *WORDS)
    file = config.folder / "provenance.json"

    def run() -> str:
        assert sweep.run([config], lambda *_: []) == 0
        return capsys.readouterr().err

    def stopped_after_two() -> None:
        (last,) = (config.folder / "checkpoints").glob("step-*4")
        (last / "manifest.json").unlink()
        status_file.write(config.folder, "preempted", 2, 4)

    real, now = same_code.digests(config), same_code.digests
    assert real.keys() == {"gtopk.py", "gtopk.yaml"} and all(len(digest) == 64 for digest in real.values())
    assert "other code" not in run() and "other code" not in run()
    assert json.loads(file.read_text())["algorithm"] == real
    monkeypatch.setattr(same_code, "digests", lambda config: real | {"gtopk.py": "0" * 64})
    assert DONE in run()
    stopped_after_two()
    assert RESUMED in run()
    assert DONE in run(), "its first steps are"
    loop.run(config)  # as each of the ranks does that torchrun started
    assert f"{config.folder} {DONE}" in capsys.readouterr().err
    assert list(done.of_other_code([config])) == [f"{config.folder} {DONE}"]
    monkeypatch.setattr(same_code, "digests", now)
    assert DONE in run(), "its last steps are"
    record = json.loads(file.read_text())
    for session in (record, *record["earlier"]):
        del session["algorithm"]
    file.write_text(json.dumps(record))
    assert "is done already; remove the folder to run it again." in run()
    assert list(done.of_other_code([config])) == []
    stopped_after_two()
    assert "other code" not in run(), "a folder from before says nothing"


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (["algo=gtopk_corrected"], {"gtopk.py", "_corrected.py", "_around.py", "gtopk_corrected.yaml"}),
        (["algo=gtopk", "algo.correction=0.9"], {"gtopk.py", "_corrected.py", "_around.py", "gtopk.yaml"}),
        (["algo=dgc"], {"dgc.py", "topk.py", "dgc.yaml"}),
        (["algo=ddp"], {"ddp.py", "powersgd.py", "ddp.yaml"}),
        (
            ["algo=gtopk_parameter_server"],
            {"gtopk_parameter_server.py", "parameter_server.py", "gtopk_parameter_server.yaml"},
        ),
    ],
)
def test_the_modules_that_an_algorithm_imports_are_its_code(words: list[str], files: set[str], tmp_path: Path) -> None:
    """A change of them was none: the rule of corrected gTop-k is not in gtopk.py."""
    config = tiny_runs.config(tmp_path, *words)
    digests = same_code.digests(config)
    assert digests.keys() == files
    for name in files:
        record = {"algorithm": digests | {name: "0" * 64}, "resumed_at": 0}
        assert same_code.changed(record, config) == name
    before = {name: digests[name] for name in (f"{config.algo.module}.py", f"{config.algo.name}.yaml")}
    assert same_code.changed({"algorithm": before | {"gone.py": "0" * 64}, "resumed_at": 0}, config) == ""


@pytest.mark.parametrize(
    ("sessions", "expected"),
    [
        ([("B", 0)], "a.py"),
        ([("B", 0), ("A", 2)], "a.py"),
        ([("B", 2), ("A", 0)], ""),  # it began again from its first step
        ([("A", 0), ("B", None), ("A", 2)], ""),  # that session got to no step
        ([(None, 0), ("A", 2)], ""),
        ([(["damaged"], 0), ("A", 2)], ""),
    ],
)
def test_the_sessions_that_made_its_steps_count(
    sessions: list[tuple[Any, int | None]], expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tiny_runs.config(tmp_path)
    monkeypatch.setattr(same_code, "digests", lambda config: {"a.py": "A"})
    *earlier, last = [
        {"algorithm": {"a.py": code} if isinstance(code, str) else code, "resumed_at": at} for code, at in sessions
    ]
    assert same_code.changed(last | {"earlier": earlier}, config) == expected
    assert same_code.changed(last | {"earlier": "damaged"}, config) == ("a.py" if sessions[-1][0] == "B" else "")


def test_the_runs_of_a_sweep_name_the_code_that_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was committed or edited on its way was told of the runs after it, which were trained without."""
    copies, commits = tmp_path / "algorithms", itertools.count()
    shutil.copytree(Path(same_code.__file__).parents[1] / "algorithms", copies)
    monkeypatch.setattr(same_code, "_file", lambda module: copies / f"{module}.py")
    monkeypatch.setattr(provenance, "git", lambda _: {"commit": str(next(commits)), "dirty": False})
    provenance.own_code.cache_clear()
    configs = [tiny_runs.config(tmp_path, *WORDS, f"seed={seed}") for seed in (0, 1)]
    before = same_code.digests(configs[0])
    same_code._digest.cache_clear()

    def edits(*_: object) -> list[dict[str, Any]]:
        with (copies / "gtopk.py").open("a") as file:
            file.write("# edited\n")
        return []

    try:
        assert sweep.run(configs, edits) == 0
    finally:
        provenance.own_code.cache_clear()
    records = [json.loads((config.folder / "provenance.json").read_text()) for config in configs]
    assert [record["git"]["commit"] for record in records] == ["0", "0"]
    assert [record["algorithm"] for record in records] == [before, before]


def test_summaries_do_not_tell_code_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = same_code.digests
    for seed in (0, 1):
        config = tiny_runs.config(tmp_path, *WORDS, f"seed={seed}")
        monkeypatch.setattr(same_code, "digests", lambda config, seed=seed: dict.fromkeys(real(config), str(seed)))
        loop.run(config, before_a_run)
    found, left_out = collect(tmp_path)
    (group,) = found["default"]["groups"]
    assert group["seeds"] == [0, 1] and not left_out and "algorithm" not in group["machine"]
