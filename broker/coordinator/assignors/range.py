"""The assignor ``range``: a range of each topic's partitions for each of its subscribers.

Topics with the same subscribers and the same number of partitions are co-partitioned: a member has
the same partition numbers of all of them. As in Kafka 4.1, static members come first, by instance
id, and dynamic ones follow, by member id. So a static member that comes back under another member
id gets the same partitions.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.coordinator.assignors.spec import Partitions, Subscriber


def assign_range(
    members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]
) -> dict[str, Partitions]:
    """A ``broker.coordinator.assignors.spec.Assignor``."""
    assigned: dict[str, dict[bytes, frozenset[int]]] = {each: {} for each in members}
    subscribers: dict[bytes, list[str]] = {}
    for member_id in sorted(members, key=lambda each: _place(each, members[each])):
        for topic_id in sorted(members[member_id].topic_ids):
            subscribers.setdefault(topic_id, []).append(member_id)
    for topic_id, of_topic in subscribers.items():
        size, larger = divmod(partition_counts[topic_id], len(of_topic))
        start = 0
        for number, member_id in enumerate(of_topic):
            end = start + size + (number < larger)
            if end > start:
                assigned[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(assigned)


def _place(member_id: str, member: Subscriber) -> tuple[bool, str, str]:
    return member.instance_id is None, member.instance_id or "", member_id
