"""The planner: which candidates there are, how they are ranked and why, and the command around it."""

import json
import math
import re
from pathlib import Path

import made_up_groups
import pytest
from typer.testing import CliRunner

from repro.cli import app
from repro.comm.traffic import Link
from repro.config.compose import compose
from repro.config.schema import Config, ConfigError
from repro.iteration_time import TIE
from repro.report.group import Group
from repro.timing import candidates, plan_report, planner, planner_check, predict
from repro.train import combinations

SOME = "algo=dense,ddp,fp16,topk,gtopk_butterfly,oktopk,local_sgd"
STATED = "0.05+0.002"  # seconds of compute and of compress, so that nothing but the moments of layers is timed


def configs(*overrides: str) -> list[Config]:
    return compose(["model=resnet20", "nodes=4", "batch_per_node=2", SOME, "threads=1", *overrides])


def ranked(*overrides: str, relax: str = "compressed", node: str = STATED, target: float | None = None, groups=()):
    own = configs(*overrides)
    return planner.rank(candidates.allowed(own, relax, [None, 0.25]), node, target, groups)


def test_candidates_give_up_no_more_than_asked_and_have_the_buckets_they_can() -> None:
    names = {
        relax: [predict.label(config) for config in candidates.allowed(configs(), relax, [None, 4.0])]
        for relax in predict.RELAXES
    }
    assert names["exact"] == ["dense", "dense, 4 MB overlapped", "ddp"]
    assert set(names["compressed"]) - set(names["exact"]) == {
        "fp16", "fp16, 4 MB overlapped", "topk", "topk, 4 MB overlapped",
        "gtopk_butterfly", "gtopk_butterfly, 4 MB overlapped", "oktopk",
    }  # fmt: skip
    assert set(names["all"]) - set(names["compressed"]) == {"local_sgd"}
    for config in candidates.allowed(configs(), "all", [None, 4.0]):
        combinations.check(config)
    with pytest.raises(ConfigError, match="exact, compressed, all"):
        candidates.allowed(configs(), "none", [None])
    with pytest.raises(ConfigError, match="relax=all"):
        candidates.allowed(configs("algo=local_sgd"), "compressed", [None])


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (["machines=2"], "type hierarchical=true too, or leave machines out"),
        (["algo=dgc,demo", "momentum=0.9"], "algo=dgc takes the place of momentum"),
        (["cuts=[3]"], "there is one stage; type stages=2"),
    ],
)
def test_what_is_refused_whatever_is_relaxed_says_why(keys: list[str], why: str) -> None:
    """The answer was "type relax=all", also to relax=all."""
    with pytest.raises(ConfigError, match=re.escape(why)):
        candidates.allowed(configs(*keys), "all", [None, 4.0])


def test_what_gets_no_buckets_says_so() -> None:
    with pytest.raises(ConfigError, match="algo=oktopk: its messages depend on values.*; type bucket_mb=null"):
        candidates.allowed(configs("algo=oktopk"), "all", [25.0])


def test_an_algorithm_that_would_not_train_is_named_beside_those_that_would() -> None:
    own = configs("algo=topk,dgc,demo", "momentum=0.9")
    assert {config.algo.name for config in candidates.allowed(own, "all", [None])} == {"topk"}
    said = candidates.left_out(own)
    assert [line.split(",")[0] for line in said] == ["Left out: dgc", "Left out: demo"]
    assert all("takes the place of momentum" in line for line in said)


def test_an_algorithm_of_which_too_many_ranks_would_run_is_named_beside_the_others() -> None:
    """It ended the ranking of all, after minutes of timing the others."""
    own = compose(["model=resnet20", "nodes=300", "algo=dense,oktopk"])
    assert {config.algo.name for config in candidates.allowed(own, "all", [None])} == {"dense"}
    (said,) = candidates.left_out(own)
    assert said.startswith("Left out: oktopk, as its messages cannot be predicted. nodes=300")


