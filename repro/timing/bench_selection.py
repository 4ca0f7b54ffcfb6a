"""Times selection and merging, beside torch.topk, numpy's argpartition and the machine's own copy."""

from __future__ import annotations

import functools
import itertools
import pickle
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from repro import models, screen
from repro.clip import clip
from repro.compression.error_feedback import ErrorFeedback
from repro.compression.selectors import SELECTORS
from repro.compression.sparse import Sparse, add_packed, add_sum, merge, pack, select, take_largest, to_dense
from repro.config.schema import Config, ConfigError
from repro.density import entries
from repro.json_text import json_text
from repro.tables import Row
from repro.train import loop
from repro.train.replica import Replica
from repro.whole_files import replacing, write_whole

BUDGET_S = 2.0  # seconds of one method in one case, but at least three repeats
MERGES = (25_000, 61_000)  # entries: 0.001 of ResNet-50 and of AlexNet
RANKS = 8  # whose vectors are summed
Method = tuple[Callable[[], object], Callable[[], object]]  # the first prepares, the second is timed


# What is measured.


def nothing() -> None:
    pass


def methods(x: Tensor, residual: Tensor, gradient: Tensor, k: int) -> dict[str, Method]:
    """Returns what is timed: selecting from x [m], and accumulating residual + gradient [m] and selecting from it."""
    array, magnitude = x.numpy(), np.empty(x.numel(), np.float32)
    memory, into, total = residual.clone(), torch.empty_like(x), residual.numpy().copy()

    def ready() -> None:
        memory.copy_(residual)

    def argpartition() -> np.ndarray:
        return np.argpartition(np.abs(array, out=magnitude), array.size - k)[array.size - k :]

    chosen: dict[str, Method] = {
        "copy": (nothing, lambda: into.copy_(x)),
        "add": (nothing, lambda: np.add(total, gradient.numpy(), out=total)),
        "torch.topk": (nothing, lambda: torch.topk(x.abs(), k)),
        "argpartition": (nothing, argpartition),
        "accumulate_select": (ready, lambda: take_largest(memory, gradient, k)),
    }
    return chosen | {name: (nothing, functools.partial(pick, x, k)) for name, pick in SELECTORS.items()}


def time_in_turns(chosen: dict[str, Method], repeats: int) -> dict[str, list[float]]:
    """Returns the seconds of each method. They take turns, so that a slow moment of the machine meets all of them."""
    for ready, act in chosen.values():
        ready()
        act()
    seconds: dict[str, list[float]] = {name: [] for name in chosen}
    for _ in range(repeats):
        for name, (ready, act) in chosen.items():
            if len(seconds[name]) < 3 or sum(seconds[name]) < BUDGET_S:
                ready()
                began = time.perf_counter()
                act()
                seconds[name].append(time.perf_counter() - began)
    return seconds


def measure(
    sizes: Sequence[int],
    densities: Sequence[float],
    threads: Sequence[int],
    recorded: Sequence[Path],
    repeats: int,
    out: Path,
) -> list[Row]:
    """Writes out/selection.jsonl, one line per method and case, and a figure. Raises ConfigError."""
    for _ in read(recorded):
        pass  # all can be read: measuring takes minutes
    out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    with replacing(out / "selection.jsonl") as part, part.open("w") as file:
        for name, residual, gradient in itertools.chain(normal(sizes), read(recorded)):
            x = residual + gradient
            for density, count in itertools.product(densities, threads):
                torch.set_num_threads(count)
                k = entries(density, x.numel())
                seconds = time_in_turns(methods(x, residual, gradient, k), repeats)
                case = {"vector": name, "parameters": x.numel(), "density": density, "k": k, "threads": count}
                new_rows = [case | row for row in compared(seconds, found(x, k))]
                file.writelines(json_text(row) + "\n" for row in new_rows)
                file.flush()
                threads_said = screen.plural(count, "thread")
                print(f"\n{name}, {x.numel():,} parameters, density {density:g}, k = {k:,}, {threads_said}")
                screen.show(cells(new_rows))
                rows += new_rows
    draw(rows, out)
    return rows


