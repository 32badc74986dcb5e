"""A share group as the records of one event will make it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from broker.coordinator.assignors.simple import assign_simple
from broker.coordinator.assignors.spec import NO_PARTITIONS, Partitions, Subscriber
from broker.coordinator.group.consumer.rebalancing import metadata_hash
from broker.coordinator.group.share.records import (
    ShareGroupValue,
    ShareKind,
    ShareMemberMetadata,
    ShareTargetEpoch,
    StatePartitions,
    share_group_record,
    share_member_record,
    share_target_epoch_record,
    share_target_record,
    share_tombstone,
    state_partitions_record,
)
from broker.coordinator.group.share.state import ShareGroupState
from broker.coordinator.step import KeyValue, Now
from metadata.topics import Topics


class _Members(NamedTuple):
    """What the records change, by member id."""

    metadata: dict[str, ShareMemberMetadata]
    targets: dict[str, Partitions]


class ShareDraft:
    """Collects the records of one event.

    Most events are heartbeats that change nothing. So what the group has is copied before the first
    change of it, and not for each event.
    """

    def __init__(self, group: ShareGroupState) -> None:
        self.records: list[KeyValue] = []
        self.epoch = group.epoch
        self.target_epoch = group.target_epoch
        self.state_partitions = group.state_partitions
        self._group = group
        self._topics = group.metadata.topics
        self._copy: _Members | None = None  # None: nothing has changed
        # Whether members, their subscriptions or the initialized partitions have changed.
        self._has_changed = False

    @property
    def _members(self) -> _Members:
        """The group's members in a copy, which may be changed."""
        if self._copy is None:
            members = self._group.members.values()
            metadata = {each.member_id: each.metadata for each in members}
            self._copy = _Members(metadata, dict(self._group.targets))
        return self._copy

    # ------------------------------------------------------------------------- members

    def metadata_of(self, member_id: str) -> ShareMemberMetadata | None:
        """A member's newest metadata; None: there is no such member."""
        if self._copy is not None:
            return self._copy.metadata.get(member_id)
        member = self._group.members.get(member_id)
        return None if member is None else member.metadata

    def set_member(self, member_id: str, metadata: ShareMemberMetadata) -> None:
        """Add a member, or change its data."""
        before = self.metadata_of(member_id)
        if before == metadata:
            return
        self._members.metadata[member_id] = metadata
        self.records.append(share_member_record(self._group.group_id, member_id, metadata))
        self._has_changed |= before is None or before.topic_names != metadata.topic_names

    def remove_member(self, member_id: str) -> None:
        members = self._members
        del members.metadata[member_id]
        members.targets.pop(member_id, None)
        self._has_changed = True
        for kind in (ShareKind.CURRENT, ShareKind.TARGET, ShareKind.MEMBER):
            self.records.append(share_tombstone(kind, self._group.group_id, member_id))

    # ------------------------------------------------------------------------- partitions

    def initialized(self, partitions: Partitions) -> None:
        """The share coordinator has the state of these partitions. Those that the group does not
        initialize any more do not count: their topic is deleted, or they are initialized."""
        before = self.state_partitions
        done = _common(before.initializing, partitions)
        if done:
            initializing = _without(before.initializing, done)
            initialized = _union(before.initialized, done)
            self._set_state_partitions(initializing, initialized, before.deleting)
            self._has_changed = True

    def give_up_states(self, topic_ids: frozenset[bytes] | None = None) -> Partitions:
        """The group needs no state of these topics any more; None: of none. Returns the share
        partitions that may have one."""
        before = self.state_partitions
        doubtful = before.deleting.union(before.initializing, before.initialized)
        given_up = doubtful if topic_ids is None else doubtful & topic_ids
        self._set_state_partitions(
            {each: before.initializing[each] for each in before.initializing.keys() - given_up},
            {each: before.initialized[each] for each in before.initialized.keys() - given_up},
            before.deleting | given_up,
        )
        return {
            each: frozenset(range(len(self._topics[each].partitions)))
            for each in given_up & self.state_partitions.deleting
        }

    def states_deleted(self, topic_ids: frozenset[bytes]) -> None:
        """The share coordinator has no state of these topics any more."""
        before = self.state_partitions
        deleting = before.deleting - topic_ids
        self._set_state_partitions(before.initializing, before.initialized, deleting)

    def begin_states_anew(self, partitions: Partitions) -> None:
        """Begin an epoch that no state has had. A partition without a state gets one, too."""
        self.epoch = self._group.epoch + 1
        value = ShareGroupValue(self.epoch, self._group.metadata_hash)
        self.records.append(share_group_record(self._group.group_id, value))
        before = self.state_partitions
        new = _without(partitions, before.initialized)
        initializing = _union(before.initializing, new)
        self._set_state_partitions(initializing, before.initialized, before.deleting)

    def _initialize(self, names: Iterable[str]) -> None:
        """Have the state of all partitions of these topics initialized."""
        before = self.state_partitions
        known = _union(before.initializing, before.initialized)
        topics = [self._topics.named(each) for each in sorted(names)]
        wanted = {
            each.topic_id: frozenset(range(len(each.partitions)))
            for each in topics
            if each is not None
        }
        new = _without(wanted, known)
        if new:
            initializing = _union(before.initializing, new)
            self._set_state_partitions(initializing, before.initialized, before.deleting)

    def _set_state_partitions(
        self, initializing: Partitions, initialized: Partitions, deleting: frozenset[bytes]
    ) -> None:
        """The share coordinator removes the states of deleted topics by itself."""
        initializing, initialized = self._existing(initializing), self._existing(initialized)
        deleting = frozenset(each for each in deleting if each in self._topics)
        if (initializing, initialized, deleting) == self.state_partitions[:3]:
            return
        names = {each: self._topics[each].name for each in (*initializing, *initialized, *deleting)}
        self.state_partitions = StatePartitions(initializing, initialized, deleting, names)
        self.records.append(state_partitions_record(self._group.group_id, self.state_partitions))

    def _existing(self, partitions: Partitions) -> Partitions:
        return {each: numbers for each, numbers in partitions.items() if each in self._topics}

    @property
    def initializing(self) -> Partitions:
        """The partitions that members wait for. Partitions of deleted topics do not count."""
        initializing = self.state_partitions.initializing
        return self._existing(initializing) if initializing else initializing

    # ------------------------------------------------------------------------- epochs

    def raise_epoch(self) -> None:
        """Begin a new epoch if anything has changed that the assignment depends on, and have the
        state of new partitions initialized."""
        group = self._group
        if not self._has_changed and group.compared_topics is self._topics:
            return
        names = group.subscribed_names()
        if self._copy is not None:
            names = {name for each in self._copy.metadata.values() for name in each.topic_names}
        hashed = metadata_hash(self._topics, names)
        self._initialize(names)
        if self._has_changed or hashed != group.metadata_hash:
            self.epoch = group.epoch + 1
            value = ShareGroupValue(self.epoch, hashed)
            self.records.append(share_group_record(group.group_id, value))

    @property
    def lacks_assignment(self) -> bool:
        """Whether the target assignment was made for an earlier epoch."""
        return self.target_epoch.epoch < self.epoch

    def assign(self, now: Now) -> None:
        """Make the target assignment of the newest epoch, unless it exists or may not be made yet.
        Until then the group has the target of an earlier epoch."""
        group = self._group
        if not self.lacks_assignment or group.assignment_wait_ms(now):
            return
        members = self._members
        targets = new_targets(
            members.metadata, members.targets, self.state_partitions.initialized, self._topics
        )
        for member_id, target in targets.items():
            # A member without partitions has a record, too, as in Kafka.
            if members.targets.get(member_id) != target:
                self.records.append(share_target_record(group.group_id, member_id, target))
        self._copy = members._replace(targets=targets)
        self.target_epoch = ShareTargetEpoch(self.epoch, now.time_ms)
        self.records.append(share_target_epoch_record(group.group_id, self.target_epoch))

    def target_of(self, member_id: str) -> Partitions:
        """The partitions that the member should have. The target of an earlier epoch may have
        topics that the member does not subscribe to any more, or that are deleted."""
        targets = self._group.targets if self._copy is None else self._copy.targets
        target = targets.get(member_id, NO_PARTITIONS)
        if not self.lacks_assignment:
            return target
        metadata = self.metadata_of(member_id)
        assert metadata is not None  # a member is asked about
        ids = {self._topics.ids.get(name) for name in metadata.topic_names}
        return {topic_id: numbers for topic_id, numbers in target.items() if topic_id in ids}


