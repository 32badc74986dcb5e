"""ApiVersions, and requests for APIs or versions that are not served."""

from __future__ import annotations

import struct
from collections.abc import Awaitable
from typing import Any

import pytest

from broker.api import SERVED
from broker.api.handler import RequestContext
from broker.api.topic_views import TopicViews
from metadata.records import METADATA_VERSION_LEVEL
from runtime.authorization.caller import ANONYMOUS, Caller, Plane
from stele.errors import ErrorCode
from stele.wire import kafka
from stele.wire.kafka.messages import api_versions
from stele.wire.kafka.messages.api_versions import API, ApiVersionsRequest
from stele.wire.v1 import metadata_pb2
from tests.support.broker_apis import Edges
from tests.support.worlds import virtual

REQUEST = ApiVersionsRequest("test", "1.0")


RANGES = {
    0: (0, 13),  # decoded from 3 on; older librdkafka wants to see 0
    1: (4, 18),
    2: (1, 11),
    3: (0, 13),
    8: (2, 10),
    9: (1, 10),
    10: (0, 6),
    11: (0, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    15: (0, 6),
    16: (0, 5),
    17: (0, 1),
    18: (0, 4),
    19: (2, 7),
    20: (1, 6),
    21: (0, 2),
    22: (0, 6),
    23: (2, 4),
    24: (0, 5),
    25: (0, 4),
    26: (0, 5),
    27: (1, 2),
    28: (0, 5),
    29: (1, 3),
    30: (1, 3),
    31: (1, 3),
    32: (1, 4),
    33: (0, 2),
    34: (1, 2),
    35: (1, 4),
    36: (0, 2),
    37: (0, 3),
    38: (1, 3),
    39: (1, 2),
    40: (1, 2),
    41: (1, 3),
    42: (0, 2),
    43: (0, 2),
    44: (0, 1),
    45: (0, 1),
    46: (0, 0),
    47: (0, 0),
    48: (0, 1),
    49: (0, 1),
    50: (0, 0),
    51: (0, 0),
    55: (0, 2),
    57: (0, 2),
    60: (0, 2),
    61: (0, 0),
    64: (0, 0),
    65: (0, 0),
    66: (0, 2),
    68: (0, 1),
    69: (0, 1),
    74: (0, 1),
    75: (0, 0),
    76: (1, 1),
    77: (1, 1),
    78: (1, 2),
    79: (1, 2),
    83: (0, 0),
    84: (0, 0),
    85: (0, 1),
    86: (0, 0),
    87: (0, 1),
    90: (0, 1),
    91: (0, 0),
    92: (0, 0),
}
"""What clients and tools of Kafka 4.1 ask of a broker, by API key."""


@pytest.mark.parametrize("version", range(5))
@virtual
async def test_tells_what_is_served(version: int) -> None:
    answer = await Edges().client().call(API, version, REQUEST)
    assert answer.error_code == ErrorCode.NONE
    ranges = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert ranges == RANGES


@pytest.mark.parametrize("version", range(5))
@virtual
async def test_tells_supported_and_finalized_features(version: int) -> None:
    edges = Edges()
    before = await edges.client().call(API, version, REQUEST)
    assert not before.finalized_features
    level = metadata_pb2.FeatureLevelRecord(name="metadata.version", level=2)
    edges.commit(metadata_pb2.MetadataRecord(feature_level=level))
    answer = await edges.client().call(API, version, REQUEST)
    if version < 3:
        assert not answer.supported_features
        return
    (finalized,) = answer.finalized_features
    from_level_0 = [
        api_versions.SupportedFeatureKey("group.version", 0, 1),
        api_versions.SupportedFeatureKey("share.version", 0, 2),
        api_versions.SupportedFeatureKey("transaction.version", 0, 2),
    ]
    supported = [
        api_versions.SupportedFeatureKey("stele.metadata.version", 1, METADATA_VERSION_LEVEL)
    ]
    if version >= 4:
        supported = [from_level_0[0], *supported, *from_level_0[1:]]
    assert answer.supported_features == supported
    assert finalized == api_versions.FinalizedFeatureKey("stele.metadata.version", 2, 2)
    assert answer.finalized_features_epoch == edges.publisher.offset


@pytest.mark.parametrize("name", ["", "-x", "a b", "x."])
@virtual
async def test_a_client_with_a_bad_name(name: str) -> None:
    answer = await Edges().client().call(API, 4, ApiVersionsRequest(name, "1"))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@virtual
async def test_a_newer_version_is_answered_with_ours_in_version_0() -> None:
    client = Edges().client()
    body = struct.pack(">hhih", 18, 99, 7, -1) + b"\x00whatever comes in version 99"
    client.send_bytes(struct.pack(">i", len(body)) + body)
    answer = await client.receive(API, 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.api_keys == [api_versions.ApiVersion(18, 0, 4)]
    assert not client.transport.closed


@pytest.mark.parametrize(
    ("key", "version"),
    [(999, 0), (-1, 0), (37, 4), (0, 2), (0, 14), (1, 3), (3, 14), (22, 7), (66, 3)],
)
@virtual
async def test_an_unknown_key_or_version_closes_that_connection_only(
    key: int, version: int
) -> None:
    edges = Edges()
    bad, good = edges.client(), edges.client()
    body = struct.pack(">hhih", key, version, 7, -1) + bytes(20)
    bad.send_bytes(struct.pack(">i", len(body)) + body)
    assert bad.transport.closed
    assert (await good.call(API, 3, REQUEST)).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhih", 14, 3, 9, 1, 2000) + b"abcd",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
@virtual
async def test_garbage_closes_that_connection_only(data: bytes) -> None:
    edges = Edges()
    bad, good = edges.client(), edges.client()
    bad.send_bytes(data)
    assert bad.transport.closed
    assert (await good.call(API, 3, REQUEST)).error_code == ErrorCode.NONE


@virtual
async def test_every_api_can_refuse_every_version() -> None:
    """A failing handler must always leave an answer that can be encoded."""
    connection: Any = None
    caller = Caller(ANONYMOUS, None, "X", Plane.KAFKA, "10.0.0.9")
    for served in SERVED:
        for version in range(served.api.min_version, served.versions[1] + 1):
            request: Any = served.api.request()
            if getattr(request, "topics", 1) is None:
                request.topics = []
            request_context = RequestContext(version, caller, TopicViews(), connection)
            refused = served.refuse(request_context, request, ErrorCode.UNKNOWN_SERVER_ERROR)
            answer = await refused if isinstance(refused, Awaitable) else refused
            assert kafka.encode_response(served.api.key, version, 1, answer)


@virtual
async def test_nothing_is_answered_before_the_broker_is_open() -> None:
    edges = Edges()
    edges.apis = type(edges.apis)(edges.context)
    client = edges.client()
    client.send(API, 3, REQUEST)
    client.send(API, 0, REQUEST)
    assert client.transport.written.empty()
    edges.apis.open()
    assert (await client.receive(API, 3)).error_code == ErrorCode.NONE
    assert (await client.receive(API, 0)).error_code == ErrorCode.NONE
