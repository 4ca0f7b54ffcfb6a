"""A band beside a line is said to be one, and of what; where there is none, nothing is said."""

import made_up_groups
import made_up_results
import pytest

from repro import figures
from repro.report.summaries import Results

SAID = "Bands: one standard deviation over seeds either side."


@pytest.mark.parametrize("n_seeds", [1, 2])
@pytest.mark.parametrize("name", ["convergence", "select_from_k_times_P", "density_sensitivity", "batch_sensitivity"])
def test_a_caption_explains_the_bands_of_several_seeds(name: str, n_seeds: int) -> None:
    """No caption did, so that a reader could take them for errors of the mean, or for the range."""
    made = [
        made_up_groups.group("resnet20", algo, batch=batch, n_seeds=n_seeds)
        for algo in ("dense", "gtopk")
        for batch in (32, 64)
    ]
    (item,) = figures.load([name])
    figure, notes = figures.drawn(item, item.table(Results(made_up_results.nothing().paper, {name: {"groups": made}})))
    assert any(axes.collections for axes in figure.axes) == (n_seeds > 1)
    assert (SAID in notes) == (n_seeds > 1)
