"""Mistakes in a new algorithm's two files are told in a sentence that says what to write."""

import dataclasses
import sys
import types

import pytest
import torch
from torch import Tensor

from repro import algorithms, data, figures
from repro.algorithms import topk
from repro.comm.collective import Collective
from repro.config import explain, groups
from repro.config.compose import compose
from repro.config.parts import Algo
from repro.config.schema import ConfigError
from repro.timing import dry_run


class Halves(topk.Algorithm):
    """Sends the first k / 2 entries as well, in a message of their own: none where k is 1."""

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        k = int(self.density * gradient.numel())
        collective.all_gather(gradient[: k // 2])
        return super().step(gradient, collective)


@pytest.fixture
def halves(monkeypatch: pytest.MonkeyPatch) -> Algo:
    monkeypatch.setitem(sys.modules, "repro.algorithms.halves", types.SimpleNamespace(Algorithm=Halves))
    return dataclasses.replace(compose(["algo=topk"])[0].algo, name="halves", file="halves")


@pytest.mark.parametrize("lacks", ["test_images", "content"])
def test_a_data_set_that_lacks_a_function_names_it(lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended in an AttributeError."""
    names = {*data.EACH_HAS, "test_images"} - {lacks}
    module = types.SimpleNamespace(**dict.fromkeys(names, lambda *_: 1))
    monkeypatch.setitem(sys.modules, "repro.data.mine", module)
    monkeypatch.setattr(data, "names", lambda: ["mine"])
    with pytest.raises(ConfigError, match=rf"^repro/data/mine.py defines no {lacks}; docs/adding.md"):
        data.test_images(dataclasses.replace(compose([])[0].data, name="mine"))


def test_messages_that_are_not_linear_in_k_are_refused_or_selected_in_full(
    halves: Algo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were predicted without a word, as if the second message were empty for every k."""
    with pytest.raises(ConfigError, match=r"splits_k = True in repro/algorithms/halves\.py"):
        dry_run.all_rounds(halves, 4, 100_000, 100)
    monkeypatch.setattr(Halves, "splits_k", True)
    sent = sum(one.sent for one in dry_run.all_rounds(halves, 4, 100_000, 100)[0])
    assert sent == 3 * (100 * 8 + 50 * 4)  # to three others, in two rounds


def test_a_file_that_is_missing_and_an_option_that_the_class_lacks_are_named() -> None:
    topk_of = compose(["algo=topk"])[0].algo
    with pytest.raises(ConfigError, match=r"there is no repro/algorithms/nowhere\.py.*docs/adding\.md"):
        algorithms.of(dataclasses.replace(topk_of, name="nowhere"))
    with pytest.raises(ConfigError, match=r"conf/algo/topk\.yaml gives its constructor.*'beta'"):
        algorithms.load(dataclasses.replace(topk_of, options={"beta": 1}), 8)


def test_a_constructors_own_type_error_is_not_taken_for_a_missing_option(
    halves: Algo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Halves, parameters: int, device: torch.device, selector: str, wire: str) -> None:
        raise TypeError("of its own")

    monkeypatch.setattr(Halves, "__init__", broken)
    with pytest.raises(TypeError, match="of its own"):
        algorithms.load(halves, 8)


def test_an_option_without_a_comment_is_explained_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended in a traceback."""
    file = groups.conf_folder() / "algo" / "topk.yaml"
    monkeypatch.setattr(explain, "_where", lambda key: [(file, explain.Line(key, "0.5", ""))])
    monkeypatch.setattr(groups, "root_keys", lambda: ["algo.share"])
    said = "algo.share: conf/algo/topk.yaml says nothing of it: write a comment behind it"
    assert next(explain.explain("algo.share")) == said


def test_a_name_that_is_nearly_one_is_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean convergence\?"):
        figures.load(["convergense"])
    with pytest.raises(ConfigError, match=r"Did you mean cifar10\?"):
        data.prepare("cifar-10", None, "data")
