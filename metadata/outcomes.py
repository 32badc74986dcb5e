"""What requests with an id were answered: remembered by every image, so that none acts twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from immutables import Map

from metadata.records import MetadataError
from stele.wire.v1 import metadata_pb2 as pb

REQUEST_ID_BYTES = 16


class Limits(NamedTuple):
    """An image remembers at most so many outcomes, with at most so many bytes of replies. It always
    remembers the newest.

    All nodes must forget the same outcome at the same record, so other limits need a new level of
    metadata.version.
    """

    outcomes: int
    reply_bytes: int


FIRST_LIMITS: Final = Limits(1000, 1 << 20)
"""Below level 4 of metadata.version."""

LIMITS: Final = Limits(10_000, 16 << 20)

REPLY_BYTES_MAX: Final = 4 << 20
"""The longest reply that is remembered."""

REPEAT_MS: Final = 300_000
"""A request may be repeated for this time. Younger outcomes are never pushed out by others: the
controller takes no more requests meanwhile. ``Admin`` repeats for a minute by default."""


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """One decision: the answer to a request with that id."""

    request_id: bytes
    method: str
    digest: bytes  # of the request: another one must not use the id
    reply: bytes
    decided_ms: int = 0  # by the clock of the controller that decided; 0: not known


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Immutable. The oldest are forgotten first."""

    _by_id: Map[bytes, RequestOutcome] = field(default_factory=Map)
    _oldest_first: tuple[bytes, ...] = ()  # exactly the keys of `_by_id`
    _reply_bytes: int = 0  # the sum over `_by_id`

    def get(self, request_id: bytes) -> RequestOutcome | None:
        return self._by_id.get(request_id)

    def fit(self, limits: Limits) -> bool:
        return len(self) <= limits.outcomes and self._reply_bytes <= limits.reply_bytes

    def pushed_out_by(self, reply_bytes: int, limits: Limits) -> RequestOutcome | None:
        """The newest outcome that would be forgotten if one with such a reply came, None if none
        would be."""
        count, total = len(self) + 1, self._reply_bytes + reply_bytes
        newest = None
        for outcome in self:
            if count <= limits.outcomes and total <= limits.reply_bytes:
                break
            newest = outcome
            count, total = count - 1, total - len(outcome.reply)
        return newest

    def with_(self, outcome: RequestOutcome, limits: Limits = LIMITS) -> Outcomes:
        """The same and the newest outcome, without the oldest where there are too many.

        Raises ValueError when the id is remembered already.
        """
        if outcome.request_id in self._by_id:
            raise ValueError(f"the request {outcome.request_id.hex()} has an outcome already")
        by_id = self._by_id.set(outcome.request_id, outcome)
        oldest_first = (*self._oldest_first, outcome.request_id)
        reply_bytes = self._reply_bytes + len(outcome.reply)
        return Outcomes(by_id, oldest_first, reply_bytes).within(limits)

    def within(self, limits: Limits) -> Outcomes:
        """The newest outcomes that the limits allow."""
        by_id, reply_bytes, forgotten = self._by_id, self._reply_bytes, 0
        while len(by_id) > 1 and (len(by_id) > limits.outcomes or reply_bytes > limits.reply_bytes):
            oldest = by_id[self._oldest_first[forgotten]]
            by_id = by_id.delete(oldest.request_id)
            reply_bytes -= len(oldest.reply)
            forgotten += 1
        if not forgotten:
            return self
        return Outcomes(by_id, self._oldest_first[forgotten:], reply_bytes)

    def begin(self) -> OutcomesDelta:
        return OutcomesDelta(self)

    def records(self) -> Iterator[pb.MetadataRecord]:
        for outcome in self:
            remembered = pb.RequestOutcomeRecord(
                request_id=outcome.request_id,
                method=outcome.method,
                digest=outcome.digest,
                reply=outcome.reply,
                decided_ms=outcome.decided_ms,
            )
            yield pb.MetadataRecord(request_outcome=remembered)

    def __iter__(self) -> Iterator[RequestOutcome]:
        """Oldest first: added in this order they give an equal value."""
        return (self._by_id[request_id] for request_id in self._oldest_first)

    def __len__(self) -> int:
        return len(self._by_id)


NO_OUTCOMES = Outcomes()


class OutcomesDelta:
    """Decisions that are remembered."""

    def __init__(self, before: Outcomes) -> None:
        self._outcomes = before

    def replay(self, record: pb.RequestOutcomeRecord, limits: Limits) -> None:
        """Raises MetadataError."""
        outcome = RequestOutcome(
            record.request_id, record.method, record.digest, record.reply, record.decided_ms
        )
        try:
            self._outcomes = self._outcomes.with_(outcome, limits)
        except ValueError as error:
            raise MetadataError(str(error)) from None

    def keep_within(self, limits: Limits) -> None:
        self._outcomes = self._outcomes.within(limits)

    def clear(self) -> None:
        self._outcomes = NO_OUTCOMES

    def skip_to(self, after: Outcomes) -> None:
        self._outcomes = after

    def apply(self) -> Outcomes:
        return self._outcomes