def compared(seconds: dict[str, list[float]], selected: dict[str, Row]) -> Iterator[Row]:
    """Yields each method's median, and its ratios to the other methods' in the same run."""
    median = {name: statistics.median(times) for name, times in seconds.items()}
    for name, times in seconds.items():
        yield {
            "method": name, "seconds": median[name], "least_s": min(times), "repeats": len(times),
            "over_copy": median[name] / median["copy"], "over_add": median[name] / median["add"],
            "topk_over": median["torch.topk"] / median[name],
        } | selected.get(name, {"selected": None, "recall": None})  # fmt: skip


def found(x: Tensor, k: int) -> dict[str, Row]:
    """Returns how many entries each selector returns, and the share of the true top k among them."""
    truth = select(x, k).index
    picks = {name: pick(x, k).index for name, pick in SELECTORS.items()}
    return {
        name: {"selected": index.numel(), "recall": torch.isin(truth, index).float().mean().item()}
        for name, index in picks.items()
    }


def measure_merges(repeats: int, out: Path) -> list[Row]:
    """Writes out/merge.jsonl: seconds to merge two vectors of k entries, to sum RANKS of them, to scatter one.

    SparDL and the parameter server sum vectors, Top-k the messages as they came. The two that are merged have no entry
    in common, which makes the longest walk. Each action is repeated by itself, because a rank has just received what it
    merges, and so has it in its cache.
    """
    torch.set_num_threads(1)
    generator, rows = torch.Generator().manual_seed(0), []
    for k in MERGES:
        m = 1000 * k
        index = torch.randperm(m, generator=generator)[: RANKS * k].int().view(RANKS, k).sort(dim=1).values
        vectors = [Sparse(row, torch.randn(k, generator=generator)) for row in index]
        a, b, dense = vectors[0], vectors[1], torch.zeros(m)
        messages = torch.stack([pack(vector, k) for vector in vectors])
        actions: dict[str, Callable[[], object]] = {
            "merge": functools.partial(merge, a, b, k),
            f"add_sum of {RANKS}": functools.partial(add_sum, vectors, dense),
            f"add_packed of {RANKS}": functools.partial(add_packed, messages, dense.dtype, dense),
            "to_dense": functools.partial(to_dense, a, dense),
        }
        for name, action in actions.items():
            times = time_in_turns({name: (nothing, action)}, repeats)[name]
            rows.append({
                "vector": "normal", "parameters": m, "k": k, "threads": 1, "method": name,
                "seconds": statistics.median(times), "least_s": min(times), "repeats": len(times),
            })  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / "merge.jsonl", "".join(json_text(row) + "\n" for row in rows))
    screen.show(cells(rows))
    return rows


# What it is measured on.


def normal(sizes: Sequence[int]) -> Iterator[tuple[str, Tensor, Tensor]]:
    for m in sizes:
        generator = torch.Generator().manual_seed(0)
        yield "normal", torch.randn(m, generator=generator), 0.1 * torch.randn(m, generator=generator)


