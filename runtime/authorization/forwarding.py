"""The client for which a broker asks the controller: named by the broker, and believed only of a
broker."""

from __future__ import annotations

from typing import Any

from metadata.acls import Acls
from runtime.authorization.authorizer import CLUSTER, Authorizer, Operation, refusal
from runtime.authorization.caller import Caller, Plane, grpc_caller
from stele.errors import ApiError, ErrorCode
from stele.wire.v1.caller_pb2 import OnBehalfOf
from world.network import Peer


def ask_for(caller: Caller, request: Any) -> None:
    """Write the client into a request to the controller, in place of any other value. Only whether
    the request is a copy is the client's to say. That it may exceed its quota, this broker's
    handler of Kafka's protocol has said."""
    request.on_behalf_of.CopyFrom(
        OnBehalfOf(
            principal=caller.principal,
            client_id=caller.client_id,
            address=caller.address,
            repeats=is_copy(request),
            by_delegation_token=caller.by_delegation_token,
            may_exceed_quota=caller.plane is Plane.KAFKA and may_exceed_quota(request),
        )
    )


def may_exceed_quota(request: Any) -> bool:
    """Whether a change is carried out although its client is above its quota. The client waits
    afterwards."""
    return bool(request.on_behalf_of.may_exceed_quota)


def is_copy(request: Any) -> bool:
    """Whether an earlier copy of the request was sent whose outcome its sender does not know."""
    return bool(request.on_behalf_of.repeats)


def check_cluster(told: str, own: str) -> None:
    """Raises ApiError INCONSISTENT_CLUSTER_ID: the sender belongs to another cluster."""
    if told not in ("", own):
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID, f"the sender is of cluster {told}, this is {own}"
        )


class ControllerPort:
    """The authorizer on a controller's port: the caller of a request, and its rights."""

    def __init__(self, authorizer: Authorizer, cluster_id: str) -> None:
        self.authorizer = authorizer
        self._cluster_id = cluster_id

    def over(self, acls: Acls) -> ControllerPort:
        """As ``Authorizer.over``."""
        return ControllerPort(self.authorizer.over(acls), self._cluster_id)

    def sender(self, peer: Peer) -> Caller:
        """The caller of a request of a kind that brokers do not forward."""
        return grpc_caller(peer.listener, peer)

    def caller(self, request: Any, peer: Peer) -> Caller:
        """The caller: the client for which the request is made, or else its sender.

        Takes the name out of the request, so that it is the same request whichever way it comes.
        Raises ApiError CLUSTER_AUTHORIZATION_FAILED if the sender names another client and is no
        broker. Raises INCONSISTENT_CLUSTER_ID if it is a broker of another cluster, which found
        this controller at an address of one of its own.
        """
        sender = self.sender(peer)
        if not request.HasField("on_behalf_of"):
            return sender
        if request.on_behalf_of == OnBehalfOf(repeats=is_copy(request)):  # it names nobody
            request.ClearField("on_behalf_of")
            return sender
        why = refusal(self.authorizer, sender, Operation.CLUSTER_ACTION, CLUSTER)
        if why is not None:
            raise why
        named = request.on_behalf_of
        check_cluster(named.cluster_id, self._cluster_id)
        client_id = named.client_id if named.HasField("client_id") else None
        caller = Caller(
            named.principal,
            client_id,
            sender.listener,
            sender.plane,
            named.address,
            by_delegation_token=named.by_delegation_token,
        )
        request.ClearField("on_behalf_of")
        return caller

    def check(self, request: Any, peer: Peer, operation: Operation) -> Caller:
        """The caller of a request, as ``caller``. Raises ApiError CLUSTER_AUTHORIZATION_FAILED
        unless it may do it to the cluster."""
        caller = self.caller(request, peer)
        self.check_right(caller, operation)
        return caller

    def check_right(self, caller: Caller, operation: Operation) -> None:
        """Raises ApiError CLUSTER_AUTHORIZATION_FAILED unless the caller may do it to the
        cluster."""
        why = refusal(self.authorizer, caller, operation, CLUSTER)
        if why is not None:
            raise why
