"""What docs/accuracy.md tells by hand of short runs on 32 nodes holds: its numbers are those of the tables."""

import committed_results
import pytest
from told_in_paper import told

from repro.figures import many_nodes, momentum
from repro.report.momentum import RULES
from repro.tables import Row

AFTER, BEFORE, MASKED, NONE = RULES
NAMES = ("Top-k", "gTop-k", "gTop-k exact", "gTop-k butterfly")
SENT = "busiest node (bytes a step)"


@pytest.fixture(scope="module")
def trained() -> list[Row]:
    """The rows of 15 epochs in bfloat16, with accuracies in percent."""
    rows = momentum.table(committed_results.load())
    at_15 = [row for row in rows if (row["source"], row["epoch"], row["precision"]) == ("trained", 15, "bfloat16")]
    return [row | {"test_accuracy": 100 * row["test_accuracy"]} for row in at_15]


@pytest.fixture(scope="module")
def on_4(trained: list[Row]) -> dict[tuple[str, str], float]:
    return {(row["algo"], row["rule"]): row["test_accuracy"] for row in trained if row["nodes"] == 4}


@pytest.fixture(scope="module")
def on_32(trained: list[Row]) -> dict[tuple[str, str], float]:
    """By algorithm and rule."""
    rows = [row for row in trained if row["nodes"] == 32]
    assert {row["n"] for row in rows} == {1}
    return {(row["algo"], row["rule"]): row["test_accuracy"] for row in rows}


def test_momentum_after_aggregation(on_32: dict[tuple[str, str], float]) -> None:
    said = told(
        "Top-k has N % with momentum after aggregation and N without, gTop-k N with it and N without (N as [...]), "
        "gTop-k exact N and N, and gTop-k butterfly, which loses most, N and N; dense has N with it and N without"
    )
    said += told("sends something of every entry in each step, has N % with it, too, and N without")
    names = (*NAMES, "dense", "1-bit SGD")
    assert said.pop(4) == pytest.approx(on_32["gTop-k corrected", NONE], abs=0.051)
    assert said == pytest.approx([on_32[name, rule] for name in names for rule in (AFTER, NONE)], abs=0.051)
    lost = {name: on_32[name, NONE] - on_32[name, AFTER] for name in names}
    assert max(lost, key=lost.__getitem__) == "gTop-k butterfly"
    sparse = [lost[name] for name in names if name != "dense"]
    assert told("On 32 nodes it costs them N to N points (seed N alone)") == [round(min(sparse)), round(max(sparse)), 0]
    assert told("without it Top-k has N % on 32 nodes") == pytest.approx([on_32["Top-k", NONE]], abs=0.051)


def test_the_rival_of_gtopk_that_keeps_dense_s_accuracy(on_32: dict[tuple[str, str], float]) -> None:
    found = committed_results.load()
    table = [
        row for row in many_nodes.table(found) if row["schedule"] == "first 15 of 141 epochs" and row["nodes"] == 32
    ]
    settings = [row for row in table if row["algorithm"] == "gTop-k corrected"]
    assert told("The setting is the best of [...] of gTop-k corrected after N epochs") == [15]
    best = max(settings, key=lambda row: float(row["test accuracy (%)"]))
    assert len(settings) == 5 and (best["density"], best["lr / (1 - momentum)"]) == (0.032, 4)
    of = {(row["algorithm"], row["density"], row["lr / (1 - momentum)"]): row for row in table}
    ours, rival = of["gTop-k corrected", 0.032, 4], of["1-bit SGD", 1, 4]
    said = told(
        "After 15 epochs that has N % with updates as large, where gTop-k has N, and N with dense's, where gTop-k "
        f"has N, in {rival[SENT]:,} bytes a step to gTop-k's {ours[SENT]:,}. Top-k without momentum has N % with "
        f"updates as large, and N with dense's, at a density of 0.001 in {of['Top-k', 0.001, 4][SENT]:,} (n = N each)"
    )
    rows = (rival, ours, of["gTop-k corrected", 0.032, 1], of["Top-k", 0.001, 4])
    large, own, plain, topk = (float(row["test accuracy (%)"]) for row in rows)
    every = [large, own, on_32["1-bit SGD", NONE], plain, topk, on_32["Top-k", NONE]]
    assert said == pytest.approx([*every, 1], abs=0.051) and {row["n"] for row in rows} == {1}


