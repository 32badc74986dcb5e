"""What all work of a run shares: the cluster, the load, and what clients were told."""

from __future__ import annotations

import asyncio
import random
from typing import Final, TypeVar

from broker.replication.replica import ReplicaState
from chaos.sim.cluster.view import hosted_by
from chaos.sim.laws.acknowledgements import Acknowledged
from chaos.sim.laws.judged import JudgedCluster
from chaos.sim.laws.law import Law
from chaos.sim.laws.metadata_history import MetadataHistory
from chaos.sim.laws.retention import RetentionTakesNoMore
from chaos.sim.work.history import History
from chaos.sim.work.load import Load
from stele.admin.admin import Admin
from stele.aio import Consumer, Producer
from stele.config import ClientWorld
from stele.ids import PartitionId
from stele.world import Connector

PLAIN, EXACT, WEAK = "plain", "exact", "weak"
TOPICS: Final = (PLAIN, EXACT, WEAK)
PATIENCE_S: Final = 3600.0
_ADMIN_PATIENCE_MS = 20_000

L = TypeVar("L", bound=Law)


class Site:
    """The place of all work of a run."""

    def __init__(self, cluster: JudgedCluster, load: Load) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.load = load
        self.rngs = cluster.simulation.rngs
        self.history = History()
        self.metadata = self.law(MetadataHistory)
        self.is_settling = False  # faults have ended, and will be mended
        self.is_over = False  # no work begins any more
        world = cluster.client_world
        self._world = ClientWorld(world.clock, world.network, world.rng)
        self._servers = ",".join(f"{node.host}:9092" for node in cluster.brokers.values())
        self._acknowledged = self.law(Acknowledged)
        self._retention = self.law(RetentionTakesNoMore)

    def law(self, kind: type[L]) -> L:
        return self.cluster.invariants.law(kind)

    def is_done(self) -> bool:
        return self.is_over

    def is_calm(self) -> bool:
        return self.is_over or self.is_settling

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """The partitions that are there all the time."""
        return [(topic, number) for topic in TOPICS for number in range(self.load.partitions)]

    async def pause(self, rng: random.Random, pause_s: float) -> None:
        await asyncio.sleep(rng.uniform(0.5, 1.5) * pause_s)

    # ------------------------------------------------------------------------------- clients

    def admin(self, network: Connector | None = None) -> Admin:
        """``network``: the network of another principal."""
        world = self._world
        return Admin(
            self._servers,
            world=world if network is None else ClientWorld(world.clock, network, world.rng),
            on_wait=lambda _: None,
            default_api_timeout_ms=_ADMIN_PATIENCE_MS,
        )

    def producer(self, delivery_timeout_ms: int) -> Producer:
        return Producer(
            self._servers,
            world=self._world,
            on_wait=lambda _: None,
            delivery_timeout_ms=delivery_timeout_ms,
        )

    def patient_producer(self, linger_ms: int = 1) -> Producer:
        """It never gives up a record."""
        return Producer(
            self._servers,
            world=self._world,
            on_wait=lambda _: None,
            linger_ms=linger_ms,
            delivery_timeout_ms=int(PATIENCE_S * 1000),
            max_block_ms=int(PATIENCE_S * 1000),
        )

    def consumer(self) -> Consumer:
        return Consumer(
            self._servers, world=self._world, on_wait=lambda _: None, auto_offset_reset="earliest"
        )

    # --------------------------------------------------------------------- what clients were told

    def report(self, what: str) -> None:
        self.history.violations.append(f"at {self.cluster.simulation.now:.6f}: {what}")

    def promise(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        """The record was acknowledged with acks=all."""
        place = topic, partition, offset
        earlier = self.history.promised.setdefault(place, value)
        if earlier != value:
            self.report(f"{place} was promised to {earlier!r} and to {value!r}")
        self.check_acknowledged(*place, value, self.load.min_insync)

    def check_acknowledged(
        self, topic: str, partition: int, offset: int, value: bytes, least: int
    ) -> None:
        """So many replicas at least must have the record on disk, if retention has left it."""
        if offset >= self.newest_start_of(topic, partition):
            self._acknowledged.check_record(
                self.cluster, f"{topic}-{partition}", value, least, self.report
            )

    def read(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        """A consumer got the record."""
        place = topic, partition, offset
        earlier = self.history.consumed.setdefault(place, value)
        if earlier != value:
            self.report(f"read {value!r} at {place}, and {earlier!r} before")

    # ----------------------------------------------------------------------------- retention

    def start_of(self, topic: str, partition: int) -> int:
        """How far retention has deleted. A law of its own judges that (``retention``)."""
        found = self.cluster.image.topic(topic)
        assert found is not None
        key = PartitionId(found.topic_id, partition)
        return self._retention.starts.get(key, 0)

    def newest_start_of(self, topic: str, partition: int) -> int:
        """``start_of`` at this very moment: the newest of what laws have seen and what brokers
        hold now. The broker with the newest start may be down: it acknowledges a record, deletes it
        by retention and loses power, and its answer arrives after that."""
        newest = self._retention.named.get((topic, partition), 0)
        for broker in self.cluster.brokers.values():
            for replica in hosted_by(broker):
                if (
                    replica.id.partition == partition
                    and replica.topic == topic
                    and replica.state is ReplicaState.ONLINE
                    and replica.log.start_offset > newest
                ):
                    newest = replica.log.start_offset
        return newest
