"""A share group as its records say (KIP-932).

The group has an epoch, which rises with every change of its members, of their subscriptions, of the
topics, and of the partitions whose state is initialized. The target assignment has the epoch of the
group for which it was made. A member gets its part of the target in its next heartbeat: several
members may have a partition, so nobody has to revoke it before.

Invariants:

- Only ``replay`` changes this state, except for sessions and for data from the metadata.
- No epoch goes back, also across coordinators.
- Only partitions whose state is initialized are assigned. So a leader of an assigned partition
  finds the state of the group at the share coordinator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from broker.coordinator.assignors.spec import Partitions
from broker.coordinator.group.consumer.types import Metadata
from broker.coordinator.group.deadlines import Deadlines, Timer, TimerKind
from broker.coordinator.group.share.records import (
    ShareAssignment,
    ShareKey,
    ShareKind,
    ShareMemberMetadata,
    ShareTargetEpoch,
    StatePartitions,
    decode_share_current,
    decode_share_group,
    decode_share_member,
    decode_share_target,
    decode_share_target_epoch,
    decode_state_partitions,
    share_tombstone,
)
from broker.coordinator.group.share.types import ShareSettings
from broker.coordinator.group.types import GroupState
from broker.coordinator.step import KeyValue, Now, Step
from metadata.topics import Topics

INITIALIZE_AGAIN_MS: Final = 5_000
"""How long after a heartbeat has asked for the initialization of partitions another one asks again.
The request may be lost, or its answer."""


class ShareMember:
    """A member: its data, its partitions, and its session."""

    __slots__ = ("current", "member_id", "metadata", "session")

    def __init__(self, member_id: str, session: Timer) -> None:
        self.member_id = member_id
        self.metadata = ShareMemberMetadata()
        # Its epoch never goes back while it stays.
        self.current = ShareAssignment()
        # Each heartbeat moves it.
        self.session = session


class ShareGroupState:
    """One group, and the questions about it."""

    def __init__(self, group_id: str, deadlines: Deadlines, metadata: Metadata) -> None:
        self.group_id = group_id
        self.metadata = metadata
        self.epoch = 0
        self.metadata_hash = 0
        # At most `epoch`.
        self.target_epoch = ShareTargetEpoch(0)
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Partitions] = {}  # by member id
        self.state_partitions = StatePartitions()
        # The offset after the group's last record.
        self.recorded_end = -1
        # The topics that the group was last compared with; None: they have to be compared.
        self.compared_topics: Topics | None = None
        self.is_loaded = False
        # When a heartbeat may ask again for what is not initialized, by the monotonic clock.
        self._initialize_again_ms = 0.0
        self._deadlines = deadlines
        # How many members subscribe to a topic.
        self._topic_users: Counter[str] = Counter()

    # ------------------------------------------------------------------------- questions

    @property
    def state(self) -> GroupState:
        """Share groups have no other states: no member waits for another one."""
        return GroupState.STABLE if self.members else GroupState.EMPTY

    @property
    def state_time_ms(self) -> int:
        """Not known, and not needed: a share group has no offsets that expire."""
        return -1

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def settings(self) -> ShareSettings:
        return self.metadata.share_settings(self.group_id)

    def assignment_wait_ms(self, now: Now) -> int:
        """How long the next target assignment has to wait for, so that it serves all changes until
        then. 0: it may be made now, also if the clock has been set back since."""
        made_ms, interval_ms = self.target_epoch.time_ms, self.settings.assignment_interval_ms
        elapsed_ms = now.time_ms - made_ms
        is_early = made_ms > 0 and 0 <= elapsed_ms < interval_ms
        return interval_ms - elapsed_ms if is_early else 0

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self._topic_users

    def subscribed_names(self) -> set[str]:
        """The topics that any member subscribes to."""
        return set(self._topic_users)

    def may_initialize(self, now: Now) -> bool:
        return now.monotonic_ms >= self._initialize_again_ms

    # ------------------------------------------------------------------------- life

    def initialization_begun(self, now: Now) -> None:
        """An answer has asked for the initialization of partitions."""
        self._initialize_again_ms = now.monotonic_ms + INITIALIZE_AGAIN_MS

    def loaded(self, now: Now, step: Step) -> None:
        """Begin all sessions anew."""
        self.is_loaded = True
        for member_id in self.members:
            self.restart_session(member_id, now)

    def dissolve(self) -> None:
        """Cancel all timers of a group that is removed."""
        for member in self.members.values():
            member.session.cancel()

    def tombstones(self) -> Iterator[KeyValue]:
        """The end of a group without members."""
        yield share_tombstone(ShareKind.TARGET_EPOCH, self.group_id)
        yield share_tombstone(ShareKind.STATE_PARTITIONS, self.group_id)
        yield share_tombstone(ShareKind.GROUP, self.group_id)

    def restart_session(self, member_id: str, now: Now) -> None:
        session = self.members[member_id].session
        session.set(now.monotonic_ms + self.settings.session_timeout_ms)

    # ------------------------------------------------------------------------- records

    def replay(self, key: ShareKey, value: bytes | None, end_offset: int, now: Now) -> None:
        """Make the change that a record says. Raises ValueError."""
        if value is None:
            self._replay_tombstone(key)
        else:
            self._replay_value(key, value, now)
        self.recorded_end = end_offset

    def _replay_value(self, key: ShareKey, value: bytes, now: Now) -> None:
        match key.kind:
            case ShareKind.GROUP:
                self.epoch, self.metadata_hash = decode_share_group(value)
                self.compared_topics = self.metadata.topics if self.is_loaded else None
            case ShareKind.MEMBER:
                self._set_metadata(key.member_id, decode_share_member(value), now)
            case ShareKind.TARGET_EPOCH:
                self.target_epoch = decode_share_target_epoch(value)
            case ShareKind.TARGET:
                self.targets[key.member_id] = decode_share_target(value)
            case ShareKind.CURRENT:
                current = decode_share_current(value)
                self._member(key.member_id).current = current
                self.restart_session(key.member_id, now)
            case ShareKind.STATE_PARTITIONS:
                self.state_partitions = decode_state_partitions(value)
                if self.is_loaded:
                    self.initialization_begun(now)

    def _replay_tombstone(self, key: ShareKey) -> None:
        match key.kind:
            case ShareKind.MEMBER:
                member = self.members.pop(key.member_id, None)
                if member is not None:
                    self._topic_users.subtract(member.metadata.topic_names)
                    self._topic_users += Counter()  # drops those that nobody uses
                    member.session.cancel()
            case ShareKind.TARGET:
                self.targets.pop(key.member_id, None)
            case ShareKind.CURRENT:
                if key.member_id in self.members:
                    self.members[key.member_id].current = ShareAssignment()
            case ShareKind.TARGET_EPOCH:
                self.target_epoch = ShareTargetEpoch(0)
            case ShareKind.STATE_PARTITIONS:
                self.state_partitions = StatePartitions()

    def _member(self, member_id: str) -> ShareMember:
        member = self.members.get(member_id)
        if member is None:
            session = Timer(self._deadlines, TimerKind.SESSION, self.group_id, member_id)
            member = self.members[member_id] = ShareMember(member_id, session)
        return member

    def _set_metadata(self, member_id: str, metadata: ShareMemberMetadata, now: Now) -> None:
        member = self._member(member_id)
        self._topic_users.subtract(member.metadata.topic_names)
        self._topic_users.update(metadata.topic_names)
        self._topic_users += Counter()
        member.metadata = metadata
        self.restart_session(member_id, now)
