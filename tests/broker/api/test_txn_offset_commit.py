"""Offsets in transactions over the Kafka protocol."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordinator.step import Producer
from metadata.internal_topics import GROUP_TOPIC
from runtime.authorization.authorizer import (
    Operation,
    group_resource,
    topic_resource,
    transactional_id_resource,
)
from stele.errors import ErrorCode
from stele.wire.kafka.messages import offset_commit, offset_fetch, txn_offset_commit
from tests.support.broker_apis import Client, Edges
from tests.support.coordinators import QuickLog
from tests.support.timing import until
from tests.support.worlds import virtual

GROUP = "readers"
TRANSACTION = "payments"
PRODUCER = Producer(7, 3)


async def edges_with_groups() -> tuple[Edges, QuickLog]:
    edges = Edges(group_initial_rebalance_delay_ms="0")
    edges.add_topic("orders", [[1]] * 3)
    edges.add_topic(GROUP_TOPIC, [[1]])
    await until(lambda: len(edges.groups.active) == 1)
    (log,) = edges.replicas.hosted_logs.values()
    return edges, log


def request_of(*partitions: int, topic: str = "orders", **fields: Any) -> Any:
    return txn_offset_commit.TxnOffsetCommitRequest(
        TRANSACTION,
        fields.pop("group", GROUP),
        PRODUCER.id,
        PRODUCER.epoch,
        topics=[
            txn_offset_commit.TxnOffsetCommitRequestTopic(
                topic,
                [
                    txn_offset_commit.TxnOffsetCommitRequestPartition(each, 5, 2, "so far")
                    for each in partitions
                ],
            )
        ],
        **fields,
    )


async def commit(client: Client, version: int, request: Any) -> list[ErrorCode]:
    answer = await client.call(txn_offset_commit.API, version, request)
    return [ErrorCode(each.error_code) for t in answer.topics for each in t.partitions]


async def fetched(client: Client, *partitions: int, stable: bool = False) -> list[tuple[int, int]]:
    topic = offset_fetch.OffsetFetchRequestTopic("orders", list(partitions))
    request = offset_fetch.OffsetFetchRequest(GROUP, [topic], require_stable=stable)
    answer = await client.call(offset_fetch.API, 7, request)
    return [(each.error_code, each.committed_offset) for each in answer.topics[0].partitions]


@pytest.mark.parametrize("version", range(6))
@virtual
async def test_offsets_count_when_the_transaction_is_committed(version: int) -> None:
    edges, log = await edges_with_groups()
    client = edges.client()
    assert await commit(client, version, request_of(0, 1)) == [ErrorCode.NONE] * 2
    assert log.added == ([TRANSACTION] if version >= 5 else [])
    assert log.producers == [PRODUCER]
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert await fetched(client, 0, 2) == [(0, -1), (0, -1)]
    assert await fetched(client, 0, 2, stable=True) == [(unstable, -1), (0, -1)]
    log.end_transaction(PRODUCER, commits=True)
    log.commit()
    assert await fetched(client, 0, 1, 2) == [(0, 5), (0, 5), (0, -1)]


@pytest.mark.parametrize(
    ("verdict", "version", "told"),
    [
        (ErrorCode.INVALID_TXN_STATE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.NETWORK_EXCEPTION, 2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NETWORK_EXCEPTION, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, 5, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
@virtual
async def test_what_the_transaction_coordinator_refuses(
    verdict: ErrorCode, version: int, told: ErrorCode
) -> None:
    edges, log = await edges_with_groups()
    log.verdict = verdict
    assert await commit(edges.client(), version, request_of(0, 1)) == [told] * 2
    assert log.batches == []


@virtual
async def test_what_the_log_does_not_take_any_more() -> None:
    """The transaction was over before its offsets could be appended."""

    edges, log = await edges_with_groups()
    log.held = []
    client = edges.client()
    client.send(txn_offset_commit.API, 5, request_of(0))
    await until(lambda: bool(log.held))
    (confirm,) = log.held
    confirm()
    log.end_transaction(PRODUCER, commits=False)
    answer = await client.receive(txn_offset_commit.API, 5)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_TXN_STATE


@virtual
async def test_a_coordinator_that_moves_while_the_transaction_is_confirmed() -> None:
    edges, log = await edges_with_groups()
    log.held = []
    client = edges.client()
    client.send(txn_offset_commit.API, 5, request_of(0))
    await until(lambda: bool(log.held))
    await edges.groups.stop()
    (confirm,) = log.held
    confirm()
    answer = await client.receive(txn_offset_commit.API, 5)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR


@virtual
async def test_who_may_not() -> None:
    edges, log = await edges_with_groups()
    client = edges.client()
    for operation, resource, error in (
        (
            Operation.WRITE,
            transactional_id_resource(TRANSACTION),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (Operation.READ, group_resource(GROUP), ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (Operation.READ, topic_resource("orders"), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ):
        edges.authorizer.denied.add((operation, resource))
        assert await commit(client, 5, request_of(0)) == [error]
        edges.authorizer.denied.clear()
    assert (log.batches, log.added) == ([], [])


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"topic": "nothing"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"generation_id": 4}, ErrorCode.ILLEGAL_GENERATION),
    ],
)
@virtual
async def test_requests_that_come_to_nothing(fields: dict[str, Any], error: ErrorCode) -> None:
    edges, log = await edges_with_groups()
    assert await commit(edges.client(), 5, request_of(0, **fields)) == [error]
    assert log.batches == []


@virtual
async def test_a_transaction_without_offsets_that_are_taken_asks_nobody() -> None:
    edges, log = await edges_with_groups()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await commit(edges.client(), 5, request_of(3, 4)) == [unknown] * 2
    assert await commit(edges.client(), 5, request_of()) == []
    assert log.added == []


LONG = "t" * 249
PARTITIONS = 400


@pytest.mark.parametrize("is_transactional", [False, True])
@virtual
async def test_many_offsets_are_committed_in_parts(is_transactional: bool) -> None:
    """A turn of the loop makes some hundred records at most."""

    edges, log = await edges_with_groups()
    edges.add_topic(LONG, [[1]] * PARTITIONS)
    client = edges.client()
    if is_transactional:
        request = request_of(*range(PARTITIONS), topic=LONG)
        errors = await commit(client, 5, request)
        assert log.added == [TRANSACTION] * len(log.added)
    else:
        topic = offset_commit.OffsetCommitRequestTopic(
            name=LONG,
            partitions=[
                offset_commit.OffsetCommitRequestPartition(each, 1) for each in range(PARTITIONS)
            ],
        )
        asked = offset_commit.OffsetCommitRequest(GROUP, topics=[topic])
        answer = await client.call(offset_commit.API, 9, asked)
        errors = [ErrorCode(each.error_code) for each in answer.topics[0].partitions]
    assert errors == [ErrorCode.NONE] * PARTITIONS
    keys = [each.key for batch in log.batches for each in batch]
    assert len(set(keys)) == PARTITIONS
