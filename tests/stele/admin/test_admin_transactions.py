"""Administration of transactions against a fake cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from stele.admin.transactions import HangingTransaction, TransactionListing
from stele.errors import ApiError, BulkError, ErrorCode
from stele.ids import TopicPartition
from stele.wire.v1 import transactions_pb2 as pb
from stele.world import RpcCode, RpcError
from tests.support.stele import LOST, FakeCluster, Stage, on_stage
from tests.support.worlds import Scenario, gives

OLD_MS = 1
"""The time of a last record that is long ago."""


class Told:
    """What the brokers answer, and what they were asked. The coordinator of everything is broker
    2."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.asked: list[tuple[str, int]] = []
        self.coordinator = 2
        self.errors: dict[str, deque[ErrorCode]] = {}
        self.states = {"a": "Ongoing", "b": "Empty"}
        self.producers: dict[tuple[str, int], list[Any]] = {}
        self.aborted: list[Any] = []
        for method, handle in {
            "FindTransactionCoordinators": self._find,
            "ListTransactions": self._list,
            "DescribeTransactions": self._describe,
            "InitTransactions": self._init,
            "ForgetTransactionalIds": self._forget,
            "DescribeProducers": self._describe_producers,
            "AbortHangingTransaction": self._abort,
        }.items():
            cluster.others[method] = self._handler(method, handle)

    def _handler(self, method: str, handle: Callable[..., Any]) -> Callable[[int, bytes], Any]:
        def answer(broker: int, payload: bytes) -> Any:
            self.asked.append((method, broker))
            errors = self.errors.get(method)
            error = errors.popleft() if errors else ErrorCode.NONE
            if error is ErrorCode.NETWORK_EXCEPTION:
                raise LOST
            return handle(broker, getattr(pb, f"{method}Request").FromString(payload), error)

        return answer

    def _find(self, broker: int, request: Any, error: ErrorCode) -> Any:
        answer = pb.FindTransactionCoordinatorsResponse()
        for each in request.transactional_ids:
            answer.coordinators.add(transactional_id=each, broker_id=self.coordinator, error=error)
        return answer

    def _list(self, broker: int, request: Any, error: ErrorCode) -> Any:
        answer = pb.ListTransactionsResponse(error=error)
        answer.unknown_states.extend(each for each in request.states if each == "Sleeping")
        if broker == self.coordinator:
            for number, (name, state) in enumerate(self.states.items()):
                if not request.producer_ids or number in request.producer_ids:
                    answer.transactions.add(transactional_id=name, producer_id=number, state=state)
        return answer

    def _describe(self, broker: int, request: Any, error: ErrorCode) -> Any:
        answer = pb.DescribeTransactionsResponse()
        for each in request.transactional_ids:
            if each not in self.states:
                error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            told = answer.transactions.add(transactional_id=each, error=error)
            if error is ErrorCode.NONE:
                told.state, told.start_time_ms = self.states[each], -1
                told.producer_id = list(self.states).index(each)
                if told.state == "Ongoing":
                    told.start_time_ms = 5
                    told.topics.add(topic="t", partitions=[1, 0])
        return answer

    def _init(self, broker: int, request: Any, error: ErrorCode) -> Any:
        return pb.InitTransactionsResponse(error=error)

    def _forget(self, broker: int, request: Any, error: ErrorCode) -> Any:
        answer = pb.ForgetTransactionalIdsResponse()
        for each in request.transactional_ids:
            if self.states.get(each) == "Ongoing":
                error = ErrorCode.INVALID_TXN_STATE
            answer.transactional_ids.add(transactional_id=each, error=error)
            if error is ErrorCode.NONE:
                self.states.pop(each, None)
        return answer

    def _describe_producers(self, broker: int, request: Any, error: ErrorCode) -> Any:
        answer = pb.DescribeProducersResponse()
        for topic in request.topics:
            for number in topic.partitions:
                told = answer.partitions.add(topic=topic.topic, partition=number, error=error)
                if error is ErrorCode.NONE:
                    told.producers.extend(self.producers.get((topic.topic, number), []))
        return answer

    def _abort(self, broker: int, request: Any, error: ErrorCode) -> Any:
        if error is ErrorCode.NONE:
            self.aborted.append((broker, request))
        return pb.AbortHangingTransactionResponse(error=error)


