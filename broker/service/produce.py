"""Produce: record batches of a client on their way to the logs, and what comes of them."""

from __future__ import annotations

import struct
from collections.abc import Callable

from broker.replication.types import ProduceEntry, ProduceResult
from broker.service.authorizer import Operation
from broker.service.caller import Caller
from broker.service.context import BrokerContext
from broker.service.items import merge
from broker.service.topics import Topics
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.batch import HEADER_SIZE

ACKS = (-1, 0, 1)

_RECORD_COUNT = struct.Struct(">i")
_RECORD_COUNT_POSITION = HEADER_SIZE - _RECORD_COUNT.size


class Produce:
    """One request: give it its batches, ``run`` it once."""

    __slots__ = ("_context", "_counts", "_done", "_is_transactional", "_items", "_topics")

    def __init__(
        self, context: BrokerContext, caller: Caller, *, is_transactional: bool = False
    ) -> None:
        self._context = context
        self._topics = Topics(context, caller, Operation.WRITE)
        self._is_transactional = is_transactional
        self._items: list[ProduceEntry | ProduceResult] = []
        self._counts: list[int] = []  # of the entries among the items: records by their headers
        self._done: Callable[[list[ProduceResult]], None]

    def add(
        self,
        name: str,
        topic_id: bytes,
        partition: int,
        batch: bytearray | memoryview | None,
    ) -> None:
        """The batch for one partition, whose buffer is given away; None: what came is no batch."""
        found = self._topics.partition(name, topic_id, partition)
        if isinstance(found, ErrorCode):
            self._items.append(ProduceResult(PartitionId(topic_id, partition), found))
        elif self._is_transactional:
            message = "transactions are not supported"
            self._items.append(ProduceResult(found, ErrorCode.INVALID_TXN_STATE, message))
        elif batch is None:
            message = "a partition of a Produce request holds exactly one record batch"
            self._items.append(ProduceResult(found, ErrorCode.INVALID_RECORD, message))
        else:
            self._items.append(ProduceEntry(found, batch))
            self._counts.append(_record_count(batch))

    def run(self, acks: int, timeout_ms: int, done: Callable[[list[ProduceResult]], None]) -> None:
        """``done`` gets a result for each partition, in the order of adding."""
        if acks not in ACKS:
            error, message = ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}, not -1, 0 or 1"
            done([ProduceResult(item.id, error, message) for item in self._items])
            return
        self._done = done
        self._context.metrics.produce_waiting += 1
        entries = [item for item in self._items if isinstance(item, ProduceEntry)]
        if entries:
            self._context.replicas.produce(entries, acks, timeout_ms, self._finish)
        else:
            self._finish([])

    def _finish(self, results: list[ProduceResult]) -> None:
        metrics = self._context.metrics
        metrics.produce_waiting -= 1
        for count, result in zip(self._counts, results, strict=True):
            if result.error is ErrorCode.NONE:
                metrics.messages_in.value += count
        self._done(merge(self._items, ProduceEntry, results))


def _record_count(batch: bytearray | memoryview) -> int:
    """Read before the append takes the buffer: how many records the batch says it has."""
    if len(batch) < HEADER_SIZE:
        return 0
    count: int = _RECORD_COUNT.unpack_from(batch, _RECORD_COUNT_POSITION)[0]
    return count
