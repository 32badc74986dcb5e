"""Work on a compacted topic: few keys at a time, values that are never written twice, tombstones,
and readers that read from the start now and then."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from chaos.sim.cluster.connections import Connections
from chaos.sim.partition_name import PartitionName
from chaos.sim.work.load import Part
from chaos.sim.work.log_reader import LogReader
from chaos.sim.work.site import Site
from chaos.sim.work.work import Work
from stele.errors import ApiError, ErrorCode
from stele.wire.batch import BatchBuilder, Record, read_header, stamp_max_timestamp
from stele.wire.compression import Compression
from stele.wire.kafka.messages import produce

COMPACTED: Final = "compacted"
_PLACE: Final = (COMPACTED, 0)
_LAST_VERSION: Final = 12  # of Produce: it names topics
_READ_S: Final = 4.0  # between readings from the start
_PATIENCE_S: Final = 60.0
_RECORDS_TO_A_KEY: Final = 20
"""After so many records a key is never written again, so that tombstones stay the last ones."""


@dataclass(frozen=True, slots=True)
class CompactedLoad(Part):
    """How much work there is on the compacted topic."""

    label: ClassVar = "compacted topic"

    pause_s: float = 0.0  # between the batches of a writer; 0: there is no such topic
    keys: int = 8
    tombstones: float = 0.2  # this part of the records
    configs: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def draw(cls, rng: random.Random) -> CompactedLoad:
        """A fifth of the runs have a compacted topic."""
        if rng.random() >= 0.2:
            return cls()
        configs = {
            "cleanup.policy": "compact",
            "min.insync.replicas": "2",
            "segment.bytes": str(rng.choice([1024, 1024, 3000])),
            "min.cleanable.dirty.ratio": str(rng.choice([0.0, 0.1, 0.5])),
            "delete.retention.ms": str(rng.choice([0, 2000, 5000])),
            "min.compaction.lag.ms": str(rng.choice([0, 0, 1000])),
        }
        settings = {
            "log.cleaner.backoff.ms": str(rng.choice([100, 300, 1000])),
            "log.cleaner.dedupe.buffer.size": str(1 << 20),
            "replica.high.watermark.checkpoint.interval.ms": "500",
        }
        pause_s, keys = rng.choice([0.1, 0.3]), rng.choice([1, 4, 12])
        tombstones = rng.choice([0.1, 0.4])
        configs["compression.type"] = rng.choice(["producer", "uncompressed", "lz4", "zstd"])
        return cls(
            pause_s=pause_s,
            keys=keys,
            tombstones=tombstones,
            configs=tuple(configs.items()),
            settings=tuple(settings.items()),
        )

    @property
    def is_there(self) -> bool:
        return self.pause_s > 0


@dataclass(slots=True)
class _Key:
    """What writers know of a key."""

    acknowledged: int = -1  # the highest offset that was acknowledged
    is_surely_there: bool = False  # no tombstone may have come after it
    open_tombstones: int = 0  # whose outcome is not known


@dataclass(slots=True)
class KeyedHistory:
    """What was written by key, and what a reader from the start must find."""

    report: Callable[[str], None]
    keys: dict[bytes, _Key] = field(default_factory=dict)
    _asked: dict[bytes, bytes] = field(default_factory=dict)  # key by value
    _offsets: dict[bytes, int] = field(default_factory=dict)  # by value, as acknowledged or read

    def asked(self, key: bytes, value: bytes | None) -> None:
        known = self.keys.setdefault(key, _Key())
        if value is None:
            known.open_tombstones += 1
        else:
            self._asked[value] = key

    def acknowledged(self, key: bytes, value: bytes | None, offset: int) -> None:
        known = self.keys[key]
        if value is None:
            known.open_tombstones -= 1
        else:
            self._stands_at(value, offset)
        if offset > known.acknowledged:
            known.acknowledged = offset
            known.is_surely_there = value is not None

    def expected(self) -> dict[bytes, int]:
        """The keys that a new reader must find now, with the least offset of their last
        values. Keys with tombstones are left to the law that looks at the logs: how long one stays
        depends on the brokers' clocks."""
        return {
            key: known.acknowledged
            for key, known in self.keys.items()
            if known.is_surely_there and not known.open_tombstones
        }

    def judge(self, records: list[Record], expected: Mapping[bytes, int]) -> None:
        """``expected``: when the reader began."""
        last: dict[bytes, int] = {}
        before = -1
        for record in records:
            if record.offset <= before:
                self.report(f"{COMPACTED}: read {record.offset} after {before}")
            before = record.offset
            last[bytes(record.key or b"")] = record.offset
            if record.value is not None:
                value = bytes(record.value)
                if self._asked.get(value) != record.key:
                    self.report(f"{COMPACTED}: nobody wrote {value!r} to {record.key!r}")
                self._stands_at(value, record.offset)
        for key, offset in expected.items():
            known = self.keys[key]
            if last.get(key, -1) < offset and known.is_surely_there and not known.open_tombstones:
                self.report(
                    f"{COMPACTED}: {key!r} was acknowledged at {offset}, and a reader from the "
                    f"start found {last.get(key)}"
                )

    def _stands_at(self, value: bytes, offset: int) -> None:
        first = self._offsets.setdefault(value, offset)
        if first != offset:
            self.report(f"{COMPACTED}: {value!r} stands at {first} and at {offset}")


