"""A caller whose certificate names a node speaks for this node only.

Without this, a broker whose machine is taken over could vote, register, send heartbeats or fetch as
any other node. A certificate that names no node (``stele:node:<id>``) is not bound to one.
security/README.md lists all places where a request names its sender.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError, Message

from runtime.authorization.authorizer import CLUSTER, Authorizer, Operation
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import controller_pb2, raft_pb2
from stele.world import Stream


class _Sender(NamedTuple):
    """The field of a request that says which node sends it."""

    request: type[Message]
    field: str


SENDERS: Final = {
    "/stele.v1.Raft/Vote": _Sender(raft_pb2.VoteRequest, "candidate_id"),
    "/stele.v1.Raft/BeginQuorumEpoch": _Sender(raft_pb2.BeginQuorumEpochRequest, "leader_id"),
    "/stele.v1.Raft/EndQuorumEpoch": _Sender(raft_pb2.EndQuorumEpochRequest, "leader_id"),
    "/stele.v1.Raft/Fetch": _Sender(raft_pb2.QuorumFetchRequest, "replica_id"),
    "/stele.v1.Raft/FetchSnapshot": _Sender(raft_pb2.FetchSnapshotRequest, "replica_id"),
    "/stele.v1.Raft/UpdateVoter": _Sender(raft_pb2.UpdateVoterRequest, "voter_id"),
    "/stele.v1.Controller/RegisterBroker": _Sender(
        controller_pb2.RegisterBrokerRequest, "broker_id"
    ),
    "/stele.v1.Controller/Heartbeat": _Sender(controller_pb2.HeartbeatRequest, "broker_id"),
    "/stele.v1.Controller/AlterPartition": _Sender(
        controller_pb2.AlterPartitionRequest, "broker_id"
    ),
    "/stele.v1.Controller/AssignReplicasToDirectories": _Sender(
        controller_pb2.AssignReplicasToDirectoriesRequest, "broker_id"
    ),
    "/stele.v1.Controller/AllocateProducerIds": _Sender(
        controller_pb2.AllocateProducerIdsRequest, "broker_id"
    ),
}
"""By method. The others of ``SENDERLESS`` name no sender."""

SENDERLESS: Final = frozenset(
    (
        "/stele.v1.Raft/SupportedFeatures",
        "/stele.v1.Controller/ReadIndex",
        "/stele.v1.BrokerControl/Probe",
    )
)


def check_name(authorizer: Authorizer, caller: Caller, node_id: int) -> None:
    """Raises ApiError CLUSTER_AUTHORIZATION_FAILED if the caller asks in the name of a node, and
    its certificate is another one's."""
    if caller.acts_as(node_id):
        return
    named = ", ".join(map(str, sorted(caller.node_ids)))
    why = f"asked in the name of node {node_id}, and its certificate is that of node {named}"
    authorizer.note_denial(caller, Operation.CLUSTER_ACTION, CLUSTER, why)
    raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{caller.principal} {why}")


def check_sender(authorizer: Authorizer, caller: Caller, method: str, payload: bytes) -> None:
    """As ``check_name``, for the node that a request of the control plane names."""
    sender = SENDERS.get(method)
    if sender is None or not caller.node_ids:
        return
    request: Any = sender.request()
    try:
        request.ParseFromString(payload)
    except DecodeError:
        return  # the handler refuses it
    check_name(authorizer, caller, getattr(request, sender.field))


class CheckedStream:
    """A stream whose messages are checked as requests are."""

    def __init__(self, stream: Stream, check: Callable[[bytes], None]) -> None:
        self._stream = stream
        self._check = check

    async def send(self, message: bytes) -> None:
        await self._stream.send(message)

    async def receive(self) -> bytes | None:
        message = await self._stream.receive()
        if message is not None:
            self._check(message)
        return message

    async def close(self) -> None:
        await self._stream.close()
