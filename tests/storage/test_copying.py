"""A copy of a log that changes meanwhile is what the log is when the copy takes its place."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stele.ids import TopicPartition
from stele.wire.batch import read_header
from stele.wire.control_records import end_marker_batch
from storage.checkpoints import MetaProperties
from storage.cold_range import ColdRange
from storage.config import LogConfig
from storage.copies import COPIED_FILE, COPY_FILE
from storage.copying import Copying, CopyStep, Lineage, next_step
from storage.directory import LogDirectory
from storage.errors import StorageError
from storage.formatted import format_directory
from storage.log import PartitionLog
from tests.support.batches import make_batch
from tests.support.storage import MemoryDisk, append, commit
from tests.support.timing import LoopClock
from tests.support.worlds import virtual

KEY = TopicPartition("t", 0)
TOPIC_ID = b"topic-id-of-16-b"
CONFIG = LogConfig(segment_bytes=600)
ONE, OTHER = "/d/one", "/d/other"


def opened(disk: MemoryDisk, path: str) -> LogDirectory:
    if not disk.exists(f"{path}/meta.properties"):
        disk.make_directory(path)
        format_directory(disk, path, MetaProperties("cluster", 1, path))
        disk.sync_now("/d")
    return LogDirectory.open(disk, path, LoopClock(), CONFIG, cluster_id="cluster")


def contents(log: PartitionLog, start_offset: int) -> list[bytes]:
    """Every batch that has an offset from ``start_offset`` on."""
    if start_offset == log.end_offset:
        return []
    return [bytes(data) for _, data in log.batches_now(start_offset)]


def aborted(log: PartitionLog) -> set[tuple[int, int]]:
    """Producer and marker of each aborted transaction that still has records."""
    found = log.transactions.aborted(log.start_offset, log.end_offset)
    assert not isinstance(found, ColdRange)
    headers = [header for header, _ in log.batches_now(log.start_offset)] if found else []
    return {
        (each.producer_id, each.last_offset)
        for each in found
        for header in headers
        if (header.producer_id, header.is_control) == (each.producer_id, False)
        and each.first_offset <= header.base_offset < each.last_offset
    }


def state(log: PartitionLog) -> dict[str, Any]:
    return {
        "offsets": (log.start_offset, log.end_offset),
        "batches": contents(log, log.start_offset),
        "epochs": log.epochs.entries,
        "producers": log.producers.encode(),
        "first open": log.transactions.first_open_offset,
        "aborted": aborted(log),
        "dropped": log.dropped_end,
    }


class Changes:
    """What happens to a log."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()

    def write(self, producer_id: int) -> None:
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + 2
        append(
            self.log,
            make_batch(2, producer=(producer_id, 0, sequence), is_transactional=producer_id > 5),
            epoch=self.epoch,
        )
        if producer_id > 5:
            self.open.add(producer_id)

    def write_plainly(self, _: int) -> None:
        append(self.log, make_batch(3, size=40), epoch=self.epoch)

    def end(self, commits: int) -> None:
        for producer_id in sorted(self.open)[:1]:
            self.open.discard(producer_id)
            marker = end_marker_batch(
                producer_id, 0, commit=bool(commits % 2), coordinator_epoch=1, timestamp_ms=1
            )
            self.log.append_as_leader(
                marker,
                read_header(marker),
                leader_epoch=self.epoch,
                now_ms=1,
                check_sequence=False,
            )

    def lead(self, _: int) -> None:
        self.epoch += 1
        self.log.assign_leader_epoch(self.epoch)

    def delete(self, share: int) -> None:
        log = self.log
        log.advance_start_offset(
            log.start_offset + (log.end_offset - log.start_offset) * share // 10
        )
        log.remove_dead_segments()

    def cut(self, share: int) -> None:
        log = self.log
        log.truncate_to(log.end_offset - (log.end_offset - log.start_offset) * share // 10)
        self.epoch = max(self.epoch, log.latest_epoch)
        self.sequences = {each.producer_id: each.last_sequence + 1 for each in log.producers}
        self.open = {producer_id for producer_id, _ in log.producers.open_transactions()}


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 9)),
        st.tuples(st.just("write_plainly"), st.just(0)),
        st.tuples(st.just("end"), st.integers(0, 1)),
        st.tuples(st.just("lead"), st.just(0)),
        st.tuples(st.just("delete"), st.integers(0, 10)),
        st.tuples(st.just("cut"), st.integers(0, 4)),
        st.tuples(st.just("copy"), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=150)
