"""What a reader needs of any figure, at both widths: ticks, nothing over another, keys that look like what is drawn."""

import functools
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import committed_results
import made_up_groups
import made_up_results
import matplotlib.style
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from repro import figures, tables
from repro.config import groups
from repro.config.schema import ConfigError
from repro.figures import convergence, density_sensitivity
from repro.figures._draw import INK, PUBLISHED
from repro.report import write_items
from repro.report.summaries import Results

COMMITTED = committed_results.load()
ITEMS = [item for item in figures.load() if item.draw]
SMALLEST = 5.5  # points
IDS = {name for name in groups.group_options("algo") if groups.title("algo", name) != name}


@pytest.fixture(autouse=True)
def style() -> Iterator[None]:
    """Ticks are chosen by the size of their labels, when they are asked for."""
    with matplotlib.style.context(figures.STYLE):
        yield


def epochs(count: int, *algos: str) -> Results:
    """Curves of so many epochs, of a whole schedule."""
    runs = []
    for algo in algos:
        made = made_up_groups.group("resnet20", algo)
        made["settings"] |= {"epochs": count, "schedule_epochs": count, "scale_schedule": False}
        made["curve"] = [
            made["curve"][0] | {"epoch": epoch, "step": 390 * epoch, "train_loss": 9 / epoch}
            for epoch in range(1, count + 1)
        ]
        runs.append(made)
    return Results(made_up_results.nothing().paper, {"convergence": {"groups": runs}})


def shown(axes: Axes, axis: Any) -> list[Text]:
    """The labels of the axis that are drawn: not empty, and within its limits."""
    low, high = sorted(axis.get_view_interval())
    return [
        tick.label1
        for tick in axis.get_major_ticks()
        if tick.label1.get_visible() and tick.label1.get_text() and low <= tick.get_loc() <= high
    ]


def overlapping(texts: list[Text], renderer: Any) -> list[tuple[str, str]]:
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts if text.get_text().strip()]
    return [(a, b) for (a, one), (b, other) in itertools.combinations(boxes, 2) if Bbox.intersection(one, other)]


@functools.cache
def committed(item: figures.Item, width: str) -> tuple[Figure, list[str]]:
    """What is drawn of the committed results; nobody changes it."""
    return figures.drawn(item, item.table(COMMITTED), width=width)


def assert_readable(figure: Figure) -> None:
    """At least three ticks an axis of numbers, no label over another, and nothing beyond the edge or too small."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()  # gives the legend its place
    whole, labels = figure.bbox.padded(1), []
    for axes in (axes for axes in figure.axes if axes.axison):
        for axis in (axes.xaxis, axes.yaxis):
            ticks = shown(axes, axis)
            numbers = any(tick.get_text()[:1].isdigit() for tick in ticks)
            assert not numbers or len(ticks) >= 3, (axes.get_title(), [tick.get_text() for tick in ticks])
            labels += [*ticks, axis.label]
        labels.append(axes.title)
    assert overlapping(labels, renderer) == []
    hidden = hidden_ticks(figure)
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip() and text not in hidden:
            box = text.get_window_extent(renderer)
            assert whole.containsx(box.x0) and whole.containsx(box.x1), text
            assert whole.containsy(box.y0) and whole.containsy(box.y1), text
            assert text.get_fontsize() >= SMALLEST, text


@pytest.mark.parametrize("width", figures.WIDTHS)
@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_a_figure_can_be_read_at_print_size(item: figures.Item, width: str) -> None:
    figure, notes = committed(item, width)
    assert notes and figure.get_figwidth() == figures.WIDTHS[width]
    assert_readable(figure)
    assert IDS.isdisjoint(word for text in figure.findobj(Text) for word in text.get_text().split())
    panels = [(axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) for axes in figure.axes if axes.get_title()]
    assert len(panels) == len(set(panels)), "two panels that nothing tells apart"
    twins = {look(one) for axes in figure.axes for one in (*axes.get_lines(), *axes.patches)}
    lines = [line for axes in figure.axes for line in axes.get_lines()]
    shapes, colours = {line.get_marker() for line in lines}, {line.get_color() for line in lines}
    widths = {line.get_linewidth() for line in lines}
    for legend in figure.legends:
        for key in set(legend.findobj(Line2D) + legend.findobj(Patch)) - {legend.get_frame()}:
            alone = isinstance(key, Line2D) and (
                (key.get_color() == INK and key.get_marker() in shapes)  # a shape, whatever its colour
                or (key.get_color() in (INK, PUBLISHED) and not marks(key) and key.get_linewidth() in widths)  # a line
                or (key.get_marker() == "o" and "o" not in shapes and key.get_color() in colours)
            )
            assert alone or look(key) in twins or colour_of(key) in pixels(figure), key


def hidden_ticks(figure: Figure) -> set[Text]:
    """The labels of ticks beyond an axis' limits, which are not drawn."""
    every = {
        tick.label1 for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for tick in axis.get_major_ticks()
    }
    drawn = {text for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for text in shown(axes, axis)}
    return every - drawn


