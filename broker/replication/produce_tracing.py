"""The steps of a traced batch at its leader: append, sync, replicate."""

from __future__ import annotations

from broker.replication.replica import Replica
from stele.errors import ErrorCode
from world.tracing import REPLICATE, Attributes, Span


def begin_append(request: Span, replica: Replica) -> Span:
    """The batch is about to be checked against its producer's sequence, and written."""
    return request.child("append", _of(replica))


def begin_sync(request: Span, replica: Replica) -> Span:
    """The batch waits until it is on the leader's disk, as ``flush.messages`` asks for."""
    return request.child("sync", _of(replica))


def begin_replicate(request: Span, replica: Replica) -> Span:
    """The batch waits until the high watermark is above it."""
    return request.child(REPLICATE, _of(replica))


class SyncWait:
    """A ``ProduceToken`` for the leader's own sync of a batch that waits for its followers."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def acknowledge(self) -> None:
        self._span.end()

    def refuse(self, error: ErrorCode) -> None:
        self._span.end(error.name)


def _of(replica: Replica) -> Attributes:
    return {"stele.topic": replica.topic, "stele.partition": replica.id.partition}
