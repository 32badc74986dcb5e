"""Reads and writes the ledger topic: the decisions of exactly-once writes."""

from __future__ import annotations

import uuid
from types import TracebackType
from typing import TYPE_CHECKING, Self

from stele.spark.client_settings import of_admins, of_all_clients
from stele.spark.decisions import Decisions, Entry, Record, present, replayed
from stele.spark.options import SinkOptions

if TYPE_CHECKING:
    from stele import Admin

_CONFIGS = {
    "cleanup.policy": "compact",
    # Only segments that are full or old are compacted, and every task reads the ledger.
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
    # A task reads the ledger in less than that. After a day, the default, tombstones would be most
    # of it.
    "delete.retention.ms": "600000",
}
_SILENCE_MS = 20_000


def admin_of(options: SinkOptions) -> Admin:
    from stele import Admin

    return Admin(options.bootstrap_servers, **of_admins(options.client))


class Ledger:
    """Use it from one thread. ``decisions`` is the state at the last ``refresh``."""

    def __init__(self, options: SinkOptions, admin: Admin) -> None:
        from stele import Consumer

        self._options = options
        self._admin = admin
        settings = of_all_clients(options.client)
        self._consumer = Consumer(
            options.bootstrap_servers, auto_offset_reset="earliest", **settings
        )
        self._settings = settings
        self._place = (options.ledger_topic, 0)
        self._records: list[Record] = []
        self._is_open = False
        self.decisions = Decisions()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._consumer.close()

    @property
    def size(self) -> int:
        """The number of records at the last ``refresh``, without those that are removed."""
        return len(self._records)

    def refresh(self) -> Decisions:
        """Read everything that is in the ledger now. Creates the topic if it is not there."""
        if not self._is_open:
            self._ensure_topic()
            self._consumer.assign([self._place])
            self._consumer.seek_to_beginning(self._place)
            self._is_open = True
        (end,) = self._consumer.end_offsets([self._place]).values()
        while self._consumer.position(*self._place) < end:
            at = self._consumer.position(*self._place)
            for record in self._consumer.poll(10_000, timeout_ms=_SILENCE_MS):
                self._records.append(Record(record.key or b"", record.value, record.timestamp_ms))
            if self._consumer.position(*self._place) <= at:
                raise TimeoutError(
                    f"the ledger {self._options.ledger_topic!r} was not read in time: "
                    f"{self._consumer.why()}"
                )
        self._records = present(self._records)
        self.decisions = replayed(self._records)
        return self.decisions

    def write(self, *entries: Entry) -> Decisions:
        """Append the entries, and read the ledger up to them at least. Raises SteleError if it is
        not known whether they were written; repeating them is harmless."""
        return self._append([(uuid.uuid4().bytes, each.encode()) for each in entries])

    def remove(self, keys: list[bytes]) -> None:
        """Let compaction remove these records, in this order."""
        if keys:
            self._append([(key, None) for key in keys])

    def _append(self, records: list[tuple[bytes, bytes | None]]) -> Decisions:
        from stele import Producer

        topic, partition = self._place
        with Producer(self._options.bootstrap_servers, linger_ms=0, **self._settings) as producer:
            for key, value in records:
                producer.send(topic, value, key, partition=partition)
            producer.flush()
        return self.refresh()

    def _ensure_topic(self) -> None:
        from stele import NewTopic
        from stele.errors import BulkError, ErrorCode

        topic = self._options.ledger_topic
        try:
            found = self._admin.describe_topics([topic])
        except BulkError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            brokers = len(self._admin.describe_cluster().brokers)
            replicas = min(3, brokers)
            configs = {**_CONFIGS, "min.insync.replicas": "2" if replicas > 2 else "1"}
            try:
                self._admin.create_topics([NewTopic(topic, 1, replicas, configs)])
            except BulkError as refusal:
                if refusal.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
            return
        if len(found[0].partitions) != 1:
            raise ValueError(f"the ledger {topic!r} must have one partition: its order counts")
