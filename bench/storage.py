"""The cost of storage: append, read, group commit, recovery.

    python -m bench.storage [directory]

Prints tables with the machine and the versions. Each figure is the best of several runs on real
files. Appends and reads are CPU time of the node's process. Syncs run in the helper process.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

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

KEY = TopicPartition("bench", 0)
REPEATS = 5
SIZES = (300, 16 << 10, 128 << 10, 1 << 20)
Batch = tuple[bytearray, BatchHeader]


def machine() -> str:
    model = platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(": ")[2] if names else model
    versions = " ".join(f"{n} {importlib.metadata.version(n)}" for n in ("uvloop", "crc32c"))
    return (
        f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, {versions}"
    )


def make_batch(size: int, *, base_offset: int = 0, sequence: int = -1) -> Batch:
    """One batch of about ``size`` bytes, in records of about 1 KiB."""
    builder = BatchBuilder(base_offset)
    count = max(size // 1024, 1)
    for index in range(count):
        builder.append(None, bytes(max(size // count - 12, 1)), timestamp_ms=index)
    if sequence < 0:
        batch = builder.build(leader_epoch=0)
    else:
        batch = builder.build(producer_id=1, producer_epoch=0, base_sequence=sequence)
    return batch, read_header(batch)


def best(run: Callable[[int], tuple[float, int]]) -> float:
    """The best time of several runs, in µs per operation. ``run`` returns (seconds, operations)."""
    return min(seconds / count * 1e6 for seconds, count in map(run, range(REPEATS)))


# ------------------------------------------------------------------------------- append


def append_leader(disk: RealDisk, path: str, size: int, *, idempotent: bool) -> float:
    count = max(min(1000, (32 << 20) // size), 10)

    def run(number: int) -> tuple[float, int]:
        log = open_log(disk, f"{path}-{number}", LogConfig(), RealClock(), key=KEY)
        records = make_batch(size)[1].record_count
        batches = [
            make_batch(size, sequence=n * records if idempotent else -1) for n in range(count)
        ]
        start = time.perf_counter()
        for batch, header in batches:
            log.append_as_leader(batch, header, leader_epoch=0, now_ms=0)
        spent = time.perf_counter() - start
        log.close()
        return spent, count

    return best(run)


def append_follower(disk: RealDisk, path: str, size: int, *, per_fetch: int) -> float:
    fetches = max(min(1000, (32 << 20) // (size * per_fetch)), 5)

    def run(number: int) -> tuple[float, int]:
        log = open_log(disk, f"{path}-{number}", LogConfig(), RealClock(), key=KEY)
        offset, answers = 0, []
        for _ in range(fetches):
            answer = bytearray()
            for _ in range(per_fetch):
                batch, header = make_batch(size, base_offset=offset)
                answer += batch
                offset = header.next_offset
            answers.append(answer)
        start = time.perf_counter()
        for answer in answers:
            log.append_as_follower(answer)
        spent = time.perf_counter() - start
        log.close()
        return spent, fetches * per_fetch

    return best(run)


def table_of_appends(disk: RealDisk, path: str) -> Table:
    table = Table(title="append, µs per batch")
    for name in ("batch", "leader", "leader, idempotent", "follower", "follower, 16 a fetch"):
        table.add_column(name, justify="right")
    for size in SIZES:
        table.add_row(
            f"{size:,} B",
            f"{append_leader(disk, f'{path}/l{size}', size, idempotent=False):.1f}",
            f"{append_leader(disk, f'{path}/i{size}', size, idempotent=True):.1f}",
            f"{append_follower(disk, f'{path}/f{size}', size, per_fetch=1):.1f}",
            f"{append_follower(disk, f'{path}/g{size}', size, per_fetch=16):.1f}",
        )
    return table


# ------------------------------------------------------------------------------- read


def filled(disk: RealDisk, path: str, batch_size: int, total: int) -> PartitionLog:
    log = open_log(disk, path, LogConfig(), RealClock(), key=KEY)
    while log.size_bytes < total:
        batch, header = make_batch(batch_size)
        log.append_as_leader(batch, header, leader_epoch=0, now_ms=0)
    return log


def read_onward(log: PartitionLog, max_bytes: int) -> float:
    """A consumer that reads the whole log. Each read begins where the one before ended."""

    def run(_: int) -> tuple[float, int]:
        offset = reads = 0
        start = time.perf_counter()
        while offset < log.end_offset:
            offset = log.read(offset, max_bytes).next_offset
            reads += 1
        return time.perf_counter() - start, reads

    return best(run)


def read_anywhere(log: PartitionLog, max_bytes: int) -> float:
    """First reads at random offsets, limited by a high watermark below the end."""
    offsets = [(n * 7919) % (log.end_offset - 10) for n in range(500)]

    def run(_: int) -> tuple[float, int]:
        start = time.perf_counter()
        for offset in offsets:
            log.read(offset, max_bytes, limit_offset=log.end_offset - 5)
        return time.perf_counter() - start, len(offsets)

    return best(run)


def table_of_reads(disk: RealDisk, path: str) -> Table:
    table = Table(title="read from the page cache, µs per read")
    for name in (
        "batches of",
        "onward 16 KiB",
        "onward 1 MiB",
        "anywhere 16 KiB",
        "anywhere 1 MiB",
    ):
        table.add_column(name, justify="right")
    for size in SIZES[:3]:
        log = filled(disk, f"{path}/r{size}", size, 16 << 20)
        table.add_row(
            f"{size:,} B",
            f"{read_onward(log, 16 << 10):.1f}",
            f"{read_onward(log, 1 << 20):.1f}",
            f"{read_anywhere(log, 16 << 10):.1f}",
            f"{read_anywhere(log, 1 << 20):.1f}",
        )
        log.close()
    return table


# ------------------------------------------------------------------------------- commit


async def table_of_commits(disk: RealDisk, path: str) -> Table:
    table = Table(title="group commit: append 16 KiB to each log, until all are durable, ms")
    for name in ("logs", "median", "99 %", "groups/s"):
        table.add_column(name, justify="right")
    format_directory(disk, path, MetaProperties("bench", 1, "bench"))
    directory = LogDirectory.open(disk, path, RealClock())
    directory.start()
    for count in (1, 4, 8, 50):
        logs = [directory.create(f"c{count}", n, bytes(16)) for n in range(count)]
        await directory.flush()
        times = []
        for _ in range(200):
            batches = [make_batch(16 << 10) for _ in logs]
            start = time.perf_counter()
            for log, (batch, header) in zip(logs, batches, strict=True):
                log.append_as_leader(batch, header, leader_epoch=0, now_ms=0)
            await directory.flush()
            times.append((time.perf_counter() - start) * 1e3)
        times.sort()
        table.add_row(
            str(count),
            f"{statistics.median(times):.2f}",
            f"{times[int(len(times) * 0.99)]:.2f}",
            f"{1e3 / statistics.fmean(times):.0f}",
        )
    await directory.close()
    return table


# ------------------------------------------------------------------------------- recovery


def table_of_recoveries(disk: RealDisk, path: str) -> Table:
    table = Table(title="opening a log of 64 MiB, ms")
    cases = {
        # The arguments of recovery: whether there is a checkpoint, and whether the shutdown was
        # clean.
        "killed, no checkpoint": (False, False),
        "killed after a checkpoint": (True, False),
        "shut down cleanly": (True, True),
    }
    for name in ("batches of", *cases):
        table.add_column(name, justify="right")
    for size in SIZES[:2]:
        directory = f"{path}/o{size}"
        log = filled(disk, directory, size, 64 << 20)
        log.prepare_clean_shutdown()
        log.sync_now()
        epochs = log.checkpoint_epochs()
        if epochs is not None:
            disk.replace_file_now(*epochs)
        log.close()
        end = log.end_offset
        cells = []
        for is_checkpointed, is_clean in cases.values():
            checkpoint = end if is_checkpointed else 0
            start = time.perf_counter()
            open_log(
                disk,
                directory,
                LogConfig(),
                RealClock(),
                key=KEY,
                recovery_point=checkpoint,
                high_watermark_checkpoint=checkpoint,
                clean_shutdown=is_clean,
            ).close()
            cells.append(f"{(time.perf_counter() - start) * 1e3:.1f}")
        table.add_row(f"{size:,} B", *cells)
    return table


def main() -> None:
    console = Console(width=110)
    console.print(machine())
    disk = RealDisk()
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as path:
        console.print(table_of_appends(disk, path))
        console.print(table_of_reads(disk, path))
        console.print(uvloop.run(table_of_commits(disk, f"{path}/commit")))
        console.print(table_of_recoveries(disk, path))
    disk.close()


if __name__ == "__main__":
    main()
