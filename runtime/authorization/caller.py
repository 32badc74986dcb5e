"""The caller of a service: its properties, on whichever plane it came in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from metadata.brokers import Plane
from world.network import ANONYMOUS, Peer

__all__ = ["ANONYMOUS", "NODE_ITSELF", "Caller", "Plane", "broker_caller", "grpc_caller"]

NODE_ITSELF: Final = "Node:itself"
"""The principal of what a node asks of itself. It may do everything. No connection proves it: what
is proven has the type User."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The client behind one request."""

    principal: str
    client_id: str | None  # as it calls itself, if it does
    listener: str  # the name of the listener that it came in on: whose addresses it is told
    plane: Plane
    address: str  # of its machine, without a port
    node_ids: frozenset[int] = frozenset()
    """The nodes that its certificate names. If it names any, it acts as these only."""
    by_delegation_token: bool = False
    """Whether it has logged in by a delegation token, and not by a secret of its own."""

    def acts_as(self, node_id: int) -> bool:
        """Whether its certificate lets it speak in the name of this node."""
        return not self.node_ids or node_id in self.node_ids


def grpc_caller(listener: str, peer: Peer) -> Caller:
    """The caller of a gRPC method, on a listener of that name."""
    return Caller(
        peer.principal,
        peer.client_id,
        listener,
        Plane.GRPC,
        peer.address,
        peer.node_ids,
        peer.by_delegation_token,
    )


def broker_caller(broker_id: int, listener: str) -> Caller:
    """A broker that asks for itself, whatever a client did that it happened to need."""
    return Caller(NODE_ITSELF, f"broker-{broker_id}", listener, Plane.GRPC, "")
