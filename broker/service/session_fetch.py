"""A Fetch that may belong to a session (KIP-227): the partitions of its request and of its
answer."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Generator

from broker.replication.fetch_session import INVALID_SESSION_ID
from broker.replication.fetch_waiting import WaitingFetch
from broker.replication.types import FetchEntry, FetchResult
from broker.service.context import BrokerContext
from broker.service.fetch_topics import FetchTopics, readable_topics
from runtime.authorization.authorizer import CLUSTER, Operation
from runtime.authorization.caller import Caller
from runtime.authorization.node_identity import check_name
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from storage.turns import SLICE_STEPS

logger = logging.getLogger(__name__)


class SessionFetch(WaitingFetch):
    """One request. If it names many partitions, this works in slices before and after the reading.

    A broker proves to be one by its epoch. Its requests are worked on at once.
    """

    __slots__ = (
        "_caller",
        "_context",
        "_is_denied",
        "_is_over",
        "_is_proven",
        "_owner",
        "_session_epoch",
        "_session_id",
        "topics",
    )

    def __init__(
        self,
        context: BrokerContext,
        caller: Caller,
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        replica_id: int,
        replica_epoch: int,
        read_committed: bool,
        any_replica: bool,
        nearby: frozenset[int],
        owner: object,
        session_id: int,
        session_epoch: int,
        by_id: bool,
    ) -> None:
        """``owner`` is the connection, to which a session belongs. ``by_id``: the request names
        topics by their ids. Raises ApiError CLUSTER_AUTHORIZATION_FAILED for a fetch in the name of
        another broker than that of the caller's certificate."""
        super().__init__(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            replica_id=replica_id,
            replica_epoch=replica_epoch,
            read_committed=read_committed,
            any_replica=any_replica,
            nearby=nearby,
        )
        if replica_id >= 0:
            check_name(context.authorizer, caller, replica_id)
        self._context = context
        self._caller = caller
        self._owner = owner
        self._session_id = session_id
        self._session_epoch = session_epoch
        topics = readable_topics(context, caller, replica_id=replica_id)
        self.topics = FetchTopics(topics, by_id=by_id)
        # Denied: the request names a broker epoch, and its caller may not act as a broker.
        self._is_denied = self._is_proven = False
        if replica_epoch >= 0:
            registration = topics.image.broker(replica_id)
            self._is_denied = not context.authorizer.allows(
                caller, Operation.CLUSTER_ACTION, CLUSTER
            )
            self._is_proven = (
                not self._is_denied
                and registration is not None
                and registration.broker_epoch == replica_epoch
            )
        self._is_over = False  # no client waits for the answer any more

    # ------------------------------------------------------------- the plane's part

    @abstractmethod
    def decode(
        self, entries: dict[PartitionId, FetchEntry], forgotten: list[PartitionId]
    ) -> Generator[None, None, None]:
        """Fill the two collections with what the request names. Yields between slices of the
        work."""

    @abstractmethod
    def encode(self, session_id: int, results: list[FetchResult]) -> Generator[None, None, None]:
        """Answer with these results. Yields between slices of the work."""

    @abstractmethod
    def refuse(self, error: ErrorCode) -> Generator[None, None, None]:
        """Answer the whole request with this. Yields between slices of the work."""

    # -------------------------------------------------------------------------------

    def start(self) -> None:
        self._work_off(self._begin())

    def cancel(self) -> None:
        """No client waits for it any more."""
        self._is_over = True
        self._context.replicas.fetch.withdraw(self)

    def answer(self, results: list[FetchResult]) -> None:
        session, session_id = self.session, INVALID_SESSION_ID
        if session is not None:
            session_id, results = session.session_id, session.changed(results)
        self._work_off(self.encode(session_id, results))

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
            self._work_off(self.refuse(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _begin(self) -> Generator[None, None, None]:
        """Find the requested partitions, and have them read."""
        entries: dict[PartitionId, FetchEntry] = {}
        forgotten: list[PartitionId] = []
        yield from self.decode(entries, forgotten)
        if self._is_denied:
            self._context.sessions.forget(self._owner)  # opened while the caller was allowed
        named = list(entries.values())
        try:
            self.session = self._context.sessions.open(
                owner=self._owner,
                session_id=self._session_id,
                session_epoch=self._session_epoch,
                replica_id=self.replica_id,
                is_proven=self._is_proven,
                entries=named,
                forgotten=forgotten,
            )
        except ApiError as error:
            yield from self.refuse(error.code)
            return
        if self.session is None:  # else the session knows what to read
            items: list[FetchEntry | FetchResult] = []
            for entry in named:
                refusal = self.topics.refusal(entry.id)
                items.append(entry if refusal is None else FetchResult(entry.id, refusal))
                if not len(items) % SLICE_STEPS:
                    yield
            self.ask(items)
        self._context.replicas.fetch.begin(self)