class CompactedWork(Work):
    """A producer writes as programs do, and a writer tries everything once."""

    name = "a compacted topic"
    load = CompactedLoad

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._history = KeyedHistory(site.report)
        self._cluster = site.cluster
        self._load = site.load.part(CompactedLoad)
        self._producer = site.patient_producer()
        self._rng = site.rngs.of("compacted work")
        self._connections = Connections.of(site.cluster, "keyed")
        self._drawn_keys = 0

    @property
    def partitions(self) -> list[PartitionName]:
        return [_PLACE]

    async def prepare(self) -> None:
        await self._cluster.client.create_topic(COMPACTED, configs=dict(self._load.configs))
        await self._cluster.until_isr(COMPACTED, 3)

    def start(self) -> list[Coroutine[Any, Any, None]]:
        is_done = self.site.is_done
        return [self._write(is_done), self._produce(is_done), self._read(is_done)]

    async def read_back(self) -> None:
        """Read from the start once more, from the present leader."""
        if not await self._read_all(_PATIENCE_S):
            self.site.report(f"{COMPACTED} cannot be read")

    def _drawn(self, writer: str, number: int) -> tuple[bytes, bytes | None]:
        self._drawn_keys += 1
        first = self._drawn_keys // _RECORDS_TO_A_KEY
        key = b"k%d" % (first + self._rng.randrange(self._load.keys))
        is_tombstone = self._rng.random() < self._load.tombstones
        value = None if is_tombstone else f"<{writer}{number}>".encode()
        self._history.asked(key, value)
        return key, value

    def _acknowledged(self, key: bytes, value: bytes | None, offset: int) -> None:
        self._history.acknowledged(key, value, offset)
        self.counts["records by key"] += 1

    # ------------------------------------------------------------------------- writing

    async def _produce(self, is_done: Callable[[], bool]) -> None:
        number = 0
        while not is_done():
            sent = []
            for _ in range(self._rng.randint(1, 4)):
                number += 1
                key, value = self._drawn("kp", number)
                sent.append((key, value, await self._producer.send(COMPACTED, value, key)))
            for key, value, delivery in sent:
                told = await delivery
                if told.offset >= 0:
                    self._acknowledged(key, value, told.offset)
            await asyncio.sleep(self._rng.uniform(0.5, 1.5) * self._load.pause_s)
        await self._producer.close()

    async def _write(self, is_done: Callable[[], bool]) -> None:
        """Write several records in a batch, compressed or not, without trying again. Some batches
        claim another greatest timestamp than their records have."""
        number = 0
        while not is_done():
            builder = BatchBuilder()
            records = []
            for _ in range(self._rng.randint(1, 6)):
                number += 1
                key, value = self._drawn("kw", number)
                time_ms = self._cluster.client_world.clock.time_ms()
                builder.append(key, value, timestamp_ms=time_ms)
                records.append((key, value))
            compression = self._rng.choice([Compression.NONE, Compression.GZIP])
            batch = builder.build(compression)
            if self._rng.random() < 0.3:
                claimed_ms = self._rng.choice([-1, 0, time_ms + 1_000_000])
                stamp_max_timestamp(batch, read_header(batch), claimed_ms)
            base_offset = await self._attempt(batch)
            if base_offset is not None:
                for offset, (key, value) in enumerate(records, base_offset):
                    self._acknowledged(key, value, offset)
            await asyncio.sleep(self._rng.uniform(0.5, 1.5) * self._load.pause_s)
        self._connections.close()

    async def _attempt(self, batch: bytearray) -> int | None:
        request = produce.ProduceRequest(
            acks=-1,
            timeout_ms=3000,
            topic_data=[
                produce.TopicProduceData(
                    name=COMPACTED, partition_data=[produce.PartitionProduceData(0, batch)]
                )
            ],
        )
        try:
            leader = await self._cluster.client.find_leader(COMPACTED)
            answer = await self._connections.ask(
                leader, produce.API, request, at_most=_LAST_VERSION, timeout_s=4.0
            )
        except (ApiError, OSError):
            return None
        told = answer.responses[0].partition_responses[0]
        return told.base_offset if told.error_code == ErrorCode.NONE else None

    # ------------------------------------------------------------------------- reading

    async def _read(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            await asyncio.sleep(self._rng.uniform(0.5, 1.5) * _READ_S)
            await self._read_all(_READ_S)

    async def _read_all(self, patience_s: float) -> bool:
        """Read from the start to the high watermark, if that goes within the time."""
        connections = Connections.of(self._cluster, "reader from the start")
        reader = LogReader(connections, {COMPACTED: 1}, self._rng)
        expected = self._history.expected()
        deadline = self._cluster.simulation.now + patience_s
        records: list[Record] = []
        # A new leader's high watermark may be below what its predecessor has acknowledged. The high
        # watermark of the newest answer counts: while the log is read, a compaction may have
        # removed a value because of a later one, which is above the first answer's high watermark.
        position, end = 0, max(expected.values(), default=-1) + 1
        is_first = True
        while is_first or position < end:
            if self._cluster.simulation.now > deadline:
                connections.close()
                return False
            found = (await reader.read({_PLACE: position})).get(_PLACE)
            if found is None:
                await asyncio.sleep(0.05)
                continue
            records += found.records
            position = found.next_offset
            end, is_first = max(end, found.high_watermark), False
        connections.close()
        self._history.judge(records, expected)
        self.counts["compacted topics read from the start"] += 1
        return True
