"""A group of the consumer protocol (KIP-848), as its records say.

The group has an epoch, which rises with every change of its members, of their subscriptions and of
the topics. The target assignment has the epoch of the group for which it was made. Each member
comes to the target by its own heartbeats (``reconciliation``), and then has its epoch.

Only ``replay`` changes this state, except for sessions and for data from the metadata.
``heartbeat`` and ``leaving`` decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from broker.coordinator.assignors.spec import NO_PARTITIONS, Partitions
from broker.coordinator.group.config import GroupConfig
from broker.coordinator.group.consumer.rebalancing import preferred_assignor
from broker.coordinator.group.consumer.records import (
    ClassicMember,
    ConsumerKey,
    CurrentAssignment,
    GroupValue,
    Kind,
    MemberMetadata,
    MemberState,
    ResolvedRegex,
    decode_current,
    decode_group_value,
    decode_member,
    decode_regex,
    decode_target,
    decode_target_epoch,
    tombstone,
)
from broker.coordinator.group.consumer.types import (
    Metadata,
)
from broker.coordinator.group.deadlines import Deadlines, Timer, TimerKind
from broker.coordinator.group.types import (
    CONSUMER_PROTOCOL,
    GroupState,
    MemberProtocol,
)
from broker.coordinator.group.voting import supported_by_all
from broker.coordinator.step import KeyValue, Now, Step
from metadata.topics import Topics


class ConsumerMember:
    """A member: its data, its partitions, and its time-outs."""

    __slots__ = ("current", "member_id", "metadata", "rebalance", "session")

    def __init__(self, member_id: str, session: Timer, rebalance: Timer) -> None:
        self.member_id = member_id
        self.metadata = MemberMetadata()
        # Its epoch never goes back while it stays, except to that of a static member that left.
        self.current = CurrentAssignment()
        # Each heartbeat moves it.
        self.session = session
        # Set while the member has partitions to revoke. If it uses the classic protocol, it is also
        # set from the answer that makes it join until it has fetched its assignment.
        self.rebalance = rebalance

    @property
    def uses_classic(self) -> bool:
        """Whether it is a member by JoinGroup, in the classic protocol."""
        return self.metadata.classic is not None


class ConsumerGroupState:
    """One group, and the questions about it."""

    def __init__(
        self, group_id: str, config: GroupConfig, deadlines: Deadlines, metadata: Metadata
    ) -> None:
        self.group_id = group_id
        self.config = config
        self.metadata = metadata
        # Never goes back, also across coordinators.
        self.epoch = 0
        self.metadata_hash = 0
        # Of the target. At most `epoch`, and never goes back either.
        self.assignment_epoch = 0
        # When the target was made, by the wall clock of its coordinator. 0: that is not known.
        self.assignment_time_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        # By member id. No partition is in two of them.
        self.targets: dict[str, Partitions] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self._regex_names: dict[str, frozenset[str]] = {}  # likewise, as sets
        # The offset after the group's last record. An answer about the group is sent when the
        # records below it are committed.
        self.recorded_end = -1
        # The topics that `metadata_hash` was last compared with; None: they have to be compared.
        self.compared_topics: Topics | None = None
        # The version of the metadata that each regular expression was last resolved with.
        self.resolved_versions: dict[str, int] = {}
        self._deadlines = deadlines
        # By instance id: the member that has it now. Only members of the group are here.
        self._instances: dict[str, str] = {}
        # The owner of each partition. Exactly what the members are assigned and have to revoke.
        self._owners: dict[bytes, dict[int, str]] = {}
        # How many members use a topic or a regular expression.
        self._topic_users: Counter[str] = Counter()
        self._regex_users: Counter[str] = Counter()
        self.is_loaded = False

    # ------------------------------------------------------------------------- questions

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(self._is_settled(each) for each in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def _is_settled(self, member: ConsumerMember) -> bool:
        current = member.current
        return current.state is MemberState.STABLE and current.member_epoch == self.assignment_epoch

    @property
    def state_time_ms(self) -> int:
        """Not known: offsets expire by the time of their commits, as in Kafka."""
        return -1

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def may_be_replaced(self) -> bool:
        return self.is_empty

    @property
    def is_used(self) -> bool:
        return bool(self.members)

    @property
    def has_consumers(self) -> bool:
        return True

    @property
    def session_timeout_ms(self) -> int:
        return self.metadata.settings(self.group_id).session_timeout_ms

    def assignment_wait_ms(self, now: Now) -> int:
        """How long the next target assignment has to wait for, so that it serves all changes until
        then (KIP-1263). 0: it may be made now, also if the clock has been set back since."""
        interval_ms = self.metadata.settings(self.group_id).assignment_interval_ms
        elapsed_ms = now.time_ms - self.assignment_time_ms
        is_early = self.assignment_time_ms > 0 and 0 <= elapsed_ms < interval_ms
        return interval_ms - elapsed_ms if is_early else 0

    def of_instance(self, instance_id: str) -> ConsumerMember | None:
        member_id = self._instances.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def owner(self, topic_id: bytes, number: int) -> str | None:
        """The member that owns a partition."""
        return self._owners.get(topic_id, {}).get(number)

    def waits(self, member: ConsumerMember) -> bool:
        """Whether others own partitions that a member should get."""
        target = self.targets.get(member.member_id, NO_PARTITIONS)
        return any(
            self.owner(topic_id, number) not in (None, member.member_id)
            for topic_id, numbers in target.items()
            for number in numbers
        )

    def subscribed_names(self) -> set[str]:
        """The topics that any member subscribes to."""
        return set(self._topic_users).union(*self._regex_names.values())

    def uses_regex(self, regex: str) -> bool:
        return regex in self._regex_users

    def is_stale(self, regex: str) -> bool:
        """Whether a regular expression may stand for other topics by now."""
        return self.resolved_versions.get(regex, -1) < self.metadata.names_version

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members use the topic's offsets."""
        return topic in self._topic_users or any(
            topic in names for names in self._regex_names.values()
        )

    def supports(self, protocol_type: str, protocols: Iterable[MemberProtocol]) -> bool:
        """Whether a member with these protocols can join by the classic protocol. Members of that
        protocol have one in common, so that they can go on without the others."""
        ballots = [each.protocols for each in self.classic_members()]
        return protocol_type == CONSUMER_PROTOCOL and any(
            supported_by_all(ballots, each.name) for each in protocols
        )

    def classic_members(self) -> Iterator[ClassicMember]:
        for member in self.members.values():
            if member.metadata.classic is not None:
                yield member.metadata.classic

    def is_last_consumer(self, member_id: str) -> bool:
        """Whether all other members use the classic protocol, and there are some."""
        others = [each for each in self.members.values() if each.member_id != member_id]
        is_consumer = not self.members[member_id].uses_classic
        return is_consumer and bool(others) and all(each.uses_classic for each in others)

    def assignor(self) -> str:
        """The one that most members prefer."""
        metadata = (each.metadata for each in self.members.values())
        return preferred_assignor(metadata, self.config.group_consumer_assignors)

    # ------------------------------------------------------------------------- life

    def loaded(self, now: Now, step: Step) -> None:
        """Begin all sessions anew."""
        self.is_loaded = True
        for member in self.members.values():
            self._restart(member, now)

    def dissolve(self) -> None:
        """Cancel all timers of a group that is removed."""
        for member in self.members.values():
            member.session.cancel()
            member.rebalance.cancel()

    def tombstones(self) -> Iterator[KeyValue]:
        """The end of a group without members."""
        for regex in sorted(self.regexes):
            yield tombstone(Kind.REGEX, self.group_id, regex)
        yield tombstone(Kind.TARGET_EPOCH, self.group_id)
        yield tombstone(Kind.PARTITIONS, self.group_id)
        yield tombstone(Kind.GROUP, self.group_id)

    def restart_session(self, member_id: str, now: Now) -> None:
        self._restart(self.members[member_id], now)

    def _restart(self, member: ConsumerMember, now: Now) -> None:
        classic = member.metadata.classic
        timeout_ms = self.session_timeout_ms if classic is None else classic.session_timeout_ms
        member.session.set(now.monotonic_ms + timeout_ms)

    def _watch_rebalance(self, member: ConsumerMember, now: Now) -> None:
        current = member.current
        is_awaited = current.state is MemberState.UNREVOKED_PARTITIONS
        if member.uses_classic:
            # It joined by this record, so it has to sync now, unless the record is an old one or
            # that of a group that has just changed its protocol.
            has_joined = current.previous_epoch != current.member_epoch
            is_awaited = self.is_loaded and (is_awaited or has_joined)
        if is_awaited:
            member.rebalance.set(now.monotonic_ms + member.metadata.rebalance_timeout_ms)
        else:
            member.rebalance.cancel()

    def await_join(self, member: ConsumerMember, now: Now) -> None:
        """A member of the classic protocol got an answer that makes it join again."""
        if member.rebalance.at_ms is None:
            member.rebalance.set(now.monotonic_ms + member.metadata.rebalance_timeout_ms)

    # ------------------------------------------------------------------------- records

    def replay(self, key: ConsumerKey, value: bytes | None, end_offset: int, now: Now) -> None:
        """Make the change that a record says. Raises ValueError."""
        if value is None:
            self._replay_tombstone(key)
        else:
            self._replay_value(key, value, now)
        self.recorded_end = end_offset

    def _replay_value(self, key: ConsumerKey, value: bytes, now: Now) -> None:
        match key.kind:
            case Kind.GROUP:
                self._set_epoch(decode_group_value(value))
            case Kind.MEMBER:
                self._set_metadata(key.name, decode_member(value), now)
            case Kind.TARGET_EPOCH:
                self.assignment_epoch, self.assignment_time_ms = decode_target_epoch(value)
            case Kind.TARGET:
                self.targets[key.name] = decode_target(value)
            case Kind.CURRENT:
                self._set_current(key.name, decode_current(value), now)
            case Kind.REGEX:
                resolved = self.regexes[key.name] = decode_regex(value)
                self._regex_names[key.name] = frozenset(resolved.topic_names)
                self.resolved_versions[key.name] = resolved.version
            case Kind.PARTITIONS:
                pass  # the topics are compared with the hash

    def _replay_tombstone(self, key: ConsumerKey) -> None:
        match key.kind:
            case Kind.MEMBER:
                self._remove(key.name)
            case Kind.TARGET:
                self.targets.pop(key.name, None)
            case Kind.CURRENT:
                member = self.members.get(key.name)
                if member is not None:
                    self._own(member, CurrentAssignment())
            case Kind.TARGET_EPOCH:
                self.assignment_epoch = self.assignment_time_ms = 0
            case Kind.REGEX:
                self.regexes.pop(key.name, None)
                self._regex_names.pop(key.name, None)
                self.resolved_versions.pop(key.name, None)

    def _set_epoch(self, value: GroupValue) -> None:
        self.epoch, self.metadata_hash = value
        self.compared_topics = self.metadata.topics if self.is_loaded else None

    def _member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = ConsumerMember(
                member_id,
                Timer(self._deadlines, TimerKind.SESSION, self.group_id, member_id),
                Timer(self._deadlines, TimerKind.REBALANCE, self.group_id, member_id),
            )
            self._count(member.metadata, 1)
        return member

    def _set_metadata(self, member_id: str, metadata: MemberMetadata, now: Now) -> None:
        member = self._member(member_id)
        self._count(member.metadata, -1)
        self._drop_instance(member)  # it may have another one now
        member.metadata = metadata
        self._count(metadata, 1)
        if metadata.instance_id is not None:
            self._instances[metadata.instance_id] = member_id
        self._restart(member, now)

    def _count(self, metadata: MemberMetadata, difference: int) -> None:
        names = [(self._topic_users, each) for each in metadata.topic_names]
        if metadata.regex:
            names.append((self._regex_users, metadata.regex))
        for users, name in names:
            users[name] += difference
            if not users[name]:
                del users[name]

    def _set_current(self, member_id: str, current: CurrentAssignment, now: Now) -> None:
        """A heartbeat of the member has written it, or the member's departure."""
        member = self._member(member_id)
        before = member.current
        self._own(member, current)
        self._restart(member, now)
        if current != before:
            self._watch_rebalance(member, now)

    def _own(self, member: ConsumerMember, current: CurrentAssignment) -> None:
        for partitions in (member.current.assigned, member.current.revoking):
            for topic_id, numbers in partitions.items():
                owners = self._owners.get(topic_id, {})
                for number in numbers:
                    # While loading, records that compaction has left may cross.
                    if owners.get(number) == member.member_id:
                        del owners[number]
                if not owners:
                    self._owners.pop(topic_id, None)
        member.current = current
        for partitions in (current.assigned, current.revoking):
            for topic_id, numbers in partitions.items():
                owners = self._owners.setdefault(topic_id, {})
                for number in numbers:
                    owners[number] = member.member_id

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._own(member, CurrentAssignment())
        self._count(member.metadata, -1)
        self._drop_instance(member)
        member.session.cancel()
        member.rebalance.cancel()

    def _drop_instance(self, member: ConsumerMember) -> None:
        """The member loses its instance id, unless another one has taken it over."""
        instance_id = member.metadata.instance_id
        if instance_id is not None and self._instances.get(instance_id) == member.member_id:
            del self._instances[instance_id]
