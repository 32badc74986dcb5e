"""The cost of compaction: one round over a log on real files.

    python -m bench.compaction [directory]

MB/s counts the bytes of the log once, although a round reads dirty segments twice. Peak memory is
that of the helper process. The longest turn is that of the node's event loop during the round.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import uvloop
from rich.console import Console
from rich.table import Table

from bench.storage import machine
from runtime.real.disk import RealDisk
from stele.ids import TopicPartition
from stele.real import RealClock
from stele.wire.batch import BatchBuilder, read_header
from stele.wire.compression import Compression
from storage.compaction.round import Limits, compact_log
from storage.compaction.survey import survey
from storage.config import LogConfig
from storage.log import PartitionLog
from storage.opening import open_log

KEY = TopicPartition("bench", 0)
LIMITS = Limits(map_bytes=128 << 20, load_factor=0.9, bytes_per_s=sys.float_info.max)
BATCH_RECORDS = 100
_TICK_S = 0.001


class Case(NamedTuple):
    """A log: its records, their distinct keys, the bytes of a value, and the codec."""

    records: int
    keys: int
    value_bytes: int
    compression: Compression


CASES = (
    Case(200_000, 10_000, 1024, Compression.NONE),
    Case(200_000, 10_000, 1024, Compression.LZ4),
    Case(500_000, 10_000, 100, Compression.NONE),
    Case(500_000, 500_000, 100, Compression.NONE),
)


class Outcome(NamedTuple):
    before_bytes: int
    after_bytes: int
    seconds: float
    longest_turn_s: float
    peak_kib: int


def filled(disk: RealDisk, path: str, case: Case) -> PartitionLog:
    config = LogConfig(segment_bytes=64 << 20, compact=True, flush_messages=1 << 60)
    log = open_log(disk, path, config, RealClock(), key=KEY)
    noise_bytes = case.value_bytes // 2  # so that a codec halves a value, about
    filler = bytes(case.value_bytes - noise_bytes)
    for start in range(0, case.records, BATCH_RECORDS):
        builder = BatchBuilder()
        for number in range(start, start + BATCH_RECORDS):
            value = os.urandom(noise_bytes) + filler
            builder.append(b"key-%d" % (number * 7919 % case.keys), value, timestamp_ms=number)
        batch = builder.build(case.compression)
        log.append_as_leader(batch, read_header(batch), leader_epoch=0, now_ms=0)
    return log


def end_segment(log: PartitionLog) -> None:
    """Begin another segment, so that everything before it can be compacted."""
    log.configure(LogConfig(segment_bytes=1, compact=True))
    builder = BatchBuilder()
    builder.append(b"last", b"", timestamp_ms=0)
    batch = builder.build()
    log.append_as_leader(batch, read_header(batch), leader_epoch=0, now_ms=0)
    log.configure(LogConfig(segment_bytes=64 << 20, compact=True))


async def _note_nothing(dropped_end: int) -> None:
    """No follower needs to know."""


async def measure(disk: RealDisk, log: PartitionLog) -> Outcome:
    found = await survey(log, 0, log.end_offset, 1 << 50)
    before = log.size_bytes
    watch = asyncio.create_task(longest_turn())
    begun = time.perf_counter()
    await compact_log(log, disk, found, LIMITS, 1 << 50, _note_nothing)
    seconds = time.perf_counter() - begun
    watch.cancel()
    longest_s = (await asyncio.gather(watch, return_exceptions=True))[0]
    assert isinstance(longest_s, float)
    return Outcome(before, log.size_bytes, seconds, longest_s, peak_kib(disk.work_process_id))


async def longest_turn() -> float:
    """By how much a timer came too late at most."""
    longest_s = 0.0
    try:
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(_TICK_S)
            longest_s = max(longest_s, time.perf_counter() - begun - _TICK_S)
    except asyncio.CancelledError:
        return longest_s


def peak_kib(pid: int | None) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0


def main() -> None:
    console = Console(width=110)
    console.print(machine())
    table = Table(title="One round of compaction")
    for name in ("records", "keys", "value", "codec", "MiB before", "after"):
        table.add_column(name, justify="right")
    for name in ("s", "MB/s", "records/s", "peak MiB", "longest turn ms"):
        table.add_column(name, justify="right")
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as path:
        for number, case in enumerate(CASES):
            disk = RealDisk()
            log = filled(disk, f"{path}/{number}", case)
            end_segment(log)
            done = uvloop.run(measure(disk, log))
            disk.close()
            log.close()
            table.add_row(
                f"{case.records:,}",
                f"{case.keys:,}",
                str(case.value_bytes),
                case.compression.name.lower(),
                f"{done.before_bytes / 2**20:.0f}",
                f"{done.after_bytes / 2**20:.0f}",
                f"{done.seconds:.2f}",
                f"{done.before_bytes / done.seconds / 1e6:.0f}",
                f"{case.records / done.seconds:,.0f}",
                f"{done.peak_kib / 1024:.0f}",
                f"{done.longest_turn_s * 1000:.1f}",
            )
    console.print(table)


if __name__ == "__main__":
    main()
