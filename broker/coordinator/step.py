"""The step that a coordinator's machine makes of an event, and the interface of such a machine.

A coordinator is a state machine that a partition of an internal topic hosts: everything that must
outlive the broker is a record of that partition. One rule keeps the machine and its log the same:
**a step that has records changes nothing by itself**. The runtime appends its records and then has
the machine ``replay`` them, exactly as it does when it loads the partition. So a record that the
log refuses has changed nothing, and nothing is ever undone. A step without records may change state
that is in no record: the waiting requests, the end of a session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from stele.errors import ErrorCode

A = TypeVar("A")

STEP_BYTES: Final = 16 * 1024
"""Work that can be divided makes about so many bytes of records in one step, which takes some
milliseconds and fits into every batch."""


class Request(Generic[A]):
    """A request to a coordinator, as a value; ``A`` is the answer of its machine."""

    __slots__ = ()


class Waiter(Protocol):
    """The caller of one request. It gets exactly one answer, by one of the two methods.

    The client may be gone by then, and the answer is lost. A machine keeps waiters and hands them
    back with replies; it calls neither method. If it fails at a request whose waiter it has kept,
    the waiter is answered twice, and the first answer counts.
    """

    def answer(self, answer: Any) -> None:
        """What the machine says, which may also be an error."""
        ...

    def refuse(self, error: ErrorCode) -> None:
        """The request came to nothing: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE and the like."""
        ...


class Now(NamedTuple):
    """The time of an event."""

    monotonic_ms: float
    """For time-outs: it never goes back, and means nothing in another process."""
    time_ms: int
    """The wall clock, for what records keep."""


class KeyValue(NamedTuple):
    """One record of the internal topic; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


class Producer(NamedTuple):
    """The writer of a transaction."""

    id: int
    epoch: int


class Transaction(NamedTuple):
    """A transaction that records are to be part of."""

    transactional_id: str
    producer: Producer
    adds: bool
    """Whether the partition is added to the transaction if it is not part of it yet (KIP-890).
    Else the producer has added it before."""


class Reply(NamedTuple):
    """An answer and its waiter."""

    waiter: Waiter
    answer: Any
    after: int = -1
    """It leaves when all records below this offset are committed, since it says something that
    they made true. It waits for the records of its own step in any case."""


@dataclass(slots=True)
class Step:
    """The consequences of an event. Its records are one batch: all of them are kept, or none.

    If the log refuses the records, the runtime refuses the request that the step belongs to and
    drops the step, and the machine is as before. If the records are appended but cannot be
    committed, the runtime refuses the waiters of all replies of the step, and the machine agrees
    with its log.
    """

    records: list[KeyValue] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    too_large: ErrorCode = ErrorCode.RECORD_LIST_TOO_LARGE
    """The refusal if no batch can hold the records."""
    instead: Callable[[], Step] | None = None
    """The step to take if no batch can hold the records. None: the request is only refused."""
    headroom: int = 0
    """Bytes for which a batch must have room beside the records. What these records begin can end
    only by records that are as much larger."""
    producer: Producer | None = None
    """The records are part of this producer's open transaction. If it has none in the log, and its
    coordinator has not confirmed one, the log refuses them."""


def told(waiter: Waiter, answer: object, after: int = -1) -> Step:
    """A step that only answers."""
    return Step(replies=[Reply(waiter, answer, after)])


class Machine(Protocol):
    """The state machine that a partition of an internal topic hosts. Pure: no clock, no IO, no
    randomness of its own.

    Life: ``replay`` for every record of the log (``replay_pending`` and ``end_transaction`` for
    those of transactions), ``loaded``, then events in any order; at the end ``unloaded``.
    """

    def take(self, request: Any, waiter: Waiter, now: Now) -> Step:
        """Decide a ``Request``. Its type says which decision it asks for."""
        ...

    def note(self, news: Any, now: Now) -> None:
        """Take note of something that has happened elsewhere. News makes no records now, but may
        set a deadline for that."""
        ...

    def replay(self, offset: int, record: KeyValue, now: Now) -> None:
        """Make the change of a record. Offsets rise; compaction may leave some out.

        Raises ValueError if the record is not one of this machine's. It is then skipped.
        """
        ...

    def replay_pending(self, offset: int, record: KeyValue, producer_id: int, now: Now) -> None:
        """A record of a transaction that is not over. It counts when the transaction is committed.

        Raises ValueError as ``replay``.
        """
        ...

    def end_transaction(self, offset: int, producer_id: int, *, commits: bool, now: Now) -> None:
        """The marker at the offset ends the producer's transaction: its pending records count from
        now on, or never. There may be none. Markers come at any time, also between the last record
        of a load and ``loaded``."""
        ...

    def loaded(self, now: Now) -> Step:
        """The log has been read to its end. Sessions begin anew: members get their whole time.

        It is called again later if the records of the step are refused.
        """
        ...

    def committed(self, high_watermark: int) -> None:
        """Everything below the offset is committed, and clients may see it. During a load, this may
        include records that are not replayed yet."""
        ...

    @property
    def deadline_ms(self) -> float | None:
        """When ``tick`` is to be called, by the monotonic clock; None: nothing waits for time."""
        ...

    def tick(self, now: Now) -> Step:
        """Handle one deadline. If another one has passed too, ``deadline_ms`` says so.

        If the records of the step are refused, nothing has changed: it is called again later.
        """
        ...

    def put_off(self, until_ms: float, now: Now) -> str:
        """The step of the deadline that ``tick`` was called for cannot be made. That deadline comes
        again at this time, by the monotonic clock. Returns its purpose, for the log."""
        ...

    def unloaded(self) -> list[Waiter]:
        """This broker leads the partition no more. Returns all waiters."""
        ...


Decide = Callable[[Any, Waiter, Now], Step]
"""What decides the requests of one type."""

Decisions = Mapping[type[Request[Any]], Decide]
"""What decides requests, by their type."""
