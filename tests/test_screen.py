"""What a screen shows: every table of the command line fits it, and no number is ever cut."""

import re
import sys
from pathlib import Path

import made_up_groups
import pytest

from repro import cli, screen
from repro.config.compose import compose
from repro.iteration_time import IterationTime
from repro.report.group import Group
from repro.report.time_to_target import Reach
from repro.runs import status
from repro.timing import (
    bench_collectives,
    bench_links,
    bench_selection,
    bench_step,
    plan_report,
    planner,
    rerun,
    simulate,
)
from repro.timing.predict import Iteration
from repro.train import ending

LARGE, SMALL = 12_345.678, 0.000123456


def summary(state: str = "done", **more: object) -> dict:
    known = {
        "test_accuracy": 0.98889, "bytes_sent_per_step": 1_618_344, "density": 0.001, "k": 269, "source": "modelled",
        "network": "ethernet1g", "compute_s": LARGE, "compress_s": SMALL, "communicate_s": 1.5, "hidden_s": 0.0,
        "state": state, "folder": "results/runs/default/a-run", "error": None,
    }  # fmt: skip
    return known | more


def sweep() -> str:
    configs = compose(["algo=dense,gtopk,gtopk_butterfly", "nodes=4,32", "density=0.001", "seed=0,1"])
    sent = [1_618_344, 43_152, 2152, 8, 103_000_000, None]
    summaries = [summary("failed", bytes_sent_per_step=sent[place % 6]) for place, _ in enumerate(configs)]
    return screen.table(ending.rows(configs, summaries), len(ending.varied(configs)))


def simulated() -> str:
    row = {
        "model": "vgg16", "algo": "low_precision_decentralized", "nodes": 1024, "parameters": 14_728_266, "k": 14_728,
        "source": "paper", "compute_s": LARGE, "compress_s": None, "communicate_s": SMALL, "closed_form_s": 1.0,
        "as_plotted_s": 2.0, "iteration_s": LARGE, "samples_per_s": 123_456.7, "efficiency": 0.123456,
        "bytes_sent_most": 123_456_789, "rounds_most": 20.0, "samples": 128,
    }  # fmt: skip
    said, cells, keys = simulate.told(
        [row, row | {"model": "alexnet", "parameters": 61_100_840, "samples": 64}], "ethernet1g", "images"
    )
    assert "k = 14,728" in said
    return screen.table(cells, keys)


def tuned() -> str:
    (config,) = compose(["algo=low_precision_decentralized", "bucket_mb=25", "overlap=on"])
    time = IterationTime(LARGE, SMALL, 1.0, 0.5)
    trained = Group(**made_up_groups.group("resnet20", "topk", n_seeds=2))
    reach = Reach(trained, 0.9, (123.0, 141.0), (768.0, 900.0), 2, (0, 1))
    return screen.table(plan_report.rows([planner.Choice(Iteration(config, 1, 1, [], 1, 0, [], []), time, reach)]))


def collectives() -> str:
    keys = [*bench_collectives.SECONDS.values(), *bench_collectives.RATIOS.values(), "dilation"]
    row = {"algo": "ddp_powersgd", "nodes": 16, "parameters": 61_100_840, "k": 61_100, "repeats": 10}
    return screen.table(bench_collectives.cells([row | dict.fromkeys(keys, LARGE)]), keys=3)


def one_way() -> str:
    keys = bench_links.ONE_WAY.values()
    return screen.table(bench_links.one_way([
        {"bytes": size, "repeats": 200, "fitted": True, **dict.fromkeys(keys, SMALL)} for size in (64, 4**12)
    ]))  # fmt: skip


def selection() -> str:
    keys = [*bench_selection.TIMES.values(), *bench_selection.RATIOS.values()]
    row = {
        "method": "accumulate_select",
        "repeats": 15,
        "selected": 61_100,
        "recall": 0.999,
        **dict.fromkeys(keys, 1.0),
    }
    return screen.table(bench_selection.cells([row | {"k": k} for k in (25_000, 61_000)]))


