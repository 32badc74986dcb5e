"""Every method for clients refuses one that may do nothing, and serves one that may do exactly what
is needed."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from broker.gateway.gateway import Gateway
from broker.grpc.admin import AdminService
from broker.grpc.groups import GroupsService
from broker.grpc.log import LogService
from broker.grpc.transactions import TransactionsService
from stele.config import ClientWorld
from stele.errors import ErrorCode
from stele.wire.v1 import admin_pb2, groups_pb2, raft_pb2, transactions_pb2
from stele.world import RpcCode, RpcError
from tests.broker.grpc.grpc_needs import ASKED, OF_THE_GATEWAY, Asked
from tests.broker.service.asked import DENIALS
from tests.support.authorization import edges_with_coordinators, told_errors
from tests.support.authorizer import Need, WithAcls
from tests.support.broker_edges import PEER
from tests.support.worlds import virtual
from world.network import Service

SERVICES: dict[str, Any] = {
    "Admin": AdminService,
    "Groups": GroupsService,
    "Transactions": TransactionsService,
}
MESSAGES = (admin_pb2, groups_pb2, raft_pb2, transactions_pb2)


def answer_type(asked: Asked) -> Any:
    if asked.method in ("AddVoter", "RemoveVoter"):
        return raft_pb2.VoterChangeResponse
    file = next(each for each in MESSAGES if hasattr(each, f"{asked.method}Request"))
    return getattr(file, f"{asked.method}Response")


async def errors_of(asked: Asked, *allowed: Need) -> set[ErrorCode]:
    authorizer = WithAcls()
    authorizer.only = frozenset(allowed)
    edges = await edges_with_coordinators(authorizer)
    served = SERVICES[asked.service](edges.context, "EXTERNAL").service()
    handler = served.unary[f"/stele.v1.{asked.service}/{asked.method}"]
    try:
        answer = await handler(
            asked.request.SerializeToString(), replace(PEER, principal=asked.principal)
        )
    except RpcError as error:
        is_denied = error.code is RpcCode.PERMISSION_DENIED
        return {ErrorCode[error.info.reason]} if is_denied and error.info else set()
    return set(told_errors(answer_type(asked).FromString(answer)))


@virtual
async def test_every_method_is_entered() -> None:
    edges = await edges_with_coordinators(WithAcls())
    served = Service()
    for service in SERVICES.values():
        served.include(service(edges.context, "EXTERNAL").service())
    gateway = Gateway(edges.context, ClientWorld(edges.clock, edges.network, Random(1)))
    served.include(LogService(gateway, "EXTERNAL").service())
    entered = {f"/stele.v1.{each.service}/{each.method}" for each in ASKED}
    entered |= {f"/stele.v1.Log/{each}" for each in OF_THE_GATEWAY}
    assert entered == {*served.unary, *served.streams}


CASES = pytest.mark.parametrize("asked", ASKED, ids=lambda each: f"{each.service}-{each.method}")


@CASES
@virtual
async def test_a_client_that_may_do_nothing(asked: Asked) -> None:
    told = await errors_of(asked)
    assert told == (set() if asked.denied is None else {asked.denied})


@CASES
@virtual
async def test_a_client_that_may_do_what_is_needed(asked: Asked) -> None:
    """And nothing less: each permission of a way is needed."""
    for way in asked.ways:
        assert not DENIALS & await errors_of(asked, *way)
        for need in way:
            others = [each for each in way if each != need]
            assert DENIALS & await errors_of(asked, *others), f"{need} is not needed"
