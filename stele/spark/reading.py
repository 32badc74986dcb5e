"""The work of a task: it reads one range of offsets and gives Spark columns."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stele.cluster.waiting import CONSUMER_QUOTAS
from stele.errors import ApiError, LogTruncationError, OffsetOutOfRangeError
from stele.spark.cluster import GONE, is_there, open_consumer
from stele.spark.kept_clients import KeptClients
from stele.spark.offsets import DataLossError, OffsetRange
from stele.spark.options import SourceOptions
from stele.spark.throttles import say
from stele.spark.worker_garbage import loaded_modules

if TYPE_CHECKING:
    import pyarrow as pa

    from stele import Consumer
    from stele.consumer.positions import RawBatch

log = logging.getLogger(__name__)

_POLL_BYTES = 4 * 1024 * 1024
_SILENCE_MS = 60_000
_ENOUGH_RECORDS = 20_000
_ENOUGH_BYTES = _POLL_BYTES
"""Polls with less are put together: each Arrow batch costs Spark a message. The bytes bound the
memory of a task whose records are large."""


def _reader_key(options: SourceOptions) -> object:
    settings = tuple(sorted(options.client.items()))
    return options.bootstrap_servers, options.isolation_level, settings


readers = KeptClients(open_consumer, _reader_key)
"""The consumers of this process's tasks."""
os.register_at_fork(after_in_child=readers.forget)


def read_range(options: SourceOptions, range_: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The rows of a range, in order.

    Memory holds what the consumer has fetched ahead (``kafka.prefetch.bytes``), the record batches
    of at most two polls and the rows of one Arrow batch. Raises DataLossError,
    UnreadableBatchError, TimeoutError, OutOfRange only with ``failOnDataLoss``.
    """
    from stele.column_decoder import columns_of  # after Spark's fork, as the client

    for batches in together(_polls(options, range_)):
        for rows in columns_of(
            batches, end_offset=range_.end, include_headers=options.include_headers
        ):
            if rows.num_rows:
                yield rows
    loaded_modules.leave_out()


def together(polls: Iterable[list[RawBatch]]) -> Iterator[list[RawBatch]]:
    """The same record batches in fewer lists. They are put together before they are decoded, which
    copies nothing."""
    waiting: list[RawBatch] = []
    records = size_bytes = 0
    for batches in polls:
        waiting += batches
        records += sum(each.header.record_count for each in batches)
        size_bytes += sum(each.header.size_bytes for each in batches)
        if records >= _ENOUGH_RECORDS or size_bytes >= _ENOUGH_BYTES:
            yield waiting
            waiting, records, size_bytes = [], 0, 0
    if waiting:
        yield waiting


def _polls(options: SourceOptions, range_: OffsetRange) -> Iterator[list[RawBatch]]:
    if range_.start >= range_.end:
        return
    try:
        yield from _polls_while_there(options, range_)
    except ApiError as error:
        if error.code not in GONE or is_there(options, range_):
            raise
        text = f"{range_.name} was deleted before the query had read it up to {range_.end}"
        if options.fail_on_data_loss:
            raise DataLossError(f"{text}; failOnDataLoss=false goes on without it") from error
        log.warning("%s", text)


def _polls_while_there(options: SourceOptions, range_: OffsetRange) -> Iterator[list[RawBatch]]:
    place = (range_.topic, range_.partition)

    def knows_no_other_topic(consumer: Consumer) -> bool:
        """A consumer of earlier tasks may still know a topic that was deleted since."""
        return consumer.topic_id(range_.topic) in (b"", range_.topic_id)

    with (
        readers.opened(options, knows_no_other_topic) as consumer,
        _throttles_said(consumer, range_),
    ):
        consumer.assign([place])
        consumer.seek(*place, range_.start)
        consumer.fetch_until(*place, range_.end)  # the next task waits for no answer beyond it
        position = range_.start
        while position < range_.end:
            try:
                batches = consumer.poll_batches(_POLL_BYTES, timeout_ms=_SILENCE_MS)
            except (OffsetOutOfRangeError, LogTruncationError) as error:
                position = _after_loss(options, consumer, range_, position, error)
                continue
            _check_topic(options, consumer, range_)
            moved_to = consumer.position(*place)
            if moved_to <= position:
                raise TimeoutError(
                    f"{range_.name}: no record came for {_SILENCE_MS // 1000} s at offset "
                    f"{position}, {range_.end} was not reached: {consumer.why()}"
                )
            position = moved_to
            if batches:
                yield batches
        consumer.assign([])


@contextmanager
def _throttles_said(consumer: Consumer, range_: OffsetRange) -> Iterator[None]:
    before_s = consumer.throttled_s
    try:
        yield
    finally:
        what = f"{range_.name} from offset {range_.start} to {range_.end}"
        say(what, consumer.throttled_s - before_s, CONSUMER_QUOTAS)


def _after_loss(
    options: SourceOptions, consumer: Consumer, range_: OffsetRange, position: int, cause: Exception
) -> int:
    """Where to go on after records have vanished since the query was planned. Raises
    DataLossError if it must not."""
    name = range_.name
    (low,), (high,) = (
        ends.values() for ends in (consumer.beginning_offsets([name]), consumer.end_offsets([name]))
    )
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{name}: the offsets {position} to {range_.end} should be read, but the log has {low} "
            f"to {high} now; failOnDataLoss=false reads what exists"
        ) from cause
    following = max(low, position) if position <= high else range_.end
    log.warning("%s: offsets %d to %d are lost, reading goes on", name, position, following)
    if following < range_.end:
        consumer.seek(*name, following)
    return following


def _check_topic(options: SourceOptions, consumer: Consumer, range_: OffsetRange) -> None:
    now = consumer.topic_id(range_.topic)
    if range_.topic_id and now and now != range_.topic_id:
        text = f"topic {range_.topic!r} was deleted and created again while the query read it"
        if options.fail_on_data_loss:
            raise DataLossError(f"{text}; failOnDataLoss=false reads the new one")
        log.warning("%s", text)
