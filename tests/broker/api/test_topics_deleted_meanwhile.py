"""A topic that is deleted after a request has found it by name: what the answer says."""

from __future__ import annotations

from typing import Any

import pytest

from broker.replication.deletion import DeletionResult
from broker.replication.types import FetchResult, OffsetResult, ProduceResult
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.kafka.messages import (
    delete_records,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from tests.support.batches import make_batch
from tests.support.broker_apis import Edges, topic_id
from tests.support.worlds import virtual

NAME, BY_NAME, BY_ID = "a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID
ID = topic_id(NAME)
P0 = PartitionId(ID, 0)


def edges_of_a_deleted_topic() -> Edges:
    """The replica manager has applied the deletion, and the published image is older."""
    edges = Edges()
    edges.add_topic(NAME, [[1]])
    edges.replicas.produce.results[P0] = ProduceResult(P0, BY_ID)
    edges.replicas.fetch.results[P0] = FetchResult(P0, BY_ID)
    edges.replicas.offsets.result = OffsetResult(BY_ID)
    edges.replicas.deletion.result = DeletionResult(BY_ID)
    return edges


@pytest.mark.parametrize("version", range(3, 14))
@virtual
async def test_produce(version: int) -> None:
    data = produce.PartitionProduceData(0, bytes(make_batch()))
    request = produce.ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[produce.TopicProduceData(NAME, ID, [data])]
    )
    answer = await edges_of_a_deleted_topic().client().call(produce.API, version, request)
    told = answer.responses[0].partition_responses[0].error_code
    assert told == (BY_ID if version >= 13 else BY_NAME)


@pytest.mark.parametrize("version", range(4, 19))
@virtual
async def test_fetch(version: int) -> None:
    partition = fetch.FetchPartition(0, partition_max_bytes=1000)
    request = fetch.FetchRequest(topics=[fetch.FetchTopic(NAME, ID, [partition])])
    answer = await edges_of_a_deleted_topic().client().call(fetch.API, version, request)
    told = answer.responses[0].partitions[0].error_code
    assert told == (BY_ID if version >= 13 else BY_NAME)


async def told_of_names(edges: Edges) -> list[int]:
    client = edges.client()
    wanted = list_offsets.ListOffsetsPartition(0, timestamp=-1)
    epoch = offset_for_leader_epoch.OffsetForLeaderPartition(0, -1, 0)
    deleted = delete_records.DeleteRecordsPartition(0, 1)
    answers: list[Any] = [
        await client.call(
            list_offsets.API,
            7,
            list_offsets.ListOffsetsRequest(topics=[list_offsets.ListOffsetsTopic(NAME, [wanted])]),
        ),
        await client.call(
            offset_for_leader_epoch.API,
            4,
            offset_for_leader_epoch.OffsetForLeaderEpochRequest(
                -1, [offset_for_leader_epoch.OffsetForLeaderTopic(NAME, [epoch])]
            ),
        ),
        await client.call(
            delete_records.API,
            2,
            delete_records.DeleteRecordsRequest(
                [delete_records.DeleteRecordsTopic(NAME, [deleted])], 1000
            ),
        ),
    ]
    return [answer.topics[0].partitions[0].error_code for answer in answers]


@virtual
async def test_offsets_epochs_and_deletions() -> None:
    assert await told_of_names(edges_of_a_deleted_topic()) == [BY_NAME] * 3
