"""stele.v1.Transactions: what is translated, refused and found elsewhere."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from google.protobuf.message import Message

from broker.coordinator.transaction.types import EndRequest, TransactionRef
from broker.grpc.transactions import TransactionsService
from broker.replication.types import Marker
from broker.service import transactions
from metadata.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC
from runtime.administration.parts import NAMED_MAX
from runtime.authorization.authorizer import (
    CLUSTER,
    Operation,
    transactional_id_resource,
)
from runtime.authorization.caller import grpc_caller
from stele.errors import ErrorCode
from stele.ids import PartitionId, TopicPartition
from stele.wire.v1 import metadata_pb2
from stele.wire.v1 import transactions_pb2 as pb
from stele.world import RpcCode, RpcError
from tests.support.broker_apis import Edges, topic_id
from tests.support.broker_edges import PEER
from tests.support.timing import run_virtual, until

ID = "payments"
MINE = transactional_id_resource(ID)


async def edges_with_transactions(level: int = 2) -> Edges:
    """This broker coordinates every transactional id and every group."""
    edges = Edges(transaction_two_phase_commit_enable="true")
    feature = metadata_pb2.FeatureLevelRecord(name="transaction.version", level=level)
    edges.commit(metadata_pb2.MetadataRecord(feature_level=feature))
    edges.add_topic("orders", [[1]] * 3)
    edges.add_topic(GROUP_TOPIC, [[1]])
    edges.add_topic(TRANSACTION_TOPIC, [[1]])
    await until(lambda: len(edges.transactions.active) == len(edges.groups.active) == 1)
    return edges


async def ask(edges: Edges, method: str, **fields: Any) -> Any:
    request: Message = getattr(pb, f"{method}Request")(**fields)
    answer = getattr(pb, f"{method}Response")
    service = TransactionsService(edges.context, "EXTERNAL").service()
    call = service.unary[f"/stele.v1.Transactions/{method}"]
    return answer.FromString(await call(request.SerializeToString(), PEER))


async def init(edges: Edges, **fields: Any) -> Any:
    wanted = {"transactional_id": ID, "transaction_timeout_ms": 60_000, **fields}
    return await ask(edges, "InitTransactions", **wanted)


async def a_producer(edges: Edges, **fields: Any) -> dict[str, Any]:
    answer = await init(edges, **fields)
    assert (answer.error, answer.message) == (ErrorCode.NONE, "")
    return {
        "transactional_id": ID,
        "producer_id": answer.producer_id,
        "producer_epoch": answer.producer_epoch,
    }


async def add(edges: Edges, producer: dict[str, Any], *partitions: int) -> None:
    """What a leader does at the first batch."""
    names = [TopicPartition("orders", each) for each in partitions]
    caller = grpc_caller("EXTERNAL", PEER)
    added = await transactions.add_partitions(
        edges.context, caller, TransactionRef(*producer.values()), names
    )
    assert added == [ErrorCode.NONE] * len(names)


async def described(edges: Edges) -> Any:
    (told,) = (await ask(edges, "DescribeTransactions", transactional_ids=[ID])).transactions
    return told


async def in_state(edges: Edges, name: str) -> Any:
    for _ in range(20):
        if (told := await described(edges)).state == name:
            return told
    raise AssertionError(told)


async def end(edges: Edges, producer: dict[str, Any], *, is_commit: bool = True) -> None:
    """As its producer does."""
    request = EndRequest(TransactionRef(*producer.values()), is_commit, client_version=2)
    answer = await transactions.end(edges.context, grpc_caller("EXTERNAL", PEER), request)
    assert answer.error is ErrorCode.NONE


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_is_described_until_it_has_ended(is_commit: bool) -> None:
    async def main() -> None:
        edges = await edges_with_transactions()
        producer = await a_producer(edges)
        assert producer["producer_epoch"] == 0
        await add(edges, producer, 2, 0)
        told = await described(edges)
        assert (told.state, told.timeout_ms) == ("Ongoing", 60_000)
        assert told.start_time_ms > 0
        assert [(each.topic, list(each.partitions)) for each in told.topics] == [("orders", [0, 2])]
        await end(edges, producer, is_commit=is_commit)
        await in_state(edges, "CompleteCommit" if is_commit else "CompleteAbort")

    run_virtual(main())


def test_an_older_producer_is_fenced() -> None:
    async def main() -> None:
        edges = await edges_with_transactions()
        old = await a_producer(edges)
        new = await a_producer(edges)
        assert new["producer_epoch"] == old["producer_epoch"] + 1
        request = EndRequest(TransactionRef(*old.values()), True, client_version=2)
        answer = await transactions.end(edges.context, grpc_caller("EXTERNAL", PEER), request)
        assert answer.error is ErrorCode.PRODUCER_FENCED

    run_virtual(main())


def test_ids_are_forgotten() -> None:
    async def main() -> None:
        edges = await edges_with_transactions()
        producer = await a_producer(edges)
        await add(edges, producer, 1)
        names = [ID, "x"]
        answer = await ask(edges, "ForgetTransactionalIds", transactional_ids=names)
        told, unknown = answer.transactional_ids
        assert (told.transactional_id, told.error) == (ID, ErrorCode.INVALID_TXN_STATE)
        assert told.message
        assert (unknown.error, unknown.message) == (ErrorCode.NONE, "")
        await end(edges, producer)
        await in_state(edges, "CompleteCommit")
        edges.authorizer.denied.add((Operation.WRITE, MINE))
        (told,) = (
            await ask(edges, "ForgetTransactionalIds", transactional_ids=[ID])
        ).transactional_ids
        assert told.error == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        edges.authorizer.denied.clear()
        (told,) = (
            await ask(edges, "ForgetTransactionalIds", transactional_ids=[ID])
        ).transactional_ids
        assert told.error == ErrorCode.NONE
        assert (await described(edges)).error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    run_virtual(main())


def test_coordinators_are_found() -> None:
    async def main() -> None:
        edges = await edges_with_transactions()
        answer = await ask(edges, "FindTransactionCoordinators", transactional_ids=[ID, "x"])
        (found, other) = answer.coordinators
        assert (found.broker_id, found.grpc_host, found.grpc_port) == (1, "b1.external", 19192)
        edges.authorizer.denied.add((Operation.DESCRIBE, MINE))
        answer = await ask(edges, "FindTransactionCoordinators", transactional_ids=[ID, "x"])
        refused, again = answer.coordinators
        assert refused.error == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert refused.message
        assert (again, refused.broker_id) == (other, -1)
        with pytest.raises(RpcError, match="transactional ids") as error:
            await ask(
                edges, "FindTransactionCoordinators", transactional_ids=["x"] * (NAMED_MAX + 1)
            )
        assert error.value.code is RpcCode.INVALID_ARGUMENT

    run_virtual(main())


def test_what_is_refused_says_why() -> None:
    async def main() -> None:
        edges = await edges_with_transactions()
        answer = await init(edges, transaction_timeout_ms=900_001)
        assert answer.error == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert answer.message
        edges.authorizer.denied.add((Operation.WRITE, MINE))
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        answer = await init(edges)
        assert answer.error == refused
        assert answer.message

    run_virtual(main())


def test_a_broker_lists_no_transactions_before_it_knows_which_it_coordinates() -> None:
    async def main() -> None:
        edges = Edges()
        for is_known in (False, True):
            edges.context = replace(edges.context, caught_up=partial(bool, is_known))
            listed = await ask(edges, "ListTransactions")
            error = ErrorCode.NONE if is_known else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert (listed.error, list(listed.transactions)) == (error, [])

    run_virtual(main())


def test_transactions_are_listed() -> None:
    async def main() -> None:
        edges = await edges_with_transactions()
        producer = await a_producer(edges)
        await add(edges, producer, 1)
        await a_producer(edges, transactional_id="idle")

        async def listed(**wanted: Any) -> list[tuple[str, str]]:
            answer = await ask(edges, "ListTransactions", **wanted)
            return [(each.transactional_id, each.state) for each in answer.transactions]

        everything = [("idle", "Empty"), (ID, "Ongoing")]
        assert await listed() == everything
        assert await listed(states=["Ongoing"]) == everything[1:]
        assert await listed(producer_ids=[producer["producer_id"]]) == everything[1:]
        assert await listed(min_duration_ms=3_600_000) == []
        answer = await ask(edges, "ListTransactions", states=["Sleeping"])
        assert answer.unknown_states == ["Sleeping"]
        (missing,) = (
            await ask(edges, "DescribeTransactions", transactional_ids=["x"])
        ).transactions
        assert missing.error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert missing.message

    run_virtual(main())


def test_a_hanging_transaction_is_aborted_where_it_hangs() -> None:
    async def main() -> None:
        edges = await edges_with_transactions()
        wanted = {
            "topic": "orders",
            "partition": 1,
            "producer_id": 9,
            "producer_epoch": 2,
            "coordinator_epoch": 4,
        }
        answer = await ask(edges, "AbortHangingTransaction", **wanted)
        assert answer.error == ErrorCode.NONE
        assert edges.replicas.markers.written == [
            Marker(PartitionId(topic_id("orders"), 1), 9, 2, False, 4, 0)
        ]
        answer = await ask(edges, "AbortHangingTransaction", **{**wanted, "partition": 3})
        assert answer.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        edges.authorizer.denied.add((Operation.ALTER, CLUSTER))
        answer = await ask(edges, "AbortHangingTransaction", **wanted)
        assert answer.error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert len(edges.replicas.markers.written) == 1

    run_virtual(main())


def test_producers_of_partitions_are_described() -> None:
    async def main() -> None:
        edges = await edges_with_transactions()
        topics = [{"topic": "orders", "partitions": [0, 7]}, {"topic": "x", "partitions": [0]}]
        answer = await ask(edges, "DescribeProducers", topics=topics)
        assert [(each.topic, each.partition) for each in answer.partitions] == [
            ("orders", 0),
            ("orders", 7),
            ("x", 0),
        ]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [each.error for each in answer.partitions[1:]] == [unknown, unknown]
        assert all(each.message for each in answer.partitions[1:])

    run_virtual(main())
