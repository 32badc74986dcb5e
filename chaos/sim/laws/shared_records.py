"""What the clients of share groups know of the records that they share (KIP-932)."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from chaos.sim.partition_name import PartitionName

ON_THE_WAY_S: Final = 10.0
"""A request that its client has given up may still arrive so much later."""


class RecordName(NamedTuple):
    """A record as one share group sees it."""

    group_id: str
    place: PartitionName
    offset: int


class Told(NamedTuple):
    """A delivery, as the answer to a ShareFetch told it."""

    member: str
    asked_s: float  # the fetch was sent
    told_s: float  # the answer arrived
    is_of_leader: bool
    """Whether the broker led the partition when the fetch was sent. A broker that has lost the
    leadership and does not know it yet has outdated states of the records."""


@dataclass(slots=True)
class RecordHistory:
    """The history of one record."""

    born_s: float | None = None  # its producer sent it; None: not known yet
    deliveries: list[Told] = field(default_factory=list)
    is_decided: bool = False  # a member has sent ACCEPT or REJECT, whatever the answer
    is_accepted: bool = False  # a member has sent ACCEPT, whatever the answer
    is_rejected: bool = False  # a member has sent REJECT, whatever the answer
    decided_s: float | None = None  # the first answer that such a decision is persisted
    given_back: int = 0  # deliveries that do not count, since a session ended with them
    spoke: set[str] = field(default_factory=set)  # members that have said anything of it
    released_s: float = 0.0  # the last answer that a release is persisted
    released_count: int = 0  # the highest delivery count of a release that is persisted


class SharedRecords:
    """The histories of all shared records of a run."""

    def __init__(self) -> None:
        self._records: dict[RecordName, RecordHistory] = {}
        # Fetches without an answer. Each may have delivered any record of its partition.
        self._lost: dict[tuple[str, PartitionName], list[float]] = {}
        self._asking: dict[tuple[str, PartitionName], int] = {}
        self._decided: dict[tuple[str, PartitionName], int] = {}
        self.delivery_limits: dict[str, int] = {}
        """By group. Other groups are not watched."""
        self.have_gaps: set[str] = set()
        """The groups whose topics have no record at some offsets."""

    def of(self, name: RecordName) -> RecordHistory:
        return self._records.setdefault(name, RecordHistory())

    def decided_count(self, group_id: str, place: PartitionName) -> int:
        """The records of a partition whose decision was answered."""
        return self._decided.get((group_id, place), 0)

    def decided(self, name: RecordName, now_s: float) -> None:
        """The answer says that a decision is persisted, or was needless."""
        history = self.of(name)
        if history.decided_s is None:
            history.decided_s = now_s
            key = name.group_id, name.place
            self._decided[key] = self._decided.get(key, 0) + 1

    def asking(self, group_id: str, place: PartitionName) -> None:
        """A fetch is sent. ``answered`` or ``lost`` follows."""
        key = group_id, place
        self._asking[key] = self._asking.get(key, 0) + 1

    def answered(self, group_id: str, place: PartitionName) -> None:
        self._asking[group_id, place] -= 1

    def lost(self, group_id: str, place: PartitionName, now_s: float) -> None:
        """There is no answer. The records may have been delivered all the same."""
        self._asking[group_id, place] -= 1
        self._lost.setdefault((group_id, place), []).append(now_s)

    def may_be_done(self, name: RecordName) -> bool:
        """Whether a member has decided, or the record may have been delivered in vain as often as
        the limit allows."""
        history = self.of(name)
        if history.is_decided:
            return True
        return self.most_deliveries(name) >= self.delivery_limits[name.group_id]

    def may_be_given_up(self, name: RecordName) -> bool:
        """Whether a member has rejected it, or it may have been delivered in vain as often as the
        limit allows."""
        limit = self.delivery_limits[name.group_id]
        return self.of(name).is_rejected or self.most_deliveries(name) >= limit

    def most_deliveries(self, name: RecordName) -> int:
        """How often a record may have been delivered by now. What was given back with the end of a
        session does not count."""
        history = self.of(name)
        key = name.group_id, name.place
        lost = self._lost.get(key, [])
        since_s = 0.0 if history.born_s is None else history.born_s - ON_THE_WAY_S
        unknown = len(lost) - bisect_left(lost, since_s) + self._asking.get(key, 0)
        return len(history.deliveries) - history.given_back + unknown
