"""Ways to share partitions between the members of a group, under Kafka's names.

The group's leader runs one of them for all members. ``range`` and ``roundrobin`` give what Kafka's
give. ``cooperative-sticky`` has Kafka's rules (KIP-54, KIP-429): as even as possible, as few moves
as possible, and a partition that moves is given to nobody until its owner has released it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from stele.consumer.group.sticky import share_sticky
from stele.ids import TopicPartition
from stele.wire.consumer_protocol import NO_GENERATION, Subscription

Shares = dict[str, list[TopicPartition]]
"""Partitions by member id."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A member that partitions are shared with."""

    member_id: str
    instance_id: str | None
    subscription: Subscription

    @property
    def rank(self) -> tuple[bool, str]:
        """Static members come first, by instance id: their order survives a restart."""
        if self.instance_id is None:
            return True, self.member_id
        return False, self.instance_id


class Assignor(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep their partitions while they join (KIP-429)."""
        ...

    def user_data(self, generation: int) -> bytes | None:
        """A member's topics and partitions, as the leader's assignor gets them. ``generation`` is
        that of the owned partitions.
        """
        ...

    def assign(
        self, candidates: Sequence[Candidate], partition_counts: Mapping[str, int]
    ) -> Shares:
        """The shares of all candidates. Topics that have no count get no owner."""
        ...


class RangeAssignor:
    """Of each topic, each member gets a range of partitions."""

    name = "range"
    is_cooperative = False

    def user_data(self, generation: int) -> bytes | None:
        return None

    def assign(
        self, candidates: Sequence[Candidate], partition_counts: Mapping[str, int]
    ) -> Shares:
        shares: Shares = {each.member_id: [] for each in candidates}
        ranked = sorted(candidates, key=lambda each: each.rank)
        for topic in _topics(candidates, partition_counts):
            readers = [each for each in ranked if topic in each.subscription.topics]
            each_gets, first_get_one_more = divmod(partition_counts[topic], len(readers))
            start = 0
            for number, reader in enumerate(readers):
                end = start + each_gets + (number < first_get_one_more)
                shares[reader.member_id] += [TopicPartition(topic, n) for n in range(start, end)]
                start = end
        return shares


class RoundRobinAssignor:
    """All partitions are dealt to the members in turn."""

    name = "roundrobin"
    is_cooperative = False

    def user_data(self, generation: int) -> bytes | None:
        return None

    def assign(
        self, candidates: Sequence[Candidate], partition_counts: Mapping[str, int]
    ) -> Shares:
        shares: Shares = {each.member_id: [] for each in candidates}
        ranked = sorted(candidates, key=lambda each: each.rank)
        turn = 0
        for topic in _topics(candidates, partition_counts):
            for number in range(partition_counts[topic]):
                while topic not in ranked[turn % len(ranked)].subscription.topics:
                    turn += 1
                shares[ranked[turn % len(ranked)].member_id].append(TopicPartition(topic, number))
                turn += 1
        return shares


class CooperativeStickyAssignor:
    name = "cooperative-sticky"
    is_cooperative = True

    def user_data(self, generation: int) -> bytes | None:
        """The generation, for leaders that do not know version 2 of a subscription."""
        return struct.pack(">i", generation)

    def assign(
        self, candidates: Sequence[Candidate], partition_counts: Mapping[str, int]
    ) -> Shares:
        topics = _topics(candidates, partition_counts)
        ranked = sorted(candidates, key=lambda each: each.rank)
        shares = share_sticky(
            {each.member_id: frozenset(each.subscription.topics) for each in ranked},
            [TopicPartition(topic, n) for topic in topics for n in range(partition_counts[topic])],
            _owners(ranked),
        )
        return _without_unreleased(shares, candidates)


def _owners(candidates: Iterable[Candidate]) -> dict[TopicPartition, str]:
    """The owner of each partition, by the members of the newest generation. A partition that two
    members of one generation claim has no owner."""
    claims: dict[TopicPartition, tuple[int, str | None]] = {}
    for each in candidates:
        generation = _generation(each.subscription)
        for partition in each.subscription.owned:
            newest, _ = claims.get(partition, (NO_GENERATION - 1, None))
            if generation > newest:
                claims[partition] = (generation, each.member_id)
            elif generation == newest:
                claims[partition] = (generation, None)
    return {name: owner for name, (_, owner) in claims.items() if owner is not None}


def _generation(subscription: Subscription) -> int:
    if subscription.generation != NO_GENERATION:
        return subscription.generation
    if subscription.user_data is not None and len(subscription.user_data) >= 4:
        value: int = struct.unpack_from(">i", subscription.user_data)[0]
        return value
    return NO_GENERATION


def _without_unreleased(shares: Shares, candidates: Iterable[Candidate]) -> Shares:
    """The shares without partitions that another member must release first. Every claim counts,
    also one of an old generation: a member that claims a partition may be reading it."""
    claimed: dict[TopicPartition, set[str]] = {}
    for each in candidates:
        for partition in each.subscription.owned:
            claimed.setdefault(partition, set()).add(each.member_id)
    return {
        member_id: [name for name in share if claimed.get(name, {member_id}) == {member_id}]
        for member_id, share in shares.items()
    }


def _topics(candidates: Iterable[Candidate], partition_counts: Mapping[str, int]) -> list[str]:
    wanted = {topic for each in candidates for topic in each.subscription.topics}
    return sorted(topic for topic in wanted if partition_counts.get(topic, 0) > 0)


ASSIGNORS: Final[Mapping[str, Assignor]] = {
    each.name: each for each in (RangeAssignor(), RoundRobinAssignor(), CooperativeStickyAssignor())
}
