"""Lists the authors' machines, and those that the committed runs were made on."""

from typing import Any

from repro.report import same_machine
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "II. Hardware"
COMMAND = "repro results collect"


def table(results: Results) -> list[Row]:
    theirs = results.paper["hardware"]
    rows = [_row("paper (article)", theirs["nodes"], theirs["gpu"], theirs["network"], "")]
    for experiment, group in results.all_groups():
        row = _row("ours: " + experiment, "", _device(group.machine), "", _versions(group.machine))
        if row not in rows:
            rows.append(row)
    return _merged(rows)


def _row(where: str, nodes: Any, device: str, network: str, software: str) -> Row:
    return {
        "where": where,
        "source": "published" if nodes else "recorded",
        "machines": nodes,
        "device": device,
        "network": network,
        "software": software,
    }


def _device(machine: dict[str, Any]) -> str:
    if gpus := same_machine.gpus(machine):
        return ", ".join(gpus)
    processor = same_machine.processor(machine)
    kind = f" ({processor})" if processor and processor != machine.get("cpu") else ""
    return f"{machine.get('cpu', 'CPU')}{kind}, {machine.get('cpus', '?')} cores"


def _versions(machine: dict[str, Any]) -> str:
    wanted = ("python", "torch")
    return ", ".join(f"{name} {machine['versions'][name]}" for name in wanted if name in machine.get("versions", {}))


def _merged(rows: list[Row]) -> list[Row]:
    """Puts experiments of the same machine and software in one row."""
    first, *ours = rows
    places: dict[tuple[str, str], list[str]] = {}
    for row in ours:
        places.setdefault((row["device"], row["software"]), []).append(row["where"].removeprefix("ours: "))
    return [first] + [
        _row("ours: " + ", ".join(names), "", device, "", software) for (device, software), names in places.items()
    ]
