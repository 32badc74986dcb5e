"""Transactions over the Kafka protocol: what is translated, refused and found elsewhere."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.replication.types import Marker, ProduceEntry, TransactionalWrite
from broker.service.transactions import PATIENCE_S
from metadata.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC
from runtime.authorization.authorizer import (
    CLUSTER,
    Operation,
    group_resource,
    topic_resource,
    transactional_id_resource,
)
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.kafka.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    find_coordinator,
    init_producer_id,
    list_transactions,
    produce,
    write_txn_markers,
)
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.batches import make_batch
from tests.support.broker_apis import Client, Edges, topic_id
from tests.support.timing import until
from tests.support.worlds import virtual

ID = "payments"


async def edges_with_transactions(*, level: int = 2, **settings: str) -> Edges:
    """This broker coordinates every transactional id."""
    edges = Edges(**settings)
    if level:
        feature = pb.FeatureLevelRecord(name="transaction.version", level=level)
        edges.commit(pb.MetadataRecord(feature_level=feature))
    edges.add_topic("orders", [[1]] * 3)
    edges.add_topic(GROUP_TOPIC, [[1]])
    edges.add_topic(TRANSACTION_TOPIC, [[1]])
    await until(lambda: len(edges.transactions.active) == 1)
    return edges


async def init(client: Client, version: int = 5, **fields: Any) -> Any:
    wanted = {"transactional_id": ID, "transaction_timeout_ms": 60_000, **fields}
    request = init_producer_id.InitProducerIdRequest(**wanted)
    return await client.call(init_producer_id.API, version, request)


async def a_producer(client: Client) -> tuple[int, int]:
    answer = await init(client)
    assert answer.error_code == ErrorCode.NONE
    return answer.producer_id, answer.producer_epoch


async def add(
    client: Client, producer: tuple[int, int], *partitions: tuple[str, int], version: int = 3
) -> list[int]:
    """The error of each partition."""
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[
            add_partitions_to_txn.AddPartitionsToTxnTopic(name, [number])
            for name, number in partitions
        ],
    )
    answer = await client.call(add_partitions_to_txn.API, version, request)
    results = answer.results_by_topic_v3_and_below
    assert [each.name for each in results] == [name for name, _ in partitions]
    return [each.results_by_partition[0].partition_error_code for each in results]


async def end(
    client: Client, producer: tuple[int, int], *, commit: bool = True, version: int = 4
) -> Any:
    request = end_txn.EndTxnRequest(ID, *producer, commit)
    return await client.call(end_txn.API, version, request)


async def described(client: Client, transactional_id: str = ID) -> Any:
    request = describe_transactions.DescribeTransactionsRequest([transactional_id])
    answer = await client.call(describe_transactions.API, 0, request)
    (state,) = answer.transaction_states
    return state


async def in_state(client: Client, name: str) -> None:
    for _ in range(20):
        if (await described(client)).transaction_state == name:
            return
    assert (await described(client)).transaction_state == name


# ------------------------------------------------------------------------------ one transaction


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("level", [0, 1, 2])
@virtual
async def test_a_transaction_from_its_producer_to_its_markers(level: int, commit: bool) -> None:
    edges = await edges_with_transactions(level=level)
    client = edges.client()
    producer = await a_producer(client)
    assert producer == (5000, 0)
    assert await add(client, producer, ("orders", 2), ("orders", 0)) == [0, 0]
    state = await described(client)
    assert (state.transaction_state, state.producer_id) == ("Ongoing", 5000)
    assert state.topics == [describe_transactions.TopicData("orders", [0, 2])]
    assert (await end(client, producer, commit=commit)).error_code == ErrorCode.NONE
    await in_state(client, "CompleteCommit" if commit else "CompleteAbort")
    assert edges.replicas.markers.written == [
        Marker(PartitionId(topic_id("orders"), number), *producer, commit, 0, 0)
        for number in (0, 2)
    ], "a client of an older version keeps its epoch"


async def with_late_markers(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Client, tuple[int, int], asyncio.Future[None]]:
    """A producer whose transaction was committed. Setting the future lets markers be written."""
    edges = await edges_with_transactions()
    client, written = edges.client(), asyncio.get_running_loop().create_future()
    write = edges.replicas.markers.write

    def late(*arguments: Any) -> None:
        written.add_done_callback(lambda _: write(*arguments))

    monkeypatch.setattr(edges.replicas.markers, "write", late)
    producer = await a_producer(client)
    assert await add(client, producer, ("orders", 0)) == [0]
    assert (await end(client, producer)).error_code == ErrorCode.NONE
    return client, producer, written


@virtual
async def test_the_next_transaction_waits_for_the_markers_of_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that were refused would pause for longer than the markers take."""

    client, producer, written = await with_late_markers(monkeypatch)
    adding = asyncio.ensure_future(add(client, producer, ("orders", 0)))
    await asyncio.sleep(PATIENCE_S / 2)
    assert not adding.done()
    written.set_result(None)
    assert await adding == [0]
    assert (await described(client)).transaction_state == "Ongoing"


