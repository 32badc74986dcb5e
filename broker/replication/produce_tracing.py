"""The steps of a traced batch: append, sync and replicate at its leader, and a copy's append and
sync at each follower.

A Fetch answer with the batch tells a follower the context of the request's span. So the follower
can add its own steps, if it has a tracer.
"""

from __future__ import annotations

from broker.replication.replica import Replica
from broker.replication.types import TracedBatch
from stele.errors import ErrorCode
from stele.wire.kafka.messages import fetch as wire
from world.tracing import REPLICATE, Attributes, Span, Tracer


def begin_append(request: Span, replica: Replica) -> Span:
    """The batch is about to be checked against its producer's sequence, and written."""
    return request.child("append", _of(replica))


def begin_sync(request: Span, replica: Replica) -> Span:
    """The batch waits until it is on the leader's disk, as ``flush.messages`` asks for."""
    return request.child("sync", _of(replica))


def begin_replicate(request: Span, replica: Replica) -> Span:
    """The batch waits until the high watermark is above it."""
    return request.child(REPLICATE, _of(replica))


def note_traced(request: Span, replica: Replica, base_offset: int) -> None:
    """The batch is in the leader's log. To be called before any follower is woken for it."""
    replica.traced = TracedBatch(base_offset, replica.machine.leader_epoch, request.context)


def traced_from(replica: Replica, fetch_offset: int) -> TracedBatch | None:
    """The traced batch, if the records from this offset on may reach it. An answer has one of them
    at most, so that older ones go without the steps of followers."""
    traced = replica.traced
    if traced is None or traced.base_offset < fetch_offset:
        return None
    return traced if traced.leader_epoch == replica.machine.leader_epoch else None


class CopySpans:
    """The steps of a traced batch at a follower."""

    __slots__ = ("_replica", "_step", "_traced", "_tracer")

    def __init__(self, tracer: Tracer, replica: Replica, traced: wire.TracedBatch) -> None:
        """The records of an answer are about to be written. The batch may be one of them."""
        self._tracer = tracer
        self._replica = replica
        self._traced = traced
        self._step = tracer.join("append", _of(replica), traced.context)

    def written(self) -> bool:
        """The records are in the log. Returns whether the batch is one of them."""
        if self._step is None or self._replica.log.end_offset <= self._traced.base_offset:
            return False
        self._step.end()
        self._step = self._tracer.join("sync", _of(self._replica), self._traced.context)
        return True

    def synced(self, error: str) -> None:
        """The records are on disk, or cannot be brought there for this error."""
        if self._step is not None:
            self._step.end(error)


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
