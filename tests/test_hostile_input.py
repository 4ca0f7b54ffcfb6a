"""Input that cannot be, as a person types it: one sentence on stderr that says what is allowed, exit code 2, no trace.

Most go through the command line in this process, which is as real but for the interpreter's start; a few start one.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from repro import cli
from repro.config.compose import compose

ROOT = Path(__file__).parent.parent
SMALL = "data=synthetic data.image_size=8 batch_per_node=4 steps=2 wandb.mode=disabled"  # were it not refused
RUN = f"run {SMALL} nodes=2"

OPTIONS = {
    f"{RUN} algo=powersgd algo.rank=0": "algo.rank=0: must be at least 1",
    f"{RUN} algo=qsgd algo.bucket=0": "algo.bucket=0: must be at least 1",
    f"{RUN} algo=qadam algo.bucket=0": "algo.bucket=0: must be at least 1",
    f"{RUN} algo=onebit algo.bucket=-1": "algo.bucket=-1: must be at least 0",  # 0 has a meaning there
    f"{RUN} algo=bytegrad algo.bucket=-1": "algo.bucket=-1: must be at least 0",
    f"{RUN} algo=qadam algo.beta1=2": "algo.beta1=2: must be at least 0 and below 1",
    f"{RUN} algo=qadam algo.beta2=1": "algo.beta2=1: must be at least 0 and below 1",
    f"{RUN} algo=qadam algo.eps=-1": "algo.eps=-1: must be above 0",
    f"{RUN} algo=qadam algo.warmup_steps=-1": "algo.warmup_steps=-1: must be at least 0",
    f"{RUN} algo=dgc algo.momentum=5": "algo.momentum=5: must be at least 0 and below 1",
    f"{RUN} algo=async_average algo.delay=4": "algo.delay=4: must be at least 1 and below period=4",
    f"{RUN} algo=qsgd algo.seed=-1": "algo.seed=-1: must be at least 0",
    f"{RUN} seed=-1": "seed=-1: must be at least 0",
}
ROOT_KEYS = {
    "run density=5": "at most 1",
    "run nodes=0": "at least 1",
    f"{RUN} momentum=1": "below 1",
    f"{RUN} density=1e-300": "density=1e-300: must be at least 1e-12",
    f"{RUN} timeout_s=1e300": "at most 1e+07",
    f"{RUN} threads=1000000": "at most 1024",
    f"run {SMALL} nodes=99999999999999999999": "at most 4096",
    f"run {SMALL} nodes=2000": "2000 nodes with 4 samples each (batch_per_node times accumulate) need 8000 ",
    f"{RUN} data.mean=[a,b,c]": "expected a number",
    "run experiment=convergence seed=" + "9" * 400: "must be at least 0 and at most",
    f"{RUN} data.std=[x,y,z]": "expected a number",
    f"{RUN} data.std=[1,1]": "3 numbers",
    "run data=synthetic data.image_size=100000": "at most 4096",
    f"{RUN} data.classes=1e8": "at most 100000",
    f"{RUN} network.alpha_s=1e308": "at most 3600",
    f"{RUN} cluster=lab network.bits_per_s=1": "at least 100000",
    f"{RUN} bucket_mb=1e300": "at most 1e+06",
    f"{RUN} machines=9": "at most nodes=2",
    f"run {SMALL} nodes=4 nodes=8": "nodes is given twice",
    f"{RUN} seed=${{nodes}}": "conf/ only",
    f"{RUN} results=${{oc.env:HOME}}": "conf/ only",
    f"{RUN} results=/dev/null/x": "Not a directory",
    f"{RUN} results=": "results=: type a folder; results=. is this one.",
    f"{RUN} data.root=": "data.root=: type a folder",
    f"{RUN} lr={10**400}": "finite",
}
SWEEPS = {  # refused before the first, possible, point is run
    f"run {SMALL} nodes=2,2000": "2000 nodes",
    f"run {SMALL} nodes=2,-1": "nodes=-1",
    f"{RUN} model=resnet20,alexnet": "model=alexnet needs images of at least",
    f"{RUN} algo=topk,ddp bucket_mb=1 scope=bucket": "algo=ddp makes its own buckets",
    f"{RUN} algo=gtopk,local_sgd probe_steps=[1]": "algo=local_sgd mixes weights",
}
GUESSED = {
    "run densty=0.1": "Did you mean density?",
    f"{RUN} batch_size=3": "batch_per_node=32 is the number of images on each node",
    f"{RUN} optimizer=adam": "SGD with momentum is the one optimizer",
    f"{RUN} modle=resnet20": "Did you mean model?",
    f"{RUN} learning_rate=1": "called lr here",
    "launch partition=gpu": "two dashes: repro launch model=resnet20 -- --partition=gpu",
    "launch nodes=2 --partition=gpu": "two dashes: repro launch KEY=VALUE ... -- --partition=gpu",
    "launch --dryrun": "Did you mean --dry-run?",
    "run data=imagenet model=resnet50 data.root=.": "data.root=. must hold imagenet/",
    "run --explain densty": "Did you mean density?",
    "run --explain model.name": "this is fixed by model=NAME; choose one of",
    "run --explain defaults": "there is no key defaults",
    "run --explain sweep": "there is no key sweep",
    "run --explain sweep.nodes": "there is no key sweep.nodes",
    f"run {SMALL} nodes=range(1,4,0)": "nodes=range(1,4,0): there are no values in it; type nodes=A,B",
    f"run {SMALL} nodes=range(1,inf)": "nodes=range(1,inf): these are more than 10,000 values; type fewer",
    f"run {SMALL} nodes=range(nan,3)": "nodes=range(nan,3): there are no values in it",
    f"{RUN} data.root=~/x": "the shell leaves ~ as it is behind =. Type data.root=$HOME/x.",
    "data status --root=~/x": "--root=~/x: the shell leaves ~ as it is behind =. Type --root ~/x.",
    f"{RUN} results=~/x,~/y": "Type results=$HOME/x,$HOME/y.",
    "run --explain algo.sparse": "this is fixed by algo=NAME; choose one of",
    "run --explain network.name": "this is fixed by network=NAME; choose one of",
    f"{RUN} --line 3": "--line 3 needs --manifest FILE",
    "simulate --run nowhere network=ethernet10g": "this is no run folder",
    "simulate --run nowhere nodes=8": "a finished run keeps its settings",
    "simulate --run nowhere": "type network=ethernet10g",
}
UNWRITABLE = (
    "bench network", "bench step", "bench regret", "bench selection", "bench merge", "bench gradient", "plot figures",
    "plot tables", "report", "results collect",
)  # fmt: skip
COMMANDS = GUESSED | {
    "run data=imagenet data.root=nowhere model=resnet50 nodes=1": "nowhere",
    "run experiment=tradeoff model=vgg16 nodes=8 algo=dense": "repro map experiment=tradeoff model=vgg16",
    "launch experiment=tradeoff model=vgg16 nodes=8 algo=dense": "type repro map",
    "map experiment=quickstart": "type experiment=tradeoff",
    "data prepare mnist": "Choose one of",
    "data prepare cifar10 --from nowhere.zip": "nowhere.zip",
    "simulate --run . --trace traces": "--trace is not for --run",
    **{f"{command} --out /dev/null/x": "Name another place with --out" for command in UNWRITABLE},
    "simulate node=nan": "seconds of compute must be above 0",
    "simulate node=0": "seconds of compute must be above 0",
    "simulate node=-1": "seconds of compute must be above 0",
    "simulate node=inf": "at most 1e+06",
    "simulate node=0.1+nan": "of compress at least 0",
    "simulate nodes=1000000": "at most 4096",
    "simulate nodes=4 seed=1,2": "seed=: nothing is trained here",
    "simulate nodes=4 wandb.mode=online": "Leave wandb.mode out",
    "simulate nodes=4 scope=bucket": "Leave scope out",
    "tune nodes=4 node=0.1+0.01 stages=2": "stages=: pipelines are predicted by `repro strategies`",
    "launch data=digits results=/dev/null/x": "cannot be written: Not a directory. Name another place with results=",
    "simulate parameters=1e18": "at most 10G",
    "simulate nodes=4 nodes=8": "given twice",
    "simulate nodes=4 --out /dev/null/x": "Name another place with --out",
    "simulate nodes=4 --out .": "is a folder",
    "simulate nodes=4 network.bits_per_s=1e8,1e10": "type network.beta_s_per_byte=SECONDS",
    "simulate nodes=4 model=vgg16 data.image_size=224": "the published seconds are of data.image_size=32, not 224",
    "simulate nodes=4 model=resnet20 precision=bfloat16": "the published seconds are of precision=float32",
    "simulate nodes=4 model=vgg16 data=imagenet": "the published seconds are of data.image_size=32, not 224",
    "simulate experiment=convergence model=resnet20 algo=dense": "are of precision=float32, not bfloat16",
    "simulate nodes=4 algo=async_average node=0.1+0.01 --trace traces": "its messages travel in the background",
    "simulate nodes=300 model=resnet20 algo=oktopk": "nodes=256 or fewer, or leave oktopk out of algo=",
    "tune nodes=4 network.bits_per_s=1e6": "type network.beta_s_per_byte=SECONDS",
    "tune nodes=4 algo=dense node=paper precision=bfloat16": "are of precision=float32, not bfloat16",
    "tune nodes=4 algo=dense node=paper model=lstm_small": "node=paper knows",
    "tune nodes=300 algo=oktopk": "nodes=256 or fewer, or leave oktopk out of algo=",
    "tune nodes=4 algo=dense algo.wire=rice": "algo.wire=rice: choose one of",
    "bench regret algo=dense nodes=1": "nothing to choose; type nodes=2",
    "bench step steps=100": "and type --steps N",
    "bench step compute_s=3": "leave compute_s out",
    "bench collectives compute_s=3": "leave compute_s out",
    "bench network compute_s=3": "leave compute_s out",
    "bench network model=vgg16": "Leave model out; network, cluster, nodes, device, timeout_s",
    "bench collectives model=vgg16": "of --parameters, made up here, which do not depend on it. Leave model out",
    "bench collectives nodes=4 lr=1": "Leave lr out; network, cluster, nodes, device, timeout_s, algo, density",
    "tune node=-1": "seconds of compute must be above 0",
    "tune --out /dev/null/x": "Name another place with --out",
    "bench collectives nodes=1": "one node sends nothing",
    "bench collectives node=paper": "leave node out",
    "bench collectives --parameters 1e15": "at most 10G",
    "bench network network=ethernet1g,ethernet10g": "measures one setting, and these are 2",
    "bench gradient seed=range(0,3)": "measures one setting, and these are 3",
    "bench gradient precision=bfloat16": "does not read it. Leave precision out; model, data, experiment, seed,",
    "bench gradient steps=3": "Leave steps out; model, data, experiment, seed, nodes,",
    "bench gradient algo=dense": "Leave algo out",
    "bench gradient cluster.delay_s=1": "Leave cluster.delay_s out",
    "status nosuch": "nosuch: no runs of it",
    "status --results /proc/nonexistent": "no such folder",
    "data status --root /proc/nonexistent": "no such folder",
    "data prepare cifar10 --from /dev/zero": "does not exist as a file or folder",
    "plot figures --only claims": "claims is a table: repro plot tables --only claims",
    "plot tables --only convergence": "convergence is a figure: repro plot figures --only convergence",
    "plot tables --runs . --alone": "would put these runs in place of what is committed in results/tables; type --out",
    "plot figures --runs . --alone": "of what is committed in results/figures; type --out mine too",
}


def refused(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr of a command that ends with code 2."""
    monkeypatch.setattr(sys, "argv", ["repro", *line.split()])
    code = cli._call()
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("repro: ") and err.count("\n") == 1 and len(err) < 500
    return err


