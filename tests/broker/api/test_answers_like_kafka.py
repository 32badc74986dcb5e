"""Every advertised API answers in every version as Kafka's clients expect.

kio, which is made from Kafka's own message definitions, decodes the answers here.
"""

from __future__ import annotations

from typing import Any

import pytest
from kio.serial import entity_reader

from broker.api import SERVED
from stele.errors import ErrorCode
from stele.wire import kafka
from stele.wire.kafka.messages import (
    alter_partition_reassignments,
    create_topics,
    delete_topics,
    describe_configs,
    fetch,
    list_offsets,
    metadata,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    update_features,
)
from tests.support.batches import make_batch
from tests.support.broker_apis import Edges, topic_id
from tests.support.wire import kio_class, unexpected_nulls
from tests.support.worlds import virtual

TOPIC = "a"
ID = topic_id(TOPIC)
VERSIONS = [
    (served, version)
    for served in SERVED
    for version in range(served.api.min_version, served.versions[1] + 1)
]


def request_of(name: str) -> Any:
    """A request as a client would send it. The encoder leaves out fields that a version lacks."""
    match name:
        case "PRODUCE":
            data = produce.PartitionProduceData(0, bytes(make_batch()))
            topics = [produce.TopicProduceData(TOPIC, ID, [data])]
            return produce.ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)
        case "FETCH":
            partition = fetch.FetchPartition(0, partition_max_bytes=1000)
            return fetch.FetchRequest(topics=[fetch.FetchTopic(TOPIC, ID, [partition])])
        case "LIST_OFFSETS":
            wanted = list_offsets.ListOffsetsPartition(0, timestamp=-1)
            topic = list_offsets.ListOffsetsTopic(TOPIC, [wanted])
            return list_offsets.ListOffsetsRequest(topics=[topic])
        case "METADATA":
            return metadata.MetadataRequest(
                topics=[metadata.MetadataRequestTopic(name=TOPIC), _unknown()]
            )
        case "CREATE_TOPICS":
            created = [create_topics.CreatableTopic(each, 1, 1) for each in ("new", TOPIC)]
            return create_topics.CreateTopicsRequest(created, timeout_ms=1000)
        case "DELETE_TOPICS":
            states = [delete_topics.DeleteTopicState(name) for name in (TOPIC, "unknown")]
            return delete_topics.DeleteTopicsRequest(states, [TOPIC, "unknown"], 1000)
        case "OFFSET_FETCH":
            fetched = offset_fetch.OffsetFetchRequestTopic(TOPIC, [0])
            return offset_fetch.OffsetFetchRequest("g", [fetched])
        case "OFFSET_FOR_LEADER_EPOCH":
            epoch = offset_for_leader_epoch.OffsetForLeaderPartition(0, leader_epoch=1)
            asked = offset_for_leader_epoch.OffsetForLeaderTopic(TOPIC, [epoch])
            return offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=[asked])
        case "DESCRIBE_CONFIGS":
            resources = [
                describe_configs.DescribeConfigsResource(kind, each)
                for kind, each in ((2, TOPIC), (4, "1"), (2, "unknown"))
            ]
            return describe_configs.DescribeConfigsRequest(resources)
        case "ALTER_PARTITION_REASSIGNMENTS":
            move = alter_partition_reassignments.ReassignablePartition(0, [2])
            moved = alter_partition_reassignments.ReassignableTopic(TOPIC, [move])
            return alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[moved])
        case "UPDATE_FEATURES":
            update = update_features.FeatureUpdateKey("unknown", 1)
            return update_features.UpdateFeaturesRequest(feature_updates=[update])
        case "API_VERSIONS":
            api = next(served.api for served in SERVED if served.api.key.name == name)
            return api.request("test", "1.0")
    return next(served.api.request() for served in SERVED if served.api.key.name == name)


def _unknown() -> metadata.MetadataRequestTopic:
    return metadata.MetadataRequestTopic(name="unknown")


@pytest.mark.parametrize(
    ("served", "version"),
    VERSIONS,
    ids=lambda each: str(each) if isinstance(each, int) else each.api.key.name,
)
@virtual
async def test_every_version_is_answered_as_kafka_would(served: Any, version: int) -> None:
    edges = Edges()
    edges.add_topic(TOPIC, [[1]])
    edges.controller.moves = {(TOPIC, 0): [2]}
    client = edges.client()
    request = request_of(served.api.key.name)
    client.send(served.api, version, request)
    frame = await client.transport.written.get()
    answer = kafka.decode_response(served.api, version, frame[kafka.SIZE_BYTES :])
    assert unexpected_nulls(served.api, version, answer) == []
    body = b"".join(served.api.encode_response(version, answer))
    assert frame.endswith(body), "what was sent is what is decoded here"
    cls = kio_class(answer.__class__.__name__.removesuffix("Response"), version, "response")
    _, size = entity_reader(cls)(body, 0)
    assert size == len(body)
    values = edges.registry.values()
    assert not [name for name in values if name.startswith("stele_request_failures")]


@pytest.mark.parametrize("timeout_ms", [0, -1])
@pytest.mark.parametrize(
    "served",
    [each for each in SERVED if hasattr(each.api.request(), "timeout_ms")],
    ids=lambda each: each.api.key.name,
)
@virtual
async def test_a_client_that_does_not_want_to_wait_is_answered(
    served: Any, timeout_ms: int
) -> None:
    """The controller is still asked, and no answer says that there is no controller."""

    edges = Edges()
    edges.add_topic(TOPIC, [[1]])
    request = request_of(served.api.key.name)
    request.timeout_ms = timeout_ms
    answer = await edges.client().call(served.api, served.versions[1], request)
    assert ErrorCode.REQUEST_TIMED_OUT not in list(error_codes(answer))


def error_codes(value: Any) -> Any:
    if isinstance(value, list):
        for each in value:
            yield from error_codes(each)
    for name in getattr(value, "__slots__", ()):
        held = getattr(value, name)
        if name == "error_code":
            yield held
        yield from error_codes(held)
