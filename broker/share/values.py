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
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


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


class StateWrite(NamedTuple):
    """A change of the persisted state. The caller tells its outcome by ``number``."""

    number: int
    start_offset: int
    batches: tuple[StateBatch, ...]


class Limits(NamedTuple):
    """A share group's limits: its group configurations of the same names."""

    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    partition_max_record_locks: int = 2_000
    renew_acknowledge_enable: bool = True
    backoff_ms: int = 0
    """A released record is not delivered again for this time after its first delivery, and for
    twice the time after each further one. 0: it is delivered at once."""
    backoff_max_ms: int = 0

    def backoff_after(self, delivery_count: int) -> int:
        # The exponent is limited because a large power would be made only to be cut.
        return min(self.backoff_ms << min(delivery_count - 1, 30), self.backoff_max_ms)

    @property
    def suspect_count(self) -> int:
        """After so many deliveries the record itself may be the reason why its consumers fail."""
        return max(2, -(-self.delivery_count_limit // 2))


NO_DEADLINE: Final = -1

NO_TIME: Final = -1
