"""The input of a new target assignment, and whether one is needed."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from broker.coordinator.assignors.range import assign_range
from broker.coordinator.assignors.spec import NO_PARTITIONS, Assignor, Partitions, Subscriber
from broker.coordinator.assignors.uniform import assign_uniform
from broker.coordinator.group.consumer.records import MemberMetadata, ResolvedRegex
from metadata.topics import Topics

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""By Kafka's names."""


def preferred_assignor(members: Iterable[MemberMetadata], enabled: Sequence[str]) -> str:
    """The assignor that most members name. If two have as many votes, or none has any, it is the
    first of those that are enabled."""
    votes = Counter(each.server_assignor for each in members)
    return max(enabled, key=lambda name: votes[name])


def names_of(metadata: MemberMetadata, regexes: Mapping[str, ResolvedRegex]) -> frozenset[str]:
    """The topics that a member subscribes to. They need not exist."""
    names = frozenset(metadata.topic_names)
    resolved = regexes.get(metadata.regex or "")
    return names if resolved is None else names.union(resolved.topic_names)


def metadata_hash(topics: Topics, names: Iterable[str]) -> int:
    """A number that changes with the ids and partition counts of these topics. 64 bits, signed."""
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(names):
        topic = topics.named(name)
        if topic is not None:
            digest.update(topic.topic_id + len(topic.partitions).to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)


def new_targets(
    assignor: str,
    members: Mapping[str, MemberMetadata],
    regexes: Mapping[str, ResolvedRegex],
    targets: Mapping[str, Partitions],
    topics: Topics,
) -> dict[str, Partitions]:
    """The partitions of each member, derived from its former ones."""
    counts: dict[bytes, int] = {}
    # Members mostly subscribe to the same topics. They share the set.
    ids_of: dict[tuple[tuple[str, ...], str | None], frozenset[bytes]] = {}
    subscribers = {}
    for member_id, metadata in members.items():
        subscription = metadata.topic_names, metadata.regex
        if subscription not in ids_of:
            found = [topics.named(each) for each in names_of(metadata, regexes)]
            there = [each for each in found if each is not None]
            counts.update((each.topic_id, len(each.partitions)) for each in there)
            ids_of[subscription] = frozenset(each.topic_id for each in there)
        subscribers[member_id] = Subscriber(
            ids_of[subscription], targets.get(member_id, NO_PARTITIONS), metadata.instance_id
        )
    return ASSIGNORS[assignor](subscribers, counts)