def look(one: Any) -> tuple[Any, ...]:
    """All by which a reader tells a line or an area from others."""
    if isinstance(one, Patch):
        return ("area", one.get_facecolor(), one.get_hatch())
    dashed = one.get_linestyle() not in ("None", "")
    dash = (one._unscaled_dash_pattern, one.get_linewidth()) if dashed else ()  # type: ignore[attr-defined]
    return ("line", one.get_color(), dash, marks(one))


def marks(line: Line2D) -> tuple[Any, ...]:
    if line.get_marker() in ("None", "", None):
        return ()
    return (line.get_marker(), line.get_markersize(), line.get_fillstyle(), str(line.get_markerfacecolor()))


def colour_of(key: Any) -> tuple[int, ...]:
    return tuple(round(255 * part) for part in key.get_facecolor()[:3]) if isinstance(key, Patch) else ()


def pixels(figure: Figure) -> set[tuple[int, ...]]:
    """The colours of the figure's images, the maps."""
    images = [image.get_array() for axes in figure.axes for image in axes.get_images()]
    return {tuple(round(255 * float(part)) for part in cell[:3]) for image in images for row in image for cell in row}


def test_a_long_curve_has_few_markers_and_no_two_curves_at_the_same_epochs() -> None:
    (item,) = figures.load(["convergence"])
    figure, _ = figures.drawn(item, convergence.table(epochs(141, "dense", "topk", "gtopk", "gtopk_butterfly")))
    starts = set()
    for line in figure.axes[0].get_lines()[:4]:
        start, every = line.get_markevery()  # type: ignore[misc]
        assert 5 <= len(range(start, 141, every)) <= 12
        starts.add(start % every)
    assert len(starts) == 4


@pytest.mark.parametrize("width", figures.WIDTHS)
def test_whole_schedules_of_all_networks_can_be_read(width: str) -> None:
    """None is committed yet: 141 epochs of four networks, beside their minutes."""
    data, models = epochs(141, "dense", "gtopk"), ("resnet20", "vgg16", "alexnet", "resnet50")
    data.summaries["convergence"]["groups"] = [
        group | {"settings": group["settings"] | {"model": {"name": model, "options": {}}}}
        for model in models
        for group in data.summaries["convergence"]["groups"]
    ]
    (item,) = figures.load(["convergence"])
    figure, _ = figures.drawn(item, convergence.table(data), width=width)
    assert_readable(figure)
    assert [axes.get_title() for axes in figure.axes if axes.get_title()] == [
        "ResNet-20",
        "VGG-16",
        "AlexNet",
        "ResNet-50",
    ]


def test_densities_are_a_scale_and_none_is_left_out() -> None:
    """A fifth density was not drawn, and the sparsest of four had a hue of its own."""
    densities = [0.1, 0.05, 0.01, 0.001, 0.0005, 0.0001]
    runs = [made_up_groups.group("resnet20", "gtopk", density=density) for density in densities]
    data = Results(made_up_results.nothing().paper, {"density_sensitivity": {"groups": runs}})
    (item,) = figures.load(["density_sensitivity"])
    figure, _ = figures.drawn(item, item.table(data))
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    greys = [sum(to_rgb(lines[f"gTop-k, ρ = {density:g}"].get_color())) for density in densities]
    assert greys == sorted(greys) and len(set(greys)) == 6
    colours = [colour for colour, _ in density_sensitivity.scale([0.1, 0.01, 0.001]).values()]
    middle = sum(to_rgb(colours[1]))
    assert sum(to_rgb(colours[0])) < middle < sum(to_rgb(colours[2]))


def to_rgb(colour: Any) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb

    return to_rgb(colour)


def test_efficiency_has_a_linear_axis_from_zero() -> None:
    (item,) = figures.load(["scaling_efficiency"])
    figure, _ = figures.drawn(item, item.table(COMMITTED))
    assert {axes.get_yscale() for axes in figure.axes} == {"linear"}
    ends = {axes.get_title(): axes.get_ylim() for axes in figure.axes if axes.lines}
    assert all(first == 0 and (last > 100 or f"axis to {last:g} %" in title) for title, (first, last) in ends.items())


