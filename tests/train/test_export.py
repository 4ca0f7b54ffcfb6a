"""A trained network leaves the suite: every format gives the logits and the accuracy of the run's own evaluation."""

import json
import re
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load as load_safetensors
from tiny_runs import config, latest

from repro import cli, data
from repro.config.schema import Config, ConfigError
from repro.data import cifar10
from repro.data._images.preprocess import Preprocessing
from repro.models import load as load_model
from repro.runs import checkpoint, run_folder, status_file
from repro.train import classify, export, loop, trained

ROOT = Path(__file__).parent.parent.parent
SIZE = ["data.image_size=8", "batch_per_node=16", "steps=12", "checkpoint_every=6"]
# A few float32 roundings a layer: ONNX Runtime folds BatchNorm into convolutions.
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Config]:
    """A run whose ranks have their own BatchNorm statistics, and one whose ranks have their own weights too."""
    folder = tmp_path_factory.mktemp("runs")
    chosen = {"gtopk": ["nodes=2"], "decentralized": ["nodes=4", "algo.topology=ring"]}
    made = {algo: config(folder, *SIZE, f"algo={algo}", *more) for algo, more in chosen.items()}
    for run in made.values():
        loop.run(run)
    return made


@pytest.fixture(scope="module")
def digits(runs, tmp_path_factory) -> tuple[list[Path], torch.Tensor, torch.Tensor]:
    """The test images as PNG files, as evaluation reads them, and their labels."""
    folder = tmp_path_factory.mktemp("digits")
    test = data.load(runs["gtopk"].data, 0).test
    files = [folder / f"{number:03}.png" for number in range(len(test))]
    for file, pixels in zip(files, test.images.numpy(), strict=True):
        Image.fromarray(pixels).save(file)
    ((images, labels),) = test.read([torch.arange(len(test)).numpy()], None)
    return files, images, labels


def evaluated(run: Config) -> float:
    return [line["test_accuracy"] for line in run_folder.read_metrics(run.folder) if line["kind"] == "eval"][-1]


def accuracy(logits: torch.Tensor, labels: torch.Tensor) -> float:
    return (logits.argmax(1) == labels).double().mean().item()


@torch.no_grad()
@pytest.mark.parametrize("algo", ["gtopk", "decentralized"])
def test_the_network_of_a_run_is_the_one_that_it_evaluated(algo, runs, digits):
    files, images, labels = digits
    classifier = classify.load(str(runs[algo].folder), Path("nowhere"))
    assert torch.equal(classifier.preprocessing.read(files), images)
    assert accuracy(classifier.logits(images), labels) == evaluated(runs[algo])
    _, found = latest(runs[algo].folder)
    ranks = [checkpoint.load(found, f"rank-0000{number}.pt", torch.device("cpu")) for number in range(runs[algo].nodes)]
    buffers = [buffer for buffer in classifier.logits.buffers() if buffer.is_floating_point()]
    for buffer, *each in zip(buffers, *(rank["statistics"] for rank in ranks), strict=True):
        assert not torch.equal(each[0], each[1])  # so that the mean is another network
        torch.testing.assert_close(buffer, torch.stack(each).mean(0))
    if algo == "decentralized":
        weights = torch.stack([rank["replica"]["parameters"] for rank in ranks])
        assert not torch.equal(weights[0], weights[1])
        flat = torch.nn.utils.parameters_to_vector(classifier.logits.parameters())
        torch.testing.assert_close(flat, weights.mean(0))


@torch.no_grad()
@pytest.mark.parametrize("name", export.FORMATS)
def test_every_format_gives_the_same_logits_and_says_what_it_is(name, runs, digits, tmp_path):
    files, images, labels = digits
    run = runs["gtopk"]
    file = export.run(run.folder, name, tmp_path / f"net{export.FORMATS[name].suffix}")
    expected = trained.load(run.folder)
    if name == "torch-export":
        extra = {"repro.json": ""}
        logits = torch.export.load(file, extra_files=extra).module()
        about = json.loads(extra["repro.json"])
        with zipfile.ZipFile(file) as archive:
            assert b'"use_pickle": true' not in b"".join(archive.read(entry) for entry in archive.namelist())
            assert not [entry for entry in archive.namelist() if archive.read(entry)[:2] in (b"PK", b"\x80\x02")]
    else:
        logits, preprocessing, names = classify.load(str(file), Path("nowhere"))
        about = expected.about
        assert torch.equal(preprocessing.read(files[:3]), images[:3]) and names == about["labels"]
    assert about == expected.about == json.loads(json.dumps(expected.about))
    for count in (1, len(images)):
        torch.testing.assert_close(logits(images[:count]), expected.model(images[:count]), **CLOSE)
    assert accuracy(logits(images), labels) == evaluated(run)
    content = file.read_bytes()
    assert str(ROOT).encode() not in content and torch.__file__.removesuffix("__init__.py").encode() not in content


