"""The markers that end transactions in partitions that are led here, by order of coordinators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.replication.produce import ProduceRequests
from broker.replication.types import Marker
from stele.errors import ApiError, ErrorCode

Done = Callable[[list[ErrorCode]], None]


class _Writing:
    """Markers that are not all committed yet."""

    __slots__ = ("_done", "_open", "errors")

    def __init__(self, count: int, done: Done) -> None:
        self.errors = [ErrorCode.NONE] * count
        self._open = count + 1  # one more while they are being appended
        self._done = done

    def settle(self) -> None:
        self._open -= 1
        if not self._open:
            self._done(self.errors)


class _Token:
    """One marker that waits to be committed."""

    __slots__ = ("_at", "_lease_valid", "_writing")

    def __init__(self, writing: _Writing, at: int, lease_valid: Callable[[], bool]) -> None:
        self._writing = writing
        self._at = at
        self._lease_valid = lease_valid

    def acknowledge(self) -> None:
        # A leader that may have been replaced acknowledges nothing.
        self.refuse(ErrorCode.NONE if self._lease_valid() else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def refuse(self, error: ErrorCode) -> None:
        self._writing.errors[self._at] = error
        self._writing.settle()


class MarkerRequests:
    """Appends markers by the one append path, as acks=all."""

    def __init__(self, produce: ProduceRequests, lease_valid: Callable[[], bool]) -> None:
        self._produce = produce
        self._lease_valid = lease_valid

    def write(self, markers: Sequence[Marker], done: Done) -> None:
        """``done`` gets an error for each, in order, when all are committed or refused.

        NONE also for a marker that was written before. INVALID_PRODUCER_EPOCH: the log knows a
        later epoch of the producer, so the transaction was ended. TRANSACTION_COORDINATOR_FENCED: a
        later coordinator has written a marker. After other errors it may be asked again.
        """
        writing = _Writing(len(markers), done)
        for at, marker in enumerate(markers):
            token = _Token(writing, at, self._lease_valid)
            try:
                self._produce.append_marker(marker, token)
            except ApiError as error:
                token.refuse(error.code)
        writing.settle()
