"""Administration of consumer groups and of the offsets that they have committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from stele.admin.coordinators import Coordinator, Coordinators
from stele.admin.items import all_or_raise
from stele.cluster.messages import error_code
from stele.cluster.view import ClusterView
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from stele.wire.consumer_protocol import Assignment, ConsumerProtocolError
from stele.wire.v1 import groups_pb2 as pb

DEAD: Final = "Dead"
"""The state of a group that does not exist."""

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
"""The types of groups: the protocol of their coordinator."""

SHARE: Final = "share"
"""The type of share groups (KIP-932)."""

EMPTY: Final = "Empty"
"""The state of a group without members."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group: its id, state and type."""

    group_id: str
    protocol_type: str  # "consumer" for consumers; empty if no member has ever joined
    state: str  # Kafka's name: Empty, PreparingRebalance, CompletingRebalance, Stable, …
    type: str  # classic, consumer or share


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group and the partitions that are assigned to it."""

    member_id: str
    group_instance_id: str | None  # None: a dynamic member
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]  # empty while a classic group is rebalanced
    # Of members of groups of the consumer protocol; None in classic groups. Members of share groups
    # only have an epoch.
    member_epoch: int | None = None
    target_assignment: tuple[TopicPartition, ...] | None = None
    is_classic: bool = True  # the member itself uses the classic protocol


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group, with its coordinator and its members."""

    group_id: str
    state: str  # DEAD: there is no such group
    protocol_type: str
    protocol: str  # the assignor; of a classic group, empty unless it is stable
    coordinator: Coordinator
    members: tuple[MemberDescription, ...]
    type: str = "classic"  # or consumer, or share
    group_epoch: int | None = None  # None: a classic group
    assignment_epoch: int | None = None  # the group's epoch when the target assignment was made


class CommittedOffset(NamedTuple):
    """An offset that a group has committed for a partition."""

    offset: int  # of the next record to be read
    leader_epoch: int | None  # of the last record that was read; None: not known
    metadata: str


class GroupAdmin:
    """The part of ``stele.admin.admin.Admin`` for groups.

    If an answer is lost, a change may be carried out twice. That is harmless: an offset is set to
    the same value again, and a deleted group or offset is gone already.
    """

    def __init__(self, view: ClusterView) -> None:
        self._coordinators = Coordinators(view)

    async def list_groups(self, states: Sequence[str], types: Sequence[str]) -> list[GroupListing]:
        answers = await self._coordinators.ask_all_brokers(
            "ListGroups",
            pb.ListGroupsRequest(states=states, types=types),
            pb.ListGroupsResponse.FromString,
        )
        # A group that moves meanwhile may be listed by both brokers.
        found = {
            each.group: GroupListing(each.group, each.protocol_type, each.state, each.type)
            for answer in answers
            for each in answer.groups
        }
        return [found[name] for name in sorted(found)]

    async def describe(self, groups: Iterable[str]) -> list[GroupDescription]:
        answers = await self._coordinators.ask_each(
            groups,
            "DescribeGroups",
            lambda names: pb.DescribeGroupsRequest(groups=names),
            pb.DescribeGroupsResponse.FromString,
            lambda answer: answer.groups,
        )
        failed = {name: each for name, each in answers.items() if isinstance(each, ApiError)}
        described = [
            _description(each.coordinator, each.told)
            for each in answers.values()
            if not isinstance(each, ApiError)
        ]
        return all_or_raise(failed, described)

    async def delete(self, groups: Iterable[str]) -> None:
        answers = await self._coordinators.ask_each(
            groups,
            "DeleteGroups",
            lambda names: pb.DeleteGroupsRequest(groups=names),
            pb.DeleteGroupsResponse.FromString,
            lambda answer: answer.groups,
        )
        failed = {name: each for name, each in answers.items() if isinstance(each, ApiError)}
        all_or_raise(failed, [name for name in answers if name not in failed])

    async def list_offsets(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        answer = await self._coordinators.ask(
            group,
            "OffsetFetch",
            pb.OffsetFetchRequest(group=group, require_stable=True),
            pb.OffsetFetchResponse.FromString,
        )
        found = {
            TopicPartition(each.topic, each.partition): CommittedOffset(
                each.offset,
                each.leader_epoch if each.leader_epoch >= 0 else None,
                each.metadata,
            )
            for each in answer.partitions
            if each.offset >= 0
        }
        return dict(sorted(found.items()))

    async def alter_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        request = pb.OffsetCommitRequest(group=group)
        for name, offset in offsets.items():
            request.partitions.add(topic=name.topic, partition=name.partition, offset=offset)
        answer = await self._coordinators.ask(
            group, "OffsetCommit", request, pb.OffsetCommitResponse.FromString
        )
        _check_partitions(answer.partitions)

    async def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, []).append(partition)
        request = pb.OffsetDeleteRequest(group=group)
        for topic, numbers in by_topic.items():
            request.topics.add(topic=topic, partitions=numbers)
        answer = await self._coordinators.ask(
            group, "OffsetDelete", request, pb.OffsetDeleteResponse.FromString
        )
        _check_partitions(answer.partitions)


