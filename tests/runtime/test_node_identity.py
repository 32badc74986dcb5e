"""A caller whose certificate names a node speaks for this node only."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.authorization.authorizer import CLUSTER, Operation
from runtime.authorization.caller import Caller, grpc_caller
from runtime.authorization.node_identity import SENDERLESS, SENDERS, check_name, check_sender
from runtime.authorization.nodes import for_nodes
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import controller_pb2, raft_pb2
from stele.world import RpcCode, RpcError, Stream
from tests.support.authorizer import FakeAuthorizer
from world.network import Peer, Service

NODE_7 = Peer("10.0.0.1", principal="User:CN=node-7", node_ids=frozenset([7]))
ANYONE = Peer("10.0.0.1", principal="User:CN=node")


def caller(peer: Peer) -> Caller:
    return grpc_caller("CONTROLLER", peer)


def check(method: str, payload: bytes, peer: Peer) -> None:
    check_sender(FakeAuthorizer(), caller(peer), method, payload)


OF_ADMINISTRATORS = {
    f"/stele.v1.Raft/{name}"
    for name in ("DescribeQuorum", "TransferLeadership", "AddVoter", "RemoveVoter")
}


def test_every_method_of_nodes_names_its_sender_or_is_known_not_to() -> None:
    served = {
        f"/{service.full_name}/{method.name}"
        for file in (raft_pb2, controller_pb2)
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert served - OF_ADMINISTRATORS == SENDERS.keys() | SENDERLESS


@pytest.mark.parametrize("method", sorted(SENDERS))
def test_another_nodes_name_is_refused(method: str) -> None:
    kind, name = SENDERS[method]
    check(method, kind(**{name: 7}).SerializeToString(), NODE_7)
    check(method, kind(**{name: 8}).SerializeToString(), ANYONE)
    with pytest.raises(ApiError) as raised:
        check(method, kind(**{name: 8}).SerializeToString(), NODE_7)
    assert raised.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert "User:CN=node-7 asked in the name of node 8" in raised.value.message
    assert "its certificate is that of node 7" in raised.value.message


def test_a_refused_name_is_audited() -> None:
    authorizer = FakeAuthorizer()
    check_name(authorizer, caller(NODE_7), 7)
    check_name(authorizer, caller(ANYONE), 8)
    assert authorizer.denials == []
    with pytest.raises(ApiError):
        check_name(authorizer, caller(NODE_7), 8)
    assert authorizer.denials == [(Operation.CLUSTER_ACTION, CLUSTER)]
    assert authorizer.rules == [
        "asked in the name of node 8, and its certificate is that of node 7"
    ]


def test_a_field_that_comes_twice_counts_as_the_handler_reads_it() -> None:
    both = raft_pb2.VoteRequest(candidate_id=7).SerializeToString()
    both += raft_pb2.VoteRequest(candidate_id=8).SerializeToString()
    with pytest.raises(ApiError, match="in the name of node 8"):
        check("/stele.v1.Raft/Vote", both, NODE_7)


def test_bytes_that_are_no_request_are_left_to_the_handler() -> None:
    check("/stele.v1.Raft/Vote", b"\xff", NODE_7)
    check("/stele.v1.Raft/SupportedFeatures", b"\xff", NODE_7)


class Messages:
    """A stream's end from which messages come."""

    def __init__(self, *messages: bytes) -> None:
        self._messages = list(messages)

    async def send(self, message: bytes) -> None: ...

    async def receive(self) -> bytes | None:
        return self._messages.pop(0) if self._messages else None

    async def close(self) -> None: ...


async def test_the_services_of_nodes_check_requests_and_every_message_of_a_stream() -> None:
    vote, beat = "/stele.v1.Raft/Vote", "/stele.v1.Controller/Heartbeat"
    served: list[Any] = []

    async def unary(payload: bytes, peer: Peer) -> bytes:
        served.append(payload)
        return b"answer"

    async def stream(stream: Stream, peer: Peer) -> None:
        while (message := await stream.receive()) is not None:
            served.append(message)

    service = for_nodes(Service({vote: unary}, {beat: stream}), FakeAuthorizer(), "CONTROLLER")
    with pytest.raises(RpcError, match="in the name of node 3") as raised:
        await service.call(vote, raft_pb2.VoteRequest(candidate_id=3).SerializeToString(), NODE_7)
    assert raised.value.code is RpcCode.PERMISSION_DENIED
    assert raised.value.info is not None
    assert raised.value.info.reason == "CLUSTER_AUTHORIZATION_FAILED"
    own = controller_pb2.HeartbeatRequest(broker_id=7).SerializeToString()
    other = controller_pb2.HeartbeatRequest(broker_id=3).SerializeToString()
    with pytest.raises(RpcError, match="in the name of node 3"):
        await service.converse(beat, Messages(own, other), NODE_7)
    assert served == [own]
    await service.converse(beat, Messages(other), ANYONE)
    assert served == [own, other]
