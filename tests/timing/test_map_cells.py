"""One map: which algorithm each of its cells names, how far ahead it is, and what a map is refused for."""

import dataclasses
from pathlib import Path

import pytest
from forked_cli import repro
from made_up_predictions import predicted

from repro import cli
from repro.config.schema import ConfigError
from repro.figures import tradeoff as figure
from repro.timing import fastest_map


def test_an_algorithm_that_is_alone_on_a_map_is_its_own_second() -> None:
    cells = fastest_map.fastest({"dense": predicted("algo=dense")}, ["dense"], [1e9], [0.0], ["dense"])
    assert cells == {"fastest": [[0]], **dict.fromkeys(fastest_map.OVER, [[1]])}


def test_one_that_takes_over_is_compared_with_the_one_before_it() -> None:
    """A flip is one where it gets ahead of that; of the second it may be a copy."""
    sparse = predicted("algo=gtopk")
    among = {"dense": predicted("algo=dense"), "gtopk": dataclasses.replace(sparse, compress_s=sparse.compress_s + 0.1)}
    among["again"] = among["dense"]
    networks = [1e7, 1e8, 1e13]
    cells = fastest_map.fastest(among, ["dense"], networks, [0.0], list(among))
    (names,), (second,), (before,) = cells["fastest"], cells["over_second"], cells["over_before"]
    assert names == [1, 1, 0] and before[:2] == [1, 1] and second[2] == 1
    slow, fast = (among[name].seconds(0.0, 8 / networks[2]) for name in ("gtopk", "dense"))
    assert before[2] == pytest.approx(slow / fast, rel=5e-3) and before[2] > 1


class Seconds:
    """An iteration that takes these on networks of 1, 2 and 3 bits a second."""

    def __init__(self, *seconds: float):
        self.of = dict(zip((8, 4, 8 / 3), seconds, strict=True))

    def seconds(self, alpha_s: float, beta_s_per_byte: float) -> float:
        return self.of[beta_s_per_byte]


def test_of_small_leads_the_last_may_be_a_large_one() -> None:
    """The second is 1 % ahead of the first, and the third 1 % ahead of the second, but 3 % ahead of the first."""
    among = {"dense": Seconds(1.0, 1.0, 1.03), "b": Seconds(1.01, 0.99, 1.01), "c": Seconds(1.02, 1.0, 1.0)}
    cells = fastest_map.fastest(among, ["dense"], [1, 2, 3], [0.0], list(among))
    assert cells["fastest"] == [[0, 1, 2]] and cells["over_before"] == [[1, 1.01, 1.03]]
    among |= {"b": Seconds(1.1, 0.9, 1.01)}  # a flip of its own
    assert fastest_map.fastest(among, ["dense"], [1, 2, 3], [0.0], list(among))["over_before"] == [[1, 1.11, 1.01]]


def test_regions_are_neighbours_of_one_name() -> None:
    cells = {(0, 0): "a", (1, 0): "a", (2, 0): "b", (2, 1): "a", (1, 1): "b", (0, 1): "b"}
    found = sorted((name, len(region)) for name, region in figure.regions(cells))
    assert found == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


@pytest.mark.parametrize("typed", ["network=ethernet1g", "network.alpha_s=1e-3", "node=measured"])
def test_a_key_that_a_map_does_not_read_is_refused(typed: str) -> None:
    """A network was ignored, and node= asked for the lab."""
    key = typed.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"^{key}=: .* Leave {key} out, and type tradeoff\."):
        cli.app(["map", "model=resnet20", "nodes=2", "algo=dense", "--show", typed], standalone_mode=False)


@pytest.mark.parametrize("typed", ["nodes=1", "hierarchical=true", "stages=2", "model=lstm"])
def test_what_has_no_map_is_refused_before_anything_is_timed(typed: str, tmp_path: Path) -> None:
    """One node had a false map, others were refused once a file was there, and text by a key that nobody typed."""
    key, out = typed.partition("=")[0], tmp_path / "map.json"
    words = ["model=resnet20", "nodes=2", "algo=dense,topk", "tradeoff.node=0.1+0.1"]
    words = [word for word in words if not word.startswith(key)]
    with pytest.raises(ConfigError, match=rf"^{typed}"):
        cli.app(["map", *words, typed, "--out", str(out)], standalone_mode=False)
    assert not out.exists()


@pytest.mark.parametrize("text", ['{"groups": []}', "[1]"])
@pytest.mark.parametrize("command", ["map", "strategies"])
def test_a_file_of_something_else_is_not_written_over(command: str, text: str, tmp_path: Path) -> None:
    """Strategies wrote over it, the map ended in a traceback."""
    file = tmp_path / "other.json"
    file.write_text(text)
    few = ["algo=dense"] if command == "map" else []  # of a grid of 700 points, which takes seconds
    done = repro(command, "model=resnet20", "nodes=4", *few, "--out", str(file), cwd=tmp_path)
    assert done.returncode == 2 and "other.json was not made by repro " + command in done.stderr, done.stderr
    assert file.read_text() == text and "Traceback" not in done.stderr
