"""Brokers keep the states of share partitions at their coordinators: APIs 83 to 87."""

from __future__ import annotations

import pytest

from broker.coordinator.share.types import (
    ForgetRequest,
    InitializeRequest,
    ReadRequest,
    StateAnswer,
    StateKey,
    StateRequest,
    SummaryRequest,
    WriteRequest,
)
from broker.coordinator.state_messages import API_OF
from broker.share.values import LetterPlan, RecordState, StateBatch
from metadata.internal_topics import SHARE_TOPIC
from runtime.authorization.authorizer import CLUSTER, Operation
from stele.errors import ErrorCode
from tests.support.broker_apis import Client, Edges, topic_id
from tests.support.timing import until
from tests.support.worlds import virtual

ORDERS = topic_id("orders")
KEYS = [StateKey("g", ORDERS, 0), StateKey("g", topic_id("bills"), 0), StateKey("g", ORDERS, 1)]
"""As a message has them: topic by topic."""


async def edges_with_states() -> Edges:
    edges = Edges()
    edges.add_topic("orders", [[1]] * 2)
    edges.add_topic("bills", [[1]])
    edges.add_topic(SHARE_TOPIC, [[1]] * 3)
    await until(lambda: len(edges.sharing.coordinators.active) == 3)
    return edges


async def ask(client: Client, *requests: StateRequest) -> list[StateAnswer]:
    """All of one type and of one group."""
    api = API_OF[type(requests[0])]
    response = await client.call(api.api, api.version, api.encode(requests))
    told = api.answers(response)
    return [told[each.key.topic_id, each.key.partition] for each in requests]


@virtual
async def test_the_life_of_a_state() -> None:
    edges = await edges_with_states()
    client = edges.client()
    made = await ask(client, *(InitializeRequest(key, 3, 10) for key in KEYS))
    assert made == [StateAnswer(ErrorCode.NONE)] * 3
    read = await ask(client, *(ReadRequest(key, 5) for key in KEYS))
    assert [(each.error, each.state and each.state.start_offset) for each in read] == [
        (ErrorCode.NONE, 10)
    ] * 3
    accepted = StateBatch(12, 14, RecordState.ACKNOWLEDGED, 2)
    written = await ask(client, WriteRequest(KEYS[0], 3, 5, 11, 3, (accepted,)))
    assert written == [StateAnswer(ErrorCode.NONE)]
    (again,) = await ask(client, ReadRequest(KEYS[0], 6))
    assert again.state is not None
    assert (again.state.state_epoch, again.state.start_offset) == (3, 11)
    assert again.state.batches == (accepted,)
    (summary,) = await ask(client, SummaryRequest(KEYS[0]))
    assert summary.state is not None
    assert summary.state[1:5] == (3, 6, 11, 3)
    (fenced,) = await ask(client, WriteRequest(KEYS[0], 3, 5, 20))
    assert fenced.error is ErrorCode.FENCED_LEADER_EPOCH
    assert "epoch 6" in (fenced.message or "")
    assert await ask(client, *map(ForgetRequest, KEYS)) == [StateAnswer(ErrorCode.NONE)] * 3
    (gone,) = await ask(client, ReadRequest(KEYS[1], 7))
    assert gone.error is ErrorCode.INVALID_REQUEST
    assert "not initialized" in (gone.message or "")
    await edges.sharing.stop()


@virtual
async def test_the_plan_of_dead_letters_and_the_reasons_come_back() -> None:
    edges = await edges_with_states()
    client = edges.client()
    await ask(client, InitializeRequest(KEYS[0], 1, 0))
    archiving = (
        StateBatch(0, 1, RecordState.ARCHIVING, 5),
        StateBatch(2, 2, RecordState.ARCHIVING_REJECTED, 5),
    )
    letters = LetterPlan(b"d" * 16, 1, 1 << 40, 3, 9, ((0, 2),))
    await ask(client, WriteRequest(KEYS[0], 1, 0, 0, 0, archiving, letters))
    (read,) = await ask(client, ReadRequest(KEYS[0], 0))
    assert read.state is not None
    assert (read.state.batches, read.state.letters) == (archiving, letters)
    # A write that says nothing of letters leaves the plan as it is, and so does a late one.
    await ask(client, WriteRequest(KEYS[0], 1, 0, 1))
    late = letters._replace(revision=8, ranges=((0, 1),))
    await ask(client, WriteRequest(KEYS[0], 1, 0, 1, letters=late))
    (read,) = await ask(client, ReadRequest(KEYS[0], 0))
    assert read.state is not None
    assert read.state.letters == letters
    await edges.sharing.stop()


@virtual
async def test_a_plan_of_dead_letters_that_cannot_be_read() -> None:
    edges = await edges_with_states()
    client = edges.client()
    api = API_OF[WriteRequest]
    message = api.encode([WriteRequest(KEYS[0], 1, 0)])
    message.topics[0].partitions[0].letters = b"\0"  # type: ignore[attr-defined]
    told = api.answers(await client.call(api.api, api.version, message))
    assert told[ORDERS, 0].error is ErrorCode.INVALID_REQUEST
    await edges.sharing.stop()


@pytest.mark.parametrize(
    "request_type", [InitializeRequest, ReadRequest, WriteRequest, ForgetRequest, SummaryRequest]
)
@virtual
async def test_only_nodes_may_ask(request_type: type[StateRequest]) -> None:
    edges = await edges_with_states()
    edges.authorizer.denied.add((Operation.CLUSTER_ACTION, CLUSTER))
    epochs = {InitializeRequest: (1,), ReadRequest: (1,), WriteRequest: (1, 1)}
    requests = [request_type(key, *epochs.get(request_type, ())) for key in KEYS]
    answers = await ask(edges.client(), *requests)
    assert [each.error for each in answers] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 3
    assert not any(each.count for each in edges.sharing.coordinators.active)
    await edges.sharing.stop()


@virtual
async def test_a_state_that_is_never_persisted() -> None:
    edges = await edges_with_states()
    client = edges.client()
    await ask(client, InitializeRequest(KEYS[0], 1, 0))
    api = API_OF[WriteRequest]
    message = api.encode([WriteRequest(KEYS[0], 1, 0, 0, -1, (StateBatch(0, 0, 9, 1),))])  # type: ignore[arg-type]
    told = api.answers(await client.call(api.api, api.version, message))
    assert told[ORDERS, 0].error is ErrorCode.INVALID_REQUEST
    assert "never persisted" in (told[ORDERS, 0].message or "")
    await edges.sharing.stop()


@virtual
async def test_states_that_are_elsewhere_or_nowhere() -> None:
    edges = Edges()
    edges.add_topic("orders", [[1]])
    client = edges.client()
    assert (await ask(client, ReadRequest(KEYS[0], 1)))[0].error is ErrorCode.NOT_COORDINATOR
    edges.add_topic(SHARE_TOPIC, [[2]])
    assert (await ask(client, ReadRequest(KEYS[0], 1)))[0].error is ErrorCode.NOT_COORDINATOR
    await edges.sharing.stop()
