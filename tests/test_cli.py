"""The command line as a person uses it: real processes, real errors, a real shell."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import forked_cli
import pytest
import yaml
from cli_process import ROOT, SMALL, repro, torchrun

from repro import cli
from repro.cluster import slurm
from repro.config import explain, groups
from repro.config.compose import compose
from repro.timing import bench_links

SOURCES = "ours|the paper|(gTop-k's )?authors' code|public code|not in the paper"  # of a default, before its comment


@pytest.mark.parametrize("command", [["run"], ["map"], ["data", "status"], ["data", "prepare"]], ids=" ".join)
def test_every_help_has_examples_that_parse(command: list[str], tmp_path: Path) -> None:
    shown = forked_cli.repro(*command, "--help", cwd=tmp_path)
    assert shown.returncode == 0
    examples = re.findall(r"^ +repro ([^\n]*?)(?: {3,}.*)?$", shown.stdout, re.MULTILINE)
    assert examples
    if command in (["run"], ["map"]):
        for example in (example for example in examples if example.startswith(command[0])):
            words = [word for word in example.split()[1:] if word != "--show"]
            if "--explain" in words:
                continue
            few = ["algo=dense"] if command == ["map"] else []  # of a grid of 700 points, which takes half a minute
            assert compose([*words, *few])


def test_show_prints_a_config_that_yaml_reads(tmp_path: Path) -> None:
    shown = repro("run", "--show", "algo=dense,topk", "nodes=3", cwd=tmp_path)
    found = list(yaml.safe_load_all(shown.stdout))
    assert [(c["algo"]["name"], c["nodes"]) for c in found] == [("dense", 3), ("topk", 3)]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "results=/proc/nothing", *SMALL], "results=FOLDER"),
        (["run", "cluster=environment", *SMALL], "cluster=local"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_a_users_error_is_one_message_and_code_2(arguments: list[str], message: str, tmp_path: Path) -> None:
    """Two of many: the others are in test_hostile_input.py."""
    done = forked_cli.repro(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("repro: ") and message in done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) <= 2
    assert not list(tmp_path.rglob("status.json"))  # nothing that could be taken for a run


def test_the_version_is_that_of_the_suite_its_commit_and_torch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["repro", "--version"])
    assert cli._call() == 0
    assert re.match(r"repro [\d.]+.*, Python 3[\d.]+, torch \d", capsys.readouterr().out)


def test_the_list_of_commands_says_of_each_a_whole_sentence() -> None:
    shown = forked_cli.repro("--help", cwd=Path.cwd(), COLUMNS="80").stdout
    listed = shown.partition("Commands:")[2].strip().splitlines()
    assert len(listed) > 10 and not [line for line in listed if line.endswith("...")]


def test_every_key_is_explained_with_its_range_default_and_source(capsys: pytest.CaptureFixture[str]) -> None:
    for key in [*groups.root_keys(), *explain.options()]:
        first, *_ = explain.explain(key)
        assert re.sub(rf"^{key}: ({SOURCES})\b[:;,]?", "", first).count(" ") > 2, f"{first}: a source is no meaning"
    for name in groups.NESTED:
        (said,) = explain.explain(name)
        assert said.startswith(f"{name}: has the keys {name}.")
    first, own = explain.explain("algo=demo")
    assert first.startswith("algo=demo: ") and "algo.top" in own and "algo.route" not in own
    cli.app(["run", "--explain", "density"], standalone_mode=False)
    said = capsys.readouterr().out
    assert "share rho of the gradient's entries" in said and "at least 1e-12 and at most 1" in said
    assert "default: 0.001  # authors' code" in said and "experiment=quickstart: 0.01  # ours" in said


def test_nodes_that_contradict_torchrun(tmp_path: Path) -> None:
    given = {"RANK": "0", "WORLD_SIZE": "3", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "3"}
    given |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    done = forked_cli.repro("run", *SMALL, cwd=tmp_path, **given)
    assert done.returncode == 2
    assert "nodes=3" in done.stderr and "Traceback" not in done.stderr


def test_runs_of_one_name_under_torchrun(tmp_path: Path) -> None:
    """The second could read addresses of the first, which are in the store of both."""
    words = ["-m", "repro", "run", *SMALL, "steps=1", "results=a,b,c,d,e"]
    done = subprocess.run(
        [*torchrun(2, tmp_path / "logs", "--max-restarts=0"), *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    states = [json.loads(path.read_text())["state"] for path in tmp_path.rglob("status.json")]
    assert states == 5 * ["done"]


def short_messages() -> None:
    bench_links.PAIRS_S, bench_links.SIZES = 0.01, [64, 4096, 65536]


def test_two_ranks_on_one_machine_measure_no_network_and_one_of_them_says_so(tmp_path: Path) -> None:
    """Both wrote the file and printed a table, and loopback passed for a network."""
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    common |= {"MASTER_PORT": str(28_000 + os.getpid() % 900)}
    ranks = [
        forked_cli.start("bench", "network", cwd=tmp_path, first=short_messages, **common, RANK=rank, LOCAL_RANK=rank)
        for rank in ("0", "1")
    ]
    (said, _), (silent, _) = (rank.over() for rank in ranks)
    assert [rank.returncode for rank in ranks] == [0, 0] and silent == ""
    assert "use it: network=results/network/network.yaml" in said
    assert "this is not of a network" in said and "srun --nodes=2 --ntasks-per-node=1" in said


def test_a_launched_run_that_cannot_begin_is_known_to_have_failed(tmp_path: Path) -> None:
    """It left no trace: `repro status` showed nothing, and `repro launch --only failed` found nothing."""
    (config,) = compose(["model=lstm", "nodes=1", "steps=1", "data.root=nowhere"])
    (array,) = slurm.arrays([config], tmp_path, 1000)
    array.write()
    done = forked_cli.repro("run", "--manifest", str(array.manifest), cwd=tmp_path)
    assert done.returncode == 2 and "nowhere" in done.stderr
    shown = repro("status", cwd=tmp_path).stdout
    assert "failed" in shown and "nowhere" in shown


def test_a_sweep_ends_with_one_table_and_is_not_run_twice(tmp_path: Path) -> None:
    sweep = ["run", "algo=dense,gtopk", "steps=2", *SMALL]
    first = forked_cli.repro(*sweep, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    head, _, table = first.stdout.partition("─\n")
    assert head.split()[0] == "algo" and "state" not in head  # all are done
    assert [line.split()[0] for line in table.splitlines()[:2]] == ["dense", "gtopk"]
    assert "2 steps of 141 epochs" in first.stderr and "about" in first.stderr and "of disk" in first.stderr
    assert "modelled on ethernet1g" in first.stdout and "Next:" in first.stdout
    metrics = {path: path.read_bytes() for path in tmp_path.rglob("metrics.jsonl")}
    assert len(metrics) == 2
    again = forked_cli.repro(*sweep, cwd=tmp_path)
    assert again.returncode == 0
    assert again.stderr.count("is done already") == 2
    assert again.stdout == first.stdout
    assert {path: path.read_bytes() for path in tmp_path.rglob("metrics.jsonl")} == metrics


def test_a_wheel_runs_from_any_folder(tmp_path: Path) -> None:
    """Its layout, made by hand: building one would need the network."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packed = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    site = tmp_path / "site"
    shutil.copytree(ROOT / "repro", site / "repro", ignore=shutil.ignore_patterns("__pycache__"))
    for source, target in packed["force-include"].items():
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, site / target, dirs_exist_ok=True)
    (tmp_path / "elsewhere").mkdir()
    done = repro("run", "--show", "algo=topk", cwd=tmp_path / "elsewhere", PYTHONPATH=str(site))
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["algo"]["name"] == "topk"


