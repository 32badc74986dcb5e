"""The share session of one member with one partition leader, without network and time (KIP-932).

A caller carries out ``next_request``, one at a time, and passes on the answer or its loss. The
session belongs to one connection: when that is lost, the broker gives the records of the session to
others.

- Every record that the leader has given is held until a decision about it, or until its lock ends.
- A decision is settled once: by the leader's answer, the loss of the session, or the end of the
  lock. ``take_outcomes`` returns the settled ones.
- A broker takes the acknowledgements of a partition all or none. So what is past its lock by the
  member's clock is not sent, and renewals go in a request of their own. Decisions that were refused
  together are sent again in smaller groups, so that those that are in order count.
- Requests of a session are in the order of its epochs: an acknowledgement waits for the answer to
  the fetch before it. So a fetch waits briefly where an acknowledgement may follow, and not at all
  if it carries some.
"""

from __future__ import annotations

import enum
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.records import AcknowledgeType

OPENS: Final = 0
ENDS: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
NEVER: Final = float("inf")

GAP: Final = 0
"""An acknowledge type of the protocol that is no application's."""

LOST_LEADERSHIP: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""After these the leader does not know the member's records any more. After other errors that are
retriable, such as a share coordinator that moves, the member still has them."""

_RETRY_S: Final = 0.1
"""The pause before an acknowledgement is sent again that the leader could not persist."""

_HELD_WAIT_S: Final = 0.1
"""The longest wait of a fetch while the member has records that it may acknowledge."""

_LEAST_LOCK_S: Final = 1.0
"""The shortest lock that brokers allow by their defaults, until an answer says how long it is."""

_SPLITS_MAX: Final = 32
"""How often the decisions of a refused request are split. One bad decision among 500 takes 9
splits. Where all are bad, splitting to the end would take a request for each of them."""


class Kind(enum.Enum):
    FETCH = "ShareFetch"
    ACKNOWLEDGE = "ShareAcknowledge"


class AcknowledgedRange(NamedTuple):
    """One acknowledge type for the offsets from ``first`` to ``last``."""

    first: int
    last: int
    type: int


@dataclass(slots=True, eq=False)
class Delivery:
    """Records of one partition that one answer has brought, and that share a lock."""

    partition: PartitionId
    until_s: float  # when the lock ends
    lock_s: float
    renew_until_s: float
    """The lock is not renewed from then on. Each hand-out moves it."""
    offsets: dict[int, None] = field(default_factory=dict)
    """Offsets without a decision."""
    is_renewable: bool = True
    is_apart: bool = False
    """A renewal together with other deliveries was refused, so it is renewed alone."""
    renewals: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """By offset: the numbers of the renewals that the application awaits."""

    @property
    def renew_at_s(self) -> float:
        """Half of the lock is left for an answer that takes long, and for another attempt."""
        if self.renewals and self.offsets and self.is_renewable:
            return 0.0
        at_s = self.until_s - self.lock_s / 2
        return at_s if self.offsets and self.is_renewable and at_s < self.renew_until_s else NEVER


class Decision(NamedTuple):
    number: int  # -1: nobody waits for its outcome
    type: int
    until_s: float  # when the lock of the record ends
    delivery: Delivery


class Outcome(NamedTuple):
    """What became of decisions about records of one partition, or of renewals that the application
    has asked for. ``error`` None: they count."""

    partition: PartitionId
    numbers: tuple[int, ...]
    offsets: tuple[int, ...]
    error: ApiError | None
    is_renewal: bool = False


Decisions = dict[int, Decision]  # by offset, of one partition


@dataclass(slots=True, eq=False)
class _Refused:
    """Decisions that the leader has refused together, in groups to send apart."""

    groups: deque[Decisions]
    splits_left: int = _SPLITS_MAX


@dataclass(slots=True, eq=False)
class SessionRequest:
    kind: Kind
    epoch: int
    decisions: dict[PartitionId, Decisions] = field(default_factory=dict)
    renewed: list[Delivery] = field(default_factory=list)
    added: list[PartitionId] = field(default_factory=list)
    forgotten: list[PartitionId] = field(default_factory=list)

    @property
    def acknowledged(self) -> dict[PartitionId, list[AcknowledgedRange]]:
        """By partition, in ascending order."""
        types: dict[PartitionId, dict[int, int]] = {}
        for partition, decisions in self.decisions.items():
            types[partition] = {offset: each.type for offset, each in decisions.items()}
        for delivery in self.renewed:
            renewed = dict.fromkeys(delivery.offsets, int(AcknowledgeType.RENEW))
            types.setdefault(delivery.partition, {}).update(renewed)
        return {partition: ranges_of(each) for partition, each in types.items()}


def ranges_of(types: Mapping[int, int]) -> list[AcknowledgedRange]:
    """The runs of neighbouring offsets with the same type."""
    ranges: list[AcknowledgedRange] = []
    for offset in sorted(types):
        last = ranges[-1] if ranges else None
        if last is not None and last.last == offset - 1 and last.type == types[offset]:
            ranges[-1] = last._replace(last=offset)
        else:
            ranges.append(AcknowledgedRange(offset, offset, types[offset]))
    return ranges


class ShareSession:
    """``patience_s``: how long after their hand-out records are renewed."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._epoch = OPENS
        self._wanted: dict[PartitionId, None] = {}
        self._known: dict[PartitionId, None] = {}  # the partitions of the broker's session
        self._held: dict[tuple[PartitionId, int], Delivery] = {}
        self._deliveries: list[Delivery] = []
        self._queue: dict[PartitionId, Decisions] = {}
        self._refused: dict[PartitionId, _Refused] = {}
        self._sent: SessionRequest | None = None
        self._retry_at_s = 0.0
        self._outcomes: list[Outcome] = []
        self._lock_s = _LEAST_LOCK_S  # as of the last answer
        self.can_renew = True  # the broker speaks a version with renewals (KIP-1222)

    # ------------------------------------------------------------------------- looking

    @property
    def is_open(self) -> bool:
        return self._epoch != OPENS

    @property
    def is_idle(self) -> bool:
        """Whether the member has nothing to do with this leader."""
        return not (self._wanted or self._held or self.has_decisions or self._sent)

    @property
    def has_decisions(self) -> bool:
        """Whether there are decisions that were not sent."""
        return bool(self._queue or self._refused)

    @property
    def awaits_records(self) -> bool:
        """Whether a fetch is under way that carries no decision."""
        sent = self._sent
        return sent is not None and sent.kind is Kind.FETCH and not sent.decisions

    @property
    def longest_wait_s(self) -> float:
        """How long a fetch may wait for records. Acknowledgements and renewals wait behind it. The
        lock of a record may have begun when the fetch was sent: most of it is left to the
        application."""
        of_lock_s = self._lock_s / 4
        is_held = self.has_decisions or any(each.offsets for each in self._deliveries)
        return min(_HELD_WAIT_S, of_lock_s) if is_held else of_lock_s

    def held_partitions(self) -> list[PartitionId]:
        return list(dict.fromkeys(each.partition for each in self._deliveries if each.offsets))

    def holds(self, delivery: Delivery, offset: int, now_s: float) -> bool:
        """Whether the member has a record of this delivery, and no decision about it was made."""
        return offset in delivery.offsets and now_s < delivery.until_s

    def next_at_s(self, now_s: float) -> float:
        """When ``next_request`` has something to do without news."""
        times = [NEVER]
        for each in self._deliveries:
            times.append(each.until_s)
            if self.can_renew:
                times.append(each.renew_at_s)
        if self.has_decisions:
            times.append(max(now_s, self._retry_at_s))
        return min(times)

    def take_outcomes(self) -> list[Outcome]:
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    # ------------------------------------------------------------------------- the application

    def read(self, partitions: Iterable[PartitionId]) -> bool:
        """Read exactly these from now on. Returns whether that is news."""
        wanted = dict.fromkeys(partitions)
        is_news = wanted.keys() != self._wanted.keys()
        self._wanted = wanted
        return is_news

    def took(
        self, partition: PartitionId, offsets: Sequence[int], asked_at_s: float, lock_s: float
    ) -> Delivery:
        """The leader has given these records. Their lock began after ``asked_at_s``."""
        delivery = Delivery(partition, asked_at_s + lock_s, lock_s, asked_at_s + self._patience_s)
        self._void(partition, offsets)
        for offset in offsets:
            former = self._held.get((partition, offset))
            if former is not None:  # its lock has ended by the broker's clock
                former.offsets.pop(offset, None)
            delivery.offsets[offset] = None
            self._held[partition, offset] = delivery
        self._deliveries.append(delivery)
        return delivery

    def handed_out(self, delivery: Delivery, now_s: float) -> None:
        """The application has a record of it from now on."""
        delivery.renew_until_s = now_s + self._patience_s

    def decide(
        self, partition: PartitionId, offset: int, kind: AcknowledgeType, number: int = -1
    ) -> None:
        """Say what became of a record. The outcome is an error if the member does not have it."""
        if not self._queue_decision(partition, offset, int(kind), number):
            self._settle(partition, {offset: number}, _not_held(offset))

    def renew(
        self, partition: PartitionId, offset: int, now_s: float, number: int = -1
    ) -> Delivery | None:
        """The application wants the lock of a record to begin anew, and that of no other record.
        Returns the delivery that the record belongs to from now on. None: the member does not have
        it, and the outcome is an error."""
        former = self._held.get((partition, offset))
        if former is None:
            self._settle_renewal(partition, offset, (number,), _not_held(offset))
            return None
        if not self.can_renew:
            self._settle_renewal(partition, offset, (number,), _no_renewals())
            return former
        delivery = former
        if len(former.offsets) > 1:
            del former.offsets[offset]
            delivery = Delivery(partition, former.until_s, former.lock_s, 0.0, {offset: None})
            self._held[partition, offset] = delivery
            self._deliveries.append(delivery)
        delivery.is_renewable = True
        delivery.renew_until_s = now_s + self._patience_s
        delivery.renewals[offset] = (*delivery.renewals.get(offset, ()), number)
        return delivery

    def leave_gap(self, partition: PartitionId, offset: int) -> None:
        """There is no record at an offset that the leader has given."""
        self._queue_decision(partition, offset, GAP, -1)

    def _queue_decision(self, partition: PartitionId, offset: int, kind: int, number: int) -> bool:
        delivery = self._held.pop((partition, offset), None)
        if delivery is None:
            return False
        delivery.offsets.pop(offset, None)
        decisions = self._queue.setdefault(partition, {})
        decisions[offset] = Decision(number, kind, delivery.until_s, delivery)
        return True

    # ------------------------------------------------------------------------- the leader

    def next_request(self, now_s: float, *, wants_records: bool) -> SessionRequest | None:
        """The next request, if there is one. None while the answer to another one is awaited."""
        if self._sent is not None:
            return None
        self._expire(now_s)
        request = None
        if self.is_open:
            request = self._renewal(now_s) or self._decisions(now_s, wants_records=wants_records)
        if request is None and wants_records and self._wanted:
            request = SessionRequest(Kind.FETCH, self._epoch)
            request.added = [each for each in self._wanted if each not in self._known]
            request.forgotten = [each for each in self._known if each not in self._wanted]
            if self.is_open and now_s >= self._retry_at_s:
                request.decisions = self._take_decisions()
        self._sent = request
        return request

    def last_request(self, now_s: float) -> SessionRequest | None:
        """The request that ends the session, after the decisions were sent. The leader gives what
        is still held to others, as if it had not been delivered. None if there is no session."""
        self._expire(now_s)
        if not self.is_open:
            return None
        self._sent = SessionRequest(Kind.ACKNOWLEDGE, ENDS)
        return self._sent

    def _renewal(self, now_s: float) -> SessionRequest | None:
        if not self.can_renew:
            return None
        due = [each for each in self._deliveries if each.renew_at_s <= now_s]
        if not due:
            return None
        renewed: list[Delivery] = []
        for partition in dict.fromkeys(each.partition for each in due):
            of_it = [each for each in due if each.partition == partition]
            renewed += [each for each in of_it if each.is_apart][:1] or of_it
        return SessionRequest(Kind.ACKNOWLEDGE, self._epoch, renewed=renewed)

    def _decisions(self, now_s: float, *, wants_records: bool) -> SessionRequest | None:
        """A fetch would wait for records, and would add the partitions that it acknowledges to the
        session."""
        if not self.has_decisions or now_s < self._retry_at_s:
            return None
        if wants_records and not self._refused and self._queue.keys() <= self._wanted.keys():
            return None
        return SessionRequest(Kind.ACKNOWLEDGE, self._epoch, self._take_decisions())

    def _take_decisions(self) -> dict[PartitionId, Decisions]:
        """What the next request carries: of a partition with refused decisions one group alone."""
        taken, self._queue = self._queue, {}
        for partition, refused in self._refused.items():
            if partition in taken:
                self._queue[partition] = taken[partition]
            taken[partition] = refused.groups.popleft()
        return taken

    def on_answer(
        self,
        request: SessionRequest,
        errors: Mapping[PartitionId, ApiError],
        now_s: float,
        lock_s: float,
        asked_at_s: float,
    ) -> None:
        """The leader has carried the request out. ``errors``: of the partitions whose
        acknowledgements do not count. ``lock_s``: of renewed locks, 0 if the answer lacks it."""
        self._sent = None
        self._lock_s = lock_s or self._lock_s
        if request.epoch == ENDS:
            self._epoch = OPENS
        else:
            self._epoch = 1 if request.epoch == _EPOCH_MAX else request.epoch + 1
        if request.kind is Kind.FETCH:
            self._known = {
                **{e: None for e in self._known if e not in request.forgotten},
                **dict.fromkeys(request.added),
            }
        for partition, decisions in request.decisions.items():
            self._decided(partition, decisions, errors.get(partition), now_s)
        together = Counter(each.partition for each in request.renewed)
        for delivery in request.renewed:
            if delivery.partition not in errors:
                delivery.lock_s = lock_s or delivery.lock_s
                delivery.until_s = asked_at_s + delivery.lock_s
                self._settle_renewals(delivery, None)
            elif together[delivery.partition] > 1:
                delivery.is_apart = True
            else:
                delivery.is_renewable = False
                self._settle_renewals(delivery, errors[delivery.partition])
        for partition, error in errors.items():
            if error.code in LOST_LEADERSHIP:
                self.forget(partition)
        self._forget_empty()

    def forget(self, partition: PartitionId) -> None:
        """This broker does not lead the partition any more. The next leader gives the records
        again."""
        for delivery in self._deliveries:
            if delivery.partition == partition:
                self._drop(delivery)
        self._forget_empty()

    def _decided(
        self,
        partition: PartitionId,
        decisions: Decisions,
        error: ApiError | None,
        now_s: float,
    ) -> None:
        refused = self._refused.get(partition)
        if error is not None and error.code.retriable and error.code not in LOST_LEADERSHIP:
            # It could not be persisted, and the member has the records again.
            self._retry_at_s = now_s + _RETRY_S
            if refused is None:
                self._queue[partition] = {**decisions, **self._queue.get(partition, {})}
            else:
                refused.groups.appendleft(decisions)
            return
        if (
            error is not None
            and error.code is ErrorCode.INVALID_RECORD_STATE
            and len(decisions) > 1
        ):
            refused = refused or _Refused(deque())
            if refused.splits_left > 0:
                refused.splits_left -= 1
                refused.groups += _split(decisions)
                self._refused[partition] = refused
                return
        self._settle(partition, _numbers(decisions), error)
        if refused is not None and not refused.groups:
            del self._refused[partition]

    def on_lost(self, reason: str, *, maybe_taken: bool) -> None:
        """The session is over: its connection broke, or the broker does not know it. The broker
        gives its records to others. ``maybe_taken``: the request that was not answered may have
        been carried out."""
        sent, self._sent = self._sent, None
        self._epoch = OPENS
        self._known = {}
        if sent is not None:
            error = _unknown(reason) if maybe_taken else _session_lost(reason)
            for partition, decisions in sent.decisions.items():
                self._settle(partition, _numbers(decisions), error)
        for partition, decisions in self._unsent():
            self._settle(partition, _numbers(decisions), _session_lost(reason))
        self._queue, self._refused = {}, {}
        for delivery in self._deliveries:
            self._drop(delivery)
        self._forget_empty()

    # ------------------------------------------------------------------------- locks

    def _expire(self, now_s: float) -> None:
        for partition, decisions in self._unsent():
            late = [o for o, each in decisions.items() if each.until_s <= now_s]
            self._give_up(partition, decisions, late)
        for delivery in self._deliveries:
            if delivery.until_s <= now_s:
                self._drop(delivery)
        self._forget_empty()

    def _void(self, partition: PartitionId, offsets: Iterable[int]) -> None:
        """The leader gives these records anew, so former decisions about them are too late."""
        for each, decisions in self._unsent():
            if each == partition:
                self._give_up(partition, decisions, [o for o in offsets if o in decisions])

    def _unsent(self) -> list[tuple[PartitionId, Decisions]]:
        groups = [
            (each, group) for each, refused in self._refused.items() for group in refused.groups
        ]
        return [*self._queue.items(), *groups]

    def _give_up(
        self, partition: PartitionId, decisions: Decisions, offsets: Iterable[int]
    ) -> None:
        numbers = {offset: decisions.pop(offset).number for offset in offsets}
        self._settle(partition, numbers, _lock_ended())
        if decisions:
            return
        refused = self._refused.get(partition)
        if self._queue.get(partition) is decisions:
            del self._queue[partition]
        elif refused is not None:
            refused.groups = deque(each for each in refused.groups if each)
            if not refused.groups:
                del self._refused[partition]

    def _drop(self, delivery: Delivery) -> None:
        for offset in delivery.offsets:
            self._held.pop((delivery.partition, offset), None)
        delivery.offsets.clear()

    def _forget_empty(self) -> None:
        renewed = self._sent.renewed if self._sent is not None else ()
        for each in self._deliveries:
            if each.renewals and not each.offsets and each not in renewed:
                self._settle_renewals(each, _not_held(*each.renewals))
        self._deliveries = [each for each in self._deliveries if each.offsets or each.renewals]

    def _settle_renewals(self, delivery: Delivery, error: ApiError | None) -> None:
        renewals, delivery.renewals = delivery.renewals, {}
        for offset, numbers in renewals.items():
            self._settle_renewal(delivery.partition, offset, numbers, error)

    def _settle_renewal(
        self,
        partition: PartitionId,
        offset: int,
        numbers: tuple[int, ...],
        error: ApiError | None,
    ) -> None:
        self._outcomes.append(Outcome(partition, numbers, (offset,), error, is_renewal=True))

    def _settle(
        self, partition: PartitionId, numbers: Mapping[int, int], error: ApiError | None
    ) -> None:
        told = {offset: number for offset, number in numbers.items() if number >= 0}
        if told:
            self._outcomes.append(
                Outcome(partition, tuple(told.values()), tuple(sorted(told)), error)
            )


