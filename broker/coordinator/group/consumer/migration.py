"""A group with members changes its group protocol (KIP-848, live migration).

The step that lets the first member of the consumer protocol join, or the last one leave, also has
the records of the group in its other protocol. So a crash leaves one of the two.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Final

from broker.coordinator.assignors.spec import NO_PARTITIONS, Partitions
from broker.coordinator.group.classic.generations import Generations
from broker.coordinator.group.classic.member import Member
from broker.coordinator.group.config import GroupConfig
from broker.coordinator.group.consumer.draft import Draft
from broker.coordinator.group.consumer.records import (
    ClassicMember,
    CurrentAssignment,
    GroupValue,
    Kind,
    MemberMetadata,
    TargetEpoch,
    current_record,
    group_value_record,
    member_record,
    target_epoch_record,
    target_record,
    tombstone,
)
from broker.coordinator.group.consumer.state import ConsumerGroupState
from broker.coordinator.group.records import RecordedGroup, RecordedMember, group_record
from broker.coordinator.group.types import CONSUMER_PROTOCOL
from broker.coordinator.group.voting import elect_protocol
from broker.coordinator.step import KeyValue, Now
from metadata.topics import Topics
from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from stele.wire.consumer_protocol import (
    VERSION,
    Assignment,
    ConsumerProtocolError,
    Subscription,
    version_of,
)

logger = logging.getLogger(__name__)

METADATA_BYTES_MAX: Final = 128 * 1024
"""A subscription or assignment that is read here. It is read in one turn of the event loop."""


# ------------------------------------------------------------------------------- what clients say


def subscription_of(metadata: bytes) -> Subscription:
    """A member's metadata for assignors of other clients. Raises ConsumerProtocolError."""
    _check_size(metadata)
    return Subscription.decode(metadata)


def _assignment_of(data: bytes) -> Assignment:
    """Raises ConsumerProtocolError."""
    _check_size(data)
    return Assignment.decode(data)


def _check_size(data: bytes) -> None:
    if len(data) > METADATA_BYTES_MAX:
        raise ConsumerProtocolError(f"a member has {len(data)} bytes of metadata")


def by_id(partitions: Iterable[TopicPartition], topics: Topics) -> Partitions:
    """The partitions of topics that are there, by the topics' ids."""
    found: dict[bytes, set[int]] = {}
    for name, number in partitions:
        topic = topics.named(name)
        if topic is not None and 0 <= number < len(topic.partitions):
            found.setdefault(topic.topic_id, set()).add(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}


def assignment_bytes(partitions: Partitions, topics: Topics, subscription: bytes) -> bytes:
    """The assignment as clients read it, in the version of the member's subscription. Topics that
    are gone are left out."""
    named = [
        (topics[topic_id].name, sorted(numbers))
        for topic_id, numbers in partitions.items()
        if topic_id in topics
    ]
    told = tuple(
        TopicPartition(name, number) for name, numbers in sorted(named) for number in numbers
    )
    try:
        version = version_of(subscription)
    except ConsumerProtocolError:
        version = 0
    return Assignment(told).encode(max(0, min(version, VERSION)))


# ------------------------------------------------------------------------------- to the consumer's


def upgraded(group: Generations, config: GroupConfig, topics: Topics) -> list[KeyValue]:
    """The records that convert a group of the classic protocol to the consumer protocol. Its
    members keep the partitions of the last assignment, and are members of the classic protocol.

    Raises ApiError GROUP_ID_NOT_FOUND: the group cannot be converted.
    """
    why = _why_not_upgraded(group, config)
    if why is not None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"the group has classic members, and {why}")
    try:
        records = list(_upgraded(group, topics))
    except ConsumerProtocolError as error:
        raise ApiError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"the group has classic members, and {error}"
        ) from None
    logger.info("group %s goes on with the consumer protocol", group.group_id)
    return records


def _why_not_upgraded(group: Generations, config: GroupConfig) -> str | None:
    if not config.may_upgrade:
        return f"group.consumer.migration.policy is {config.group_consumer_migration_policy}"
    if not group.has_consumers:
        return f"they are no consumers, but of the protocol type {group.protocol_type}"
    if len(group.members) > config.group_consumer_max_size:
        return "they are more than group.consumer.max.size"
    return None


