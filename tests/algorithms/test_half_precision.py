"""Gradients and weights in half precision: what float16 cannot hold, and weights that round a step away."""

import pytest
import torch
from algorithm_steps import M, held
from thread_ranks import on_ranks

from repro import algorithms
from repro.comm.critical_paths import critical_paths
from repro.config import compose
from repro.timing import dry_run, node_profile

LARGEST = torch.finfo(torch.float16).max


@pytest.mark.parametrize("name", ["dense", "parameter_server", "fp16", "ddp", "bytegrad"])
def test_a_mean_that_float16_holds_arrives_where_the_sum_does_not_fit(name: str) -> None:
    """The weights became infinite without an error, where PyTorch's DDP divides first."""
    choice = compose.algorithm(name, {})

    def body(collective):
        return algorithms.load(choice, M).step(torch.full((M,), 30_000.0, dtype=torch.float16), collective)

    for update in on_ranks(4, body):
        assert torch.allclose(update.float(), torch.full((M,), 30_000.0), rtol=1e-2)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("topk", {}),
        ("gtopk_butterfly", {}),
        ("gtopk_exact", {"gain": 10.0}),
        ("gtopk_corrected", {"residual": "exact", "gain": 10.0}),
        ("scalecom", {"gain": 10.0}),
        ("randomk", {}),
        ("onebit", {"gain": 10.0}),
        ("topk", {"correction": 0.9, "gain": 1.0}),
    ],
)
def test_what_float16_cannot_hold_waits_in_a_residual(name: str, options: dict[str, object]) -> None:
    """An infinite update left minus infinity in the residual, and NaN in the next step."""
    choice, steps = compose.algorithm(name, options), 4
    x = torch.full((M,), 30_000.0, dtype=torch.float16)

    def body(collective):
        algorithm = algorithms.load(choice, M)
        algorithm.density = 0.3
        updates = [algorithm.step(x.clone(), collective).float() for _ in range(steps)]
        return torch.stack(updates), held(algorithm, collective.rank)

    ranks = on_ranks(2, body)
    updates, residual = ranks[0][0], sum(held.double() for _, held in ranks)
    assert updates.isfinite().all() and updates.max() == LARGEST and residual.isfinite().all()
    if "correction" not in options:
        given = steps * len(ranks) * 30_000.0
        there = len(ranks) * updates.double().sum(0) / choice.gain + residual
        assert torch.allclose(there, torch.full((M,), given, dtype=torch.float64), rtol=1e-3)


def test_weights_that_round_a_step_away_do_not_take_it_back() -> None:
    """SparseLoCo and DCD-PSGD took the rounding of the weights for a step of the rank, and sent it."""
    step = 2.0**-8  # from 1 to the next smaller bfloat16

    def points(name: str, moves: tuple[bool, bool], **options: float) -> list[float]:
        """Where the ranks stand without rounding, once those that move have gone one step, and some exchanges later."""
        choice = compose.algorithm(name, options)

        def body(collective):
            algorithm, weights = algorithms.load(choice, 8), torch.ones(8, dtype=torch.bfloat16)
            algorithm.begin(weights)
            weights -= step * moves[collective.rank]
            for _ in range(4):
                algorithm.mix(weights, collective)
            at = algorithm.start if name == "sparseloco" else algorithm.known[0]
            return at.mean().item()

        return on_ranks(2, body)

    assert points("sparseloco", (True, True), period=1, outer_lr=0.25) == [1 - step / 4] * 2
    assert sum(points("low_precision_decentralized", (True, False))) == 2 - step


@pytest.mark.parametrize("nodes", [5, 6, 7, 12])
def test_a_path_through_buckets_is_that_through_each(nodes: int) -> None:
    """Beyond a power of two the butterfly's was a quarter too short, as one round was left out for all buckets."""
    words = ["algo=gtopk_butterfly", "bucket_mb=1", "scope=bucket", "model=resnet20", "density_warmup=[]"]
    (config,) = compose.compose([*words, f"nodes={nodes}", "node=paper", "cluster=lab"])
    shapes = node_profile.layers(config)
    spans = algorithms.spans(config, shapes)
    parts = dry_run.in_parts(config, nodes, shapes, spans)
    waited = [max(critical_paths(part), key=lambda chain: chain[1]) for part in parts]
    path = algorithms.step_path(config, shapes)
    assert len(spans) > 1
    assert (path.rounds, path.bytes) == tuple(map(sum, zip(*waited, strict=True)))
