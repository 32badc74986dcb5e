"""Produce: translation, acks, hints, and handlers that fail."""

from __future__ import annotations

import asyncio

import pytest

from broker.replication.types import LeaderHint, ProduceResult
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.batch_errors import RecordError
from stele.wire.kafka.messages import api_versions, fetch, produce
from stele.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.batches import make_batch
from tests.support.broker_apis import Edges, topic_id
from tests.support.worlds import virtual

API = produce.API


def _request(
    *targets: tuple[str, int], acks: int = -1, records: bytes | None = b"", unknown: bytes = b""
) -> ProduceRequest:
    batch = bytes(make_batch(3)) if records == b"" else records
    return ProduceRequest(
        acks=acks,
        timeout_ms=1500,
        topic_data=[
            TopicProduceData(
                name=name,
                topic_id=unknown or topic_id(name),
                partition_data=[PartitionProduceData(partition, batch)],
            )
            for name, partition in targets
        ],
    )


def _errors(answer: ProduceResponse) -> list[int]:
    return [p.error_code for t in answer.responses for p in t.partition_responses]


@pytest.mark.parametrize("version", range(3, 14))
@virtual
async def test_appends_by_name_or_id(version: int) -> None:
    edges = Edges()
    edges.add_topic("a", [[1], [1]])
    answer = await edges.client().call(API, version, _request(("a", 1)))
    ((entries, acks, timeout_ms),) = edges.replicas.produce.produced
    assert (acks, timeout_ms) == (-1, 1500)
    assert entries[0].id == PartitionId(topic_id("a"), 1)
    assert bytes(entries[0].batch) == bytes(make_batch(3))
    entries[0].batch[0] = 1  # it will be stamped in place
    (topic,) = answer.responses
    assert (topic.name == "a") == (version < 13)
    assert topic.topic_id == (topic_id("a") if version >= 13 else bytes(16))
    assert topic.partition_responses[0].base_offset == 7


@virtual
async def test_answers_come_in_the_order_of_the_request() -> None:
    edges = Edges()
    edges.add_topic("a", [[1], [1]])
    edges.replicas.produce.results[PartitionId(topic_id("a"), 1)] = ProduceResult(
        PartitionId(topic_id("a"), 1), ErrorCode.NOT_ENOUGH_REPLICAS, "too few in sync"
    )
    answer = await edges.client().call(API, 9, _request(("gone", 0), ("a", 1), ("a", 0), ("a", 2)))
    assert _errors(answer) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert answer.responses[1].partition_responses[0].error_message == "too few in sync"


@pytest.mark.parametrize("version", [7, 8, 13])
@virtual
async def test_rejected_records_are_named(version: int) -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    target = PartitionId(topic_id("a"), 0)
    reason = "it has no key, and the topic is compacted"
    result = ProduceResult(target, ErrorCode.INVALID_RECORD, "2 records are rejected")
    result.record_errors = [RecordError(each, result.error, reason) for each in (1, 4)]
    edges.replicas.produce.results[target] = result
    answer = await edges.client().call(API, version, _request(("a", 0)))
    (told,) = answer.responses[0].partition_responses
    assert told.error_code == ErrorCode.INVALID_RECORD
    errors = [(each.batch_index, each.batch_index_error_message) for each in told.record_errors]
    assert errors == ([(1, reason), (4, reason)] if version >= 8 else [])
    assert told.error_message == ("2 records are rejected" if version >= 8 else None)


@virtual
async def test_an_unknown_topic_id() -> None:
    edges = Edges()
    answer = await edges.client().call(API, 13, _request(("a", 0), unknown=b"?" * 16))
    assert _errors(answer) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert answer.responses[0].topic_id == b"?" * 16


@pytest.mark.parametrize("acks", [2, -2, 32767])
@virtual
async def test_invalid_acks(acks: int) -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    answer = await edges.client().call(API, 9, _request(("a", 0), acks=acks))
    assert _errors(answer) == [ErrorCode.INVALID_REQUIRED_ACKS]
    assert not edges.replicas.produce.produced