@virtual
async def test_the_next_transaction_is_refused_if_the_markers_take_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, producer, written = await with_late_markers(monkeypatch)
    began = asyncio.get_running_loop().time()
    assert await add(client, producer, ("orders", 0)) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    took_s = asyncio.get_running_loop().time() - began
    assert took_s == pytest.approx(PATIENCE_S, abs=0.01)
    assert (await described(client)).transaction_state == "PrepareCommit"
    written.set_result(None)
    await in_state(client, "CompleteCommit")
    assert await add(client, producer, ("orders", 0)) == [0]


@virtual
async def test_a_client_of_the_newest_version_goes_on_with_another_epoch() -> None:
    client = (await edges_with_transactions()).client()
    producer = await a_producer(client)
    assert await add(client, producer, ("orders", 0)) == [0]
    answer = await end(client, producer, version=5)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 5000, 1)
    await in_state(client, "CompleteCommit")
    assert await add(client, (5000, 1), ("orders", 0)) == [0]


@virtual
async def test_the_offsets_of_a_group_are_a_partition_of_the_transaction() -> None:
    edges = await edges_with_transactions()
    client = edges.client()
    producer = await a_producer(client)
    request = add_offsets_to_txn.AddOffsetsToTxnRequest(ID, *producer, "readers")
    answer = await client.call(add_offsets_to_txn.API, 4, request)
    assert answer.error_code == ErrorCode.NONE
    assert (await described(client)).topics == [describe_transactions.TopicData(GROUP_TOPIC, [0])]
    edges.authorizer.denied.add((Operation.READ, group_resource("readers")))
    answer = await client.call(add_offsets_to_txn.API, 4, request)
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


# ------------------------------------------------------------------------------------- refusals


@virtual
async def test_the_topic_is_made_for_the_first_request() -> None:
    edges = Edges(transaction_state_log_num_partitions="4")
    request = find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=[ID])
    answer = await edges.client().call(find_coordinator.API, 4, request)
    assert answer.coordinators[0].key == ID
    (created,) = edges.controller.created
    (topic,) = created.topics
    assert (topic.name, topic.partitions, topic.replication_factor) == (TRANSACTION_TOPIC, 4, 3)
    assert dict(topic.configs) == {
        "cleanup.policy": "compact",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }


@virtual
async def test_there_are_no_transactions_while_a_broker_does_not_know_them() -> None:
    edges = Edges()
    edges.register(3, is_old=True)
    request = find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=[ID])
    answer = await edges.client().call(find_coordinator.API, 4, request)
    (found,) = answer.coordinators
    assert found.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert "broker 3 runs a version of Stele without" in (found.error_message or "")
    assert not edges.controller.created
    edges.register(3)
    await edges.client().call(find_coordinator.API, 4, request)
    assert edges.controller.created


@pytest.mark.parametrize("version", range(3, 6))
@virtual
async def test_an_older_producer_is_fenced(version: int) -> None:
    client = (await edges_with_transactions()).client()
    old = await a_producer(client)
    new = await a_producer(client)
    assert new == (old[0], old[1] + 1)
    fenced, epoch = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
    assert await add(client, old, ("orders", 0)) == [fenced]
    assert await add(client, old, ("orders", 0), version=1) == [epoch]
    assert (await end(client, old)).error_code == fenced
    assert (await end(client, old, version=1)).error_code == epoch
    answer = await init(client, version, producer_id=old[0], producer_epoch=old[1])
    assert answer.error_code == (fenced if version >= 4 else epoch)
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


