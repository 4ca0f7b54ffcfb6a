"""The run folder: config.yaml, provenance.json, metrics.jsonl, status.json, and its mirror in W&B.

metrics.jsonl is the truth: one JSON object a line, `kind` says which. status.json says `done` only after the
last line is on the disk. Rank 0 alone writes.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from repro import environment, lock, preempt, progress, provenance
from repro.config import Config, ConfigError, RunError, to_yaml
from repro.lock import Lock

SUMMED_UP = ("compute_s", "compress_s", "communicate_s", "hidden_s", "source", "network")


class RunFolder:
    """A context in which rank 0 writes. Leaving it by an exception writes `failed` and the reason."""

    def __init__(self, config: Config, description: str, device: Any):
        self.config, self.folder = config, config.folder
        self.step, self.steps = 0, 0
        self.said = ""
        self.description, self.device = description, str(device)

    def __enter__(self) -> RunFolder:
        self.lock = Lock(self.folder)
        try:
            self._open()
        except BaseException:
            self.lock.release()
            raise
        return self

    def _open(self) -> None:
        (self.folder / "config.yaml").write_text(to_yaml(self.config))
        earlier = _read_json(self.folder / "provenance.json")
        sessions = [*earlier.get("earlier", []), *([_session(earlier)] if earlier else [])]
        self.provenance = {
            **provenance.describe(self.device, self.description),
            "start": _now(),
            "end": None,
            "earlier": sessions,
        }
        self._save_provenance()
        self.metrics = open(self.folder / "metrics.jsonl", "a")  # noqa: SIM115  (closed on exit)
        self.mirror = Mirror(self.config)
        self.progress = progress.show(self.config)
        self.status("running", 0, 0)

    def resume(self, step: int) -> None:
        """Go on after `step`: what an earlier, longer life wrote beyond it is cut off, as is a torn line."""
        self.metrics.close()
        lines = read_metrics(self.folder)
        kept = [line for line in lines if step and line.get("step", 0) <= step]
        _write(self.folder / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in kept))
        self.metrics = open(self.folder / "metrics.jsonl", "a")  # noqa: SIM115
        self.provenance["resumed_at"] = step
        self._save_provenance()
        if step:
            self.progress.say(f"resuming {self.folder} after step {step}")

    def log(self, line: dict[str, Any]) -> None:
        self.metrics.write(json.dumps(line) + "\n")
        self.metrics.flush()
        self.mirror.log(line)
        self.progress.log(line)

    def status(self, state: str, step: int, steps: int, error: str | None = None) -> None:
        """`running`, `done`, `failed` or `preempted`. The metrics are on the disk before `done` is."""
        self.step, self.steps, self.said = step, steps, state
        if state != "running":
            os.fsync(self.metrics.fileno())
        write_status(self.folder, state, step, steps, error)
        self.progress.steps(step, steps)

    def _save_provenance(self) -> None:
        _write(self.folder / "provenance.json", redact(json.dumps(self.provenance, indent=1)) + "\n")

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        try:
            if error is not None and self.said == "running":
                text = str(error) if isinstance(error, RunError) else f"{type(error).__name__}: {error}"
                write_status(self.folder, "failed", self.step, self.steps, text)
            self.metrics.close()
            self.provenance["end"] = _now()
            self._save_provenance()
        except OSError:
            if error is None:  # a full disk, say; do not hide what went wrong first
                raise
        finally:
            self.progress.close()
            self.mirror.finish(summary(self.folder), ok=error is None)
            self.lock.release()


def write_status(folder: Path, state: str, step: int, steps: int, error: str | None = None) -> None:
    text = json.dumps({"state": state, "step": step, "steps": steps, "error": error, "updated": _now()})
    _write(folder / "status.json", redact(text) + "\n")


def failed(folder: Path, error: str) -> None:
    """Say `failed` for a rank 0 that could not: unless it could, or the folder is another process's."""
    status, owner = _read_json(folder / "status.json"), lock.holder(folder)
    ours = owner is None or owner["pid"] == os.getpid() or owner.get("job") == (environment.start() or "none")
    if status.get("state") != "running" or not ours:
        return
    try:
        write_status(folder, "failed", status.get("step", 0), status.get("steps", 0), error)
    except OSError:
        return  # the error itself still reaches the screen


def state(folder: Path) -> str | None:
    """The state in status.json, None where there is none."""
    return _read_json(folder / "status.json").get("state")


def check_writable(folder: Path) -> None:
    """Raises ConfigError where the run folder could not be made or written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".writable-{os.getpid()}"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"The run folder {folder} cannot be written: {error.strerror or error}. "
            f"Name another place with results=FOLDER."
        ) from None


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl; a last line that a kill tore is left out."""
    try:
        text = (folder / "metrics.jsonl").read_text()
    except OSError:
        return []
    lines = []
    for line in text.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines


