"""Markers reach the leaders of all partitions, whatever fails on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from broker.coordinator.markers import RETRY_MS
from broker.coordinator.step import Request
from broker.coordinator.transaction.types import AddPartitionsRequest, EndRequest, InitRequest
from broker.coordinator.transaction.types import TransactionRef as Ref
from broker.coordinator.transaction.types import TransactionState as State
from broker.replication.types import Marker
from metadata.internal_topics import TRANSACTION_TOPIC
from stele.errors import ErrorCode
from stele.ids import PartitionId, TopicPartition
from stele.wire.kafka.messages import write_txn_markers as wire
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.broker_apis import Edges, topic_id
from tests.support.coordinators import Heard
from tests.support.timing import until
from tests.support.worlds import virtual

ID = "payments"


class Bench:
    """Broker 1 coordinates all transactional ids; brokers 1, 2 and 3 lead a partition each."""

    def __init__(self) -> None:
        self.edges = Edges()
        level = pb.FeatureLevelRecord(name="transaction.version", level=2)
        self.edges.commit(pb.MetadataRecord(feature_level=level))
        self.edges.add_topic("orders", [[1, 2], [2, 3], [3, 1]])
        self.edges.add_topic(TRANSACTION_TOPIC, [[1]])
        self.requests: list[tuple[int, wire.WriteTxnMarkersRequest]] = []
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.edges.nodes.answers[wire.WriteTxnMarkersRequest] = self.answer

    def answer(self, request: wire.WriteTxnMarkersRequest) -> wire.WriteTxnMarkersResponse:
        self.requests.append((self.edges.nodes.asked[-1][0], request))
        return wire.WriteTxnMarkersResponse(
            [
                wire.WritableTxnMarkerResult(
                    marker.producer_id,
                    [
                        wire.WritableTxnMarkerTopicResult(
                            topic.name,
                            [
                                wire.WritableTxnMarkerPartitionResult(
                                    number, self.error(topic.name, number)
                                )
                                for number in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    def error(self, name: str, number: int) -> ErrorCode:
        return self.errors.get(TopicPartition(name, number), ErrorCode.NONE)

    async def ask(self, request: Request[Any]) -> Any:
        heard = Heard()
        self.edges.transactions.submit(0, request, heard)
        await until(lambda: bool(heard.told))
        assert heard.told[0].error is ErrorCode.NONE, heard.told
        return heard.told[0]

    async def committed(
        self,
        *numbers: int,
        transactional_id: str = ID,
        number_of: int = 7,
        topic: str = "orders",
    ) -> Ref:
        """End a transaction of these partitions; its producer."""
        await until(lambda: bool(self.edges.transactions.active))
        init = InitRequest(transactional_id, 60_000, fresh_producer_id=number_of)
        began = await self.ask(init)
        ref = Ref(transactional_id, began.producer_id, began.producer_epoch)
        partitions = tuple(TopicPartition(topic, each) for each in numbers)
        await self.ask(AddPartitionsRequest(ref, partitions))
        await self.ask(EndRequest(ref, commit=True, client_version=2))
        return ref

    @property
    def states(self) -> dict[State, int]:
        (machine,) = self.edges.transactions.active
        return dict(machine.transactions_by_state())

    async def until_complete(self) -> None:
        await until(lambda: set(self.states) == {State.COMPLETE_COMMIT})
        assert self.edges.markers.pending == 0

    def lead(self, number: int, leader: int, topic: str = "orders") -> None:
        change = pb.PartitionChangeRecord(topic_id=topic_id(topic), partition=number, leader=leader)
        self.edges.commit(pb.MetadataRecord(partition_change=change))


@virtual
async def test_each_leader_gets_its_own() -> None:
    bench = Bench()
    await bench.committed(0, 1, 2)
    await bench.until_complete()
    (here,) = bench.edges.replicas.markers.written
    assert here.partition == PartitionId(topic_id("orders"), 0)
    assert (here.producer_id, here.producer_epoch, here.commit) == (7, 1, True)
    assert (here.coordinator_epoch, here.transaction_version) == (0, 2)
    assert [
        (
            broker_id,
            request.markers[0].producer_id,
            request.markers[0].topics[0].partition_indexes,
        )
        for broker_id, request in bench.requests
    ] == [(2, 7, [1]), (3, 7, [2])]
    assert {version for _, version, _ in bench.edges.nodes.asked} == {2}


@virtual
async def test_transactions_share_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asked = bench.edges.nodes.ask

    async def slow(*arguments: Any) -> Any:
        await held
        return await asked(*arguments)

    monkeypatch.setattr(bench.edges.nodes, "ask", slow)
    for number in range(3):
        await bench.committed(1, transactional_id=f"t{number}", number_of=number)
    assert bench.edges.markers.pending == 3
    held.set_result(None)
    await bench.until_complete()
    producers = [[each.producer_id for each in request.markers] for _, request in bench.requests]
    assert producers == [[0], [1, 2]], "those that came while one was under way"


@virtual
async def test_a_broker_that_cannot_be_reached_is_asked_again() -> None:
    bench = Bench()
    del bench.edges.nodes.answers[wire.WriteTxnMarkersRequest]
    await bench.committed(1)
    await asyncio.sleep(RETRY_MS / 1000 * 5)
    assert bench.states == {State.PREPARE_COMMIT: 1}
    assert 4 <= len(bench.edges.nodes.asked) <= 6
    bench.edges.nodes.answers[wire.WriteTxnMarkersRequest] = bench.answer
    await bench.until_complete()


@virtual
async def test_a_new_leader_is_asked_at_once() -> None:
    bench = Bench()
    bench.errors[TopicPartition("orders", 1)] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    await bench.committed(1)
    await until(lambda: len(bench.requests) == 1)
    bench.errors.clear()
    bench.lead(1, 3)
    await bench.until_complete()
    assert [broker_id for broker_id, _ in bench.requests] == [2, 3]


@virtual
async def test_markers_that_rest_are_sent_again_together_and_once() -> None:
    """Also when new metadata have ended the pause before."""

    bench = Bench()
    for number in (1, 2):
        bench.errors[TopicPartition("orders", number)] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    await bench.committed(1, 2)
    await until(lambda: len(bench.requests) == 2)
    await asyncio.sleep(RETRY_MS / 1000 / 2)
    assert len(bench.requests) == 2
    bench.lead(0, 1)
    await asyncio.sleep(RETRY_MS / 1000 - 0.01)
    assert len(bench.requests) == 4, "the pause has begun anew"
    bench.errors.clear()
    await bench.until_complete()
    assert len(bench.requests) == 6


@virtual
async def test_a_partition_without_a_leader_is_waited_for() -> None:
    bench = Bench()
    bench.lead(1, -1)
    await bench.committed(1)
    await asyncio.sleep(RETRY_MS / 1000 * 3)
    assert bench.states == {State.PREPARE_COMMIT: 1}
    assert not bench.edges.nodes.asked
    bench.lead(1, 1)
    await bench.until_complete()
    assert len(bench.edges.replicas.markers.written) == 1


@virtual
async def test_many_partitions_of_this_broker_are_written_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of a topic that is deleted meanwhile need no marker."""

    bench = Bench()
    bench.edges.add_topic("many", [[1]] * 650)
    sizes: list[int] = []
    write = bench.edges.replicas.markers.write

    def written(markers: Sequence[Marker], done: Callable[[list[ErrorCode]], None]) -> None:
        sizes.append(len(markers))
        write(markers, done)
        if len(sizes) == 2:
            asyncio.get_running_loop().call_soon(bench.edges.remove_topic, "many")

    monkeypatch.setattr(bench.edges.replicas.markers, "write", written)
    await bench.committed(*range(650), topic="many")
    await bench.until_complete()
    assert sizes[:2] == [200, 200]
    assert sum(sizes) < 650