@virtual
async def test_what_is_wrong_is_refused() -> None:
    client = (await edges_with_transactions()).client()
    assert (await init(client, transactional_id="")).error_code == ErrorCode.INVALID_REQUEST
    answer = await init(client, transaction_timeout_ms=900_001)
    assert answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    producer = await a_producer(client)
    unknown, internal = ("nowhere", 0), (GROUP_TOPIC, 0)
    assert await add(client, producer, ("orders", 0), unknown, internal) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert await add(client, producer, ("orders", 3)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await add(client, (7, 0), ("orders", 0)) == [mapping]
    assert (await end(client, (7, 0))).error_code == mapping
    assert (await described(client, "x")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@virtual
async def test_callers_without_permission_are_refused() -> None:
    edges = await edges_with_transactions()
    client = edges.client()
    producer = await a_producer(client)
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    mine = transactional_id_resource(ID)
    edges.authorizer.denied.add((Operation.TWO_PHASE_COMMIT, mine))
    assert (await init(client, 6, enable2_pc=True)).error_code == refused
    edges.authorizer.denied.add((Operation.WRITE, topic_resource("orders")))
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert await add(client, producer, ("orders", 0)) == [denied]
    edges.authorizer.denied.add((Operation.WRITE, mine))
    assert (await init(client)).error_code == refused
    assert await add(client, producer, ("orders", 0)) == [refused]
    assert (await end(client, producer)).error_code == refused
    offsets = add_offsets_to_txn.AddOffsetsToTxnRequest(ID, *producer, "readers")
    answer = await client.call(add_offsets_to_txn.API, 4, offsets)
    assert answer.error_code == refused
    listing = list_transactions.ListTransactionsRequest()
    assert (await client.call(list_transactions.API, 1, listing)).transaction_states
    edges.authorizer.denied.add((Operation.DESCRIBE, mine))
    assert not (await client.call(list_transactions.API, 1, listing)).transaction_states
    assert (await described(client)).error_code == refused
    find = find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=[ID])
    found = await client.call(find_coordinator.API, 4, find)
    assert found.coordinators[0].error_code == refused


@virtual
async def test_topics_that_the_caller_may_not_see_are_left_out_of_a_description() -> None:
    edges = await edges_with_transactions()
    client = edges.client()
    producer = await a_producer(client)
    await add(client, producer, ("orders", 0))
    edges.authorizer.denied.add((Operation.DESCRIBE, topic_resource("orders")))
    state = await described(client)
    assert (state.error_code, state.topics) == (ErrorCode.NONE, [])


@virtual
async def test_a_broker_that_does_not_coordinate_says_so() -> None:
    edges = Edges()
    client = edges.client()
    assert (await init(client)).error_code == ErrorCode.NOT_COORDINATOR
    edges.add_topic(TRANSACTION_TOPIC, [[2]])
    assert (await init(client)).error_code == ErrorCode.NOT_COORDINATOR
    assert (await described(client)).error_code == ErrorCode.NOT_COORDINATOR


# ------------------------------------------------------------------------------------- brokers


def verification(*, verify_only: bool, producer: tuple[int, int], number: int = 0) -> Any:
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic("orders", [number])]
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        [
            add_partitions_to_txn.AddPartitionsToTxnTransaction(
                ID, *producer, verify_only=verify_only, topics=topics
            )
        ]
    )


async def verified(client: Client, request: Any, version: int = 5) -> int:
    answer = await client.call(add_partitions_to_txn.API, version, request)
    if answer.error_code:
        return int(answer.error_code)
    (result,) = answer.results_by_transaction
    assert result.transactional_id == ID
    return int(result.topic_results[0].results_by_partition[0].partition_error_code)


@virtual
async def test_a_broker_asks_for_a_producer() -> None:
    edges = await edges_with_transactions()
    client = edges.client()
    producer = await a_producer(client)
    only = verification(verify_only=True, producer=producer)
    assert await verified(client, only) == ErrorCode.TRANSACTION_ABORTABLE
    assert await verified(client, only, version=4) == ErrorCode.INVALID_TXN_STATE
    adds = verification(verify_only=False, producer=producer)
    assert await verified(client, adds) == ErrorCode.NONE
    assert await verified(client, only) == ErrorCode.NONE
    unknown = verification(verify_only=False, producer=producer, number=9)
    assert await verified(client, unknown) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    edges.authorizer.denied.add((Operation.CLUSTER_ACTION, CLUSTER))
    assert await verified(client, only) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def markers(*topics: tuple[str, list[int]], version: int = 2) -> Any:
    return write_txn_markers.WriteTxnMarkersRequest(
        [
            write_txn_markers.WritableTxnMarker(
                producer_id=5,
                producer_epoch=3,
                transaction_result=True,
                topics=[write_txn_markers.WritableTxnMarkerTopic(*each) for each in topics],
                coordinator_epoch=7,
                transaction_version=2,
            )
        ]
    )


