"""What holds for every data set, on those that need no files."""

import importlib
import inspect
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from repro import data
from repro.config.compose import compose
from repro.config.schema import ConfigError
from repro.data import _shards


def load(name, *overrides, seed=0, model="resnet20"):
    return data.load(compose([f"model={model}", f"data={name}", *overrides])[0].data, seed)


@pytest.fixture(scope="module")
def digits():
    return load("digits", "data.pad=3", "data.flip=true")


def test_digits(digits):
    assert (digits.classes, digits.image_size, digits.train_size, digits.test_size) == (10, 32, 1437, 360)
    images, labels = next(digits.batches(0, rank=0, nodes=4, batch=8))
    assert images.shape == (8, 3, 32, 32) and images.dtype == torch.float32
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert labels.shape == (8,) and labels.dtype == torch.int64
    assert digits.steps_per_epoch(4, 8) == 44
    assert torch.bincount(digits.test.labels).min() >= 27  # about 36 of every class
    order, scans = _shards.order(1797, 0, 0), load_digits()
    for part, places in ((digits.test, order[:360]), (digits.train, order[360:])):
        assert torch.equal(part.labels, torch.tensor(scans.target[places]))
        assert torch.equal(
            part.images[:, ::4, ::4, 0], torch.tensor(np.round(scans.images[places] * (255 / 16)).astype(np.uint8))
        )


def test_digits_are_normalised_and_magnified():
    plain = load("digits", "data.image_size=64")
    images = torch.cat([images for images, _ in plain.batches(0, 0, 1, 100)])
    assert images.mean().item() == pytest.approx(0, abs=0.02) and images.std().item() == pytest.approx(1, abs=0.02)
    squares = images.unfold(2, 8, 8).unfold(3, 8, 8)
    assert torch.equal(squares.amax((-1, -2)), squares.amin((-1, -2)))  # each scanned pixel is a square of 8x8


@pytest.mark.parametrize("start", [0, 1, 7, 44])
def test_a_position_resumes_bit_for_bit(digits, start):
    straight = list(digits.batches(5, 2, 4, 8))[start:]
    resumed = list(digits.batches(5, 2, 4, 8, start_batch=start))
    assert len(straight) == len(resumed) == 44 - start
    for (a, x), (b, y) in zip(straight, resumed, strict=True):
        assert torch.equal(a, b) and torch.equal(x, y)


def test_augmentation_depends_on_seed_epoch_and_sample_alone(digits):
    alone, labels = next(digits.batches(1, 0, 1, 32))
    parts = [next(digits.batches(1, rank, 4, 8)) for rank in range(4)]
    assert torch.equal(torch.stack([images for images, _ in parts], 1).flatten(0, 1), alone)
    assert torch.equal(torch.stack([own for _, own in parts], 1).flatten(), labels)
    other = load("digits", "data.pad=3", "data.flip=true", seed=1)
    for changed in (digits.batches(2, 0, 1, 32), other.batches(1, 0, 1, 32)):
        assert not torch.equal(next(changed)[0], alone)


def test_ranks_as_threads_read_the_same_as_one_after_the_other(digits):
    def epoch(rank):
        torch.manual_seed(rank)  # process-wide generators take no part
        return torch.cat([images for images, _ in digits.batches(0, rank, 8, 8)])

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(epoch, range(8)))
    assert all(torch.equal(a, epoch(rank)) for rank, a in enumerate(together))


def test_the_test_set_is_whole_over_the_ranks_and_never_augmented(digits):
    count = sum(len(labels) for rank in range(7) for _, labels in digits.test_batches(rank, 7, 16))
    assert count == 360
    plain = load("digits")
    pairs = zip(digits.test_batches(0, 1, 100), plain.test_batches(0, 1, 100), strict=True)
    assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in pairs)


