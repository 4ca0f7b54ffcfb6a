"""How a network's test result is called, written and compared: accuracy on images, perplexity on text."""

import pytest

from repro import metric
from repro.config.compose import compose
from repro.config.schema import ConfigError
from repro.metric import ACCURACY, PERPLEXITY


def test_the_data_say_which_measure_it_is():
    for word, measure in (("model=resnet20", ACCURACY), ("model=lstm", PERPLEXITY), ("model=lstm_small", PERPLEXITY)):
        assert compose([word])[0].data.metric is measure
    assert metric.of({"name": "cifar10", "image_size": 32}) is ACCURACY  # of a summary from before there was text
    assert metric.of_line({"test_perplexity": 90.0}) is PERPLEXITY and metric.of_line({}) is ACCURACY
    assert metric.of_line({"test_perplexity": None}) is PERPLEXITY, "it diverged"


def test_values_are_written_in_their_unit():
    assert (ACCURACY.said(0.8747), ACCURACY.short(0.8747)) == ("accuracy 87.47 %", "87.5 %")
    assert (PERPLEXITY.said(113.24), PERPLEXITY.short(113.24)) == ("perplexity 113.2", "113.2")
    assert (ACCURACY.cell(0.5), PERPLEXITY.cell(90.0), PERPLEXITY.cell(None)) == (50.0, 90.0, None)


def test_less_perplexity_is_better():
    assert ACCURACY.reached(0.8, 0.75) and not ACCURACY.reached(0.7, 0.75) and not ACCURACY.reached(None, 0.75)
    assert PERPLEXITY.reached(80, 90) and not PERPLEXITY.reached(100, 90)
    assert not PERPLEXITY.reached(PERPLEXITY.worst, 1e300) and not ACCURACY.reached(ACCURACY.worst, 1e-9)
    assert ACCURACY.best([0.1, None, 0.3]) == 0.3 and PERPLEXITY.best([90.0, None, 80.0]) == 80.0
    assert PERPLEXITY.best([None]) is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model=resnet20", "data=text"], "model=resnet20 reads images, and data=text has text; type data=cifar10"),
        (["model=lstm", "data=digits"], "model=lstm reads text, and data=digits has images; type data=text"),
        (["model=lstm", "data.image_size=32"], "there is no key data.image_size"),
        (["model=lstm", "data.sequence=0"], "data.sequence=0: must be at least 1"),
        (["data.image_size=0"], "data.image_size=0: must be at least 1"),
    ],
)
def test_what_does_not_fit_together_is_told(words, message):
    with pytest.raises(ConfigError, match=message):
        compose(words)