def test_the_metadata_say_how_to_use_it_and_how_it_was_trained(runs):
    run = runs["gtopk"]
    about = trained.load(run.folder).about
    assert about["labels"] == list("0123456789")
    mean, std = run.data.options["mean"], run.data.options["std"]
    assert about["preprocessing"] == {
        "image_size": 8, "shorter_side": 8, "mean": mean, "std": std, "channels": "RGB",
    }  # fmt: skip
    training = about["training"]
    assert (training["run"], training["algorithm"], training["step"]) == (run.run_id, "gtopk", 12)
    assert training["epochs"] == 12 / (1437 // 32) and training["test_accuracy"] == evaluated(run)


def test_a_damaged_checkpoint_is_passed_over(runs, digits, tmp_path, capfd):
    """An older one was exported, and classified with, without a word."""
    folder = tmp_path / "run"
    shutil.copytree(runs["gtopk"].folder, folder)
    (folder / "checkpoints/step-000000012/shared.pt").write_bytes(b"cut")
    training = trained.load(folder).about["training"]
    assert (training["step"], training["test_accuracy"]) == (6, None)  # nothing was evaluated then
    expected = "warning: the checkpoint of step 12 is not used: shared.pt has changed\n"
    export.run(folder, "safetensors", tmp_path / "older.safetensors")
    assert capfd.readouterr().err == expected
    classify.run(str(folder), digits[0][:1], 1, tmp_path)
    assert capfd.readouterr().err == expected
    export.run(runs["gtopk"].folder, "safetensors", tmp_path / "whole.safetensors")
    assert capfd.readouterr().err == ""
    (folder / "provenance.json").unlink()
    export.run(folder, "safetensors", tmp_path / "older.safetensors")
    assert f"provenance.json is missing in {folder}: the file does not say which images" in capfd.readouterr().err
    (folder / "checkpoints/step-000000006/rank-00001.pt").write_bytes(b"cut")
    with pytest.raises(ConfigError, match=r"no checkpoint that can be used .*step 12.*step 6.*repro run"):
        trained.load(folder)
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(ConfigError, match="has no checkpoint: remove the folder and type"):  # it is done
        trained.load(folder)
    status_file.write(folder, "failed", 12, 12)
    with pytest.raises(ConfigError, match="has no checkpoint: type"):
        export.run(folder, "safetensors", tmp_path / "net.safetensors")
    assert not list(tmp_path.glob("net*"))


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "size", "plain"), [("resnet50", 32, "resnet50"), ("alexnet", 63, "alexnet"), ("vgg16", 32, "vgg16_bn")]
)
def test_torchvision_loads_the_state_dict(name, size, plain):
    from torchvision.models import get_model  # here, as it takes seconds

    model = load_model(name, 4, size, 0, torch.Generator()).eval()
    state = load_safetensors(export.safetensors(trained.Trained(model, {})))
    theirs = get_model(plain, num_classes=4).eval()
    if name == "vgg16":  # torchvision's has three linear layers after the same convolutions
        head = {key.rpartition(".")[2]: state.pop(key) for key in list(state) if key.startswith("46.")}
        theirs.features.load_state_dict(state)
        theirs.avgpool, theirs.classifier = torch.nn.AdaptiveAvgPool2d(1), torch.nn.Linear(512, 4)
        theirs.classifier.load_state_dict(head)
    else:
        theirs.load_state_dict(state)
    images = torch.rand(2, 3, size, size)
    torch.testing.assert_close(theirs(images), model(images))


def test_files_of_imagenet_are_made_ready_as_for_evaluation(imagenet_folder, tmp_path):
    images = ["data=imagenet", f"data.root={imagenet_folder}", "data.classes=4", "data.image_size=64"]
    chosen = config(tmp_path, "model=resnet20", *images).data
    loaded = data.load(chosen, 0, "stop")
    ((expected, _),) = loaded.test.read([torch.arange(5).numpy()], None)
    files = [loaded.test.folder / path for path in loaded.test.paths[:5]]
    ready = Preprocessing(64, data.shorter_side(chosen), chosen.options["mean"], chosen.options["std"])
    assert ready.shorter_side == 73 and torch.equal(ready.read(files), expected)
    trained_on = data.Content(loaded.description, loaded.fingerprint)
    assert data.labels(chosen, trained_on) == [f"n0000000{number}" for number in range(4)]
    assert data.labels(chosen, data.Content("imagenet", "others")) is None


def test_labels_of_cifar10_need_no_images_and_synthetic_ones_have_none(tmp_path):
    chosen = config(tmp_path, "data=cifar10", f"data.root={tmp_path}").data
    assert data.labels(chosen, data.Content("cifar10", "")) == list(cifar10.CLASSES)
    assert data.labels(chosen, data.Content("cifar10 (JPEG folder)", "0123")) is None  # whose names are not known
    assert data.labels(config(tmp_path, "data=synthetic").data, data.Content("synthetic", "")) is None


