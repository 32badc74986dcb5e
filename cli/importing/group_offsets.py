"""The offsets that groups have committed, as ``__consumer_offsets`` has them, and what becomes of
them where records get other offsets."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from broker.coordinator.group.records import OffsetKey, decode_key, decode_offset
from cli.importing.source_log import SourceLog
from cli.output import CommandError
from stele.ids import TopicPartition

_VERSION_BYTES: Final = 2
_OFFSET_VERSIONS: Final = (b"\0\0", b"\0\1")
"""With which the keys of committed offsets begin."""

GroupOffsets = dict[str, dict[TopicPartition, int]]


def read_group_offsets(logs: Iterable[SourceLog]) -> GroupOffsets:
    """The last offset by group and partition. Raises CommandError."""
    found: GroupOffsets = {}
    for log in logs:
        for records in log.records():
            for record in records:
                if record.key is None or record.key[:_VERSION_BYTES] not in _OFFSET_VERSIONS:
                    continue  # of members, or of a kind of group that is newer
                try:
                    key = decode_key(record.key)
                    assert isinstance(key, OffsetKey)
                    if record.value is None:
                        found.get(key.group_id, {}).pop(key.partition, None)
                        continue
                    offset = decode_offset(record.value).offset
                except ValueError as error:
                    raise CommandError(
                        f"{log.summary.partition}: the record at offset {record.offset} cannot be "
                        f"read: {error}. Give --no-groups to leave the offsets of groups out"
                    ) from None
                found.setdefault(key.group_id, {})[key.partition] = offset
    return {group: offsets for group, offsets in sorted(found.items()) if offsets}


class Translation:
    """The offsets of one partition that groups have committed, while its records get new ones."""

    def __init__(self, committed: Iterable[int]) -> None:
        self._committed = sorted(set(committed))
        self._below = [0] * len(self._committed)
        """How many imported records are below each of them."""
        self._done = 0
        self._seen = 0

    def take(self, source_offset: int) -> None:
        """The next imported record. Its new offset is the number of records before it."""
        until = bisect_left(self._committed, source_offset + 1, self._done)
        for at in range(self._done, until):
            self._below[at] = self._seen
        self._done = until
        self._seen += 1

    def of(self, committed: int) -> int:
        """The new offset of the first record at or above ``committed``; once all are taken."""
        at = bisect_left(self._committed, committed)
        return self._below[at] if at < self._done else self._seen
