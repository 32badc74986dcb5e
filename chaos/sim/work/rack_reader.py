"""Consumers that say in which rack they are, and read from the replica that they are sent to."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from chaos.sim.cluster.client import consumer_fetch, records_of
from chaos.sim.cluster.connections import Connections
from chaos.sim.partition_name import PartitionName
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import fetch

_BY_NAME: Final = 12  # the last version of Fetch that names topics
_MAX_WAIT_MS: Final = 300
_PARTITION_BYTES: Final = 1 << 16
_FORGET_ONE_IN: Final = 20  # so often a consumer asks the leader again


@dataclass(slots=True)
class RackReader:
    """Reads every partition from its start: from its leader until that names another replica, then
    from this one until it refuses (KIP-392)."""

    connections: Connections
    rng: random.Random
    racks: Mapping[int, str]
    """By broker."""
    rack: str
    partitions: Sequence[PartitionName]
    deliver: Callable[[str, int, int, bytes], None]
    shown: Callable[[str, int, int], None]
    """A broker has shown the records of a partition below an offset."""
    report: Callable[[str], None]
    counts: Counter[str] = field(default_factory=Counter)
    _positions: dict[PartitionName, int] = field(default_factory=dict)
    _sources: dict[PartitionName, int] = field(default_factory=dict)

    async def run(self, pause_s: float, is_done: Callable[[], bool]) -> None:
        while not is_done():
            await asyncio.sleep(self.rng.uniform(0.0, 2.0) * pause_s)
            place = self.rng.choice(self.partitions)
            try:
                await self._read(place)
            except (ApiError, OSError):
                self._sources.pop(place, None)
                self.counts["reads in a rack that failed"] += 1

    async def _read(self, place: PartitionName) -> None:
        topic, partition = place
        if self.rng.randrange(_FORGET_ONE_IN) == 0:
            self._sources.pop(place, None)
        source = self._sources.get(place)
        if source is None:
            broker = self.rng.choice(self.connections.brokers)
            leaders = await self.connections.leaders({topic: partition + 1}, broker)
            if place not in leaders:
                return
            source = self._sources[place] = leaders[place]
        offset = self._positions.get(place, 0)
        answer = await self._fetch(source, place, offset)
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE and offset < answer.log_start_offset:
            self._positions[place] = answer.log_start_offset
            return
        if error is not ErrorCode.NONE:
            raise ApiError(error)
        if answer.preferred_read_replica >= 0:
            self._follow(place, source, answer.preferred_read_replica)
            return
        records, next_offset = records_of(answer, offset)
        if records:
            self.shown(topic, partition, next_offset)
            if self.racks[source] == self.rack:
                self.counts["records read in the rack"] += len(records)
        for position, value in records:
            self.deliver(topic, partition, position, value)
        self._positions[place] = max(offset, next_offset)

    def _follow(self, place: PartitionName, source: int, named: int) -> None:
        self.counts["consumers sent to their rack"] += 1
        if self.racks.get(named) != self.rack or self.racks[source] == self.rack:
            self.report(
                f"broker {source} in {self.racks[source]} sends a consumer of {place} in "
                f"{self.rack} to broker {named} in {self.racks.get(named)}"
            )
        self._sources[place] = named

    async def _fetch(self, broker: int, place: PartitionName, offset: int) -> fetch.PartitionData:
        topic, partition = place
        request = consumer_fetch(
            topic,
            partition,
            offset,
            max_wait_ms=_MAX_WAIT_MS,
            max_bytes=_PARTITION_BYTES,
            rack=self.rack,
        )
        answer = await self.connections.ask(broker, fetch.API, request, at_most=_BY_NAME)
        if answer.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(answer.error_code))
        return answer.responses[0].partitions[0]
