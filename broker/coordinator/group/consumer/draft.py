"""A group as the records of one event will make it.

The records are those of one step, so they change the group together: its epoch rises, and if the
event is a heartbeat, the target assignment follows in the same step, unless the last one was made
so recently that it has to wait.
"""

from __future__ import annotations

from broker.coordinator.assignors.spec import NO_PARTITIONS, Partitions
from broker.coordinator.group.consumer.group import ConsumerGroup
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
from broker.coordinator.step import KeyValue, Now


class Draft:
    """Collects the records of one event."""

    def __init__(self, group: ConsumerGroup) -> None:
        self.records: list[KeyValue] = []
        self.epoch = group.epoch
        self.assignment_epoch = group.assignment_epoch
        self.metadata = {each.member_id: each.metadata for each in group.members.values()}
        self.targets = dict(group.targets)
        self.regexes = dict(group.regexes)
        # Whether members or what they subscribe to are others than before.
        self.has_changed = False
        self._group = group
        self._topics = group.metadata.topics

    # ------------------------------------------------------------------------- members

    def set_member(self, member_id: str, metadata: MemberMetadata) -> None:
        """Add a member, or change what it has told."""
        before = self.metadata.get(member_id)
        if before == metadata:
            return
        self.metadata[member_id] = metadata
        self.records.append(member_record(self._group.group_id, member_id, metadata))
        if before is None or self._subscription(before) != self._subscription(metadata):
            self.has_changed = True
        if before is not None:
            self._drop_unused(before.regex)

    def _subscription(self, metadata: MemberMetadata) -> tuple[str | None, frozenset[str]]:
        return metadata.regex, names_of(metadata, self.regexes)

    def remove_member(self, member_id: str) -> None:
        metadata = self.metadata.pop(member_id)
        self.targets.pop(member_id, None)
        self.has_changed = True
        for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER):
            self.records.append(tombstone(kind, self._group.group_id, member_id))
        self._drop_unused(metadata.regex)

    def replace_member(self, former_id: str, member_id: str) -> None:
        """Another process takes over from a static member. Nothing else changes by that."""
        metadata, target = self.metadata[former_id], self.targets.get(former_id, NO_PARTITIONS)
        has_changed = self.has_changed
        self.remove_member(former_id)
        self.has_changed = has_changed
        self.metadata[member_id] = metadata
        self.targets[member_id] = target
        group_id = self._group.group_id
        self.records.append(member_record(group_id, member_id, metadata))
        self.records.append(target_record(group_id, member_id, target))

    def set_regex(self, regex: str, resolved: ResolvedRegex) -> None:
        """Say which topics a regular expression stands for."""
        before = self.regexes.get(regex)
        if before is not None and before.topic_names == resolved.topic_names:
            return
        self.regexes[regex] = resolved
        self.records.append(regex_record(self._group.group_id, regex, resolved))
        self.has_changed = True

    def _drop_unused(self, regex: str | None) -> None:
        if regex in self.regexes and all(each.regex != regex for each in self.metadata.values()):
            del self.regexes[regex]
            self.records.append(tombstone(Kind.REGEX, self._group.group_id, regex))

    # ------------------------------------------------------------------------- epochs

    def raise_epoch(self) -> None:
        """Begin a new epoch if members, subscriptions or topics have changed."""
        group = self._group
        if not self.has_changed and group.compared_topics is self._topics:
            return
        if self.has_changed:
            names = {
                name for each in self.metadata.values() for name in names_of(each, self.regexes)
            }
        else:
            names = group.subscribed_names()
        hashed = metadata_hash(self._topics, names)
        if self.has_changed or hashed != group.metadata_hash:
            self.epoch = group.epoch + 1
            self.records.append(group_value_record(group.group_id, GroupValue(self.epoch, hashed)))

    def assign(self, now: Now) -> None:
        """Make the target assignment of the newest epoch, if there is none yet and it may be made.
        Until then the group has the target of an earlier epoch."""
        group = self._group
        if not self.lacks_assignment or group.assignment_wait_ms(now):
            return
        assignor = preferred_assignor(self.metadata.values(), group.config.group_consumer_assignors)
        targets = new_targets(assignor, self.metadata, self.regexes, self.targets, self._topics)
        for member_id, target in targets.items():
            # A member without partitions has a record, too, as in Kafka.
            if self.targets.get(member_id) != target:
                self.records.append(target_record(group.group_id, member_id, target))
        self.targets = targets
        self.assignment_epoch = self.epoch
        value = TargetEpoch(self.epoch, now.time_ms)
        self.records.append(target_epoch_record(group.group_id, value))

    @property
    def lacks_assignment(self) -> bool:
        """Whether the target is that of an earlier epoch."""
        return self.assignment_epoch < self.epoch

    def target_of(self, member_id: str) -> Partitions:
        """What the member should own. The target of an earlier epoch may have topics that the
        member does not subscribe to any more, or that are gone: it should not own these."""
        target = self.targets.get(member_id, NO_PARTITIONS)
        if not self.lacks_assignment:
            return target
        names = names_of(self.metadata[member_id], self.regexes)
        topics = (self._topics.named(name) for name in names)
        ids = {topic.topic_id for topic in topics if topic is not None}
        return {topic_id: numbers for topic_id, numbers in target.items() if topic_id in ids}
