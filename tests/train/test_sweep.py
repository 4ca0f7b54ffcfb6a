"""What is checked before the first of several runs."""

from pathlib import Path

import pytest

from repro.config.compose import compose
from repro.config.schema import ConfigError
from repro.data import cifar10
from repro.train import sweep


@pytest.mark.parametrize("models", ["alexnet", "resnet20,alexnet"])
def test_what_is_impossible_is_said_before_a_download(
    models: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """170 MB came first, and then the error."""
    monkeypatch.setattr(cifar10, "URL", "http://127.0.0.1:1/cifar-10-python.tar.gz")  # refuses at once
    keys = ["data=cifar10", f"data.root={tmp_path / 'data'}", f"results={tmp_path}", "wandb.mode=disabled"]
    with pytest.raises(ConfigError, match="model=alexnet needs images of at least 63x63"):
        sweep.run(compose([f"model={models}", *keys]), lambda *_: [])
    with pytest.raises(ConfigError, match="could not be downloaded"):
        sweep.run(compose(["model=resnet20", *keys]), lambda *_: [])
