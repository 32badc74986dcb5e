"""The assignor ``uniform``: members have equally many partitions, and keep theirs where
possible.

Balance comes first. If all members subscribe to the same topics, the sizes of their assignments
differ by one at most, and no balanced assignment would move fewer partitions. If they subscribe to
different topics, no partition can move to another subscriber of its topic that has two partitions
less than its owner.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from broker.coordinator.assignors.spec import Partitions, Subscriber

_Partition = tuple[bytes, int]


def assign_uniform(
    members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]
) -> dict[str, Partitions]:
    """A ``broker.coordinator.assignors.spec.Assignor``."""
    if not members:
        return {}
    balance = _Balance(members, partition_counts)
    if len({each.topic_ids for each in members.values()}) == 1:
        balance.share_among_equals()
    else:
        balance.share_among_different()
    return {member_id: _by_topic(owned) for member_id, owned in balance.owned.items()}


def _by_topic(owned: Iterable[_Partition]) -> Partitions:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, number in owned:
        by_topic.setdefault(topic_id, []).append(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in by_topic.items()}


class _Balance:
    """An assignment that is being made. It begins with what the members may keep."""

    def __init__(
        self, members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]
    ) -> None:
        self._members = members
        # In the order in which partitions are given away: the last ones go first.
        self.owned: dict[str, dict[_Partition, None]] = {}
        taken: set[_Partition] = set()
        for member_id in sorted(members):
            member = members[member_id]
            kept: dict[_Partition, None] = {}
            for topic_id in sorted(member.assigned):
                if topic_id not in member.topic_ids:
                    continue
                for number in sorted(member.assigned[topic_id]):
                    partition = topic_id, number
                    if number < partition_counts[topic_id] and partition not in taken:
                        kept[partition] = None
                        taken.add(partition)
            self.owned[member_id] = kept
        subscribed = frozenset().union(*{each.topic_ids for each in members.values()})
        self._free = [
            (topic_id, number)
            for topic_id in sorted(subscribed)
            for number in range(partition_counts[topic_id])
            if (topic_id, number) not in taken
        ]

    # ------------------------------------------------------------------ equal subscriptions

    def share_among_equals(self) -> None:
        """The members with the most may keep one more, so that the fewest partitions move."""
        owned = self.owned
        total = len(self._free) + sum(map(len, owned.values()))
        size, larger = divmod(total, len(owned))
        by_size = sorted(owned, key=lambda each: -len(owned[each]))
        quotas = {each: size + (place < larger) for place, each in enumerate(by_size)}
        for member_id, quota in quotas.items():
            while len(owned[member_id]) > quota:
                self._free.append(owned[member_id].popitem()[0])
        free = iter(self._free)
        for member_id, quota in quotas.items():
            for _ in range(quota - len(owned[member_id])):
                owned[member_id][next(free)] = None

    # ------------------------------------------------------------------ different subscriptions

    def share_among_different(self) -> None:
        """Give out the free partitions, and level topic by topic until nothing moves. Each move
        makes the sum of the squared sizes smaller, so there is an end."""
        free: dict[bytes, list[_Partition]] = {}
        for partition in self._free:
            free.setdefault(partition[0], []).append(partition)
        subscribers: dict[bytes, list[str]] = {}
        for member_id in sorted(self._members):
            for topic_id in self._members[member_id].topic_ids:
                subscribers.setdefault(topic_id, []).append(member_id)
        # Topics with few subscribers leave little choice.
        topics = sorted(subscribers, key=lambda each: (len(subscribers[each]), each))
        for topic_id in topics:
            self._give(subscribers[topic_id], free.get(topic_id, []))
        has_moved = True
        while has_moved:
            has_moved = False
            for topic_id in topics:
                has_moved |= self._level(topic_id, subscribers[topic_id])

    def _give(self, subscribers: list[str], partitions: list[_Partition]) -> None:
        smallest = [(len(self.owned[each]), each) for each in subscribers]
        heapq.heapify(smallest)
        for partition in partitions:
            size, member_id = smallest[0]
            self.owned[member_id][partition] = None
            heapq.heapreplace(smallest, (size + 1, member_id))

    def _level(self, topic_id: bytes, subscribers: list[str]) -> bool:
        """Move partitions of one topic from its largest owners to its smallest subscribers. Returns
        whether any has moved. Then sizes in the heaps may be old, and the topic is looked at
        again."""
        owned = self.owned
        smallest = [(len(owned[each]), each) for each in subscribers]
        heapq.heapify(smallest)
        largest = [(-size, each) for size, each in smallest]
        heapq.heapify(largest)
        movable = {}
        has_moved = False
        while largest and smallest:
            if len(owned[largest[0][1]]) - len(owned[smallest[0][1]]) < 2:
                break
            giver = largest[0][1]
            if giver not in movable:
                movable[giver] = [each for each in owned[giver] if each[0] == topic_id]
            if not movable[giver]:
                heapq.heappop(largest)
                continue
            taker = smallest[0][1]
            partition = movable[giver].pop()
            del owned[giver][partition]
            owned[taker][partition] = None
            heapq.heapreplace(largest, (-len(owned[giver]), giver))
            heapq.heapreplace(smallest, (len(owned[taker]), taker))
            has_moved = True
        return has_moved