@given(CHANGES)
@virtual
async def test_a_copy_is_the_log_when_it_takes_over(changes: list[tuple[str, int]]) -> None:
    disk = MemoryDisk()
    one, other = opened(disk, ONE), opened(disk, OTHER)
    log = one.create(*KEY, TOPIC_ID, CONFIG)
    commit(log, 0)
    happening = Changes(log)
    copying = Copying(log, await other.copies.begin(KEY, TOPIC_ID, CONFIG))
    for name, argument in changes:
        if name != "copy":
            getattr(happening, name)(argument)
        elif copying.step in {CopyStep.FILL, CopyStep.RESTART}:
            copying.advance()
    while copying.step is not CopyStep.COMPLETE:
        if copying.step is CopyStep.BEGIN_ANEW:
            copying = Copying(log, await other.copies.begin(KEY, TOPIC_ID, CONFIG))
        else:
            copying.advance()
    log.dropped_end = log.end_offset // 2
    expected, copy = state(log), copying.copy
    copy.take_over(log)
    assert state(copy) == expected
    await check_durable(copy, log, other, expected)
    one.delete(*KEY)
    disk.power_loss()
    again = opened(disk, OTHER).logs[KEY]
    told = dict.fromkeys(("producers", "first open"))  # how they are recovered, others test
    assert {**state(again), **told} == {**expected, **told}
    assert {each.producer_id for each in again.producers} == {
        each.producer_id for each in copy.producers
    }


async def check_durable(
    copy: PartitionLog, log: PartitionLog, other: LogDirectory, expected: dict[str, Any]
) -> None:
    """What is on disk of the copy is acknowledged when the copy is the log on disk."""
    promised = log.durable_offset
    assert (copy.durable_offset, copy.truncation_generation) == (
        promised,
        log.truncation_generation,
    )
    other.copies.put_in_place(KEY)
    commit(copy, copy.end_offset)
    append(copy, make_batch(), epoch=max(copy.latest_epoch, 0))
    await other.flush()
    await other.checkpoint()
    assert copy.synced_offset == copy.end_offset
    assert copy.durable_offset == promised
    await other.copies.settle(copy)
    copy.release()
    assert copy.durable_offset == copy.end_offset
    expected.update(state(copy))


@virtual
async def test_a_copy_of_a_cold_log_says_what_to_warm() -> None:
    disk = MemoryDisk()
    log = opened(disk, ONE).create(*KEY, TOPIC_ID, CONFIG)
    append(log, make_batch())
    copying = Copying(log, await opened(disk, OTHER).copies.begin(KEY, TOPIC_ID, CONFIG))
    disk.cold = True
    found = copying.advance()
    assert isinstance(found, ColdRange)
    await log.warm(found)
    assert copying.advance() == log.size_bytes
    assert copying.step is CopyStep.COMPLETE


@virtual
async def test_a_copy_begins_where_its_log_does_although_the_first_batch_is_later() -> None:
    """Compaction has removed the batches before it."""
    disk = MemoryDisk()
    log = opened(disk, ONE).create(*KEY, TOPIC_ID, CONFIG)
    log.append_as_follower(make_batch(base_offset=3))
    copying = Copying(log, await opened(disk, OTHER).copies.begin(KEY, TOPIC_ID, CONFIG))
    copying.advance()
    assert (copying.copy.start_offset, copying.copy.end_offset) == (0, 4)
    assert copying.step is CopyStep.COMPLETE


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
def test_steps(start: int, length: int, copy_start: int, copied: int) -> None:
    begun = Lineage(1, 1)
    log, copy = (start, start + length), (copy_start, copy_start + copied)
    assert next_step(begun, Lineage(2, 1), log, copy) is CopyStep.BEGIN_ANEW
    assert next_step(begun, Lineage(1, 2), log, copy) is CopyStep.BEGIN_ANEW
    step = next_step(begun, begun, log, copy)
    assert (step is CopyStep.COMPLETE) == (log == copy)
    assert (step is CopyStep.RESTART) == (copy[1] < log[0])


@virtual
async def test_a_relaxed_copy_acknowledges_nothing_before_it_counts() -> None:
    disk = MemoryDisk()
    relaxed = LogConfig(flush_messages=1000)
    log = opened(disk, ONE).create(*KEY, TOPIC_ID, relaxed)
    log.sync_now()
    append(log, make_batch())
    assert log.durable_offset == 1
    other = opened(disk, OTHER)
    copying = Copying(log, await other.copies.begin(KEY, TOPIC_ID, relaxed))
    copying.advance()
    await other.flush()  # its first sync, for which every log waits
    copy = copying.copy
    copy.take_over(log)
    other.copies.put_in_place(KEY)
    append(copy, make_batch())
    assert (copy.durable_offset, copy.end_offset) == (1, 2)
    await other.flush()
    assert copy.durable_offset == 1
    copy.release()
    assert copy.durable_offset == 2


@pytest.mark.parametrize(("end_offset", "durable"), [(2, 1), (1, 1), (0, 0)])
@virtual
async def test_a_truncated_copy_acknowledges_no_more_before_it_counts(
    end_offset: int, durable: int
) -> None:
    disk = MemoryDisk()
    log = opened(disk, ONE).create(*KEY, TOPIC_ID, CONFIG)
    append(log, make_batch())
    log.sync_now()
    for _ in range(2):
        append(log, make_batch())
    other = opened(disk, OTHER)
    copying = Copying(log, await other.copies.begin(KEY, TOPIC_ID, CONFIG))
    while copying.step is not CopyStep.COMPLETE:
        copying.advance()
    copy = copying.copy
    copy.take_over(log)
    other.copies.put_in_place(KEY)
    copy.truncate_to(end_offset)
    assert copy.durable_offset == durable
    copy.release()
    assert copy.durable_offset == end_offset


