"""Requests about the states of share partitions find their coordinators, whatever fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from broker.coordinator.share.types import (
    InitializeRequest,
    ReadRequest,
    ShareState,
    StateAnswer,
    StateKey,
    StateRequest,
    WriteRequest,
)
from broker.coordinator.share_states import RETRY_S, ShareStates
from broker.coordinator.state_messages import API_OF, READ, StateApi
from metadata.internal_topics import SHARE_TOPIC
from stele.errors import ErrorCode
from stele.wire.kafka import Struct
from tests.support.broker_apis import Edges, topic_id
from tests.support.timing import until
from tests.support.worlds import virtual

ORDERS = topic_id("orders")
R = TypeVar("R")


def finished(work: Coroutine[Any, Any, R]) -> R:
    """The result of work that is too little for a second turn."""
    with pytest.raises(StopIteration) as end:
        work.send(None)
    result: R = end.value.value
    return result


class Bench:
    """Broker 2 leads the partition with all states."""

    def __init__(self) -> None:
        self.edges = Edges()
        self.edges.add_topic("orders", [[1]] * 4)
        self.edges.add_topic(SHARE_TOPIC, [[2, 1]])
        self.asked: list[list[StateRequest]] = []
        self.answer: Callable[[StateRequest], StateAnswer] = lambda request: StateAnswer(
            ErrorCode.NONE, None, ShareState(0, 7, start_offset=request.key.partition)
        )
        for each in API_OF.values():
            self.edges.nodes.answers[each.api.request] = self._answering(each)

    def _answering(self, api: StateApi) -> Callable[[Any], Struct]:
        def answer(message: Any) -> Struct:
            requests = finished(api.requests(message))
            self.asked.append(requests)
            return finished(api.response(message, map(self.answer, requests)))

        return answer

    @property
    def states(self) -> ShareStates:
        return self.edges.sharing.states

    async def ask(self, *requests: StateRequest, timeout_s: float = 5.0) -> list[StateAnswer]:
        return await asyncio.gather(*(self.states.ask(each, timeout_s) for each in requests))


def key(number: int, group: str = "g") -> StateKey:
    return StateKey(group, ORDERS, number)


@virtual
async def test_requests_of_one_type_and_group_share_a_message() -> None:
    bench = Bench()
    reads: list[StateRequest] = [ReadRequest(key(each), 5) for each in (0, 1, 2)]
    others: list[StateRequest] = [ReadRequest(key(0, "h"), 5), InitializeRequest(key(3), 1)]
    answers = await bench.ask(*reads, *others)
    assert [each.state and each.state.start_offset for each in answers[:4]] == [0, 1, 2, 0]
    assert bench.asked == [reads, others[:1], others[1:]]
    await bench.edges.sharing.stop()


@virtual
async def test_a_second_request_about_a_share_partition_is_sent_after_the_first() -> None:
    bench = Bench()
    first, second = WriteRequest(key(0), 1, 1, 10), WriteRequest(key(0), 1, 1, 11)
    await bench.ask(first, second)
    assert bench.asked == [[first], [second]]
    await bench.edges.sharing.stop()


@virtual
async def test_a_coordinator_that_moves_is_asked_again_where_it_is_then() -> None:
    bench = Bench()
    bench.answer = lambda request: StateAnswer(ErrorCode.NOT_COORDINATOR, "not here")
    asking = asyncio.ensure_future(bench.states.ask(InitializeRequest(key(0), 1), 5.0))
    await until(lambda: len(bench.asked) == 1)
    bench.edges.change_leader(SHARE_TOPIC, 0, leader=1)
    assert (await asking).error is ErrorCode.NONE
    (machine,) = bench.edges.sharing.coordinators.active
    assert machine.count == 1
    await bench.edges.sharing.stop()


@virtual
async def test_the_last_error_is_the_answer_when_the_time_is_over() -> None:
    bench = Bench()
    bench.answer = lambda request: StateAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loads")
    (late,) = await bench.ask(ReadRequest(key(0), 5), timeout_s=10 * RETRY_S)
    assert late == StateAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loads")
    assert 5 < len(bench.asked) <= 11
    del bench.edges.nodes.answers[READ.api.request]
    (lost,) = await bench.ask(ReadRequest(key(0), 5), timeout_s=RETRY_S)
    assert lost.error is ErrorCode.NETWORK_EXCEPTION
    await bench.edges.sharing.stop()


@virtual
async def test_a_refusal_is_final() -> None:
    bench = Bench()
    bench.answer = lambda request: StateAnswer(ErrorCode.FENCED_STATE_EPOCH, "set anew")
    (told,) = await bench.ask(WriteRequest(key(0), 1, 1, 10))
    assert told == StateAnswer(ErrorCode.FENCED_STATE_EPOCH, "set anew")
    assert len(bench.asked) == 1
    await bench.edges.sharing.stop()


@virtual
async def test_without_a_topic_or_a_leader_there_is_no_coordinator() -> None:
    edges = Edges()
    edges.add_topic("orders", [[1]])
    asking = asyncio.ensure_future(edges.sharing.states.ask(InitializeRequest(key(0), 1), 5.0))
    early = await edges.sharing.states.ask(InitializeRequest(key(0), 1), RETRY_S)
    assert early.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    edges.add_topic(SHARE_TOPIC, [[1]], leaders=[-1])
    leaderless = await edges.sharing.states.ask(InitializeRequest(key(0), 1), RETRY_S)
    assert "has no leader" in (leaderless.message or "")
    edges.change_leader(SHARE_TOPIC, 0, leader=1)
    assert (await asking).error is ErrorCode.NONE
    await edges.sharing.stop()
