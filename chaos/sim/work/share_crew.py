"""The members of one share group of a run, and what is true of them in the end."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple

from broker.coordinator.share.types import StateKey
from broker.sharing.partition import LedSharePartition
from chaos.sim.cluster.connections import Connections
from chaos.sim.laws.decided_records import DecidedRecordsStayDecided
from chaos.sim.laws.share_counts import DeliveriesAreCounted
from chaos.sim.laws.share_holders import SharedRecordsHaveOneHolder
from chaos.sim.laws.share_members import ShareMembersKeepTheirEpochs
from chaos.sim.partition_name import PartitionName
from chaos.sim.work.group_client import GroupClient
from chaos.sim.work.share_worker import ShareGroup, ShareWorker
from chaos.sim.work.site import Site
from metadata.internal_topics import GROUP_TOPIC, SHARE_TOPIC
from stele.admin.descriptions import ConfigResource

STATE_PARTITIONS: Final = 2  # of __share_group_state
_GROUP_PARTITIONS: Final = 2  # of __consumer_offsets, if it is not there yet
_MEMBER_PAUSE_S: Final = 0.4
_CONVERGE_S: Final = 90.0
"""So long a share group may take in a cluster that is whole: each poisonous record before another
one holds the start offset until its last delivery."""

LEAST_SETTINGS: Final = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.session.timeout.ms": "500",
    "group.share.min.heartbeat.interval.ms": "100",
}
"""What the brokers of a run with share groups are configured with, so that groups may be quick."""


class Shared(NamedTuple):
    """What a share group shares."""

    group_id: str
    topic: str
    partitions: int
    delivery_limit: int


class ShareCrew:
    """The members, which go on until ``finish`` ends them."""

    def __init__(
        self,
        site: Site,
        shared: Shared,
        members: int,
        name: str,
        counts: Counter[str],
        deliver: Callable[[PartitionName, int, bytes], None],
    ) -> None:
        """``name``: of a member, without its number. ``deliver``: a member has got this record."""
        self._site = site
        self._shared = shared
        self._is_over = False
        decided = site.law(DecidedRecordsStayDecided)
        self.records = decided.records
        self._group = ShareGroup(
            shared.group_id,
            shared.topic,
            shared.partitions,
            decided,
            site.law(SharedRecordsHaveOneHolder),
            site.law(DeliveriesAreCounted),
            site.law(ShareMembersKeepTheirEpochs),
            deliver,
            site.report,
            lambda: site.cluster.simulation.now,
            itertools.count(1),
            counts,
        )
        self._members = [self._member(f"{name} {number}") for number in range(members)]

    def _member(self, name: str) -> ShareWorker:
        rng = self._site.rngs.of(f"shares: {name}")
        connections = Connections.of(self._site.cluster, name)
        coordinator = GroupClient(self._shared.group_id, connections, rng)
        return ShareWorker(self._group, name, coordinator, connections, rng, _MEMBER_PAUSE_S)

    @property
    def places(self) -> list[PartitionName]:
        return [(self._shared.topic, number) for number in range(self._shared.partitions)]

    def start(self) -> list[Coroutine[Any, Any, None]]:
        is_calm = self._site.is_calm
        return [each.run(is_calm, lambda: self._is_over) for each in self._members]

    async def configure(self, **configs: str) -> None:
        """Set configurations of the group before its first member joins. Its laws look from now
        on. In names ``_`` stands for the dot."""
        self.records.delivery_limits[self._shared.group_id] = self._shared.delivery_limit
        wanted = {name.replace("_", "."): value for name, value in configs.items()}
        async with self._site.admin() as admin:
            group = ConfigResource.group(self._shared.group_id)
            await admin.alter_configs({group: {"share.auto.offset.reset": "earliest"} | wanted})

    # ------------------------------------------------------------------------- the end

    async def finish(self, ends: Callable[[], Mapping[PartitionName, int]]) -> None:
        """Wait until every record below the ends is done, and until the members share all
        partitions. Raises AssertionError after the timeout."""
        cluster, name = self._site.cluster, f"share group {self._shared.group_id}"
        await cluster.until(
            lambda: self._is_done(ends()),
            f"{name} is done up to {ends()}",
            timeout_s=_CONVERGE_S,
        )
        await cluster.until(self._is_shared, f"{name} has all partitions", timeout_s=_CONVERGE_S)
        self._is_over = True

    def _is_done(self, ends: Mapping[PartitionName, int]) -> bool:
        return all(
            led is not None and led.machine is not None and led.machine.start_offset >= end
            for (_, number), end in ends.items()
            for led in [self._led(number)]
        )

    def _led(self, number: int) -> LedSharePartition | None:
        """A share partition at the leader of its partition."""
        cluster = self._site.cluster
        topic = cluster.image.topic(self._shared.topic)
        assert topic is not None
        node = cluster.brokers.get(topic.partitions[number].leader)
        if node is None or node.broker is None:
            return None
        key = StateKey(self._shared.group_id, topic.topic_id, number)
        return next((led for led in node.broker.sharing.partitions if led.key == key), None)

    def _is_shared(self) -> bool:
        """Whether the members have one epoch, each partition has a member, and the numbers of
        members of two partitions differ by one at most."""
        counts = [
            sum(number in each.assigned for each in self._members)
            for number in range(self._shared.partitions)
        ]
        epochs = {each.epoch for each in self._members}
        return len(epochs) == 1 and min(counts) > 0 and max(counts) - min(counts) <= 1


async def make_coordinators(site: Site, segment_bytes: int) -> None:
    """Make the topics of the share coordinators and the group coordinators, as far as they are not
    there already."""
    cluster = site.cluster
    if cluster.image.topic(SHARE_TOPIC) is None:
        states = {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "min.insync.replicas": "2",
            "segment.bytes": str(segment_bytes),
        }
        await cluster.client.create_topic(SHARE_TOPIC, partitions=STATE_PARTITIONS, configs=states)
    if cluster.image.topic(GROUP_TOPIC) is None:
        groups = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
        await cluster.client.create_topic(GROUP_TOPIC, partitions=_GROUP_PARTITIONS, configs=groups)
