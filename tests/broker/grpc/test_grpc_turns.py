"""The largest calls of gRPC are worked on in many turns of the event loop."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from stele.addresses import Address
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
