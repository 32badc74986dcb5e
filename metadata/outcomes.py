"""What requests with an id were answered: remembered by every image, so that none acts twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from immutables import Map

from metadata.records import MetadataError
from stele.wire.v1 import metadata_pb2 as pb

REQUEST_ID_BYTES = 16

OUTCOMES_MAX = 1000
OUTCOME_BYTES_MAX = 1 << 20
"""An image remembers at most so many outcomes, with at most so many bytes of replies. It always
remembers the newest.

All nodes must forget the same outcome at the same record, so changing a limit needs a new level of
metadata.version.
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One decision: what a request with that id was answered."""

    request_id: bytes
    method: str
    digest: bytes  # of the request: another one must not use the id
    reply: bytes


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Immutable. The oldest are forgotten first."""

    _by_id: Map[bytes, Outcome] = field(default_factory=Map)
    _oldest_first: tuple[bytes, ...] = ()  # exactly the keys of `_by_id`
    _reply_bytes: int = 0  # the sum over `_by_id`

    def get(self, request_id: bytes) -> Outcome | None:
        return self._by_id.get(request_id)

    def with_(self, outcome: Outcome) -> Outcomes:
        """The same and the newest outcome, without the oldest where there are too many.

        Raises ValueError when the id is remembered already.
        """
        if outcome.request_id in self._by_id:
            raise ValueError(f"the request {outcome.request_id.hex()} has an outcome already")
        by_id = self._by_id.set(outcome.request_id, outcome)
        oldest_first = (*self._oldest_first, outcome.request_id)
        reply_bytes = self._reply_bytes + len(outcome.reply)
        forgotten = 0
        while len(by_id) > 1 and (len(by_id) > OUTCOMES_MAX or reply_bytes > OUTCOME_BYTES_MAX):
            oldest = by_id[oldest_first[forgotten]]
            by_id = by_id.delete(oldest.request_id)
            reply_bytes -= len(oldest.reply)
            forgotten += 1
        return Outcomes(by_id, oldest_first[forgotten:], reply_bytes)

    def begin(self) -> OutcomesDelta:
        return OutcomesDelta(self)

    def records(self) -> Iterator[pb.MetadataRecord]:
        for outcome in self:
            remembered = pb.RequestOutcomeRecord(
                request_id=outcome.request_id,
                method=outcome.method,
                digest=outcome.digest,
                reply=outcome.reply,
            )
            yield pb.MetadataRecord(request_outcome=remembered)

    def __iter__(self) -> Iterator[Outcome]:
        """Oldest first: added in this order they give an equal value."""
        return (self._by_id[request_id] for request_id in self._oldest_first)

    def __len__(self) -> int:
        return len(self._by_id)


NO_OUTCOMES = Outcomes()


class OutcomesDelta:
    """Decisions that are remembered."""

    def __init__(self, before: Outcomes) -> None:
        self._outcomes = before

    def replay(self, record: pb.RequestOutcomeRecord) -> None:
        """Raises MetadataError."""
        outcome = Outcome(record.request_id, record.method, record.digest, record.reply)
        try:
            self._outcomes = self._outcomes.with_(outcome)
        except ValueError as error:
            raise MetadataError(str(error)) from None

    def clear(self) -> None:
        self._outcomes = NO_OUTCOMES

    def skip_to(self, after: Outcomes) -> None:
        self._outcomes = after

    def apply(self) -> Outcomes:
        return self._outcomes
