"""CIFAR-10 from the published archive: how it is read, and how it is fetched."""

import hashlib
import json
import pickle
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from repro import data
from repro.config.compose import compose
from repro.config.schema import ConfigError
from repro.data import cifar10
from repro.data._images import strips


def write_archive(path, batch):
    with tarfile.open(path, "w:gz") as tar:
        for number, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
            file = path.with_name(name)
            file.write_bytes(batch(number))
            tar.add(file, f"cifar-10-batches-py/{name}")
    return path


def python2_pickle(planes, labels):
    """A batch of two images as in the published archive: written by Python 2, byte strings for texts."""
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x02M\x00\x0c\x86"
        b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
    )
    data = array + len(planes).to_bytes(4, "little") + planes + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(U\x06labels" + numbers + b"U\x04data" + data + b"u."


def test_the_rows_of_a_packages_pngs_become_images_as_the_archives_planes_do(tmp_path):
    """Both hold the same images and labels, in one order: a run on either is on the same data."""
    generator = np.random.default_rng(0)
    batches = generator.integers(0, 256, (6, 2, 32, 32, 3), dtype=np.uint8)
    package = tmp_path / "package.tgz"
    with tarfile.open(package, "w:gz") as tar:
        for name, rows in zip([*strips.BATCHES["train"], *strips.BATCHES["test"]], batches, strict=True):
            file = tmp_path / "rows.png"
            Image.fromarray(rows.reshape(2, 32 * 32, 3)).save(file)
            tar.add(file, f"package/{name}.png")
        for split, numbers in (("train", range(10)), ("test", range(2))):
            (tmp_path / "labels.json").write_text(json.dumps(list(numbers)))
            tar.add(tmp_path / "labels.json", f"package/{strips.LABELS[split]}.json")
    planes = batches.transpose(0, 1, 4, 2, 3)
    labels = [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [0, 1]]

    def batch(number):
        return python2_pickle(planes[number].tobytes(), labels[number])

    archive = cifar10.unpack(write_archive(tmp_path / "archive.tar.gz", batch))
    read = strips.unpack(package)
    assert archive.keys() - read.keys() == {"classes"}
    assert all((archive[name] == read[name]).all() and archive[name].dtype == read[name].dtype for name in read)


def test_the_archives_planes_become_images(tmp_path):
    def batch(number):
        planes = (np.arange(2 * 3072) % 251 + number).astype(np.uint8)
        return python2_pickle(planes.tobytes(), [number, 9 - number])

    arrays = cifar10.unpack(write_archive(tmp_path / "archive.tar.gz", batch))
    assert arrays["train_images"].shape == (10, 32, 32, 3) and arrays["test_images"].shape == (2, 32, 32, 3)
    assert arrays["train_labels"].tolist() == [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]
    assert arrays["test_images"][1, 4, 7, 2] == (3072 + 2 * 1024 + 4 * 32 + 7) % 251 + 5


def test_an_unpacked_archive_has_the_same_images(tmp_path, monkeypatch):
    import torchvision  # here, as it takes seconds

    def batch(number):
        return python2_pickle(np.full(2 * 3072, number, np.uint8).tobytes(), [number, 9 - number])

    archive = write_archive(tmp_path / "archive.tar.gz", batch)
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            member.name = f"unpacked/{cifar10.UNPACKED}/{Path(member.name).name}"
            tar.extract(member, tmp_path, filter="data")
    found = tmp_path / "unpacked" / cifar10.UNPACKED
    sums = [[file.name, hashlib.md5(file.read_bytes()).hexdigest()] for file in sorted(found.glob("*_batch*"))]
    monkeypatch.setattr(torchvision.datasets.CIFAR10, "train_list", sums[:-1])
    monkeypatch.setattr(torchvision.datasets.CIFAR10, "test_list", sums[-1:])
    data.prepare("cifar10", tmp_path / "unpacked", tmp_path / "root")
    packed, expected = np.load(tmp_path / "root" / "cifar10.npz"), cifar10.unpack(archive)
    assert all((packed[name] == expected[name]).all() for name in expected) and packed["source"] == ""


class Malice:
    def __reduce__(self):
        return print, ("this code ran",)


def test_an_archive_cannot_run_code(tmp_path, capsys):
    archive = write_archive(tmp_path / "archive.tar.gz", lambda number: pickle.dumps({"data": Malice()}))
    with pytest.raises(pickle.UnpicklingError, match="it asks for .*print"):
        cifar10.unpack(archive)
    assert "this code ran" not in capsys.readouterr().out


class Slow(BaseHTTPRequestHandler):
    """Sends the first half of the content at once, the second when `go` is set; goes on in the middle if asked to."""

    def do_GET(self):
        start = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.server.asked.append(start)
        body = self.server.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2])
        self.server.go.wait(60)
        self.wfile.write(body[len(body) // 2 :])

    def log_message(self, *args):
        pass


@pytest.fixture
def slow():
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        server.asked, server.go, server.content = [], threading.Event(), np.random.default_rng(0).bytes(4 << 20)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def until(true, seconds):
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.01)


@pytest.mark.parametrize("second", ["prepare", "fetch"])
def test_two_that_download_at_once_do_not_write_into_one_file(second, slow, tmp_path, monkeypatch):
    """Both appended to the archive's part, and each deleted it as another file than the published one."""
    monkeypatch.setattr(cifar10, "URL", f"http://127.0.0.1:{slow.server_port}/archive")
    monkeypatch.setattr(cifar10, "MD5", hashlib.md5(slow.content).hexdigest())
    monkeypatch.setattr(cifar10, "_read", lambda archive: {"bytes": np.frombuffer(archive.read_bytes(), np.uint8)})
    acts = {
        "prepare": lambda: data.prepare("cifar10", None, tmp_path),
        "fetch": lambda: data.fetch(compose([f"data.root='{tmp_path}'"])[0].data),
    }
    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(acts["prepare"])]
        until(lambda: any(path.stat().st_size for path in tmp_path.glob("*.part")), 30)
        ends.append(pool.submit(acts[second]))
        until(lambda: len(slow.asked) == 2, 1)  # it must not ask
        slow.go.set()
        for end in ends:
            end.result()
    assert slow.asked == [0]
    assert (tmp_path / cifar10.ARCHIVE).read_bytes() == slow.content
    assert np.load(tmp_path / "cifar10.npz")["bytes"].tobytes() == slow.content


def test_without_data_and_network_the_message_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar10, "URL", "http://127.0.0.1:1/cifar-10-python.tar.gz")  # refuses at once
    with pytest.raises(ConfigError) as caught:
        data.load(compose([f"data.root='{tmp_path}'"])[0].data, seed=0)
    for words in (
        "refused",
        "cifar-10-python.tar.gz by hand",
        "--from FOLDER_OR_ZIP",
        "data=digits needs no",
    ):
        assert words in str(caught.value)
