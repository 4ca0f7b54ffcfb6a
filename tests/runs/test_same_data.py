"""Runs of the same settings on other images: each has its folder, and none is taken for another. Real trainings."""

import dataclasses
import json
import os
import shutil
from pathlib import Path

import committed_results
import numpy as np
import pytest
from forked_cli import repro, start
from PIL import Image

from repro import data
from repro.config.compose import compose
from repro.config.schema import Config, ConfigError
from repro.data import Content
from repro.report import pool_seeds
from repro.report.from_run_folders import collect
from repro.runs import same_data
from repro.train import timed_only

SETTINGS = ["model=resnet20", "data=imagenet", "data.classes=4", "data.image_size=16", "nodes=2", "batch_per_node=4"]
SETTINGS += ["steps=1", "threads=1", "wandb.mode=disabled"]


@pytest.fixture
def roots(imagenet_folder: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The same images at A and B, but that one image of B is missing."""
    for name in ("A", "B"):
        shutil.copytree(imagenet_folder, tmp_path / name)
    next((tmp_path / "B").glob("imagenet/train/*/*_7.JPEG")).unlink()
    return tmp_path / "A", tmp_path / "B"


def folders(place: Path) -> list[Path]:
    return sorted(path.parent for path in place.glob("results/runs/default/*/status.json"))


def test_other_images_are_trained_on_and_the_same_ones_are_not(roots: tuple[Path, Path], tmp_path: Path) -> None:
    """A run on B was "done already", with the accuracy of A."""
    first = repro("run", *SETTINGS, "data.root=A", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    (of_a,) = folders(tmp_path)
    metrics = (of_a / "metrics.jsonl").read_bytes()
    second = repro("run", *SETTINGS, "data.root=B", cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    assert "holds a run on imagenet (4 classes, 32 + 16 images), fingerprint" in second.stderr
    assert "data.root=B holds imagenet (4 classes, 31 + 16 images)" in second.stderr
    assert len(folders(tmp_path)) == 2 and (of_a / "metrics.jsonl").read_bytes() == metrics
    for root in ("A", "B"):
        again = repro("run", *SETTINGS, f"data.root={root}", cwd=tmp_path)
        assert "is done already, on imagenet (4 classes, 3" in again.stderr and len(folders(tmp_path)) == 2
    shutil.move(tmp_path / "A", tmp_path / "elsewhere")
    moved = repro("run", *SETTINGS, "data.root=elsewhere", cwd=tmp_path)
    assert "is done already" in moved.stderr and len(folders(tmp_path)) == 2, "a place is no other content"
    planned = repro("launch", *SETTINGS, "data.root=B", "--dry-run", cwd=tmp_path)
    assert "1 of 1 runs left out: done" in planned.stdout
    next((tmp_path / "B").glob("imagenet/val/*/*_3.JPEG")).unlink()
    planned = repro("launch", *SETTINGS, "data.root=B", "--dry-run", cwd=tmp_path)
    assert "data.root=B holds imagenet (4 classes, 31 + 15 images)" in planned.stdout and "sbatch" in planned.stdout
    collected, _ = collect(tmp_path / "results/runs")
    assert [group["seeds"] for group in collected["default"]["groups"]] == [[0], [0]]


def ran(config: Config, content: Content, key: str = "fingerprint") -> None:
    """As if the run of `config` had been made with that content."""
    config.folder.mkdir(parents=True)
    said = {"data": content.description, key: content.fingerprint}
    (config.folder / "provenance.json").write_text(json.dumps(said))


def test_a_folder_from_before_is_read_by_what_its_data_was_called(roots: tuple[Path, Path], tmp_path: Path) -> None:
    configs = {root.name: compose([*SETTINGS, f"data.root={root}", f"results={tmp_path}/runs"])[0] for root in roots}
    assert configs["A"].run_id == configs["B"].run_id
    here = data.content("imagenet", roots[0])
    assert here is not None
    ran(configs["A"], here, "no fingerprint then")
    said: list[str] = []
    assert same_data.chosen([configs["A"]], said.append) == [configs["A"]] and not said
    (other,) = same_data.chosen([configs["B"]], said.append)
    assert other.folder != configs["B"].folder and "fingerprint not known" in said[0]
    assert same_data.chosen([other], said.append) == [other] and len(said) == 1, "settled for good"


def test_a_fingerprint_that_is_asked_for_must_be_there(roots: tuple[Path, Path]) -> None:
    (asked,) = compose([*SETTINGS, f"data.root={roots[0]}", "data.fingerprint=123456abcdef"])
    with pytest.raises(ConfigError, match="data.fingerprint=123456abcdef: data.root=.* holds imagenet .4 classes"):
        same_data.chosen([asked], print)


def test_data_that_the_run_itself_fetches_must_be_those_that_were_asked_for(tmp_path: Path) -> None:
    """Nothing is there yet when the run's folder is chosen."""
    settings = ["model=lstm_small", "model.width=8", "model.layers=1", "data=text", "data.sequence=5", "steps=2"]
    words = ["run", *settings, "nodes=2", "data.root=there", "wandb.mode=disabled"]
    done = repro(*words, "data.fingerprint=abcabcabcabc", cwd=tmp_path)
    assert done.returncode == 2 and "data.fingerprint=abcabcabcabc: data.root=there holds text" in done.stderr
    (tmp_path / "there/text.npz").unlink()
    (asked,) = compose([*settings, "nodes=2", "data.root=there"])
    ran(
        dataclasses.replace(asked, results=str(tmp_path / asked.results)),
        Content("text (another book)", "123456abcdef"),
    )
    done = repro(*words, cwd=tmp_path)
    assert done.returncode == 2 and "holds a run on text (another book), fingerprint 123456abcdef" in done.stderr
    assert "the same command once more gives it a run of its own" in done.stderr


def test_cifar10_from_other_images_is_another_run(tmp_path: Path) -> None:
    """The original and one from JPEG have one name, and had one folder."""
    for shade, name in ((10, "one"), (11, "other")):
        for split in ("train", "test"):
            for label in range(10):
                place = tmp_path / name / split / str(label)
                place.mkdir(parents=True)
                Image.fromarray(np.full((32, 32, 3), shade + label, np.uint8)).save(place / "0.png")
        data.prepare("cifar10", tmp_path / name, tmp_path / f"root-{name}")
    configs = [
        compose(["data=cifar10", f"data.root={tmp_path}/root-{name}", f"results={tmp_path}/runs"])[0]
        for name in ("one", "other")
    ]
    contents = [data.content("cifar10", config.data.root) for config in configs]
    assert contents[0] is not None and contents[1] is not None
    assert contents[0].description == contents[1].description and contents[0] != contents[1]
    ran(configs[0], contents[0])
    settled = same_data.chosen(configs, lambda text: None)
    assert settled[0] == configs[0] and settled[1].folder != configs[0].folder


def test_seeds_of_other_images_are_not_pooled() -> None:
    there = committed_results.load().summaries["families"]["groups"][0] | {"fingerprint": "aaa"}
    new = there | {"seeds": [7], "runs": ["new"]}
    for fingerprint, seeds in (("aaa", [[0, 7]]), ("", [[0, 7]]), ("bbb", [[0], [7]])):
        pooled = pool_seeds.pool({"groups": [there]}, {"groups": [new | {"fingerprint": fingerprint}]}, pytest.fail)
        assert [one["seeds"] for one in pooled["groups"]] == seeds


@pytest.mark.parametrize("asked", [False, True])
def test_ranks_that_read_other_images_are_told(asked: bool, roots: tuple[Path, Path], tmp_path: Path) -> None:
    """Two machines of a cluster, each with images of its own under the same name: two processes, two folders.

    Where a fingerprint is asked for, the rank that has not got it refuses; the other waited for it for timeout_s.
    """
    words = ["run", *SETTINGS, "data.root=.", f"results={tmp_path}/runs"]
    if asked:
        here = data.content("imagenet", str(roots[0]))
        assert here is not None
        words += [f"data.fingerprint={here.fingerprint}", "timeout_s=60"]
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29_000 + os.getpid() % 900)}
    ranks = [start(*words, cwd=root, **common, RANK=str(rank)) for rank, root in enumerate(roots)]
    said = [rank.over()[1] for rank in ranks]
    assert all(rank.returncode for rank in ranks)
    why = (
        "rank 1 did not start any run: data.fingerprint="
        if asked
        else "rank 1 has other data under data.root=. than rank"
    )
    assert any(why in text for text in said), said


def test_a_run_that_reads_no_images_stays_itself_once_there_are_some(imagenet_folder: Path, tmp_path: Path) -> None:
    """A done measurement of a stated node was measured again, in a second folder, where cifar10 had been prepared."""
    words = [f"data.root={imagenet_folder}", "cluster=lab", "node=paper", f"results={tmp_path}"]
    (config,) = compose([*SETTINGS, *words])
    config.folder.mkdir(parents=True)
    said = {"data": timed_only.DESCRIPTION, "fingerprint": ""}
    (config.folder / "provenance.json").write_text(json.dumps(said))
    assert same_data.chosen([config], pytest.fail) == [config]
    trained = dataclasses.replace(config, node=None)
    trained.folder.mkdir(parents=True)
    (trained.folder / "provenance.json").write_text(
        json.dumps(said | {"data": "imagenet (other images)", "fingerprint": "1"})
    )
    (own,) = same_data.chosen([trained], lambda line: None)
    assert own.data.fingerprint and own.folder != trained.folder
