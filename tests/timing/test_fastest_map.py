"""The maps of the fastest algorithm: who competes, what is kept and what is refused."""

import dataclasses
import json
from pathlib import Path

import pytest
from algorithm_steps import CHOICES
from made_up_predictions import predicted

from repro.config.compose import compose, typed
from repro.config.schema import Config, ConfigError
from repro.figures import _maps
from repro.figures import tradeoff as figure
from repro.report import map_lines, near_dense
from repro.report.group import rounded
from repro.report.near_dense import Ending
from repro.report.summaries import Results
from repro.timing import compress_time, contenders, fastest_map, node_profile, simulate


def test_the_study_names_the_fastest_of_each_cell(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tradeoff.json"
    keys = ["experiment=tradeoff", "model=resnet20", "nodes=4", "batch_per_node=2", "tradeoff.node=0.1"]
    grid = ["tradeoff.bits_per_s=[1e6,1e12]", "tradeoff.alpha_s=[0,1e-3]"]
    configs = compose([*keys, *grid, "algo=dense,gtopk_butterfly"])
    near = {name: Ending(0.0, True) for name in CHOICES}  # local SGD, after three epochs, is not
    monkeypatch.setattr(near_dense, "endings", lambda *_: near)
    assert any(config.overlap == "on" for config in configs)  # in one bucket, as resnet20 has 1 MB: no other iteration
    fastest_map.run([*configs, *compose([*keys, *grid, "algo=local_sgd"])], print, file)
    found = json.loads((tmp_path / "tradeoff.json").read_text())
    rows = {row["relax"]: [] for row in found["maps"]}
    monkeypatch.setattr(_maps, "NODES", 4)
    for row in figure.table(Results({}, {"tradeoff": found})):
        rows[row["relax"]].append(row["fastest"])
        assert row["over_dense"] >= row["over_exact"] >= 1 and row["over_second"] >= 1
    slow, fast = rows["compressed"][:2]
    assert (slow, fast) == ("gtopk_butterfly", "dense")
    assert rows["all"][3] == "local_sgd"  # an eighth of the latencies
    told = map_lines.lines(found)  # a row's cells in words: of latency 0, then of 1 ms where it is not alike
    assert told[0].startswith("resnet20, 4 nodes, all nodes apply the same update, 0 a")
    assert "message: gtopk_butterfly to 1 Mbps, dense to 1000 Gbps" in told[0]
    assert told[-1].startswith("resnet20, 4 nodes, weights may differ, ") and "local_sgd to 1000 Gbps" in told[-1]
    (seconds,) = found["rows"]
    assert set(seconds["seconds"]) == {"dense", "gtopk_butterfly", "local_sgd"}
    assert all(len(times) == len(found["networks"]) for times in seconds["seconds"].values())
    before = (tmp_path / "tradeoff.json").read_text()
    monkeypatch.setattr(fastest_map, "predicted", None)  # nothing is left to predict
    fastest_map.run([*configs, *compose([*keys, *grid, "algo=local_sgd"])], print, file)
    assert (tmp_path / "tradeoff.json").read_text() == before
    with pytest.raises(ConfigError, match="dense"):
        fastest_map.run(compose([*keys, *grid, "algo=gtopk"]), print, file)


def test_another_network_loses_no_row_and_other_settings_are_refused(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tradeoff.json"
    keys = ["experiment=tradeoff", "model=resnet20", "batch_per_node=2", "tradeoff.node=0.1", "algo=dense,gtopk"]
    keys += ["tradeoff.bits_per_s=[1e6]", "tradeoff.alpha_s=[0]"]
    monkeypatch.setattr(fastest_map, "group_options", lambda group: ["ethernet1g", "ethernet10g"])
    fastest_map.run(compose([*keys, "nodes=4"]), print, file)
    first = json.loads(file.read_text())
    monkeypatch.setattr(fastest_map, "group_options", lambda group: ["ethernet100m", "ethernet1g", "ethernet10g"])
    fastest_map.run(compose([*keys, "nodes=2"]), print, file)
    both = json.loads(file.read_text())
    assert both["rows"][0] == first["rows"][0] and len(both["rows"]) == 2
    assert both["networks"] == first["networks"], "the seconds of every row are of these"
    with pytest.raises(ConfigError, match=r"other settings \(density\).* another file with --out"):
        fastest_map.run(compose([*keys, "nodes=4", "density=0.01"]), print, file)
    file.write_text(json.dumps({name: value for name, value in both.items() if name != "options"}))
    with pytest.raises(ConfigError, match=r"other settings \(options\)"):  # an old file is of the defaults
        fastest_map.run([routed(config) for config in compose([*keys, "nodes=8"])], print, file)
    file.write_text(json.dumps(both))
    monkeypatch.setattr(near_dense, "endings", lambda *_: {})
    with pytest.raises(ConfigError, match="accuracies"):
        fastest_map.run(compose([*keys, "nodes=4"]), print, file)
    assert json.loads(file.read_text()) == both


def routed(config: Config) -> Config:
    """As the sweep of an experiment's YAML may have it; typed, a route is refused beside dense."""
    if config.algo.name != "gtopk":
        return config
    options = config.algo.options | {"route": "butterfly"}
    return dataclasses.replace(config, algo=dataclasses.replace(config.algo, options=options))


def test_one_summary_has_one_batch_and_machine(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two settings of one name it kept one, and what this machine timed was filed under another."""
    file = tmp_path / "tradeoff.json"
    keys = ["experiment=tradeoff", "model=resnet20", "tradeoff.bits_per_s=[1e6]", "tradeoff.alpha_s=[0]"]
    keys += ["algo=dense,gtopk"]
    small = [*keys, "batch_per_node=2", "tradeoff.node=0.1"]
    with pytest.raises(ConfigError, match="^algo.gain: contenders .*type one value of algo.gain"):
        fastest_map.run(compose([*small, "nodes=2", "algo=dense"]) + gained(small), print, file)
    with pytest.raises(ConfigError, match="of 128 samples a step, not 2; type batch_per_node=128"):
        fastest_map.run(compose([*keys, "batch_per_node=2", "nodes=2"]), print, file)
    assert not file.exists()
    fastest_map.run(compose([*small, "nodes=2"]), print, file)
    first = json.loads(file.read_text())
    for nodes in (2, 4):
        with pytest.raises(ConfigError, match=r"other settings \(resnet20: accumulate=1, not accumulate=2\)"):
            fastest_map.run(compose([*small, f"nodes={nodes}", "accumulate=2"]), print, file)
    with pytest.raises(ConfigError, match="resnet20: batch_per_node=2 accumulate=1, not batch_per_node=1 accumulate=2"):
        other = [*keys, "batch_per_node=1", "accumulate=2", "tradeoff.node=0.1", "nodes=2"]
        fastest_map.run(compose(other), print, file)
    first["machine"] |= {"cpu": "Another"}
    file.write_text(json.dumps(first))
    with pytest.raises(ConfigError, match="another kind of machine .Another., and vgg16 would be timed on this one"):
        fastest_map.run(compose([*small, "nodes=2", "model=vgg16"]), print, file)
    fastest_map.run(compose([*small, "nodes=4"]), print, file)  # nothing is timed
    assert len(json.loads(file.read_text())["rows"]) == 2


def gained(keys: list[str]) -> list[Config]:
    return compose([*keys, "nodes=2", "algo=gtopk_corrected", "algo.gain=10,40"])


def test_an_algorithm_of_another_density_is_a_contender_of_its_own(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ended near dense on 32 nodes is not the map's density, and could not be on one."""
    file = tmp_path / "tradeoff.json"
    compress = {0.001: 0.01, 0.032: 0.02}
    monkeypatch.setattr(compress_time, "compress", lambda config, *_: compress.get(config.density, 0.0))
    keys = ["experiment=tradeoff", "model=resnet20", "nodes=32", "batch_per_node=2", "tradeoff.node=0.1"]
    keys += ["tradeoff.bits_per_s=[1e8]", "tradeoff.alpha_s=[0]"]
    kept = ["algo=gtopk_corrected", "density=0.032", "algo.gain=40", "algo.wire=gaps-bf16"]
    fastest_map.run(compose([*keys, "algo=dense,gtopk"]) + compose([*keys, *kept]), print, file)
    found = json.loads((tmp_path / "tradeoff.json").read_text())
    assert found["density"] == 0.001
    name = "gtopk_corrected, gaps-bf16, density 0.032"
    place = found["contenders"].index(name)
    assert found["options"][place]["gain"] == 40 and found["on_map"]["32"][place]
    assert abs(found["below_dense"]["32"][place]) < 1 < found["below_dense"]["32"][1]  # gTop-k's of density 0.001
    (model,), (row,) = found["models"], found["rows"]
    assert (model["compress_s"]["gtopk"], model["compress_s"][name]) == (0.01, 0.02)
    assert {found["contenders"][one["fastest"][0][0]] for one in found["maps"]} == {name}
    assert row["seconds"][name][0] > row["seconds"]["gtopk"][0], "more pairs travel"
    drawn = figure.draw(figure.table(Results({}, {"tradeoff": found})))
    assert (
        "density 0.001 where a name has no other; gTop-k corrected, gaps-bf16, density 0.032: gain 40" in drawn.notes[0]
    )
    monkeypatch.setattr(fastest_map, "predicted", None)  # nothing is left to predict
    fastest_map.run(compose([*keys, "algo=dense,gtopk"]) + compose([*keys, *kept]), print, file)


def test_a_density_of_more_digits_than_a_summary_has_is_that_of_the_map(tmp_path: Path) -> None:
    """It was another density than the file's own, so that its algorithms had a name that no contender has."""
    file = tmp_path / "tradeoff.json"
    keys = ["experiment=tradeoff", "model=resnet20", "batch_per_node=2", "tradeoff.node=0.1", "density=0.001953125"]
    keys += ["tradeoff.bits_per_s=[1e8]", "tradeoff.alpha_s=[0]", "algo=dense,topk"]
    for nodes in (4, 8):
        fastest_map.run(compose([*keys, f"nodes={nodes}"]), print, file)
    found = json.loads(file.read_text())
    assert found["density"] == 0.00195312 and {"dense", "topk"} <= {*found["contenders"]}
    assert [row["seconds"].keys() >= {"dense", "topk"} for row in found["rows"]] == [True, True]


def test_a_published_batch_that_is_divided_otherwise_is_another(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of node=paper the file's own batch was not compared: rows of 64 samples stayed beside those of 16 times 16."""
    file = tmp_path / "tradeoff.json"
    keys = ["experiment=tradeoff", "model=resnet20", "nodes=2", "algo=dense", "bucket_mb=null", "overlap=off"]
    keys += ["tradeoff.bits_per_s=[1e6]", "tradeoff.alpha_s=[0]"]
    monkeypatch.setattr(node_profile, "backward", lambda node, config: [0.1, 0.05])
    monkeypatch.setattr(fastest_map, "predicted", lambda *_: {"dense": predicted("algo=dense")})
    fastest_map.run(compose([*keys, "batch_per_node=64", "accumulate=2"]), print, file)
    found = json.loads(file.read_text())
    assert (found["models"][0]["batch_per_node"], found["models"][0]["accumulate"]) == (64, 2)
    with pytest.raises(ConfigError, match="resnet20: batch_per_node=64 accumulate=2, not batch_per_node=128 accum"):
        fastest_map.run(compose([*keys, "batch_per_node=128"]), print, file)
    found["models"][0] |= {"batch_per_node": 128}
    for name in ("accumulate", "parameters", "image_size", "sequence", "precision"):
        del found["models"][0][name]  # as files were before they said it
    file.write_text(json.dumps(found))
    fastest_map.run(compose([*keys, "batch_per_node=128"]), print, file)
    with pytest.raises(ConfigError, match="resnet20: batch_per_node=128 accumulate=1, not batch_per_node=64 accum"):
        fastest_map.run(compose([*keys, "batch_per_node=64", "accumulate=2"]), print, file)


def test_seconds_of_another_network_or_precision_are_not_taken(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the rows of 10 classes there was nothing left to predict for 100, nor for bfloat16."""
    file = tmp_path / "tradeoff.json"
    keys = ["experiment=tradeoff", "model=resnet20", "nodes=2", "algo=dense", "bucket_mb=null", "overlap=off"]
    keys += ["tradeoff.bits_per_s=[1e6]", "tradeoff.alpha_s=[0]", "tradeoff.node=measured", "batch_per_node=2"]
    monkeypatch.setattr(node_profile, "backward", lambda node, config: [0.1, 0.05])
    monkeypatch.setattr(fastest_map, "predicted", lambda *_: {"dense": predicted("algo=dense")})
    fastest_map.run(compose(keys), print, file)
    found = json.loads(file.read_text())
    assert found["models"][0]["parameters"] == 269722
    old = json.loads(file.read_text())
    for name in ("parameters", "image_size", "sequence", "precision"):
        del old["models"][0][name]
    for before in (found, old):
        file.write_text(json.dumps(before))
        fastest_map.run(compose(keys), print, file)
        for other, says in {
            "data.classes=100": "resnet20: parameters=269722, not parameters=275572",
            "data.image_size=64": "resnet20: image_size=32, not image_size=64",
            "precision=bfloat16": "resnet20: precision=float32, not precision=bfloat16",
        }.items():
            with pytest.raises(ConfigError, match=rf"other settings \({says}\)"):
                fastest_map.run(compose([*keys, other]), print, file)


def test_each_wire_format_has_its_own_compress(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seconds of the format that came first were those of all."""
    file = tmp_path / "tradeoff.json"
    monkeypatch.setattr(compress_time, "compress", lambda config, *_: {"pairs": 0.1, "gaps": 0.2}[config.algo.wire])
    monkeypatch.setattr(node_profile, "backward", lambda node, config: 65 * [0.1])
    configs = compose(["model=resnet20", "nodes=2", "algo=topk", "algo.wire=pairs,gaps"])
    profile = fastest_map.profiled({"node": "measured", "density": 0.001, "models": []}, configs, file)
    found = fastest_map.predicted(configs, profile)
    assert {name: one.compress_s for name, one in found.items()} == {"topk": 0.1, "topk, gaps": 0.2}
    old = fastest_map.predicted(configs, profile | {"compress_s": {"topk": 0.3}})
    assert {one.compress_s for one in old.values()} == {0.3}


def test_a_stated_compress_is_that_of_every_algorithm_that_compresses(tmp_path, monkeypatch) -> None:
    """It was read and dropped, and compress was timed here."""
    file = tmp_path / "tradeoff.json"
    monkeypatch.setattr(node_profile, "backward", lambda node, config: 65 * [0.1])
    configs = compose(["model=resnet20", "nodes=2", "batch_per_node=2", "algo=dense,fp16,topk"])
    profile = fastest_map.profiled({"node": "0.14+0.02", "density": 0.001, "models": []}, configs, file)
    simulated = {row["algo"]: row["compress_s"] for row in simulate.run(configs, "0.14+0.02", None, None)}
    assert profile["compress_s"] == simulated == {"dense": 0.0, "fp16": 0.02, "topk": 0.02}


def test_what_is_shown_to_end_below_dense_is_on_no_map(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """random-k, whose iteration is short, everywhere; gTop-k on as many nodes as it was trained on and fell behind."""
    file = tmp_path / "tradeoff.json"
    keys = ["experiment=tradeoff", "model=resnet20", "nodes=4,32", "batch_per_node=2", "tradeoff.node=0.1"]
    configs = compose([*keys, "tradeoff.bits_per_s=[1e6]", "tradeoff.alpha_s=[0]", "algo=dense,gtopk,randomk,qsgd,dgc"])
    said: list[str] = []
    fastest_map.run(configs, said.append, file)
    found = json.loads((tmp_path / "tradeoff.json").read_text())
    found["on_map"] = {nodes: on[:5] for nodes, on in found["on_map"].items()}  # without dense overlapped
    assert found["on_map"] == {"4": [True, True, False, True, True], "32": [True, False, False, True, False]}
    assert found["below_dense"]["4"][2] > 30 and found["below_dense"]["32"][1] == pytest.approx(17, abs=2)
    said = [" ".join(text.split()) for text in said]
    assert "maps of 4 nodes: committed runs end more than 1 point below dense (randomk)" in said[0]
    assert (
        "maps of 32 nodes: committed runs end more than 1 point below dense (gtopk, randomk) or there is no run"
        in said[1]
    )
    winners = {(one["nodes"], found["contenders"][one["fastest"][0][0]]) for one in found["maps"]}
    assert winners == {(4, "dgc"), (32, "qsgd")}
    assert all(row["seconds"]["randomk"][0] > 0 for row in found["rows"]), "it is timed all the same"

    timed = found["models"]
    known = near_dense.endings
    nearer = lambda *of: {name: ending._replace(points=ending.points + 0.125) for name, ending in known(*of).items()}  # noqa: E731
    monkeypatch.setattr(near_dense, "endings", nearer)
    fastest_map.run(configs, said.append, file)
    again = json.loads((tmp_path / "tradeoff.json").read_text())
    assert again["below_dense"]["4"][2] == pytest.approx(found["below_dense"]["4"][2] - 0.125, abs=0.006)
    assert again["maps"] == found["maps"], "who is near stays"

    monkeypatch.setattr(near_dense, "endings", lambda *_: {})
    fastest_map.run(configs, said.append, file)
    again = json.loads((tmp_path / "tradeoff.json").read_text())
    assert again["models"] == timed and again["on_map"]["4"][:5] == [True, *[False] * 4], "no time changes"


def test_the_committed_map_has_the_accuracies_of_the_committed_runs() -> None:
    """Runs of QSGD and Ok-Topk had been committed after the map, which had other accuracies of the one and none of the
    other. `repro map experiment=tradeoff` takes them over.
    """
    committed = json.loads(fastest_map.OUT.read_text())
    of_one = typed(["model=resnet20", "nodes=32"], {"experiment": "tradeoff"})
    sweep = [one for one in of_one if one.overlap == "off" or not one.algo.sparse]
    density = contenders.density_of(sweep)
    named = {contenders.contender(one, density): one for one in sweep}
    now = contenders.beside_dense([*named.values()], density, sorted({row["nodes"] for row in committed["rows"]}))
    assert [*named] == committed["contenders"]
    assert {name: committed[name] for name in now} == rounded(now)
