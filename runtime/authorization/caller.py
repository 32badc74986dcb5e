"""The caller of a service: its properties, on whichever plane it came in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from metadata.brokers import GRPC, PLAINTEXT
from world.network import Peer

ANONYMOUS: Final = "User:ANONYMOUS"
"""Kafka's principal of whoever has not proven to be somebody; nobody can yet."""


class Plane(Enum):
    """What is spoken on a listener; the value is the protocol of its endpoints in the metadata."""

    KAFKA = PLAINTEXT
    GRPC = GRPC


@dataclass(frozen=True, slots=True)
class Caller:
    """The client behind one request."""

    principal: str
    client_id: str | None  # as it calls itself; over gRPC it does not
    listener: str  # the name of the listener that it came in on: whose addresses it is told
    plane: Plane
    address: str  # of its machine, without a port


def grpc_caller(listener: str, peer: Peer) -> Caller:
    """Who calls over gRPC, on a listener of that name."""
    return Caller(ANONYMOUS, None, listener, Plane.GRPC, peer.address)
