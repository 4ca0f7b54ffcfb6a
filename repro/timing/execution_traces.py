"""Writes counted messages as MLCommons Chakra execution traces, which ASTRA-sim and other simulators replay.

One file a rank: a header, then one protobuf message for each node of a graph, each after its length as a varint. What
the graph needs of Chakra's schema (et_def.proto at version 1.0.0) stands in FIELDS and in the numbers of the types.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, proto

from repro.comm.traffic import Round
from repro.whole_files import replacing

VERSION = "1.0.0"
COMPUTE, SEND, RECEIVE = 4, 5, 6  # of NodeType
TEXT, INT32, INT64, UINT64, BOOL, MESSAGE, ENUM = 9, 5, 3, 4, 8, 11, 5  # protobuf's types; an enum travels as an int32
FIELDS = {  # name: number, type, whether it is repeated
    "GlobalMetadata": {"version": (1, TEXT, False)},
    "AttributeProto": {
        "name": (1, TEXT, False), "int32_val": (7, INT32, False), "int64_val": (9, INT64, False),
        "bool_val": (27, BOOL, False),
    },
    "Node": {
        "id": (1, UINT64, False), "name": (2, TEXT, False), "type": (3, ENUM, False), "data_deps": (5, UINT64, True),
        "duration_micros": (7, UINT64, False), "attr": (10, MESSAGE, True),
    },
}  # fmt: skip


def write(prefix: Path, all_rounds: Sequence[Sequence[Round]], seconds: dict[str, float]) -> list[Path]:
    """Writes PREFIX.RANK.et for each rank: a node for each of `seconds`, one after the other, and then its messages.

    A round begins when the one before has ended; its message to a rank and that from a rank are two nodes. The n-th
    message from i to j has tag n at both ends.
    """
    prefix.parent.mkdir(parents=True, exist_ok=True)
    files = []
    for rank, rounds in enumerate(all_rounds):
        files.append(prefix.with_name(f"{prefix.name}.{rank}.et"))
        with replacing(files[-1]) as part, part.open("wb") as out:
            header = messages()["GlobalMetadata"](version=VERSION)
            for message in itertools.chain([header], graph(rank, rounds, seconds)):
                proto.serialize_length_prefixed(message, out)
    return files


def graph(rank: int, rounds: Sequence[Round], seconds: dict[str, float]) -> Iterator[Any]:
    """Yields the nodes of one rank's trace."""
    node = messages()["Node"]
    numbers, before, tags = itertools.count(), list[int](), Counter[tuple[int, int]]()
    for name, duration in seconds.items():
        number = next(numbers)
        micros = max(1, round(1e6 * duration))
        yield node(id=number, name=name, type=COMPUTE, data_deps=before, duration_micros=micros, attr=[_on_gpu()])
        before = [number]
    for done in itertools.chain.from_iterable([done] * done.repeat for done in rounds):
        ends = [(SEND, rank, done.to, done.sent), (RECEIVE, done.source, rank, done.received)]
        here = []
        for kind, source, to, size in ends:
            if source is None or to is None:
                continue
            here.append(next(numbers))
            name = f"{'send to' if kind == SEND else 'receive from'} {to if kind == SEND else source}"
            about = {"comm_src": source, "comm_dst": to, "comm_tag": tags[source, to]}
            attributes = [_on_gpu(), *(_attribute(name=key, int32_val=value) for key, value in about.items())]
            attributes.append(_attribute(name="comm_size", int64_val=size))
            yield node(id=here[-1], name=name, type=kind, data_deps=before, attr=attributes)
            tags[source, to] += 1
        before = here or before


@functools.cache
def messages() -> dict[str, Any]:
    """Returns the classes of FIELDS by name."""
    file = descriptor_pb2.FileDescriptorProto(name="chakra.proto", package="ChakraProtoMsg", syntax="proto3")
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, repeated) in fields.items():
            added = message.field.add(name=field, number=number, type=kind, label=3 if repeated else 1)
            if kind == MESSAGE:
                added.type_name = ".ChakraProtoMsg.AttributeProto"
            if field.endswith("_val"):  # so that a zero is written too
                added.oneof_index = 0
        if name == "AttributeProto":
            message.oneof_decl.add(name="value")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}") for name in FIELDS)
    return {one.name: message_factory.GetMessageClass(one) for one in found}


def _attribute(**values: Any) -> Any:
    return messages()["AttributeProto"](**values)


def _on_gpu() -> Any:
    return _attribute(name="is_cpu_op", bool_val=False)
