"""A Fetch that may belong to a session (KIP-227): what it names, and what its answer names."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from typing import Protocol

from broker.replication.fetch_query import FetchQuery
from broker.replication.fetch_session import INVALID_SESSION_ID
from broker.replication.types import FetchEntry, FetchResult
from broker.service.context import BrokerContext
from broker.service.fetch import Fetch
from broker.service.fetch_topics import FetchTopics, readable_topics
from runtime.authorization.authorizer import CLUSTER, Operation
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from storage.turns import SLICE_STEPS

logger = logging.getLogger(__name__)


class Translation(Protocol):
    """A plane's part: the request as values, and values as its answer. The generators yield between
    slices of the work."""

    def decode(
        self,
        topics: FetchTopics,
        entries: dict[PartitionId, FetchEntry],
        forgotten: list[PartitionId],
    ) -> Generator[None, None, None]:
        """Fill the two collections with what the request names."""
        ...

    def answer(
        self, topics: FetchTopics, session_id: int, results: list[FetchResult]
    ) -> Generator[None, None, None]:
        """Answer with these results."""
        ...

    def refuse(self, error: ErrorCode) -> None:
        """Answer the whole request with this."""
        ...


class SessionFetch:
    """One request. If it names many partitions, this works in slices before and after the reading.

    A broker proves to be one by its epoch. Its requests are worked on at once.
    """

    __slots__ = (
        "_caller",
        "_context",
        "_fetch",
        "_is_denied",
        "_is_over",
        "_is_proven",
        "_owner",
        "_query",
        "_session_epoch",
        "_session_id",
        "_topics",
        "_translation",
    )

    def __init__(
        self,
        context: BrokerContext,
        caller: Caller,
        query: FetchQuery,
        translation: Translation,
        *,
        owner: object,
        session_id: int,
        session_epoch: int,
        by_id: bool,
    ) -> None:
        """``query`` has neither entries nor a session: this object finds them. ``owner`` is the
        connection, to which a session belongs. ``by_id``: the request names topics by their ids."""
        self._context = context
        self._caller = caller
        self._query = query
        self._translation = translation
        self._owner = owner
        self._session_id = session_id
        self._session_epoch = session_epoch
        topics = readable_topics(context, caller, replica_id=query.replica_id)
        self._topics = FetchTopics(topics, by_id=by_id)
        # Denied: the request names a broker epoch, and its caller may not act as a broker.
        self._is_denied = self._is_proven = False
        if query.replica_epoch >= 0:
            registration = topics.image.broker(query.replica_id)
            self._is_denied = not context.authorizer.allows(
                caller, Operation.CLUSTER_ACTION, CLUSTER
            )
            self._is_proven = (
                not self._is_denied
                and registration is not None
                and registration.broker_epoch == query.replica_epoch
            )
        # Set only while this waits for its results. It refers back to this object. Such a circle
        # stays in memory until the collector runs, the whole answer included.
        self._fetch: Fetch | None = None
        self._is_over = False

    def start(self) -> None:
        self._work_off(self._begin())

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self._is_over = True
        if self._fetch is not None:
            self._fetch.cancel()

    def _work_off(self, work: Generator[None, None, None]) -> None:
        """A slice now, the others each in a turn of its own."""
        for _ in work:
            if not self._is_proven:
                asyncio.get_running_loop().call_soon(self._work_on, work)
                return

    def _work_on(self, work: Generator[None, None, None]) -> None:
        if self._is_over:
            return
        try:
            self._work_off(work)
        except Exception:
            logger.exception("a fetch of the client %r failed", self._caller.client_id)
            self._translation.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _begin(self) -> Generator[None, None, None]:
        """Find out what is asked for, and have it read."""
        topics, query = self._topics, self._query
        entries: dict[PartitionId, FetchEntry] = {}
        forgotten: list[PartitionId] = []
        yield from self._translation.decode(topics, entries, forgotten)
        if self._is_denied:
            self._context.sessions.forget(self._owner)  # opened while the caller was allowed
        named = list(entries.values())
        try:
            session = self._context.sessions.open(
                owner=self._owner,
                session_id=self._session_id,
                session_epoch=self._session_epoch,
                replica_id=query.replica_id,
                is_proven=self._is_proven,
                entries=named,
                forgotten=forgotten,
            )
        except ApiError as error:
            self._translation.refuse(error.code)
            return
        items: list[FetchEntry | FetchResult] = []
        if session is None:  # else the session knows what to read
            for entry in named:
                refusal = topics.refusal(entry.id)
                items.append(entry if refusal is None else FetchResult(entry.id, refusal))
                if not len(items) % SLICE_STEPS:
                    yield
        query.session = session
        self._fetch = Fetch(self._context, items, query, self._found)
        self._fetch.run()

    def _found(self, results: list[FetchResult]) -> None:
        self._fetch = None
        session, session_id = self._query.session, INVALID_SESSION_ID
        if session is not None:
            session_id, results = session.session_id, session.changed(results)
        self._work_off(self._translation.answer(self._topics, session_id, results))