def _description(
    coordinator: Coordinator, told: pb.DescribeGroupsResponse.Group
) -> GroupDescription:
    has_epochs = told.type in (CONSUMER, SHARE)
    member = {CONSUMER: _consumer, SHARE: _sharer}.get(told.type, _classic_consumer)
    if told.type != SHARE and told.protocol_type != "consumer":
        member = _member
    return GroupDescription(
        told.group,
        told.state,
        told.protocol_type,
        told.protocol,
        coordinator,
        tuple(member(each) for each in told.members),
        told.type or CLASSIC,
        told.group_epoch if has_epochs else None,
        told.assignment_epoch if has_epochs else None,
    )


def _member(told: pb.DescribeGroupsResponse.Member) -> MemberDescription:
    """A member of a classic group whose assignment has a format of its own."""
    instance = told.group_instance_id if told.HasField("group_instance_id") else None
    return MemberDescription(told.member_id, instance, told.client_id, told.host, ())


def _classic_consumer(told: pb.DescribeGroupsResponse.Member) -> MemberDescription:
    return replace(_member(told), assignment=assigned_partitions(told.assignment))


def _consumer(told: pb.DescribeGroupsResponse.Member) -> MemberDescription:
    return replace(
        _member(told),
        assignment=_partitions(told.assigned),
        member_epoch=told.member_epoch,
        target_assignment=_partitions(told.target),
        is_classic=told.is_classic,
    )


def _sharer(told: pb.DescribeGroupsResponse.Member) -> MemberDescription:
    return replace(
        _member(told),
        assignment=_partitions(told.assigned),
        member_epoch=told.member_epoch,
        is_classic=False,
    )


def _partitions(
    topics: Iterable[pb.DescribeGroupsResponse.Topic],
) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(TopicPartition(each.topic, number) for each in topics for number in each.partitions)
    )


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of a ConsumerProtocolAssignment, sorted. None of bytes that are none."""
    try:
        return tuple(sorted(Assignment.decode(assignment).partitions))
    except ConsumerProtocolError:
        return ()


def _check_partitions(
    answers: Iterable[pb.OffsetCommitResponse.Partition | pb.OffsetDeleteResponse.Partition],
) -> None:
    """Raises BulkError for the partitions that were refused."""
    failed: dict[str, ApiError] = {}
    done: list[TopicPartition] = []
    for each in answers:
        name = TopicPartition(each.topic, each.partition)
        code = error_code(each.error)
        if code is ErrorCode.NONE:
            done.append(name)
        else:
            failed[str(name)] = ApiError(code, f"{name}: {_WORDS.get(code) or explain(code)}")
    all_or_raise(failed, done)


_WORDS: Final = {
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members: only they commit while there are any",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group are subscribed to the topic",
}
