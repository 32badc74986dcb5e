"""A follower whose log begins anew gets the producers of the deleted batches from its leader.

A log that begins at offset 80 has no batch that tells of a producer whose last batch is at 75. The
leader still knows that producer. A follower that did not would append the batch again if it leads
when the producer repeats it. Kafka's follower forgets such producers.

The leader sends the producers as of the start of its log, in parts, in the order of their ids. The
follower deletes nothing before it has all of them. If the leader's start moves meanwhile, the parts
are of different offsets, and the follower asks from the beginning. A part has the layout of a
snapshot file.

A batch at the start or above comes to the follower with the records. So a part has only what the
batches below have told. Example: the log begins at 80, and a producer has batches at 75, 79 and
81. Its entry has those at 75 and 79.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from storage.producer_state import (
    NONE,
    ProducerEntry,
    ProducerStates,
    framed,
    rows_of,
)

FIRST: Final = -1
"""To be asked for the producers after this id is to be asked for the first part."""


class ProducersPart(NamedTuple):
    """Some of a log's producers as of the start of the log."""

    data: bytes
    after: int
    """The next part begins after this producer id. ``FIRST``: there is none."""


def producers_below(states: ProducerStates, offset: int, after: int, most: int) -> ProducersPart:
    """The part of the producers as of ``offset`` with the ids above ``after``.

    Changes by batches at ``offset`` or above are left out, as far as they can be undone. Those that
    cannot are committed, and the follower gets their batches before it can be in sync.
    """
    ids, before = states.ids_after(after, most), states.before(offset)
    rows: list[bytes] = []
    for producer_id in ids:
        entry = before.get(producer_id) if producer_id in before else states.get(producer_id)
        if entry is not None:
            rows += rows_of(_below(entry, offset))
    return ProducersPart(framed(rows), ids[-1] if len(ids) == most else FIRST)


def _below(entry: ProducerEntry, offset: int) -> ProducerEntry:
    first_offset = entry.transaction_first_offset
    return entry._replace(
        batches=tuple(batch for batch in entry.batches if batch.last_offset < offset),
        transaction_first_offset=first_offset if first_offset < offset else NONE,
    )


class HandedProducers:
    """The producers that a follower has from its leader so far, as of ``offset``."""

    def __init__(self, offset: int, now_ms: int) -> None:
        """``now_ms``: the time of the follower's own clock counts as the time of the last append.
        So a producer may be remembered for longer, but never for less."""
        self.offset = offset
        self.after = FIRST  # what to ask for next
        self._now_ms = now_ms
        self._entries: dict[int, ProducerEntry] = {}
        self._rows: list[bytes] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, part: ProducersPart) -> bool:
        """Take in the next part. Returns whether it was the last one. Raises SnapshotError."""
        for entry in ProducerStates.decode(part.data):
            taken = entry._replace(last_append_ms=self._now_ms)
            self._entries[taken.producer_id] = taken
            self._rows += rows_of(taken)
        self.after = part.after
        return part.after == FIRST

    def take_over(self, states: ProducerStates) -> None:
        """Take the producers of the follower's own log, which has no batches."""
        for entry in states:
            self._entries[entry.producer_id] = entry
            self._rows += rows_of(entry)

    @property
    def states(self) -> ProducerStates:
        return ProducerStates.of(self.offset, self._entries.values())

    @property
    def snapshot(self) -> bytes:
        """The content of the snapshot file at ``offset``."""
        return framed(self._rows)