@pytest.mark.parametrize("version", [1, 2])
@virtual
async def test_a_coordinator_has_markers_written(version: int) -> None:
    edges = await edges_with_transactions()
    request = markers(("orders", [0, 2]), ("nowhere", [0]))
    fenced = PartitionId(topic_id("orders"), 2)
    edges.replicas.markers.errors[fenced] = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    answer = await edges.client().call(write_txn_markers.API, version, request)
    (result,) = answer.markers
    told = [
        (topic.name, each.partition_index, each.error_code)
        for topic in result.topics
        for each in topic.partitions
    ]
    assert told == [
        ("orders", 0, ErrorCode.NONE),
        ("orders", 2, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        ("nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    level = 2 if version >= 2 else 0
    assert edges.replicas.markers.written == [
        Marker(PartitionId(topic_id("orders"), number), 5, 3, True, 7, level) for number in (0, 2)
    ]


@virtual
async def test_markers_of_strangers_are_refused() -> None:
    edges = await edges_with_transactions()
    edges.authorizer.denied |= {(Operation.CLUSTER_ACTION, CLUSTER), (Operation.ALTER, CLUSTER)}
    answer = await edges.client().call(write_txn_markers.API, 2, markers(("orders", [0])))
    (partition,) = answer.markers[0].topics[0].partitions
    assert partition.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert not edges.replicas.markers.written


# ------------------------------------------------------------------------------------- produce


def batch_of(transactional_id: str | None) -> Any:
    data = produce.PartitionProduceData(0, make_batch())
    topic = produce.TopicProduceData(
        name="orders", topic_id=topic_id("orders"), partition_data=[data]
    )
    return produce.ProduceRequest(
        transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=[topic]
    )


@pytest.mark.parametrize("version", range(3, 14))
@virtual
async def test_the_transaction_of_a_request_goes_with_its_batches(version: int) -> None:
    edges = await edges_with_transactions()
    client = edges.client()
    for transactional_id in (ID, None):
        await client.call(produce.API, version, batch_of(transactional_id))
    (first,), (second,) = (entries for entries, _, _ in edges.replicas.produce.produced)
    assert isinstance(first, ProduceEntry)
    assert first.transaction == TransactionalWrite(ID, adds_partition=version >= 12)
    assert second.transaction is None
    edges.authorizer.denied.add((Operation.WRITE, transactional_id_resource(ID)))
    answer = await client.call(produce.API, version, batch_of(ID))
    (partition,) = answer.responses[0].partition_responses
    assert partition.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert len(edges.replicas.produce.produced) == 2


# ------------------------------------------------------------------------------- administration


@virtual
async def test_transactions_are_listed() -> None:
    client = (await edges_with_transactions()).client()
    producer = await a_producer(client)
    await init(client, transactional_id="another")
    await add(client, producer, ("orders", 0))

    async def listed(**filters: Any) -> Any:
        request = list_transactions.ListTransactionsRequest(**filters)
        return await client.call(list_transactions.API, 2, request)

    state = list_transactions.TransactionState
    ongoing, empty = state(ID, 5000, "Ongoing"), state("another", 5001, "Empty")
    assert (await listed()).transaction_states == [empty, ongoing]
    assert (await listed(producer_id_filters=[5001])).transaction_states == [empty]
    assert (await listed(duration_filter=1000)).transaction_states == []
    answer = await listed(state_filters=["Ongoing", "Lost"])
    assert answer.transaction_states == [ongoing]
    assert answer.unknown_state_filters == ["Lost"]
    for pattern in ("pay.*", "[^a].*", "payments"):
        answer = await listed(transactional_id_pattern=pattern)
        assert answer.transaction_states == [ongoing], pattern
    for anything in (None, "", ".*"):
        assert len((await listed(transactional_id_pattern=anything)).transaction_states) == 2
    answer = await listed(transactional_id_pattern="(")
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
