"""Lists in gRPC requests have the same limits as arrays in Kafka requests."""

from __future__ import annotations

import pytest

from broker.grpc.messages import parse
from stele.wire.kafka.primitives import REQUEST_ELEMENTS_MAX
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1 import data_pb2 as pb
from stele.world import RpcCode, RpcError


def test_a_list_without_end_is_refused_before_it_is_looked_at() -> None:
    allowed = pb.MetadataRequest(topics=[""] * REQUEST_ELEMENTS_MAX).SerializeToString()
    assert len(parse(pb.MetadataRequest, allowed).topics) == REQUEST_ELEMENTS_MAX
    endless = pb.MetadataRequest(topics=[""] * (REQUEST_ELEMENTS_MAX + 1)).SerializeToString()
    with pytest.raises(RpcError, match="65537 elements in topics") as refusal:
        parse(pb.MetadataRequest, endless)
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
