"""One seed, one result: every algorithm with ranks as threads, as processes and under torchrun, compared to the bit.

    python benchmarks/same_bits.py [--nodes 4] [--steps 20] [algo=dense,gtopk] [KEY=VALUE ...]

Without algo= it takes algo=all. Prints, for each algorithm, the SHA-256 of all that the last checkpoint holds
(parameters, momentum, residuals, BatchNorm statistics, generators), and fails if any two ways differ.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from repro.config.compose import compose
from repro.runs import checkpoint


def tensors(item: object) -> Iterator[bytes]:
    """Every tensor and number in nested dicts and lists, in order."""
    if isinstance(item, dict):
        for key in sorted(item, key=str):
            yield str(key).encode()
            yield from tensors(item[key])
    elif isinstance(item, list | tuple):
        for part in item:
            yield from tensors(part)
    else:
        yield item.numpy().tobytes() if isinstance(item, torch.Tensor) else repr(item).encode()


def digest(folder: Path) -> str:
    """Returns the SHA-256, cut to 16 digits, of the newest whole checkpoint of a run's folder."""
    newest = checkpoint.newest_whole(folder / "checkpoints")
    total = hashlib.sha256()
    for path in sorted(newest.folder.glob("*.pt")):
        for part in tensors(checkpoint.load(newest.folder, path.name, torch.device("cpu"))):
            total.update(part)
    return total.hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    options, extra = parser.parse_known_args()
    algorithms = [] if any(word.startswith("algo=") for word in extra) else ["algo=all"]
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", str(options.nodes)]
    ways = {
        "threads": ([sys.executable, "-m", "repro"], "cluster=local"),
        "processes": ([sys.executable, "-m", "repro"], "cluster=processes"),
        "torchrun": ([sys.executable, *torchrun, "-m", "repro"], "cluster=environment"),
    }
    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as top:
        for way, (start, cluster) in ways.items():
            keys = [
                *algorithms, "data=digits", "batch_per_node=8", "density=0.01", "wandb.mode=disabled",
                f"nodes={options.nodes}", f"steps={options.steps}", cluster, f"results={top}/{way}", *extra,
            ]  # fmt: skip
            subprocess.run([*start, "run", *keys], check=True, stdout=subprocess.DEVNULL)
            for config in compose(keys):
                found.setdefault(config.algo.name, {})[way] = digest(config.folder)
    print(f"{options.nodes} ranks, {options.steps} steps, ResNet-20 on digits")
    for name, digests in found.items():
        print(f"{name:28}", "  ".join(f"{way} {value}" for way, value in digests.items()))
    if any(len(set(digests.values())) > 1 for digests in found.values()):
        raise SystemExit("the bits differ")


if __name__ == "__main__":
    main()
