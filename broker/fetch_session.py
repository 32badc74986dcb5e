"""Incremental fetch sessions, server side (KIP-227). Only brokers get one.

Within a session a Fetch names only the partitions that changed, and so does its answer. All
other clients are served without: a session per consumer is memory that nobody gives back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.types import FetchEntry, FetchResult, PartitionId
from stele.errors import ApiError, ErrorCode
from stele.world import Rng

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1

_MAX_EPOCH = 2**31 - 1


def next_epoch(epoch: int) -> int:
    """The session epoch after ``epoch``: 0 only ever opens a session."""
    return 1 if epoch >= _MAX_EPOCH else epoch + 1


class _Sent(NamedTuple):
    """What a follower was last told of a partition beside records."""

    high_watermark: int
    log_start_offset: int


class FetchSession:
    """One follower's session."""

    __slots__ = ("entries", "epoch", "replica_id", "sent", "session_id")

    def __init__(self, session_id: int, replica_id: int) -> None:
        self.session_id = session_id
        self.replica_id = replica_id
        self.epoch = next_epoch(INITIAL_EPOCH)  # that the next request must carry
        # All partitions of the session; those that got records last stand at the end, so that
        # under a limit of bytes everyone has a turn.
        self.entries: dict[PartitionId, FetchEntry] = {}
        # Only partitions of `entries`.
        self.sent: dict[PartitionId, _Sent] = {}

    def update(self, entries: Sequence[FetchEntry], forgotten: Sequence[PartitionId]) -> None:
        for partition in forgotten:
            self.entries.pop(partition, None)
            self.sent.pop(partition, None)
        for entry in entries:
            self.entries[entry.id] = entry

    def changed(self, results: Sequence[FetchResult]) -> list[FetchResult]:
        """The results with news; and note that they were told."""
        news = []
        for result in results:
            told = _Sent(result.high_watermark, result.log_start_offset)
            if result.error is not ErrorCode.NONE or result.diverging is not None:
                self.sent.pop(result.id, None)  # what was told before no longer counts
            elif result.id not in self.entries:
                continue  # forgotten by a request that came behind the one being answered
            elif result.records:
                self._to_the_end(result.id)
                self.sent[result.id] = told
            elif self.sent.get(result.id) == told:
                continue
            else:
                self.sent[result.id] = told
            news.append(result)
        return news

    def _to_the_end(self, partition: PartitionId) -> None:
        self.entries[partition] = self.entries.pop(partition)


class FetchContext:
    """One Fetch request seen through its session: what to read, and what to answer."""

    __slots__ = ("_session", "entries", "session_id")

    def __init__(self, entries: list[FetchEntry], session: FetchSession | None) -> None:
        self.entries = entries
        self.session_id = INVALID_SESSION_ID if session is None else session.session_id
        self._session = session

    def answer(self, results: list[FetchResult]) -> list[FetchResult]:
        """The results that go into the response; in a session unchanged partitions are left out."""
        return results if self._session is None else self._session.changed(results)


class FetchSessions:
    """The sessions that this broker keeps for its followers: at most one for each."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        # A follower that opens another session has given up the one before.
        self._by_replica: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._by_replica)

    def open(
        self,
        *,
        session_id: int,
        session_epoch: int,
        replica_id: int,
        entries: Sequence[FetchEntry],
        forgotten: Sequence[PartitionId],
    ) -> FetchContext:
        """Resolve a request to its full list of entries.

        A consumer (``replica_id`` -1) gets a sessionless context, whose session id is 0.
        Raises ApiError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH.
        """
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            session = self._by_replica.get(replica_id)
            if session is not None and session.session_id == session_id:
                del self._by_replica[replica_id]
            if session_epoch == FINAL_EPOCH or replica_id < 0:
                return FetchContext(list(entries), None)
            session = self._create(replica_id)
            session.update(entries, ())
            return FetchContext(list(entries), session)
        session = self._by_replica.get(replica_id)
        if session is None or session.session_id != session_id:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"session {session_id}")
        if session.epoch != session_epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"epoch {session_epoch}, expected {session.epoch}",
            )
        session.epoch = next_epoch(session_epoch)
        session.update(entries, forgotten)
        return FetchContext(list(session.entries.values()), session)

    def _create(self, replica_id: int) -> FetchSession:
        """Ids are random: after a restart an old one must not meet another's session."""
        session = FetchSession(self._rng.randrange(1, 2**31), replica_id)
        self._by_replica[replica_id] = session
        return session