def new_targets(
    members: Mapping[str, ShareMemberMetadata],
    targets: Mapping[str, Partitions],
    initialized: Partitions,
    topics: Topics,
) -> dict[str, Partitions]:
    """The partitions of each member, derived from its former ones.

    All partitions are assigned that are initialized. The states of a topic's partitions are spread
    over the share coordinators: one that does not answer keeps its own partitions back alone.
    """
    # Members mostly subscribe to the same topics. They share the set.
    ids_of: dict[tuple[str, ...], frozenset[bytes]] = {}
    for metadata in members.values():
        if metadata.topic_names in ids_of:
            continue
        found = [topics.ids.get(each) for each in metadata.topic_names]
        ids = frozenset(each for each in found if each in initialized)
        ids_of[metadata.topic_names] = frozenset(each for each in ids if each is not None)
    subscribers = {
        member_id: Subscriber(ids_of[each.topic_names], targets.get(member_id, NO_PARTITIONS))
        for member_id, each in members.items()
    }
    return assign_simple(subscribers, initialized)


# ------------------------------------------------------------------------------- sets of partitions


def _union(first: Partitions, second: Partitions) -> Partitions:
    found = dict(first)
    for topic_id, numbers in second.items():
        found[topic_id] = found.get(topic_id, frozenset()) | numbers
    return found


def _without(first: Partitions, second: Partitions) -> Partitions:
    found = {each: first[each] - second.get(each, frozenset()) for each in first}
    return {topic_id: numbers for topic_id, numbers in found.items() if numbers}


def _common(first: Partitions, second: Partitions) -> Partitions:
    return _without(first, _without(first, second))
