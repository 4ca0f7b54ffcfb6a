"""Overrides become the right configurations, or an error that says what to type."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from repro.config import explain, groups
from repro.config.compose import compose, declared, from_yaml, to_yaml
from repro.config.schema import Config, ConfigError


def one(*overrides: str) -> Config:
    (found,) = compose(list(overrides))
    return found


@pytest.mark.parametrize("group", [g for g in groups.GROUPS if g != "experiment"])
def test_every_option_of_every_group_composes(group: str) -> None:
    for name in groups.group_options(group):
        text = group == "data" and "sequence" in declared(group, name)
        found = one(f"{group}={name}", *(["model=lstm"] if text else []))
        assert getattr(found, group).name == name


@pytest.mark.parametrize("name", groups.group_options("experiment"))
def test_every_experiment_composes(name: str) -> None:
    found = compose([f"experiment={name}", "algo=gtopk", "seed=0"])
    assert {c.experiment for c in found} == {name}
    for c in (one for one in found if name != "tradeoff" and one.node is None):  # the others train nothing
        images = c.data.options.get("train_images", 1_000_000)
        assert images >= c.nodes * c.batch, f"{c.run_id} has no images for one step"
    assert groups.cost(name)  # said before it starts


def test_the_models_settings_are_the_published_ones() -> None:
    root = Path(__file__).parents[2]
    paper = yaml.safe_load((root / "results" / "paper.yaml").read_text())
    for model, theirs in paper["models"].items():
        if model not in groups.group_options("model"):
            continue
        ours = one(f"model={model}")
        assert ours.data.name == theirs["dataset"]
        assert ours.lr_drops == paper["training"]["lr_drops"].get(theirs["dataset"], [])
        for key in ("batch_per_node", "lr", "epochs", "weight_decay", "momentum"):
            assert getattr(ours, key) == theirs[key], (model, key)


def test_every_hyperparameter_names_its_source() -> None:
    told = {
        "name",
        "title",
        "sparse",
        "family",
        "error_feedback",
        "union",
        "all_send",
        "cost",
        "source",
        "update",
        "use",
        "unlike",
        "file",
        "reads",
    }
    seen = 0
    for group, said in (("model", "^(authors|ours|not in the paper)"), ("algo", ".")):
        for path in (groups.conf_folder() / group).glob("*.yaml"):
            for key, value, comment in explain.lines(path):
                first, *_ = key.removeprefix(f"{group}.").split(".")
                if value and first not in (*told, "ranges", "choices"):
                    assert re.search(said, comment), (path, key)
                    seen += 1
    assert seen > 100


def test_dense_ignores_density() -> None:
    dense = one("algo=dense", "density=0.01")
    assert (dense.density, dense.density_warmup) == (1.0, [])


def test_a_gain_takes_the_place_of_momentum_that_there_is() -> None:
    """A language model, which the authors train without, got steps ten times those of dense."""
    for algo in ("gtopk_corrected", "gtopk_exact", "onebit"):
        assert one(f"algo={algo}").algo.gain == one(f"algo={algo}", "model=vgg16").algo.gain == 10
        assert one(f"algo={algo}", "model=lstm_small").algo.gain == 1
        assert one(f"algo={algo}", "model=lstm_small", "algo.gain=3").algo.gain == 3
        assert groups.gain({"name": algo, "gain": 40.0}, "lstm_small") == {}, "an experiment's own file chose it"
    assert [each.algo.gain for each in compose(["algo=dense,gtopk_exact", "model=lstm,resnet20"])] == [1, 1, 1, 10]


def test_the_model_chooses_the_data_unless_the_user_does() -> None:
    assert one("model=alexnet").data.name == "imagenet"
    assert one("model=alexnet", "data=synthetic").data.name == "synthetic"


def test_a_network_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "my lab.yaml"
    path.write_text("alpha_s: 1e-4\nbeta_s_per_byte: 2e-9\n")
    network = one(f"network={path}").network
    assert (network.name, network.alpha_s, network.beta_s_per_byte) == ("my lab", 1e-4, 2e-9)
    for words in ([f"network={path}", "network.alpha_s=0"], ["network.alpha_s=0", f"network={path}"]):
        assert one(*words).network.alpha_s == 0, "in either order"
        assert one(*words).network.name == f"{network.name}_changed"
    path.write_text("alpha_s: 1e-4\n")
    with pytest.raises(ConfigError, match="expected .* beta_s_per_byte"):
        compose([f"network={path}"])


def test_a_key_that_a_network_does_not_have_is_refused_in_its_file(tmp_path: Path) -> None:
    """A line rate under a misspelt key was left out without a word."""
    path = tmp_path / "mine.yaml"
    for key, hint in {"bit_per_s": "Did you mean bits_per_s?", "foo": "It has name, title, alpha_s"}.items():
        path.write_text(f"alpha_s: 1e-4\nbeta_s_per_byte: 2e-9\n{key}: 3\n")
        with pytest.raises(ConfigError, match=f"there is no key {key}.*{re.escape(hint)}"):
            compose([f"network={path}"])
    root = Path(__file__).parents[2]
    for file in [*root.glob("conf/network/*.yaml"), *root.glob("results/lab/**/network.yaml")]:
        assert one(f"network={file}").network.alpha_s > 0


WRONG = {
    "densty=0.1": "Did you mean density?",
    "model=resnet2": "Did you mean model=resnet20?",
    "algo=gtopq": "gtopk_butterfly",
    "algo.rout=tree": "Did you mean algo.route?",
    "algo.nope=1": "It has algo.selector, algo.wire",
    "network=/nosuch.yaml": "network=/nosuch.yaml: there is no such file; `repro bench network` writes one.",
    "algo.route=ring": "choose one of tree, butterfly",
    "algo.route=3": "expected a text",
    "algo.selector=best": "choose one of exact",
    "algo.name=topk": "fixed by algo=NAME",
    "algo.choices.route=x": "fixed by algo=NAME",
    "density=0": "at least 1e-12 and at most 1",
    "density=5": "at least 1e-12 and at most 1",
    "density_warmup=[0.5,0]": "density_warmup=0",
    "nodes=0": "at least 1",
    "nodes=2.5": "whole number",
    "nodes=true": "whole number",
    "nodes=many": "whole number",
    "nodes=": "whole number",
    "nodes": "KEY=VALUE",
    "epochs=-1": "at least 1",
    "lr=nan": "finite",
    "lr=inf": "finite",
    "lr=[1]": "expected a number",
    "density=abc": "expected a number, at least 1e-12 and at most 1",
    "data.std=[a,b,c]": "expected a number, at least 1e-06",
    "lr_drops=81": r"lr_drops=\[81\]",
    "lr_drops=[3,2]": "ascend",
    "lr_drops.x=3": "no key lr_drops.x",
    "steps=0": "at least 1",
    "precision=float16": "float32, bfloat16",
    "device=gpu": "auto, cpu, cuda",
    "wandb=3": "Did you mean wandb.mode?",
    "wandb.mode=always": "offline, online, disabled",
    "wandb.mod=offline": "Did you mean wandb.mode?",
    "network=nowhere.yaml": "nowhere.yaml",
    "network.alpha_s=-1": "at least 0",
    "+nodes=4": "only KEY=VALUE",
    "++nodes=4": "only KEY=VALUE",
    "~model": "only KEY=VALUE",
    "model@other=vgg16": "only KEY=VALUE",
    "hydra.run.dir=x": "only KEY=VALUE",
    "also_on=[ethernet]": "Did you mean also_on=ethernet1g?",
    "also_on=ethernet10g": r"also_on=\[ethernet10g\]",
    "results=$(date)": "quotes",
    "lr=${no_such_key}": "no_such_key",
    "sweep.algo=dense": "no key sweep.algo",
    "nodes=4,0": "at least 1",
    "nodes=glob(*)": "no values in it; type nodes=A,B",
    "lr=interval(0,1)": "no values in it; type lr=A,B",
    "seed=range(3,1)": "no values in it; type seed=A,B",
    "nodes=99999999999999999999": "at most 4096",
    "seed=${nodes}": "conf/ only",
    "results=${oc.env:HOME}": "conf/ only",
    "machines=9": "at most nodes=4",
    "data.mean=[a,b,c]": "expected a number",
    "data.fingerprint=123456789012": "a text, in quotes within quotes if it looks like a number",
    "nodes=1,": "between two values: nodes=1",
    "density=0.1,,0.2": "between two values: density=0.1,0.2",
    "algo=all,dense": "algo=all stands alone",
    "network=a.yaml,b.yaml": "one file at a time",
    "results=2026": "a text, in quotes within quotes if it looks like a number",
    "data.std=[1,1]": "3 numbers, each at least 1e-06",
    "seed=" + 5000 * "1": "the value cannot be read",
}


@pytest.mark.parametrize("override", WRONG, ids=lambda text: text[:40])
def test_what_is_wrong_is_said_in_one_message(override: str) -> None:
    with pytest.raises(ConfigError, match=WRONG[override].replace("?", r"\?")) as caught:
        compose([override])
    assert "\n" not in str(caught.value)


def test_an_experiments_learning_rate_is_none_of_an_algorithm_that_has_its_own() -> None:
    """SGD's 20 took the place of Adam's 0.001 without a word."""
    with pytest.raises(ConfigError, match="sets lr=20, and algo=qadam, .* of its own; type lr=0.001, or lr=20$"):
        compose(["experiment=language", "algo=qadam"])
    own = compose(["experiment=language", "algo=qadam,topk", "lr=0.001"])
    other = compose(["experiment=language", "algo=gtopk_exact"])
    assert [one.lr for one in (*own, *other)] == [0.001, 0.001, 20.0]


def test_an_option_of_another_algorithm_is_unknown() -> None:
    with pytest.raises(ConfigError, match="algo.route"):
        compose(["algo=dense", "algo.route=tree"])


def test_yaml_and_back(tmp_path: Path) -> None:
    for c in compose(["experiment=quickstart"]) + compose(["model=alexnet", "lr=1e-7"]):
        (tmp_path / "config.yaml").write_text(to_yaml(c))
        assert from_yaml(tmp_path / "config.yaml") == c
    (tmp_path / "config.yaml").write_text("nonsense: 1")
    with pytest.raises(ConfigError, match="this version"):
        from_yaml(tmp_path / "config.yaml")


def test_a_new_algorithm_declares_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = tmp_path / "conf"
    shutil.copytree(groups.conf_folder(), conf)
    monkeypatch.setattr(groups, "conf_folder", lambda: conf)
    options = "every: 8\nrate: 0.5\nmode: a\nchoices: {mode: [a, b]}\nranges: {rate: {low: 0, below: every}}\n"
    (conf / "algo" / "mine.yaml").write_text("name: mine\nsparse: false\n" + options)
    assert one("algo=mine", "algo.rate=1").algo.options == {"every": 8, "rate": 1.0, "mode": "a"}
    for wrong, message in {
        "every=a": "whole",
        "rate=8": "at least 0 and below every=8",
        "mode=c": "one of a, b",
        "evry=4": "algo.every",
    }.items():
        with pytest.raises(ConfigError, match=message):
            compose(["algo=mine", f"algo.{wrong}"])
    (conf / "experiment" / "typo.yaml").write_text("# @package _global_\nepoch: 3\n")
    with pytest.raises(ConfigError, match="Did you mean epochs"):
        compose(["experiment=typo"])
    (conf / "algo" / "torn.yaml").write_text("name: [")
    with pytest.raises(ConfigError, match="torn.yaml, line 1: expected the node content"):
        compose(["algo=torn", "nodes=2"])
    (conf / "algo" / "dense_or_not.yaml").write_text("name: dense_or_not\n")
    with pytest.raises(ConfigError, match="^conf/algo/dense_or_not.yaml lacks sparse; docs/adding.md"):
        compose(["algo=dense_or_not"])
    with pytest.raises(ConfigError, match=r"^algo.gain=2 \(algo=dense\): .* algo.gain. This algo has no options"):
        compose(["algo=dense", "algo.gain=2"])
    (conf / "algo" / "empty.yaml").write_text("sparse: true\n")
    with pytest.raises(ConfigError, match="without a name"):
        compose(["algo=empty"])
    (conf / "algo" / "copied.yaml").write_text("name: mine\nsparse: false\n")  # and its runs were called mine
    with pytest.raises(ConfigError, match=r"conf/algo/copied\.yaml: its name is mine.*write `name: copied`"):
        compose(["algo=copied"])
    (conf / "algo" / "strange.yaml").write_text("name: strange\nsparse: false\nfamily: sparze\n")
    with pytest.raises(ConfigError, match="there is no family sparze; choose one of full precision, "):
        compose(["algo=strange"])


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("experiment/mine.yaml", "# Cost: nothing\nnodes: 8\n", "first line must be `# @package _global_`"),
        ("experiment/mine.yaml", "# @package _global_\nsweep: [1, 2]\n", "or a list of such blocks"),
        ("experiment/mine.yaml", "# @package _global_\nsweep: nodes\n", "or a list of such blocks"),
        ("network/mine.yaml", "- 1\n", "conf/network: "),
    ],
)
def test_a_file_of_another_form_is_refused(
    file: str, text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first was taken, without its keys."""
    conf = tmp_path / "conf"
    shutil.copytree(groups.conf_folder(), conf)
    (conf / file).write_text(text)
    monkeypatch.setattr(groups, "conf_folder", lambda: conf)
    with pytest.raises(ConfigError, match=re.escape(message)):
        compose([f"{file.partition('/')[0]}=mine"])


