"""Bytes that are no image for us: each is named, in bounded memory and time, and no other program is started."""

import logging
import os
import re
import shutil
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from repro import data
from repro.config.compose import compose
from repro.config.schema import ConfigError, RunError
from repro.data._images import decode
from repro.data._images.decode import BadImage

MB = 1 << 20


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int, deflated: bytes) -> bytes:
    """A PNG of which the header promises what it likes."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", deflated) + chunk(b"IEND", b"")


def zeros(size: int) -> bytes:
    """What inflates to so many zeros, a whole number of MB: one MB compressed, again and again."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    one = deflate.compress(bytes(MB)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return b"\x78\x9c" + one * (size // MB) + b"\x03\0" + struct.pack(">HH", size % 65521, 1)  # Adler-32 of zeros


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 32 32\n%%EndComments\n/x 1 def\nshowpage\n%%EOF\n"
AVIF = b"\x00\x00\x00\x20ftypavif\x00\x00\x00\x00avifmif1miafMA1B" + bytes(200)
HOSTILE = {
    "an EPS": (EPS, "it is no JPEG or PNG"),
    "a damaged AVIF": (AVIF, "it is no JPEG or PNG"),
    "nothing": (b"", "it is no JPEG or PNG"),
    "a vast PNG": (png(50_000, 50_000, zlib.compress(bytes(1000))), "more than|exceeds limit"),
    "a large PNG": (png(10_000, 10_000, zlib.compress(bytes(1000))), "would have 10000x10000 pixels, more than"),
    "a torn PNG": (png(64, 64, zlib.compress(bytes(64 * 193)))[:-60], "."),
    "a PNG that inflates without end": (png(64, 64, zeros(800 * MB)), ""),  # whole: what is too much is not read
    "a text of no end": (png(8, 8, b"")[:33] + chunk(b"zTXt", b"a\0\0" + zeros(800 * MB)), "."),
}  # fmt: skip


DECODE = """
import sys, warnings
from pathlib import Path
from repro.data._images import decode

def peak():  # kB; getrusage would have the parent's
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])

warnings.simplefilter("ignore")
content, before = Path(sys.argv[1]).read_bytes(), peak()
try:
    said = f"{decode.decode(content).size}"
except decode.BadImage as error:
    said = f"refused: {error}"
print(peak() - before, said)
"""


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_refused_by_one_error_in_bounded_memory(name: str, tmp_path: Path) -> None:
    """In a process of its own, where no earlier peak hides this one."""
    content, message = HOSTILE[name]
    (tmp_path / "image").write_bytes(content)
    command = [sys.executable, "-c", DECODE, str(tmp_path / "image")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    grown, said = done.stdout.strip().split(" ", 1)
    assert re.match(f"refused: .*({message})" if message else r"\(64, 64\)", said)
    assert int(grown) < 300 * 1024


def test_a_grey_png_of_16_bits_has_the_greys_that_it_has_with_8() -> None:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 1, 16, 0, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(b"\0" + struct.pack(">4H", 0, 255, 100 * 256 + 7, 65535)))
    image = decode.decode(b"\x89PNG\r\n\x1a\n" + header + body + chunk(b"IEND", b""))
    assert [image.getpixel((x, 0)) for x in range(4)] == [(grey,) * 3 for grey in (0, 0, 100, 255)]


