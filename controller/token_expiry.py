"""When the active controller removes expired delegation tokens. Pure.

An expired token is of no use to anybody, whether it is removed or not. So tokens are removed from
time to time, several at once. A heap knows which, so that no check looks at every token.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Final

from metadata.delegation_tokens import DelegationTokens
from stele.wire.v1 import metadata_pb2 as pb

REMOVED_AT_ONCE: Final = 1000
"""The most removals of one decision. What is left goes with the next turn of the event loop."""

_SLACK: Final = 1000
"""So many entries more than twice the tokens may be in the heap. Otherwise a client that renews a
token again and again would fill the memory."""


class TokenExpiry:
    """The tokens by their expiry, and the time of the next check in seconds of the monotonic clock.

    An entry whose token was renewed or removed meanwhile stays until its time. The decision looks
    at the token itself (``controller.delegation_tokens.remove_expired``).
    """

    def __init__(self, interval_ms: int) -> None:
        self._interval_s = interval_ms / 1000
        self._heap: list[tuple[int, str]] = []  # expiry since the Unix epoch, token id
        self._tokens = DelegationTokens()  # as the heap knows them
        self._checked_s = 0.0

    def claimed(self, now_s: float, tokens: DelegationTokens) -> None:
        """This node has become the active controller: nobody else changes tokens from now on."""
        self._tokens = tokens
        self._fill(tokens)
        self._checked_s = now_s

    def _fill(self, tokens: DelegationTokens) -> None:
        self._heap = [(each.expiry_ms, each.token_id) for each in tokens.values()]
        heapq.heapify(self._heap)

    @property
    def entries(self) -> int:
        """How many there are, those of earlier expiries included."""
        return len(self._heap)

    def resigned(self) -> None:
        self._heap = []
        self._tokens = DelegationTokens()

    def decided(
        self, now_s: float, tokens: DelegationTokens, records: Iterable[pb.MetadataRecord]
    ) -> None:
        """Take in the records of a decision, and the tokens after it."""
        if tokens is self._tokens:
            return
        self._tokens = tokens
        for record in records:
            if record.HasField("delegation_token"):
                if not self._heap:
                    self._checked_s = now_s
                token = record.delegation_token
                heapq.heappush(self._heap, (token.expiry_ms, token.token_id))
        if len(self._heap) > 2 * len(tokens) + _SLACK:
            self._fill(tokens)

    def deadline(self) -> float | None:
        """When the next check is due; None: there is nothing that could expire."""
        return self._checked_s + self._interval_s if self._heap else None

    def take_due(self, now_s: float, now_ms: int) -> Sequence[str]:
        """The tokens that may have expired, by id; none before the next check is due."""
        deadline = self.deadline()
        if deadline is None or now_s < deadline:
            return ()
        due: dict[str, None] = {}
        while self._heap and self._heap[0][0] < now_ms and len(due) < REMOVED_AT_ONCE:
            due[heapq.heappop(self._heap)[1]] = None
        if len(due) < REMOVED_AT_ONCE:
            self._checked_s = now_s
        return tuple(due)

    def put_back(self, now_s: float, now_ms: int, token_ids: Iterable[str]) -> None:
        """These tokens could not be removed. They are tried again after the interval."""
        for token_id in token_ids:
            heapq.heappush(self._heap, (now_ms, token_id))
        self._checked_s = now_s
