"""Decodes bytes that may be anything: only a JPEG or a PNG of bounded size; else BadImage says why not.

No other decoder is used, whatever a file is called: Pillow would start Ghostscript for an EPS, for example.
"""

import io
import os
import stat
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, UnidentifiedImageError

from repro import screen

FORMATS = ("JPEG", "PNG")
MOST_BYTES = 64_000_000
MOST_PIXELS = Image.MAX_IMAGE_PIXELS or 1 << 26  # 89 million, 270 MB as RGB; ImageNet's largest has fewer


class BadImage(Exception):
    """Says why bytes are no image for us, in words that can follow its name."""


def read_file(path: Path) -> bytes:
    """Returns a file's bytes. Raises BadImage if it is no regular file or too long, OSError if the disk fails."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # otherwise a FIFO would block
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadImage("it is no regular file")
    with open(descriptor, "rb") as file:
        return read_bounded(file)


def read_bounded(file: IO[bytes]) -> bytes:
    content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise BadImage(f"it has more than {screen.size(MOST_BYTES)}")
    return content


def decode(content: bytes, wanted: tuple[int, int] | None = None) -> Image.Image:
    """Returns the image in RGB. Raises BadImage, before decoding pixels if the size is not `wanted` (width, height)."""
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            check_size(image.size, wanted)
            if image.mode.startswith("I"):  # grey of 16 bits: Pillow would make all above 255 white
                return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
            return image.convert("RGB")
    except BadImage:
        raise
    except UnidentifiedImageError:
        raise BadImage("it is no JPEG or PNG image") from None
    except Exception as error:  # decoders raise almost anything on damaged bytes
        raise BadImage(str(error) or type(error).__name__) from None


def check_size(size: tuple[int, int], wanted: tuple[int, int] | None = None) -> None:
    """Raises BadImage if `size` (width, height) is not `wanted`, or is more than MOST_PIXELS."""
    width, height = size
    if wanted is not None and size != wanted:
        raise BadImage(f"it has {width}x{height} pixels, not {wanted[0]}x{wanted[1]}")
    if width * height > MOST_PIXELS:
        raise BadImage(f"it would have {width}x{height} pixels, more than {MOST_PIXELS}")