@pytest.fixture
def folder(imagenet_folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(imagenet_folder, tmp_path / "copy")
    return tmp_path / "copy"


def read_all(root: Path, on_bad_image: str) -> list[int]:
    settings = ["data=imagenet", "data.classes=4", "data.image_size=64", "nodes=1", f"data.root={root}"]
    (config,) = compose([*settings, f"on_bad_image={on_bad_image}"])
    return [len(labels) for _, labels in data.load(config.data, 0, on_bad_image).batches(0, 0, 1, 8)]


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_training_skips_each_or_stops_and_names_it(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    images = sorted((folder / "imagenet/train/n00000001").iterdir())
    for image, (content, _) in zip(images, [v for v in HOSTILE.values() if v[1]], strict=False):
        image.write_bytes(content)
    Image.new("RGB", (1, 60_000)).save(folder / "imagenet/val/n00000001/n00000001_0.JPEG")  # too thin to test with
    (folder / "imagenet/train/n00000000/loop.JPEG").symlink_to("loop.JPEG")
    os.mkfifo(folder / "imagenet/train/n00000000/fifo.JPEG")
    with caplog.at_level(logging.WARNING):
        assert read_all(folder, "skip") == [8, 8, 8, 8]
    said = " ".join(record.getMessage() for record in caplog.records)
    assert all(image.name in said for image in images[:6])
    assert "loop.JPEG is no file" in said and "fifo.JPEG is no file" in said
    for image in images[1:]:
        image.unlink()
    with pytest.raises(
        RunError, match="n00000001_0.JPEG cannot be read: it is no JPEG or PNG.* Repair it, and"
    ) as said:
        read_all(folder, "stop")
    for words in ("goes on, surely if the file's size stays", "without it, or with on_bad_image=skip, it is another"):
        assert words in str(said.value)


def test_which_repair_of_an_image_leaves_the_run_as_it_is(folder: Path) -> None:
    """What the message of on_bad_image=stop says."""
    image = folder / "imagenet/train/n00000001/n00000001_0.JPEG"
    whole = image.read_bytes()
    image.write_bytes(bytes(len(whole)))
    (stop,) = compose(["model=resnet20", "data=imagenet", f"data.root={folder}", "on_bad_image=stop"])
    (skip,) = compose(["model=resnet20", "data=imagenet", f"data.root={folder}"])
    assert stop.run_id != skip.run_id
    before = data.content("imagenet", folder)
    image.write_bytes(whole)
    assert data.content("imagenet", folder) == before
    image.write_bytes(whole + b"more")
    assert data.content("imagenet", folder) != before
    image.unlink()
    assert data.content("imagenet", folder) != before


def test_a_file_that_becomes_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.JPEG")
    with pytest.raises(BadImage, match="no regular file"):
        decode.read_file(tmp_path / "a.JPEG")
    with (tmp_path / "long.JPEG").open("wb") as file:
        file.truncate(decode.MOST_BYTES + 1)
    with pytest.raises(BadImage, match="more than 64.0 MB"):
        decode.read_file(tmp_path / "long.JPEG")


CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two images of CIFAR-10's classes each, in folders."""
    folder = tmp_path_factory.mktemp("small")
    for split in ("train", "test"):
        for number, name in enumerate(CLASSES):
            (folder / split / name).mkdir(parents=True)
            Image.new("RGB", (32, 32), (number, 2 * number, 200)).save(folder / split / name / "0.png")
    return folder


def zipped(small: Path, path: Path, rename: Callable[[str], str], **extra: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(small.rglob("*.png")):
            archive.write(file, rename(str(file.relative_to(small))))
        for name, content in extra.items():
            archive.writestr(name.replace("__", "/") + ".png", content)
    return path


@pytest.mark.parametrize("prefix", ["./", "", "top/./"])
@pytest.mark.parametrize("slash", ["/", "//"])
def test_a_zip_with_odd_paths_is_read_like_its_folder(small: Path, tmp_path: Path, prefix: str, slash: str) -> None:
    archive = zipped(small, tmp_path / "odd.zip", lambda name: prefix + name.replace("/", slash))
    there = data.prepare("cifar10", archive, tmp_path / "a")
    assert there.read_bytes() == data.prepare("cifar10", small, tmp_path / "b").read_bytes()


def test_an_entry_that_inflates_without_end_or_comes_twice_is_named(small: Path, tmp_path: Path) -> None:
    bomb = zipped(small, tmp_path / "bomb.zip", str, train__cat__1=bytes(100 * MB))
    began = time.perf_counter()
    with pytest.raises(ConfigError, match="'train/cat/1.png' cannot be read: it has more than 64.0 MB"):
        data.prepare("cifar10", bomb, tmp_path / "data")
    assert time.perf_counter() - began < 60  # a bound, no measure: it does not go on
    twice = zipped(small, tmp_path / "twice.zip", str)
    with zipfile.ZipFile(twice, "a") as archive:
        archive.writestr("./train/cat/0.png", b"")
    with pytest.raises(ConfigError, match="holds 'train/cat/0.png' twice"):
        data.prepare("cifar10", twice, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_links_that_loop_and_what_is_no_file_are_named(small: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(small, copy)
    (copy / "train" / "again").symlink_to(copy, target_is_directory=True)
    with pytest.raises(ConfigError, match="again is a link that leads back"):
        data.prepare("cifar10", copy, tmp_path / "data")
    (copy / "train" / "again").unlink()
    os.mkfifo(copy / "train" / "cat" / "1.png")
    with pytest.raises(ConfigError, match="'train/cat/1.png' cannot be read: it is no regular file"):
        data.prepare("cifar10", copy, tmp_path / "data")
    for source in (copy / "train" / "cat" / "1.png", Path("/dev/zero")):
        with pytest.raises(ConfigError, match="does not exist as a file or folder"):
            data.prepare("cifar10", source, tmp_path / "data")


def test_an_eps_named_jpeg_starts_no_ghostscript(small: Path, tmp_path: Path) -> None:
    """In a process of its own, where every decoder of Pillow is loaded and a `gs` would leave a mark."""
    ghostscript = tmp_path / "gs"
    ghostscript.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    ghostscript.chmod(0o755)
    (tmp_path / "x.JPEG").write_bytes(EPS)
    code = (
        "import sys\nfrom pathlib import Path\nfrom PIL import Image\nfrom repro.data._images import decode\n"
        "Image.init()\ntry: decode.decode(decode.read_file(Path(sys.argv[1])))\n"
        "except decode.BadImage as e: print(e)\n"
    )
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x.JPEG")], capture_output=True, text=True, env=path
    )
    assert done.stdout == "it is no JPEG or PNG image\n", done.stderr
    assert not (tmp_path / "started").exists()
