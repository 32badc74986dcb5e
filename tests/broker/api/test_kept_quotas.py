"""Quotas that a broker keeps on its Kafka listeners."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from immutables import Map

from broker.grpc.admin import AdminService
from broker.replication.types import FetchResult
from metadata.client_quotas import quota_record, removal_record
from runtime.authorization.authorizer import CLUSTER, Operation
from runtime.authorization.caller import NODE_ITSELF
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.kafka.messages import (
    add_partitions_to_txn,
    create_partitions,
    create_topics,
    delete_topics,
    fetch,
    offset_for_leader_epoch,
    produce,
    sasl_handshake,
    write_txn_markers,
)
from stele.wire.v1 import admin_pb2 as pb
from tests.support.authorizer import WithAcls
from tests.support.batches import make_batch
from tests.support.broker_apis import CONTROLLER, Client, Edges, topic_id
from tests.support.client_quotas import Names, entity
from tests.support.worlds import virtual
from world.network import Peer

PRODUCE, FETCH, CPU = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
ANONYMOUS: Names = {"user": "ANONYMOUS"}
BATCH = bytes(make_batch(1, value=bytes(1000)))
A0 = PartitionId(topic_id("a"), 0)


def with_quota(key: str, value: float, names: Names = ANONYMOUS, **more: Edges) -> Edges:
    edges = more.get("edges") or Edges()
    edges.add_topic("a", [[1]])
    edges.commit(quota_record(entity(**names), key, value))
    edges.replicas.fetch.results[A0] = FetchResult(
        A0, ErrorCode.NONE, 9, 9, 0, records=[memoryview(BATCH)]
    )
    return edges


def to_produce(acks: int = -1) -> produce.ProduceRequest:
    data = [produce.PartitionProduceData(0, BATCH)]
    return produce.ProduceRequest(
        acks=acks, timeout_ms=1500, topic_data=[produce.TopicProduceData("a", topic_id("a"), data)]
    )


def to_fetch(replica_id: int = -1) -> fetch.FetchRequest:
    topic = fetch.FetchTopic("a", topic_id("a"), [fetch.FetchPartition(0)])
    return fetch.FetchRequest(replica_id=replica_id, max_bytes=1 << 20, topics=[topic])


def records_of(answer: fetch.FetchResponse) -> bytes:
    records: Any = answer.responses[0].partitions[0].records
    return bytes(records)


async def produced(client: Client) -> int:
    """Returns the time that the answer tells to wait."""
    return (await client.call(produce.API, 9, to_produce())).throttle_time_ms


@pytest.mark.parametrize("version", range(3, 14))
@virtual
async def test_a_producer_is_answered_at_once_and_then_not_read(version: int) -> None:
    edges = with_quota(PRODUCE, 500)
    client, loop = edges.client(), asyncio.get_running_loop()
    began = loop.time()
    client.send(produce.API, version, to_produce())
    client.send(produce.API, version, to_produce())
    first = await client.receive(produce.API, version)
    assert loop.time() == began
    assert first.responses[0].partition_responses[0].base_offset == 7
    # Some 1,100 bytes. Two seconds at 500 B/s are 1,000 of them.
    assert 100 < first.throttle_time_ms < 500
    assert len(edges.replicas.produce.produced) == 1
    assert client.protocol.muted.is_on
    second = await client.receive(produce.API, version)
    assert loop.time() - began == pytest.approx(first.throttle_time_ms / 1000, abs=0.01)
    assert second.throttle_time_ms > 2_000, "it has no bound"


@virtual
async def test_connections_of_one_bucket_share_it_and_others_do_not_notice() -> None:
    edges = with_quota(PRODUCE, 5_000)
    first, second = edges.client(), edges.client()
    for _ in range(9):
        assert await produced(first) == 0
    assert await produced(second) > 0
    other = edges.client()
    other.protocol.principal = "User:ann"
    assert await produced(other) == 0


@virtual
async def test_with_acks_0_the_connection_waits_without_an_answer() -> None:
    edges = with_quota(PRODUCE, 100)
    client = edges.client()
    client.send(produce.API, 9, to_produce(acks=0))
    assert client.protocol.muted.is_on
    assert client.transport.written.empty()


@virtual
async def test_with_acks_0_only_bytes_count() -> None:
    edges = with_quota(CPU, 1)
    edges.quotas.turn_clock = Ticks()
    client = edges.client()
    for _ in range(3):
        client.send(produce.API, 9, to_produce(acks=0))
    assert not client.protocol.muted.is_on


@pytest.mark.parametrize("version", [4, 6, 7, 12, 13, 18])
@virtual
async def test_a_consumer_above_its_quota_gets_nothing_until_it_has_waited(version: int) -> None:
    edges = with_quota(FETCH, 600)
    client, loop = edges.client(), asyncio.get_running_loop()
    first = await client.call(fetch.API, version, to_fetch())
    assert first.throttle_time_ms == 0
    assert records_of(first) == BATCH
    assert edges.replicas.fetch.fetched[0].max_bytes == 600, "a second's worth"
    began = loop.time()
    second = await client.call(fetch.API, version, to_fetch())
    assert loop.time() == began
    assert records_of(second) == BATCH
    assert client.protocol.muted.is_on
    wait_ms = 1000 * (2 * len(BATCH) / 600 - 2)
    assert second.throttle_time_ms == pytest.approx(wait_ms, abs=1)
    other = edges.client()  # of the same user
    refused = await other.call(fetch.API, version, to_fetch())
    assert loop.time() == began
    assert (refused.responses, refused.error_code, refused.session_id) == ([], 0, 0)
    assert refused.throttle_time_ms == second.throttle_time_ms
    assert other.protocol.muted.is_on
    third = await client.call(fetch.API, version, to_fetch())
    assert loop.time() - began == pytest.approx(second.throttle_time_ms / 1000, abs=0.01)
    assert records_of(third) == BATCH
    assert third.throttle_time_ms == pytest.approx(1000 * len(BATCH) / 600, abs=2)


@virtual
async def test_a_batch_above_the_quota_still_comes_and_is_waited_for_afterwards() -> None:
    edges = with_quota(FETCH, 20)
    client = edges.client()
    answer = await client.call(fetch.API, 12, to_fetch())
    assert records_of(answer) == BATCH
    assert answer.throttle_time_ms == pytest.approx(1000 * (len(BATCH) / 20 - 2), abs=2)
    assert client.protocol.muted.is_on


class Ticks:
    """A clock that goes on by a twentieth of a second whenever it is read."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 0.05
        return self.now_s


