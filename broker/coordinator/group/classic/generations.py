"""The members of a group of the classic protocol, and their generations.

The members of a generation join it together, while the group prepares a rebalance. One of them, the
leader, then assigns partitions to all of them. The group is stable until a member joins or leaves.
The rules are Kafka's, with KIP-134 (the first rebalance is delayed), KIP-345 and KIP-814 (static
members) and KIP-394 (a member gets its id before it joins).

The log only has a record of a group when it is stable or empty. Three changes need a record, and
``replay`` makes them: the leader assigns partitions, a new process of a static member takes over
without a rebalance, and the last member leaves. Everything else is lost with the coordinator. The
next coordinator then answers ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID, and the members join again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from broker.coordinator.group.classic.member import Member
from broker.coordinator.group.classic.membership import Membership
from broker.coordinator.group.classic.subscription import all_subscribed_topics
from broker.coordinator.group.config import GroupConfig
from broker.coordinator.group.deadlines import Deadlines, Timer, TimerKind
from broker.coordinator.group.records import RecordedGroup, RecordedMember, group_record
from broker.coordinator.group.types import (
    CONSUMER_PROTOCOL,
    UNKNOWN_MEMBER,
    GroupState,
    JoinAnswer,
    JoinedMember,
    MemberProtocol,
    SyncAnswer,
)
from broker.coordinator.group.voting import elect_protocol
from broker.coordinator.step import KeyValue, Now, Reply, Step, Waiter
from stele.errors import ErrorCode

logger = logging.getLogger(__name__)

REASON_MAX: Final = 255
"""The number of characters of a client's reason that the log shows. Kafka's clients send no more
(KIP-800)."""


class Generations:
    """The state of one group, and the way from one generation to the next.

    What leads to a record adds it to a step, and only the replay of the record changes the group.
    """

    def __init__(self, group_id: str, config: GroupConfig, deadlines: Deadlines) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.members = Membership()
        # Never goes back, except that a new coordinator does not know of a generation whose
        # assignment was not recorded.
        self.generation = 0
        self.protocol_type = ""  # until a member joins
        self.protocol: str | None = None
        # A member, unless the group prepares a rebalance: then the leader may have left.
        self.leader: str | None = None
        self.state_time_ms = -1
        # None: they are not known, or the members are no consumers.
        self.subscribed_topics: frozenset[str] | None = None
        # The offset after the group's last record. An answer about the group is sent when the
        # records below it are committed.
        self.recorded_end = -1
        self._config = config
        self._deadlines = deadlines
        # The ids of dynamic members that have not joined with them yet. They are no members, but a
        # rebalance waits for them.
        self.pending: dict[str, Timer] = {}
        # The members that have not fetched the assignment of this generation. Empty unless the
        # group is completing a rebalance or stable.
        self._unsynced: set[str] = set()
        self._join_timer = Timer(deadlines, TimerKind.JOIN, group_id)
        self._sync_timer = Timer(deadlines, TimerKind.SYNC, group_id)
        # The first rebalance of an empty group lasts longer while members join. These fields have
        # a meaning only while the group prepares a rebalance.
        self._is_first_rebalance = False
        self._member_came = False
        self._more_time_ms = 0

    # ------------------------------------------------------------------------- questions

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def may_be_replaced(self) -> bool:
        return self.is_empty

    @property
    def is_used(self) -> bool:
        """Whether it has members, or ids that were given out."""
        return len(self.members) > 0 or len(self.pending) > 0

    @property
    def max_size(self) -> int:
        """``group.max.size``"""
        return self._config.group_max_size

    @property
    def has_consumers(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members use the topic's offsets. If the subscriptions of consumers are not
        known, they may use every topic."""
        if self.subscribed_topics is None:
            return self.has_consumers
        return topic in self.subscribed_topics

    def interrupt(self, step: Step) -> None:
        """Answer all waiting members so that they join again: the step's records replace this group
        by another one."""
        error = ErrorCode.REBALANCE_IN_PROGRESS
        for member in self.members:
            self.tell(member.join_waiter, JoinAnswer(error, member.member_id), step)
            self.tell(member.sync_waiter, SyncAnswer(error), step)

    def waiters(self) -> list[Waiter]:
        both = ((each.join_waiter, each.sync_waiter) for each in self.members)
        return [waiter for pair in both for waiter in pair if waiter is not None]

    # ------------------------------------------------------------------------- members

    def add(self, member: Member) -> None:
        """Add a member that has a protocol in common with all others."""
        self.forget_pending(member.member_id)
        self.members.add(member)
        self._member_came = True

    def forget(self, member: Member) -> None:
        """Remove a member whose waiting requests have been answered."""
        member.session.cancel()
        self.members.remove(member)
        self._unsynced.discard(member.member_id)

    def forget_pending(self, member_id: str) -> None:
        timer = self.pending.pop(member_id, None)
        if timer is not None:
            timer.cancel()

    def session_timer(self, member_id: str) -> Timer:
        return Timer(self._deadlines, TimerKind.SESSION, self.group_id, member_id)

    # ------------------------------------------------------------------------- rebalancing

    def rebalance_or_complete(self, reason: str, now: Now, step: Step) -> None:
        if self.state is GroupState.PREPARING_REBALANCE:
            self.maybe_complete_join(now, step)
        else:
            self._prepare_rebalance(reason, now, step)

    def _prepare_rebalance(self, reason: str, now: Now, step: Step) -> None:
        """Have all members join the next generation."""
        logger.info(
            "group %s rebalances in generation %d: %s", self.group_id, self.generation, reason
        )
        for member in self.members:
            if member.sync_waiter is not None:
                self.say(step, member.sync_waiter, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
                member.sync_waiter = None
                member.restart_session(now.monotonic_ms)
        self._unsynced.clear()
        self._sync_timer.cancel()
        self._is_first_rebalance = self.state is GroupState.EMPTY
        self.state = GroupState.PREPARING_REBALANCE
        if self._is_first_rebalance:
            delay_ms = self._config.group_initial_rebalance_delay_ms
            self._member_came = False
            self._more_time_ms = max(self._rebalance_timeout_ms() - delay_ms, 0)
            self._join_timer.set(now.monotonic_ms + delay_ms)
        else:
            self._join_timer.set(now.monotonic_ms + self._rebalance_timeout_ms())
            self.maybe_complete_join(now, step)

    def _rebalance_timeout_ms(self) -> int:
        return max((each.rebalance_timeout_ms for each in self.members), default=0)

    def maybe_complete_join(self, now: Now, step: Step) -> None:
        """Begin the next generation if all members have joined it. The first rebalance of an empty
        group waits for its delay, because more members may come (KIP-134)."""
        if self.state is not GroupState.PREPARING_REBALANCE or self._is_first_rebalance:
            return
        if not self.pending and all(each.has_joined for each in self.members):
            self._complete_join(now, step)
        elif self._join_timer.at_ms is None and any(each.has_joined for each in self.members):
            self._join_timer.set(now.monotonic_ms + self._rebalance_timeout_ms())

    def join_time_is_over(self, now: Now, step: Step) -> None:
        """The rebalance timeout has passed, or the delay of the first rebalance; or the group has
        come from the consumer protocol, so that it has no leader yet."""
        if self.state is GroupState.STABLE:
            self._prepare_rebalance("it uses the classic protocol now", now, step)
            return
        if self._is_first_rebalance and self._member_came and self._more_time_ms > 0:
            delay_ms = min(self._config.group_initial_rebalance_delay_ms, self._more_time_ms)
            self._member_came = False
            self._more_time_ms -= delay_ms
            self._join_timer.set(now.monotonic_ms + delay_ms)
        else:
            self._complete_join(now, step)

    def _complete_join(self, now: Now, step: Step) -> None:
        """Remove the dynamic members that have not joined, and begin the next generation. Static
        members stay until their sessions end."""
        late = [each for each in self.members if not each.has_joined and not each.is_static]
        if len(late) == len(self.members):
            self._become_empty(now, step)
            return
        for member in late:
            logger.info("group %s: %s has not joined in time", self.group_id, member.member_id)
            self.forget(member)
        joined = [each for each in self.members if each.has_joined]
        if not joined:
            self._join_timer.cancel()  # the next one that joins has all its time again
            return
        if self.leader not in {each.member_id for each in joined}:
            self.leader = joined[0].member_id
        self._begin_generation(now, step)

    def _begin_generation(self, now: Now, step: Step) -> None:
        self._join_timer.cancel()
        self._is_first_rebalance = False
        self.generation += 1
        self.protocol = elect_protocol([each.protocols for each in self.members])
        self.subscribed_topics = self._find_subscribed_topics()
        self.state = GroupState.COMPLETING_REBALANCE
        self._unsynced = {each.member_id for each in self.members}
        self._sync_timer.set(now.monotonic_ms + self._rebalance_timeout_ms())
        logger.info(
            "group %s begins generation %d with %d members",
            self.group_id,
            self.generation,
            len(self.members),
        )
        for member in self.members:
            if member.join_waiter is not None:
                self.say(step, member.join_waiter, self.joined(member))
                member.join_waiter = None
            member.is_new = False
            member.restart_session(now.monotonic_ms)

    def _become_empty(self, now: Now, step: Step) -> None:
        """Remove all members, by a record."""
        for member in self.members:
            self._dismiss(member, step)
        step.records.append(self.record((), None, self.generation + 1, now))

    def _find_subscribed_topics(self) -> frozenset[str] | None:
        if not self.has_consumers:
            return None
        told = ((each.member_id, each.metadata(self.protocol)) for each in self.members)
        try:
            return all_subscribed_topics(told)
        except ValueError as error:
            logger.warning("group %s: the topics of %s", self.group_id, error)
            return None

    def _dismiss(self, member: Member, step: Step) -> None:
        """Answer the waiting requests of a member that is removed."""
        error = ErrorCode.UNKNOWN_MEMBER_ID
        self.tell(member.join_waiter, JoinAnswer(error, UNKNOWN_MEMBER), step)
        self.tell(member.sync_waiter, SyncAnswer(error), step)

    # ------------------------------------------------------------------------- answers, records

    def joined(self, member: Member) -> JoinAnswer:
        """The answer to a JoinGroup of a member of this generation."""
        is_leader = self.leader == member.member_id
        return JoinAnswer(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader or "",
            self.told_to_leader(self.members) if is_leader else (),
        )

    def told_to_leader(self, members: Iterable[Member]) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(each.member_id, each.group_instance_id, each.metadata(self.protocol))
            for each in members
        )

    def say(self, step: Step, waiter: Waiter, answer: object) -> None:
        """Answer as soon as the group's records are committed."""
        step.replies.append(Reply(waiter, answer, self.recorded_end))

    def tell(self, waiter: Waiter | None, answer: object, step: Step) -> None:
        """Answer a request if it waits."""
        if waiter is not None:
            self.say(step, waiter, answer)

    def record(
        self,
        members: Iterable[Member],
        leader: str | None,
        generation: int,
        now: Now,
        assignments: Mapping[str, bytes] | None = None,
    ) -> KeyValue:
        """The record of a group with these members, or of an empty one. If no assignments are
        given, the members keep theirs."""
        recorded = tuple(
            RecordedMember(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host,
                each.rebalance_timeout_ms,
                each.session_timeout_ms,
                each.metadata(self.protocol),
                each.assignment if assignments is None else assignments.get(each.member_id, b""),
            )
            for each in members
        )
        value = RecordedGroup(
            self.protocol_type,
            generation,
            self.protocol if recorded else None,
            leader,
            now.time_ms,
            recorded,
        )
        return group_record(self.group_id, value)

    def replay(self, value: RecordedGroup, end_offset: int, now: Now) -> None:
        """Make the group as a record says. The step of the record answers the waiting requests."""
        members = [self._replayed(each, value, now) for each in value.members]
        kept = {each.member_id for each in members}
        for member in self.members:
            if member.member_id not in kept:
                member.session.cancel()
        self.members.set(members)
        self.state = GroupState.STABLE if members else GroupState.EMPTY
        self.generation = value.generation
        self.protocol_type = value.protocol_type
        self.protocol = value.protocol
        self.leader = value.leader
        self.state_time_ms = value.state_time_ms
        self.subscribed_topics = self._find_subscribed_topics()
        self.recorded_end = end_offset
        if members and value.leader is None:
            self._join_timer.set(now.monotonic_ms)
        else:
            self._join_timer.cancel()
        self._unsynced = (self._unsynced & kept) - {value.leader}
        if not self._unsynced:
            self._sync_timer.cancel()

    def _replayed(self, recorded: RecordedMember, group: RecordedGroup, now: Now) -> Member:
        member = self.members.get(recorded.member_id)
        if member is None:
            member = Member.recorded(recorded, self.session_timer(recorded.member_id))
            member.restart_session(now.monotonic_ms)
        elif member.sync_waiter is not None or self._assigns(recorded.member_id, group):
            member.restart_session(now.monotonic_ms)  # it was stopped while the member waited
        member.rebalance_timeout_ms = recorded.rebalance_timeout_ms
        member.session_timeout_ms = recorded.session_timeout_ms
        chosen = MemberProtocol(group.protocol or "", recorded.subscription)
        if chosen not in member.protocols:
            # The record does not have the metadata for other protocols.
            member.protocols = (chosen,)
        member.assignment = recorded.assignment
        member.sync_waiter = None
        return member

    def _assigns(self, member_id: str, group: RecordedGroup) -> bool:
        """Whether the record was made by this member's SyncGroup."""
        return member_id == group.leader and member_id in self._unsynced

    def loaded(self, now: Now, step: Step) -> None:
        """Begin all sessions anew. If ``group.max.size`` was lowered, the members have to join
        again, and the last ones are refused."""
        for member in self.members:
            member.restart_session(now.monotonic_ms)
        if len(self.members) > self.max_size:
            self._prepare_rebalance("it has too many members", now, step)

    def tombstones(self) -> Iterator[KeyValue]:
        """The end of a group without members."""
        yield group_record(self.group_id, None)

    def dissolve(self) -> None:
        """Cancel all timers of a group that is removed."""
        for timer in (self._join_timer, self._sync_timer, *self.pending.values()):
            timer.cancel()
        for member in self.members:
            member.session.cancel()
