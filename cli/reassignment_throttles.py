"""Throttles of moves, as kafka-reassign-partitions sets and removes them: the rates on the brokers
concerned, and on the topics the lists of the replicas that send and that fetch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from cli.output import CommandError
from cli.reassignment_file import Assignments, LogDirs
from metadata.config_keys import (
    FOLLOWER_THROTTLED_RATE,
    LEADER_THROTTLED_RATE,
    MOVES_RATE,
)
from metadata.topic_config import TopicConfig

if TYPE_CHECKING:
    from stele.admin.descriptions import ConfigResource, PartitionDescription
    from stele.sync import Admin

SENDING = TopicConfig.leader_replication_throttled_replicas.key.name
FETCHING = TopicConfig.follower_replication_throttled_replicas.key.name
RATES = (LEADER_THROTTLED_RATE.name, FOLLOWER_THROTTLED_RATE.name)

Changes = dict["ConfigResource", dict[str, str | None]]


def changes(
    states: Mapping[tuple[str, int], PartitionDescription], plan: Assignments, rate: int
) -> Changes:
    """The throttles of the moves under way among ``states``, and of the moves that ``plan``
    begins.

    The replicas before a move may lead and send; the added ones fetch. ``rate`` in bytes/s.
    """
    from stele.admin.descriptions import ConfigResource

    brokers: set[int] = set()
    sending: dict[str, list[str]] = {}
    fetching: dict[str, list[str]] = {}
    for (topic, partition), state in sorted(states.items()):
        sources = [each for each in state.replicas if each not in state.adding_replicas]
        wanted = (*state.adding_replicas, *plan.get((topic, partition), ()))
        arriving = sorted({each for each in wanted if each not in sources})
        if arriving:
            brokers.update(sources, arriving)
            sending.setdefault(topic, []).extend(f"{partition}:{each}" for each in sources)
            fetching.setdefault(topic, []).extend(f"{partition}:{each}" for each in arriving)
    found: Changes = {
        ConfigResource.broker(each): dict.fromkeys(RATES, str(rate)) for each in sorted(brokers)
    }
    for topic in sending:
        found[ConfigResource.topic(topic)] = {
            SENDING: ",".join(sending[topic]),
            FETCHING: ",".join(fetching[topic]),
        }
    return found


def check_brokers(admin: Admin, plan: Assignments) -> None:
    """Raises CommandError for a plan that names a broker that there is not."""
    known = {each.broker_id for each in admin.describe_cluster().brokers}
    if unknown := sorted({each for ids in plan.values() for each in ids} - known):
        raise CommandError(f"there is no broker {unknown[0]}; there are {sorted(known)}")


def remove(admin: Admin, topics: Collection[str], *, rates: bool) -> list[str]:
    """Remove the lists of these topics and, with ``rates``, the rates of all brokers.

    Returns the topics that were throttled.
    """
    from stele.admin.descriptions import ConfigResource

    found: Changes = {}
    for topic in admin.list_topics():
        names = [name for name in (SENDING, FETCHING) if name in topic.configs]
        if topic.name in topics and names:
            found[ConfigResource.topic(topic.name)] = dict.fromkeys(names)
    throttled = [resource.name for resource in found]
    if rates:
        for broker in admin.describe_cluster().brokers:
            found[ConfigResource.broker(broker.broker_id)] = dict.fromkeys(RATES)
    if found:
        admin.alter_configs(found)
    return throttled


def set_log_dirs_rate(admin: Admin, log_dirs: LogDirs, rate: int | None) -> None:
    """The limit of these brokers for copies between their directories, in bytes/s; None: no
    limit."""
    from stele.admin.descriptions import ConfigResource

    brokers = sorted({broker_id for _, _, broker_id in log_dirs})
    value = None if rate is None else str(rate)
    if brokers:
        admin.alter_configs(
            {ConfigResource.broker(each): {MOVES_RATE.name: value} for each in brokers}
        )
