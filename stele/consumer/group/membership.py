"""A member of a group of the classic protocol, without network and time.

The member joins a generation, gets a share of the partitions, and joins again when the coordinator
says so. An eager member gives all its partitions up before it joins. A cooperative one keeps them,
and afterwards gives up the partitions that its new share lacks (KIP-429).

As long as ``needs_join``, a caller carries out, in this order: ``giving_up`` and ``gave_up``,
``join_request`` and ``on_join``, ``sync_request`` and ``on_sync``, ``share`` and ``took_share``.
Partitions change hands only in ``gave_up`` and ``took_share``, after the caller has called the
application's functions. An answer counts only if it belongs to the newest request: ``standing``
changes with each request and identifies it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from stele.consumer.group.assignors import Assignor, Candidate
from stele.consumer.group.requests import (
    NO_MEMBER_ID,
    JoinAnswer,
    JoinRequest,
    Standing,
    SyncAnswer,
    SyncRequest,
)
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from stele.wire.consumer_protocol import Assignment, Subscription

FATAL: Final = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Errors that joining again does not help against."""


class State(enum.Enum):
    UNJOINED = "not joined"
    JOINING = "joining"  # a JoinGroup is under way
    SYNCING = "waiting for its share"  # joined; a SyncGroup is under way or comes next
    ASSIGNED = "told its share"  # and has not taken it yet
    STABLE = "stable"


@dataclass(frozen=True, slots=True)
class Loss:
    """Partitions that a member gives up. ``is_lost``: others may own them already, so that nothing
    may be committed for them."""

    partitions: frozenset[TopicPartition]
    is_lost: bool


@dataclass(frozen=True, slots=True)
class Share:
    """The changes by a new share."""

    revoked: frozenset[TopicPartition]
    added: frozenset[TopicPartition]