def test_what_cannot_be_exported_is_said_in_one_line_and_nothing_is_written(runs, tmp_path, monkeypatch):
    folder = runs["gtopk"].folder
    for name, out, said in [
        ("pickle", None, "--format pickle: .* Choose one of safetensors, torch-export, onnx"),
        ("onnx", tmp_path / "net.pt", r"must end in \.onnx"),
        ("onnx", tmp_path, "must end in"),
    ]:
        with pytest.raises(ConfigError, match=said):
            export.run(folder, name, out)
    monkeypatch.setattr(export.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="needs onnx and onnxscript.*uv sync --extra export"):
        export.run(folder, "onnx", tmp_path / "net.onnx")
    assert list(tmp_path.iterdir()) == []


class Tied(torch.nn.Module):
    """Has one weight under two names, as text networks do, and a branch that no graph can hold."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(192, 192), torch.nn.Linear(192, 192)
        self.second.weight = self.first.weight

    def forward(self, images):
        logits = self.second(self.first(images.flatten(1)))
        return logits if logits.sum() > 0 else -logits


def test_layers_that_share_a_weight_have_a_copy_each_and_a_branch_is_refused_in_one_line(runs, tmp_path, monkeypatch):
    about = trained.load(runs["gtopk"].folder).about
    network = trained.Trained(Tied().eval(), about | {"network": {"name": "tied"}})
    monkeypatch.setattr(trained, "load", lambda folder: network)
    state = load_safetensors(export.run(Path("run"), "safetensors", tmp_path / "net.safetensors").read_bytes())
    assert state.keys() == network.model.state_dict().keys()
    assert torch.equal(state["first.weight"], state["second.weight"])
    for name, suffix in (("torch-export", "pt2"), ("onnx", "onnx")):
        with pytest.raises(ConfigError) as caught:
            export.run(Path("run"), name, tmp_path / f"net.{suffix}")
        said = str(caught.value)
        assert re.fullmatch(
            f"model=tied cannot be written as {name}: .*data-dependent.*; try --format safetensors", said
        )
    assert [path.name for path in tmp_path.iterdir()] == ["net.safetensors"]


def test_a_run_is_found_by_its_names(runs, tmp_path):
    results = tmp_path / "results"
    folder = results / "default" / runs["gtopk"].folder.name
    shutil.copytree(runs["gtopk"].folder, folder)
    for name in (str(folder), folder.name, f"default/{folder.name}"):
        assert trained.folder_of(name, results) == folder
    shutil.copytree(folder, results / "other" / folder.name, ignore=shutil.ignore_patterns("checkpoints"))
    with pytest.raises(ConfigError, match="several experiments"):
        trained.folder_of(folder.name, results)
    with pytest.raises(ConfigError, match="no such run folder.*repro status"):
        trained.folder_of("nothing", results)


def test_files_that_are_no_networks_or_images_are_refused(runs, digits, tmp_path):
    run, (image, *_) = str(runs["gtopk"].folder), digits[0]
    for name in ("net.onnx", "net.safetensors", "bad.png"):
        (tmp_path / name).write_bytes(b"nothing of the kind")
    for name in ("net.onnx", "net.safetensors"):
        with pytest.raises(ConfigError, match="is no network that `repro export` wrote"):
            classify.load(str(tmp_path / name), tmp_path)
    for name, said in [("none.onnx", "there is no such file"), ("net.pt2", "there is no such file")]:
        with pytest.raises(ConfigError, match=said):
            classify.load(str(tmp_path / name), tmp_path)
    (tmp_path / "net.pt2").touch()
    with pytest.raises(ConfigError, match="can run code"):
        classify.load(str(tmp_path / "net.pt2"), tmp_path)
    for bad, said in [("bad.png", "is no JPEG or PNG"), ("none.png", "No such file")]:
        with pytest.raises(ConfigError, match=said):
            classify.run(run, [image, tmp_path / bad], 1, tmp_path)


def test_the_commands(runs, digits, tmp_path, monkeypatch, capfd):
    def repro(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["repro", *words, "--results", str(runs["gtopk"].folder.parent.parent)])
        code = cli._call()
        return code, *capfd.readouterr()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")  # or a long path is folded
    code, out, err = repro("export", str(runs["gtopk"].folder))
    assert code == 0 and "with labels" in " ".join(out.split()), err
    (file,) = tmp_path.iterdir()
    assert file.name == runs["gtopk"].run_id + ".safetensors"
    code, out, err = repro("predict", file.name, str(digits[0][0]), "--top", "2")
    assert code == 0 and out.count(str(digits[0][0])) <= 2 and "probability (%)" in out, err
    for words in (
        ["export", "nothing"],
        ["export", file.name, "--format", "pickle"],
        ["predict", file.name, "none.png"],
    ):
        code, out, err = repro(*words)
        assert (code, out) == (2, "") and err.startswith("repro: ") and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [file]