@virtual
async def test_time_of_the_loop_counts_from_the_next_answer_on() -> None:
    edges = with_quota(CPU, 1.1, {"user": None})
    edges.quotas.turn_clock = Ticks()
    client = edges.client()
    told = [(await client.call(fetch.API, 12, to_fetch())).throttle_time_ms for _ in range(4)]
    # Each takes 0.05 s, and 1.1 % of ten seconds are 0.11 s.
    assert told == [0, 0, 0, 1000], "a second is the most"
    assert client.protocol.muted.is_on


@virtual
async def test_time_of_a_woken_fetch_counts_from_the_next_answer_on() -> None:
    edges = with_quota(CPU, 1.1, {"user": None})
    edges.quotas.turn_clock = Ticks()
    client = edges.client()
    edges.replicas.hold()
    client.send(fetch.API, 12, to_fetch())
    (waiting,) = edges.replicas.fetch.fetched
    assert waiting.spend is not None
    for _ in range(3):
        waiting.spend(lambda _: None, waiting)  # nothing is there yet
    edges.replicas.hold(False)
    edges.replicas.release()
    assert (await client.receive(fetch.API, 12)).throttle_time_ms == 1000
    assert client.protocol.muted.is_on


@virtual
async def test_without_a_quota_no_time_of_a_woken_fetch_is_counted() -> None:
    edges = with_quota(CPU, 1.1, {"ip": "1.1.1.1"})
    client = edges.client()
    edges.replicas.hold()
    client.send(fetch.API, 12, to_fetch())
    (waiting,) = edges.replicas.fetch.fetched
    assert waiting.spend is None