class Membership:
    """``assignors``: the preferred one first. The member is cooperative if all of them are."""

    def __init__(self, assignors: Sequence[Assignor], instance_id: str | None = None) -> None:
        self._assignors = {each.name: each for each in assignors}
        self.is_cooperative = all(each.is_cooperative for each in assignors)
        self._topics: frozenset[str] | None = None  # None: no subscription
        self._owned: frozenset[TopicPartition] = frozenset()
        self._standing = Standing(instance_id=instance_id)
        self._state = State.UNJOINED
        # Why it must join again; empty if it need not.
        self._reason = ""
        self._protocol = ""
        self._members: tuple[tuple[str, str | None, bytes], ...] | None = None  # of a leader
        self._skips_assignment = False
        self._assigned_by: dict[str, int] | None = None  # counts that a leader has assigned by
        self._told: frozenset[TopicPartition] = frozenset()

    # ------------------------------------------------------------------------- looking

    @property
    def state(self) -> State:
        return self._state

    @property
    def standing(self) -> Standing:
        return self._standing

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self._owned

    @property
    def subscription(self) -> frozenset[str]:
        """The topics of its own."""
        return self._topics or frozenset()

    @property
    def topics(self) -> Set[str]:
        """The topics whose partitions it must know: its own, and as a leader every member's."""
        wanted = set(self.subscription)
        if self._members is None:
            return wanted
        for _, _, metadata in self._members:
            wanted.update(Subscription.decode(metadata).topics)
        return wanted

    @property
    def is_leader(self) -> bool:
        return self._members is not None

    @property
    def needs_join(self) -> bool:
        """Whether ``giving_up`` comes next."""
        return self._topics is not None and (
            self._state is State.UNJOINED or (self._state is State.STABLE and bool(self._reason))
        )

    @property
    def reason(self) -> str:
        """Why it joins."""
        return self._reason or "new member"

    @property
    def may_heartbeat(self) -> bool:
        """Whether the coordinator waits for heartbeats. While it joins, its request keeps it
        alive."""
        return self._standing.is_member and self._state is not State.JOINING

    # ------------------------------------------------------------------------- reasons to join

    def subscribe(self, topics: Iterable[str]) -> None:
        wanted = frozenset(topics)
        if wanted != self._topics:
            self._topics = wanted
            self._rejoin("the subscription changed")

    def unsubscribe(self) -> None:
        """Call it after ``leave``, when the application has given everything up."""
        self._topics = None
        self._owned = frozenset()

    def metadata_changed(self, partition_counts: Mapping[str, int]) -> None:
        """The partitions of topics are news. A leader assigns anew by them."""
        if self._assigned_by is None or self._state is not State.STABLE:
            return
        counts = {name: partition_counts.get(name, 0) for name in self._assigned_by}
        if counts != self._assigned_by:
            self._rejoin("the partitions of the topics changed")

    def _rejoin(self, reason: str) -> None:
        if not self._reason:
            self._reason = reason

    # ------------------------------------------------------------------------- a rebalance

    def giving_up(self) -> Loss:
        """The partitions that the member loses before it joins. The application's functions are
        called for them.
        """
        if not self._standing.is_member:
            return Loss(self._owned, is_lost=True)
        if not self.is_cooperative:
            return Loss(self._owned, is_lost=False)
        wanted = self.subscription
        gone = frozenset(each for each in self._owned if each.topic not in wanted)
        return Loss(gone, is_lost=False)

    def gave_up(self, loss: Loss) -> None:
        self._owned -= loss.partitions

    def join_request(self) -> JoinRequest:
        self._state = State.JOINING
        self._members = None
        self._assigned_by = None
        request = JoinRequest(self._standing, self._protocols(), self.reason)
        self._reason = ""
        return request

    def _protocols(self) -> tuple[tuple[str, bytes], ...]:
        generation = self._standing.generation
        return tuple(
            (
                each.name,
                Subscription(
                    tuple(sorted(self.subscription)),
                    each.user_data(generation),
                    tuple(sorted(self._owned)),
                    generation,
                ).encode(),
            )
            for each in self._assignors.values()
        )

    def on_join(self, request: JoinRequest, answer: JoinAnswer) -> None:
        if self._state is not State.JOINING or request.standing != self._standing:
            return
        if answer.error is ErrorCode.NONE:
            self._standing = self._standing._replace(
                member_id=answer.member_id, generation=answer.generation
            )
            self._protocol = answer.protocol
            leads = answer.leader == answer.member_id
            self._members = answer.members if leads else None
            self._skips_assignment = answer.skip_assignment
            self._state = State.SYNCING
            return
        self._state = State.UNJOINED
        self._rejoin(request.reason)
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self._standing = self._standing._replace(member_id=answer.member_id)
        else:
            self._on_error(answer.error)

    def sync_request(self, partition_counts: Mapping[str, int]) -> SyncRequest:
        """A leader shares all partitions of ``topics`` by their counts.

        Raises ConsumerProtocolError if a member's subscription cannot be read.
        """
        shares: dict[str, bytes] = {}
        if self._members is not None:
            self._assigned_by = {name: partition_counts.get(name, 0) for name in self.topics}
            if not self._skips_assignment:
                candidates = [
                    Candidate(member_id, instance_id, Subscription.decode(metadata))
                    for member_id, instance_id, metadata in self._members
                ]
                assigned = self._assignors[self._protocol].assign(candidates, self._assigned_by)
                shares = {
                    member_id: Assignment(tuple(share)).encode()
                    for member_id, share in assigned.items()
                }
        return SyncRequest(self._standing, self._protocol, shares)

    def on_sync(self, request: SyncRequest, answer: SyncAnswer) -> None:
        """Raises ConsumerProtocolError if the share cannot be read."""
        if self._state is not State.SYNCING or request.standing != self._standing:
            return
        if answer.error is not ErrorCode.NONE:
            self._state = State.UNJOINED
            self._rejoin("the share was refused")
            self._on_error(answer.error)
            return
        self._told = frozenset(Assignment.decode(answer.assignment).partitions)
        self._state = State.ASSIGNED

    def share(self) -> Share:
        """The changes for which the application's functions must be called."""
        return Share(revoked=self._owned - self._told, added=self._told - self._owned)

    def released(self, share: Share) -> None:
        """The application's functions were called for the revoked partitions."""
        self._owned -= share.revoked

    def took_share(self, share: Share) -> bool:
        """The share is the member's now. If it released anything, others wait for it. False: the
        member was removed meanwhile."""
        if self._state is not State.ASSIGNED:
            return False
        self._owned = (self._owned - share.revoked) | share.added
        self._state = State.STABLE
        if share.revoked:
            self._rejoin("partitions were released for other members")
        return True

    def on_lost(self, standing: Standing) -> None:
        """No answer comes to a JoinGroup or SyncGroup of this standing: join again."""
        if self._state in (State.JOINING, State.SYNCING) and standing == self._standing:
            self._state = State.UNJOINED
            self._rejoin("no answer of the coordinator")

    # ------------------------------------------------------------------------- between

    def on_told(self, standing: Standing, error: ErrorCode) -> None:
        """The coordinator's answer to a heartbeat or a commit. The answer for one partition of a
        commit counts as well.
        """
        if standing == self._standing and self._state is not State.JOINING:
            self._on_error(error)

    def _on_error(self, error: ErrorCode) -> None:
        match error:
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self._rejoin("a rebalance began")
            case ErrorCode.ILLEGAL_GENERATION:
                self._drop_out(self._standing.member_id, "the group went on without this member")
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self._drop_out(NO_MEMBER_ID, "the group had removed this member")
            case ErrorCode.FENCED_INSTANCE_ID:
                self._drop_out(NO_MEMBER_ID, "another process took over the instance id")
            case ErrorCode.GROUP_AUTHORIZATION_FAILED:
                # The coordinator may still know the member, and takes it back under the same id.
                self._drop_out(self._standing.member_id, "the group had refused this member")

    def _drop_out(self, member_id: str, reason: str) -> None:
        self._standing = self._standing._replace(member_id=member_id, generation=-1)
        self._members = None
        self._assigned_by = None
        self._state = State.UNJOINED
        self._reason = reason

    def leave(self) -> Standing:
        """The membership ends. Returns the identity with which the member leaves."""
        standing = self._standing
        self._drop_out(NO_MEMBER_ID, "")
        return standing