@pytest.mark.parametrize("records", [None])
@virtual
async def test_a_partition_without_a_batch(records: bytes | None) -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    answer = await edges.client().call(API, 9, _request(("a", 0), records=records))
    assert _errors(answer) == [ErrorCode.INVALID_RECORD]


@virtual
async def test_acks_0_is_not_answered() -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    client = edges.client()
    client.send(API, 9, _request(("a", 0), acks=0))
    answer = await client.call(api_versions.API, 0, api_versions.ApiVersionsRequest())
    assert answer.error_code == 0
    assert edges.replicas.produce.produced[0][1] == 0
    assert not client.transport.closed


@virtual
async def test_acks_0_that_fails_closes_the_connection() -> None:
    edges = Edges()
    client = edges.client()
    client.send(API, 9, _request(("gone", 0), acks=0))
    assert client.transport.closed
    assert client.transport.written.empty()


@pytest.mark.parametrize("version", [9, 10, 13])
@virtual
async def test_hints_at_the_leader(version: int) -> None:
    edges = Edges()
    edges.add_topic("a", [[2, 1]])
    target = PartitionId(topic_id("a"), 0)
    edges.replicas.produce.results[target] = ProduceResult(
        target, ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=LeaderHint(2, 8)
    )
    answer = await edges.client().call(API, version, _request(("a", 0)))
    partition = answer.responses[0].partition_responses[0]
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version < 10:
        assert partition.current_leader is None
        assert answer.node_endpoints == []
    else:
        assert partition.current_leader == produce.LeaderIdAndEpoch(2, 8)
        assert answer.node_endpoints == [produce.NodeEndpoint(2, "b2.external", 19092, "r2")]


@virtual
async def test_a_handler_that_raises_costs_one_request_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    client = edges.client()
    edges.replicas.fail(RuntimeError("a bug"))
    answer = await client.call(API, 9, _request(("a", 0)))
    assert _errors(answer) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert "PRODUCE v9 from 10.0.0.9:5555" in caplog.text
    assert "a bug" in caplog.text
    edges.replicas.fail(None)
    assert _errors(await client.call(API, 9, _request(("a", 0)))) == [0]
    values = edges.registry.values()
    assert values['stele_request_failures_total{api="PRODUCE"}'] == 1
    assert values['stele_requests_total{api="PRODUCE"}'] == 2


@virtual
async def test_answers_keep_the_order_of_a_connections_requests() -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    edges.replicas.hold()
    client = edges.client()
    client.send(API, 9, _request(("a", 0)))
    client.send(API, 9, _request(("a", 0), acks=1))
    assert edges.registry.values()["stele_produce_purgatory_size"] == 2
    edges.replicas.release(1)
    assert client.transport.written.empty()
    edges.replicas.release(0)
    assert _errors(await client.receive(API, 9)) == [0]
    assert edges.registry.values()["stele_produce_purgatory_size"] == 0


@virtual
async def test_what_a_request_waits_is_no_local_time() -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    edges.replicas.hold()
    client, reader = edges.client(), edges.client()
    client.send(API, 9, _request(("a", 0)))
    topic = fetch.FetchTopic("", topic_id("a"), [fetch.FetchPartition(0)])
    reader.send(fetch.API, 13, fetch.FetchRequest(topics=[topic]))
    await asyncio.sleep(0.25)
    for _ in range(2):
        edges.replicas.release(0)
    await client.receive(API, 9)
    await reader.receive(fetch.API, 13)
    values = edges.registry.values()
    for api in ("PRODUCE", "FETCH"):
        assert values[f'stele_request_local_seconds_sum{{api="{api}"}}'] == 0
        assert values[f'stele_request_remote_seconds_sum{{api="{api}"}}'] == 0.25


@virtual
async def test_what_is_answered_at_once_has_no_remote_time() -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    await edges.client().call(API, 9, _request(("a", 0)))
    values = edges.registry.values()
    assert values['stele_request_local_seconds_count{api="PRODUCE"}'] == 1
    assert values['stele_request_remote_seconds_count{api="PRODUCE"}'] == 0