def _numbers(decisions: Decisions) -> dict[int, int]:
    return {offset: each.number for offset, each in decisions.items()}


def _split(decisions: Decisions) -> list[Decisions]:
    """Apart what has a lock of its own; records of one lock in halves."""
    by_lock: dict[Delivery, Decisions] = {}
    for offset in sorted(decisions):
        by_lock.setdefault(decisions[offset].delivery, {})[offset] = decisions[offset]
    if len(by_lock) > 1:
        return list(by_lock.values())
    half = len(decisions) // 2
    ascending = sorted(decisions.items())
    return [dict(ascending[:half]), dict(ascending[half:])]


def _not_held(offset: int) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_RECORD_STATE,
        f"this consumer does not have the record at offset {offset}: it was acknowledged before, "
        "its lock has ended, the connection to its leader was lost, or its leader has changed",
    )


def _no_renewals() -> ApiError:
    return ApiError(
        ErrorCode.UNSUPPORTED_VERSION,
        "the broker renews no locks: it needs a version as of Kafka 4.2 (KIP-1222)",
    )


def _lock_ended() -> ApiError:
    return ApiError(
        ErrorCode.INVALID_RECORD_STATE,
        "the lock has ended before the acknowledgement could be sent: the record is delivered "
        "again (share.record.lock.duration.ms)",
    )


def _session_lost(reason: str) -> ApiError:
    return ApiError(
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        f"the share session has ended before the acknowledgement was sent ({reason}): the record "
        "is delivered again",
    )


def _unknown(reason: str) -> ApiError:
    return ApiError(
        ErrorCode.NETWORK_EXCEPTION,
        f"no answer to the acknowledgement ({reason}): it may count, or the record is delivered "
        "again",
    )
