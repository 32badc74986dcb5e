"""A member of a group of the consumer protocol (KIP-848), without network and time.

The coordinator assigns the partitions. Each heartbeat names the partitions that the member owns,
and each answer may name those that it should own. The member gives up the superfluous ones, reports
it, and takes the new ones: the coordinator gives it only partitions that others have released. No
rebalance involves all members.

A caller sends ``heartbeat`` and passes the answer to ``on_answer``, one at a time. Partitions
change hands only in ``gave_up``, ``released`` and ``took_share``, after the application's functions
were called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from stele.consumer.group.membership import Loss, Share, State
from stele.consumer.group.requests import Standing
from stele.errors import ErrorCode
from stele.ids import PartitionId, TopicPartition

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2

REMOVED: Final = frozenset(
    {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
)
"""Errors after which the member owns nothing, and may join again."""
_DENIED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """``topics`` and ``owned``: None if they are as the coordinator knows them. One that says what
    it owns says everything."""

    member_id: str
    member_epoch: int
    instance_id: str | None
    topics: frozenset[str] | None = None
    owned: frozenset[PartitionId] | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    error: ErrorCode
    message: str = ""
    member_epoch: int = 0
    interval_ms: int = 0
    assigned: frozenset[PartitionId] | None = None  # None: as in the answer before


class ReconcilingMembership:
    """``member_id`` is made by the client, and is its own for its life."""

    def __init__(self, member_id: str, instance_id: str | None = None) -> None:
        self._member_id = member_id
        self._instance_id = instance_id
        self._epoch = JOIN_EPOCH
        self._state = State.UNJOINED
        self._topics: frozenset[str] | None = None
        self._owned: dict[TopicPartition, PartitionId] = {}
        self._assigned: frozenset[PartitionId] = frozenset()
        self._names: Mapping[bytes, str] = {}
        # What the coordinator knows; None if that is not certain.
        self._known_topics: frozenset[str] | None = None
        self._known_owned: frozenset[PartitionId] | None = None

    # ------------------------------------------------------------------------- looking

    @property
    def state(self) -> State:
        """ASSIGNED if the application's functions must be called for partitions."""
        if self._state is State.STABLE and self._target().keys() != self._owned.keys():
            return State.ASSIGNED
        if self._state is State.STABLE and set(self._target().values()) != set(
            self._owned.values()
        ):
            return State.ASSIGNED  # a topic was made anew
        return self._state

    @property
    def standing(self) -> Standing:
        generation = self._epoch if self._epoch > JOIN_EPOCH else -1
        return Standing(self._member_id, generation, self._instance_id)

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return frozenset(self._owned)

    def id_of(self, partition: TopicPartition) -> PartitionId:
        """The id of the topic of that name to which an owned partition belongs."""
        return self._owned[partition]

    @property
    def subscription(self) -> frozenset[str]:
        return self._topics or frozenset()

    @property
    def needs_join(self) -> bool:
        return self._topics is not None and self._state is State.UNJOINED

    @property
    def reason(self) -> str:
        return "a new member, or one that was removed"

    @property
    def unknown_topics(self) -> frozenset[bytes]:
        """Ids of assigned topics whose names are not known. ``learn`` adds them."""
        return frozenset(each.topic_id for each in self._assigned) - self._names.keys()

    @property
    def has_news(self) -> bool:
        """Whether the coordinator should hear something soon."""
        return self._state is State.JOINING or (
            self._state is State.STABLE
            and (self._known_topics != self._topics or self._known_owned != self._owned_ids())
        )

    @property
    def may_heartbeat(self) -> bool:
        return self._state in (State.JOINING, State.STABLE)

    def _owned_ids(self) -> frozenset[PartitionId]:
        return frozenset(self._owned.values())

    def _target(self) -> dict[TopicPartition, PartitionId]:
        """What the member should own, as far as names are known."""
        return {
            TopicPartition(self._names[each.topic_id], each.partition): each
            for each in self._assigned
            if each.topic_id in self._names
        }

    # ------------------------------------------------------------------------- the application

    def subscribe(self, topics: Iterable[str]) -> None:
        self._topics = frozenset(topics)

    def learn(self, names: Mapping[bytes, str]) -> None:
        """The names of topics by their ids."""
        self._names = {**self._names, **names}

    def giving_up(self) -> Loss:
        """The partitions that the member has lost. The application's functions are called for them
        before the member joins again.
        """
        return Loss(self.owned, is_lost=True)

    def gave_up(self, loss: Loss) -> None:
        for name in loss.partitions:
            self._owned.pop(name, None)

    def join(self) -> None:
        """The next heartbeats join."""
        self._state = State.JOINING

    def share(self) -> Share:
        """The changes for which the application's functions must be called. A partition of a topic
        that was created again is in both.
        """
        target = self._target()
        stays = {name for name, each in self._owned.items() if target.get(name) == each}
        return Share(revoked=self.owned - stays, added=frozenset(target.keys() - stays))

    def released(self, share: Share) -> None:
        for name in share.revoked:
            self._owned.pop(name, None)

    def took_share(self, share: Share) -> bool:
        """Whether the member still is one. What the coordinator has taken away meanwhile is not
        taken."""
        if self._state is not State.STABLE:
            return False
        target = self._target()
        for name in share.added:
            if name in target:
                self._owned[name] = target[name]
        return True

    # ------------------------------------------------------------------------- the coordinator

    def heartbeat(self) -> Heartbeat:
        """The next heartbeat. It contains what the coordinator does not know yet.

        A member that leaves a partition out of its owned ones has released it, and another member
        may get it. So after such a heartbeat the member takes no partition of an earlier answer any
        more. The answer to a complete heartbeat contains the assignment again.
        """
        owned = self._owned_ids()
        if self._known_owned != owned:  # also of a member that joins
            self._assigned = owned
            return Heartbeat(
                self._member_id, self._epoch, self._instance_id, self.subscription, owned
            )
        topics = None if self._known_topics == self._topics else self.subscription
        return Heartbeat(self._member_id, self._epoch, self._instance_id, topics)

    def on_answer(self, asked: Heartbeat, answer: HeartbeatAnswer) -> None:
        if not self.may_heartbeat or asked.member_epoch != self._epoch:
            return
        if answer.error is not ErrorCode.NONE:
            self.on_lost()
            self.on_told(self.standing, answer.error)
            return
        self._state = State.STABLE
        self._epoch = answer.member_epoch
        if asked.topics is not None:
            self._known_topics = asked.topics
        if asked.owned is not None:
            self._known_owned = asked.owned
        if answer.assigned is not None:
            self._assigned = answer.assigned

    def on_lost(self) -> None:
        """No answer came, or an error. The next heartbeat says everything."""
        self._known_topics = self._known_owned = None

    def on_told(self, standing: Standing, error: ErrorCode) -> None:
        """What the coordinator says to a heartbeat or a commit."""
        if standing == self.standing and (error in REMOVED or error is _DENIED):
            self._drop_out()

    def _drop_out(self) -> None:
        self._epoch = JOIN_EPOCH
        self._state = State.UNJOINED
        self._assigned = frozenset()
        self.on_lost()

    def begin_anew(self) -> None:
        """No heartbeats were sent for a while. The member has lost what it owned, and joins."""
        self._drop_out()

    def leave(self) -> Heartbeat | None:
        """The membership ends. Returns the heartbeat with which the member leaves, or None if the
        coordinator does not know it.
        """
        was_member = self._epoch > JOIN_EPOCH
        epoch = LEAVE_EPOCH if self._instance_id is None else STATIC_LEAVE_EPOCH
        self._drop_out()
        return Heartbeat(self._member_id, epoch, self._instance_id) if was_member else None

    def unsubscribe(self) -> None:
        self._topics = None
        self._owned.clear()
