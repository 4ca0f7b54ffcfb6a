"""The README's own example of a new algorithm, put where it says, trains."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

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