def test_without_notes_the_captions_stand_beside_the_figure(tmp_path: Path) -> None:
    names = ["convergence", "bytes_per_step"]
    write_items.figures(names, None, tmp_path / "with", ["png"], lambda _: None)
    write_items.figures(names, None, tmp_path / "bare", ["png"], lambda _: None, notes=False, width="single")
    assert {path.name for path in (tmp_path / "with").iterdir()} == {
        f"{n}.{kind}" for n in names for kind in ("png", "csv")
    }
    for item in figures.load(names):
        text, latex = ((tmp_path / "bare" / f"{item.name}.{kind}").read_text() for kind in ("txt", "tex"))
        _, notes = committed(item, item.width)
        assert text == "\n".join([item.title, "", *notes, ""])
        assert latex.startswith(f"\\caption{{{item.title}. ") and latex.endswith(f"\\label{{fig:{item.name}}}\n")
        sizes = [(tmp_path / place / f"{item.name}.png").read_bytes()[16:24] for place in ("with", "bare")]
        assert sizes[0] != sizes[1]
    with pytest.raises(ConfigError, match="--width wide: choose from single, double"):
        figures.render(ITEMS[0], ITEMS[0].table(COMMITTED), ["png"], width="wide")


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_captions_in_latex_need_no_package(item: figures.Item) -> None:
    """They are ASCII: no letter, sign or space that pdflatex does not know by itself."""
    _, notes = committed(item, item.width)
    caption = figures.captions(item, notes)["tex"]
    assert caption.isascii(), {letter for letter in caption if not letter.isascii()}


def test_names_for_people_are_in_all_tables_and_a_new_algorithm_needs_no_other_edit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for results in (COMMITTED, made_up_results.everything()):
        for item in figures.load():
            rows = [] if item.draw else item.table(results)
            text = tables.to_markdown([{k: v for k, v in row.items() if k != "command"} for row in rows])
            assert IDS.isdisjoint(text.replace("`", " ").replace(",", " ").replace(";", " ").split()), item.name
    for group in ("algo", "model", "data", "network"):
        titles = [groups.title(group, name) for name in groups.group_options(group)]
        assert len(titles) == len(set(titles))
    shutil.copytree(groups.conf_folder(), tmp_path / "conf")
    monkeypatch.setattr(groups, "conf_folder", lambda: tmp_path / "conf")
    (tmp_path / "conf" / "algo" / "my_own.yaml").write_text("name: my_own\nsparse: false\nfamily: quantised\n")
    assert groups.title("algo", "my_own") == "my own"
    data = made_up_results.everything()
    own = made_up_groups.group("resnet20", "my_own", n_seeds=2)
    data.summaries["convergence"]["groups"].append(own)
    data.summaries["families"]["groups"].append(made_up_groups.on_both_networks(own))
    items = {item.name: item for item in figures.load()}
    assert "my own" in {row["algorithm"] for row in items["accuracies"].table(data)}
    for name in ("convergence", "families"):
        figure, _ = figures.drawn(items[name], items[name].table(data))
        assert "my own" in {text.get_text() for text in figure.findobj(Text)}


def test_a_measured_time_has_a_bar_of_half_its_quartiles_range_to_either_side() -> None:
    """A caption said so, of a figure without any."""
    (item,) = (item for item in ITEMS if item.name == "point_to_point")
    figure, _ = committed(item, item.width)
    segments = [one for axes in figure.axes for bars in axes.collections for one in bars.get_segments()]
    spread = [row["seconds_half_iqr"] for row in item.table(committed_results.load()) if row["source"] == "measured"]
    assert [high[1] - low[1] for low, high in segments] == pytest.approx([2 * half for half in spread])


def test_what_a_reader_must_know_is_said_in_words() -> None:
    said = {item.name: " ".join(committed(item, item.width)[1]) for item in ITEMS}
    assert "larger batch takes fewer steps: 1,170 at batch 32, 144 at 256" in said["batch_sensitivity"]
    assert "those that are not in the fit are faster by that than their link" in said["point_to_point"]
    assert "medians of n = 7 to 200, bars: half the range between quartiles" in said["point_to_point"]
    assert "141 epochs, CIFAR-10, bfloat16, in curves of P = 4: dense" in said["time_to_accuracy"]
    assert "141 epochs, CIFAR-10 (JPEG folder), bfloat16, in curves of P = 32: dense" in said["time_to_accuracy"]
    assert "density 0.001, float32, mean" in said["residual_mass"]
    assert "over 4 recorded steps of one run each" in said["residual_mass"]
    assert "Ticks under curves over minutes: the learning rate × 0.1" in said["convergence"]
    assert "Density of the sparse ones: 0.01." in said["language"]
    assert "On one line: Top-k and k of k × P; gTop-k and gTop-k butterfly." in said["bytes_per_step"]


def test_densities_are_drawn_where_dense_runs_alone_are_there() -> None:
    made = made_up_results.everything()
    groups = [one for one in made.summaries["density_sensitivity"]["groups"] if one["settings"]["density"] == 1]
    made.summaries["density_sensitivity"] = {"groups": groups}
    figure = density_sensitivity.draw(density_sensitivity.table(made))
    assert {line.get_label() for axes in figure.axes for line in axes.get_lines()} == {"dense", "learning rate × 0.1"}