def test_a_network_that_was_changed_does_not_keep_its_name() -> None:
    """Figures would show its times as those of the network that has the name. The run id knows no name."""
    changed, of_another = one("network.alpha_s=1e-4"), one("network=ethernet10g", "network.alpha_s=0.436e-3")
    assert changed.network.name == "ethernet1g_changed" and of_another.network.name == "ethernet10g_changed"
    kept = one("network.alpha_s=" + repr(one().network.alpha_s))
    assert kept.network.name == "ethernet1g" and kept.run_id == one().run_id
    assert one("network.name=mine", "network.alpha_s=1e-4").network.name == "mine"


@pytest.mark.parametrize(
    ("experiment", "batch"), [("convergence", 32), ("throughput", 128), ("density_sensitivity", 32)]
)
def test_a_model_of_no_block_stands_in_the_place_of_the_first(experiment: str, batch: int) -> None:
    """It was trained once in each block, with the batch and the images' size that these give to others."""
    other = "vgg16_imagenet"
    found, usual = (compose([f"experiment={experiment}", f"model={name}", "seed=0"]) for name in (other, "resnet20"))
    assert [(c.algo.name, c.nodes, c.density) for c in found] == [(c.algo.name, c.nodes, c.density) for c in usual]
    assert {(c.batch_per_node, c.accumulate) for c in found} == {(batch, 1)}
    both = compose([f"experiment={experiment}", f"model=vgg16,{other}", "seed=0"])
    assert [c for c in both if c.model.name == other] == found
