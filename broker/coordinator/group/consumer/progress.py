"""The consequences for a group and a member when the member joins or sends a heartbeat, in either
protocol."""

from __future__ import annotations

from typing import NamedTuple

from broker.coordinator.assignors.spec import Partitions
from broker.coordinator.group.consumer.draft import Draft
from broker.coordinator.group.consumer.reconciliation import reconcile
from broker.coordinator.group.consumer.records import (
    CurrentAssignment,
    MemberMetadata,
    ResolvedRegex,
    current_record,
)
from broker.coordinator.group.consumer.state import ConsumerGroupState, ConsumerMember
from broker.coordinator.group.consumer.types import JOIN_EPOCH
from broker.coordinator.step import Now
from stele.errors import ApiError, ErrorCode


class Known(NamedTuple):
    """The sender of a request, as it was known before the request."""

    member_id: str
    metadata: MemberMetadata
    current: CurrentAssignment
    former_id: str | None = None
    """The static member that it takes over from."""


def taking_over(former: ConsumerMember, member_id: str) -> Known:
    """The new process of a static member."""
    current = former.current._replace(member_epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH, epochs={})
    return Known(member_id, former.metadata, current, former.member_id)


def check_room(group: ConsumerGroupState) -> None:
    """Raises ApiError GROUP_MAX_SIZE_REACHED: no other member may join."""
    most = group.config.group_consumer_max_size
    if len(group.members) >= most:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {most} members, the maximum"
        )


def check_instance(member: ConsumerMember | None, instance_id: str, member_id: str) -> None:
    """Whether the instance id, which ``member`` has, belongs to this process. Raises ApiError
    UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID (KIP-345)."""
    if member is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {instance_id}")
    if member.member_id != member_id:
        raise ApiError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"the instance id {instance_id} belongs to {member.member_id}",
        )


class Progress:
    """The draft of the group, and the member's next assignment."""

    def __init__(
        self,
        group: ConsumerGroupState,
        known: Known,
        metadata: MemberMetadata,
        owned: Partitions | None,
        now: Now,
        resolved_regex: ResolvedRegex | None = None,
    ) -> None:
        """``metadata``: the member's present data. ``owned``: the partitions that it reports as
        owned; None if it reports none."""
        draft = Draft(group)
        if known.former_id is not None:
            draft.replace_member(known.former_id, known.member_id)
        if resolved_regex is not None:
            assert metadata.regex is not None  # it is what was resolved
            draft.set_regex(metadata.regex, resolved_regex)
        draft.set_member(known.member_id, metadata)
        draft.raise_epoch()
        draft.assign(now)
        own_ids = (None, known.member_id, known.former_id)
        self.current = reconcile(
            known.current,
            draft.target_of(known.member_id),
            draft.assignment_epoch,
            owned,
            lambda topic_id, number: group.owner(topic_id, number) in own_ids,
        )
        self.draft = draft
        # A request that changes anything has a record of its member, which restarts the session.
        self.has_changed = bool(draft.records) or self.current != known.current
        if self.has_changed:
            draft.records.append(current_record(group.group_id, known.member_id, self.current))
