"""Reads only committed records, as consumers of any make do with ``isolation.level``
read_committed. Brokers stop at the last stable offset and name the aborted transactions, and
readers leave their records out."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from chaos.sim.cluster.connections import Connections
from chaos.sim.partition_name import PartitionName
from stele.errors import ApiError, ErrorCode
from stele.wire.batch import batches, decode
from stele.wire.control_records import decode_end_marker
from stele.wire.kafka.api import Records
from stele.wire.kafka.isolation import READ_COMMITTED
from stele.wire.kafka.messages import fetch

_LEADER_ALONE: Final = 10  # the last version of Fetch that followers refuse
_ANY_REPLICA: Final = 12
_MAX_WAIT_MS = 100
_PARTITION_BYTES = 1 << 14


class CommittedRead(NamedTuple):
    """What one fetch found."""

    records: list[tuple[int, bytes]]
    next_offset: int
    last_stable_offset: int
    high_watermark: int


class CommittedReader:
    """One fetch at a time, from the leader or, if ``any_replica``, from a random broker."""

    def __init__(
        self, connections: Connections, rng: random.Random, *, any_replica: bool = False
    ) -> None:
        self._connections = connections
        self._rng = rng
        self._any_replica = any_replica
        self._leaders: dict[PartitionName, int] = {}

    async def read(self, place: PartitionName, offset: int) -> CommittedRead:
        """Raises ApiError, OSError: there is nothing to be told now."""
        if self._any_replica:
            broker = self._rng.choice(self._connections.brokers)
        else:
            broker = await self._leader(place)
        try:
            return await self._fetch(broker, place, offset)
        except (ApiError, OSError):
            self._leaders.pop(place, None)
            raise

    async def _leader(self, place: PartitionName) -> int:
        topic, number = place
        if place not in self._leaders:
            broker = self._rng.choice(self._connections.brokers)
            self._leaders |= await self._connections.leaders({topic: number + 1}, broker)
        if place not in self._leaders:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE)
        return self._leaders[place]

    async def _fetch(self, broker: int, place: PartitionName, offset: int) -> CommittedRead:
        topic, number = place
        wanted = fetch.FetchPartition(
            partition=number, fetch_offset=offset, partition_max_bytes=_PARTITION_BYTES
        )
        request = fetch.FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            isolation_level=READ_COMMITTED,
            topics=[fetch.FetchTopic(topic=topic, partitions=[wanted])],
        )
        version = _ANY_REPLICA if self._any_replica else _LEADER_ALONE
        answer = await self._connections.ask(broker, fetch.API, request, at_most=version)
        if answer.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(answer.error_code))
        part = answer.responses[0].partitions[0]
        if part.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(part.error_code))
        records, next_offset = _committed(part, offset)
        return CommittedRead(records, next_offset, part.last_stable_offset, part.high_watermark)


def _committed(part: fetch.PartitionData, offset: int) -> tuple[list[tuple[int, bytes]], int]:
    """The data records that no aborted transaction has written."""
    data = _joined(part.records)
    pending = sorted(
        (each.first_offset, each.producer_id) for each in part.aborted_transactions or ()
    )
    aborted: set[int] = set()  # the producers whose records are aborted at this point of the log
    records: list[tuple[int, bytes]] = []
    next_offset = offset
    for position, header in batches(data):
        next_offset = max(next_offset, header.next_offset)
        while pending and pending[0][0] <= header.last_offset:
            aborted.add(pending.pop(0)[1])
        if header.is_control:
            marker = decode_end_marker(next(iter(decode(data, position))))
            if marker is not None and not marker.commit:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            records += [
                (each.offset, bytes(each.value or b""))
                for each in decode(data, position)
                if each.offset >= offset
            ]
    return records, next_offset


def _joined(records: Records) -> bytes:
    if records is None:
        return b""
    if isinstance(records, list):
        return b"".join(bytes(part) for part in records)
    return bytes(records)
