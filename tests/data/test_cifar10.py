"""CIFAR-10 from folders and zip files, as they should be and as they should not."""

import builtins
import errno
import fcntl
import io
import os
import pickle
import re
import resource
import shutil
import subprocess
import sys
import zipfile
from unittest import mock

import numpy as np
import pytest
import torch
from PIL import Image

from repro import data
from repro.cli import app
from repro.config.compose import compose
from repro.config.schema import ConfigError
from repro.data import _pack, cifar10


def open_at(root):
    return data.load(compose([f"data.root='{root}'"])[0].data, seed=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Ten classes of 3 + 2 images, between files that are none, in a folder whose name is unkind."""
    top = tmp_path_factory.mktemp("import") / "my images\n(new)"
    generator = np.random.default_rng(0)
    for split, count in (("train", 3), ("test", 2)):
        for label, name in enumerate(cifar10.CLASSES):
            place = top / "cifar10" / split / name
            place.mkdir(parents=True)
            for i in range(count):
                pixels = generator.integers(0, 25, (32, 32, 3)).astype(np.uint8) + np.uint8(20 * label)
                Image.fromarray(pixels).save(place / f"{i:04}.png")
            (place / "Thumbs.db").write_bytes(b"\0\1")
            (place / "._0000.png").write_bytes(b"no image")
        (top / "cifar10" / split / "README.txt").write_text("about")
    return top


def zipped(folder, path, leave_out=lambda name: False):
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*"), reverse=True):  # the order in the file must not matter
            name = str(file.relative_to(folder))
            if file.is_file() and not leave_out(name):
                archive.write(file, name)
    return path


def test_a_folder_and_its_zip_file_give_the_same_bytes_and_the_right_images(folder, tmp_path):
    with mock.patch.object(fcntl, "flock", side_effect=OSError(errno.ENOSYS, "no locks")):  # as on some Lustre
        first = data.prepare("cifar10", folder, tmp_path / "a")
    second = data.prepare("cifar10", str(zipped(folder.parent, tmp_path / "c.zip")), str(tmp_path / "b"))
    assert first.read_bytes() == second.read_bytes()
    assert data.content("cifar10", tmp_path / "a") == data.content("cifar10", tmp_path / "b")

    dataset = open_at(tmp_path / "a")
    assert dataset.description == "cifar10 (PNG folder, 30 + 20 images)"
    assert (dataset.train_size, dataset.test_size, dataset.classes, dataset.image_size) == (30, 20, 10, 32)
    for label, name in enumerate(cifar10.CLASSES):
        with Image.open(folder / "cifar10" / "test" / name / "0001.png") as image:
            expected = torch.from_numpy(np.array(image))
        assert torch.equal(dataset.test.images[2 * label + 1], expected)
        assert dataset.test.labels[2 * label + 1] == label
    images, labels = next(dataset.batches(0, 0, 1, 30))
    assert images.shape == (30, 3, 32, 32) and torch.bincount(labels).tolist() == [3] * 10
    (row,) = (row for row in data.status(tmp_path / "a") if row["name"] == "cifar10")
    assert (row["state"], row["kind"], row["classes"], row["images"]) == ("ready", "PNG", 10, (30, 20))
    assert (row["size"], row["fingerprint"]) == (first.stat().st_size, dataset.fingerprint)
    again = shutil.copytree(folder, tmp_path / "again")
    lossy = again / "cifar10" / "test" / "cat" / "0001.png"
    with Image.open(lossy) as image:
        image.save(lossy.with_suffix(".jpg"))
    lossy.unlink()
    data.prepare("cifar10", again, tmp_path / "c")
    assert data.content("cifar10", tmp_path / "c").description == "cifar10 (JPEG folder, 30 + 20 images)"


def test_a_damaged_zip_is_told(folder, tmp_path):
    """Whichever byte of its index it is: the version to read it with, or a name that is no UTF-8, left a trace."""
    name = "cifar10/train/kätze/1.png"
    with zipfile.ZipFile(tmp_path / "whole.zip", "w") as archive:
        archive.writestr(name, b"")
    whole = (tmp_path / "whole.zip").read_bytes()
    for at in range(len(whole)):
        (tmp_path / "bad.zip").write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        with pytest.raises(ConfigError):
            data.prepare("cifar10", tmp_path / "bad.zip", tmp_path / "root")


def test_what_is_prepared_already_is_said_without_the_network(folder, tmp_path, monkeypatch, capsys):
    """It went to the publisher's address, and failed where there is no network."""
    path = data.prepare("cifar10", folder, tmp_path)
    before = path.stat().st_mtime_ns
    monkeypatch.setattr(cifar10, "download", None)
    app(["data", "prepare", "cifar10", "--root", str(tmp_path)], standalone_mode=False)
    said = capsys.readouterr().out.replace("\n", " ")
    assert f"cifar10 is ready already: {path}, cifar10 (PNG folder, 30 + 20 images), fingerprint" in said
    assert path.stat().st_mtime_ns == before
    path.write_bytes(path.read_bytes()[:1000])
    assert data.prepared("cifar10", tmp_path) is None, "a damaged one is made again"


def test_a_damaged_pack_says_how_to_make_it_again(folder, tmp_path):
    path = data.prepare("cifar10", folder, tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        ConfigError, match=f"cifar10.npz is damaged.*CRC.*repro data prepare cifar10 --root {tmp_path}`"
    ):
        open_at(tmp_path)
    assert data.prepared("cifar10", tmp_path) is None, "it said that it was ready, and made nothing"
    path.write_bytes(content[:1000])
    assert data.status(tmp_path)[0]["state"] == "damaged"
    np.savez(path, other=np.zeros(3))
    with pytest.raises(ConfigError, match="is damaged.*repro data prepare cifar10"):
        open_at(tmp_path)


@pytest.mark.parametrize(("name", "model"), [("cifar10", "resnet20"), ("text", "lstm_small")])
def test_a_pack_that_may_not_be_read_is_neither_damaged_nor_made_again(
    name, model, folder, tmp_path, monkeypatch, capsys
):
    """It was called damaged, and the advice was to make it again: in place of a good file of another user."""
    path = data.prepare(name, folder if name == "cifar10" else None, tmp_path)
    before = path.read_bytes()
    real = io.open

    def opened(file, *args, **kwargs):
        if str(file) == str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))
        return real(file, *args, **kwargs)

    for module in (io, builtins):
        monkeypatch.setattr(module, "open", opened)
    said = f"{name}.npz cannot be read: Permission denied. Ask for permission to read it, or .*data.root=FOLDER"
    for act in (data.content, data.prepared):
        with pytest.raises(ConfigError, match=said) as caught:
            act(name, tmp_path)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # as a rank's error is
    with pytest.raises(ConfigError, match=said):
        data.load(compose([f"model={model}", f"data={name}", f"data.root='{tmp_path}'"])[0].data, 0)
    for act in (lambda: _pack.fingerprint(path, [], "again"), lambda: _pack.is_undamaged(path)):
        with pytest.raises(ConfigError, match=said):
            act()
    with pytest.raises(ConfigError, match=said):
        app(["data", "prepare", name, "--root", str(tmp_path)], standalone_mode=False)
    capsys.readouterr()
    app(["data", "status", "--root", str(tmp_path)], standalone_mode=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{name}.npz: cannot be read: Permission denied. Ask for permission" in shown
    assert re.search(f"{name} +wrong", shown) and path.stat().st_size == len(before)


@pytest.mark.parametrize(
    "changed",
    [
        lambda raw: raw.replace(b"train_images.npy", b"train-images.npy"),
        lambda raw: raw.replace(b"), }", b"(, }", 1),  # the first array's shape
    ],
)
def test_no_changed_bit_gives_a_traceback(changed, folder, tmp_path):
    path = data.prepare("cifar10", folder, tmp_path)
    path.write_bytes(changed(path.read_bytes()))
    with pytest.raises(ConfigError, match="cifar10.npz is damaged.*repro data prepare cifar10"):
        open_at(tmp_path)
    assert data.status(tmp_path)[0]["state"] in ("damaged", "ready")  # which reads no image


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p, f: p / "nowhere", "nowhere does not exist"),
        (lambda p, f: p, "holds no images in class folders: expected {train,test}/<class>"),
        (lambda p, f: (p / "a.zip").write_text("no zip") and p / "a.zip", "cannot be read as a zip file"),
        (lambda p, f: zipped(f / "cifar10" / "train", p / "a.zip"), "holds no images in class folders"),
        (
            lambda p, f: zipped(f, p / "a.zip", lambda n: "/ship/" in n),
            "has 9 classes, expected 10: airplane",
        ),
        (
            lambda p, f: zipped(f, p / "a.zip", lambda n: "test/ship/" in n),
            "class 'ship' is in train or test only",
        ),
        (
            lambda p, f: (p / "cifar-10-python.tar.gz").write_text("<html>") and p,
            "is not the published archive",
        ),
        (lambda p, f: (p / "a.tar").write_text("x") and p / "a.tar", "of files cifar-10-python.tar.gz, .* are read"),
        (
            lambda p, f: (p / "data_batch_1").write_text("x") and p,
            "data_batch_1 is not as it was published .md5 c99cafc1",
        ),
        (lambda p, f: (p / "a.tgz").symlink_to("/proc/self/mem") or p / "a.tgz", "a.tgz cannot be read: Input/output"),
    ],
)
def test_sources_that_cannot_be(folder, tmp_path, make, message):
    (tmp_path / "source").mkdir()
    source = make(tmp_path / "source", folder)
    with pytest.raises(ConfigError, match=message):
        data.prepare("cifar10", source, tmp_path / "data")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda file: file.write_bytes(file.read_bytes()[:500]),
            "'cifar10/train/cat/0001.png' cannot be read",
        ),
        (lambda file: file.write_text("no image"), "'cifar10/train/cat/0001.png' cannot be read"),
        (
            lambda file: Image.new("RGB", (31, 33)).save(file),
            "0001.png' cannot be read: it has 31x33 pixels, not 32x32",
        ),
    ],
)
def test_a_bad_image_is_named_and_what_was_there_stays(folder, tmp_path, damage, message):
    path = data.prepare("cifar10", folder, tmp_path / "data")
    before = path.read_bytes()
    archive = zipped(folder, tmp_path / "whole.zip")
    with zipfile.ZipFile(archive) as whole:
        whole.extractall(tmp_path / "copy")
    damage(tmp_path / "copy" / "cifar10/train/cat/0001.png")
    with pytest.raises(ConfigError, match=message):
        data.prepare("cifar10", tmp_path / "copy", tmp_path / "data")
    assert path.read_bytes() == before and [p.name for p in path.parent.iterdir()] == ["cifar10.npz"]


def test_two_sets_in_one_folder_are_not_mixed(folder, tmp_path):
    for name in ("a", "b"):
        zipfile.ZipFile(zipped(folder, tmp_path / "x.zip")).extractall(tmp_path / "source" / name)
    with pytest.raises(ConfigError, match="2 sets of images, a/cifar10 and b/cifar10: name one"):
        data.prepare("cifar10", tmp_path / "source", tmp_path / "data")


def test_a_place_that_cannot_be_written(folder, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written: Not a directory.*data.root=FOLDER"):
        data.prepare("cifar10", folder, tmp_path / "file" / "data")


def test_a_disk_that_fills_up_leaves_nothing_half_written(folder, tmp_path):
    code = "import sys; from repro import data; data.prepare('cifar10', sys.argv[1], sys.argv[2])"
    limit = 100_000  # bytes a file may have: writing on fails as on a full disk
    result = subprocess.run(
        [sys.executable, "-c", code, folder, tmp_path],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
    )
    assert "ConfigError" in result.stderr and "cannot be written: File too large" in result.stderr
    assert not list(tmp_path.iterdir())
