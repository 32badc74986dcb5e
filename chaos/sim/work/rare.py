"""What hardly any operator or client does: handovers of the quorum, racks, odd requests, two log
directories, and an address of another cluster in the configuration."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from chaos.sim.cluster.connections import Connections
from chaos.sim.laws.members import MembersHaveEverything
from chaos.sim.work.foreigner import ADDRESS, Foreigner
from chaos.sim.work.handovers import Handovers
from chaos.sim.work.load import Load, Part
from chaos.sim.work.odd_brokers import OddBroker
from chaos.sim.work.odd_groups import OddGroup
from chaos.sim.work.odd_peers import OddPeer
from chaos.sim.work.odd_requests import OddRequests
from chaos.sim.work.rack_reader import RackReader
from chaos.sim.work.site import Site
from chaos.sim.work.work import Work
from chaos.sim.world.rng import Rngs
from metadata.node_settings import RACK_AWARE_SELECTOR

RACKS: Final = ("east", "west")  # of the brokers, in turn


@dataclass(frozen=True, slots=True)
class RareLoad(Part):
    """How much of it there is. Pauses are the mean ones; with 0 a thing does not happen."""

    label: ClassVar = "rare"
    is_rare: ClassVar = True

    handover_pause_s: float = 0.0
    odd_pause_s: float = 0.0
    rack_readers: int = 0
    read_pause_s: float = 0.1
    admin_pause_s: float = 0.0  # replaces the light load's
    stream_pause_s: float = 0.0
    has_foreigner: bool = False
    has_directories: bool = False  # each broker has two log directories, and one of them may die
    settings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def draw(cls, rng: random.Random) -> RareLoad:
        settings: dict[str, str] = {}
        if rng.random() < 0.5:
            settings |= {
                "leader.imbalance.check.interval.seconds": str(rng.choice([1, 3])),
                "leader.imbalance.per.broker.percentage": str(rng.choice([0, 10])),
            }
        rack_readers = rng.choice([0, 1, 2])
        if rack_readers:
            settings["replica.selector.class"] = RACK_AWARE_SELECTOR
        drawn = cls(
            handover_pause_s=rng.choice([0.0, 0.5, 2.0]),
            odd_pause_s=rng.choice([0.5, 2.0]),
            rack_readers=rack_readers,
            read_pause_s=rng.choice([0.05, 0.2]),
            settings=tuple(settings.items()),
            admin_pause_s=rng.choice([0.5, 2.0]),
            stream_pause_s=rng.choice([0.0, 0.01]),
        )
        if rng.random() < 0.5:
            settings["controller.quorum.bootstrap.servers"] = ADDRESS
            drawn = replace(drawn, has_foreigner=True, settings=tuple(settings.items()))
        return drawn

    def change(self, load: Load) -> Load:
        """Administrators are busier, and many small batches are under way."""
        return replace(load, admin_pause_s=self.admin_pause_s, stream_pause_s=self.stream_pause_s)

    def rarer(self, rngs: Rngs) -> RareLoad:
        return self.with_directories(rngs.of("directories"))

    def with_directories(self, rng: random.Random) -> RareLoad:
        """A third of the runs have two log directories. They have a stream of their own."""
        return replace(self, has_directories=rng.random() < 1 / 3)

    @property
    def is_there(self) -> bool:
        return bool(self.handover_pause_s or self.odd_pause_s or self.rack_readers)

    @property
    def racks(self) -> tuple[str, ...]:
        return RACKS if self.rack_readers else ()


class RareWork(Work):
    name = "rare requests"
    load = RareLoad

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        load = self._load = site.load.part(RareLoad)
        cluster, rngs, partitions, report = site.cluster, site.rngs, site.partitions, site.report
        self._handovers = Handovers(cluster, rngs.of("handovers"), report)
        self._odd_requests = OddRequests(cluster, rngs.of("odd requests"), partitions, report)
        self._odd_peer = OddPeer(cluster, rngs.of("odd peer"), report)
        self._odd_broker = OddBroker(cluster, rngs.of("odd broker"), report)
        self._odd_group = OddGroup(cluster, rngs.of("odd group"), partitions[0][0], report)
        self._foreigner = Foreigner(cluster)
        racks = {number: node.config.rack or "" for number, node in cluster.brokers.items()}
        self._rack_readers = [
            RackReader(
                Connections.of(cluster, f"rack reader {number}"),
                rngs.of(f"rack reader {number}"),
                racks,
                RACKS[number % len(RACKS)],
                partitions,
                site.read,
                site.law(MembersHaveEverything).shown,
                report,
            )
            for number in range(load.rack_readers)
        ]

    @property
    def counted(self) -> Counter[str]:
        found = self._handovers.counts + self._odd_requests.counts + self._odd_peer.counts
        found += self._foreigner.counts + self._odd_group.counts + self._odd_broker.counts
        for reader in self._rack_readers:
            found += reader.counts
        return found

    def start(self) -> list[Coroutine[Any, Any, None]]:
        """When it is calm, the quorum's leader stays until ``settle``."""
        load, is_calm, is_done = self._load, self.site.is_calm, self.site.is_done
        found: list[Coroutine[Any, Any, None]] = []
        if load.handover_pause_s:
            found.append(self._handovers.run(load.handover_pause_s, is_calm))
        if load.odd_pause_s:
            found.append(self._odd_requests.run(load.odd_pause_s, is_done))
            found.append(self._odd_peer.run(load.odd_pause_s, is_done))
            found.append(self._odd_group.run(load.odd_pause_s, is_done))
            found.append(self._odd_broker.run(load.odd_pause_s, is_done))
        if load.has_foreigner:
            found.append(self._foreigner.run(is_done))
        found += [reader.run(load.read_pause_s, is_done) for reader in self._rack_readers]
        return found

    async def settle(self) -> None:
        if self._load.handover_pause_s:
            await self._handovers.settle()