def summary(folder: Path) -> dict[str, Any]:
    """What the table at the end shows; None = not there.

    Measured times go before modelled ones, the chosen network's before those of `also_on`.
    """
    status, lines = _read_json(folder / "status.json"), read_metrics(folder)
    last: dict[str, dict[str, Any]] = {}
    for line in lines:
        if line["kind"] != "iteration_time" or line["source"] == "measured" or "iteration_time" not in last:
            last[line["kind"]] = line
    step, evaluation, times = last.get("step", {}), last.get("eval", {}), last.get("iteration_time", {})
    return {
        "test_accuracy": evaluation.get("test_accuracy"),
        "loss": evaluation.get("train_loss", step.get("loss")),
        "images_per_s": evaluation.get("samples_per_s"),
        "epochs": evaluation.get("epoch"),
        "bytes_sent_per_step": last_period(lines, "bytes_sent"),
        "messages_per_step": last_period(lines, "messages"),
        **{name: times.get(name) for name in SUMMED_UP},
        "folder": str(folder),
        "state": status.get("state"),
        "error": status.get("error"),
        "step": status.get("step"),
        "steps": status.get("steps"),
    }


def last_period(lines: list[dict[str, Any]], name: str) -> float | None:
    """`name` of the last step; its mean over the last period of an algorithm that is not alike in every step."""
    steps = [line for line in lines if line["kind"] == "step"]
    values = [line.get(name) for line in steps[-steps[-1].get("period", 1) :]] if steps else []
    known = [value for value in values if value is not None]
    if len(values) == 1 or not known:
        return values[-1] if values else None
    return sum(known) / len(known)


def redact(text: str) -> str:
    """No W&B key in anything that is written."""
    secret = os.environ.get("WANDB_API_KEY")
    return text.replace(secret, "WANDB_API_KEY") if secret else text


class Mirror:
    """W&B as a copy. It never asks, and when it fails, training goes on and one line says so."""

    def __init__(self, config: Config):
        self.run: Any = None
        self.config = config
        if config.wandb.mode != "disabled":
            with preempt.shielded():
                self._try(self._start, config)

    def _start(self, config: Config) -> None:
        import dataclasses

        import wandb

        mode = config.wandb.mode
        if mode == "online" and not _logged_in(wandb):
            progress.warn("wandb.mode=online, but there is no API key: going on offline. `wandb login` stores one.")
            mode = "offline"
        self.run = wandb.init(
            mode=mode, project=config.wandb.project, group=config.experiment, name=config.run_id,
            id=f"{config.folder.parent.name}-{config.run_id}"[:128],
            resume="allow" if mode == "online" else None,
            dir=config.folder, config=dataclasses.asdict(config),
            settings=wandb.Settings(silent=True, console="off", init_timeout=30, x_disable_stats=True),
        )  # fmt: skip

    def log(self, line: dict[str, Any]) -> None:
        if self.run is not None:
            kind = line["kind"]
            values = {f"{kind}/{k}": v for k, v in line.items() if k not in ("kind", "step") and v is not None}
            self._try(self.run.log, values, step=line.get("step"))

    def finish(self, values: dict[str, Any], ok: bool) -> None:
        if self.run is not None:
            self._try(self.run.summary.update, {k: v for k, v in values.items() if v is not None})
        if self.run is not None and values.get("state") == "done":
            self._try(self._figures)
        if self.run is not None:
            self._try(self.run.finish, exit_code=0 if ok else 1)

    def _figures(self) -> None:
        """The experiment's figures and the claims, with every run of it that is done: the last one has them all."""
        import wandb

        from repro import plots

        folder = self.config.folder
        name, runs = self.config.experiment, Path(self.config.results)
        drawn, claims = plots.of_experiment(name, runs, folder / "figures")
        shown = {f"figures/{name}": wandb.Image(str(path)) for name, path in drawn.items()}
        if claims:
            rows = [[str(cell or "") for cell in row.values()] for row in claims]
            self.run.log({**shown, "claims": wandb.Table(columns=list(claims[0]), data=rows)})

    def _try(self, action: Any, *arguments: Any, **options: Any) -> None:
        try:
            action(*arguments, **options)
        except Exception as error:  # whatever W&B does, the run does not end by it
            self.run = None
            progress.warn(f"W&B: {redact(str(error))}. Training goes on; metrics.jsonl has everything.")


def _logged_in(wandb: Any) -> bool:
    try:
        return wandb.login(prompt=False)
    except TypeError:  # before 0.30 it could not be told not to ask
        return bool(wandb.api.api_key)


def _session(record: dict[str, Any]) -> dict[str, Any]:
    return {name: record.get(name) for name in ("argv", "git", "host", "device", "start", "end")}


def _write(file: Path, text: str) -> None:
    """Whole or not at all, also after a power cut."""
    unfinished = file.with_name(file.name + ".unfinished")
    with open(unfinished, "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    unfinished.replace(file)


def _read_json(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return {}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
