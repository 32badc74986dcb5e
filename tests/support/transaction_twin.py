"""What a transactional id should do, as its clients see it and without Kafka's fields.

It remembers who the client is, who it was before it got its present epoch, the open transaction,
and how the last one ended. It is slow, and knows nothing of records. ``version`` arguments are the
transaction version of a client or of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from stele.errors import ErrorCode
from stele.ids import TopicPartition

MOST = 32_766
"""The last epoch of a client."""

Pair = tuple[int, int]
Told = tuple[ErrorCode, Pair | None]

FENCED = (ErrorCode.PRODUCER_FENCED, None)
CONCURRENT = (ErrorCode.CONCURRENT_TRANSACTIONS, None)
BAD_STATE = (ErrorCode.INVALID_TXN_STATE, None)
UNMAPPED = (ErrorCode.INVALID_PRODUCER_ID_MAPPING, None)


@dataclass
class Open:
    """A transaction that is not over."""

    writer: Pair  # it has written the records
    partitions: set[TopicPartition]
    started_ms: int
    is_kept: bool = False
    # Since it was decided:
    commits: bool | None = None
    marker_epoch: int = -1
    marker_version: int = 0
    unmarked: set[TopicPartition] = field(default_factory=set)


@dataclass
class Twin:
    """One transactional id. ``level``: the cluster's ``transaction.version``."""

    level: int
    client: Pair | None = None
    former: Pair | None = None  # the same client before its last change of epoch
    transaction: Open | None = None
    ended: bool | None = None  # how the last transaction ended, while it is known
    timeout_ms: int | None = 0  # None: of a two-phase commit

    # ------------------------------------------------------------------ helpers

    def _after(self, pair: Pair, fresh: int) -> Pair:
        return (pair[0], pair[1] + 1) if pair[1] < MOST else (fresh, 0)

    def _wrote(self) -> None:
        """A record was written. Old ones do not hold who the client was."""
        is_kept = self.transaction is not None and self.transaction.is_kept
        if self.level == 0 and not is_kept:
            self.former = None

    @property
    def is_deciding(self) -> bool:
        return self.transaction is not None and self.transaction.commits is not None

    @property
    def deadline_ms(self) -> float:
        """When the coordinator aborts the open transaction."""
        if self.transaction is None or self.is_deciding or self.timeout_ms is None:
            return float("inf")
        return self.transaction.started_ms + self.timeout_ms

    def _is_client(self, pair: Pair | None) -> bool:
        return pair == self.client and pair is not None and pair[1] <= MOST

    def _names(self) -> set[int]:
        """The producer ids that are known."""
        names = set() if self.client is None else {self.client[0]}
        if self.transaction is not None:
            names.add(self.transaction.writer[0])
        return names

    def _stranger(self, pair: Pair) -> Told:
        return FENCED if pair[0] in self._names() else UNMAPPED

    def _decide(self, *, commits: bool, bumps: bool, version: int) -> None:
        transaction = self.transaction
        assert transaction is not None
        transaction.commits = commits
        transaction.marker_epoch = transaction.writer[1] + bumps
        transaction.marker_version = version
        transaction.unmarked = set(transaction.partitions)

    def abort(self) -> None:
        """The coordinator aborts the open transaction."""
        assert self.transaction is not None
        assert self.client is not None
        version = 2 if self.level >= 2 else 0
        self._decide(commits=False, bumps=True, version=version)
        self.former = self.client if version == 2 else None
        self.client = (self.client[0], min(self.client[1] + 1, MOST + 1))
        self._wrote()

    # ------------------------------------------------------------------ requests

    def forget(self) -> ErrorCode:
        """Nobody will use it again."""
        if self.is_deciding:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if self.transaction is not None:
            return ErrorCode.INVALID_TXN_STATE
        self.client = self.former = self.ended = None
        return ErrorCode.NONE

    def init(
        self, expected: Pair | None, *, keeps: bool, timeout_ms: int | None, fresh: int
    ) -> tuple[Told, Pair | None]:
        """The answer, and the pair of the transaction that is kept."""
        if keeps and expected is not None:
            return (ErrorCode.INVALID_REQUEST, None), None
        if self.client is None:
            self.client, self.former, self.timeout_ms = (fresh, 0), None, timeout_ms
            self._wrote()
            return (ErrorCode.NONE, self.client), None
        if expected is not None and not self._is_client(expected) and expected != self.former:
            return FENCED, None
        if self.is_deciding:
            return CONCURRENT, None
        if self.transaction is not None:
            return self._init_while_open(expected, keeps=keeps, fresh=fresh)
        again = expected is not None and expected == self.former and self.client[1] <= MOST
        if not again:
            self.former = self.client if expected == self.client else expected
            self.client = self._after(self.client, fresh)
        self.timeout_ms = timeout_ms
        if not keeps:
            self.ended = None
        self._wrote()
        return (ErrorCode.NONE, self.client), None

    def _init_while_open(
        self, expected: Pair | None, *, keeps: bool, fresh: int
    ) -> tuple[Told, Pair | None]:
        transaction = self.transaction
        assert transaction is not None
        assert self.client is not None
        if keeps:
            if self.timeout_ms is not None:
                return BAD_STATE, None
            self.client = self._after(self.client, fresh)
            self.former = None
            transaction.is_kept = True
            return (ErrorCode.NONE, self.client), transaction.writer
        if expected is not None and not self._is_client(expected):
            return FENCED, None
        self.abort()
        return CONCURRENT, None

    def add(
        self, pair: Pair, partitions: Iterable[TopicPartition], now_ms: int, *, verifies: bool
    ) -> ErrorCode | list[ErrorCode]:
        partitions = list(partitions)
        if self.client is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        transaction = self.transaction
        if transaction is not None and transaction.is_kept and not self.is_deciding:
            if self._is_client(pair):
                return ErrorCode.INVALID_TXN_STATE
            return self._stranger(pair)[0]
        if not self._is_client(pair):
            is_named = pair[0] == self.client[0]
            return (FENCED if is_named else UNMAPPED)[0]
        if self.is_deciding:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        present = set() if transaction is None else transaction.partitions
        if verifies:
            return [
                ErrorCode.NONE if each in present else ErrorCode.TRANSACTION_ABORTABLE
                for each in partitions
            ]
        if set(partitions) - present:
            if transaction is None:
                transaction = self.transaction = Open(self.client, set(), now_ms)
                self.ended = None
            transaction.partitions.update(partitions)
            self._wrote()
        return [ErrorCode.NONE] * len(partitions)

    def end(self, pair: Pair, *, commits: bool, version: int, fresh: int) -> Told:
        if self.client is None:
            return UNMAPPED
        is_open = self.transaction is not None and not self.is_deciding
        if version == 2 and pair == self.former and pair != self.client:
            if self.is_deciding:
                assert self.transaction is not None
                return CONCURRENT if self.transaction.commits == commits else BAD_STATE
            if not is_open and self.ended is not None:
                if self.ended is not commits:
                    return BAD_STATE
                if self.client[1] > MOST:
                    self.client = (fresh, 0)
                    self._wrote()
                return ErrorCode.NONE, self.client
        if not self._is_client(pair):
            return self._stranger(pair)
        if is_open:
            return self._end_open(commits=commits, version=version, fresh=fresh)
        if version == 2:
            return self._end_nothing(commits=commits, fresh=fresh)
        outcome = self.transaction.commits if self.transaction is not None else self.ended
        if outcome is None or outcome is not commits:
            return BAD_STATE
        return CONCURRENT if self.is_deciding else (ErrorCode.NONE, None)

    def _end_open(self, *, commits: bool, version: int, fresh: int) -> Told:
        assert self.transaction is not None
        assert self.client is not None
        is_kept = self.transaction.is_kept
        self._decide(commits=commits, bumps=version == 2 or is_kept, version=version)
        if version == 2:
            self.former, self.client = self.client, self._after(self.client, fresh)
            # A fresh producer id is recorded, also in old clusters, and the former one with it.
            if self.client[0] == self.former[0]:
                self._wrote()
            return ErrorCode.NONE, self.client
        self._wrote()
        return ErrorCode.NONE, None

    def _end_nothing(self, *, commits: bool, fresh: int) -> Told:
        assert self.client is not None
        if self.is_deciding:
            return CONCURRENT
        if commits:
            if self.timeout_ms is None and self.ended is True:
                return ErrorCode.NONE, self.client
            return BAD_STATE
        self.former, self.client = self.client, self._after(self.client, fresh)
        self.ended = False
        self._wrote()
        return ErrorCode.NONE, self.client

    # ------------------------------------------------------------------ markers

    def marked(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether these are the last markers, so that the end is recorded."""
        transaction = self.transaction
        assert transaction is not None
        transaction.unmarked -= set(partitions)
        return not transaction.unmarked

    def complete(self) -> None:
        assert self.transaction is not None
        self.ended = self.transaction.commits
        self.transaction = None
        self._wrote()

    @property
    def state(self) -> str:
        if self.client is None:
            return "none"
        if self.transaction is None:
            if self.ended is None:
                return "Empty"
            return "CompleteCommit" if self.ended else "CompleteAbort"
        if self.transaction.commits is None:
            return "Ongoing"
        return "PrepareCommit" if self.transaction.commits else "PrepareAbort"

    @property
    def told_pair(self) -> Pair | None:
        """The producer id and epoch that are described."""
        if self.transaction is None:
            return self.client
        if self.transaction.commits is None:
            return self.transaction.writer
        return self.transaction.writer[0], self.transaction.marker_epoch
