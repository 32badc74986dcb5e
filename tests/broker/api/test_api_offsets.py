"""ListOffsets, OffsetForLeaderEpoch, InitProducerId, FindCoordinator."""

from __future__ import annotations

import pytest

from broker.replication.types import OffsetResult
from stele.errors import ErrorCode
from stele.wire.kafka.messages import (
    init_producer_id,
    list_offsets,
    offset_for_leader_epoch,
)
from stele.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from stele.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from stele.wire.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.broker_apis import Edges
from tests.support.worlds import virtual


def _at(name: str, *asked: tuple[int, int]) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name, [ListOffsetsPartition(number, 5, time) for number, time in asked]
            )
        ],
    )


@pytest.mark.parametrize("version", range(1, 12))
@virtual
async def test_list_offsets(version: int) -> None:
    edges = Edges()
    edges.add_topic("a", [[1], [1]])
    answer = await edges.client().call(
        list_offsets.API, version, _at("a", (0, -1), (1, 123456), (9, -1))
    )
    latest, by_time, missing = answer.topics[0].partitions
    assert (latest.error_code, latest.offset, latest.timestamp) == (0, 42, 1000)
    assert latest.leader_epoch == (3 if version >= 4 else -1)
    assert by_time.error_code == 0
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [query.timestamp_ms for query in edges.replicas.offsets.queries] == [-1, 123456]


@pytest.mark.parametrize(
    ("special", "since", "asked_as"), [(-3, 7, -3), (-4, 8, -2), (-5, 9, None), (-6, 11, None)]
)
@virtual
async def test_special_times(special: int, since: int, asked_as: int | None) -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    client = edges.client()
    before = await client.call(list_offsets.API, since - 1, _at("a", (0, special)))
    assert before.topics[0].partitions[0].error_code == ErrorCode.UNSUPPORTED_VERSION
    answer = await client.call(list_offsets.API, since, _at("a", (0, special)))
    partition = answer.topics[0].partitions[0]
    assert partition.error_code == 0
    if asked_as is None:  # nothing is tiered
        assert (partition.offset, partition.timestamp) == (-1, -1)
    else:
        assert edges.replicas.offsets.queries[-1].timestamp_ms == asked_as
    never = await client.call(list_offsets.API, 11, _at("a", (0, -7)))
    assert never.topics[0].partitions[0].error_code == ErrorCode.UNSUPPORTED_VERSION


@virtual
async def test_a_partition_asked_for_twice() -> None:
    edges = Edges()
    edges.add_topic("a", [[1], [1]])
    answer = await edges.client().call(list_offsets.API, 5, _at("a", (0, -1), (1, -1), (0, -2)))
    assert [p.error_code for p in answer.topics[0].partitions] == [
        ErrorCode.INVALID_REQUEST,
        0,
        ErrorCode.INVALID_REQUEST,
    ]


@virtual
async def test_errors_of_the_log_are_passed_on_and_a_failing_handler_is_answered() -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    client = edges.client()
    edges.replicas.offsets.result = OffsetResult(ErrorCode.OFFSET_NOT_AVAILABLE)
    answer = await client.call(list_offsets.API, 5, _at("a", (0, -1)))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    edges.replicas.fail(RuntimeError("a bug"))
    answer = await client.call(list_offsets.API, 5, _at("a", (0, -1)))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert not client.transport.closed


@pytest.mark.parametrize("version", range(2, 5))
@virtual
async def test_offset_for_leader_epoch(version: int) -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    request = OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(
                "a", [OffsetForLeaderPartition(0, 5, 4), OffsetForLeaderPartition(3, 5, 4)]
            ),
            OffsetForLeaderTopic("gone", [OffsetForLeaderPartition(0, 5, 4)]),
        ]
    )
    answer = await edges.client().call(offset_for_leader_epoch.API, version, request)
    found, missing = answer.topics[0].partitions
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 3, 42)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (query,) = edges.replicas.offsets.epoch_queries
    assert (query.leader_epoch, query.current_leader_epoch) == (4, 5)


@pytest.mark.parametrize("version", range(6))
@virtual
async def test_producer_ids_are_never_given_twice(version: int) -> None:
    edges = Edges()
    client = edges.client()
    ids = []
    for _ in range(1001):
        answer = await client.call(init_producer_id.API, version, InitProducerIdRequest())
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        ids.append(answer.producer_id)
    assert ids == list(range(5000, 6001))


@virtual
async def test_no_producer_id_for_an_empty_transactional_id() -> None:
    answer = await Edges().client().call(init_producer_id.API, 4, InitProducerIdRequest(""))
    assert (answer.error_code, answer.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


@virtual
async def test_a_controller_without_ids() -> None:
    edges = Edges()
    client = edges.client()
    edges.controller.refuse_with = ErrorCode.STALE_BROKER_EPOCH
    answer = await client.call(init_producer_id.API, 4, InitProducerIdRequest())
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    edges.controller.refuse_with = ErrorCode.NONE
    answer = await client.call(init_producer_id.API, 4, InitProducerIdRequest())
    assert answer.producer_id == 5000
