"""Fields that Kafka lacks: our own clients are sent them, and no other client is."""

from __future__ import annotations

from typing import Any

import pytest

from broker.replication.types import LeaderHint, ProduceResult
from metadata.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC
from runtime.authorization.authorizer import (
    Operation,
    group_resource,
    transactional_id_resource,
)
from stele.cluster.kafka_connection import SOFTWARE_NAME
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.kafka.messages import (
    api_versions,
    end_txn,
    init_producer_id,
    join_group,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    sync_group,
    txn_offset_commit,
)
from tests.support.batches import make_batch
from tests.support.broker_apis import Client, Edges, topic_id
from tests.support.timing import until
from tests.support.worlds import virtual

GROUP = "readers"
ID = "payments"

SOFTWARE = pytest.mark.parametrize("software", [SOFTWARE_NAME, "apache-kafka-java", None])


async def a_client(edges: Edges, software: str | None) -> Client:
    """A client that names its software, or does not say it."""
    client = edges.client()
    if software is not None:
        request = api_versions.ApiVersionsRequest(software, "1")
        await client.call(api_versions.API, 3, request)
    return client


async def coordinating(**settings: str) -> Edges:
    """This broker coordinates every group and transactional id."""
    edges = Edges(**settings)
    edges.finalize("transaction.version", 2)
    edges.add_topic("orders", [[1]] * 3)
    edges.add_topic(GROUP_TOPIC, [[1]])
    edges.add_topic(TRANSACTION_TOPIC, [[1]])
    await until(lambda: len(edges.transactions.active) == len(edges.groups.active) == 1)
    return edges


def a_produce_request() -> produce.ProduceRequest:
    partition = produce.PartitionProduceData(0, bytes(make_batch(3)))
    topic = produce.TopicProduceData(topic_id=topic_id("a"), partition_data=[partition])
    return produce.ProduceRequest(acks=-1, timeout_ms=1500, topic_data=[topic])


@SOFTWARE
@virtual
async def test_an_acknowledgement_names_the_leader_and_its_epoch(software: str | None) -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    name = PartitionId(topic_id("a"), 0)
    edges.replicas.produce.results[name] = ProduceResult(
        name, ErrorCode.NONE, base_offset=7, leader=LeaderHint(1, 6)
    )
    client = await a_client(edges, software)
    answer = await client.call(produce.API, 13, a_produce_request())
    ((part,),) = [topic.partition_responses for topic in answer.responses]
    told = part.current_leader
    leader = None if told is None else (told.leader_id, told.leader_epoch)
    assert leader == ((1, 6) if software == SOFTWARE_NAME else None)
    assert not answer.node_endpoints, "nobody has to look for the leader"


@SOFTWARE
@virtual
async def test_metadata_say_how_new_they_are(software: str | None) -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    client = await a_client(edges, software)
    answer = await client.call(metadata.API, 13, metadata.MetadataRequest(topics=None))
    offset = edges.publisher.image.offset
    assert offset > 0
    assert answer.metadata_offset == (offset if software == SOFTWARE_NAME else -1)


def commit_request(metadata: str) -> offset_commit.OffsetCommitRequest:
    part = offset_commit.OffsetCommitRequestPartition(0, 5, committed_metadata=metadata)
    topic = offset_commit.OffsetCommitRequestTopic(
        name="orders", topic_id=topic_id("orders"), partitions=[part]
    )
    return offset_commit.OffsetCommitRequest(group_id=GROUP, topics=[topic])


def transactional_commit(
    metadata: str = "", topic: bytes = bytes(16), **who: Any
) -> txn_offset_commit.TxnOffsetCommitRequest:
    part = txn_offset_commit.TxnOffsetCommitRequestPartition(0, 5, committed_metadata=metadata)
    asked = txn_offset_commit.TxnOffsetCommitRequestTopic("orders", [part], topic)
    return txn_offset_commit.TxnOffsetCommitRequest(ID, GROUP, **who, topics=[asked])


async def a_producer(client: Client) -> dict[str, Any]:
    request = init_producer_id.InitProducerIdRequest(ID, 60_000)
    answer = await client.call(init_producer_id.API, 6, request)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    return {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}


@SOFTWARE
@virtual
async def test_metadata_that_are_too_large_say_how_large_they_are(software: str | None) -> None:
    edges = await coordinating(offset_metadata_max_bytes="4")
    client = await a_client(edges, software)
    who = await a_producer(client)
    commits: tuple[tuple[Any, Any], ...] = (
        (offset_commit.API, commit_request("12345")),
        (txn_offset_commit.API, transactional_commit("12345", **who)),
    )
    for api, request in commits:
        answer = await client.call(api, api.max_version, request)
        ((part,),) = [topic.partitions for topic in answer.topics]
        assert part.error_code == ErrorCode.OFFSET_METADATA_TOO_LARGE
        why = "the metadata has 5 UTF-16 units, and offset.metadata.max.bytes is 4"
        assert part.error_message == (why if software == SOFTWARE_NAME else None)


REFUSALS: tuple[tuple[Any, Any, ErrorCode], ...] = (
    (join_group.API, join_group.JoinGroupRequest(GROUP), ErrorCode.GROUP_AUTHORIZATION_FAILED),
    (sync_group.API, sync_group.SyncGroupRequest(GROUP), ErrorCode.GROUP_AUTHORIZATION_FAILED),
    (offset_commit.API, commit_request(""), ErrorCode.GROUP_AUTHORIZATION_FAILED),
    (txn_offset_commit.API, transactional_commit(), ErrorCode.GROUP_AUTHORIZATION_FAILED),
    (
        offset_fetch.API,
        offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(GROUP)]),
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ),
    (
        init_producer_id.API,
        init_producer_id.InitProducerIdRequest(ID, 60_000),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    (
        end_txn.API,
        end_txn.EndTxnRequest(ID),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
)


@SOFTWARE
@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda each: each[0].key.name)
@virtual
async def test_a_refusal_says_who_may_not_do_what(refusal: Any, software: str | None) -> None:
    edges = await coordinating()
    client = await a_client(edges, software)
    api, request, error = refusal
    is_about_group = error is ErrorCode.GROUP_AUTHORIZATION_FAILED
    resource = group_resource(GROUP) if is_about_group else transactional_id_resource(ID)
    for operation in Operation:
        edges.authorizer.denied.add((operation, resource))
    answer = await client.call(api, api.max_version, request)
    told = answer.groups[0] if api is offset_fetch.API else answer
    parts = [part for topic in getattr(told, "topics", ()) for part in topic.partitions]
    codes = {part.error_code for part in parts} or {told.error_code}
    assert codes == {error}
    if software == SOFTWARE_NAME:
        assert resource.name in (told.error_message or "")
    else:
        assert told.error_message is None


@SOFTWARE
@virtual
async def test_offsets_of_a_transaction_may_name_their_topic_by_its_id(
    software: str | None,
) -> None:
    """The broker takes the field from whoever sends it."""

    edges = await coordinating()
    client = await a_client(edges, software)
    who = await a_producer(client)
    for topic, error in (
        (b"?" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
        (topic_id("orders"), ErrorCode.NONE),
        (bytes(16), ErrorCode.NONE),
    ):
        request = transactional_commit(topic=topic, **who)
        answer = await client.call(txn_offset_commit.API, 5, request)
        ((part,),) = [each.partitions for each in answer.topics]
        assert part.error_code == error
