"""The service that only nodes of the cluster may call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from metadata.acls import Acls
from runtime.authorization.acl_authorizer import AclAuthorizer
from runtime.authorization.authorizer import CLUSTER, Operation, Resource
from runtime.authorization.caller import Caller, Plane
from runtime.authorization.nodes import for_nodes, when_loaded
from security.authorizer.decision import Policy
from stele.wire.v1 import raft_pb2
from stele.world import RpcCode, RpcError, Stream
from tests.support.authorizer import FakeAuthorizer
from tests.support.timing import LoopClock
from world.network import Peer, Service

PEER = Peer("10.0.0.1")


async def test_others_are_refused_before_their_request_is_looked_at() -> None:
    served: list[Any] = []

    async def unary(payload: bytes, peer: Peer) -> bytes:
        served.append((payload, peer))
        return b"answer"

    async def stream(stream: Stream, peer: Peer) -> None:
        served.append((stream, peer))

    authorizer, end = FakeAuthorizer(), cast(Stream, object())
    service = for_nodes(Service({"/a": unary}, {"/b": stream}), authorizer, "INTERNAL")
    assert await service.call("/a", b"request", PEER) == b"answer"
    await service.converse("/b", end, PEER)
    assert served == [(b"request", PEER), (end, PEER)]
    (caller,) = set(authorizer.callers)
    assert (caller.listener, caller.plane, caller.address) == (
        "INTERNAL", Plane.GRPC, "10.0.0.1",
    )  # fmt: skip

    authorizer.denied = {(Operation.CLUSTER_ACTION, CLUSTER)}
    for refused in (service.admit("/a", PEER), service.admit("/b", PEER)):
        with pytest.raises(RpcError, match="may not CLUSTER_ACTION the cluster") as raised:
            await cast(Any, refused)
        assert raised.value.code is RpcCode.PERMISSION_DENIED
        assert raised.value.info is not None
        assert raised.value.info.reason == "CLUSTER_AUTHORIZATION_FAILED"
    assert len(served) == 2


async def test_before_the_acls_are_known_nobody_is_denied_and_nobody_is_answered() -> None:
    async def unary(payload: bytes, peer: Peer) -> bytes:
        return b"answer"

    authorizer = AclAuthorizer(Policy(frozenset(["User:node"])), lambda: acls, LoopClock())
    acls: Acls | None = None
    of_nodes = for_nodes(Service({"/a": unary}), authorizer, "INTERNAL")
    of_clients = when_loaded(Service({"/a": unary}), authorizer)
    node = replace(PEER, principal="User:node")
    assert await of_nodes.call("/a", b"", node) == b"answer"
    for service in (of_nodes, of_clients):
        with pytest.raises(RpcError) as raised:
            await service.call("/a", b"", PEER)
        assert raised.value.code is RpcCode.UNAVAILABLE
    acls = Acls()
    assert await of_clients.call("/a", b"", PEER) == b"answer"
    with pytest.raises(RpcError) as raised:
        await of_nodes.call("/a", b"", PEER)
    assert raised.value.code is RpcCode.PERMISSION_DENIED


class Noting(FakeAuthorizer):
    """Notes where those came in who were refused."""

    def __init__(self) -> None:
        super().__init__()
        self.listeners: list[str] = []

    def note_denial(
        self, caller: Caller, operation: Operation, resource: Resource, rule: str = ""
    ) -> None:
        self.listeners.append(caller.listener)


@pytest.mark.parametrize("listener", ["INTERNAL", ""])
async def test_the_authorizer_learns_which_listener_is_called(listener: str) -> None:
    """That of the service, or that which the peer has called."""
    vote, authorizer = "/stele.v1.Raft/Vote", Noting()

    async def unary(payload: bytes, peer: Peer) -> bytes:
        return b"answer"

    service = for_nodes(Service({vote: unary}), authorizer, listener)
    peer = replace(PEER, listener="CALLED", node_ids=frozenset([7]))
    payload = raft_pb2.VoteRequest(candidate_id=8).SerializeToString()
    with pytest.raises(RpcError):
        await service.call(vote, payload, peer)
    expected = listener or "CALLED"
    assert ([each.listener for each in authorizer.callers], authorizer.listeners) == (
        [expected], [expected],
    )  # fmt: skip
