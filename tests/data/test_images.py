"""Augmentation against a loop over images, packed files against damage, downloads against a real server."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from repro.config.schema import ConfigError
from repro.data import _pack
from repro.data._images import augment, memory
from repro.data._images.download import download

CONTENT = np.random.default_rng(0).bytes(3_000_000)


@given(pad=st.integers(0, 5), flip=st.booleans(), seed=st.integers(0, 99), height=st.integers(3, 9))
def test_crop_and_flip_is_the_loop_over_images(pad, flip, seed, height):
    images = torch.arange(6 * height * 7 * 3, dtype=torch.uint8).view(6, height, 7, 3)
    draws = augment.draw(6, pad, flip, seed)
    batch = augment.crop_and_flip(images, draws, pad)
    for image, top, left, mirrored, result in zip(images, *draws, batch, strict=True):
        padded = np.pad(image.numpy(), ((pad, pad), (pad, pad), (0, 0)))
        part = padded[top : top + height, left : left + 7]
        np.testing.assert_array_equal(result.numpy(), part[:, ::-1] if mirrored else part)


def test_draws_cover_all_shifts_evenly():
    draws = augment.draw(90_000, pad=4, flip=True, seed=0)
    for shift in (draws.top, draws.left):
        assert torch.bincount(shift).float().div(10_000).sub(1).abs().max() < 0.05
    assert draws.flip.float().mean().item() == pytest.approx(0.5, abs=0.01)
    assert not augment.draw(1000, pad=4, flip=False, seed=0).flip.any()


def test_normalise_is_the_formula():
    images = torch.randint(0, 256, (2, 5, 4, 3), dtype=torch.uint8)
    mean, std = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 0.6, 0.7])
    expected = ((images / 255 - mean) / std).permute(0, 3, 1, 2)
    assert torch.allclose(augment.normalise(images, mean, std), expected, atol=1e-6)


def test_batches_that_are_augmented_together_are_those_of_each_alone(monkeypatch):
    generator = np.random.default_rng(0)
    images, labels = generator.integers(0, 256, (50, 8, 8, 3), np.uint8), generator.integers(0, 10, 50, np.uint8)
    train = memory.train_and_test((images, labels), (images, labels), 2, True, [0.5] * 3, [0.2] * 3)["train"]
    batches = np.array_split(generator.permutation(50), 7)  # of 8 and 7 images
    read = []
    for values in (0, 3 * 8 * 8 * 24, memory.TOGETHER):  # one at a time; up to three; 1, 1, 2, 3
        monkeypatch.setattr(memory, "TOGETHER", values)
        read.append(list(train.read(iter(batches), seed=1)))
    for one, *others in zip(*read, strict=True):
        for other in others:
            assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(one, other, strict=True))


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    path = tmp_path_factory.mktemp("pack") / "small.npz"
    arrays = {
        "images": np.arange(600, dtype=np.uint8).reshape(10, 5, 4, 3),
        "labels": np.arange(10, dtype=np.uint8),
    }
    _pack.write(path, arrays)
    return path, arrays


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_bit_is_found_or_does_not_matter(packed, tmp_path, data):
    path, arrays = packed
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    copy = tmp_path / "damaged.npz"
    copy.write_bytes(content)
    try:
        read = _pack.read(copy, arrays, "again")
    except ConfigError:
        return
    for name, array in arrays.items():  # a bit that nobody reads, such as a date
        np.testing.assert_array_equal(read[name], array)


@given(share=st.floats(0, 0.999))
def test_a_truncated_pack_is_found(packed, tmp_path_factory, share):
    path, _ = packed
    copy = tmp_path_factory.getbasetemp() / "truncated.npz"
    copy.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    assert not _pack.is_whole(copy)
    with pytest.raises(ConfigError, match="truncated.npz is damaged.*Make it again: type this"):
        _pack.read(copy, ["images"], "type this")


class Server(ThreadingHTTPServer):
    """Serves CONTENT; `cut` ends each answer after so many bytes; `ranges`: it can go on in the middle."""

    cut: int | None = None
    ranges = True
    content = CONTENT
    asked: list[str | None]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.server.ranges else 0
        if self.path != "/archive" or start >= len(CONTENT):
            return self.send_error(404 if self.path != "/archive" else 416)
        body = self.server.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.cut])

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with Server(("127.0.0.1", 0), Handler) as server:
        server.asked = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def fetch(server, path, name="archive"):
    download(f"http://127.0.0.1:{server.server_port}/{name}", path, hashlib.md5(CONTENT).hexdigest(), "HINT")


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_goes_on(server, tmp_path, ranges):
    path = tmp_path / "folder" / "archive.tar.gz"
    server.cut, server.ranges = 1_200_000, ranges
    with pytest.raises(ConfigError, match="ended 1.80 MB early.*1.20 MB are kept in .*part; .* HINT"):
        fetch(server, path)
    assert not path.exists()
    server.cut = None
    fetch(server, path)
    assert server.asked == [None, "bytes=1200000-"]
    assert path.read_bytes() == CONTENT and [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_download_that_was_whole_but_for_its_name_is_taken(server, tmp_path):
    (tmp_path / "archive.part").write_bytes(CONTENT)
    fetch(server, tmp_path / "archive")
    assert (tmp_path / "archive").read_bytes() == CONTENT


def test_another_file_than_expected_is_refused_and_not_kept(server, tmp_path):
    server.content = b"<html>please log in</html>"
    with pytest.raises(ConfigError, match="gave another file: md5 .*, expected .*; deleted. HINT"):
        fetch(server, tmp_path / "archive")
    assert not list(tmp_path.iterdir())


def test_what_failed_is_said(server, tmp_path):
    with pytest.raises(ConfigError, match="could not be downloaded: Not Found. HINT"):
        fetch(server, tmp_path / "archive", "elsewhere")
    with pytest.raises(ConfigError, match="could not be downloaded: .*refused. HINT"):
        download("http://127.0.0.1:1/archive", tmp_path / "archive", "0", "HINT")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="could not be downloaded: .*"):
        fetch(server, tmp_path / "file" / "archive")
