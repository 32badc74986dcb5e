"""Lists of gRPC requests are as long as those of Kafka requests, at most."""

from __future__ import annotations

import pytest

from broker.grpc.messages import parse
from stele.wire.kafka.primitives import REQUEST_ELEMENTS_MAX
from stele.wire.v1 import data_pb2 as pb
from stele.world import RpcCode, RpcError


def test_a_list_without_end_is_refused_before_it_is_looked_at() -> None:
    allowed = pb.MetadataRequest(topics=[""] * REQUEST_ELEMENTS_MAX).SerializeToString()
    assert len(parse(pb.MetadataRequest, allowed).topics) == REQUEST_ELEMENTS_MAX
    endless = pb.MetadataRequest(topics=[""] * (REQUEST_ELEMENTS_MAX + 1)).SerializeToString()
    with pytest.raises(RpcError, match="65537 topics") as refusal:
        parse(pb.MetadataRequest, endless)
    assert refusal.value.code is RpcCode.INVALID_ARGUMENT