def nodes_requests() -> list[tuple[object, int, object]]:
    return [
        (fetch.API, 12, to_fetch(replica_id=2)),
        (write_txn_markers.API, 1, write_txn_markers.WriteTxnMarkersRequest()),
        (add_partitions_to_txn.API, 4, add_partitions_to_txn.AddPartitionsToTxnRequest()),
        (
            offset_for_leader_epoch.API,
            4,
            offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=2),
        ),
        (sasl_handshake.API, 1, sasl_handshake.SaslHandshakeRequest("PLAIN")),
    ]


@pytest.mark.parametrize("number", range(5))
@virtual
async def test_requests_that_nodes_send_are_exempt_and_counted_apart(number: int) -> None:
    edges = with_quota(CPU, 0.001)
    edges.commit(quota_record(entity(**ANONYMOUS), FETCH, 1))
    edges.quotas.turn_clock = Ticks()
    client = edges.client()
    api, version, request = nodes_requests()[number]
    for _ in range(3):
        await client.call(api, version, request)  # type: ignore[arg-type,type-var]
    assert not client.protocol.muted.is_on
    # The time of the last turn is not counted yet.
    assert edges.quotas.exempt_s > 0.09
    assert edges.registry.values()["stele_exempt_request_seconds_total"] == edges.quotas.exempt_s


@pytest.mark.parametrize(
    ("listener", "principal", "node_ids", "allowed", "is_exempt"),
    [
        ("INTERNAL", "User:broker", frozenset[int](), True, True),
        ("INTERNAL", "User:broker", frozenset[int](), False, False),
        ("EXTERNAL", "User:broker", frozenset[int](), True, False),
        ("EXTERNAL", "User:broker", frozenset({2}), False, True),
        ("EXTERNAL", NODE_ITSELF, frozenset[int](), False, True),
    ],
)
@virtual
async def test_nodes_are_exempt(
    listener: str, principal: str, node_ids: frozenset[int], allowed: bool, is_exempt: bool
) -> None:
    authorizer = WithAcls()
    edges = with_quota(PRODUCE, 1, {"user": None}, edges=Edges(authorizer))
    if not allowed:
        authorizer.denied.add((Operation.CLUSTER_ACTION, CLUSTER))
    client = edges.client(listener)
    client.protocol.principal, client.protocol.node_ids = principal, node_ids
    assert (await produced(client) == 0) is is_exempt
    assert not authorizer.denials


@virtual
async def test_without_an_authorizer_the_listener_of_brokers_makes_nobody_exempt() -> None:
    edges = with_quota(PRODUCE, 1, {"user": None})
    assert await produced(edges.client("INTERNAL")) > 0


@virtual
async def test_without_quotas_nothing_is_counted_or_measured() -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    client = edges.client()
    for record in (
        quota_record(entity(ip="::1"), "connection_creation_rate", 1.0),
        quota_record(entity(**ANONYMOUS), PRODUCE, 1.0),
        removal_record(entity(**ANONYMOUS), PRODUCE),
    ):
        edges.commit(record)
        is_on = PRODUCE in edges.publisher.image.client_quotas.get(entity(**ANONYMOUS), Map())
        assert (edges.quotas.manager is not None) == is_on
        assert (edges.quotas.turn_clock is not None) == is_on
    assert await produced(client) == 0


@virtual
async def test_what_is_used_can_be_seen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "broker.service.quotas")
    edges = with_quota(PRODUCE, 100)
    client = edges.client()
    await produced(client)
    values = edges.registry.values()
    labels = '{quota="producer_byte_rate",user="ANONYMOUS",client_id=""}'
    assert 100 < values["stele_quota_usage" + labels] < 200
    assert values["stele_quota_throttled_seconds" + labels] > 0.5
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith("user 'ANONYMOUS' with client id 'test' waits ")
    assert "producer_byte_rate of user 'ANONYMOUS' is 100, and the client is at 1" in line


