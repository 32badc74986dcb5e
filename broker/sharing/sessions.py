"""Share sessions (KIP-932): the partitions that a member of a share group reads from this broker.

A session belongs to a group, a member and a connection. It ends when the member says so, or with
its connection, and then the records that the member has are available at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId

OPENS: Final = 0
ENDS: Final = -1
_EPOCH_MAX: Final = 2**31 - 1


class SessionKey(NamedTuple):
    group_id: str
    member_id: str


class ShareSession:
    """One session."""

    __slots__ = ("epoch", "is_open", "key", "on_end", "owner", "partitions")

    def __init__(self, key: SessionKey, owner: object) -> None:
        self.key = key
        self.owner = owner
        self.epoch = 1  # of the next request
        self.is_open = True
        self.partitions: dict[PartitionId, None] = {}
        # Wakes the fetch that waits in this session, which must not be given any more records.
        self.on_end: Callable[[], object] = lambda: None

    def change(self, added: Iterable[PartitionId], forgotten: Iterable[PartitionId]) -> None:
        for each in forgotten:
            self.partitions.pop(each, None)
        for each in added:
            self.partitions[each] = None

    def in_turn(self) -> list[PartitionId]:
        """All of them. Another one is the first with each request, so that none starves."""
        all_of_them = list(self.partitions)
        first = self.epoch % len(all_of_them) if all_of_them else 0
        return all_of_them[first:] + all_of_them[:first]


class ShareSessions:
    """All sessions of one broker."""

    def __init__(self, most: int, release: Callable[[ShareSession], None]) -> None:
        """``release`` gives the records of the session's member back."""
        self._most = most
        self._release = release
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._of_owner: dict[object, dict[SessionKey, ShareSession]] = {}
        self._of_group: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, key: SessionKey) -> bool:
        return key in self._sessions

    def has_group(self, group_id: str) -> bool:
        """Whether a member of the group has a session."""
        return self._of_group[group_id] > 0

    def count_readers(self, group_id: str, partition: PartitionId) -> int:
        """The members of the group that read the partition."""
        return sum(
            key.group_id == group_id and partition in session.partitions
            for key, session in self._sessions.items()
        )

    def open(self, key: SessionKey, owner: object) -> ShareSession:
        """A new session. It replaces one that the member has, whose records the member keeps: it
        may be about to acknowledge them. Raises ApiError SHARE_SESSION_LIMIT_REACHED."""
        former = self._sessions.get(key)
        if former is not None:
            self._remove(former)
        elif len(self._sessions) >= self._most:
            raise ApiError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"this broker has {self._most} share sessions, the maximum "
                "(group.share.max.share.sessions)",
            )
        session = self._sessions[key] = ShareSession(key, owner)
        self._of_owner.setdefault(owner, {})[key] = session
        self._of_group[key.group_id] += 1
        return session

    def next(self, key: SessionKey, epoch: int, owner: object) -> ShareSession:
        """The session of a request that is not the first of its session. Raises ApiError
        SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.

        An end that comes by another connection is late: it is the end of a session that the member
        has replaced since, and must not end the present one.
        """
        session = self._sessions.get(key)
        if session is None or (epoch == ENDS and session.owner is not owner):
            raise ApiError(
                ErrorCode.SHARE_SESSION_NOT_FOUND,
                f"member {key.member_id} of share group {key.group_id} has no session here",
            )
        if epoch == ENDS:
            return session
        if epoch != session.epoch:
            raise ApiError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"the next request of the session has the epoch {session.epoch}, not {epoch}",
            )
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def end(self, session: ShareSession) -> None:
        """The member reads no more from this broker."""
        if session.is_open:
            self._remove(session)
            self._release(session)

    def forget(self, owner: object) -> None:
        """The connection is lost."""
        for session in list(self._of_owner.get(owner, {}).values()):
            self.end(session)

    def _remove(self, session: ShareSession) -> None:
        session.is_open = False
        del self._sessions[session.key]
        self._of_group[session.key.group_id] -= 1
        if not self._of_group[session.key.group_id]:
            del self._of_group[session.key.group_id]
        of_owner = self._of_owner[session.owner]
        del of_owner[session.key]
        if not of_owner:
            del self._of_owner[session.owner]
        session.on_end()