def test_a_check_that_ends_early_leaves_the_rows_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of eight cases took the place of all."""
    out, row = tmp_path / "regret.json", {"regret": 1.0, "model": "m", "nodes": 2, "bits_per_s": 1e9}
    out.write_text("before")
    rows = iter([row | {"choice": "dense", "best": "dense"}])
    monkeypatch.setattr(planner_check.ranks, "launch", lambda *_: next(rows))
    with pytest.raises(StopIteration):
        planner_check.measure(configs("cluster=lab", "nodes=2,4"), out, print)
    assert out.read_text() == "before"
    rows = iter([row | {"choice": "dense", "best": "dense"}] * 2)
    planner_check.measure(configs("cluster=lab", "nodes=2,4"), out, print)
    assert len(json.loads(out.read_text())["rows"]) == 2 and list(tmp_path.iterdir()) == [out]


def test_candidates_of_pairs_travel_in_every_format_asked_for() -> None:
    own = configs("algo=dense,topk,oktopk")
    found = candidates.allowed(own, "compressed", [None], ["pairs", "gaps", "packed"])
    assert [predict.label(config) for config in found] == [
        "dense", "topk", "topk, gaps", "topk, packed", "oktopk", "oktopk, gaps", "oktopk, packed"
    ]  # fmt: skip
    slow = planner.rank(
        candidates.allowed(configs("algo=topk", "network.beta_s_per_byte=1e-3"), "all", [None], ["gaps", "pairs"]),
        STATED, None, (),
    )  # fmt: skip
    assert [choice.config.algo.wire for choice in slow] == ["gaps", "pairs"]
    assert plan_report.run_command(slow[0], []) == "repro run algo=topk density=0.001 algo.wire=gaps"
    fast = planner.rank(
        candidates.allowed(configs("algo=topk", "network.beta_s_per_byte=1e-12"), "all", [None], ["gaps", "pairs"]),
        STATED, None, (),
    )  # fmt: skip
    assert [choice.config.algo.wire for choice in fast] == ["pairs", "gaps"]
    with pytest.raises(ConfigError, match="choose one of pairs"):
        candidates.allowed(own, "all", [None], ["rice"])


def test_two_levels_of_machines_are_not_predicted() -> None:
    """With hierarchical=true it predicted the flat algorithm."""
    with pytest.raises(ConfigError, match="hierarchical=true: its messages.* leave hierarchical out"):
        predict.iteration(configs("algo=dense", "hierarchical=true")[0], [[1000]], [0.05], 0.0)


def test_what_it_says_to_type_is_what_it_would_run() -> None:
    given = ["model=resnet20", "nodes=4", "batch_per_node=2", "threads=1"]
    for choice in ranked("algo=dense,topk", "density=0.0009765625"):
        words = plan_report.run_command(choice, given).split()
        assert words[:2] == ["repro", "run"]
        assert compose(words[2:]) == [choice.config]


def test_a_slow_network_compresses_and_a_fast_one_does_not_relax() -> None:
    slow = ranked("network.alpha_s=1e-4", "network.beta_s_per_byte=1e-6")
    assert predict.relaxes(slow[0].config.algo) == "compressed"
    assert [c.seconds for c in slow][1:] == sorted(c.seconds for c in slow[1:])
    fast = ranked("network.alpha_s=1e-7", "network.beta_s_per_byte=1e-12")
    assert predict.label(fast[0].config) in ("dense", "ddp") and fast[0].seconds <= TIE * min(
        choice.seconds for choice in fast
    )


def test_overlap_is_chosen_where_it_hides_the_messages() -> None:
    """0.25 MB of 1 MB at a time, when a quarter of the backward pass covers each."""
    first = ranked("network.alpha_s=1e-6", "network.beta_s_per_byte=2e-8", relax="exact", node="0.2+0")[0]
    assert first.time.hidden_s > 0
    assert "overlapped" in predict.label(first.config) or first.config.algo.name == "ddp"


def test_the_reason_names_what_an_iteration_is_spent_on() -> None:
    for alpha, beta, most in ((1e-9, 1e-12, "compute"), (1.0, 1e-12, "latency"), (1e-9, 1e-5, "bytes")):
        choices = ranked(f"network.alpha_s={alpha}", f"network.beta_s_per_byte={beta}", "algo=dense")
        lines = plan_report.why([choice for choice in choices if choice.config.bucket_mb is None], STATED)
        assert f"most of it {most}" in lines[0]
    shares = [float(word.rstrip("%),")) for word in lines[0].split() if "%" in word]
    assert sum(shares) == pytest.approx(100, abs=3)


def test_the_screen_says_where_seconds_come_from_and_how_ties_are_broken(capsys: pytest.CaptureFixture[str]) -> None:
    """A fast network, where dense, DDP and buckets take the same compute and next to nothing else."""
    words = ["tune", "model=resnet20", "nodes=2", "batch_per_node=2", "algo=dense,ddp", "bucket_mb=null,0.25"]
    words += ["network.alpha_s=1e-9", "network.beta_s_per_byte=1e-15"]
    app([*words, "node=0.05+0.002"], standalone_mode=False)
    said = capsys.readouterr().out.replace("\n", " ")
    assert "3 iterations within 2% of the shortest count as equal: of these the one that relaxes the gradient" in said
    assert "compute and compress: both stated" in said
    choices = ranked("algo=dense", "network.beta_s_per_byte=1e-6")
    assert not any("count as equal" in line for line in plan_report.why(choices[:1], "measured"))
    for node, origin in {
        "paper": "compute is published, of a P102-100, compress is timed on this machine: a mixture of two",
        "0.1": "compute is stated, compress is timed on this machine: a mixture of two machines",
        "measured": "compute and compress: both timed on this machine",
    }.items():
        assert plan_report.why(choices, node)[-1].startswith(origin)


def groups(batch: int = 2) -> list[Group]:
    """10 points of accuracy an epoch of 100 steps, on 4 nodes with 2 images each; Top-k is a point behind."""
    found = [made_up_groups.group("resnet20", algo, batch=batch) for algo in ("dense", "topk")]
    found[1]["settings"]["algo"]["options"] = {}
    return [Group(**one) for one in found]


def test_with_a_target_what_is_known_to_reach_it_comes_first() -> None:
    choices = ranked("network.alpha_s=1e-4", "network.beta_s_per_byte=1e-6", target=0.3, groups=groups())
    known = [choice.to_target_s is not None for choice in choices]
    assert known[0] and known == sorted(known, reverse=True)
    assert predict.label(choices[0].config) == "topk"  # an epoch more than dense, each of them much shorter
    warm = 100 * 5 / 141  # steps, as the schedule is compressed
    after, (first,) = choices[0].seconds, choices[0].warm_s.values()
    assert math.isclose(choices[0].to_target_s, warm * first + (400 - warm) * after)


def test_a_step_takes_the_published_seconds_for_the_published_batch_alone() -> None:
    """Steps of 2 samples were counted, each with the seconds of 128."""
    with pytest.raises(ConfigError, match="of 128 samples a step, not 2; type batch_per_node=128"):
        ranked("algo=dense", node="paper", target=0.3, groups=groups())
    with pytest.raises(ConfigError, match="of 128 samples a step, not 2; type batch_per_node=128"):
        ranked("algo=dense", node="paper")
    (first, *_) = ranked("algo=dense", "batch_per_node=128", node="paper", target=0.3, groups=groups(128))
    assert math.isclose(first.to_target_s, 300 * first.seconds)


def test_the_check_measures_the_first_and_every_algorithm_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    own = configs("algo=dense,topk", "nodes=2")
    choices = planner_check.plan(own, Link(1e-4, 1e-8))
    assert choices[0].config.network.beta_s_per_byte == 1e-8
    assert {"dense", "topk"} <= {predict.label(choice.config) for choice in choices}


def test_the_check_compares_only_candidates_for_the_same_nodes_and_batch() -> None:
    """Those for 2 and for 4 nodes, or for batches of 8 and of 64, were candidates of one case."""
    for sweep in ("nodes=2,4", "batch_per_node=8,64", "model=resnet20,vgg16", "network.bits_per_s=1e8,1e9"):
        found = planner_check.cases(configs("algo=dense,topk", sweep))
        assert [[one.algo.name for one in case] for case in found] == 2 * [["dense", "topk"]]
    (one,) = planner_check.cases([*configs("algo=dense,qadam"), *configs("algo=topk", "algo.wire=pairs,gaps")])
    assert [config.algo.name for config in one] == ["dense", "qadam", "topk", "topk"]


def test_the_check_ranks_each_wire_format_that_was_typed() -> None:
    """Both were ranked and measured as pairs."""
    choices = planner_check.plan(configs("algo=topk", "algo.wire=pairs,gaps", "nodes=2"), Link(1e-4, 1e-8))
    names = [predict.label(choice.config) for choice in choices if choice.config.bucket_mb is None]
    assert sorted(names) == ["topk", "topk, gaps"]


@pytest.mark.parametrize("command", ["tune", "bench regret"])
@pytest.mark.parametrize("key", ["overlap", "scope"])
def test_what_the_planner_chooses_cannot_be_typed(command: str, key: str) -> None:
    """bench regret dropped it, and measured its own buckets."""
    with pytest.raises(ConfigError, match=f"^{key}=: the planner chooses it: .* Leave {key} out"):
        app([*command.split(), "cluster=local", f"{key}=on"], standalone_mode=False)


def test_the_check_has_its_own_sizes_of_buckets() -> None:
    with pytest.raises(ConfigError, match="^bucket_mb=: the planner chooses it: .* Leave bucket_mb out"):
        app(["bench", "regret", "cluster=local", "bucket_mb=1"], standalone_mode=False)


@pytest.mark.parametrize("sweep", ["density=0.001,0.01", "algo.residual=paper,exact"])
def test_the_check_refuses_candidates_of_one_name(sweep: str) -> None:
    """The seconds of the last took the place of the others'."""
    key = sweep.partition("=")[0]
    with pytest.raises(ConfigError, match=f"^{key}: .*have one name.*; type one value of {key}"):
        planner_check.cases(configs("algo=gtopk", sweep))


