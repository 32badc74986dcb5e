"""The largest calls of gRPC are worked on in many turns of the event loop."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from runtime.administration.changes import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    DELETE_TOPICS,
    ELECT_LEADERS,
    Change,
)
from stele.addresses import Address
from stele.errors import ErrorCode
from stele.wire.kafka.primitives import REQUEST_ELEMENTS_MAX
from stele.world import RpcError
from tests.fuzz.grpc_methods import METHODS
from tests.fuzz.targets.dense_grpc import MAKES_LOGS
from tests.fuzz.targets.live_grpc import CHANGE_THE_CLUSTER, GRPC_PORT
from tests.support.dense_messages import fill_list, lists_of
from tests.support.one_node import HOST, OneNode, on_a_node
from tests.support.turns import Turns
from world.world import World

ELEMENTS = REQUEST_ELEMENTS_MAX - 4  # with the lists around them
CALLS_PER_ELEMENT = 3.5
"""In one turn. The fields of a message are counted in one turn, which is two calls for each."""

LISTS = [
    (path, fields)
    for path, message in sorted(METHODS.items())
    if path not in CHANGE_THE_CLUSTER and path not in MAKES_LOGS
    for fields in lists_of(message.DESCRIPTOR)
]


@pytest.mark.parametrize(
    ("path", "fields"), LISTS, ids=lambda each: each if isinstance(each, str) else each[-1].name
)
@on_a_node
async def test_the_largest_calls_are_worked_on_in_many_turns(
    machine: OneNode,
    world: World,
    path: str,
    fields: tuple[Any, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = METHODS[path]()
    fill_list(request, fields, ELEMENTS)
    turns = Turns(monkeypatch)
    turns.loop = machine.process.loop
    channel = world.network.channel(Address(HOST, GRPC_PORT))
    with contextlib.suppress(RpcError):  # some name too many
        await channel.call(path, request.SerializeToString(), timeout_s=60)
    await channel.close()
    assert turns.most <= CALLS_PER_ELEMENT * ELEMENTS


CONTROLLER_PORT = 9093
ITEMS = 10_000
CALLS_PER_DECISION = 200_000
"""In one turn. Configurations cost the most: a decision about 256 changes takes 150,000 calls. One
about all items of this request would take 40 times as many."""


@pytest.mark.parametrize(
    "change", [CREATE_PARTITIONS, ELECT_LEADERS, ALTER_CONFIGS, DELETE_TOPICS], ids=lambda c: c.name
)
@on_a_node
async def test_a_controller_divides_a_change_that_comes_to_it_directly(
    machine: OneNode, world: World, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert change.items is not None
    request, field = change.request(), change.items.lists[0]
    fill_list(request, (change.request.DESCRIPTOR.fields_by_name[field],), ITEMS)
    request.ClearField("on_behalf_of")
    request.request_id = bytes(16)
    turns = Turns(monkeypatch)
    turns.loop = machine.process.loop
    channel = world.network.channel(Address(HOST, CONTROLLER_PORT))
    payload = request.SerializeToString()
    answer = change.response.FromString(await channel.call(change.method, payload, timeout_s=60))
    await channel.close()
    assert answer.error == ErrorCode.NONE, answer.message
    assert len(getattr(answer, change.items.results)) == ITEMS
    assert turns.most <= CALLS_PER_DECISION
