"""For whom a broker asks the controller: said by the broker, believed only of a broker."""

from __future__ import annotations

from typing import Any, Final

from runtime.authorization.authorizer import CLUSTER, Authorizer, Operation, refusal
from runtime.authorization.caller import Caller, grpc_caller
from stele.errors import ApiError, ErrorCode
from stele.wire.v1.caller_pb2 import OnBehalfOf
from world.network import Peer

LISTENER: Final = "CONTROLLER"
"""What a controller's port, which has no name in the configuration, is called to the authorizer."""


def ask_for(caller: Caller, request: Any) -> None:
    """Have a request to the controller say for whom it is made, whatever it said before."""
    request.on_behalf_of.CopyFrom(
        OnBehalfOf(principal=caller.principal, client_id=caller.client_id, address=caller.address)
    )


def check_cluster(told: str, own: str) -> None:
    """Raises ApiError INCONSISTENT_CLUSTER_ID: the sender belongs to another cluster."""
    if told not in ("", own):
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID, f"the sender is of cluster {told}, this is {own}"
        )


class ControllerPort:
    """The authorizer's place on a controller's port: who asks there, and what that one may."""

    def __init__(self, authorizer: Authorizer, cluster_id: str) -> None:
        self.authorizer = authorizer
        self._cluster_id = cluster_id

    def sender(self, peer: Peer) -> Caller:
        """The caller of a request of a kind that brokers do not forward."""
        return grpc_caller(LISTENER, peer)

    def caller(self, request: Any, peer: Peer) -> Caller:
        """Who asks: the one for whom the request is made, else who sends it.

        Takes the name out of the request, which is the same request whatever way it comes. Raises
        ApiError CLUSTER_AUTHORIZATION_FAILED: the sender names another one, and is no broker; and
        INCONSISTENT_CLUSTER_ID: it is a broker of another cluster, which found this controller at
        an address of one of its own.
        """
        sender = self.sender(peer)
        if not request.HasField("on_behalf_of"):
            return sender
        why = refusal(self.authorizer, sender, Operation.CLUSTER_ACTION, CLUSTER)
        if why is not None:
            raise why
        named = request.on_behalf_of
        check_cluster(named.cluster_id, self._cluster_id)
        client_id = named.client_id if named.HasField("client_id") else None
        caller = Caller(named.principal, client_id, sender.listener, sender.plane, named.address)
        request.ClearField("on_behalf_of")
        return caller

    def check(self, request: Any, peer: Peer, operation: Operation) -> None:
        """Raises ApiError CLUSTER_AUTHORIZATION_FAILED unless who asks may do it to the cluster."""
        caller = self.caller(request, peer)
        why = refusal(self.authorizer, caller, operation, CLUSTER)
        if why is not None:
            raise why
