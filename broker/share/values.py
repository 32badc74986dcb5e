"""The inputs and the results of a share partition, as values."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple


class RecordState(enum.IntEnum):
    """The state of a record in its share partition, as it is persisted (KIP-932)."""

    AVAILABLE = 0
    ACQUIRED = 1  # never persisted
    ACKNOWLEDGED = 2
    ARCHIVING = 3  # its deliveries are used up, and its dead letter is not written yet (KIP-1191)
    ARCHIVED = 4
    ARCHIVING_REJECTED = 19  # as ARCHIVING, because a member has rejected it

    @property
    def is_final(self) -> bool:
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)

    @property
    def is_archiving(self) -> bool:
        return self in (RecordState.ARCHIVING, RecordState.ARCHIVING_REJECTED)

    @property
    def kafka_state(self) -> RecordState:
        """Kafka has one state ARCHIVING, and does not persist the reason."""
        return RecordState.ARCHIVING if self.is_archiving else self


class AcknowledgeType(enum.IntEnum):
    """What a member says of a record (KIP-932, KIP-1222)."""

    GAP = 0  # there is no record at this offset
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class DeliveryEnd(enum.Enum):
    """How a delivery ended in vain."""

    RELEASED = "released"  # by the member
    LOCK_ENDED = "lock_ended"
    SESSION_ENDED = "session_ended"  # the member left, or its connection broke


class VainDelivery(NamedTuple):
    """The last delivery of a record that has ended."""

    end: DeliveryEnd
    member: str
    ended_ms: int
    last: int
    """The last offset of the range for which this is known. Ranges become one although their last
    deliveries differ, and then this is about the first of their records."""


class AcknowledgementBatch(NamedTuple):
    """What a member says of the records from ``first`` to ``last``: one type for all of them, or
    one for each offset."""

    first: int
    last: int
    types: Sequence[AcknowledgeType]


class ReadBatch(NamedTuple):
    """A record batch that the leader has read from its log."""

    first: int
    last: int
    is_deliverable: bool = True  # False: a control batch, or one of an aborted transaction


class Acquired(NamedTuple):
    """Records that a member has from now on, and how often each was delivered, this time
    included."""

    first: int
    last: int
    delivery_count: int


class StateBatch(NamedTuple):
    """The persisted state of the records from ``first`` to ``last``."""

    first: int
    last: int
    state: RecordState
    delivery_count: int


class LetterPlan(NamedTuple):
    """The dead letters that a share partition is writing: one record batch of one idempotent
    producer. It is persisted before the batch is written.

    Whoever leads the partition writes the same batch again, with the same producer id, sequence and
    number of records. So the dead letter topic takes it for a duplicate if it has it already.
    """

    topic_id: bytes
    """The id of the dead letter topic."""
    partition: int
    producer_id: int
    sequence: int
    """The sequence of the first letter of ``ranges``, or of the next letter."""
    revision: int
    """Rises with each write. The share coordinator keeps the plan of the highest revision, since a
    write whose answer was lost may come after a later one."""
    ranges: tuple[tuple[int, int], ...] = ()
    """First and last offsets of the records whose letters are being written, ascending. Each of the
    offsets is one letter. Empty: all letters are written."""

    @property
    def letter_count(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    @property
    def finished(self) -> LetterPlan:
        """The plan after its letters. The sequence after 2^31 - 1 is 0."""
        sequence = (self.sequence + self.letter_count) & 0x7FFFFFFF
        return self._replace(sequence=sequence, ranges=())


class StateWrite(NamedTuple):
    """A change of the persisted state. The caller tells its outcome by ``number``."""

    number: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    letters: LetterPlan | None = None
    """None: the plan stays as it is."""
    is_of_letters: bool = False
    """Whether its records are archiving already, so that their delivery was complete before."""


class Limits(NamedTuple):
    """A share group's limits: its group configurations of the same names, and
    share.redelivery.backoff.ms and share.redelivery.backoff.max.ms."""

    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    partition_max_record_locks: int = 2_000
    renew_acknowledge_enable: bool = True
    backoff_ms: int = 0
    """A record that was delivered in vain is not delivered again for this time after its first
    delivery, and for twice the time after each further one. 0: it is delivered at once."""
    backoff_max_ms: int = 0
    has_dead_letters: bool = False
    """Whether the group has a dead letter topic (KIP-1191)."""

    def backoff_after(self, delivery_count: int) -> int:
        # The exponent is limited because a large power would be made only to be cut.
        return min(self.backoff_ms << min(delivery_count - 1, 30), self.backoff_max_ms)

    @property
    def suspect_count(self) -> int:
        """After so many deliveries the record itself may be the reason why its consumers fail."""
        return max(2, -(-self.delivery_count_limit // 2))


NO_DEADLINE: Final = -1

NO_TIME: Final = -1
