"""A group as the records of one event will make it.

The records are those of one step, so they change the group together: its epoch rises, and if the
event is a heartbeat, the target assignment follows in the same step, unless the last one was made
so recently that it has to wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.coordinator.assignors.spec import NO_PARTITIONS, Partitions
from broker.coordinator.group.consumer.rebalancing import (
    metadata_hash,
    names_of,
    new_targets,
    preferred_assignor,
)
from broker.coordinator.group.consumer.records import (
    GroupValue,
    Kind,
    MemberMetadata,
    ResolvedRegex,
    TargetEpoch,
    group_value_record,
    member_record,
    regex_record,
    target_epoch_record,
    target_record,
    tombstone,
)
from broker.coordinator.group.consumer.state import ConsumerGroupState
from broker.coordinator.step import KeyValue, Now


class DraftState(NamedTuple):
    """What the records change, by member id or by regular expression."""

    metadata: dict[str, MemberMetadata]
    targets: dict[str, Partitions]
    regexes: dict[str, ResolvedRegex]


class Draft:
    """Collects the records of one event.

    Most events are heartbeats that change nothing, and a group may have thousands of members. So
    what the group has is copied before the first change of it, and not for each event.
    """

    def __init__(self, group: ConsumerGroupState) -> None:
        self.records: list[KeyValue] = []
        self.epoch = group.epoch
        self.assignment_epoch = group.assignment_epoch
        self._copy: DraftState | None = None  # None: nothing has changed
        # Whether members or their subscriptions have changed.
        self.has_changed = False
        self._group = group
        self._topics = group.metadata.topics

    @property
    def _state(self) -> DraftState:
        """The group's state in a copy, which may be changed."""
        if self._copy is None:
            group = self._group
            metadata = {each.member_id: each.metadata for each in group.members.values()}
            self._copy = DraftState(metadata, dict(group.targets), dict(group.regexes))
        return self._copy

    @property
    def metadata(self) -> Mapping[str, MemberMetadata]:
        """The data of each member."""
        return self._state.metadata

    def metadata_of(self, member_id: str) -> MemberMetadata | None:
        """A member's newest metadata; None if there is no such member."""
        if self._copy is not None:
            return self._copy.metadata.get(member_id)
        member = self._group.members.get(member_id)
        return None if member is None else member.metadata

    @property
    def _targets(self) -> Mapping[str, Partitions]:
        return self._group.targets if self._copy is None else self._copy.targets

    @property
    def _regexes(self) -> Mapping[str, ResolvedRegex]:
        return self._group.regexes if self._copy is None else self._copy.regexes

    # ------------------------------------------------------------------------- members

    def set_member(self, member_id: str, metadata: MemberMetadata) -> None:
        """Add a member, or change its data."""
        before = self.metadata_of(member_id)
        if before == metadata:
            return
        self._state.metadata[member_id] = metadata
        self.records.append(member_record(self._group.group_id, member_id, metadata))
        if before is None or self._subscription(before) != self._subscription(metadata):
            self.has_changed = True
        if before is not None:
            self._drop_unused(before.regex)

    def _subscription(self, metadata: MemberMetadata) -> tuple[str | None, frozenset[str]]:
        return metadata.regex, names_of(metadata, self._regexes)

    def remove_member(self, member_id: str) -> None:
        state = self._state
        metadata = state.metadata.pop(member_id)
        state.targets.pop(member_id, None)
        self.has_changed = True
        for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER):
            self.records.append(tombstone(kind, self._group.group_id, member_id))
        self._drop_unused(metadata.regex)

    def replace_member(self, former_id: str, member_id: str) -> None:
        """Another process takes over from a static member. Nothing else changes by that."""
        state = self._state
        metadata, target = state.metadata[former_id], state.targets.get(former_id, NO_PARTITIONS)
        has_changed = self.has_changed
        self.remove_member(former_id)
        self.has_changed = has_changed
        state.metadata[member_id] = metadata
        state.targets[member_id] = target
        group_id = self._group.group_id
        self.records.append(member_record(group_id, member_id, metadata))
        self.records.append(target_record(group_id, member_id, target))

    def set_regex(self, regex: str, resolved: ResolvedRegex) -> None:
        """Say which topics a regular expression stands for."""
        before = self._regexes.get(regex)
        if before is not None and before.topic_names == resolved.topic_names:
            return
        self._state.regexes[regex] = resolved
        self.records.append(regex_record(self._group.group_id, regex, resolved))
        self.has_changed = True

    def _drop_unused(self, regex: str | None) -> None:
        if regex is None or regex not in self._regexes:
            return
        state = self._state
        if all(each.regex != regex for each in state.metadata.values()):
            del state.regexes[regex]
            self.records.append(tombstone(Kind.REGEX, self._group.group_id, regex))

    # ------------------------------------------------------------------------- epochs

    def raise_epoch(self) -> None:
        """Begin a new epoch if members, subscriptions or topics have changed."""
        group = self._group
        if not self.has_changed and group.compared_topics is self._topics:
            return
        if self.has_changed:
            names = {
                name for each in self.metadata.values() for name in names_of(each, self._regexes)
            }
        else:
            names = group.subscribed_names()
        hashed = metadata_hash(self._topics, names)
        if self.has_changed or hashed != group.metadata_hash:
            self.epoch = group.epoch + 1
            self.records.append(group_value_record(group.group_id, GroupValue(self.epoch, hashed)))

    def assign(self, now: Now) -> None:
        """Make the target assignment of the newest epoch, unless it exists or may not be made yet.
        Until then the group has the target of an earlier epoch."""
        group = self._group
        if not self.lacks_assignment or group.assignment_wait_ms(now):
            return
        state = self._state
        assignor = preferred_assignor(
            state.metadata.values(), group.config.group_consumer_assignors
        )
        targets = new_targets(assignor, state.metadata, state.regexes, state.targets, self._topics)
        for member_id, target in targets.items():
            # A member without partitions has a record, too, as in Kafka.
            if state.targets.get(member_id) != target:
                self.records.append(target_record(group.group_id, member_id, target))
        self._copy = state._replace(targets=targets)
        self.assignment_epoch = self.epoch
        value = TargetEpoch(self.epoch, now.time_ms)
        self.records.append(target_epoch_record(group.group_id, value))

    @property
    def lacks_assignment(self) -> bool:
        """Whether the target is that of an earlier epoch."""
        return self.assignment_epoch < self.epoch

    def target_of(self, member_id: str) -> Partitions:
        """The partitions that the member should own. The target of an earlier epoch may have topics
        that the member does not subscribe to any more, or that are deleted. These are left out."""
        target = self._targets.get(member_id, NO_PARTITIONS)
        if not self.lacks_assignment:
            return target
        metadata = self.metadata_of(member_id)
        assert metadata is not None  # a member is asked about
        names = names_of(metadata, self._regexes)
        topics = (self._topics.named(name) for name in names)
        ids = {topic.topic_id for topic in topics if topic is not None}
        return {topic_id: numbers for topic_id, numbers in target.items() if topic_id in ids}