@virtual
async def test_markers_that_wait_for_a_broker_follow_the_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asked = bench.edges.nodes.ask

    async def slow(broker_id: int, *arguments: Any) -> Any:
        if broker_id == 2:
            await held
        return await asked(broker_id, *arguments)

    monkeypatch.setattr(bench.edges.nodes, "ask", slow)
    for number in range(2):
        await bench.committed(1, transactional_id=f"t{number}", number_of=number)
    bench.lead(1, 3)
    held.set_result(None)
    await bench.until_complete()
    found = [
        (broker_id, [each.producer_id for each in request.markers])
        for broker_id, request in bench.requests
    ]
    assert found == [(2, [0]), (3, [1])], "nobody is asked for nothing"


@virtual
async def test_nothing_is_looked_for_after_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    await bench.committed(1)
    await bench.until_complete()
    (machine,) = bench.edges.transactions.active
    looked_for: list[int] = []

    def due_markers() -> list[Any]:
        looked_for.append(1)
        return []

    monkeypatch.setattr(machine, "due_markers", due_markers)
    bench.edges.transactions.on_markers_due()
    await asyncio.sleep(0.1)
    assert looked_for == [1]
    bench.edges.transactions.on_markers_due()
    await bench.edges.markers.stop()
    bench.edges.transactions.on_markers_due()
    await asyncio.sleep(0.1)
    assert looked_for == [1]


