"""Reads and writes the ledger topic: the decisions of exactly-once writes."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

from stele.errors import ApiError, BulkError, ErrorCode, LogTruncationError, OffsetOutOfRangeError
from stele.spark.client_settings import of_all_clients
from stele.spark.cluster import described
from stele.spark.decisions import Decisions, Entry, LedgerError
from stele.spark.ledger_copy import DELETE_RETENTION_MS, LedgerCopy
from stele.spark.options import SinkOptions

if TYPE_CHECKING:
    from stele import Admin, Consumer, Producer
    from stele.admin.descriptions import TopicDescription

_CONFIGS = {
    "cleanup.policy": "compact",
    # Only segments that are full or old are compacted, and a new process reads the whole ledger.
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": str(DELETE_RETENTION_MS),
}
_SILENCE_MS = 20_000
_ATTEMPTS = 3


class Ledger:
    """Use it from one thread at a time, and throw it away after an error. ``decisions`` is the
    state at the last ``refresh`` or ``write``.

    Its consumer and producer are made when they are needed first. Between two reads the consumer is
    paused, so an idle ledger sends nothing.
    """

    def __init__(self, options: SinkOptions, admin: Admin) -> None:
        self._options = options
        self._admin = admin
        self._settings = of_all_clients(options.client)
        self._place = (options.ledger_topic, 0)
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None
        self._copy = LedgerCopy()
        self.topics: dict[str, TopicDescription] = {}
        """The topics that the last ``refresh`` has asked about, if they exist."""

    def close(self) -> None:
        """Raises nothing: what was acknowledged is in the ledger."""
        if self._consumer is not None:
            self._consumer.close()
        if self._producer is not None:
            self._producer.abort()

    @property
    def decisions(self) -> Decisions:
        return self._copy.decisions

    @property
    def size(self) -> int:
        """The number of records at the last ``refresh``, without those that are removed."""
        return self._copy.size

    def refresh(self, *topics: str) -> Decisions:
        """Read everything that is in the ledger now. Creates the topic if it is not there. Also
        finds out about these topics."""
        if not self._copy.is_usable(_elapsed_ms()):
            self._begin()
        return self._refresh(None, topics)

    def write(self, *entries: Entry) -> Decisions:
        """Append the entries, and read the ledger up to them at least. Raises SteleError if it is
        not known whether they were written; repeating them is harmless."""
        end = self._append([(uuid.uuid4().bytes, each.encode()) for each in entries])
        if not self._copy.is_usable(_elapsed_ms()):
            self._begin()
        return self._refresh(end, ())

    def remove(self, keys: list[bytes]) -> None:
        """Let compaction remove these records, in this order. ``decisions`` has them until the next
        ``refresh``."""
        if keys:
            self._append([(key, None) for key in keys])

    # ------------------------------------------------------------------------ reading

    def _refresh(self, end: int | None, topics: tuple[str, ...]) -> Decisions:
        """Read the tail up to ``end``, or up to the end of the log. The topic's id is asked for
        after that: if it is still the id of the copy, it was this topic that was read."""
        for _ in range(_ATTEMPTS):
            if self._read_tail(end) and self._is_still_the_topic(topics):
                return self.decisions
            end = None  # it was of another topic, or of what is truncated
            self._begin()
        raise LedgerError(
            f"the ledger {self._options.ledger_topic!r} was created again, or has lost records, "
            f"{_ATTEMPTS} times while it was read"
        )

    def _begin(self) -> None:
        """Read the ledger from its first record on."""
        self._copy.begin(self._ensure_topic())
        if self._consumer is None:
            from stele import Consumer  # loaded where it runs: Spark forks its workers

            self._consumer = Consumer(
                self._options.bootstrap_servers, auto_offset_reset="none", **self._settings
            )
            self._consumer.assign([self._place])
        self._consumer.seek_to_beginning(self._place)

    def _read_tail(self, end: int | None) -> bool:
        """Returns False if records have vanished that the copy has, or the topic has."""
        assert self._consumer is not None
        began_at_ms = _elapsed_ms()
        try:
            if end is None:
                (end,) = self._consumer.end_offsets([self._place]).values()
            if end < self._copy.next_offset:
                return False
            self._read(self._consumer, end)
        except (LogTruncationError, OffsetOutOfRangeError):
            return False
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return False
        self._copy.read_up_to(end, began_at_ms)
        return True

    def _read(self, consumer: Consumer, end: int) -> None:
        if (at := consumer.position(*self._place)) >= end:
            return
        consumer.resume(self._place)
        while at < end:
            for record in consumer.poll(10_000, timeout_ms=_SILENCE_MS):
                self._copy.take(record.offset, record.key or b"", record.value, record.timestamp_ms)
            before, at = at, consumer.position(*self._place)
            if at <= before:
                raise TimeoutError(
                    f"the ledger {self._options.ledger_topic!r} was not read in time: "
                    f"{consumer.why()}"
                )
        consumer.pause(self._place)

    def _is_still_the_topic(self, topics: tuple[str, ...]) -> bool:
        name = self._options.ledger_topic
        found = described(self._admin, [name, *topics])
        self.topics = {each.name: each for each in found}
        ledger = self.topics.get(name)
        return ledger is not None and ledger.topic_id == self._copy.topic_id

    def _ensure_topic(self) -> bytes:
        """Create the topic unless it is there. Returns its id."""
        from stele import NewTopic

        topic = self._options.ledger_topic
        found = described(self._admin, [topic])
        if not found:
            brokers = len(self._admin.describe_cluster().brokers)
            replicas = min(3, brokers)
            configs = {**_CONFIGS, "min.insync.replicas": "2" if replicas > 2 else "1"}
            try:
                self._admin.create_topics([NewTopic(topic, 1, replicas, configs)])
            except BulkError as refusal:
                if refusal.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
            found = self._admin.describe_topics([topic])
        if len(found[0].partitions) != 1:
            raise ValueError(f"the ledger {topic!r} must have one partition: its order counts")
        return found[0].topic_id

    # ------------------------------------------------------------------------ writing

    def _append(self, records: list[tuple[bytes, bytes | None]]) -> int | None:
        """Returns the offset behind the last record; None if the broker does not tell it."""
        if self._producer is None:
            from stele import Producer

            self._producer = Producer(
                self._options.bootstrap_servers, linger_ms=0, **self._settings
            )
        topic, partition = self._place
        sent = [
            self._producer.send(topic, value, key, partition=partition) for key, value in records
        ]
        self._producer.flush()
        offset = sent[-1].result().offset
        return None if offset < 0 else offset + 1


def _elapsed_ms() -> int:
    """A clock for the age of a copy. It goes on while the process is stopped or the machine sleeps,
    as far as the system can tell. So a copy is rather taken for too old."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000