def test_buckets_that_hold_the_whole_gradient_are_refused_where_nothing_else_is_ranked() -> None:
    own = candidates.allowed(configs("algo=dense,topk"), "compressed", [25.0, 50.0])
    with pytest.raises(ConfigError, match=r"^bucket_mb=25,50: .* resnet20, 1\.03 MB.* type bucket_mb=null,25,50"):
        planner.rank(own, STATED, None, ())


def tune(*words: str):
    return CliRunner().invoke(app, ["tune", *words])


def test_the_command_ranks_says_why_and_writes(tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    given = ["model=resnet20", "nodes=4", "batch_per_node=2", "threads=1"]
    done = tune(*given, "algo=dense,topk", "density=0.001", f"node={STATED}", "target=0.999", "--out", str(out))
    assert done.exit_code == 0, done.output
    assert "Train with it (141 epochs; epochs=1 tries it):\n  repro run model=resnet20 nodes=4" in done.output
    assert "no committed run" in done.output and "most of it" in done.output
    report = json.loads(out.read_text())
    assert report["nodes"] == 4 and len(report["ranked"]) >= 2
    assert report["ranked"][0]["run"] in done.output


def test_an_option_of_the_algorithms_to_rank_is_understood() -> None:
    """It was looked for among those of dense."""
    given = ["model=resnet20", "nodes=4", "batch_per_node=2", "threads=1", f"node={STATED}", "bucket_mb=null"]
    done = tune(*given, "algo=powersgd", "algo.rank=4")
    assert done.exit_code == 0, done.output
    assert "algo.rank=4 algo=powersgd" in done.output
    assert "there is no key algo.rank" in str(tune(*given, "algo=dense", "algo.rank=4").exception)


def test_run_trains_the_first(tmp_path: Path) -> None:
    given = ["model=resnet20", "nodes=2", "batch_per_node=2", "threads=1", "data=digits", "steps=1"]
    done = tune(*given, f"results={tmp_path}", "wandb.mode=disabled", "algo=dense", f"node={STATED}", "--run")
    assert done.exit_code == 0, done.output
    (status,) = tmp_path.glob("*/*/status.json")
    assert json.loads(status.read_text())["state"] == "done"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["model=resnet20", "nodes=2,4"], "one model"),
        (["nodes=1"], "nothing to choose"),
        (["relax=some"], "exact, compressed, all"),
        (["target=70"], "at most 1"),
        (["bucket_mb=big"], "above 0"),
        (["node=fast"], "paper, measured"),
        (["model=resnet21"], "resnet20"),
        (["overlap=on"], "Leave overlap out, and type the sizes to rank, as bucket_mb=null,25"),
        (["scope=bucket"], "Leave scope out"),
    ],
    ids=str,
)
def test_what_cannot_be_is_said(words: list[str], says: str) -> None:
    done = tune("algo=dense", *words)
    assert isinstance(done.exception, ConfigError) and says in str(done.exception)


def test_each_density_has_its_own_seconds_of_compress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner.node_profile, "stated_or_timed", lambda node, config, *_: config.density)
    choices = ranked("algo=topk", "density=0.001,0.01")
    assert {choice.config.density for choice in choices} == {0.001, 0.01}
    assert all(choice.iteration.compress_s == choice.config.density for choice in choices)
