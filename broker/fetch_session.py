"""Incremental fetch sessions, server side (KIP-227). Only brokers get one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.types import FetchEntry, FetchResult, PartitionId

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1


@dataclass(slots=True)
class FetchContext:
    """One Fetch request seen through its session: what to read, and what to answer."""

    session_id: int
    entries: list[FetchEntry]

    def answer(self, results: list[FetchResult]) -> list[FetchResult]:
        """The results that go into the response; in a session unchanged partitions are left out."""
        raise NotImplementedError


class FetchSessions:
    """The sessions that this broker keeps for its followers."""

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
        raise NotImplementedError