BASH = """
source <(repro --show-completion bash)
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_repro_completion repro; printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "expected", "unexpected"),
    [
        ("repro run mod", ["model="], ["nodes="]),
        ("repro run model = res", ["resnet20", "resnet50"], ["vgg16"]),  # bash splits words at "="
        ("repro run model =", ["resnet20", "vgg16"], []),
        ("repro map model = v", ["vgg16"], ["resnet20"]),
        ("repro tune algo = dense,gt", ["dense,gtopk"], ["dense,dense"]),
        ("repro run algo = dense,gt", ["dense,gtopk"], ["dense,dense"]),
        ("repro run algo = gtopk algo.ro", ["algo.route="], []),
        ("repro run algo.route = b", ["butterfly"], ["tree"]),
        ("repro run data.flip = t", ["true"], ["false"]),
        ("repro run algo.wire = ga", ["gaps", "gaps-bf16"], ["pairs"]),
        ("repro run wandb.mode = o", ["offline", "online"], ["disabled"]),
        ("repro data prepare ci", ["cifar10"], ["digits"]),
        ("repro tune relax = c", ["compressed"], ["exact"]),
        ("repro tune nod", ["node=", "nodes="], ["model="]),
        ("repro simulate node = m", ["measured"], ["paper"]),
        ("repro run node = m", ["measured"], ["paper"]),
        ("repro status qu", ["quickstart"], ["families"]),
        ("repro run --explain algo.ro", ["algo.route"], ["algo"]),
    ],
)
def test_bash_completes(words: str, expected: list[str], unexpected: list[str], tmp_path: Path) -> None:
    if not shutil.which("bash"):
        pytest.skip("no bash")
    command = tmp_path / "repro"
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m repro "$@"\n')
    command.chmod(0o755)
    quoted = " ".join(f'"{word}"' for word in words.split(" "))
    done = subprocess.run(
        ["bash", "-c", BASH.format(words=quoted)], capture_output=True, text=True, timeout=60,
        cwd=tmp_path,  # where no runs are, whose experiments alone would be offered
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SHELL": "/bin/bash"},
    )  # fmt: skip
    offered = done.stdout.split()
    assert set(expected) <= set(offered), done.stderr
    assert not set(unexpected) & set(offered)


def test_zsh_gets_whole_words(tmp_path: Path) -> None:
    words = "repro run model=res"
    done = repro(cwd=tmp_path, _REPRO_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS=words)
    assert "model=resnet20" in done.stdout and "vgg16" not in done.stdout


def test_what_to_type_next_can_be_typed_whatever_the_names_are(tmp_path: Path) -> None:
    """A results folder with a blank, or shell text in it, made lines that did something else when they were pasted."""
    place = "my runs; touch owned $(touch owned) 'x'"
    done = forked_cli.repro(
        "run", "algo=dense", "steps=1", f"results='{place.replace(chr(39), chr(92) + chr(39))}'", *SMALL, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.strip().startswith("repro simulate --run")]
    words = line.strip().replace("repro simulate --run", "printf '%s\n'")
    shown = subprocess.run(["bash", "-c", words], cwd=tmp_path, capture_output=True, text=True)
    folder, network = shown.stdout.splitlines()
    assert folder.startswith(f"{place}/default/") and network.startswith("network=")
    assert not (tmp_path / "owned").exists()


def test_a_normal_run_and_its_help_show_no_warning_of_a_library(tmp_path: Path) -> None:
    """Of torch, for algo=ddp above all, and of typer. Those of all algorithms: test_checkpoint.py."""
    done = repro("run", "algo=ddp,gtopk,dense", "steps=1", "data.image_size=8", *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = done.stderr + repro("run", "--help", cwd=tmp_path).stderr + repro("--help", cwd=tmp_path).stderr
    assert not re.search(r"warn", shown, re.IGNORECASE), shown