def test_momentum_before_selection(on_4: dict[tuple[str, str], float], on_32: dict[tuple[str, str], float]) -> None:
    said = told(
        "comes to N % with Top-k, N with gTop-k, N with gTop-k exact and N with gTop-k butterfly, "
        "and masked to N, N, N and N"
    )
    assert said == pytest.approx([on_32[name, rule] for rule in (BEFORE, MASKED) for name in NAMES], abs=0.051)
    gains = [on_32[name, MASKED] - on_32[name, BEFORE] for name in NAMES]
    said = told("So a mask gains N to N points there, the most with the butterfly")
    assert said == pytest.approx([min(gains), max(gains)], abs=0.051) and gains[3] == max(gains)
    behind = {name: on_32[name, NONE] - on_32[name, MASKED] for name in NAMES}
    said = told(
        "is still N points behind none with Top-k, N with gTop-k and N with the butterfly, and ahead of it by N points "
        "with gTop-k exact"
    )
    own = [behind["Top-k"], behind["gTop-k"], behind["gTop-k butterfly"], -behind["gTop-k exact"]]
    assert said == pytest.approx(own, abs=0.051)
    said = told("The exact rule in gTop-k's tree has N % with [...] and N without, N more than the paper's rule there")
    exact = [on_32["gTop-k (exact rule)", rule] for rule in (AFTER, NONE)]
    assert said == pytest.approx([*exact, exact[1] - on_32["gTop-k", NONE]], abs=0.051)
    said = told("leaves the velocity in place of what is selected, gTop-k has N %, and clipped as well as masked N")
    assert said == pytest.approx([on_32[f"gTop-k ({name})", MASKED] for name in ("delivered", "clipped")], abs=0.051)
    said = told(
        "1-bit SGD has N % with momentum before [...] Random-k, at a hundredth of [...], has N % (N on 4 nodes); at "
        "the others' rate it diverges, with momentum after aggregation (N %, and N on 4 nodes, where its gradients "
        "overflow) as before selection (N %, masked N"
    )
    own = [on_32["1-bit SGD", BEFORE], *(of["random-k (lr 0.01)", NONE] for of in (on_32, on_4))]
    own += [of["random-k", AFTER] for of in (on_32, on_4)] + [on_32["random-k", rule] for rule in (BEFORE, MASKED)]
    assert said == pytest.approx(own, abs=0.051)


def test_larger_updates_on_32_nodes_are_told_as_the_table_has_them() -> None:
    table = [row for row in many_nodes.table(committed_results.load()) if row["schedule"] == "first 15 of 141 epochs"]
    rows = {
        (row["algorithm"], row["density"], row["lr / (1 - momentum)"]): row["below dense (points)"] for row in table
    }
    large, plain = (rows["gTop-k corrected", 0.032, size] for size in (4, 1))
    few = rows["gTop-k corrected", 0.001, 1]
    assert large < rows["dense", 1, 4] < rows["dense", 1, 1] == 0 < plain
    assert few - plain > plain - large, "the density does most of that"
    scalecom = {row["lr / (1 - momentum)"]: row for row in table if row["algorithm"] == "ScaleCom"}
    assert min(row["below dense (points)"] for row in scalecom.values()) > few, "no nearer to dense"
    said = told("It has N %, with a tenth of the rate (`algo.gain=1`) N (n = 1 each)")
    assert said == pytest.approx([scalecom[size]["test accuracy (%)"] for size in (1, 0.1)], abs=0.051)


def test_as_few_steps_on_4_nodes_are_told_as_the_table_has_them() -> None:
    rows = {
        (row["algorithm"], row["nodes"], row["batch per node"]): row
        for row in many_nodes.table(committed_results.load())
        if row["schedule"] == "first 15 of 141 epochs" and row["lr / (1 - momentum)"] == 1
        if row["momentum"] == RULES[0]
    }
    said = told(
        "After 15 epochs dense has N % there, Top-k N and gTop-k N, on 32 nodes N, N and N (means of epochs N to N, "
        "n = N"
    )
    names, places = ("dense", "Top-k", "gTop-k"), ((4, 256), (32, 32))
    own = [rows[name, *place]["test accuracy (%)"] for place in places for name in names]
    assert said[:6] == pytest.approx(own, abs=0.051)
    assert said[6:] == [11, 15, 1] and {row["n"] for row in rows.values()} == {1}
    behind = told("So of the N points that gTop-k is behind on 32 nodes it is N behind on 4 nodes in as many steps")
    assert behind == pytest.approx([own[3] - own[5], own[0] - own[2]], abs=0.051)
