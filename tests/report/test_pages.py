"""The pages: their example of a new algorithm trains, their generated parts are up to date."""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from html import escape
from pathlib import Path

import committed_results
import made_up_groups
import made_up_results
import pytest

from repro import figures
from repro.config import groups
from repro.config.schema import ConfigError
from repro.report import html, in_short, near_dense, page_parts, pages, summaries

ROOT = Path(__file__).parents[2]


def test_an_algorithm_is_one_file_and_one_yaml(tmp_path):
    python, yaml = re.findall(r"```(?:python|yaml)\n(.*?)```", section("adding.md", "Example: an algorithm"), re.S)[:2]
    for folder in ("repro", "conf"):
        shutil.copytree(ROOT / folder, tmp_path / folder)  # with __pycache__, which spares it the compilations
    (tmp_path / "repro/algorithms/signs.py").write_text(python)
    (tmp_path / "conf/algo/signs.yaml").write_text(yaml)
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("golden", "made_before"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shared = ["tests/algorithms/test_algorithms.py", "-k", "signs and not gloo", "-n", "0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *shared],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
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


def section(page: str, title: str) -> str:
    return (ROOT / "docs" / page).read_text().split(f"## {title}\n")[1].split("\n## ")[0]


def test_parts_are_written_and_all_else_stays(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text("# A\n<!-- generated: table quickstart -->\nstale\n<!-- end -->\nend\n")
    assert pages.update(tmp_path, write=False) == [page] and "stale" in page.read_text()
    assert pages.update(tmp_path, write=True) == [page]
    text = page.read_text()
    assert text.startswith("# A\n<!-- generated") and text.endswith("<!-- end -->\nend\n") and "stale" not in text
    assert "| gTop-k |" in text
    assert pages.update(tmp_path, write=True) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [("<!-- generated: nothing -->\n<!-- end -->\n", "no part nothing"), ("<!-- generated: keys -->\n", "later line")],
)
def test_a_wrong_mark_is_told(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(text)
    with pytest.raises(ConfigError, match=message):
        pages.update(tmp_path, write=True)
    with pytest.raises(ConfigError, match="no docs/"):
        pages.update(tmp_path / "elsewhere", write=True)


def test_the_longest_training_stands_beside_runs_like_it_alone() -> None:
    """Not beside those of other nodes or another precision, whose schedule has the same name."""
    made = [made_up_groups.group("resnet20", algo) for algo in ("dense", "gtopk", "topk", "gtopk")]
    made[2]["settings"]["precision"] = "bfloat16"
    made[3]["settings"]["nodes"] = 32
    said = page_parts.status(summaries.Results(summaries.paper(), {"convergence": {"groups": made}}), "")
    over = "the schedule of 141 epochs compressed to 5"
    assert (
        "- On 4 nodes gTop-k ends 2.00 points below dense with ResNet-20 (48.00 % against 50.00 %, re-encoded images, "
        f"n = 1: conditions not met), over {over}.\n" in said
    )
    assert "On 32 nodes" not in said, "dense was not trained on as many"
    how = "CIFAR-10 (JPEG folder) | schedule of 141 epochs compressed to 5 | float32"
    assert f"| ResNet-20 | 4 | {how} | 50.00 | – | 48.00 | 2.00 | 1 |\n" in said
    assert f"| ResNet-20 | 32 | {how} | – | – | 48.00 | – | 1 |\n" in said
    assert said.endswith("The images of CIFAR-10 (JPEG folder) were encoded once more, as JPEG.\n")


def test_the_longest_training_on_the_original_images_stands_before_that_on_others() -> None:
    made = [made_up_groups.group("resnet20", algo) for algo in ("dense", "gtopk", "dense", "gtopk", "dense", "gtopk")]
    for group in made[2:4]:
        group["data"] = "cifar10"
    for group in made[4:]:
        group["settings"]["model"] = made_up_groups.group("vgg16", "dense")["settings"]["model"]
        group["settings"]["nodes"] = 32
    made[3]["curve"][-1]["test_accuracy"] = 0.5125
    said = page_parts.status(summaries.Results(summaries.paper(), {"convergence": {"groups": made}}), "")
    assert "- On 4 nodes gTop-k ends 1.25 points above dense with ResNet-20 (51.25 % against 50.00 %, n = 1" in said
    steps = "a step has 1,024 samples at the same learning rate, and gTop-k ends 2.00 points below dense with VGG-16"
    assert f"- On 32 nodes, where the paper times it, {steps} (48.00" in said
    first, second = (line for line in said.splitlines() if line.startswith("| ResNet-20 | 4 |"))
    assert "| CIFAR-10 |" in first and "| CIFAR-10 (JPEG folder) |" in second


def test_without_a_run_the_claims_alone_are_told() -> None:
    said = page_parts.status(made_up_results.nothing(), "")
    assert re.fullmatch(r"- Of \d+ claims of the paper that are checked here: \d+ not run\.\n", said)


def test_readme_and_report_tell_the_result_in_three_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "gallery", lambda _: "")  # which takes long to draw
    data = committed_results.load()
    told = in_short.sentences(data, figures.load(["claims"])[0].table(data))
    assert len(told) == 3 and all(re.search(r"\d", one) and one.endswith(".") for one in told)
    readme, page = (ROOT / "README.md").read_text(), html.page(data)
    assert all(f"- {one}\n" in readme and escape(one) in page for one in told)
    counted = re.search(r"- Of (\d+) claims", readme)
    assert counted and f"claim by claim: of {counted[1]}, " in page


def test_more_seeds_on_other_images_are_told_beside_the_originals() -> None:
    data = summaries.load()  # its own, which it changes
    jpegs = [
        group
        for group in data.groups("convergence")
        if (group.model, group.nodes, group.encoded, group.whole) == ("resnet20", 4, True, True)
    ]
    kept = {id(group.settings): 10 + place for place, group in enumerate(jpegs) if group.algo in ("dense", "gtopk")}
    for one in data.summaries["convergence"]["groups"]:
        if at := kept.get(id(one["settings"])):
            accuracies = [row["test_accuracy"] for row in one["curve"]]
            one |= {"seeds": [0, 1, 2], "runs": [f"{at}-{seed}" for seed in range(3)]}
            one["seed_accuracies"] = [[x + at * seed / 1e4 for x in accuracies] for seed in range(3)]
    first, *_ = in_short.sentences(data, figures.load(["claims"])[0].table(data))
    (said,) = re.findall(r"with ResNet-20 \((.*?)\)", first)
    originals, others = said.split("; ")
    assert originals.endswith("n = 1") and others.startswith("0.") and ", re-encoded images, n = 3: " in others


def test_an_iteration_without_a_dense_one_beside_it_has_its_time_alone() -> None:
    data = summaries.load()  # its own, which it changes
    relaxed = [
        group for group in data.summaries["relaxations"]["groups"] if group["settings"]["algo"]["name"] == "topk"
    ]
    large = copy.deepcopy(next(one for one in relaxed if one["iteration_time"][0]["network"] == "ethernet1g"))
    large["settings"]["nodes"] = 16
    data.summaries["relaxations"] = {"groups": [large]}
    part = page_parts.algorithms(data, "").partition("### Top-k\n")[2].partition("\n### ")[0]
    assert " ms an iteration (measured: " in part and ", 16 nodes, links of 1 Gbps" in part


def test_every_page_is_up_to_date() -> None:
    words = [sys.executable, "-m", "repro", "results", "docs", str(ROOT), "--check"]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_reference_has_every_key_option_and_command() -> None:
    keys, commands = (ROOT / "docs/keys.md").read_text(), (ROOT / "docs/commands.md").read_text()
    assert [key for key in groups.root_keys() if f"| `{key}` |" not in keys] == []
    for group in ("model", "data", "network", "cluster", "experiment"):
        assert [name for name in groups.group_options(group) if f"### {group}={name}\n" not in keys] == []
    sections = (ROOT / "docs/algorithms.md").read_text()
    assert [
        name for name in groups.group_options("algo") if f"### {groups.title('algo', name)}\n" not in sections
    ] == []
    assert {"## repro run", "## repro results docs", "## repro bench network"} <= set(commands.splitlines())


def test_an_algorithm_is_told_beside_dense_over_the_schedule_as_written_where_both_have_it() -> None:
    """PowerSGD had 65.86 %, compressed to 3 epochs, where 15 of the whole schedule's were committed."""
    data = committed_results.load()
    told = re.findall(
        r"\| `algo=(\w+)` \|(?:(?!`algo=).)*?\n\| accuracy \| ([\d.]+) %"
        r"(?:, where dense (?:of the same seeds? )?has ([\d.]+) %)? \(([^\n]*)\n",
        page_parts.algorithms(data, ""),
        re.DOTALL,
    )
    ends = near_dense.endings(data, near_dense.NODES, 0.001)
    beside = {name: (float(ours) - float(dense), how) for name, ours, dense, how in told if dense}
    assert beside["powersgd"][0] == pytest.approx(ends["powersgd"].points, abs=0.011)
    longer = {
        group.algo
        for group in data.groups("families")
        if not group.compressed and group.nodes == near_dense.NODES and group.settings["density"] in (0.001, 1)
    }
    assert "powersgd" in longer
    assert all("compressed" not in beside[name][1] for name in longer & {*beside})
