"""What ranks are told that call unlike, or load states of other runs: a script for torchrun_loops.py on two ranks."""

import json
import re
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchrun_loops import BATCH, DENSITY, INPUTS, descent, network, train, weights

from repro import distributed
from repro.config.schema import ConfigError

UNLIKE: list[tuple[str, list[int], list[tuple[str, dict[str, Any]]]]] = [  # what ranks 0 and 1 call, of which outputs
    ("wrap", [4, 4], [("gtopk", {}), ("gtopk", {"gain": 10})]),
    ("wrap", [4, 4], [("gtopk", {"route": "butterfly"}), ("gtopk", {})]),
    ("wrap", [4, 4], [("randomk", {}), ("randomk", {"seed": 1})]),
    ("wrap", [4, 4], [("topk", {"density": 0.1}), ("topk", {"density": 0.5})]),
    ("wrap", [4, 4], [("topk", {}), ("dense", {})]),
    ("wrap", [4, 3], [("dense", {}), ("dense", {})]),
    ("wrap", [4, 4], [("dense", {"density": 0.1}), ("dense", {"seed": 1})]),  # which it does not use
    ("State", [4, 4], [("topk", {"density": 0.1}), ("topk", {"density": 0.5})]),
    ("State", [4, 4], [("dense", {}), ("dense", {"on_nonfinite": "skip"})]),
]


def goes_on(model_state: Any, state: Any, name: str, group: dist.ProcessGroup | None) -> dict[str, Any]:
    """A state of another algorithm or number of nodes, loaded by the words of the error: what a further step leaves."""
    model, optimizer = network()
    distributed.wrap(model, optimizer, name, density=DENSITY, group=group)
    try:
        optimizer.load_state_dict(state)
        return {"told": "nothing was raised"}
    except ConfigError as error:
        told = str(error)
    model, optimizer = network()
    model.load_state_dict(model_state)
    exec(re.findall("`(.*?)`", told)[0], {"state": state})
    optimizer.load_state_dict(state)
    distributed.wrap(model, optimizer, name, density=DENSITY, group=group)
    before = weights(model)
    model(INPUTS[1]).square().sum().backward()
    optimizer.step()
    steps = [int(kept["step"]) for kept in optimizer.state_dict()["state"].values() if "step" in kept]
    return {"told": told, "steps": steps, "moved": not torch.equal(before, weights(model))}


def fewer_nodes(own: slice, single: dist.ProcessGroup) -> dict[str, Any]:
    """A state of two nodes that each of them goes on with alone."""
    model, optimizer = network()
    distributed.wrap(model, optimizer, "gtopk", density=DENSITY)
    model(INPUTS[0, own]).square().sum().backward()
    optimizer.step()
    return goes_on(model.state_dict(), optimizer.state_dict(), "gtopk", single)


def called_unlike(rank: int, own: slice) -> list[str]:
    """What `wrap`, then `State`, say where this rank asks for something else than the other."""
    said = []
    for call, outputs, chosen in UNLIKE:
        model, (name, options) = nn.Linear(10, outputs[rank]), chosen[rank]
        try:
            if call == "State":
                parallel = DistributedDataParallel(model)
                parallel.register_comm_hook(distributed.State(name, **options), distributed.hook)
                train(parallel, *descent(model), range(4), own)
            else:
                distributed.wrap(model, descent(model, 0)[0], name, **options)
            said.append("nothing was raised")
        except ConfigError as error:
            said.append(str(error))
    return said


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    own = slice(rank * BATCH, (rank + 1) * BATCH)
    single = [dist.new_group([one]) for one in (0, 1)][rank]
    found = {"called_unlike": called_unlike(rank, own), "fewer_nodes": fewer_nodes(own, single)}
    print(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