def _upgraded(group: Generations, topics: Topics) -> Iterator[KeyValue]:
    """Raises ConsumerProtocolError: what consumers say to each other cannot be read."""
    group_id, epoch = group.group_id, group.generation
    metadata, owned = {}, {}
    taken: set[tuple[bytes, int]] = set()
    for member in group.members:
        metadata[member.member_id] = _metadata(member, group.protocol)
        owned[member.member_id] = _owned(member, topics, taken)
    yield from group.tombstones()
    for member_id, value in metadata.items():
        yield member_record(group_id, member_id, value)
    yield group_value_record(group_id, GroupValue(epoch))
    for member_id, partitions in owned.items():
        yield target_record(group_id, member_id, partitions)
    yield target_epoch_record(group_id, TargetEpoch(epoch))
    for member_id, partitions in owned.items():
        current = CurrentAssignment(epoch, epoch, assigned=partitions)
        yield current_record(group_id, member_id, current)


def _metadata(member: Member, protocol: str | None) -> MemberMetadata:
    # Before the first generation there is no chosen protocol.
    told = subscription_of(member.metadata(protocol or member.protocols[0].name))
    return classic_metadata(
        told,
        MemberMetadata(
            instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
        ),
        ClassicMember(member.session_timeout_ms, member.protocols),
    )


def classic_metadata(
    told: Subscription, member: MemberMetadata, classic: ClassicMember
) -> MemberMetadata:
    """The data of a member of the classic protocol, from its subscription."""
    return member._replace(
        rack_id=told.rack or None,
        topic_names=tuple(sorted(set(told.topics))),
        regex=None,
        classic=classic,
    )


def _owned(member: Member, topics: Topics, taken: set[tuple[bytes, int]]) -> Partitions:
    """What the last assignment gave a member. ``taken``: by those before it; no partition has two
    owners, whatever the leader has assigned."""
    assignment = _assignment_of(member.assignment)
    if assignment.user_data:
        raise ConsumerProtocolError(
            "an assignor of their own, whose data would be lost, has assigned"
        )
    owned = {}
    for topic_id, numbers in by_id(assignment.partitions, topics).items():
        free = frozenset(each for each in numbers if (topic_id, each) not in taken)
        taken |= {(topic_id, each) for each in free}
        if free:
            owned[topic_id] = free
    return owned


# ------------------------------------------------------------------------------- to the classic one


def downgraded(group: ConsumerGroupState, draft: Draft, now: Now) -> list[KeyValue]:
    """The records that make a group of the classic protocol of one whose members all use it in the
    ``draft``. They rebalance at once, since none of them leads."""
    logger.info("group %s goes on with the classic protocol", group.group_id)
    return list(_downgraded(group, draft, now))


def may_be_downgraded(group: ConsumerGroupState, size: int) -> bool:
    """Whether the group may have the classic protocol, with so many members."""
    return group.config.may_downgrade and size <= group.config.group_max_size


def _downgraded(group: ConsumerGroupState, draft: Draft, now: Now) -> Iterator[KeyValue]:
    group_id = group.group_id
    for member_id in group.members:
        for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER):
            yield tombstone(kind, group_id, member_id)
    yield from group.tombstones()
    classic = {
        member_id: (metadata, metadata.classic)
        for member_id, metadata in draft.metadata.items()
        if metadata.classic is not None
    }
    protocol = elect_protocol([each.protocols for _, each in classic.values()])
    members = tuple(
        _recorded(group, member_id, metadata, of_member, protocol)
        for member_id, (metadata, of_member) in classic.items()
    )
    value = RecordedGroup(CONSUMER_PROTOCOL, group.epoch, protocol, None, now.time_ms, members)
    yield group_record(group_id, value)


def _recorded(
    group: ConsumerGroupState,
    member_id: str,
    metadata: MemberMetadata,
    classic: ClassicMember,
    protocol: str,
) -> RecordedMember:
    subscription = next(each.metadata for each in classic.protocols if each.name == protocol)
    member = group.members.get(member_id)
    # The partitions that it owns. Other members may still own those of its target.
    owned = NO_PARTITIONS if member is None else member.current.assigned
    return RecordedMember(
        member_id,
        metadata.instance_id,
        metadata.client_id,
        metadata.client_host,
        metadata.rebalance_timeout_ms,
        classic.session_timeout_ms,
        subscription,
        assignment_bytes(owned, group.metadata.topics, subscription),
    )
