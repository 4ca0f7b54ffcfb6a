"""Compares every algorithm trained alike: accuracy, bytes, and the iteration on two networks (not in the paper)."""

import textwrap

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from repro.config import groups
from repro.figures import _curves, _draw, _family_seconds, _legend, _maps, _names, _outlier
from repro.figures._family_seconds import NETWORKS
from repro.report import momentum, own_rules, prefixes
from repro.report.own_rules import Setting
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "What each relaxation costs in the accuracy of a short run, and saves in bytes and time"
COMMAND = "repro run experiment=families"
ALSO = (  # whose runs have the first epochs too
    _curves.CONVERGENCE,
    "repro run experiment=momentum",
    "repro run experiment=select_from_k_times_P",
    "repro run experiment=wire_formats",
    _maps.COMMAND,
)
WIDTH = "double"
LABELS = ("test accuracy (%)", "bytes of the busiest node in a step", "iteration (ms)")
SOURCES = {"modelled": "modelled", "simulated": "predicted"}  # iterations, by their rows' time_source
RANGE = ("bytes_sent_least", "bytes_sent_most")  # over the steps, where messages depend on values
FAMILIES = {  # colours are Okabe and Ito's
    "full precision": ("#0072B2", "o"),
    "quantised": ("#D55E00", "s"),
    "low rank": ("#000000", "P"),
    "sparse": ("#009E73", "^"),
    "delayed": ("#E69F00", "v"),
    "decentralised": ("#CC79A7", "D"),
}
# the loss is a mean since the evaluation before, and not all runs were evaluated as often
LEFT_OUT = ("network", "time_source", "seconds", "train_loss", "train_loss_std")
SETTINGS = ("model", "nodes", "density", "schedule", "data", "precision")  # are told where there are several
WIDE, NARROW = 44, 24  # letters in a line of a row's name, over two columns of a page and over one
UNKNOWN = ("0.5", "X")  # of an algorithm that this checkout does not have


def table(results: Results) -> list[Row]:
    """Returns one row for each algorithm and density over one schedule (`own_rules`), the most accurate first."""
    schedules = own_rules.by_schedule(results, "families")
    settings = own_rules.of_most(schedules)
    found = _family_seconds.choose(results, settings, [one for one in schedules if one is not settings])
    theirs = {"seconds of": found.of, "time_source": found.source}
    rows = [_row(one) | found.cells.get(_family_seconds.place(one), _family_seconds.NONE) | theirs for one in settings]
    return sorted(rows, key=lambda row: (row["model"], -row["test_accuracy"]))


def _row(setting: Setting) -> Row:
    """Returns the row of the runs of one setting, but for seconds."""
    same, epoch, schedule = setting
    group = same[0]
    lengths = (prefixes.averaged(group, epoch), 1)  # where the last epochs were not all evaluated, the last alone
    pooled, over = next((one, over) for over in lengths for one in prefixes.at_epoch(same, epoch, over))
    (row,) = (row for row in _curves.of_group(group) if row["epoch"] == epoch)
    return {
        **{name: value for name, value in row.items() if name not in LEFT_OUT},
        "schedule": schedule,
        "whole": group.whole and epoch == group.epochs,
        "n": pooled.n,
        "seeds": pooled.seeds,
        "rule": momentum.rule(group.settings),
        "effective_lr": momentum.effective_lr(group.settings),
        "accuracy_of_seed_0": pooled.accuracies[0] / 100 if 0 in pooled.accuracies else None,
        "test_accuracy": pooled.mean / 100,
        "test_accuracy_std": None if pooled.std is None else pooled.std / 100,
        "epochs averaged": over,
        "family": groups.about_known(group.algo).get("family", "not known here"),
        "bytes_sent": group.per_step.get("bytes_sent"),
        **{name: group.per_step.get(name) for name in RANGE},
        "busiest_bytes": group.busiest_bytes,
        "dense_steps": group.settings["algo"]["options"].get("warmup_steps"),
        "socket_bytes": group.socket_bytes,
    }


