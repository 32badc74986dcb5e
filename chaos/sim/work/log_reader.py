"""Reads partitions as a consumer of any make does: fetches from their leaders by offset."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import NamedTuple

from chaos.sim.cluster.connections import Connections
from chaos.sim.partition_name import PartitionName
from stele.errors import ApiError, ErrorCode
from stele.wire.batch import Record, batches, decode
from stele.wire.kafka.messages import fetch

_LEADER_ALONE = 10  # the last version of Fetch that followers refuse
_MAX_WAIT_MS = 100
_PARTITION_BYTES = 1 << 16


class Read(NamedTuple):
    """What one fetch found in a partition."""

    records: list[Record]
    next_offset: int
    high_watermark: int


class LogReader:
    """Knows the leaders of some topics, and asks again when one of them is another one."""

    def __init__(
        self, connections: Connections, topics: Mapping[str, int], rng: random.Random
    ) -> None:
        """``topics``: with the number of their partitions."""
        self._connections = connections
        self._topics = topics
        self._rng = rng
        self._leaders: dict[PartitionName, int] = {}

    async def read(self, positions: Mapping[PartitionName, int]) -> dict[PartitionName, Read]:
        """Fetch once from every leader. Partitions that cannot be read now are left out."""
        if any(place not in self._leaders for place in positions):
            await self._find_leaders()
        found: dict[PartitionName, Read] = {}
        leaders = sorted({self._leaders[place] for place in positions if place in self._leaders})
        for leader in leaders:
            here = {
                place: offset
                for place, offset in positions.items()
                if self._leaders.get(place) == leader
            }
            try:
                found |= await self._fetch(leader, here)
            except (ApiError, OSError):
                for place in here:
                    self._leaders.pop(place, None)
        return found

    async def _find_leaders(self) -> None:
        broker = self._rng.choice(self._connections.brokers)
        try:
            self._leaders |= await self._connections.leaders(self._topics, broker)
        except (ApiError, OSError):
            return

    async def _fetch(
        self, leader: int, positions: Mapping[PartitionName, int]
    ) -> dict[PartitionName, Read]:
        wanted: dict[str, list[fetch.FetchPartition]] = {}
        for (topic, number), offset in positions.items():
            wanted.setdefault(topic, []).append(
                fetch.FetchPartition(
                    partition=number, fetch_offset=offset, partition_max_bytes=_PARTITION_BYTES
                )
            )
        request = fetch.FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            topics=[fetch.FetchTopic(topic=name, partitions=each) for name, each in wanted.items()],
        )
        answer = await self._connections.ask(leader, fetch.API, request, at_most=_LEADER_ALONE)
        if answer.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(answer.error_code))
        found = {}
        for told in answer.responses:
            for part in told.partitions:
                place = told.topic, part.partition_index
                read = self._taken(part, positions[place])
                if read is None:
                    self._leaders.pop(place, None)
                else:
                    found[place] = read
        return found

    def _taken(self, part: fetch.PartitionData, offset: int) -> Read | None:
        error = ErrorCode(part.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE and offset < part.log_start_offset:
            return Read([], part.log_start_offset, part.high_watermark)
        if error is not ErrorCode.NONE:
            return None
        data = _joined(part.records)
        records: list[Record] = []
        next_offset = offset
        for position, header in batches(data):
            records += [each for each in decode(data, position) if each.offset >= offset]
            next_offset = header.next_offset
        return Read(records, next_offset, part.high_watermark)


def _joined(records: object) -> bytes:
    if records is None:
        return b""
    if isinstance(records, list):
        return b"".join(bytes(part) for part in records)
    assert isinstance(records, bytes | bytearray | memoryview)
    return bytes(records)
