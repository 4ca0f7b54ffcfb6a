"""Makes the usual ImageNet crops (Szegedy et al., 2015, section 6; as in torchvision) with a given generator."""

import math
from random import Random

from PIL import Image

from repro.data._images.decode import check_size

SCALE = (0.08, 1.0)  # of the image's area
RATIO = (3 / 4, 4 / 3)
BILINEAR = Image.Resampling.BILINEAR


def random_resized_crop(image: Image.Image, size: int, generator: Random) -> Image.Image:
    """Returns a random part of the image, resized to size x size and mirrored half of the time."""
    left, top, width, height = _random_box(image.width, image.height, generator)
    part = image.crop((left, top, left + width, top + height)).resize((size, size), BILINEAR)
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if generator.random() < 0.5 else part


def shorter_side(size: int) -> int:
    """Returns to what the usual way to test resizes an image's shorter side, before it crops size x size."""
    return round(size * 256 / 224)


def center_crop(image: Image.Image, size: int, shorter: int) -> Image.Image:
    """Resizes the shorter side to `shorter`, then crops the middle; an image of size x size may stay as it is.

    Raises BadImage for an image that is too thin.
    """
    least = min(image.width, image.height)  # in whole numbers: 98 * (256 / 98) is below 256
    width, height = max(size, image.width * shorter // least), max(size, image.height * shorter // least)
    check_size((width, height))  # an image a thousand times as wide as high would become too large
    image = image.resize((width, height), BILINEAR)
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)
    return image.crop((left, top, left + size, top + size))


def _random_box(width: int, height: int, generator: Random) -> tuple[int, int, int, int]:
    """Returns left, top, width, height of a part with area and ratio in range; the middle if ten tries find none."""
    for _ in range(10):
        area = width * height * generator.uniform(*SCALE)
        ratio = math.exp(generator.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return generator.randint(0, width - w), generator.randint(0, height - h), w, h
    w = min(width, round(height * RATIO[1]))
    h = min(height, round(width / RATIO[0]))
    return (width - w) // 2, (height - h) // 2, w, h