def producer(producer_id: int, start: int = 3, **more: Any) -> Any:
    fields = {
        "producer_epoch": 1,
        "last_sequence": 4,
        "last_timestamp_ms": OLD_MS,
        "coordinator_epoch": -1,
        **more,
    }
    return pb.DescribeProducersResponse.Producer(
        producer_id=producer_id, transaction_start_offset=start, **fields
    )


@gives("admin", "told", "stage")
def with_admin(scenario: Scenario) -> None:
    async def whole(stage: Stage) -> None:
        stage.cluster.create("t", 3)
        async with stage.admin(default_api_timeout_ms=5_000) as admin:
            await scenario(admin, Told(stage.cluster), stage)

    on_stage.run(whole)


@with_admin
async def test_transactional_ids_are_listed_and_described(
    admin: Any, told: Told, stage: Stage
) -> None:
    assert await admin.list_transactions() == [
        TransactionListing("a", 0, "Ongoing"),
        TransactionListing("b", 1, "Empty"),
    ]
    assert {broker for method, broker in told.asked if method == "ListTransactions"} == {
        1,
        2,
        3,
    }
    with pytest.raises(ApiError, match="no such states: Sleeping"):
        await admin.list_transactions(states=["Ongoing", "Sleeping"])
    b, a = await admin.describe_transactions(["b", "a"])
    assert (a.state, a.start_time_ms, a.coordinator_id) == ("Ongoing", 5, 2)
    assert a.partitions == (TopicPartition("t", 1), TopicPartition("t", 0))
    assert (b.state, b.start_time_ms, b.partitions) == ("Empty", None, ())
    with pytest.raises(BulkError, match="'x'") as error:
        await admin.describe_transactions(["a", "x"])
    assert error.value.failed["x"].code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert error.value.succeeded == [a]


@with_admin
async def test_a_coordinator_that_moves_is_followed(admin: Any, told: Told, stage: Stage) -> None:
    moving = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    told.errors["DescribeTransactions"] = deque([*moving, ErrorCode.NETWORK_EXCEPTION])
    told.errors["InitTransactions"] = deque([ErrorCode.CONCURRENT_TRANSACTIONS])
    (a,) = await admin.describe_transactions(["a"])
    assert a.state == "Ongoing"
    await admin.fence_producer("a")
    assert told.asked.count(("InitTransactions", 2)) == 2


