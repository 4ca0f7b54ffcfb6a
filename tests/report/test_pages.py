"""What the README says holds: its example of a new algorithm trains, its numbers are those of the summaries."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from repro import results
from repro.figures import _times

ROOT = Path(__file__).parent.parent


def test_an_algorithm_is_one_file_and_one_yaml(tmp_path):
    python, yaml = re.findall(r"```(?:python|yaml)\n(.*?)```", section("Adding an algorithm"), re.S)[:2]
    for folder in ("repro", "conf"):
        shutil.copytree(ROOT / folder, tmp_path / folder)  # with __pycache__, which spares it the compilations
    (tmp_path / "repro/algorithms/signs.py").write_text(python)
    (tmp_path / "conf/algo/signs.yaml").write_text(yaml)
    words = "run algo=signs data=synthetic data.train_images=64 data.test_images=16 nodes=3 steps=2 batch_per_node=4"
    done = subprocess.run(
        [sys.executable, "-m", "repro", *words.split(), "compare_every=1", "wandb.mode=disabled"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (metrics,) = tmp_path.glob("results/runs/*/*/metrics.jsonl")
    steps = [line for line in map(json.loads, metrics.read_text().splitlines()) if line["kind"] == "step"]
    assert [line["bytes_sent"] for line in steps] == [2 * (269_722 + 4)] * 2  # as its `cost` says


def section(title: str) -> str:
    return (ROOT / "README.md").read_text().split(f"## {title}\n")[1].split("\n## ")[0]


def test_the_gaps_of_short_schedules_are_those_of_the_summaries() -> None:
    found = results.load()

    def finals(experiment: str, epochs: int, model: str = "resnet20") -> dict[tuple[str, float], float]:
        groups = [g for g in found.groups(experiment) if (g.model, g.settings["epochs"]) == (model, epochs)]
        return {(g.algo, g.settings["density"]): 100 * g.curve[-1]["test_accuracy"] for g in groups}

    short, five, fifteen = finals("density_sensitivity", 3), finals("convergence", 5), finals("convergence", 15)
    behind = [short["dense", 1.0] - short["gtopk", 0.001], five["dense", 1.0] - five["gtopk", 0.001]]
    behind += [fifteen["dense", 1.0] - fifteen["gtopk", 0.001], short["dense", 1.0] - short["gtopk", 0.05]]
    behind += [fifteen["dense", 1.0] - fifteen["topk", 0.001]]
    text = " ".join((ROOT / "README.md").read_text().split())
    said = re.search(
        r"ahead by ([\d.]+) points of accuracy after 3 epochs, ([\d.]+) after 5 and ([\d.]+) after 15 .* at 0.001, "
        r"by ([\d.]+) \(.*a step: ([\d.]+) after 15",
        text,
    )
    assert said and [float(number) for number in said.groups()] == pytest.approx(behind, abs=0.051)
    vgg16 = finals("convergence", 4, "vgg16")
    said = re.search(r"each entry [\d.]+ times: ([\d.]+) %, beside ([\d.]+) of dense and ([\d.]+) of Top-k", text)
    of_all = [vgg16["gtopk", 0.001], vgg16["dense", 1.0], vgg16["topk", 0.001]]
    assert said and [float(number) for number in said.groups()] == pytest.approx(of_all, abs=0.051)


def test_the_seconds_of_a_batch_are_those_of_the_summaries() -> None:
    found = results.load()
    text = " ".join((ROOT / "README.md").read_text().split())
    said = re.search(r"VGG-16 takes one core ([\d.]+) s, their GPU ([\d.]+) s", text)
    seconds = [row["compute_s"] for row in _times.ours(found) if (row["model"], row["source"]) == ("vgg16", "modelled")]
    assert said and seconds == pytest.approx([float(said[1])] * len(seconds), abs=0.051) and seconds
    assert found.paper["breakdown_gtopk_32_nodes"]["vgg16"]["compute"] == pytest.approx(float(said[2]), abs=0.0051)