@virtual
async def test_a_deleted_topic_needs_no_marker() -> None:
    bench = Bench()
    bench.lead(1, -1)
    await bench.committed(1)
    bench.edges.remove_topic("orders")
    await bench.until_complete()
    assert not bench.edges.nodes.asked


@virtual
async def test_a_marker_that_is_there_counts_as_written() -> None:
    bench = Bench()
    bench.errors[TopicPartition("orders", 1)] = ErrorCode.INVALID_PRODUCER_EPOCH
    await bench.committed(1)
    await bench.until_complete()


@virtual
async def test_a_fenced_coordinator_leaves_it_to_the_other_one() -> None:
    bench = Bench()
    bench.errors[TopicPartition("orders", 1)] = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    await bench.committed(1)
    await asyncio.sleep(RETRY_MS / 1000 * 5)
    assert bench.states == {State.PREPARE_COMMIT: 1}
    assert len(bench.requests) == 1
    assert bench.edges.markers.pending == 0


@virtual
async def test_an_own_replica_that_cannot_write_is_asked_again() -> None:
    bench = Bench()
    here = PartitionId(topic_id("orders"), 0)
    bench.edges.replicas.markers.errors[here] = ErrorCode.NOT_ENOUGH_REPLICAS
    await bench.committed(0)
    await asyncio.sleep(RETRY_MS / 1000 * 2)
    assert bench.states == {State.PREPARE_COMMIT: 1}
    bench.edges.replicas.markers.errors.clear()
    await bench.until_complete()


@virtual
async def test_the_next_coordinator_begins_with_all_markers() -> None:
    bench = Bench()
    del bench.edges.nodes.answers[wire.WriteTxnMarkersRequest]
    await bench.committed(0, 1)
    await until(lambda: len(bench.edges.nodes.asked) == 1)
    assert bench.edges.markers.pending == 1
    (log,) = bench.edges.replicas.hosted_logs.values()
    log.is_led = False
    bench.lead(0, 2, TRANSACTION_TOPIC)
    assert bench.edges.transactions.partitions == []
    await asyncio.sleep(RETRY_MS / 1000 * 2)
    assert bench.edges.markers.pending == 0, "they are the next coordinator's"
    bench.edges.nodes.answers[wire.WriteTxnMarkersRequest] = bench.answer
    log.is_led, log.leader_epoch = True, 7
    bench.lead(0, 1, TRANSACTION_TOPIC)
    await until(lambda: bool(bench.edges.transactions.active))
    await bench.until_complete()
    assert [each.coordinator_epoch for each in bench.edges.replicas.markers.written] == [0, 7]
    (_, request) = bench.requests[-1]
    assert request.markers[0].coordinator_epoch == 7
