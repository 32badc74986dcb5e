"""The longest turn of the event loop under what used to grow with a log or with their number.

    python -m bench.turns [--partitions 500] [--mib 64] [--directory DIR] [--json]

Real files in a temporary directory, the page cache warm. A turn is measured from outside: a task
that does nothing but yield finds out for how long nobody else could have run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import struct
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial

import uvloop

from bench.report import Cell, Report
from broker.replication.relaxed_flush import RelaxedFlush
from runtime.real.disk import RealDisk
from stele.ids import TopicPartition
from stele.real import RealClock
from stele.wire.batch import BatchBuilder, BatchHeader, read_header
from storage.checkpoints import MetaProperties
from storage.config import LogConfig
from storage.directory import LogDirectory
from storage.formatted import format_directory
from storage.log import PartitionLog
from storage.opening import open_log
from storage.retention import retained_from

TOPIC_ID = b"t" * 16
RELAXED = LogConfig(flush_messages=1 << 40)
INDEX_ENTRIES = 262_144  # the entries of a segment of 1 GiB, one for each 4 KiB


class Bench:
    def __init__(self, path: str, partitions: int, mib: int) -> None:
        self.path = path
        self.partitions = partitions
        self.bytes = mib << 20
        self.disk = RealDisk()
        self.clock = RealClock()
        self.rows: list[list[Cell]] = []
        self._names = iter(range(1 << 30))

    def directory(self) -> LogDirectory:
        path = f"{self.path}/{next(self._names)}"
        format_directory(self.disk, path, MetaProperties("c", 1, "d"))
        directory = LogDirectory.open(self.disk, path, self.clock)
        directory.start()
        return directory

    def log(self, config: LogConfig = RELAXED) -> PartitionLog:
        path = f"{self.path}/t-{next(self._names)}"
        return open_log(self.disk, path, config, self.clock, key=TopicPartition("t", 0))

    async def measure(self, what: str, size: str, work: Callable[[], Awaitable[object]]) -> None:
        """Measure the longest turn during ``work``, and the time that ``work`` takes."""
        began = time.perf_counter()
        task = asyncio.ensure_future(work())
        longest = 0.0
        while not task.done():
            at = time.perf_counter()
            await asyncio.sleep(0)
            longest = max(longest, time.perf_counter() - at)
        await task
        self.rows.append([what, size, longest * 1e3, (time.perf_counter() - began) * 1e3])


def small_batch(now_ms: int, sequence: int = -1, size: int = 1000) -> tuple[bytearray, BatchHeader]:
    builder = BatchBuilder()
    builder.append(None, b"v" * size, timestamp_ms=now_ms)
    producer = (7, 0) if sequence >= 0 else (-1, -1)
    batch = builder.build(
        producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence
    )
    return batch, read_header(batch)


def fill(log: PartitionLog, count: int, size: int = 1000, *, idempotent: bool = False) -> None:
    for number in range(count):
        batch, header = small_batch(number, number if idempotent else -1, size)
        log.append_as_leader(batch, header, leader_epoch=0, now_ms=number)


def write_time_index(path: str, now_ms: int) -> None:
    with open(path, "wb") as file:
        stamps = ((now_ms - 10**6 + entry, entry) for entry in range(INDEX_ENTRIES))
        file.writelines(struct.pack(">qi", *stamp) for stamp in stamps)


async def truncation(bench: Bench) -> None:
    for idempotent in (False, True):
        log = bench.log()
        fill(log, bench.bytes // 1070, idempotent=idempotent)
        log.sync_now()

        async def cut(log: PartitionLog = log) -> None:
            log.truncate_to(log.end_offset - 1)

        producers = "with a producer's state" if idempotent else "without producers"
        size = f"segment of {log.size_bytes >> 20} MiB, {producers}"
        await bench.measure("truncation by a batch", size, cut)
        log.close()


def commit(log: PartitionLog) -> None:
    end_offset = log.end_offset
    log.ask_high_watermark = lambda: end_offset


async def enforce_retention(bench: Bench, directory: LogDirectory) -> None:
    for log in directory.logs.values():
        now_ms = bench.clock.time_ms()
        log.advance_start_offset(await retained_from(log, log.ask_high_watermark(), now_ms))
    await directory.retire_dead_segments()


async def first_retention(bench: Bench) -> None:
    directory = bench.directory()
    config = LogConfig(segment_bytes=3000)
    for number in range(bench.partitions):
        fill(directory.create("t", number, TOPIC_ID, config), 5, 900)
    await directory.flush()
    for log in directory.logs.values():
        commit(log)
    await directory.close(broker_epoch=1)
    now_ms = bench.clock.time_ms()
    index = f"{bench.path}/index"
    write_time_index(index, now_ms)
    for number in range(bench.partitions):
        sealed = f"{directory.path}/t-{number}/{0:020d}.timeindex"
        os.remove(sealed)
        os.link(index, sealed)
    directory = LogDirectory.open(bench.disk, directory.path, bench.clock)
    directory.start()
    size = f"{bench.partitions} partitions, {INDEX_ENTRIES} index entries each"
    await bench.measure("first retention check", size, partial(enforce_retention, bench, directory))
    log = directory.logs[TopicPartition("t", 0)]
    await bench.measure(
        "look-up by time", f"{INDEX_ENTRIES} entries", lambda: log.offset_for_timestamp(now_ms)
    )
    await directory.close()


async def removals(bench: Bench) -> None:
    for what in ("retention", "deletion of a topic"):
        directory = bench.directory()
        log = directory.create("t", 0, TOPIC_ID, LogConfig(segment_bytes=3000, retention_ms=1))
        fill(log, bench.partitions * 2)
        await directory.flush()
        commit(log)
        size = f"{len(log.segment_bases)} segments"
        if what == "retention":
            await bench.measure(what, size, partial(enforce_retention, bench, directory))
        else:
            directory.delete("t", 0)
            await bench.measure(what, size, directory.remove_deleted)
        await directory.close()


async def many_partitions(bench: Bench) -> None:
    directory = bench.directory()
    noted = RelaxedFlush(bench.disk, directory)
    keys = [TopicPartition("t", number) for number in range(bench.partitions)]

    async def note() -> None:
        noted.add_all(keys)

    await bench.measure("flush relaxed", f"{len(keys)} partitions", note)
    count = bench.partitions * 6
    for number in range(count):
        fill(directory.create("t", number, TOPIC_ID), 1)
    await directory.flush()
    for log in directory.logs.values():
        commit(log)
    await bench.measure("checkpoint, all changed", f"{count} partitions", directory.checkpoint)
    await bench.measure("checkpoint, nothing new", f"{count} partitions", directory.checkpoint)
    await directory.close()


async def run(bench: Bench) -> None:
    for part in (truncation, first_retention, removals, many_partitions):
        await part(bench)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench turns", description=__doc__)
    parser.add_argument("--partitions", type=int, default=500)
    parser.add_argument("--mib", type=int, default=64, help="of the segment that is truncated")
    parser.add_argument("--directory", help="where to make the temporary directory")
    parser.add_argument("--json", action="store_true", help="one document for programs")
    options = parser.parse_args()
    report = Report("turns", as_json=options.json)
    with tempfile.TemporaryDirectory(dir=options.directory) as path:
        bench = Bench(path, options.partitions, options.mib)
        uvloop.run(run(bench))
        bench.disk.close()
    report.table("Turns of the event loop", ["what", "size", "longest, ms", "all, ms"], bench.rows)
    report.finish()


if __name__ == "__main__":
    main()