def read(paths: Sequence[Path]) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yields name, residual and gradient of each file that `record` wrote. Raises ConfigError."""
    for path in paths:
        try:
            saved = torch.load(path, weights_only=True)
            yield saved["name"], saved["residual"], saved["gradient"]
        except OSError as error:
            raise ConfigError(f"--recorded {path}: {error.strerror}; `repro bench gradient` writes one") from None
        except (KeyError, TypeError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError):
            # not torch's own words: they advise to load with weights_only=False, which runs what is in the file
            raise ConfigError(f"--recorded {path} is no file of `repro bench gradient`, which writes one") from None


def record(config: Config, steps: int, out: Path) -> str:
    """Trains one node for `steps` steps with error feedback; saves the last gradient and residual; returns a name."""
    data = loop.load_data(config)
    spec, dropout = config.model, torch.Generator()
    model = models.load(spec.name, data.classes, data.image_size, config.seed, dropout, **spec.options)
    replica = Replica(model, config.momentum, config.weight_decay)
    gradient = replica.gradient
    memory, k = ErrorFeedback(gradient.numel()), entries(config.density, gradient.numel())
    epochs = (data.batches(epoch, 0, config.nodes, config.batch_per_node) for epoch in itertools.count())
    batches = itertools.islice(itertools.chain.from_iterable(epochs), steps)
    saved: dict[str, Any] = {}
    for step, (inputs, labels) in enumerate(batches, 1):
        gradient.zero_()
        F.cross_entropy(model(inputs), labels).backward()
        if config.clip_grad:
            clip(gradient, config.clip_grad)
        if step == steps:
            saved = {"name": f"{config.model.name}, {data.description}, step {steps}"}
            saved |= {"residual": memory.residual.clone(), "gradient": gradient.clone()}
        local = memory.accumulate_and_select(gradient, k)
        replica.apply(to_dense(local, gradient), config.lr / config.nodes)
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as part:
        torch.save(saved, part)
    return str(saved["name"])


# How it is shown.


TIMES = {"median (ms)": "seconds", "least (ms)": "least_s"}  # columns, and the keys of their rows
RATIOS = {"over copy": "over_copy", "over add": "over_add", "topk over": "topk_over"}


def cells(rows: Sequence[Row]) -> list[Row]:
    """Returns the cells of the table of methods; k where the rows differ in it."""
    many = len({row["k"] for row in rows}) > 1
    return screen.filled([
        {
            "method": row["method"],
            "k": row["k"] if many else None,
            **{name: screen.ms(row[key]) for name, key in TIMES.items()},
            **{name: row.get(key) for name, key in RATIOS.items()},
            "selected": row.get("selected"),
            "recall (%)": screen.percent(row.get("recall")),
            "repeats": row["repeats"],
        }
        for row in rows
    ])  # fmt: skip


def draw(rows: list[Row], out: Path) -> None:
    """Draws seconds against m on the fewest threads, a panel for each density; recorded vectors are open marks."""
    import matplotlib.style
    from matplotlib.figure import Figure

    from repro.figures import METADATA, STYLE

    densities = sorted({row["density"] for row in rows})
    least = min(row["threads"] for row in rows)
    with matplotlib.style.context(STYLE):
        figure = Figure(figsize=(3.5, 1.9 * len(densities) + 0.6), layout="constrained")
        panels = figure.subplots(len(densities), 1, sharex=True, squeeze=False)[:, 0]
        for panel, density in zip(panels, densities, strict=True):
            for place, name in enumerate(dict.fromkeys(row["method"] for row in rows)):
                case = (density, least, name)
                chosen = [r for r in rows if (r["density"], r["threads"], r["method"]) == case]
                points = sorted((r["parameters"], r["seconds"], r["vector"]) for r in chosen)
                drawn = [point for point in points if point[2] == "normal"]
                real = [point for point in points if point[2] != "normal"]
                look = {"color": f"C{place % 10}", "marker": "osv^D<>Pph"[place % 10], "markersize": 3}
                panel.plot([p[0] for p in drawn], [p[1] for p in drawn], label=name, **look)
                open_marks = look | {"linestyle": "", "fillstyle": "none"}
                panel.plot([p[0] for p in real], [p[1] for p in real], **open_marks)
            panel.set(xscale="log", yscale="log", ylabel="seconds", title=f"density {density:g}")
        panels[-1].set_xlabel("parameters $m$ (open marks: recorded in training)")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
        for kind in ("pdf", "png"):
            with replacing(out / f"selection.{kind}") as part:
                figure.savefig(part, format=kind, metadata=METADATA[kind])
