"""How a run looks while it goes on, on stderr: a bar on a terminal, a plain line per evaluation elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

from repro.config import Config


class Lines:
    """Plain lines, for logs."""

    def __init__(self, config: Config):
        self.config, self.began = config, time.monotonic()
        self.say(f"{config.run_id}: {config.nodes} nodes, {config.epochs} epochs, {config.folder}")

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def log(self, line: dict[str, Any]) -> None:
        if line["kind"] == "eval":
            self.say(
                f"  epoch {line['epoch']:g} of {self.config.epochs}  step {line['step']}  "
                f"train loss {line['train_loss']:.4f}  test accuracy {100 * line['test_accuracy']:.2f} %  "
                f"{line['samples_per_s']:.0f} images/s  {time.monotonic() - self.began:.0f} s"
            )

    def steps(self, step: int, steps: int) -> None:
        pass

    def close(self) -> None:
        pass


class Bar(Lines):
    """The lines above a bar that moves."""

    def __init__(self, config: Config):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, TextColumn("{task.fields[loss]}"), console=Console(stderr=True), transient=True)
        self.task = self.bar.add_task(config.algo.name, total=None, loss="")
        self.bar.start()
        super().__init__(config)

    def say(self, text: str) -> None:
        self.bar.console.print(text, highlight=False, markup=False)

    def log(self, line: dict[str, Any]) -> None:
        if line["kind"] == "step":
            self.bar.update(self.task, completed=line["step"], loss=f"loss {line['loss']:.3f}")
        super().log(line)

    def steps(self, step: int, steps: int) -> None:
        if steps:
            self.bar.update(self.task, completed=step, total=steps)

    def close(self) -> None:
        self.bar.stop()


def show(config: Config) -> Lines:
    return Bar(config) if sys.stderr.isatty() else Lines(config)


def warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr, flush=True)
