"""Fetch: translation, sessions, hints, withdrawal."""

from __future__ import annotations

import gc
import weakref

import pytest

from broker.replication.types import EpochEnd, FetchResult, LeaderHint
from broker.service.nearby import nearby_brokers
from metadata.node_settings import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from runtime.authorization.caller import ANONYMOUS, Caller, Plane
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.kafka.messages import fetch
from stele.wire.kafka.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from tests.support.batches import make_batch
from tests.support.broker_apis import Edges, topic_id
from tests.support.timing import run_virtual
from tests.support.worlds import virtual

API = fetch.API
A0 = PartitionId(topic_id("a"), 0)


def _topic(name: str, *partitions: int, unknown: bytes = b"") -> FetchTopic:
    return FetchTopic(
        topic=name,
        topic_id=unknown or topic_id(name),
        partitions=[
            FetchPartition(
                partition=partition,
                current_leader_epoch=5,
                fetch_offset=100,
                last_fetched_epoch=4,
                partition_max_bytes=1000,
            )
            for partition in partitions
        ],
    )


def _consume(*topics: FetchTopic) -> FetchRequest:
    return FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=5000, topics=list(topics))


@pytest.mark.parametrize("version", range(4, 19))
@virtual
async def test_reads_by_name_or_id(version: int) -> None:
    edges = Edges()
    edges.add_topic("a", [[1], [1]])
    first, second = make_batch(2), make_batch(1)
    edges.replicas.fetch.results[A0] = FetchResult(
        A0, ErrorCode.NONE, 30, 20, 1, records=[first, memoryview(second)]
    )
    request = _consume(_topic("a", 0, 1))
    request.isolation_level = 1
    answer = await edges.client().call(API, version, request)

    (query,) = edges.replicas.fetch.fetched
    assert (query.max_wait_ms, query.min_bytes, query.max_bytes) == (500, 1, 5000)
    assert (query.replica_id, query.read_committed) == (-1, True)
    assert query.entries[0].id == A0
    assert query.entries[0].fetch_offset == 100
    assert query.entries[0].current_leader_epoch == (5 if version >= 9 else -1)

    assert (answer.error_code, answer.session_id) == (0, 0)
    (topic,) = answer.responses
    assert topic.topic == ("a" if version < 13 else "")
    assert topic.topic_id == (topic_id("a") if version >= 13 else bytes(16))
    one, two = topic.partitions
    assert (one.high_watermark, one.last_stable_offset) == (30, 20)
    assert one.records == bytes(first) + bytes(second)
    assert (two.partition_index, two.records) == (1, b"")
    assert one.aborted_transactions == []
    assert one.preferred_read_replica == -1


