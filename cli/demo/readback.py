"""Reading everything back, and the proof: every number exactly once, ascending within each key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cli.demo.sender import LINE_HEADER
from cli.orders import OrderFigures
from stele.aio import Consumer
from stele.errors import SteleError
from stele.ids import TopicPartition
from stele.records import ConsumerRecord

_POLL_RECORDS = 20_000
_SILENCE_MS = 30_000
_SHOWN = 5


@dataclass(slots=True)
class Proof:
    """What was read, checked record by record."""

    lines: int
    """How many line numbers there must be: 1 to this."""
    figures: OrderFigures = field(default_factory=OrderFigures)
    twice: list[int] = field(default_factory=list)
    unknown: int = 0
    out_of_order: list[tuple[bytes, int, int]] = field(default_factory=list)
    _seen: bytearray = field(default_factory=bytearray)
    _last_of_key: dict[bytes, int] = field(default_factory=dict)

    def add(self, records: list[ConsumerRecord]) -> None:
        if not self._seen:
            self._seen = bytearray(self.lines + 1)
        seen, last_of_key = self._seen, self._last_of_key
        for record in records:
            number = _line_number(record)
            if not 1 <= number <= self.lines:
                self.unknown += 1
                continue
            if seen[number]:
                self.twice.append(number)
            seen[number] = 1
            key = record.key or b""
            before = last_of_key.get(key, 0)
            if number < before:
                self.out_of_order.append((key, before, number))
            last_of_key[key] = number
        self.figures.add(record.value or b"" for record in records)

    @property
    def missing(self) -> list[int]:
        seen = self._seen or bytearray(self.lines + 1)
        return [number for number in range(1, self.lines + 1) if not seen[number]]

    def complaints(self) -> list[str]:
        """The faults in words; empty when the proof holds."""
        said = []
        if missing := self.missing:
            said.append(f"{len(missing)} acknowledged lines are missing, e.g. {missing[:_SHOWN]}")
        if self.twice:
            said.append(f"{len(self.twice)} lines are there twice, e.g. {self.twice[:_SHOWN]}")
        if self.unknown:
            said.append(f"{self.unknown} records carry no line number of this run")
        if self.out_of_order:
            said.append(f"keys out of order: {self.out_of_order[:_SHOWN]}")
        return said


def _line_number(record: ConsumerRecord) -> int:
    for name, value in record.headers:
        if name == LINE_HEADER and value is not None and value.isdigit():
            return int(value)
    return 0


async def read_back(
    consumer: Consumer, topic: str, partitions: int, proof: Proof, on_read: Callable[[int], None]
) -> None:
    """Read the topic from its beginning to its present end into ``proof``."""
    assigned = [TopicPartition(topic, number) for number in range(partitions)]
    consumer.assign(assigned)
    ends = await consumer.end_offsets(assigned)
    consumer.seek_to_beginning()
    reading = {each for each in assigned if ends[each] > 0}
    while reading:
        records = await consumer.poll(_POLL_RECORDS, timeout_ms=_SILENCE_MS)
        if not records:
            raise SteleError(f"no records for {_SILENCE_MS // 1000} s while reading {topic} back")
        proof.add([record for record in records if record.offset < ends[_partition(record)]])
        on_read(proof.figures.lines)
        reading = {each for each in reading if await consumer.position(*each) < ends[each]}


def _partition(record: ConsumerRecord) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)
