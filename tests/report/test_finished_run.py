"""Run folders that were damaged in each way we could think of: each is left out by name, and the others count."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from damaged_runs import DAMAGES, RUN
from tiny_runs import bits, config, equal

from repro import cli
from repro.commands.run import before_a_run
from repro.config.compose import compose
from repro.config.schema import Config, ConfigError
from repro.report import finished_run, summaries
from repro.report.from_run_folders import collect
from repro.runs import lock, run_folder, same_data, status, status_file
from repro.train import loop


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Config:
    run = config(tmp_path_factory.mktemp("made"), *RUN)
    loop.run(run, before_a_run)
    return run


def copied(made: Config, results: Path, experiment: str, whole: bool = False) -> Path:
    place = results / experiment / made.run_id
    shutil.copytree(made.folder, place, ignore=None if whole else shutil.ignore_patterns("checkpoints"))
    return place


def test_every_damage_is_left_out_by_name_and_the_rest_is_collected(made: Config, tmp_path: Path) -> None:
    assert len(DAMAGES) > 300
    places = {}
    for number, (name, damage) in enumerate(DAMAGES.items()):
        places[name] = copied(made, tmp_path, f"{number:03d}")
        damage(places[name])
    good = copied(made, tmp_path, "good")
    found, left_out = collect(tmp_path)
    collected = [name for name in places if places[name].parent.name in found]
    assert collected == [] and list(found) == ["good"] and found["good"]["groups"][0]["runs"] == [good.name]
    reasons = dict(line.split(": ", 1) for line in left_out)
    for name, place in places.items():
        reason = reasons[str(place)]
        assert reason.startswith(name.split()[0].partition(".")[0]), f"{name}: {reason}"  # names the file
        assert "\n" not in reason and len(reason) < 400
        # what else reads a run folder, before or after a run
        status.run(place, None), run_folder.summary(place), lock.holder(place), same_data.trained_on(place)
        assert status_file.state(place) in ("done", "failed", "finished", "text", None), name
    listed = {run.name: run for run in status.survey(tmp_path)[0]}
    assert {f"{place.parent.name}/{place.name}" for place in [*places.values(), good]} <= set(listed)
    table = status.table(list(listed.values()))
    assert all(place.parent.name in table for place in [*places.values(), good])


def test_the_commands_go_on_past_damaged_folders(
    made: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, some = tmp_path / "runs", ["status.json {", "metrics.jsonl binary", "config.yaml a_key_of_another_version=1"]
    for number, name in enumerate(some):
        DAMAGES[name](copied(made, runs, f"damaged-{number}"))
    copied(made, runs, "families")
    monkeypatch.setattr("repro.report.html.page", lambda data: f"{len(data.left_out)} left out")
    for line in (
        f"results collect --runs {runs} --out {tmp_path}",
        f"plot figures --runs {runs} --out {tmp_path} --only families --format svg",
        f"plot tables --runs {runs} --out {tmp_path} --only quickstart",
        f"plot list --runs {runs}",
        f"report --runs {runs} --out {tmp_path}/report.html",
        f"status --results {runs}",
    ):
        monkeypatch.setattr(sys, "argv", ["repro", *line.split()])
        code = cli._call()
        out, err = capsys.readouterr()
        assert (code, err) == (0, ""), line
        assert all(sum(f"damaged-{number}" in text for text in out.splitlines()) == 1 for number in range(3)), out
    assert [path.name for path in (tmp_path / "summaries").iterdir()] == ["families.json"]
    assert (tmp_path / "families.svg").stat().st_size > 1000
    assert (tmp_path / "report.html").read_text() == "3 left out"


def test_what_is_collected_comes_to_what_is_there_unless_it_is_to_take_its_place(
    made: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default it took the place of all committed runs of the experiment."""
    copied(made, tmp_path / "runs", "families")
    file, other = tmp_path / "summaries/families.json", {"model": {"name": "vgg16"}}
    line = f"repro results collect --runs {tmp_path}/runs --out {tmp_path}"

    def collect(*more: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", [*line.split(), *more])
        assert cli._call() == 0
        return [group["settings"]["model"]["name"] for group in json.loads(file.read_text())["groups"]]

    assert collect() == ["resnet20"]
    (own,) = json.loads(file.read_text())["groups"]
    committed = own | {"settings": own["settings"] | other, "runs": ["another"]}
    file.write_text(json.dumps({"experiment": "families", "groups": [committed]}))
    assert sorted(collect()) == sorted(collect()) == ["resnet20", "vgg16"]
    assert collect("--replace") == ["resnet20"]
    mixed = own | {"seeds": [0, 1], "runs": [*own["runs"], "another"], "seed_accuracies": []}
    for seeds, runs, code in (([0, 1], mixed["runs"], 0), ([1, *own["seeds"]], ["another", "one"], 1)):
        file.write_text(json.dumps({"experiment": "families", "groups": [mixed | {"seeds": seeds, "runs": runs}]}))
        before = file.read_bytes()
        monkeypatch.setattr(sys, "argv", line.split())
        assert cli._call() == code
        assert json.loads(before)["groups"] == json.loads(file.read_text())["groups"]


OF_A_START = [
    name for name in DAMAGES
    if name.split(maxsplit=1)[1] in ("empty", "{", "a list", "binary", "truncated", "missing", "without a step")
    or name in ("provenance.json  data=[1]", "recorded.json  step=\"text\"", "status.json  state=null")
]  # fmt: skip


@pytest.mark.parametrize("name", OF_A_START)
def test_the_same_command_goes_on_after_a_damage(name: str, made: Config, tmp_path: Path) -> None:
    run = config(tmp_path, *RUN)
    place = copied(made, tmp_path, run.folder.parent.name, whole=True)
    status_file.write(place, "running", 2, 2)
    DAMAGES[name](place)
    assert loop.run(run, before_a_run)["state"] == "done"
    assert equal(bits(place), bits(made.folder))
    found, left_out = collect(tmp_path)
    assert left_out == [] and len(found["default"]["groups"]) == 1
    steps = [line["step"] for line in run_folder.read_metrics(place) if line["kind"] == "step"]
    assert steps == [1, 2]
    recorded, expected = (json.loads((folder / "recorded.json").read_text()) for folder in (place, made.folder))
    assert recorded == expected


def test_a_summary_that_is_damaged_is_named(made: Config, tmp_path: Path) -> None:
    for content in ("{", '{"groups": [{"of": "another version"}]}', "[]"):
        (tmp_path / "summaries").mkdir(exist_ok=True)
        (tmp_path / "summaries" / "lab.json").write_text(content)
        with pytest.raises(summaries.ConfigError, match=r"summaries/lab\.json is no ") as caught:
            summaries.saved(tmp_path)
        assert "\n" not in str(caught.value)


def test_a_whole_schedule_that_stopped_is_a_prefix_of_it_scaled_or_not() -> None:
    (whole,) = compose(["model=resnet20", "scale_schedule=true"])
    assert whole.epochs == whole.schedule_epochs
    lines = [{"kind": "eval", "epoch": 60.0}, {"kind": "step", "epoch": 60.5}]
    shorter, kept = finished_run._up_to_last_evaluation(whole, lines)
    assert (shorter.epochs, shorter.scale_schedule, kept) == (60, False, lines[:1])
    for epoch in (0.0, 1e7):  # which ended the collection of all folders
        with pytest.raises(finished_run.Damaged, match="before its first evaluation"):
            finished_run._up_to_last_evaluation(whole, [{"kind": "eval", "epoch": epoch}])


def test_a_run_that_was_killed_stopped_and_one_that_runs_did_not(made: Config, tmp_path: Path) -> None:
    """What a node's failure ended was called running, and left out of what had stopped."""
    folder = copied(made, tmp_path, "killed")
    said = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps(said | {"state": "running"}))
    (why,) = collect(tmp_path, stopped=True)[1]
    assert "another schedule" in why  # the made run is too short to be a prefix: it was read as one that stopped
    (why,) = collect(tmp_path)[1]
    assert why.endswith(": running")
    held = lock.Lock(folder)
    (why,) = collect(tmp_path, stopped=True)[1]
    held.release()
    assert why.endswith(": running")


