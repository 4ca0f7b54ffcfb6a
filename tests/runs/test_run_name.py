"""Names of runs for people: what tells them apart, and no more than W&B takes."""

import pytest

from repro.config.compose import compose
from repro.runs import run_name


def test_the_runs_of_a_sweep_have_names_that_tell_them_apart() -> None:
    def names(*words: str) -> list[str]:
        found = [run_name.name(config) for config in compose(list(words))]
        assert len(set(found)) == len(found)
        return found

    assert names("algo=dense,gtopk_exact", "nodes=4,8", "lr=0.05")[::3] == [
        "dense, ResNet-20 on CIFAR-10, P=4, lr=0.05", "gTop-k exact, ResNet-20 on CIFAR-10, P=8, lr=0.05"
    ]  # fmt: skip
    assert names("experiment=convergence", "model=vgg16", "algo=topk")[-1] == "Top-k, VGG-16 on CIFAR-10, P=4, seed=2"
    assert names("network=ethernet10g", "seed=3", "data=digits") == [
        "gTop-k, ResNet-20 on digits, P=4, network=ethernet10g seed=3"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        "cluster=lab node=paper cluster.dilation=8,16",
        "cluster=lab cluster.delay_s=0.001,0.002",
        "network.alpha_s=1e-3,2e-3",
        "network=ethernet10g network.alpha_s=1e-3,2e-3",
    ],
)
def test_what_differs_on_another_cluster_or_network_is_in_the_names(words: str) -> None:
    """Their options were left out with those that follow from the choice."""
    names = [run_name.name(config) for config in compose(words.split())]
    assert len(set(names)) == len(names) == 2


def test_a_name_is_no_longer_than_wandb_takes() -> None:
    """It refused 132 characters, and the run had no copy."""
    configs = [one for one in compose(["experiment=momentum"]) if one.nodes == 32 and one.algo.name == "gtopk"]
    found = {config.run_id: run_name.name(config) for config in configs[:8]}
    assert len(set(found.values())) == len(found) and max(map(len, found.values())) == 128
    cut = {run_id: name for run_id, name in found.items() if "..." in name}
    assert cut and all(name.endswith(f"... {run_id[-8:]}") for run_id, name in cut.items())
