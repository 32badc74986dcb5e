"""A process's copy of the ledger. Only the ledger's tail is read again. Pure.

These rules make the copy equal to what a reader of the whole topic would get:

- It is a copy of one topic id. A ledger that was deleted and created again has other records, so
  its copy begins anew.
- It takes each offset once, in order. Offsets that are read again are passed over.
- A log that ends below the copy, or that has lost records which the copy has, was truncated. The
  copy begins anew.
- It is given up when it was not read for ``LONGEST_MS``. Compaction drops tombstones
  ``delete.retention.ms`` after they were written. An older copy might miss some of them and see
  later ones. Example: a void commit is removed first, and then the commit that makes it void. A
  copy that only sees the second tombstone would take the void commit for the one that stands.

The copy has as many records as a reader of the whole topic finds: a tombstone removes its record.
"""

from __future__ import annotations

from stele.spark.decisions import Decisions, Entry

DELETE_RETENTION_MS = 600_000
"""``delete.retention.ms`` of the ledger. Reading the whole ledger takes less time. After a day,
Kafka's default, tombstones would be most of it."""
LONGEST_MS = DELETE_RETENTION_MS // 2


class LedgerCopy:
    """The records of the ledger below ``next_offset`` that are not removed."""

    def __init__(self) -> None:
        self.topic_id = b""  # the topic that this copies; empty: it has not begun
        self.next_offset = 0  # everything below it was read
        self._read_at_ms = 0  # when the latest read began
        self._entries: dict[bytes, tuple[Entry, int]] = {}  # by key, in the order of their offsets
        self._decisions: Decisions | None = Decisions()  # None: to be made of the entries again

    def begin(self, topic_id: bytes) -> None:
        """Forget everything: it is a copy of this topic from now on."""
        self.topic_id = topic_id
        self.next_offset = 0
        self._entries = {}
        self._decisions = Decisions()

    def is_usable(self, now_ms: int) -> bool:
        """Whether the tail is all that the copy lacks."""
        return bool(self.topic_id) and now_ms - self._read_at_ms <= LONGEST_MS

    def take(self, offset: int, key: bytes, value: bytes | None, time_ms: int) -> None:
        """Take the record at this offset. Raises LedgerError, and then it is not taken."""
        if offset < self.next_offset:
            return
        if value is None:
            is_news = self._entries.pop(key, None) is not None
        else:
            self._entries[key] = Entry.decode(value), time_ms
            is_news = True
        if is_news:
            self._decisions = None
        self.next_offset = offset + 1

    def read_up_to(self, offset: int, began_at_ms: int) -> None:
        """A read that began at this time has found nothing more below the offset."""
        self.next_offset = max(self.next_offset, offset)
        self._read_at_ms = began_at_ms

    @property
    def size(self) -> int:
        """The number of records."""
        return len(self._entries)

    @property
    def decisions(self) -> Decisions:
        """What the records say together. It does not change: later records make another one."""
        if self._decisions is None:
            self._decisions = Decisions()
            for key, (entry, time_ms) in self._entries.items():
                self._decisions.apply(key, entry, time_ms)
        return self._decisions