@with_admin
async def test_an_admin_remembers_only_so_many_coordinators(
    admin: Any, told: Told, stage: Stage
) -> None:
    async def looked_up(*ids: str) -> int:
        before = [method for method, _ in told.asked].count("FindTransactionCoordinators")
        found = await admin.describe_transactions(ids)
        assert [each.transactional_id for each in found] == list(ids)
        return [method for method, _ in told.asked].count("FindTransactionCoordinators") - before

    told.states |= {"c": "Empty", "d": "Empty"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("stele.admin.coordinators.MOST_KNOWN", 2)
        assert [await looked_up("a", "b"), await looked_up("b", "a")] == [1, 0]
        assert [await looked_up("b", "c", "d"), await looked_up("b", "c", "d")] == [1, 0]
        assert [await looked_up("a"), await looked_up("a")] == [1, 0]


@with_admin
async def test_ids_are_forgotten(admin: Any, told: Told, stage: Stage) -> None:
    told.errors["ForgetTransactionalIds"] = deque([ErrorCode.CONCURRENT_TRANSACTIONS])
    await admin.forget_transactional_ids(["b", "unknown"])
    assert list(told.states) == ["a"]
    with pytest.raises(BulkError, match="'a'") as error:
        await admin.forget_transactional_ids(["a"])
    assert error.value.failed["a"].code is ErrorCode.INVALID_TXN_STATE


@with_admin
async def test_a_method_that_brokers_do_not_know_is_not_asked_for_again(
    admin: Any, told: Told, stage: Stage
) -> None:
    asked: list[int] = []

    def unknown(broker: int, payload: bytes) -> Any:
        asked.append(broker)
        raise RpcError(RpcCode.UNIMPLEMENTED)

    stage.cluster.others["ForgetTransactionalIds"] = unknown
    with pytest.raises(ApiError, match="does not know ForgetTransactionalIds") as error:
        await admin.forget_transactional_ids(["b"])
    assert error.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert asked == [2]


@with_admin
async def test_leaders_tell_their_producers(admin: Any, told: Told, stage: Stage) -> None:
    told.producers["t", 1] = [producer(7), producer(8, -1)]
    told.errors["DescribeProducers"] = deque([ErrorCode.NOT_LEADER_OR_FOLLOWER])
    found = await admin.describe_producers([("t", 1), ("t", 0)])
    assert list(found) == [("t", 1), ("t", 0)]
    first, second = found["t", 1]
    assert (first.producer_id, first.transaction_start_offset) == (7, 3)
    assert (first.last_sequence, first.coordinator_epoch) == (4, -1)
    assert second.transaction_start_offset is None
    assert found["t", 0] == []
    with pytest.raises(ApiError, match="no partition t-9"):
        await admin.describe_producers([("t", 9)])
    told.errors["DescribeProducers"] = deque([ErrorCode.TOPIC_AUTHORIZATION_FAILED])
    with pytest.raises(BulkError, match="t-2"):
        await admin.describe_producers([("t", 2)])


@with_admin
async def test_only_transactions_that_nobody_would_end_hang(
    admin: Any, told: Told, stage: Stage
) -> None:
    now_ms = stage.world.clock.time_ms()
    told.producers["t", 0] = [producer(0)]  # its coordinator knows it
    told.producers["t", 2] = [
        producer(0),  # the transaction that its coordinator knows has not this partition
        producer(1),  # its coordinator knows of no transaction
        producer(9),  # no coordinator knows it
        producer(10, -1),  # it has none
        producer(11, last_timestamp_ms=now_ms - 1_000),  # it may be known soon
    ]
    partitions = [("t", each) for each in range(3)]
    found = await admin.find_hanging_transactions(partitions)
    assert [(each.partition, each.producer.producer_id) for each in found] == [
        (("t", 2), 0),
        (("t", 2), 1),
        (("t", 2), 9),
    ]
    found = await admin.find_hanging_transactions(partitions, longest_transaction_ms=500)
    assert [each.producer.producer_id for each in found] == [0, 1, 9, 11]
    assert isinstance(found[0], HangingTransaction)
    assert await admin.find_hanging_transactions([("t", 1)]) == []


@with_admin
async def test_a_hanging_transaction_is_aborted_by_the_leader(
    admin: Any, told: Told, stage: Stage
) -> None:
    told.errors["AbortHangingTransaction"] = deque([ErrorCode.NOT_LEADER_OR_FOLLOWER])
    await admin.abort_hanging_transaction(("t", 1), 9, 2, -1)
    ((broker, request),) = told.aborted
    assert broker == stage.cluster.partition(partition=1).leader
    assert (request.producer_id, request.producer_epoch) == (9, 2)
    assert request.coordinator_epoch == 0, "a partition that never had a marker"
    told.errors["AbortHangingTransaction"] = deque([ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
    with pytest.raises(ApiError, match="t-1: "):
        await admin.abort_hanging_transaction(("t", 1), 9, 2, 5)
