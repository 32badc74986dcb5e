"""A drill's history: everything that was sent, acknowledged, read, done and observed, in order.

It is a file of JSON lines. The first line is the header, every other one an event. A verdict
is derived from a history alone, so it can be derived again anywhere (``stele drill check``).
Times are milliseconds since the drill began, by one monotonic clock.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, Literal, TypeVar

from stele.errors import SteleError

FORMAT: Final = 1

Phase = Literal["steady", "fault", "heal", "recovered", "failed", "end", "note"]
PHASES: Final = ("steady", "fault", "heal", "recovered", "failed", "end", "note")

FINAL: Final = "final"
"""The reader that reads everything at the end, when nothing is written any more."""
LIVE: Final = "live"
"""The reader that reads along during the drill."""


class HistoryError(SteleError):
    """A history file cannot be read. The text names the file, the line and the cause."""


@dataclass(frozen=True, slots=True)
class Expectations:
    """What must be true of a drill's history for its verdict to be green."""

    loses: bool = False
    """Acknowledged records must be lost: the drill shows a loss, and counts it. Otherwise none
    may be."""
    duplicates: bool = False
    """Records may be there twice, because the writer is not idempotent."""
    write_outage_ms: float | None = None
    """The longest time without an acknowledgement, in each partition, from the first fault on."""
    read_outage_ms: float | None = None
    """The longest time that an acknowledged record waited for its reader."""
    recovery_ms: float | None = None
    """From the last step that heals to the whole cluster: full ISRs, all nodes, acknowledgements
    in each partition."""
    refusal: str = ""
    """An error that a probing write must have been refused with during the fault."""
    elections: int = 0
    """The least number of elections of partitions. With fewer the fault has hit nobody."""
    elections_most: int | None = None
    """The most elections of partitions: nobody has to react to the fault."""
    quorum_elections: int = 0
    isr_least: int | None = None
    """The ISR of a partition must have shrunk to this size or less."""
    unclean_elections: int = 0
    """0: none may happen. Otherwise so many at least."""
    zombie: bool = False
    """Requests waited for a paused leader, and it must have acknowledged none of them."""
    chain: bool = False
    """Records went through a chain of transactions, and each must have come out once."""
    drain_ms: float | None = None
    """From the end of the writing until the last acknowledged record is out of the chain."""
    delivery_limit: int = 0
    """The share group that processes the topic delivers a record so often at most. 0: there is no
    such group."""
    group_outage_ms: float | None = None
    """The longest time in which a group processed nothing of a partition that had records."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a history is of. ``settings`` went to every node, ``topic_configs`` to the topic."""

    drill: str
    title: str
    expectations: Expectations
    partitions: int
    replication_factor: int
    brokers: tuple[int, ...]
    controllers: tuple[int, ...]
    cluster: str  # process or compose
    seed: int
    control: str = ""  # the negative control that was run instead of the drill itself
    settings: dict[str, str] = field(default_factory=dict)
    topic_configs: dict[str, str] = field(default_factory=dict)
    workload: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    began: str = ""  # the wall clock, in UTC
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class Sent:
    """A record was given to a producer. Producer, partition and number name it."""

    at_ms: float
    producer: str
    partition: int
    number: int


@dataclass(frozen=True, slots=True)
class Acked:
    """``offset`` is -1 where the broker did not tell it."""

    at_ms: float
    producer: str
    partition: int
    number: int
    offset: int


@dataclass(frozen=True, slots=True)
class Failed:
    """A record was given up. ``maybe_written``: it may nevertheless be in the log."""

    at_ms: float
    producer: str
    partition: int
    number: int
    error: str
    maybe_written: bool


@dataclass(frozen=True, slots=True)
class Read:
    at_ms: float
    reader: str
    partition: int
    offset: int
    producer: str
    number: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A member of the group committed an offset, which was acknowledged."""

    at_ms: float
    reader: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Step:
    """Something that the drill did, or a phase that it reached. ``nodes``: those concerned."""

    at_ms: float
    phase: Phase
    text: str
    nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionHistory:
    """A partition as the metadata have it. ``leader`` -1: none."""

    at_ms: float
    partition: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    unclean_elections: int


@dataclass(frozen=True, slots=True)
class QuorumState:
    """``leader`` -1: none is known."""

    at_ms: float
    leader: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Told:
    """What a client said about why it waits."""

    at_ms: float
    client: str
    text: str


@dataclass(frozen=True, slots=True)
class Zombie:
    """What became of requests that waited for a paused leader: ``outcome`` is NONE for an
    acknowledgement, else the error's name, or ``no answer``."""

    at_ms: float
    broker: int
    partition: int
    outcome: str


@dataclass(frozen=True, slots=True)
class Chained:
    """Records of the chain of transactions with numbers that follow one another. ``stage``: sent,
    acked or failed (maybe written) is what became of them at its beginning, out is its end.
    ``latency_ms``: at its end, the age of the oldest."""

    at_ms: float
    stage: str
    source: str
    partition: int
    first: int
    count: int
    latency_ms: float