def draw(rows: list[Row]) -> Figure:
    """Draws one line per algorithm; columns: accuracy, bytes, iteration. Colour and marker tell the family.

    A run that has no time on a network, or counted no bytes, has no point there.
    """
    names = _names.of_each(rows, *SETTINGS)
    wrapped = list(map(_wrapped, names))
    lines = max((name.count("\n") + 1 for name in wrapped), default=1)
    figure, panels = _draw.panels(1, 3, (0.04 + 0.12 * lines) * len(rows) + 0.5, sharey=True)
    for y, row in enumerate(reversed(rows)):
        colour, marker = FAMILIES.get(row["family"], UNKNOWN)
        style = {"color": colour, "marker": marker, "linestyle": "", "label": row["family"]}
        panels[0].plot(100 * row["test_accuracy"], y, **style)
        if row["test_accuracy_std"]:
            ends = [100 * (row["test_accuracy"] + side * row["test_accuracy_std"]) for side in (-1, 1)]
            panels[0].plot(ends, [y, y], color=colour, linewidth=0.8)
        if row["bytes_sent_least"]:
            panels[1].plot([row[name] for name in RANGE], [y, y], color=colour, linewidth=0.8)
        filled, hollow = (row[f"{name}_ms"] for name in NETWORKS)
        for panel, x, height, changes in (
            (panels[1], row["busiest_bytes"], y, {}),
            (panels[2], hollow, y + 0.2, {"markerfacecolor": "white", "label": "hollow: 10 Gbps"}),
            (panels[2], filled, y - 0.2, {}),
        ):
            if x is not None:
                panel.plot(x, height, **style | changes)
    for reference in _references(rows):
        panels[0].axvline(100 * reference, color="0.6", linestyle="--", linewidth=0.8, zorder=0)
    _outlier.cut(
        panels[0],
        [
            (100 * row["test_accuracy"], y, FAMILIES.get(row["family"], UNKNOWN)[0])
            for y, row in enumerate(reversed(rows))
        ],
    )
    panels[0].set_yticks(range(len(rows)), reversed(wrapped), linespacing=0.95)
    panels[0].set_ylim(-0.6, len(rows) - 0.4)
    panels[1].set_xscale("log")
    panels[1].xaxis.set_major_locator(LogLocator(numticks=10))
    panels[1].minorticks_off()
    low, high = panels[1].get_xlim()
    if high < 100 * low:  # it may have a single power of ten on it, or none
        _draw.plain_log(panels[1], "x")
    for panel in (panels[0], panels[2]):
        panel.xaxis.set_major_locator(MaxNLocator(5 if _draw.wide() else 3, min_n_ticks=3))
    letters = _letters(figure)
    (source,) = {row["time_source"] for row in rows} or {"modelled"}
    labels = (*LABELS[:2], f"{SOURCES[source]} {LABELS[2]}")
    for panel, label in zip(panels, labels, strict=True):
        panel.set_xlabel("\n".join(textwrap.wrap(label, letters)), linespacing=0.9)
        if panel.get_autoscalex_on():
            panel.margins(x=0.12)
    _legend.of_panels(figure, panels)
    missing = sorted(map(_draw.algo_name, set(groups.group_options("algo")) - {row["algo"] for row in rows}))
    spread = any(row["bytes_sent_least"] for row in rows)
    ranges = "; where they depend on values, the mean over steps, and a line for their range" if spread else ""
    _legend.note(
        figure,
        *_draw.runs_note(rows),
        _of_accuracies(rows, names),
        _rules(rows, names),
        "Filled: 1 Gbps Ethernet; hollow: 10 Gbps. Bytes of the busiest node's last step (where it does not send in "
        f"each, the mean of a period{ranges}).",
        _before(rows, names),
        *_family_seconds.notes(rows, names),
        f"Not run here: {', '.join(missing)}." if missing else "",
    )
    return figure


def _references(rows: list[Row]) -> list[float]:
    """Returns dense's accuracy of seed 0 with each model, if most rows are of that seed alone and dense's is not."""
    alone = sum(row["seeds"] == "0" for row in rows)
    dense = [row for row in rows if row["algo"] == "dense" and row["seeds"] != "0"]
    return [row["accuracy_of_seed_0"] for row in dense if row["accuracy_of_seed_0"] and 2 * alone > len(rows)]