def steps() -> str:
    row = {"model": "resnet20", "algo": "gtopk_butterfly", "nodes": 32, "precision": "bfloat16", "messages": "memory"}
    ratios = {f"run_over_{loop}": 0.953 for loop in ("plain", "plain_per_core", "plain_per_node")}
    return screen.table(bench_step.cells([row | ratios | {"medians": {"run": LARGE}}]), keys=5)


def runs() -> str:
    name = "convergence/resnet20-cifar10-gtopk_butterfly-d0.001-n32-s0-12345678"
    return status.table([
        status.Run(
            name, "failed", 55_131, 110_262, {"test_accuracy": 0.98889}, 12_345.0,
            "rank 1 is gone: killed, frozen or cut off",
        ),
        status.Run(f"{name}9", "done", 110_262, 110_262, {"test_perplexity": 113.25}),
    ])  # fmt: skip


def modelled() -> str:
    row = {"algo": "gtopk_butterfly", "nodes": 32, "network": "infiniband100g", "source": "measured"}
    times = IterationTime(LARGE, SMALL, 1.0).row() | {"iteration_s": LARGE}
    return screen.table(rerun.cells([row | times], ["algo", "nodes"]), keys=3)


TABLES = (sweep, simulated, tuned, collectives, one_way, selection, steps, runs, modelled)


@pytest.mark.parametrize("columns", [80, 60])
@pytest.mark.parametrize("table", TABLES)
def test_every_table_fits_the_screen_and_cuts_no_number(table, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    whole = table()
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = table()
    assert max(map(len, shown.splitlines())) <= columns, shown
    assert "…" not in shown and "..." not in shown
    numbers = re.findall(r"(?<![\w.,-])[\d,]+\.?\d*(?:/\d+)?(?=[ )]|$)", whole, re.MULTILINE)
    assert numbers and set(numbers) <= set(re.split(r"[\s()]+", shown)), shown


@pytest.mark.parametrize("columns", [80, 60])
@pytest.mark.parametrize("words", ["data status", "plot list", "run --explain algo"])
def test_what_commands_list_fits_the_screen(
    words: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "argv", ["repro", *words.split()])
    assert cli._call() == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= columns and "…" not in shown


def test_columns_that_do_not_fit_stand_below_with_the_same_first_column() -> None:
    row = {"algo": "gtopk", **{f"number {place} (ms)": 1000.0 + place for place in range(12)}}
    parts = screen.table([row, row | {"algo": "dense"}], columns=40).split("\n\n")
    assert len(parts) > 2
    assert all([line.split()[0] for line in part.splitlines()[-2:]] == ["gtopk", "dense"] for part in parts)
    rows = [dict(zip(("a", "b"), pair, strict=True)) for pair in ((1.5, "x"), (12_345.6, "y"))]
    assert screen.table(rows, columns=80).splitlines()[2:] == ["  1.50  x", "12,346  y"]  # at the right


def test_numbers_have_three_digits_and_a_column_one_unit() -> None:
    shown = {
        0.0: "0",
        0.1234: "0.123",
        53.98: "54.0",
        99.96: "100",
        1618.3: "1,618",
        1.5e-7: "1.5e-07",
        269722: "269,722",
    }
    assert {value: screen.three(value) for value in shown} == shown
    sizes = {12: "12 B", 43_152: "43.2 kB", 1_618_344: "1.62 MB", 184e6: "184 MB", 5.9e9: "5.90 GB"}
    assert {count: screen.size(count) for count in sizes} == sizes
    column = screen.table([{"a": "x", "sent": screen.Bytes(1_618_344)}, {"a": "y", "sent": screen.Bytes(43_152)}])
    assert column.splitlines()[0] == "a  sent (kB)" and "1,618" in column and "43.2" in column
    assert (screen.plural(1, "epoch"), screen.plural(3, "epoch")) == ("1 epoch", "3 epochs")
    assert [screen.duration(seconds) for seconds in (59.4, 59.6, 3600 + 290)] == ["59 s", "1 min", "1 h 05 min"]
