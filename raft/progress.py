"""A leader's view of the others: how far each has got, and which fetches wait for news."""

from __future__ import annotations

from dataclasses import dataclass, field

from raft.messages import FetchRequest
from raft.quorum import NO_DIRECTORY


@dataclass(slots=True)
class Progress:
    """One replica as its leader sees it. Times are monotonic seconds."""

    last_contact: float  # of its last fetch in this epoch; at first, when the epoch began
    directory_id: bytes = NO_DIRECTORY  # by its last fetch
    end_offset: int = -1  # durable there, by its last valid fetch; -1: unknown
    has_fetched: bool = False
    caught_up_at: float | None = None  # when it last had all that the leader then had
    leader_end_offset: int = -1  # the leader's at its last valid fetch; -1: there was none
    begin_at: float = 0.0  # when to announce the epoch to it if it does not fetch; inf: under way

    def contact(self, now: float) -> None:
        self.has_fetched = True
        self.last_contact = now

    def fetched(self, offset: int, leader_end_offset: int, now: float) -> None:
        """A valid fetch: everything below ``offset`` is durable there and equals the leader's."""
        if offset >= leader_end_offset:
            self.caught_up_at = now
        elif offset >= self.leader_end_offset > -1:
            self.caught_up_at = self.last_contact
        self.end_offset = offset
        self.leader_end_offset = leader_end_offset
        self.contact(now)


@dataclass(frozen=True, slots=True)
class ParkedFetch:
    request_id: int
    message: FetchRequest
    deadline: float


@dataclass(slots=True)
class Parking:
    """Fetches that found nothing new. One per replica: a newer one sends the older away."""

    parked: dict[int, ParkedFetch] = field(default_factory=dict)  # by request id, oldest first

    @property
    def deadline(self) -> float:
        return min([fetch.deadline for fetch in self.parked.values()], default=float("inf"))

    def park(self, fetch: ParkedFetch) -> None:
        self.parked[fetch.request_id] = fetch

    def _take(self, fetches: list[ParkedFetch]) -> list[ParkedFetch]:
        for fetch in fetches:
            del self.parked[fetch.request_id]
        return fetches

    def take_expired(self, now: float) -> list[ParkedFetch]:
        return self._take([fetch for fetch in self.parked.values() if fetch.deadline <= now])

    def take_replaced(self, replica_id: int, directory_id: bytes) -> list[ParkedFetch]:
        key = (replica_id, directory_id)
        return self._take(
            [
                fetch
                for fetch in self.parked.values()
                if (fetch.message.replica_id, fetch.message.replica_directory_id) == key
            ]
        )

    def take_answerable(self, end_offset: int, high_watermark: int) -> list[ParkedFetch]:
        """The fetches for which there are records, or a higher high watermark than they know."""
        return self._take(
            [
                fetch
                for fetch in self.parked.values()
                if fetch.message.fetch_offset < end_offset
                or fetch.message.high_watermark < high_watermark
            ]
        )

    def take_all(self) -> list[ParkedFetch]:
        return self._take(list(self.parked.values()))
