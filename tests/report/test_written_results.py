"""What is written of results: a measurement that is not whole yet, a table's numbers, and whose seconds they are."""

import json
import shutil
from pathlib import Path
from typing import Any

import tiny_runs

from repro import tables
from repro.report import from_run_folders, summaries
from repro.runs import status_file
from repro.timing.before_run import before_a_run
from repro.train import loop


def test_a_measurement_that_is_being_written_is_no_result_yet(tmp_path: Path) -> None:
    """While `repro bench collectives` measured, and after it broke off, its file kept all from being read."""
    for name in ("paper.yaml", "reference_curves.yaml"):
        shutil.copy(summaries.folder() / name, tmp_path)
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "collectives.jsonl.part").write_text('{"bytes": 1}\n{"bytes": 2}\n{"by')
    (tmp_path / "lab" / "network.json.unfinished").write_text("")
    (tmp_path / "lab" / "network.json").write_text("{}")
    assert list(summaries.load(tmp_path).summaries) == ["lab/network"]


def test_csv_is_the_same_on_every_machine() -> None:
    assert tables.to_csv([{"a": 1 / 3, "b": None, "c": True}]) == "a,b,c\n0.333333,,yes\n"


def test_what_was_timed_stays_with_its_machine_when_another_one_goes_on(tmp_path: Path) -> None:
    """The seconds of the first session were filed under the machine of the last one."""
    run = tiny_runs.config(tmp_path, *tiny_runs.QUICK, "algo=gtopk", "nodes=2", "steps=3", "checkpoint_every=1")
    loop.run(run, before_a_run)

    def stopped_elsewhere_after(step: int) -> dict[str, Any]:
        for place in (run.folder / "checkpoints").glob("step-*"):
            if int(place.name.removeprefix("step-")) > step:
                (place / "manifest.json").unlink()
        status_file.write(run.folder, "running", step, 3)
        file = run.folder / "provenance.json"
        said = json.loads(file.read_text())
        if "timed_on" not in said:
            said |= {"cpu": "Another", "processor": {"name": "Another"}, "rates": {"float32_gflops": 3.0}}
            said |= {"versions": {"torch": "0.1"}, "git": {"commit": "0123"}}
            file.write_text(json.dumps(said))
        loop.run(run, before_a_run)
        return json.loads(file.read_text())

    def group() -> dict[str, Any]:
        (made,) = from_run_folders.collect(tmp_path)[0]["default"]["groups"]
        return made

    def timed_by() -> dict[str, Any]:
        return group()["machine"]

    here = json.loads((run.folder / "provenance.json").read_text())
    (rate,) = group()["seed_rates"]
    assert rate["seed"] == 0 and rate["samples_per_s"] > 0 and "processor" in rate
    for step in (2, 2):
        said = stopped_elsewhere_after(step)
        assert (timed_by()["cpu"], timed_by()["rates"]) == ("Another", {"float32_gflops": 3.0})
        assert timed_by()["versions"] == {"torch": "0.1"}, "of the machine that timed, not of the one that goes on"
        assert timed_by()["git"] == {"commit": "0123"}, "where the run was begun"
        assert said["cpu"] == here["cpu"] and said["git"] == here["git"]
        assert group()["seed_rates"] == [], "two machines trained"
    sessions = [(one["cpu"], one["resumed_at"]) for one in [*said["earlier"], said]]
    assert sessions == [("Another", 0), *[(here["cpu"], 2)] * 2]
    stopped_elsewhere_after(0)  # nothing to go on from: it is timed again
    assert timed_by()["processor"] == here["processor"]