IDS = "producer_ids_rate"


@pytest.mark.parametrize("acks", [-1, 0])
@virtual
async def test_a_client_with_too_many_new_producers_is_not_read(acks: int) -> None:
    edges = with_quota(IDS, 0.25)
    edges.replicas.produce.are_producers_new = True
    client, loop = edges.client(), asyncio.get_running_loop()
    began = loop.time()
    for _ in range(4):  # ten seconds' worth are two and a half
        client.send(produce.API, 9, to_produce(acks))
    assert len(edges.replicas.produce.produced) == 3
    assert client.protocol.muted.is_on
    if acks:
        told = [(await client.receive(produce.API, 9)).throttle_time_ms for _ in range(4)]
        assert told == [0, 0, 2000, 4000]
        assert loop.time() - began == pytest.approx(2, abs=0.01)


@virtual
async def test_the_client_waits_from_the_append_on_and_is_told_the_rest_of_its_time() -> None:
    edges = with_quota(IDS, 0.05)
    edges.replicas.produce.are_producers_new = True
    edges.replicas.hold()
    client = edges.client()
    client.send(produce.API, 9, to_produce())
    assert client.protocol.muted.is_on
    await asyncio.sleep(3)
    edges.replicas.release(0)
    assert (await client.receive(produce.API, 9)).throttle_time_ms == 7000
    await asyncio.sleep(6.9)
    assert client.protocol.muted.is_on
    await asyncio.sleep(0.2)
    assert not client.protocol.muted.is_on


@virtual
async def test_known_producers_and_nodes_bring_no_new_ones() -> None:
    edges = with_quota(IDS, 0.01, {"user": None})
    client = edges.client()
    for _ in range(5):
        assert await produced(client) == 0
    edges.replicas.produce.are_producers_new = True
    node = edges.client()
    node.protocol.principal = NODE_ITSELF
    assert await produced(node) == 0
    assert not node.protocol.muted.is_on


@virtual
async def test_new_producers_count_for_nobody_when_the_quotas_are_gone_meanwhile() -> None:
    edges = with_quota(IDS, 0.01)
    edges.replicas.produce.are_producers_new = True
    edges.replicas.hold()
    client = edges.client()
    client.send(produce.API, 9, to_produce(1))
    ((entries, _, _),) = edges.replicas.produce.produced
    edges.commit(removal_record(entity(**ANONYMOUS), IDS))
    assert entries[0].on_new_producer is not None
    entries[0].on_new_producer()
    edges.replicas.release(0)
    await client.receive(produce.API, 9)


def mutations(version: int, kind: str) -> tuple[Any, Any, Any]:
    """The API, a request of this version, and the controller's answer."""
    if kind == "CreateTopics":
        topic = create_topics.CreatableTopic("new", 1, 1)
        told = pb.CreateTopicsResponse(topics=[pb.CreateTopicsResponse.Topic(name="new")])
        return create_topics.API, create_topics.CreateTopicsRequest([topic]), told
    if kind == "CreatePartitions":
        wish = create_partitions.CreatePartitionsTopic("new", 2)
        grown = pb.CreatePartitionsResponse(topics=[pb.CreatePartitionsResponse.Topic(name="new")])
        return create_partitions.API, create_partitions.CreatePartitionsRequest([wish]), grown
    gone = pb.DeleteTopicsResponse(topics=[pb.DeleteTopicsResponse.Topic(name="new")])
    by_id = version >= 6
    request = delete_topics.DeleteTopicsRequest(
        [delete_topics.DeleteTopicState("new")] if by_id else [], [] if by_id else ["new"]
    )
    return delete_topics.API, request, gone


