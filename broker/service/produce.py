"""Produce: record batches of a client on their way to the logs, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from broker.replication.types import ProduceEntry, ProduceResult, TransactionalWrite
from broker.service.context import BrokerContext
from broker.service.items import merge
from broker.service.topics import Topics
from runtime.authorization.authorizer import (
    Operation,
    refusal,
    transactional_id_resource,
)
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId

ACKS = (-1, 0, 1)

_INTERNAL: Final = "only coordinators write to this topic, which is internal"


class NewProducers(Protocol):
    """Counts the producers that begin with a request."""

    def count(self) -> None: ...

    @property
    def wait_ms(self) -> int:
        """How long the client is to wait for having brought too many."""
        ...


class Produce:
    """One request: give it its batches, ``run`` it once."""

    __slots__ = (
        "_context",
        "_done",
        "_entries",
        "_items",
        "_refusal",
        "_topics",
        "_transaction",
        "new_producers",
    )

    def __init__(
        self,
        context: BrokerContext,
        caller: Caller,
        transaction: TransactionalWrite | None = None,
        new_producers: NewProducers | None = None,
    ) -> None:
        """``transaction``: what the request says of the transaction of its batches. Without it,
        batches of transactions are refused. ``new_producers`` counts each partition that takes a
        batch of a producer which it did not know."""
        self._context = context
        self._topics = Topics(context, caller, Operation.WRITE)
        self._transaction = transaction
        self.new_producers = new_producers
        self._refusal: ApiError | None = None
        if transaction is not None:
            resource = transactional_id_resource(transaction.transactional_id)
            self._refusal = refusal(context.authorizer, caller, Operation.WRITE, resource)
        self._items: list[ProduceEntry | ProduceResult] = []
        self._entries: list[ProduceEntry] = []  # those among the items
        self._done: Callable[[list[ProduceResult]], None]

    def add(
        self,
        name: str,
        topic_id: bytes,
        partition: int,
        batch: bytearray | memoryview | None,
    ) -> None:
        """The batch for one partition, whose buffer is given away; None if the bytes are no
        batch."""
        found = self._topics.partition(name, topic_id, partition)
        if isinstance(found, ErrorCode):
            message = _INTERNAL if found is ErrorCode.INVALID_TOPIC_EXCEPTION else ""
            self._items.append(ProduceResult(PartitionId(topic_id, partition), found, message))
        elif self._refusal is not None:
            self._items.append(ProduceResult(found, self._refusal.code, self._refusal.message))
        elif batch is None:
            message = "a partition of a Produce request holds exactly one record batch"
            self._items.append(ProduceResult(found, ErrorCode.INVALID_RECORD, message))
        else:
            counted = self.new_producers
            on_new_producer = None if counted is None else counted.count
            entry = ProduceEntry(found, batch, self._transaction, on_new_producer)
            self._items.append(entry)
            self._entries.append(entry)

    def run(self, acks: int, timeout_ms: int, done: Callable[[list[ProduceResult]], None]) -> None:
        """``done`` gets a result for each partition, in the order of adding."""
        if acks not in ACKS:
            error, message = ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}, not -1, 0 or 1"
            done([ProduceResult(item.id, error, message) for item in self._items])
            return
        self._done = done
        tracer = self._context.tracer
        if tracer is not None and tracer.current is not None:
            for entry in self._entries:
                entry.span = tracer.current
        self._context.metrics.produce_waiting += 1
        if self._entries:
            self._context.replicas.produce.begin(self._entries, acks, timeout_ms, self._finish)
        else:
            self._finish([])

    def _finish(self, results: list[ProduceResult]) -> None:
        self._context.metrics.produce_waiting -= 1
        all_begun = len(self._entries) == len(self._items)
        self._done(results if all_begun else merge(self._items, ProduceEntry, results))
