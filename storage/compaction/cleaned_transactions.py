"""The transactions of a log as a compaction goes through its batches, from its first one on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from operator import attrgetter

from stele.wire.batch import BatchHeader
from storage.txn_index import AbortedTransaction


class CleanedTransactions:
    """The batches of aborted transactions, and the transactions that still had batches when this
    round began. All transactions are decided: a compaction ends at the last stable offset."""

    __slots__ = ("_aborted", "_ahead", "_with_batches")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        # Those that begin above the last batch, in the order in which they begin.
        self._ahead = deque(sorted(aborted, key=attrgetter("first_offset")))
        self._aborted: dict[int, AbortedTransaction] = {}  # by producer; their markers are to come
        self._with_batches: set[int] = set()
        """The producers that have had batches since their last marker."""

    def _advance(self, header: BatchHeader) -> None:
        ahead = self._ahead
        while ahead and ahead[0].first_offset <= header.last_offset:
            entry = ahead.popleft()
            if entry.last_offset >= header.base_offset:  # else its end was passed over
                self._aborted[entry.producer_id] = entry

    def read(self, header: BatchHeader) -> bool:
        """The next batch of records. Returns whether its transaction was aborted."""
        self._advance(header)
        if not header.is_transactional:
            return False
        self._with_batches.add(header.producer_id)
        return header.producer_id in self._aborted

    def ended(self, header: BatchHeader) -> bool:
        """The next control batch. Returns whether it may be removed: the transaction that it ends
        had no batch left. Then the entry of an aborted transaction may be removed, too."""
        self._advance(header)
        if header.producer_id < 0:
            return False
        aborted = self._aborted.get(header.producer_id)
        if aborted is not None and aborted.last_offset <= header.last_offset:
            del self._aborted[header.producer_id]
        if header.producer_id in self._with_batches:
            self._with_batches.remove(header.producer_id)
            return False
        return True