def test_synthetic_has_any_shape_and_is_the_same_each_time():
    shape = ["data.classes=7", "data.image_size=20", "data.train_images=70", "data.test_images=21"]
    first, again = load("synthetic", *shape), load("synthetic", *shape, seed=9)
    assert (first.classes, first.image_size, first.train_size, first.test_size) == (7, 20, 70, 21)
    assert torch.equal(first.train.images, again.train.images)
    assert next(first.batches(0, 0, 2, 5))[0].shape == (5, 3, 20, 20)


def test_synthetic_images_of_a_class_differ_by_the_noise_that_is_asked_for():
    still, noisy = (load("synthetic", "data.train_images=20", f"data.noise={noise}").train for noise in (0, 30))
    assert torch.equal(still.images[:10], still.images[10:])
    apart = (noisy.images[:10].float() - still.images[:10].float()).std().item()
    assert apart == pytest.approx(30, rel=0.05)


def test_synthetic_can_be_learnt():
    generated = load("synthetic")
    flat = generated.train.images.flatten(1).float()
    means = torch.stack([flat[generated.train.labels == c].mean(0) for c in range(10)])
    guess = torch.cdist(generated.test.images.flatten(1).float(), means).argmin(1)
    assert (guess == generated.test.labels).float().mean() > 0.99


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["digits", "data.image_size=30"], "any multiple of 8"),
        (["digits", "data.classes=11"], "the digits have 10 classes"),
        (["digits", "data.pad=-1"], "data.pad=-1"),
        (["digits", "data.std=[1,1,0]"], "data.std=0: must be 3 numbers, each at least 1e-06"),
        (["digits", "data.mean=[0.5]"], "must be 3 numbers"),
        (["synthetic", "data.train_images=0"], "data.train_images=0: must be at least 1"),
        (["cifar10", "data.classes=100"], "CIFAR-10 has 10 classes"),
        (["imagenet", "data.root=nowhere"], "nowhere/imagenet does not exist.*data prepare imagenet"),
    ],
)
def test_settings_that_cannot_be(overrides, message):
    with pytest.raises(ConfigError, match=message):
        load(*overrides)


def test_an_unknown_data_set_lists_the_known_ones(tmp_path):
    with pytest.raises(ConfigError, match=f"Choose one of {', '.join(data.names())}"):
        data.prepare("cifar100", None, tmp_path)


def test_what_needs_no_preparation_says_so(tmp_path):
    for name in ("digits", "synthetic"):
        with pytest.raises(ConfigError, match=f"Nothing to prepare.*data={name}"):
            data.prepare(name, None, tmp_path)


def test_status_answers_without_torch(tmp_path):
    code = f"import sys; from repro import data; print(*data.status({str(tmp_path)!r}), 'torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.endswith("False\n")
    states = {row["name"]: row["state"] for row in data.status(tmp_path)}
    assert list(states) == data.names()
    known = {"cifar10": "missing", "digits": "ready", "imagenet": "missing", "synthetic": "ready"}
    assert states.items() >= known.items()


def test_batches_are_made_as_they_are_needed(digits, monkeypatch):
    """At most as many ahead as were taken before, of 1437."""
    read, made = type(digits.train).read, []
    monkeypatch.setattr(
        type(digits.train), "read", lambda self, batches, seed: read(self, (made.append(1) or b for b in batches), seed)
    )
    assert len(list(islice(digits.batches(0, 0, 1, 1), 3))) == 3
    assert 3 <= len(made) <= 2 * 3


def test_the_page_names_what_every_data_set_defines():
    """It left out `content`: a data set written as it says had an AttributeError at its second run."""
    modules = [importlib.import_module(f"repro.data.{name}") for name in data.names()]
    needed = set.intersection(*({name for name, _ in inspect.getmembers(one, inspect.isfunction)} for one in modules))
    assert {"load", "content"} <= needed
    page = (Path(__file__).parents[2] / "docs" / "adding.md").read_text()
    said = page.split("## Example: a data set")[1].split("where files must be there")[0]
    assert {name for name in needed if f"`{name}`" not in said} == set()
