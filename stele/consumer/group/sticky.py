"""Partitions shared evenly, with as many as possible left where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from stele.ids import TopicPartition


def share_sticky(
    topics: Mapping[str, Set[str]],
    partitions: Sequence[TopicPartition],
    owners: Mapping[TopicPartition, str],
) -> dict[str, list[TopicPartition]]:
    """A balanced share for each member: no partition could move to a member that wants its topic
    and has at least two partitions fewer.

    ``topics``: the topics that each member wants. ``owners``: the present owner of a partition. It
    may be gone, or may not want the topic any more. Each topic of a partition is wanted by at least
    one member.
    """
    shares: dict[str, list[TopicPartition]] = {member: [] for member in topics}
    homeless = []
    for name in partitions:
        owner = owners.get(name)
        if owner in shares and name.topic in topics[owner]:
            shares[owner].append(name)
        else:
            homeless.append(name)
    readers = {
        topic: [member for member, wanted in topics.items() if topic in wanted]
        for topic in {name.topic for name in partitions}
    }
    if len(set(map(frozenset, topics.values()))) == 1:
        homeless += _over_quota(shares, len(partitions))
    for name in sorted(homeless, key=lambda each: (len(readers[each.topic]), each)):
        shares[_least_loaded(readers[name.topic], shares)].append(name)
    _even_out(shares, readers)
    return {member: sorted(share) for member, share in shares.items()}


def _over_quota(
    shares: dict[str, list[TopicPartition]], partition_count: int
) -> list[TopicPartition]:
    """Take from members the partitions above an even share. All members want the same topics, so
    every such partition finds a place at once."""
    least, with_one_more = divmod(partition_count, len(shares))
    taken: list[TopicPartition] = []
    for share in shares.values():
        keeps = least
        if len(share) > least and with_one_more > 0:
            keeps += 1
            with_one_more -= 1
        taken += share[keeps:]
        del share[keeps:]
    return taken


def _even_out(shares: dict[str, list[TopicPartition]], readers: Mapping[str, list[str]]) -> None:
    """Move partitions from members to those with at least two fewer, until there is no such move.
    Each move makes the sum of the squares of the sizes smaller, so this ends."""
    moved = True
    while moved:
        moved = False
        for member in sorted(shares, key=lambda each: -len(shares[each])):
            share = shares[member]
            if len(share) < 2 + min(map(len, shares.values())):
                break  # and so have all that follow
            for name in sorted(share):
                target = _least_loaded(readers[name.topic], shares)
                if len(shares[target]) + 2 <= len(share):
                    share.remove(name)
                    shares[target].append(name)
                    moved = True


def _least_loaded(members: Sequence[str], shares: Mapping[str, list[TopicPartition]]) -> str:
    return min(members, key=lambda each: len(shares[each]))
