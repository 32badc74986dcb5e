"""JoinGroup: which members may join a group of the classic protocol, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from broker.coordinator.group.classic.generations import REASON_MAX, Generations
from broker.coordinator.group.classic.member import Member
from broker.coordinator.group.notes import NotedRecord, Successor
from broker.coordinator.group.types import (
    UNKNOWN_MEMBER,
    GroupState,
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
)
from broker.coordinator.group.voting import elect_protocol, supported_by_all
from broker.coordinator.step import Now, Reply, Step, Waiter
from stele.errors import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""A new member that waits for its first generation sends no heartbeats. It is removed after this
time. Otherwise members whose clients are gone would accumulate during a long rebalance."""


@dataclass(frozen=True, slots=True)
class Joining:
    """One JoinGroup request. Its records and replies are added to the step."""

    group: Generations
    request: JoinRequest
    waiter: Waiter
    now: Now
    step: Step
    new_id: Callable[[str], str]
    """Makes a member id from its prefix: the client id, or the instance id."""

    def decide(self) -> None:
        group, request = self.group, self.request
        former = group.members.of_instance(request.group_instance_id)
        is_new = request.member_id == UNKNOWN_MEMBER
        if not self._has_room():
            self._turn_away()
        elif not self._is_supported():
            self._refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif is_new and former is not None:
            self._replace(former)
        elif is_new and request.group_instance_id is not None:
            self._add(self.new_id(request.group_instance_id))
        elif is_new and request.requires_known_member_id:
            self._give_id()
        elif is_new:
            self._add(self.new_id(request.client_id))
        elif request.member_id in group.pending and request.group_instance_id is None:
            self._add(request.member_id)
        else:
            self._join_again()

    def _refuse(self, error: ErrorCode) -> None:
        self.group.say(self.step, self.waiter, JoinAnswer(error, self.request.member_id))

    # ------------------------------------------------------------------------- conditions

    def _has_room(self) -> bool:
        """``group.max.size`` (KIP-389). During a rebalance only members that have joined count.
        So the last ones are refused if the limit was lowered."""
        group, request = self.group, self.request
        known = group.members.get(request.member_id)
        known = known or group.members.of_instance(request.group_instance_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            joined = sum(each.has_joined for each in group.members)
            return joined < group.max_size or (known is not None and known.has_joined)
        return known is not None or len(group.members) < group.max_size

    def _turn_away(self) -> None:
        group, member_id = self.group, self.request.member_id
        answer = JoinAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER)
        group.say(self.step, self.waiter, answer)
        group.forget_pending(member_id)
        member = group.members.get(member_id)
        if member is not None:  # others have joined, so the group is not empty
            group.forget(member)
        group.maybe_complete_join(self.now, self.step)

    def _is_supported(self) -> bool:
        """Whether all members support one of the protocols."""
        group, request = self.group, self.request
        if group.state is GroupState.EMPTY:
            return bool(request.protocol_type) and len(request.protocols) > 0
        return request.protocol_type == group.protocol_type and any(
            supported_by_all((each.protocols for each in group.members), own.name)
            for own in request.protocols
        )

    # ------------------------------------------------------------------------- new members

    def _give_id(self) -> None:
        """Give a new member its id. It has to join again with it (KIP-394)."""
        group = self.group
        member_id = self.new_id(self.request.client_id)
        timer = group.session_timer(member_id)
        timer.set(self.now.monotonic_ms + self.request.session_timeout_ms)
        group.pending[member_id] = timer
        answer = JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        group.say(self.step, self.waiter, answer)

    def _add(self, member_id: str) -> None:
        group = self.group
        if not group.members:
            group.protocol_type = self.request.protocol_type
        member = self._member(member_id)
        member.is_new = True
        member.join_waiter = self.waiter
        member.session.set(self.now.monotonic_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        group.add(member)
        self._rebalance(f"{member_id} joins for the first time")

    def _member(self, member_id: str) -> Member:
        request = self.request
        return Member(
            member_id,
            request.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=request.protocols,
            session=self.group.session_timer(member_id),
        )

    def _rebalance(self, reason: str) -> None:
        why = self.request.reason[:REASON_MAX] or "it gives no reason"
        told = f"{reason} ({why})"
        self.group.rebalance_or_complete(told, self.now, self.step)

    # ------------------------------------------------------------------------- known members

    def _join_again(self) -> None:
        group, request = self.group, self.request
        error = group.members.check(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            self._refuse(error)
            return
        member = group.members[request.member_id]
        # The leader of a stable group joins again when it wants another assignment, for example
        # because a topic has more partitions. Another member with unchanged protocols has missed
        # the last answer.
        if (
            group.state is GroupState.PREPARING_REBALANCE
            or (group.state is GroupState.STABLE and group.leader == member.member_id)
            or request.protocols != member.protocols
        ):
            replaced = JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            group.tell(member.join_waiter, replaced, self.step)
            member.protocols = request.protocols
            member.rebalance_timeout_ms = request.rebalance_timeout_ms
            member.session_timeout_ms = request.session_timeout_ms
            member.join_waiter = self.waiter
            self._rebalance(f"{member.member_id} joins again")
        else:
            group.say(self.step, self.waiter, group.joined(member))

    # ------------------------------------------------------------------------- static members

    def _replace(self, former: Member) -> None:
        """The new process of a static member takes over its assignment (KIP-345)."""
        group = self.group
        assert former.group_instance_id is not None
        member = self._member(self.new_id(former.group_instance_id))
        member.assignment = former.assignment
        members = [member if each is former else each for each in group.members]
        leader = member.member_id if group.leader == former.member_id else group.leader
        elected = elect_protocol([each.protocols for each in members])
        if group.state is GroupState.STABLE and elected == group.protocol:
            record = group.record(members, leader, group.generation, self.now)
            successor = Successor(member.member_id, member.protocols)
            self.step.records.append(NotedRecord.of(record, successor))
            self.step.replies.append(Reply(self.waiter, self._taken_over(members, member, leader)))
            return
        fenced = ErrorCode.FENCED_INSTANCE_ID
        group.tell(former.join_waiter, JoinAnswer(fenced, former.member_id), self.step)
        group.tell(former.sync_waiter, SyncAnswer(fenced), self.step)
        former.session.cancel()
        member.join_waiter = self.waiter
        group.members.set(members)
        group.leader = leader
        # This is also necessary while the leader assigns, because it assigns to the former id.
        self._rebalance(f"{former.group_instance_id} has a new process")

    def _taken_over(
        self, members: Sequence[Member], member: Member, leader: str | None
    ) -> JoinAnswer:
        """The answer to a new process that continues in the same generation. A new leader must not
        assign again. If its client does not know ``skip_assignment`` (KIP-814), the answer names
        its former id as the leader."""
        group = self.group
        is_leader = leader == member.member_id
        skips = is_leader and self.request.supports_skipping_assignment
        told_leader = leader if skips else group.leader
        return JoinAnswer(
            ErrorCode.NONE,
            member.member_id,
            group.generation,
            group.protocol_type,
            group.protocol,
            told_leader or "",
            group.told_to_leader(members) if skips else (),
            skip_assignment=skips,
        )
