"""Images in ImageNet's layout: real JPEGs of several sizes and colour modes, whole and truncated."""

import logging
import os
import random
import re
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from repro import data
from repro.cli import app
from repro.config.compose import compose
from repro.config.schema import ConfigError, RunError
from repro.data._images.crops import center_crop, random_resized_crop, shorter_side

SMALL = ["model=alexnet", "data.classes=4", "data.image_size=64"]


def open_at(root, *overrides, seed=0, on_bad_image="stop"):
    config = compose([*SMALL, f"data.root={root}", *overrides])[0]
    return data.load(config.data, seed, on_bad_image)


@pytest.fixture
def copy(imagenet_folder, tmp_path):
    shutil.copytree(imagenet_folder, tmp_path / "data")
    return tmp_path / "data"


def truncate(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    return file


@contextmanager
def as_nobody():
    """Another user than root, whom no permission stops."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize("closed", ["imagenet", "imagenet/train", "imagenet/val/n00000001"])
def test_a_folder_that_may_not_be_entered_is_named_and_the_other_data_are_listed(imagenet_folder, closed):
    """`repro data status` ended with a traceback."""
    with tempfile.TemporaryDirectory() as root:  # pytest's own may be entered by one user alone
        Path(root).chmod(0o755)
        shutil.copytree(imagenet_folder, root, dirs_exist_ok=True)
        asked = ["data", "status", "--root", root]
        assert "imagenet ready" in " ".join(CliRunner().invoke(app, asked).output.split())
        open_at(root)  # imports what it needs while this is root, whose folders may hold it
        Path(root, closed).chmod(0)
        with as_nobody():
            shown = CliRunner().invoke(app, asked)
            with pytest.raises(ConfigError, match="cannot be read: Permission denied. Ask for permission to read it"):
                open_at(root)
    said = " ".join(shown.output.split())
    assert shown.exit_code == 0 and re.search("imagenet +wrong", said) and "cannot be read: Permission denied" in said
    assert re.search("digits +ready", said)


def same(a, b):
    return all(torch.equal(x[0], y[0]) and torch.equal(x[1], y[1]) for x, y in zip(a, b, strict=True))


def test_batches(imagenet_folder):
    dataset = open_at(imagenet_folder, "data.image_size=224")
    assert (dataset.train_size, dataset.test_size, dataset.classes, dataset.image_size) == (32, 16, 4, 224)
    assert dataset.description == "imagenet (4 classes, 32 + 16 images)"
    images, labels = next(dataset.batches(0, 0, 2, 5))
    assert images.shape == (5, 3, 224, 224) and images.dtype == torch.float32 and labels.dtype == torch.int64
    assert images.is_contiguous(memory_format=torch.channels_last)
    seen = torch.cat([labels for rank in range(3) for _, labels in dataset.test_batches(rank, 3, 4)])
    assert torch.bincount(seen).tolist() == [4, 4, 4, 4]


def test_threads_and_prefetch_change_nothing_and_a_position_resumes(imagenet_folder):
    straight = list(open_at(imagenet_folder, "data.workers=1", "data.prefetch=0").batches(3, 1, 2, 4))
    assert len(straight) == 4
    many = open_at(imagenet_folder, "data.workers=7", "data.prefetch=5")
    assert same(straight, many.batches(3, 1, 2, 4)) and same(straight[2:], many.batches(3, 1, 2, 4, start_batch=2))
    for other in (many.batches(4, 1, 2, 4), open_at(imagenet_folder, seed=1).batches(3, 1, 2, 4)):
        assert not torch.equal(next(other)[0], straight[0][0])


def test_leaving_an_epoch_early_ends_its_threads(imagenet_folder):
    import threading

    before = set(threading.enumerate())  # of which some may end meanwhile
    batches = open_at(imagenet_folder).batches(0, 0, 1, 4)
    next(batches)
    assert set(threading.enumerate()) - before
    batches.close()
    assert set(threading.enumerate()) - before == set()


def test_a_truncated_image_stops_with_its_name(copy):
    file = truncate(copy / "imagenet/train/n00000001/n00000001_1.JPEG")
    with pytest.raises(RunError, match=f"{file} cannot be read: .*truncated.*on_bad_image=skip"):
        list(open_at(copy).batches(0, 0, 1, 4))


def test_a_truncated_image_is_skipped_and_batches_stay_equal(copy, caplog):
    whole = list(open_at(copy).batches(0, 0, 1, 8))
    truncate(copy / "imagenet/train/n00000001/n00000001_1.JPEG")
    (copy / "imagenet/train/n00000003/n00000003_7.JPEG").write_bytes(b"")  # the last: replaced by the first
    truncate(copy / "imagenet/val/n00000002/n00000002_0.JPEG")
    dataset = open_at(copy, on_bad_image="skip")
    with caplog.at_level(logging.WARNING):
        skipping = list(dataset.batches(0, 0, 1, 8))
        tested = sum(len(labels) for _, labels in dataset.test_batches(0, 1, 4))
        assert same(skipping, dataset.batches(0, 0, 1, 8))
    assert [len(labels) for _, labels in skipping] == [8, 8, 8, 8] and tested == 15
    assert sum(not torch.equal(a[0][i], b[0][i]) for a, b in zip(whole, skipping) for i in range(8)) == 2  # noqa: B905
    assert [record.args[0].name for record in caplog.records].count("n00000001_1.JPEG") == 1  # said once
    assert len(caplog.records) == 3


def test_a_file_that_the_disk_cannot_give_is_never_skipped(copy):
    dataset = open_at(copy, on_bad_image="skip")
    (copy / "imagenet/train/n00000000/n00000000_0.JPEG").unlink()
    with pytest.raises(RunError, match="n00000000_0.JPEG cannot be read: .*No such file") as caught:
        list(dataset.batches(0, 0, 1, 4))
    assert "on_bad_image" not in str(caught.value), "it would not help"


def test_no_whole_image_at_all(copy):
    for file in (copy / "imagenet/train").rglob("*.JPEG"):
        truncate(file)
    with pytest.raises(RunError, match="no image in .*train can be decoded"):
        next(open_at(copy, on_bad_image="skip").batches(0, 0, 1, 4))


def test_folders_that_cannot_be(copy):
    with pytest.raises(ConfigError, match="data.classes=1000, but .* has 4 class folders: type data.classes=4"):
        open_at(copy, "data.classes=1000")
    with pytest.raises(ConfigError, match="data.workers=0: must be at least 1"):
        open_at(copy, "data.workers=0")
    val = copy / "imagenet" / "val"
    for split in ("train", "val"):
        shutil.copytree(copy / "imagenet" / split / "n00000001", copy / "one" / split / "n00000001")
    with pytest.raises(ConfigError, match="has one class folder, 'n00000001': two classes are needed"):
        data.prepare("imagenet", copy / "one", copy / "root")
    for file in (val / "n00000003").iterdir():
        file.unlink()
    with pytest.raises(ConfigError, match="n00000003 holds no image"):
        open_at(copy)
    (val / "n00000003").rmdir()
    with pytest.raises(ConfigError, match="class 'n00000003' is in train/ or val/ .* only"):
        open_at(copy)
    for folder in list(val.iterdir()):
        for file in folder.iterdir():
            file.rename(val / file.name)
        folder.rmdir()
    with pytest.raises(ConfigError, match="val has no class folders.*sort its images"):
        open_at(copy)
    shutil.rmtree(val)
    with pytest.raises(ConfigError, match="has no folder val/"):
        open_at(copy)
    assert "no folder val/" in next(r["state"] for r in data.status(copy) if r["name"] == "imagenet")


def test_data_root_is_the_folder_that_holds_imagenet(imagenet_folder, tmp_path):
    with pytest.raises(ConfigError, match=f"Type data.root={imagenet_folder}\\."):
        open_at(imagenet_folder / "imagenet")
    (tmp_path / "mine").symlink_to(imagenet_folder / "imagenet")
    with pytest.raises(ConfigError, match="must hold imagenet/: .* That folder has train/ itself: .*--from"):
        open_at(tmp_path / "mine")
    with pytest.raises(ConfigError, match="must hold imagenet/: .* image-net.org"):
        open_at(tmp_path)


def test_prepare_tells_of_files_of_another_format(copy, tmp_path, caplog):
    (copy / "imagenet" / "train" / "n00000001" / "a.webp").touch()
    (copy / "imagenet" / "val" / "n00000002" / ".DS_Store").touch()
    data.prepare("imagenet", copy / "imagenet", tmp_path / "root")
    assert caplog.messages == ["left out: 1 of the files are no .jpeg, .jpg, .png (1 with .webp)"]


def test_prepare_links_to_a_folder_that_is_right(imagenet_folder, tmp_path):
    link = data.prepare("imagenet", imagenet_folder / "imagenet", tmp_path / "root")
    assert link.is_symlink() and open_at(tmp_path / "root").train_size == 32
    assert data.prepare("imagenet", imagenet_folder / "imagenet", tmp_path / "root") == link  # again
    with pytest.raises(ConfigError, match="has no folder train/"):
        data.prepare("imagenet", imagenet_folder, tmp_path / "root")
    with pytest.raises(ConfigError, match="without an account"):
        data.prepare("imagenet", None, tmp_path / "root")
    with pytest.raises(ConfigError, match="is not a folder"):
        data.prepare("imagenet", tmp_path / "nowhere", tmp_path / "root")
    shutil.copytree(imagenet_folder, tmp_path / "own")
    in_place = tmp_path / "own" / "imagenet"
    assert data.prepare("imagenet", in_place, tmp_path / "own") == in_place and not in_place.is_symlink()
    with pytest.raises(ConfigError, match="cannot be made"):  # a real folder is not replaced
        data.prepare("imagenet", imagenet_folder / "imagenet", tmp_path / "own")


@pytest.mark.parametrize("size", [64, 224])
def test_the_center_crop_is_torchvisions(size):
    from torchvision import transforms

    usual = transforms.Compose([transforms.Resize(shorter_side(size)), transforms.CenterCrop(size)])
    for shape in ((90, 120), (131, 77), (64, 64), (20, 300), (98, 196)):  # 98 * (256 / 98) is below 256
        image = Image.effect_noise(shape, 60).convert("RGB")
        assert center_crop(image, size, shorter_side(size)).tobytes() == usual(image).tobytes()


def test_random_crops_vary_in_place_and_size_and_keep_to_the_image():
    image = Image.effect_noise((150, 100), 60).convert("RGB")
    crops = [random_resized_crop(image, 32, random.Random(i)) for i in range(50)]
    assert {crop.size for crop in crops} == {(32, 32)}
    assert len({crop.tobytes() for crop in crops}) == 50
    thin = Image.new("RGB", (400, 2), "white")  # no tried part fits: the middle is taken
    assert random_resized_crop(thin, 32, random.Random(0)).getextrema() == ((255, 255),) * 3


def test_the_fingerprint_is_of_the_images_wherever_they_are(imagenet_folder, copy):
    def now():
        return data.content("imagenet", copy)

    before = data.content("imagenet", imagenet_folder)
    assert before == now() and open_at(copy).fingerprint == before.fingerprint
    (row,) = (row for row in data.status(copy) if row["name"] == "imagenet")
    assert row["fingerprint"] == before.fingerprint
    files = list((copy / "imagenet").rglob("*.JPEG"))
    assert (row["kind"], row["classes"], row["images"]) == ("JPEG", 4, (32, 16))
    assert row["size"] == sum(path.stat().st_size for path in files)
    assert data.prepared("imagenet", copy) == (copy / "imagenet", before)
    file = next(copy.glob("imagenet/train/*/*_0.JPEG"))
    file.with_name(f"._{file.name}").write_bytes(b"beside each file that macOS packs")
    (copy / "imagenet" / "train" / ".hidden").mkdir()
    assert now() == before, "hidden files are no images"
    found = {before.fingerprint}
    for change in (
        lambda: file.rename(file.with_name("renamed.JPEG")),
        lambda: truncate(file.with_name("renamed.JPEG")),
        lambda: file.with_name("renamed.JPEG").unlink(),
        lambda: [
            (copy / "imagenet" / split / "n00000000").rename(copy / "imagenet" / split / "n9")
            for split in ("train", "val")
        ],
    ):
        change()
        found.add(now().fingerprint)
    assert len(found) == 5
    assert data.content("imagenet", copy / "nowhere") is None and data.content("digits", copy) is None


def test_a_folder_that_is_incomplete_by_now_names_no_classes(copy):
    """Exporting a network that was trained on it was refused, though the names are optional."""
    chosen, has = compose([*SMALL, f"data.root={copy}"])[0].data, data.content("imagenet", copy)
    assert data.labels(chosen, has) == [f"n0000000{i}" for i in range(4)]
    shutil.rmtree(copy / "imagenet" / "val")
    assert data.labels(chosen, has) is None


def test_half_of_the_crops_are_mirrored():
    ramp = Image.fromarray(np.tile(np.arange(64, dtype=np.uint8) * 4, (64, 1))).convert("RGB")
    crops = (np.asarray(random_resized_crop(ramp, 16, random.Random(i)), int)[8, :, 0] for i in range(400))
    assert sum(crop[0] > crop[-1] for crop in crops) / 400 == pytest.approx(0.5, abs=0.1)


def test_no_two_images_of_an_epoch_are_cropped_alike(copy):
    files = sorted((copy / "imagenet" / "train").rglob("*.*"))
    for file in files[1:4]:
        shutil.copyfile(files[0], file.with_suffix(files[0].suffix))
    dataset = open_at(copy)
    same = [place for place, path in enumerate(dataset.train.paths) if same_file(dataset.train.folder / path, files[0])]
    seen = {dataset.train._decode(place, 7).tobytes() for place in same}
    assert len(same) >= 2 and len(seen) == len(same)


def same_file(one, other):
    return one.read_bytes() == other.read_bytes()
