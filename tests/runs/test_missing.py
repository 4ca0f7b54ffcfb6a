"""A run folder that lost the file with its settings, or that on where it was made: what each command says to do."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_runs

from repro.commands.run import before_a_run
from repro.config.schema import Config, ConfigError
from repro.report.from_run_folders import collect
from repro.runs import missing, status
from repro.train import loop, sweep, trained

WORDS = [*tiny_runs.QUICK, "algo=gtopk", "nodes=1", "steps=2", "checkpoint_every=2"]


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Config:
    config = tiny_runs.config(tmp_path_factory.mktemp("runs"), *WORDS)
    loop.run(config, before_a_run)
    return config


@pytest.fixture
def done(trained_once: Config) -> Iterator[Config]:
    """A run whose files a test may take away: the next one has them again."""
    files = {trained_once.folder / name: (trained_once.folder / name).read_bytes() for name in missing.REMEDIES}
    yield trained_once
    for file, content in files.items():
        file.write_bytes(content)


def test_settings_that_are_missing_are_written_again_by_the_same_command(
    done: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was done and not to be collected or exported, and the only advice was to train it again."""
    file, results = done.folder / "config.yaml", Path(done.results)
    whole = file.read_bytes()
    for again in (lambda: sweep.run([done], lambda *_: []), lambda: loop.run(done)):  # the latter of torchrun's ranks
        file.unlink()
        assert collect(results)[1] == [f"{done.folder}: config.yaml is missing; {missing.REMEDIES['config.yaml']}"]
        for name in (str(done.folder), done.run_id, f"default/{done.run_id}"):
            with pytest.raises(ConfigError, match=f"{done.folder} is there, but has no config.yaml: type its `repro "):
                trained.folder_of(name, results)
        again()
        assert f"warning: config.yaml was missing in {done.folder}; it is written anew\n" in capsys.readouterr().err
        assert file.read_bytes() == whole and collect(results)[1] == []
        assert trained.folder_of(done.run_id, results) == done.folder
    assert sweep.run([done], lambda *_: []) == 0
    assert "warning" not in capsys.readouterr().err


def test_a_run_that_results_leave_out_is_not_told_as_done_without_a_word(done: Config) -> None:
    for name in missing.REMEDIES:
        whole = (done.folder / name).read_bytes()
        (done.folder / name).unlink()
        (one,) = status.survey(Path(done.results))[0]
        assert one.state == "done" and f"{name} is missing, and results leave the run out: " in " ".join(
            status.table([one]).split()
        )
        (done.folder / name).write_bytes(whole)
    assert status.survey(Path(done.results))[0][0].error is None


def test_settings_that_cannot_be_written_are_no_error(
    done: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuses(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    (done.folder / "config.yaml").unlink()
    monkeypatch.setattr(missing, "write_whole", refuses)
    assert sweep.run([done], lambda *_: []) == 0
    assert f"in {done.folder} and cannot be written: Read-only file system" in capsys.readouterr().err


def test_a_provenance_that_is_missing_is_told_with_what_to_do(done: Config, capsys: pytest.CaptureFixture[str]) -> None:
    file = done.folder / "provenance.json"
    whole = file.read_bytes()
    file.unlink()
    remedy = missing.REMEDIES["provenance.json"]
    assert collect(Path(done.results))[1] == [f"{done.folder}: provenance.json is missing; {remedy}"]
    assert sweep.run([done], lambda *_: []) == 0
    said = capsys.readouterr().err
    assert f"warning: provenance.json is missing in {done.folder}, and results leave the run out: {remedy}\n" in said
    assert not file.exists(), "nobody knows what it said"
    file.write_bytes(whole)
    assert collect(Path(done.results))[1] == []
