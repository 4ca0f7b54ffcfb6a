"""Execution traces hold what was counted: each message at both its ends, in the order in which ranks wait for them.

They are read with Chakra's own package.
"""

from pathlib import Path
from typing import Any

import pytest
from chakra.schema.protobuf import et_def_pb2 as chakra
from chakra.src.third_party.utils import protolib
from google.protobuf.unknown_fields import UnknownFieldSet

from repro import cli
from repro.comm import replay
from repro.comm.traffic import Round
from repro.config.compose import compose
from repro.config.schema import ConfigError
from repro.timing import execution_traces, simulate, simulated_row

M, K = 100_003, 1_003


def read(file: Path) -> list[Any]:
    """The nodes after the header, which says the version."""
    nodes = []
    with protolib.openFileRd(str(file)) as stream:
        protolib.decodeMessage(stream, header := chakra.GlobalMetadata())
        assert header.version == "1.0.0"
        while protolib.decodeMessage(stream, node := chakra.Node()):
            assert not any(len(UnknownFieldSet(part)) for part in (node, *node.attr))
            nodes.append(node)
    return nodes


def about(node: Any) -> dict[str, int]:
    return {one.name: getattr(one, one.WhichOneof("value")) for one in node.attr}


def rounds_of(rank: int, nodes: list[Any]) -> list[Round]:
    """The rounds that a trace was made of: nodes that wait for the same nodes."""
    found: dict[tuple[int, ...], Round] = {}
    for node in nodes:
        key, values = tuple(node.data_deps), about(node)
        done = found.get(key, Round(None, 0, None, 0))
        if node.type == chakra.COMM_SEND_NODE:
            assert values["comm_src"] == rank
            found[key] = done._replace(to=values["comm_dst"], sent=values["comm_size"])
        elif node.type == chakra.COMM_RECV_NODE:
            assert values["comm_dst"] == rank
            found[key] = done._replace(source=values["comm_src"], received=values["comm_size"])
    return list(found.values())


@pytest.mark.parametrize("algo", ["dense", "topk", "gtopk", "gtopk_butterfly", "gtopk_exact", "local_sgd"])
@pytest.mark.parametrize("nodes", [2, 6])
def test_what_is_read_takes_as_long_as_what_was_counted(algo, nodes, tmp_path):
    (config,) = compose([f"algo={algo}", f"nodes={nodes}"])
    counted = simulated_row.all_rounds(config, M, K)
    files = execution_traces.write(tmp_path / "step", counted, {"compute": 0.14, "compress": 0.02})
    assert [file.name for file in files] == [f"step.{rank}.et" for rank in range(nodes)]
    traces = [read(file) for file in files]
    ends: dict[tuple[int, ...], list[int]] = {}
    for nodes_of_rank in traces:
        assert [(node.type, node.duration_micros) for node in nodes_of_rank[:2]] == [
            (chakra.COMP_NODE, 140_000),
            (chakra.COMP_NODE, 20_000),
        ]
        known: set[int] = set()
        for node in nodes_of_rank:
            assert set(node.data_deps) <= known and node.id not in known
            known.add(node.id)
            if node.type != chakra.COMP_NODE:
                values = about(node)
                message = tuple(values[name] for name in ("comm_src", "comm_dst", "comm_tag"))
                ends.setdefault(message, []).append(values["comm_size"])
    assert all(len(sizes) == 2 and sizes[0] == sizes[1] for sizes in ends.values())
    again = [rounds_of(rank, nodes_of_rank) for rank, nodes_of_rank in enumerate(traces)]
    assert replay.finish(again, 1e-3, 1e-8) == pytest.approx(replay.finish(counted, 1e-3, 1e-8))
    sent = [sum(done.sent * done.repeat for done in own) for own in counted]
    assert [sum(done.sent for done in own) for own in again] == sent


def test_the_command_writes_one_file_a_node_for_each_row(tmp_path):
    words = "simulate model=vgg16 algo=topk algo.wire=pairs,packed nodes=2,4 node=0.2+0.1 --trace"
    cli.app([*words.split(), str(tmp_path / "traces")], standalone_mode=False)
    names = {file.name for file in (tmp_path / "traces").iterdir()}
    assert names == {
        f"vgg16-14728266-topk{wire}-n{nodes}.{rank}.et"
        for wire in ("", "-packed") for nodes in (2, 4) for rank in range(nodes)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("sweep", "names"),
    [
        ("algo=topk density=0.001,0.01", ["topk-density=0.001", "topk-density=0.01"]),
        ("algo=powersgd algo.rank=1,4", ["powersgd-rank=1", "powersgd-rank=4"]),
        ("algo=topk network=ethernet1g,ethernet10g", ["topk-network=ethernet1g", "topk-network=ethernet10g"]),
    ],
)
def test_rows_that_differ_in_a_setting_have_files_of_their_own(sweep, names, tmp_path):
    """The last one's took the place of the others'."""
    simulate.run(compose([*sweep.split(), "nodes=2"]), "0.2+0.1", [10_000], None, tmp_path)
    expected = {f"resnet20-10000-{name}-n2.{rank}.et" for name in names for rank in range(2)}
    assert {file.name for file in tmp_path.iterdir()} == expected


def test_traces_without_compress_are_said_to_be_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of an algorithm whose compress nobody published they were written as if it took no time."""
    configs = compose(["model=resnet20", "batch_per_node=128", "algo=powersgd", "nodes=2"])
    simulate.run(configs, "paper", None, None, tmp_path / "traces")
    (nodes, _) = (read(file) for file in sorted((tmp_path / "traces").iterdir()))
    assert [node.name for node in nodes if node.type == chakra.COMP_NODE] == ["compute"]
    said = "Their traces have messages after compute alone, without compress."
    assert said in " ".join(capsys.readouterr().out.split())
    simulate.run(configs, "0.2+0.1", None, None, tmp_path / "stated")
    assert said not in " ".join(capsys.readouterr().out.split())
    simulate.run(configs, "paper", None, None)
    assert said not in " ".join(capsys.readouterr().out.split())


def test_files_of_one_name_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="differ in seed alone have one name; type one value of seed"):
        simulate.run(compose(["algo=topk", "nodes=2", "seed=0,1"]), "0.2+0.1", [10_000], None, tmp_path / "traces")
    assert not (tmp_path / "traces").exists()