@virtual
async def test_a_copy_that_is_left_is_no_log_and_gives_way_to_one() -> None:
    disk = MemoryDisk()
    other = opened(disk, OTHER)
    copy = await other.copies.begin(KEY, TOPIC_ID, CONFIG)
    append(copy, make_batch())
    with pytest.raises(ValueError, match="there already"):
        other.create(*KEY, TOPIC_ID, CONFIG)
    await other.flush()
    await other.close()
    again = opened(disk, OTHER)
    assert (again.logs, again.corrupt, again.half_made) == ({}, {}, {})
    assert again.copies.left == {KEY: TOPIC_ID}
    assert disk.exists(f"{OTHER}/{KEY}/{COPY_FILE}")
    log = again.create(*KEY, TOPIC_ID, CONFIG)
    assert (log.end_offset, again.copies.left) == (0, {})
    assert not disk.exists(f"{OTHER}/{KEY}/{COPY_FILE}")
    assert not again.copies.is_copied(KEY)


@virtual
async def test_a_copy_is_not_begun_over_a_log_nor_finished_under_one() -> None:
    disk = MemoryDisk()
    one = opened(disk, ONE)
    one.create(*KEY, TOPIC_ID, CONFIG)
    with pytest.raises(StorageError, match="there already"):
        await one.copies.begin(KEY, TOPIC_ID, CONFIG)
    other = opened(disk, OTHER)
    disk.gate = asyncio.Event()
    beginning = asyncio.ensure_future(other.copies.begin(KEY, TOPIC_ID, CONFIG))
    await asyncio.sleep(0)
    other.create(*KEY, TOPIC_ID, CONFIG)
    disk.gate.set()
    with pytest.raises(StorageError, match="needed for a log"):
        await beginning
    assert [*other.logs] == [KEY]
    assert (other.copies.open, other.copies.left) == ({}, {})


@virtual
async def test_of_two_beginnings_of_a_copy_at_a_time_the_later_one_counts() -> None:
    disk = MemoryDisk()
    other = opened(disk, OTHER)
    disk.gate = asyncio.Event()
    first = asyncio.ensure_future(other.copies.begin(KEY, TOPIC_ID, CONFIG))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(other.copies.begin(KEY, TOPIC_ID, CONFIG))
    await asyncio.sleep(0)
    disk.gate.set()
    found = await asyncio.gather(first, second, return_exceptions=True)
    copies = [each for each in found if isinstance(each, PartitionLog)]
    assert copies == [other.copies.open[KEY]]
    assert append(copies[0], make_batch()) == 0


@virtual
async def test_a_copy_ahead_of_a_log_that_was_truncated_is_not_behind() -> None:
    disk = MemoryDisk()
    one, other = opened(disk, ONE), opened(disk, OTHER)
    log = one.create(*KEY, TOPIC_ID, CONFIG)
    for _ in range(3):
        append(log, make_batch())
    copying = Copying(log, await other.copies.begin(KEY, TOPIC_ID, CONFIG))
    assert copying.lag == 3
    copying.advance()
    log.truncate_to(1)
    assert copying.lag == 0


@virtual
async def test_a_copy_follows_the_configuration_of_its_log() -> None:
    disk = MemoryDisk()
    one, other = opened(disk, ONE), opened(disk, OTHER)
    log = one.create(*KEY, TOPIC_ID, CONFIG)
    copy = await other.copies.begin(KEY, TOPIC_ID, CONFIG)
    log.configure(LogConfig(segment_bytes=1))
    for _ in range(3):
        append(log, make_batch())
    copying = Copying(log, copy)
    while copying.step is CopyStep.FILL:
        copying.advance()
    assert copy.segment_bases == log.segment_bases == [0, 1, 2]


@virtual
async def test_the_note_of_a_copy_that_counts_is_forgotten_durably() -> None:
    disk = MemoryDisk()
    one, other = opened(disk, ONE), opened(disk, OTHER)
    log = one.create(*KEY, TOPIC_ID, CONFIG)
    copy = await other.copies.begin(KEY, TOPIC_ID, CONFIG)
    copy.take_over(log)
    other.copies.put_in_place(KEY)
    await other.flush()
    await other.copies.settle(copy)
    disk.power_loss()
    assert disk.exists(f"{OTHER}/{KEY}/{COPIED_FILE}")
    other = opened(disk, OTHER)
    assert other.copies.is_copied(KEY)
    await other.copies.forget_copied(KEY)
    disk.power_loss()
    assert not disk.exists(f"{OTHER}/{KEY}/{COPIED_FILE}")
    assert [*opened(disk, OTHER).logs] == [KEY]
