"""Coordinators are asked about partitions once for all of a transaction, wherever they are."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

from broker.coordinator.transaction.types import InitRequest
from broker.coordinator.verification import AGAIN_FOR_MS, Verification
from metadata.internal_topics import TRANSACTION_TOPIC
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from stele.wire.kafka.messages import add_partitions_to_txn as wire
from tests.support.broker_apis import ME, Edges
from tests.support.coordinators import Heard
from tests.support.timing import until
from tests.support.worlds import virtual

ID = "payments"


class Bench:
    def __init__(self, *leaders: int) -> None:
        """``leaders``: of the partitions of ``__transaction_state``."""
        self.edges = Edges()
        self.edges.add_topic("orders", [[1]] * 4)
        if leaders:
            self.edges.add_topic(
                TRANSACTION_TOPIC, [[1, 2, 3]] * len(leaders), leaders=list(leaders)
            )
        self.verification = Verification(
            self.edges.transactions,
            self.edges.nodes,
            broker_id=ME,
            image=lambda: self.edges.publisher.image,
            clock=self.edges.clock,
        )
        self.told: list[tuple[int, ErrorCode]] = []
        self.requests: list[wire.AddPartitionsToTxnRequest] = []
        self.asked_at_ms: list[float] = []
        self.error = ErrorCode.NONE
        self.errors: dict[int, ErrorCode] = {}
        self.edges.nodes.answers[wire.AddPartitionsToTxnRequest] = self.answer

    def verify(
        self, number: int, *, producer: tuple[int, int] = (7, 0), add: bool = True, of: str = ID
    ) -> None:
        self.verification.verify(
            of,
            *producer,
            TopicPartition("orders", number),
            add=add,
            done=lambda error: self.told.append((number, error)),
        )

    def answer(self, request: wire.AddPartitionsToTxnRequest) -> wire.AddPartitionsToTxnResponse:
        self.requests.append(request)
        self.asked_at_ms.append(self.edges.clock.monotonic() * 1000)
        if self.error is not ErrorCode.NONE:
            return wire.AddPartitionsToTxnResponse(error_code=self.error)
        return wire.AddPartitionsToTxnResponse(
            results_by_transaction=[
                wire.AddPartitionsToTxnResult(
                    each.transactional_id,
                    [
                        wire.AddPartitionsToTxnTopicResult(
                            topic.name,
                            [
                                wire.AddPartitionsToTxnPartitionResult(
                                    number, self.errors.get(number, ErrorCode.NONE)
                                )
                                for number in topic.partitions
                            ],
                        )
                        for topic in each.topics
                    ],
                )
                for each in request.transactions
            ]
        )

    def pauses_ms(self) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.asked_at_ms)]

    async def all_told(self, count: int) -> list[tuple[int, ErrorCode]]:
        await until(lambda: len(self.told) == count)
        return sorted(self.told)

    async def a_producer(self) -> None:
        await until(lambda: bool(self.edges.transactions.active))
        heard = Heard()
        request = InitRequest(ID, 60_000, fresh_producer_id=7)
        self.edges.transactions.submit(0, request, heard)
        await until(lambda: bool(heard.told))


def asked(request: wire.AddPartitionsToTxnRequest) -> list[tuple[Any, ...]]:
    return [
        (each.transactional_id, each.producer_epoch, each.verify_only, each.topics[0].partitions)
        for each in request.transactions
    ]


@virtual
async def test_a_coordinator_of_this_broker_is_asked_directly_and_once() -> None:
    bench = Bench(1)
    await bench.a_producer()
    (log,) = bench.edges.replicas.hosted_logs.values()
    before = log.end_offset
    bench.verify(0, add=False)
    assert await bench.all_told(1) == [(0, ErrorCode.TRANSACTION_ABORTABLE)]
    bench.told.clear()
    for number in (2, 0, 1):
        bench.verify(number)
    assert not bench.told, "it is told later"
    assert await bench.all_told(3) == [(number, ErrorCode.NONE) for number in range(3)]
    assert log.end_offset == before + 1
    bench.verify(0, add=False)
    bench.verify(3, add=False)
    assert (await bench.all_told(5))[-1] == (3, ErrorCode.TRANSACTION_ABORTABLE)
    bench.verify(0, producer=(8, 0))
    assert (0, ErrorCode.INVALID_PRODUCER_ID_MAPPING) in await bench.all_told(6)
    assert not bench.requests


@virtual
async def test_another_broker_is_asked_in_batches() -> None:
    bench = Bench(2)
    bench.errors[3] = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    bench.verify(0)
    await asyncio.sleep(0)  # its request is under way
    for number in (2, 1, 1):
        bench.verify(number)
    bench.verify(3, of="another")
    bench.verify(0, add=False)
    told = await bench.all_told(6)
    assert told == [
        (0, ErrorCode.NONE),
        (0, ErrorCode.NONE),
        (1, ErrorCode.NONE),
        (1, ErrorCode.NONE),
        (2, ErrorCode.NONE),
        (3, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ]
    assert [asked(each) for each in bench.requests] == [
        [(ID, 0, False, [0])],
        [(ID, 0, False, [2, 1]), ("another", 0, False, [3])],
        [(ID, 0, True, [0])],
    ], "a request has each transactional id once"
    assert {(broker, version) for broker, version, _ in bench.edges.nodes.asked} == {(2, 5)}


@virtual
async def test_a_coordinator_that_nobody_can_ask() -> None:
    nowhere, leaderless, remote = Bench(), Bench(-1), Bench(2)
    for bench in (nowhere, leaderless):
        bench.verify(0)
        assert not bench.told
        assert await bench.all_told(1) == [(0, ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    del remote.edges.nodes.answers[wire.AddPartitionsToTxnRequest]
    remote.verify(0)
    assert await remote.all_told(1) == [(0, ErrorCode.NETWORK_EXCEPTION)]
    loading = Bench(1)
    loading.verify(0)
    ((_, error),) = await loading.all_told(1)
    assert error in (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    )


@virtual
async def test_a_transaction_that_is_being_ended_is_asked_for_again_for_a_while() -> None:
    bench = Bench(2)
    bench.errors[0] = ErrorCode.CONCURRENT_TRANSACTIONS
    bench.verify(0)
    assert await bench.all_told(1) == [(0, ErrorCode.CONCURRENT_TRANSACTIONS)]
    assert len(bench.requests) == 8
    for pause_ms, expected_ms in zip(bench.pauses_ms(), (3, 6, 12, 20, 20, 20, 20), strict=True):
        assert expected_ms <= pause_ms <= expected_ms + 3  # the slot, and the question itself
    bench.verify(0, add=False)
    await bench.all_told(2)
    assert len(bench.requests) == 9, "an older producer waits by itself"
    bench.verify(0)
    await until(lambda: len(bench.requests) == 11)
    bench.errors.clear()
    assert (0, ErrorCode.NONE) in await bench.all_told(3)


@virtual
async def test_when_its_time_is_over_nobody_is_asked_again() -> None:
    bench = Bench(2)
    bench.errors[0] = ErrorCode.CONCURRENT_TRANSACTIONS

    def late(request: wire.AddPartitionsToTxnRequest) -> wire.AddPartitionsToTxnResponse:
        bench.edges.clock.skipped_s = AGAIN_FOR_MS / 1000
        return bench.answer(request)

    bench.edges.nodes.answers[wire.AddPartitionsToTxnRequest] = late
    bench.verify(0)
    assert await bench.all_told(1) == [(0, ErrorCode.CONCURRENT_TRANSACTIONS)]
    assert len(bench.requests) == 1


@virtual
async def test_a_broker_that_refuses_the_question_as_a_whole() -> None:
    bench = Bench(2)
    bench.error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    bench.verify(0)
    assert await bench.all_told(1) == [(0, ErrorCode.NETWORK_EXCEPTION)]
