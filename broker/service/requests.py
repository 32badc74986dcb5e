"""The way of both planes into the replica manager.

A plane translates a request to items: an entry for what may be tried, a finished result for
what it refuses by itself. Answers come back in the order of the items.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Sequence
from typing import TypeVar

from broker.partition.ids import PartitionId
from broker.replication.deletion import Deletion, DeletionResult
from broker.replication.types import (
    Cancel,
    EpochQuery,
    FetchEntry,
    FetchQuery,
    FetchResult,
    OffsetQuery,
    OffsetResult,
    ProduceEntry,
    ProduceResult,
)
from broker.service.context import BrokerContext
from metadata.image import MetadataImage, Topic
from stele.errors import ErrorCode
from stele.wire.batch import HEADER_SIZE

logger = logging.getLogger(__name__)

NO_TOPIC_ID = bytes(16)
ACKS = (-1, 0, 1)

_RECORD_COUNT = struct.Struct(">i")
_RECORD_COUNT_POSITION = HEADER_SIZE - _RECORD_COUNT.size

E = TypeVar("E")
R = TypeVar("R")


def find_topic(image: MetadataImage, name: str | None, topic_id: bytes) -> Topic | ErrorCode:
    """The topic of an id, or of a name where no id is given; else the error to answer."""
    if topic_id and topic_id != NO_TOPIC_ID:
        return image.topic_by_id(topic_id) or ErrorCode.UNKNOWN_TOPIC_ID
    return image.topic(name or "") or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def partition_of(topic: Topic | ErrorCode, partition: int) -> PartitionId | ErrorCode:
    """The partition's identity, or the error to answer."""
    if isinstance(topic, ErrorCode):
        return topic
    if not 0 <= partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return PartitionId(topic.topic_id, partition)


def produce(
    context: BrokerContext,
    items: Sequence[ProduceEntry | ProduceResult],
    acks: int,
    timeout_ms: int,
    done: Callable[[list[ProduceResult]], None],
) -> None:
    """The one way in of produced batches. ``done`` gets a result for each item, in order."""
    if acks not in ACKS:
        message = f"acks is {acks}, not -1, 0 or 1"
        done([ProduceResult(item.id, ErrorCode.INVALID_REQUIRED_ACKS, message) for item in items])
        return
    entries = [item for item in items if isinstance(item, ProduceEntry)]
    counts = [_record_count(entry) for entry in entries]
    metrics = context.metrics

    def finish(results: list[ProduceResult]) -> None:
        metrics.produce_waiting -= 1
        for count, result in zip(counts, results, strict=True):
            if result.error is ErrorCode.NONE:
                metrics.messages_in.value += count
        done(_merge(items, ProduceEntry, results))

    metrics.produce_waiting += 1
    if entries:
        context.replicas.produce(entries, acks, timeout_ms, finish)
    else:
        finish([])


def _record_count(entry: ProduceEntry) -> int:
    """Read before the append takes the buffer: how many records the batch says it has."""
    if len(entry.batch) < HEADER_SIZE:
        return 0
    count: int = _RECORD_COUNT.unpack_from(entry.batch, _RECORD_COUNT_POSITION)[0]
    return count


def fetch(
    context: BrokerContext,
    items: Sequence[FetchEntry | FetchResult],
    query: FetchQuery,
    done: Callable[[list[FetchResult]], None],
) -> Cancel:
    """The one way in of fetches; ``query.entries`` is filled from the items. A session has none.

    A fetch of which any item is refused does not wait: the client must hear of it.
    """
    metrics = context.metrics
    waiting = True

    def leave() -> None:
        nonlocal waiting
        if waiting:
            waiting = False
            metrics.fetch_waiting -= 1

    def finish(results: list[FetchResult]) -> None:
        leave()
        done(results if query.session is not None else _merge(items, FetchEntry, results))

    query.entries = [item for item in items if isinstance(item, FetchEntry)]
    if len(query.entries) < len(items):
        query.max_wait_ms = 0
    metrics.fetch_waiting += 1
    if not query.entries and items:
        finish([])
        return leave
    withdraw = context.replicas.fetch(query, finish)

    def cancel() -> None:
        leave()
        withdraw()

    return cancel


async def list_offsets(
    context: BrokerContext,
    items: Sequence[OffsetQuery | OffsetResult],
    *,
    read_committed: bool,
) -> list[OffsetResult]:
    """Offsets by time; a result for each item, in order."""
    queries = [item for item in items if isinstance(item, OffsetQuery)]
    results = await context.replicas.list_offsets(queries, read_committed=read_committed)
    return _merge(items, OffsetQuery, results)


async def delete_records(
    context: BrokerContext, items: Sequence[Deletion | DeletionResult], timeout_ms: int
) -> list[DeletionResult]:
    """Later starts of logs; a result for each item, in order."""
    deletions = [item for item in items if isinstance(item, Deletion)]
    results = await context.replicas.delete_records(deletions, timeout_ms)
    return _merge(items, Deletion, results)


def epoch_ends(
    context: BrokerContext, items: Sequence[EpochQuery | OffsetResult]
) -> list[OffsetResult]:
    """Ends of leader epochs; a result for each item, in order."""
    queries = [item for item in items if isinstance(item, EpochQuery)]
    return _merge(items, EpochQuery, context.replicas.end_offset_for_epoch(queries))


def _merge(items: Sequence[E | R], entry_type: type[E], results: Sequence[R]) -> list[R]:
    """Put the results of the entries between the results that were there before."""
    if len(results) == len(items):
        return list(results)
    answered = iter(results)
    return [next(answered) if isinstance(item, entry_type) else item for item in items]  # type: ignore[misc]
