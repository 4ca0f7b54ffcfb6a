"""What a run folder says of its machine."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from repro.runs import machine


def test_the_processor_is_told_by_more_than_its_name() -> None:
    found = machine.processor()
    assert found["name"]
    if Path("/proc/cpuinfo").exists():
        text = Path("/proc/cpuinfo").read_text()
        flags = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)[1].split()
        assert set(found["extensions"]) == {*flags} & {*machine.EXTENSIONS} != set()


def test_rates_are_measured_once_a_boot_and_threads_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(machine, "SECONDS", 0.001)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first = machine.rates()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert all(rate > 0 for rate in first.values()) and first == machine.rates()

    (file,) = (tmp_path / ".cache/repro").iterdir()
    file.write_text("{torn")
    assert machine.rates()["float32_gflops"] > 0


def test_each_machine_keeps_its_rates_in_a_home_that_several_have(tmp_path: Path, monkeypatch) -> None:
    """They overwrote each other's, so that each measured again, one after the other."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(machine, "SECONDS", 0.001)
    measured = []
    monkeypatch.setattr(machine, "measure", lambda: measured.append(1) or {"float32_gflops": float(len(measured))})
    kept = {}
    for boot in ("one", "another", "one", "another"):
        monkeypatch.setattr(machine, "_boot", lambda boot=boot: boot)
        assert kept.setdefault(boot, machine.rates()) == machine.rates()
    assert len(measured) == 2
    old = tmp_path / ".cache/repro/machine-one.json"
    os.utime(old, (0, 0))
    monkeypatch.setattr(machine, "_boot", lambda: "third")
    machine.rates()
    assert not old.exists() and len(measured) == 3


def test_a_home_that_cannot_be_written_costs_only_the_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.setattr(machine, "SECONDS", 0.001)
    assert machine.rates()["copy_gb_per_s"] > 0


def test_an_allocator_that_was_preloaded_is_told(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    for name, told in (("libtcmalloc_minimal.so.4", "tcmalloc"), ("libjemalloc.so.2", "jemalloc"), ("libc.so.6", None)):
        maps.write_text(f"7f00-7f01 r-xp 0 08:01 1    /usr/lib/{name}\n")
        assert machine.allocator(maps) == told
    assert machine.allocator(tmp_path / "none") is None
    words = [sys.executable, "-c", "from repro.runs import machine; print(machine.allocator())"]
    usual = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    assert subprocess.run(words, env=usual, capture_output=True, text=True, check=True).stdout == "None\n"


def test_a_precision_that_the_processor_emulates_is_named_before_it_takes_hours() -> None:
    told = machine.slow_bfloat16({"float32_gflops": 44.0, "bfloat16_gflops": 1.7})
    assert told is not None and "1.7" in told and "precision=float32" in told
    assert machine.slow_bfloat16({"float32_gflops": 130.0, "bfloat16_gflops": 260.0}) is None


def test_rates_are_of_what_they_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(machine, "_per_second", lambda action, seconds: seen.append(action()) or 1e9)
    found = machine.measure(0.0)
    assert [one.dtype for one in seen[:2]] == [torch.float32, torch.bfloat16]
    assert found["float32_gflops"] == found["bfloat16_gflops"] == float(f"{2 * 512**3:.3g}")
    assert found["copy_gb_per_s"] == float(f"{seen[2].numel():.3g}")


def test_a_rate_is_of_the_fastest_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.6, 0.6, 0.6, 0.9, 2.0])
    monkeypatch.setattr(machine, "time", SimpleNamespace(perf_counter=lambda: next(moments)))
    assert machine._per_second(lambda: None, 1.0) == pytest.approx(10.0)
