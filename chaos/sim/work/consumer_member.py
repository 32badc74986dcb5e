"""A member of a group of the consumer protocol (KIP-848), which may leave, die, stand still, or
subscribe to other topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from chaos.sim.laws.generations import Membership
from chaos.sim.laws.member_epochs import MembersReconcile
from chaos.sim.partition_name import PartitionName
from chaos.sim.work.group_reader import GroupReader
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import consumer_group_heartbeat as wire

_JOIN, _LEAVE, _STATIC_LEAVE = 0, -1, -2  # epochs
_ROUND_S: Final = 0.2

_NO_MEMBER: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
"""The errors after which a member has nothing any more, and joins again."""


@dataclass(slots=True)
class ConsumerMember(GroupReader):
    """``run`` until ``is_over``. From ``is_calm`` on it stays in the group, subscribes to all
    topics and reads on."""

    owners: MembersReconcile = field(kw_only=True)
    name: str = field(kw_only=True)
    me: Membership = field(init=False)
    _lives: int = 0  # so many processes it has been
    _ids: dict[str, bytes] = field(default_factory=dict)  # of topics
    _target: list[PartitionName] = field(default_factory=list)  # as it was told last
    # What the coordinator knows that it owns; None: unsure.
    _told_owned: list[PartitionName] | None = None
    _topics: tuple[str, ...] = ()  # that it subscribes to
    _regex: str | None = None  # with which it does so; "": it did before
    _has_told_all: bool = False  # the topics and all else
    _ghost: tuple[Membership, dict[PartitionName, int]] | None = None
    """A former life, or a former epoch, which still may commit what it had read."""

    def __post_init__(self) -> None:
        self._be_new()

    async def run(self, is_calm: Callable[[], bool], is_over: Callable[[], bool]) -> None:
        while not is_over():
            try:
                await self._go_on(is_calm)
            except (ApiError, OSError):
                self.group.counts["group requests without an answer"] += 1
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * _ROUND_S)
        self.client.connections.close()

    async def _go_on(self, is_calm: Callable[[], bool]) -> None:
        """One round of a member: heartbeat, partitions, records, commits."""
        if len(self._ids) < len(self.group.topics):
            broker = self.rng.choice(self.client.connections.brokers)
            self._ids = await self.client.connections.topic_ids(self.group.topics, broker)
            return
        if is_calm() and set(self._topics) != set(self.group.topics):
            self._subscribe(self.group.topics)
        if not await self._beat():
            return
        await self._give_up()
        await self._take_over()
        await self.read()
        if self.rng.random() < 0.4:
            await self.commit(self.me, self.positions)
        if not is_calm() and self.rng.random() < 0.25:
            acts = [self.leave, self._die, self._stand_still, self._look_elsewhere]
            await self.rng.choice(acts)()
        if self._ghost is not None and self.rng.random() < 0.5:
            await self._haunt()

    # ------------------------------------------------------------------------- who it is

    def _be_new(self) -> None:
        """Be a new process: nobody knows it."""
        self._lives += 1
        member_id = f"{self.name} in life {self._lives}"
        self.me = Membership(self.group.group_id, _JOIN, member_id, self.instance_id)
        self._have_nothing()
        self._subscribe(self.group.topics)

    def _have_nothing(self) -> None:
        self.owners.gave_up(self.me, [*self.positions, *self._target])
        self.positions = {}
        self._target = []
        self._told_owned = None
        self._has_told_all = False
        self.me = self.me._replace(generation=_JOIN)

    def _subscribe(self, topics: Iterable[str]) -> None:
        """By their names, or by a regular expression."""
        self._topics = tuple(topics)
        had_regex = bool(self._regex)
        self._regex = "" if had_regex else None
        if self.rng.random() < 0.3:
            self._regex = "|".join(self._topics)
        self._has_told_all = False

    # ------------------------------------------------------------------------- heartbeats

    async def _beat(self) -> bool:
        """Send a heartbeat. Whether the member has an epoch now."""
        joins = self.me.generation == _JOIN
        if joins:
            self.owners.joins(self.me)
            self._ghost = None if self._is_mine(self._ghost) else self._ghost
        owned = sorted(self.positions)
        sent, was_gone, asked = self.me, self.owners.is_gone(self.me), self.owners.asks()
        answer = await self.client.consumer_beat(self._heartbeat(owned))
        error = ErrorCode(answer.error_code)
        if error in _NO_MEMBER:
            self.owners.refused(was_over=was_gone)
            if error is ErrorCode.FENCED_INSTANCE_ID or self.rng.random() < 0.5:
                self._be_new()
            else:
                self._have_nothing()
        if error is not ErrorCode.NONE:
            self.group.counts[f"heartbeats refused: {error.name}"] += 1
            return False
        self.owners.accepted(sent, "a heartbeat", was_over=was_gone)
        self._has_told_all = True
        self._told_owned = owned
        if sent.generation not in (_JOIN, answer.member_epoch) and self.rng.random() < 0.3:
            self._ghost = sent, dict(self.positions)
        self.me = self.me._replace(generation=answer.member_epoch)
        if answer.assignment is not None:
            before, self._target = self._target, self._named(answer.assignment)
            # What it has never taken over, it need not give up.
            unused = [each for each in before if each not in {*self._target, *self.positions}]
            self.owners.gave_up(self.me, unused)
            self.group.counts["assignments of consumers"] += 1
        self.owners.told(self.me, self._target, asked)
        return True

    def _is_mine(self, ghost: tuple[Membership, dict[PartitionName, int]] | None) -> bool:
        return ghost is not None and ghost[0].member_id == self.me.member_id

    def _heartbeat(self, owned: list[PartitionName]) -> wire.ConsumerGroupHeartbeatRequest:
        """Says what the coordinator may not know yet, and sometimes everything."""
        joins = self.me.generation == _JOIN
        says_all = joins or not self._has_told_all or self.rng.random() < 0.1
        says_owned = says_all or owned != self._told_owned
        by_names = [] if self._regex else list(self._topics)
        return wire.ConsumerGroupHeartbeatRequest(
            member_id=self.me.member_id,
            member_epoch=self.me.generation,
            instance_id=self.instance_id,
            rebalance_timeout_ms=self.rebalance_timeout_ms if says_all else -1,
            subscribed_topic_names=by_names if says_all else None,
            subscribed_topic_regex=self._regex if says_all else None,
            topic_partitions=self._partitions(owned) if says_owned else None,
        )

    def _partitions(self, owned: Collection[PartitionName]) -> list[wire.TopicPartitions]:
        return [
            wire.TopicPartitions(self._ids[topic], [n for name, n in owned if name == topic])
            for topic in sorted({topic for topic, _ in owned})
        ]

    def _named(self, assignment: wire.Assignment) -> list[PartitionName]:
        names = {topic_id: name for name, topic_id in self._ids.items()}
        return sorted(
            (names[bytes(each.topic_id)], number)
            for each in assignment.topic_partitions
            for number in each.partitions
        )

    # ------------------------------------------------------------------------- partitions

    async def _give_up(self) -> None:
        """Stop to use what it should not have any more. The next heartbeat says so. It may take a
        while, with heartbeats in between."""
        lost = {each: at for each, at in self.positions.items() if each not in self._target}
        if not lost or self.rng.random() < 0.4:
            return
        if self.rng.random() < 0.7:
            await self.commit(self.me, lost)
        for partition in lost:
            del self.positions[partition]
        self.owners.gave_up(self.me, lost)

    async def _take_over(self) -> None:
        gained = [each for each in self._target if each not in self.positions]
        await self.find_positions(gained, self.me)

    # ------------------------------------------------------------------------- misbehaving

    async def leave(self) -> None:
        """A static member may leave for a while, and another process of it come back."""
        if self.rng.random() < 0.5:
            await self.commit(self.me, self.positions)
        returns = self.instance_id is not None and self.rng.random() < 0.7
        request = wire.ConsumerGroupHeartbeatRequest(
            member_id=self.me.member_id,
            member_epoch=_STATIC_LEAVE if returns else _LEAVE,
            instance_id=self.instance_id,
        )
        former, positions = self.me, dict(self.positions)
        self._be_new()
        answer = await self.client.consumer_beat(request)
        if answer.error_code == ErrorCode.NONE:
            self.owners.left(former)
            self.group.counts["consumers left"] += 1
            self._ghost = former, positions
        await asyncio.sleep(self.rng.uniform(0.0, 2.0))

    async def _die(self) -> None:
        """The coordinator has to find out. Sometimes a commit is still under way."""
        self.group.counts["consumers died"] += 1
        former = self.me, dict(self.positions)
        self._be_new()
        if self.rng.random() < 0.5:
            self._ghost = former
        self.client.connections.close()
        await asyncio.sleep(self.rng.choice([0.0, 0.3, self.absence_s()]))

    async def _stand_still(self) -> None:
        """Go on after a while as if nothing had been, and commit first."""
        self.group.counts["consumers stood still"] += 1
        await asyncio.sleep(self.absence_s())
        await self.commit(self.me, self.positions)

    async def _look_elsewhere(self) -> None:
        """Subscribe to other topics."""
        topics = list(self.group.topics)
        self._subscribe(self.rng.sample(topics, self.rng.randint(1, len(topics))))

    async def _haunt(self) -> None:
        assert self._ghost is not None
        (ghost, positions), self._ghost = self._ghost, None
        kept = {each for each in positions if not self.owners.has_lost(ghost, each)}
        self.group.doubtful |= kept  # it may be taken, after newer commits
        await self.commit(ghost, positions)