def _rules(rows: list[Row], names: list[str]) -> str:
    """Says which algorithms have another momentum and step than most, as what they cost here is that of both."""
    by_rule: dict[tuple[str, float], list[str]] = {}
    for name, row in zip(names, rows, strict=True):
        by_rule.setdefault((row["rule"], row["effective_lr"]), []).append(name)
    most, *others = sorted(by_rule, key=lambda key: -len(by_rule[key]))
    said = [f"{rule}, {lr:g}: {', '.join(by_rule[rule, lr])}" for rule, lr in others]
    return (
        f"Each by its own rules of momentum, with steps of lr / (1 - momentum), a gain counted in: {most[0]}, "
        f"{most[1]:g}; {'; '.join(said)}. So a difference between rows of unlike rules is not of what is sent alone."
        if said
        else ""
    )


def _before(rows: list[Row], names: list[str]) -> str:
    """Says which algorithms sent more or less in their warm-ups than in the steps whose bytes are drawn."""
    by_density: dict[tuple[str, float, float], list[str]] = {}
    for name, row in zip(names, rows, strict=True):
        if row["family"] == "sparse" and row["density_warmup"]:
            by_density.setdefault((row["density_warmup"], row["density"], row["epoch"]), []).append(name)
    said = []
    for (warmup, density, epochs), own in by_density.items():
        above = [float(one) for one in warmup.split()]
        over = (sum(above) + (epochs - len(above)) * density) / (epochs * density)
        when = f"density {', '.join(warmup.split())} in {_first(len(above), 'epoch')}"
        said.append(f"{when}, {over:.3g} times as many in the mean step: {', '.join(own)}")
    dense = [(name, row) for name, row in zip(names, rows, strict=True) if row["dense_steps"]]
    said += [f"all entries in {_first(row['dense_steps'], 'step')} of {row['step']:,}: {name}" for name, row in dense]
    return f"Other bytes before, in warm-ups: {'; '.join(said)}." if said else ""


def _first(count: int, what: str) -> str:
    return f"the first {count:,} {what}s" if count > 1 else f"the first {what}"


def _wrapped(name: str) -> str:
    """Breaks the name of a row after its commas, where it is long."""
    lines = textwrap.wrap(name.replace(" ", "\u00a0").replace(",\u00a0", ", "), WIDE if _draw.wide() else NARROW)
    return "\n".join(lines).replace("\u00a0", " ")


def _letters(figure: Figure) -> int:
    """Returns how many letters of an axis' label fit under a panel, beside the names of the rows."""
    first = figure.axes[0]
    renderer = FigureCanvasAgg(figure).get_renderer()
    names = max((name.get_window_extent(renderer).width for name in first.get_yticklabels()), default=0.0)
    letter = 0.5 * float(first.xaxis.label.get_fontsize()) * figure.dpi / 72
    return max(8, int((figure.bbox.width - names) / len(figure.axes) / letter))


def _of_accuracies(rows: list[Row], names: list[str]) -> str:
    spans = sorted({(row["epoch"], row["epochs averaged"]) for row in rows if row["epochs averaged"] > 1})
    means = " or ".join(f"{last - over + 1:g} to {last:g}" for last, over in spans)
    single = [name for name, row in zip(names, rows, strict=True) if row["epochs averaged"] == 1]
    alone = f"; of the last epoch alone, as others were not evaluated: {'; '.join(single)}" if single else ""
    mean = f"Means of epochs {means}{alone}. " if spans else ""
    spread = any(row["test_accuracy_std"] for row in rows)
    line = "A line beside an accuracy is one standard deviation over seeds. " if spread else ""
    if _references(rows):
        line += "Dashed: dense of seed 0, of which most rows are; other rows have the seeds that n counts. "
    short = "So short a run says little of a whole one, least of all of sparse algorithms: see the convergence figure."
    return mean + line + ("" if all(row["whole"] for row in rows) else short)
