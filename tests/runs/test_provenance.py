"""Where a result came from: the commit of its code, and what rounds unlike."""

import subprocess
from pathlib import Path

from repro.runs import provenance


def test_other_gpus_are_told_and_another_of_them_is_not() -> None:
    def session(device: str, *gpus: str) -> dict[str, object]:
        return {"device": device, "gpus": list(gpus)}

    one, cpu = session("cuda:0", "H100"), session("cpu", "H100")
    assert provenance.rounds_unlike(one, session("cuda:3", *["H100"] * 4)) == ""
    assert provenance.rounds_unlike(cpu, session("cpu", "A100")) == ""
    assert "(with another GPU, which" in provenance.rounds_unlike(one, session("cuda:0", "A100"))
    assert "(with another device, which" in provenance.rounds_unlike(cpu, one)


def test_what_rounds_unlike_on_other_ranks_is_told() -> None:
    """Rank 0 alone was looked at."""

    def session(*ranks: dict[str, object]) -> dict[str, object]:
        usual = {"host": "n1", "processor": {"model": 1}, "threads": 1, "device": "cpu", "gpus": []}
        return {"ranks": provenance.of_ranks([usual | rank for rank in ranks])}

    before = session({}, {"host": "n2"})
    assert [entry["ranks"] for entry in session({}, {}, {"threads": 2}, {})["ranks"]] == [[0, 1, 3], [2]]  # type: ignore[attr-defined]
    assert provenance.rounds_unlike(before, session({}, {"host": "n3"})) == ""
    assert provenance.rounds_unlike(before, {}) == provenance.rounds_unlike({"ranks": "damaged"}, before) == ""
    for other in ({"threads": 2}, {"processor": {"model": 2}}, {"device": "cuda"}):
        said = provenance.rounds_unlike(before, session({}, other))
        assert said == " (with another device, processor or number of threads on other ranks, which may round unlike)"


def test_git_is_the_packages_own_or_nothing(tmp_path: Path) -> None:
    assert provenance.git(tmp_path) is None
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert provenance.git(tmp_path) is None  # installed inside somebody's repository


def test_a_log_beside_the_code_changes_no_code(tmp_path: Path) -> None:
    """Any file in the checkout did, as a log of a batch script, so that every run there was said to be of no commit."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    suite = tmp_path / "beside" / "ours"  # the checkout may be a folder of another
    for name in ("repro/cli.py", "conf/config.yaml", "pyproject.toml"):
        (suite / name).parent.mkdir(parents=True, exist_ok=True)
        (suite / name).touch()
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], check=True)

    def dirty() -> bool:
        said = provenance.git(suite / "repro")
        assert said is not None
        return bool(said["dirty"])

    for place in (tmp_path, suite):
        (place / "repro-12_1.log").touch()
    assert not dirty()
    (suite / "conf" / "mine.yaml").touch()
    assert dirty()
