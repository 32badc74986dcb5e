"""Lists in gRPC requests have the same limits as arrays in Kafka requests."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.message import Message

from runtime.grpc.requests import ADMIN_BYTES_MAX, QUORUM_BYTES_MAX, parse
from stele.wire.kafka.primitives import REQUEST_ELEMENTS_MAX
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1 import log_pb2 as pb
from stele.wire.v1 import raft_pb2 as raft
from stele.world import RpcCode, RpcError


def test_a_list_without_end_is_refused_before_it_is_looked_at() -> None:
    allowed = admin.DescribeTopicsRequest(names=[""] * REQUEST_ELEMENTS_MAX).SerializeToString()
    assert len(parse(admin.DescribeTopicsRequest, allowed).names) == REQUEST_ELEMENTS_MAX
    endless = admin.DescribeTopicsRequest(
        names=[""] * (REQUEST_ELEMENTS_MAX + 1)
    ).SerializeToString()
    with pytest.raises(RpcError, match="65537 elements in names") as refusal:
        parse(admin.DescribeTopicsRequest, endless)
    assert refusal.value.code is RpcCode.INVALID_ARGUMENT


def test_lists_within_lists_count_too() -> None:
    assignment = admin.NewTopic.Assignment(replicas=[1] * 1000)
    topic = admin.NewTopic(name="t", assignments=[assignment] * 10)
    few = admin.CreateTopicsRequest(topics=[topic] * 6).SerializeToString()
    assert len(parse(admin.CreateTopicsRequest, few).topics) == 6
    many = admin.CreateTopicsRequest(topics=[topic] * 100).SerializeToString()
    with pytest.raises(RpcError, match="elements in topics: 65536 are the most"):
        parse(admin.CreateTopicsRequest, many)
    wish = admin.CreatePartitionsRequest.Topic(name="t", count=9)
    wish.assignments.partitions.extend(
        [admin.CreatePartitionsRequest.Replicas(ids=[1] * 1000)] * 100
    )
    nested = admin.CreatePartitionsRequest(topics=[wish]).SerializeToString()
    with pytest.raises(RpcError, match="elements in topics: 65536 are the most"):
        parse(admin.CreatePartitionsRequest, nested)


def element(number: int, content: bytes = b"") -> bytes:
    """One element of a list, as protobuf writes it."""
    size = len(content)
    length = bytearray()
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return bytes([number << 3 | 2]) + length + content


MANY = 300_000
TINY: dict[str, tuple[type[Message], bytes]] = {
    "texts": (
        admin.DescribeTopicsRequest,
        element(admin.DescribeTopicsRequest.NAMES_FIELD_NUMBER) * MANY,
    ),
    "messages": (pb.PublishRequest, element(pb.PublishRequest.RECORDS_FIELD_NUMBER) * MANY),
    "within one": (admin.AlterConfigsRequest, element(1, element(2) * MANY)),
    "within many": (admin.AlterConfigsRequest, element(1, element(2) * 1_000) * 300),
    "of no known field": (admin.DescribeTopicsRequest, element(15) * MANY),
}


@pytest.mark.parametrize("what", TINY)
def test_far_too_many_elements_are_refused_before_they_are_made(what: str) -> None:
    kind, payload = TINY[what]
    made: list[bytes] = []
    watched: Any = SimpleNamespace(DESCRIPTOR=kind.DESCRIPTOR, FromString=made.append)
    with pytest.raises(RpcError, match="more than 262144 fields") as refusal:
        parse(watched, payload)
    assert refusal.value.code is RpcCode.INVALID_ARGUMENT
    assert not made


@pytest.mark.parametrize("payload", [element(1, bytes(600_000)) + b"\x0a", b"\x0b" * 600_000])
def test_large_garbage_is_no_message(payload: bytes) -> None:
    with pytest.raises(RpcError, match="bytes that are no") as refusal:
        parse(admin.CreateTopicsRequest, payload)
    assert refusal.value.code is RpcCode.INVALID_ARGUMENT


def test_large_requests_that_mean_something_are_read() -> None:
    published = pb.PublishRequest(records=[pb.PublishRecord(value=bytes(1 << 20))] * 4)
    assert parse(pb.PublishRequest, published.SerializeToString()) == published
    deleted = admin.DeleteRecordsRequest(
        partitions=[
            admin.DeleteRecordsRequest.Partition(topic="orders", partition=7, offset=1 << 40)
        ]
        * REQUEST_ELEMENTS_MAX
    )
    assert len(deleted.SerializeToString()) > 1_000_000
    assert parse(admin.DeleteRecordsRequest, deleted.SerializeToString()) == deleted


KINDS: dict[str, tuple[type[Message], int]] = {
    "a client's request": (admin.CreateTopicsRequest, ADMIN_BYTES_MAX),
    "a request of the quorum": (raft.EndQuorumEpochRequest, QUORUM_BYTES_MAX),
}


@pytest.mark.parametrize("what", KINDS)
def test_a_request_without_records_is_refused_by_its_size(what: str) -> None:
    kind, bytes_max = KINDS[what]
    made: list[bytes] = []
    watched: Any = SimpleNamespace(DESCRIPTOR=kind.DESCRIPTOR, FromString=made.append)
    with pytest.raises(RpcError, match=f"{bytes_max} are the most") as refusal:
        parse(watched, bytes(bytes_max + 1), bytes_max=bytes_max)
    assert refusal.value.code is RpcCode.INVALID_ARGUMENT
    assert not made


def test_refused_elements_take_no_memory() -> None:
    """In a process of its own: the memory of this one has had its peak already."""
    script = """
import resource
from runtime.grpc.requests import ADMIN_BYTES_MAX, NODE_ELEMENTS_MAX, parse
from stele.wire.v1 import admin_pb2, log_pb2
from stele.world import RpcError

tiny = bytes([(1 << 3) | 2, 0]) * (ADMIN_BYTES_MAX // 2)
parse(admin_pb2.DescribeTopicsRequest, tiny[:2])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for kind, elements_max in (
    (admin_pb2.DescribeTopicsRequest, 65_536),
    (log_pb2.PublishRequest, 65_536),
):
    try:
        parse(kind, tiny, bytes_max=ADMIN_BYTES_MAX, elements_max=elements_max)
    except RpcError:
        continue
    raise AssertionError(kind)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(found.stdout) < 100_000, "KiB; eight million elements would take a gigabyte"