def test_the_line_that_a_full_disk_cut_short_costs_a_stopped_run_none_of_those_before(
    made: Config, tmp_path: Path
) -> None:
    """It was called damaged, where going on with it would have cut that line off."""
    folder = copied(made, tmp_path, "full")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "step", "st')
    said = json.loads((folder / "status.json").read_text())
    del said["metrics"]  # which a run has that is done
    (folder / "status.json").write_text(json.dumps(said | {"state": "failed"}))
    (why,) = collect(tmp_path, stopped=True)[1]
    assert "another schedule" in why  # the made run is too short to be a prefix: it was read as one that stopped


@pytest.mark.parametrize(("step", "missing"), [(-1, False), (1, True)])
def test_a_run_that_failed_behind_its_status_is_not_damaged(
    step: int, missing: bool, made: Config, tmp_path: Path
) -> None:
    """Ranks that a second Ctrl-C ended at once leave the status of up to two seconds before."""
    file = copied(made, tmp_path, "killed") / "status.json"
    said = json.loads(file.read_text())
    file.write_text(json.dumps(said | {"state": "failed", "step": said["step"] + step}))
    (why,) = collect(tmp_path, stopped=True)[1]
    assert ("does not have each of the" in why) == missing and ("another schedule" in why) != missing


def test_no_name_of_an_experiment_is_passed_over(made: Config, tmp_path: Path) -> None:
    """A typo was, beside a name that there is."""
    copied(made, tmp_path, "one")
    name = next(path.name for path in tmp_path.iterdir())
    with pytest.raises(ConfigError, match=f"^--only convergance: .* has no runs of it; there are {name}"):
        collect(tmp_path, only=[name, "convergance"])


def test_a_folder_that_may_not_be_read_is_said_to_be_left_out(
    made: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's run was missing without a word. Root may read all, so that the answer is made up."""
    copied(made, tmp_path, "one")
    place = tmp_path / "default" / "theirs"
    place.mkdir(parents=True)
    monkeypatch.setattr(run_folder.os, "access", lambda path, mode: path != place)
    assert f"{place}: it may not be read" in collect(tmp_path)[1]