@dataclass(frozen=True, slots=True)
class Delivered:
    """A worker of the share group has got a record. ``count``: its deliveries, as the leader says.
    ``asked_ms``: when the worker began to wait for records."""

    at_ms: float
    worker: str
    partition: int
    offset: int
    producer: str
    number: int
    count: int
    asked_ms: float


@dataclass(frozen=True, slots=True)
class Settled:
    """A worker's acknowledgement was answered. ``outcome``: ACCEPT or RELEASE, or the error's
    name."""

    at_ms: float
    worker: str
    partition: int
    offset: int
    outcome: str


@dataclass(frozen=True, slots=True)
class Hop:
    """A hop of the chain has ended a transaction. ``outcome``: committed, aborted, or again: its
    clients began anew."""

    at_ms: float
    hop: int
    outcome: str
    records: int
    took_ms: float
    why: str


Event = (
    Sent
    | Acked
    | Failed
    | Read
    | Committed
    | Step
    | PartitionHistory
    | QuorumState
    | Told
    | Zombie
    | Chained
    | Hop
    | Delivered
    | Settled
)

_KINDS: Final[dict[str, type[Event]]] = {
    "sent": Sent,
    "acked": Acked,
    "failed": Failed,
    "read": Read,
    "committed": Committed,
    "step": Step,
    "partition": PartitionHistory,
    "quorum": QuorumState,
    "told": Told,
    "zombie": Zombie,
    "chained": Chained,
    "hop": Hop,
    "delivered": Delivered,
    "settled": Settled,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}

EventT = TypeVar("EventT", bound=Event)


@dataclass(frozen=True, slots=True)
class History:
    """The whole of it. Events are in the order in which they were recorded."""

    header: Header
    events: tuple[Event, ...]

    def of(self, kind: type[EventT]) -> Iterator[EventT]:
        """The events of one kind, in order."""
        return (event for event in self.events if isinstance(event, kind))

    def steps(self, *phases: Phase) -> list[Step]:
        return [step for step in self.of(Step) if step.phase in phases]

    @property
    def first_fault_ms(self) -> float | None:
        return next((step.at_ms for step in self.steps("fault")), None)

    @property
    def end_ms(self) -> float:
        """When the workload ended. Without such a step: when the last event was recorded."""
        ended = [step.at_ms for step in self.steps("end")]
        return ended[0] if ended else max((each.at_ms for each in self.events), default=0.0)


# ----------------------------------------------------------------------------------- files


class HistoryWriter:
    """Appends events to a file as they happen, so that an aborted drill leaves its history."""

    def __init__(self, file: IO[str], header: Header) -> None:
        self._file = file
        self._write({"header": dataclasses.asdict(header)})

    def write(self, event: Event) -> None:
        self._write({"event": _NAMES[type(event)], **dataclasses.asdict(event)})

    def _write(self, line: object) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")


def write_history(history: History, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        writer = HistoryWriter(file, history.header)
        for event in history.events:
            writer.write(event)


def read_history(path: Path) -> History:
    """Raises HistoryError, or OSError."""
    with path.open(encoding="utf-8") as file:
        return parse_history(file, str(path))


def parse_history(lines: Iterable[str], name: str) -> History:
    """Raises HistoryError. ``name`` is how its text calls the file."""
    header: Header | None = None
    events: list[Event] = []
    try:
        for number, line in enumerate(lines, 1):
            try:
                parsed = json.loads(line)
                if header is None:
                    header = _header_of(parsed)
                else:
                    events.append(_event_of(parsed))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise HistoryError(
                    f"{name} is no history of a drill: line {number}: {_cause(error)}"
                ) from None
    except UnicodeDecodeError:
        raise HistoryError(f"{name} is no history of a drill: it is not text") from None
    if header is None:
        raise HistoryError(f"{name} is no history of a drill: it is empty")
    return History(header, tuple(events))


def _cause(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    return str(error)


def _header_of(parsed: Any) -> Header:
    fields = dict(parsed["header"])
    if fields.get("format") != FORMAT:
        raise ValueError(f"format {fields.get('format')!r} is not known, only {FORMAT}")
    fields["expectations"] = Expectations(**fields["expectations"])
    for name in ("brokers", "controllers"):
        fields[name] = tuple(fields[name])
    return Header(**fields)


def _event_of(parsed: Any) -> Event:
    name = parsed["event"]
    kind = _KINDS.get(name)
    if kind is None:
        raise ValueError(f"an event of kind {name!r} is not known")
    values = {key: value for key, value in parsed.items() if key != "event"}
    fields = {each.name: str(each.type) for each in dataclasses.fields(kind)}
    for key, value in values.items():
        if not _fits(value, fields.get(key, "")):
            raise ValueError(f"an event {name} with {key}={value!r}")
        if isinstance(value, list):
            values[key] = tuple(value)
    make: Callable[..., Event] = kind
    return make(**values)


def _fits(value: Any, annotation: str) -> bool:
    """Whether a value has the type that the field of an event is declared with."""
    if annotation == "Phase":
        return value in PHASES
    if annotation == "tuple[int, ...]":
        return isinstance(value, list) and all(_fits(each, "int") for each in value)
    if isinstance(value, bool):
        return annotation == "bool"
    if annotation == "float":
        return isinstance(value, int | float)
    return type(value).__name__ == annotation