@pytest.mark.parametrize("version", [11, 12])
@virtual
async def test_an_unknown_name(version: int) -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    answer = await edges.client().call(API, version, _consume(_topic("gone", 0), _topic("a", 0, 7)))
    errors = {
        (topic.topic, partition.partition_index): partition.error_code
        for topic in answer.responses
        for partition in topic.partitions
    }
    assert errors == {
        ("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("a", 0): ErrorCode.NONE,
        ("a", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert edges.replicas.fetch.fetched[0].max_wait_ms == 0  # an error is answered at once


@virtual
async def test_an_unknown_id() -> None:
    edges = Edges()
    answer = await edges.client().call(API, 13, _consume(_topic("a", 0, unknown=b"?" * 16)))
    (topic,) = answer.responses
    assert topic.topic_id == b"?" * 16
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert not edges.replicas.fetch.fetched


@virtual
async def test_hints_and_diverging_epochs() -> None:
    edges = Edges()
    edges.add_topic("a", [[2, 1], [1]])
    edges.replicas.fetch.results[A0] = FetchResult(
        A0, ErrorCode.FENCED_LEADER_EPOCH, leader=LeaderHint(2, 9)
    )
    a1 = PartitionId(topic_id("a"), 1)
    edges.replicas.fetch.results[a1] = FetchResult(
        a1, ErrorCode.NONE, 30, 30, 0, diverging=EpochEnd(3, 77)
    )
    answer = await edges.client().call(API, 16, _consume(_topic("a", 0, 1)))
    fenced, diverging = answer.responses[0].partitions
    assert fenced.current_leader == fetch.LeaderIdAndEpoch(2, 9)
    assert diverging.diverging_epoch == fetch.EpochEndOffset(3, 77)
    assert answer.node_endpoints == [fetch.NodeEndpoint(2, "b2.external", 19092, "r2")]


def _replicate(
    session_id: int, session_epoch: int, *topics: FetchTopic, broker_epoch: int = 2
) -> FetchRequest:
    """Fetch as broker 2, with the broker epoch that ``Edges`` registers."""
    return FetchRequest(
        replica_state=ReplicaState(2, broker_epoch),
        max_wait_ms=500,
        min_bytes=1,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=list(topics),
    )


@virtual
async def test_a_follower_gets_a_session() -> None:
    edges = Edges()
    edges.add_topic("a", [[1, 2], [1, 2]])
    client = edges.client("INTERNAL")
    answer = await client.call(API, 18, _replicate(0, 0, _topic("a", 0, 1)))
    assert answer.session_id > 0
    assert len(answer.responses[0].partitions) == 2
    query = edges.replicas.fetch.fetched[-1]
    assert (query.replica_id, query.replica_epoch) == (2, 2)

    unchanged = await client.call(API, 18, _replicate(answer.session_id, 1))
    assert unchanged.responses == []
    assert len(edges.replicas.fetch.fetched[-1].entries) == 2

    forget = _replicate(answer.session_id, 2)
    forget.forgotten_topics_data = [ForgottenTopic(topic_id=topic_id("a"), partitions=[1])]
    await client.call(API, 18, forget)
    assert [e.id.partition for e in edges.replicas.fetch.fetched[-1].entries] == [0]

    wrong = await client.call(API, 18, _replicate(answer.session_id, 9))
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    lost = await client.call(API, 18, _replicate(12345, 3))
    assert lost.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@virtual
async def test_a_deleted_topic_in_a_session_is_reported() -> None:
    edges = Edges()
    edges.add_topic("a", [[1, 2]])
    client = edges.client("INTERNAL")
    answer = await client.call(API, 18, _replicate(0, 0, _topic("a", 0)))
    edges.remove_topic("a")
    edges.replicas.fetch.results[A0] = FetchResult(A0, ErrorCode.UNKNOWN_TOPIC_ID)
    answer = await client.call(API, 18, _replicate(answer.session_id, 1))
    partition = answer.responses[0].partitions[0]
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@virtual
async def test_a_consumer_gets_no_session() -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    client = edges.client()
    request = _consume(_topic("a", 0))
    request.session_epoch = 0
    assert (await client.call(API, 12, request)).session_id == 0
    request.session_id, request.session_epoch = 77, 1
    answer = await client.call(API, 12, request)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@virtual
async def test_a_lost_connection_withdraws_what_waits() -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    edges.replicas.hold()
    client = edges.client()
    client.send(API, 12, _consume(_topic("a", 0)))
    assert edges.registry.values()["stele_fetch_purgatory_size"] == 1
    client.disconnect()
    assert edges.replicas.fetch.withdrawn == 1
    assert edges.registry.values()["stele_fetch_purgatory_size"] == 0


@pytest.mark.parametrize("waits", [False, True])
def test_an_answer_takes_no_memory_once_it_is_written(waits: bool) -> None:
    """This must not need the garbage collector, which would let 300 MiB of 1 MiB answers
    accumulate."""

    async def main() -> None:
        edges = Edges()
        edges.add_topic("a", [[1]])
        edges.replicas.hold(waits)
        records = memoryview(bytes(make_batch()))
        freed = weakref.ref(records)
        edges.replicas.fetch.results[A0] = FetchResult(A0, ErrorCode.NONE, records=[records])
        client = edges.client()
        client.send(API, 18, _consume(_topic("a", 0)))
        del records, edges.replicas.fetch.results[A0]
        if waits:
            edges.replicas.release()
        edges.replicas.fetch.fetched.clear()  # the fake remembers what the real part forgets
        assert (await client.receive(API, 18)).responses[0].partitions[0].records
        assert freed() is None

    gc.collect()
    gc.disable()
    try:
        run_virtual(main())
    finally:
        gc.enable()


@pytest.mark.parametrize("version", [4, 6, 7, 18])
@virtual
async def test_a_handler_that_raises(version: int) -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    edges.replicas.fail(RuntimeError("a bug"))
    client = edges.client()
    answer = await client.call(API, version, _consume(_topic("a", 0)))
    errors = [p.error_code for t in answer.responses for p in t.partitions]
    assert (errors or [answer.error_code]) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert not client.transport.closed


@virtual
async def test_who_names_another_broker_epoch_gets_no_session_and_takes_none() -> None:
    edges = Edges()
    edges.add_topic("a", [[1, 2]])
    follower, liar = edges.client("INTERNAL"), edges.client("EXTERNAL")
    answer = await follower.call(API, 18, _replicate(0, 0, _topic("a", 0)))
    for broker_epoch in (-1, 0, 3):
        forged = _replicate(0, 0, _topic("a", 0), broker_epoch=broker_epoch)
        assert (await liar.call(API, 18, forged)).session_id == 0
    stolen = await liar.call(API, 18, _replicate(answer.session_id, 1))
    assert stolen.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(edges.context.sessions) == 1
    again = await follower.call(API, 18, _replicate(answer.session_id, 1))
    assert again.error_code == ErrorCode.NONE


@virtual
async def test_of_a_partition_named_twice_the_last_counts() -> None:
    edges = Edges()
    edges.add_topic("a", [[1, 2]])
    request = _consume(_topic("a", 0, 0), _topic("a", 0))
    request.topics[1].partitions[0].fetch_offset = 7
    answer = await edges.client().call(API, 16, request)
    assert [e.fetch_offset for e in edges.replicas.fetch.fetched[-1].entries] == [7]
    assert len(answer.responses) == 1


@pytest.mark.parametrize("version", range(4, 19))
@virtual
async def test_a_consumer_is_sent_to_a_replica_in_its_rack(version: int) -> None:
    edges = Edges(replica_selector_class=RACK_AWARE_SELECTOR, broker_rack="r1")
    edges.add_topic("a", [[1, 2, 3]])
    request = _consume(_topic("a", 0))
    request.rack_id = "r2"
    sent = FetchResult(A0, ErrorCode.NONE, 30, 30, 1, preferred_replica=2)
    edges.replicas.fetch.results[A0] = sent
    answer = await edges.client().call(API, version, request)
    (query,) = edges.replicas.fetch.fetched
    says_where = version >= 11
    assert query.any_replica == says_where
    assert query.nearby == ({2} if says_where else set())
    ((told,),) = (topic.partitions for topic in answer.responses)
    assert told.preferred_read_replica == (2 if says_where else -1)


@pytest.mark.parametrize(
    ("rack", "selector", "listener", "nearby"),
    [
        ("r2", RACK_AWARE_SELECTOR, "EXTERNAL", {2}),
        ("r2", "", "EXTERNAL", set()),
        ("r2", LEADER_SELECTOR, "EXTERNAL", set()),
        ("r2", RACK_AWARE_SELECTOR, "ELSEWHERE", set()),  # nobody is reached there
        ("r1", RACK_AWARE_SELECTOR, "EXTERNAL", set()),  # this broker's
        ("r3", RACK_AWARE_SELECTOR, "EXTERNAL", set()),  # fenced
        ("", RACK_AWARE_SELECTOR, "EXTERNAL", set()),
        ("r9", RACK_AWARE_SELECTOR, "EXTERNAL", set()),
    ],
)
def test_brokers_are_near_that_live_in_the_rack_and_can_be_reached(
    rack: str, selector: str, listener: str, nearby: set[int]
) -> None:
    edges = Edges(replica_selector_class=selector, broker_rack="r1")
    edges.register(3, fenced=True)
    caller = Caller(ANONYMOUS, "c", listener, Plane.KAFKA, "127.0.0.1")
    assert nearby_brokers(edges.context, caller, rack) == nearby
