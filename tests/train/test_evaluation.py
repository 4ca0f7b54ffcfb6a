"""What an evaluation has to evaluate."""

import shutil
from pathlib import Path

import pytest
from tiny_runs import config

from repro.config.schema import RunError
from repro.runs import status_file
from repro.train import loop


def test_a_test_set_of_which_nothing_decodes_ends_the_run(imagenet_folder: Path, tmp_path: Path) -> None:
    """Its loss was 0 / 0, written as null, and the run was done."""
    shutil.copytree(imagenet_folder, tmp_path / "data")
    for image in (tmp_path / "data/imagenet/val").rglob("*.JPEG"):
        image.write_text("no image")
    images = [f"data.root={tmp_path / 'data'}", "data.classes=4", "data.image_size=32", "on_bad_image=skip"]
    run = config(tmp_path, "model=resnet20", "algo=dense", "nodes=2", "steps=1", "data=imagenet", *images)
    with pytest.raises(RunError, match="no image of the test set can be decoded.* data.root=FOLDER"):
        loop.run(run)
    assert status_file.state(run.folder) == "failed"
