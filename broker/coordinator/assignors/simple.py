"""The assignor ``simple`` of share groups: members have equally many partitions, or partitions
equally many members (KIP-932).

Several members of a share group may have the same partition. If all members subscribe to the same
topics, all partitions are spread over the members together. Otherwise each topic is spread over its
subscribers. What is spread is the larger side:

- At least as many partitions as members: each partition has one member, and the numbers of
  partitions of two members differ by one at most.
- More members than partitions: each member has one partition, and the numbers of members of two
  partitions differ by one at most.

Balance comes first. A member keeps what it has where balance allows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from broker.coordinator.assignors.spec import Partitions, Subscriber

_Partition = tuple[bytes, int]
Item = TypeVar("Item", str, _Partition)
Bin = TypeVar("Bin", str, _Partition)


def assign_simple(
    members: Mapping[str, Subscriber], assignable: Partitions
) -> dict[str, Partitions]:
    """From the members by id, and the partitions that may be assigned, to the partitions of each
    member. Every assignable partition with a subscriber has a member. A topic that members
    subscribe to must be a key of ``assignable``. Equal arguments have equal results."""
    names = sorted(members)
    subscriptions = {each.topic_ids for each in members.values()}
    if len(subscriptions) == 1:
        spreads = [(names, sorted(*subscriptions))]
    else:
        subscribed = sorted(frozenset().union(*subscriptions))
        spreads = [
            ([name for name in names if topic_id in members[name].topic_ids], [topic_id])
            for topic_id in subscribed
        ]
    assigned: dict[str, dict[bytes, set[int]]] = {name: {} for name in names}
    for subscribers, topic_ids in spreads:
        partitions = [(each, n) for each in topic_ids for n in sorted(assignable[each])]
        for name, (topic_id, number) in _pairs(subscribers, partitions, members):
            assigned[name].setdefault(topic_id, set()).add(number)
    return {
        name: {topic_id: frozenset(numbers) for topic_id, numbers in owned.items()}
        for name, owned in assigned.items()
    }


def _pairs(
    names: Sequence[str], partitions: Sequence[_Partition], members: Mapping[str, Subscriber]
) -> Iterable[tuple[str, _Partition]]:
    """The members and partitions that belong together from now on."""
    there = set(partitions)
    former = [
        (name, (topic_id, number))
        for name in names
        for topic_id, numbers in sorted(members[name].assigned.items())
        for number in sorted(numbers)
        if (topic_id, number) in there
    ]
    if len(partitions) >= len(names):
        by_name = _spread(partitions, names, [(each, name) for name, each in former])
        return [(name, each) for name, found in by_name.items() for each in found]
    by_partition = _spread(names, partitions, former)
    return [(name, each) for each, found in by_partition.items() for name in found]


def _spread(
    items: Sequence[Item], bins: Sequence[Bin], former: Iterable[tuple[Item, Bin]]
) -> dict[Bin, list[Item]]:
    """Put each item into one bin. The sizes of the bins differ by one at most.

    ``former``: where items were. An item that was in several bins stays in the emptiest.
    """
    if not bins:
        return {}
    places: dict[Item, list[Bin]] = {each: [] for each in items}
    for item, where in former:
        places[item].append(where)
    found: dict[Bin, list[Item]] = {each: [] for each in bins}
    free = []
    for item, known in places.items():
        if known:
            min((found[each] for each in known), key=len).append(item)
        else:
            free.append(item)
    size, larger = divmod(len(items), len(bins))
    # The fullest bins may have one item more, so that the fewest items move.
    by_size = sorted(bins, key=lambda each: -len(found[each]))
    quotas = {each: size + (place < larger) for place, each in enumerate(by_size)}
    for where, quota in quotas.items():
        free += found[where][quota:]
        del found[where][quota:]
    rest = iter(free)
    for where, quota in quotas.items():
        found[where] += [next(rest) for _ in range(quota - len(found[where]))]
    return found