@pytest.mark.parametrize(
    ("kind", "version", "may_exceed"),
    [
        ("CreateTopics", 5, True),
        ("CreateTopics", 6, False),
        ("DeleteTopics", 4, True),
        ("DeleteTopics", 5, False),
        ("DeleteTopics", 6, False),
        ("CreatePartitions", 2, True),
        ("CreatePartitions", 3, False),
    ],
)
@virtual
async def test_the_controllers_throttle_reaches_the_client(
    kind: str, version: int, may_exceed: bool
) -> None:
    edges = with_quota("controller_mutation_rate", 1)
    api, request, told = mutations(version, kind)
    told.throttle_time_ms = 1_500
    asked = []

    async def answer(payload: bytes, _: Peer) -> bytes:
        asked.append(getattr(pb, kind + "Request").FromString(payload).on_behalf_of)
        return bytes(told.SerializeToString())

    edges.network.services[CONTROLLER].unary[f"/stele.v1.Admin/{kind}"] = answer
    client = edges.client()
    response: Any = await client.call(api, version, request)
    assert response.throttle_time_ms == 1_500
    assert client.protocol.muted.is_on
    (caller,) = asked
    assert (caller.principal, caller.client_id) == ("User:ANONYMOUS", "test")
    assert caller.may_exceed_quota is may_exceed


@virtual
async def test_a_broker_explains_what_counts_for_a_client() -> None:
    edges = with_quota(PRODUCE, 1_000)
    edges.commit(quota_record(entity(user=None), "controller_mutation_rate", 5.0))
    await produced(edges.client())
    service = AdminService(edges.context, "EXTERNAL").service()

    async def explained(user: str) -> pb.ExplainClientQuotasResponse:
        request = pb.ExplainClientQuotasRequest(user=user, client_id="test")
        payload = await service.unary["/stele.v1.Admin/ExplainClientQuotas"](
            request.SerializeToString(), Peer("127.0.0.1:5", None)
        )
        return pb.ExplainClientQuotasResponse.FromString(payload)

    _, rate = (await explained("ANONYMOUS")).quotas
    assert (rate.key, rate.value, rate.throttles) == (PRODUCE, 1_000.0, 0)
    assert rate.usage == pytest.approx(len(BATCH) / 10, rel=0.2)
    assert [(part.type, part.name) for part in rate.entity] == [("user", "ANONYMOUS")]
    assert (rate.is_shared_by_user, rate.is_shared_by_client_id) == (True, False)
    (changes,) = (await explained("ann")).quotas
    assert (changes.key, changes.value, changes.usage) == ("controller_mutation_rate", 5.0, 0.0)
    assert not changes.entity[0].HasField("name")


@virtual
async def test_a_broker_explains_the_quota_of_an_address() -> None:
    edges = Edges()
    edges.commit(quota_record(entity(ip=None), RATE, 2.0))
    edges.commit(quota_record(entity(ip="10.0.0.1"), RATE, 1.0))
    for _ in range(13):
        edges.quotas.addresses.admit("10.0.0.1", edges.quotas.now_s())
    service = AdminService(edges.context, "EXTERNAL").service()

    async def explained(ip: str) -> pb.ExplainClientQuotasResponse:
        payload = await service.unary["/stele.v1.Admin/ExplainClientQuotas"](
            pb.ExplainClientQuotasRequest(ip=ip).SerializeToString(), Peer("127.0.0.1:5", None)
        )
        return pb.ExplainClientQuotasResponse.FromString(payload)

    (quota,) = (await explained("::ffff:10.0.0.1")).quotas
    assert (quota.key, quota.value, quota.throttles) == (RATE, 1.0, 2)
    assert (quota.usage, quota.throttled_seconds) == (1.0, 2.0)
    assert (quota.is_shared_by_ip, quota.is_shared_by_user) == (True, False)
    (quota,) = (await explained("10.0.0.2")).quotas
    assert (quota.value, quota.usage, quota.entity[0].HasField("name")) == (2.0, 0.0, False)
    values = edges.registry.values()
    assert values['stele_connection_quota_usage{ip="10.0.0.1"}'] == 1.0
    assert values['stele_connection_quota_throttled_seconds{ip="10.0.0.1"}'] == 2.0
    edges.commit(removal_record(entity(ip=None), RATE))
    assert not (await explained("10.0.0.2")).quotas


RATE = "connection_creation_rate"