@pytest.mark.parametrize("line", [*OPTIONS, *ROOT_KEYS, *SWEEPS, *COMMANDS])
def test_what_cannot_be_is_one_sentence_and_leaves_nothing(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert {**OPTIONS, **ROOT_KEYS, **SWEEPS, **COMMANDS}[line] in refused(line, monkeypatch, capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<!-- generated: nonsense -->\n<!-- end -->", "there is no part nonsense"),
        (b"\xff\xfe\x00\x01", "cannot be read as text"),
    ],
)
def test_a_page_that_cannot_be_filled_stays_as_it_is(
    content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_bytes(content)
    assert message in refused(f"results docs {tmp_path}", monkeypatch, capsys)
    assert (tmp_path / "README.md").read_bytes() == content


def repro(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "-m", "repro", *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("line", ["run nodes=99999999999999999999", "simulate node=nan", "status nosuch"])
def test_a_process_says_the_same(line: str, tmp_path: Path) -> None:
    done = repro(*line.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_not_utf_8_is_said_as_it_is(tmp_path: Path) -> None:
    """UnicodeEncodeError, in locales such as en_US.UTF-8."""
    name = os.fsdecode(b"caf\xe9")
    (tmp_path / name).mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "repro", "status", "--results", name], cwd=tmp_path, capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"}, timeout=60,
    )  # fmt: skip
    assert b"caf\xe9" in done.stdout + done.stderr and b"Traceback" not in done.stdout + done.stderr


def test_tables_are_the_same_bytes_in_a_locale_without_their_letters(tmp_path: Path) -> None:
    only = ["plot", "tables", "--only", "quickstart,relaxations", "--out"]
    for name, own in (
        ("c", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
        ("utf8", {"PYTHONUTF8": "1"}),
    ):
        done = repro(*only, name, cwd=tmp_path, **own)
        assert done.returncode == 0, done.stderr
    made = {path.name: path.read_bytes() for path in (tmp_path / "utf8").iterdir()}
    assert made == {path.name: path.read_bytes() for path in (tmp_path / "c").iterdir()}
    assert any(not content.isascii() for content in made.values())


def test_a_sweep_goes_on_after_a_point_that_fails_and_ends_with_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*SMALL.split(), "nodes=1", "data.train_images=64", "data.test_images=8", "algo=dense", "seed=0,1"]
    (compose(words)[0].folder / "metrics.jsonl").mkdir(parents=True)  # where the first run's file is to be
    monkeypatch.setattr(sys, "argv", ["repro", "run", *words])
    code = cli._call()
    out, err = capsys.readouterr()
    assert code == 1
    head, _, table = out.partition("─\n")
    assert "state" in head and [line.split()[-1] for line in table.splitlines()[:2]] == ["failed", "done"], err
    assert err.count("repro: ") == 1 and "Traceback" not in err
