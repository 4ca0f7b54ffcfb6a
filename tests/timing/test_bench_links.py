"""What `repro bench network` makes of the times between two nodes."""

import json
from pathlib import Path

import pytest

from repro.cluster import lab
from repro.config.compose import compose
from repro.timing import bench_links

ALPHA_S, BETA = 3e-4, 2e-9


def points(sizes: list[int]) -> list[dict[str, float]]:
    return [{"bytes": n, "seconds": ALPHA_S + BETA * n, "spread_s": 1e-6, "repeats": 9} for n in sizes]


def test_a_line_is_found_again_and_a_run_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that the link's bucket of tokens lets through at once are not of the line, and are left out of it."""
    (config,) = compose(["cluster=lab", "nodes=2"])
    given = points(bench_links.SIZES)
    credit = lab.burst(config.network.bits_per_s)
    quick = [point for point in given if credit < 16 * point["bytes"] < 128 * credit]
    for point in quick:
        point["seconds"] = ALPHA_S
    monkeypatch.setattr(bench_links.ranks, "launch", lambda *_: (given, 1))
    said: list[str] = []
    bench_links.measure_network(config, tmp_path / "lab", said.append)
    saved = json.loads((tmp_path / "lab" / "network.json").read_text())
    assert [point["bytes"] for point in saved["points"] if not point["fitted"]] == [point["bytes"] for point in quick]
    (there,) = compose([f"network={tmp_path / 'lab' / 'network.yaml'}"])
    assert (
        quick
        and there.network.alpha_s == pytest.approx(ALPHA_S)
        and there.network.beta_s_per_byte == pytest.approx(BETA)
    )
    assert there.network.bits_per_s == config.network.bits_per_s
    assert not any("one machine" in line for line in said)


def test_the_spread_is_half_of_what_lies_between_the_quartiles() -> None:
    assert bench_links.middle([1, 2, 3, 4, 5, 6, 7]) == (4, 2)
