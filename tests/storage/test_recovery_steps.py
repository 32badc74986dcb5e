"""What opening a log reads, syncs and keeps open, and where it lets other tasks run.

Recovery names each step before it does it. So these tests see what it is about to do, and that it
does no more than necessary.
"""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from stele.ids import TopicPartition
from stele.wire.batch import BatchHeader
from stele.wire.control_records import end_marker_batch
from storage import opening
from storage.config import LogConfig
from storage.errors import CorruptLogError
from storage.log import PartitionLog
from storage.producer_recovery import recover_producers
from storage.recovery import (
    RecoveredSegments,
    RecoveryRequest,
    recover_epochs,
    recover_segments,
)
from storage.replay import Replayed, replay
from storage.steps import BATCHES_PER_TURN, Step, Steps, Sync, Turn, Warm
from tests.support.batches import header_of, make_batch
from tests.support.storage import Inode, MemoryDisk, MemoryFile, append
from tests.support.timing import HandClock

T = TypeVar("T")

DIRECTORY = "/d/t-0"
BATCH = len(make_batch(10))
PER_SEGMENT = 1000 // BATCH
SEGMENT = 10 * PER_SEGMENT  # offsets
MANY = BATCHES_PER_TURN + 10
"""Batches: a walk over them lets others run once."""


def path_of(base_offset: int, suffix: str = ".log") -> str:
    return f"{DIRECTORY}/{base_offset:020d}{suffix}"


def written(
    count: int, disk: MemoryDisk | None = None, *, producer: bool = False, **config: Any
) -> MemoryDisk:
    """A disk with ``count`` batches of 10 records, all synced. The node was killed."""
    disk = disk or MemoryDisk()
    log = open_log(disk, LogConfig(**{"index_interval_bytes": 100, **config}))
    for number in range(count):
        append(log, make_batch(10, producer=(5, 0, 10 * number) if producer else None))
    log.sync_now()
    log.close()
    return disk


def in_segments(count: int, disk: MemoryDisk | None = None, **config: Any) -> MemoryDisk:
    """A disk with ``count`` full segments, and one batch in the last segment."""
    return written(count * PER_SEGMENT + 1, disk, segment_bytes=1000, **config)


def open_log(disk: MemoryDisk, config: LogConfig, **checkpoints: Any) -> PartitionLog:
    key = TopicPartition("t", 0)
    return opening.open_log(disk, DIRECTORY, config, HandClock(), key=key, **checkpoints)


def request(disk: MemoryDisk, **known: Any) -> RecoveryRequest:
    unknown = {
        "start_offset": 0,
        "recovery_point": 0,
        "high_watermark": 0,
        "clean_shutdown": False,
        "index_interval_bytes": 100,
        "now_ms": 0,
    }
    return RecoveryRequest(disk, DIRECTORY, **{**unknown, **known})


def walked(work: Steps[T]) -> tuple[T, list[Step]]:
    """The result of the steps, and the steps."""
    steps = []
    while True:
        try:
            steps.append(next(work))
        except StopIteration as end:
            return end.value, steps


def opened(asked: RecoveryRequest) -> RecoveredSegments:
    return walked(recover_segments(asked))[0]


def warmed(steps: list[Step]) -> list[tuple[str, int, int]]:
    return [(step.path, step.position, step.size) for step in steps if isinstance(step, Warm)]


def synced(steps: list[Step]) -> list[str]:
    return [path for step in steps if isinstance(step, Sync) for path in step.paths]


@pytest.mark.parametrize(
    ("producer_id", "is_control", "expected"),
    [(0, True, True), (7, True, True), (7, False, False), (-1, True, False)],
)
def test_a_producers_control_batch_is_a_marker(
    producer_id: int, is_control: bool, expected: bool
) -> None:
    if is_control:
        batch = end_marker_batch(0, 0, commit=True, coordinator_epoch=1, timestamp_ms=0)
    else:
        batch = make_batch(1)
    header = header_of(batch)._replace(producer_id=producer_id)
    recovered = RecoveredSegments([], 0)
    recovered.see_marker(header)
    assert recovered.has_markers is expected


# ------------------------------------------------------------------------------- turns


def test_opening_many_segments_lets_others_run_now_and_then() -> None:
    disk = MemoryDisk()
    disk.make_directory(DIRECTORY)
    for base in range(130):
        disk.inodes[path_of(base)] = Inode()
    _, steps = walked(recover_segments(request(disk, clean_shutdown=True)))
    assert steps == [Turn.OVER, Turn.OVER]


def test_a_scan_reads_the_file_once_and_lets_others_run() -> None:
    disk = written(2 * BATCHES_PER_TURN + 10)
    _, steps = walked(recover_segments(request(disk)))
    whole = Warm(path_of(0), 0, len(disk.inodes[path_of(0)].data))
    assert [step for step in steps if not isinstance(step, Sync)] == [
        whole,
        Turn.OVER,
        Turn.OVER,
    ]


def test_lost_indexes_are_made_anew_in_turns_after_a_clean_shutdown() -> None:
    disk = written(MANY)
    end = 10 * MANY
    asked = request(disk, clean_shutdown=True, recovery_point=end, high_watermark=end)
    recovered, steps = walked(recover_segments(asked))
    assert recovered.end_offset == end
    assert steps == [Warm(path_of(0), 0, MANY * BATCH), Turn.OVER]


def test_the_check_above_the_high_watermark_takes_turns() -> None:
    disk = written(MANY)
    log = open_log(disk, LogConfig(index_interval_bytes=100))
    log.prepare_clean_shutdown()
    log.close()
    asked = request(disk, clean_shutdown=True, recovery_point=10 * MANY)
    _, steps = walked(recover_segments(asked))
    assert steps == [Warm(path_of(0), 0, MANY * BATCH), Turn.OVER]


def test_a_replay_takes_turns_and_tells_how_much_it_was() -> None:
    segments = opened(request(written(MANY))).segments
    seen: list[BatchHeader] = []
    replayed, steps = walked(replay(segments, 0, lambda header, _: seen.append(header)))
    assert replayed == Replayed(MANY, MANY * BATCH)
    assert [header.base_offset for header in seen] == list(range(0, 10 * MANY, 10))
    assert steps == [Warm(path_of(0), 0, MANY * BATCH), Turn.OVER]


# ------------------------------------------------------------------------------- what is not read


@pytest.mark.parametrize("point", [2 * SEGMENT, 2 * SEGMENT + 10])
def test_what_was_on_disk_whole_is_neither_scanned_nor_synced(point: int) -> None:
    disk = in_segments(3)
    asked = request(disk, recovery_point=point, high_watermark=point)
    recovered, steps = walked(recover_segments(asked))
    assert recovered.scanned_from == 2 * SEGMENT
    assert {path for path, _, _ in warmed(steps)} == {path_of(2 * SEGMENT), path_of(3 * SEGMENT)}
    assert [path for path in synced(steps) if path.endswith(".log")] == [
        path_of(2 * SEGMENT),
        path_of(3 * SEGMENT),
    ]


def test_what_a_scan_looked_at_is_not_checked_again() -> None:
    disk = written(3)
    _, steps = walked(recover_segments(request(disk, recovery_point=20)))
    assert warmed(steps) == [(path_of(0), 0, 3 * BATCH)]


@pytest.mark.parametrize("recovery_point", [2 * SEGMENT + 10, 0])
def test_after_a_clean_shutdown_segments_above_the_high_watermark_are_checked(
    recovery_point: int,
) -> None:
    """A device that cannot read other segments does not prevent the opening. The recovery point is
    0 if its checkpoint was lost."""
    disk = in_segments(2)
    disk.unreadable.add(path_of(0))
    asked = request(disk, clean_shutdown=True, recovery_point=recovery_point)
    asked = asked._replace(high_watermark=SEGMENT)
    assert opened(asked).end_offset == 2 * SEGMENT + 10
    with pytest.raises(OSError, match="Input/output error"):
        opened(asked._replace(high_watermark=SEGMENT - 1))


@pytest.mark.parametrize("recovery_point", [30, 0])
def test_a_batch_below_the_high_watermark_is_checked_when_it_is_read(recovery_point: int) -> None:
    disk = written(3)
    disk.flip(path_of(0), 2 * BATCH + 70)
    known = {"clean_shutdown": True, "recovery_point": recovery_point}
    log = open_log(disk, LogConfig(), high_watermark_checkpoint=30, **known)
    assert log.end_offset == 30
    with pytest.raises(CorruptLogError, match="the CRC does not match"):
        log.read(20, BATCH)
    log.close()
    with pytest.raises(CorruptLogError, match="the CRC does not match"):
        open_log(disk, LogConfig(), high_watermark_checkpoint=20, **known)


def test_segments_that_were_scanned_whole_are_not_checked_again() -> None:
    disk = in_segments(2)
    _, steps = walked(recover_segments(request(disk, recovery_point=SEGMENT + 10)))
    looked_at = [path for path, _, _ in warmed(steps)]
    assert sorted(looked_at) == [path_of(n * SEGMENT) for n in range(3)]


@pytest.mark.parametrize("offset", [SEGMENT, SEGMENT + 10])
def test_a_replay_does_not_read_segments_below_it(offset: int) -> None:
    disk = in_segments(2)
    recovered = opened(request(disk))
    disk.unreadable.add(path_of(0))
    seen: list[BatchHeader] = []
    walked(replay(recovered.segments, offset, lambda header, _: seen.append(header)))
    assert [header.base_offset for header in seen] == list(range(offset, 2 * SEGMENT + 1, 10))


def test_what_the_scan_has_seen_is_not_read_again_for_epochs_and_producers() -> None:
    disk = written(3)
    asked = request(disk)
    recovered = opened(asked)
    (epochs, _), steps = walked(recover_epochs(asked, recovered))
    assert (epochs.entries, steps) == ([(0, 0)], [])
    producers, steps = walked(recover_producers(asked, recovered))
    assert (len(producers.states), producers.replayed, steps) == (0, Replayed(0, 0), [])


# ------------------------------------------------------------------------------- handles


def test_batches_of_no_producer_are_not_read_again_for_producers() -> None:
    asked = request(written(5))
    result, steps = walked(recover_producers(asked, opened(asked)))
    assert result.replayed == Replayed(0, 0)
    assert warmed(steps) == []


class HandleDisk(MemoryDisk):
    """A disk that knows which files are open."""

    def __init__(self) -> None:
        super().__init__()
        self.handles: list[str] = []

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        file = super().open(path, create=create)
        if not path.endswith(".log"):
            return file
        return Handle(self, path, file.inode)


class Handle(MemoryFile):
    disk: HandleDisk

    def __init__(self, disk: HandleDisk, path: str, inode: Inode) -> None:
        super().__init__(disk, path, inode)
        disk.handles.append(path)

    def close(self) -> None:
        self.disk.handles.remove(self.path)


@pytest.mark.parametrize("clean", [False, True])
def test_only_the_last_segment_stays_open(clean: bool) -> None:
    disk = HandleDisk()
    in_segments(3, disk)
    end = 3 * SEGMENT + 10
    recovered = opened(request(disk, clean_shutdown=clean, recovery_point=end))
    assert disk.handles == [path_of(3 * SEGMENT)]
    walked(replay(recovered.segments, 0, lambda header, _: None))
    assert disk.handles == [path_of(3 * SEGMENT)]


# ------------------------------------------------------------------------------- files that shrink


def test_a_segment_that_gets_shorter_while_it_is_opened_is_corrupt() -> None:
    disk = in_segments(1, index_interval_bytes=4096)  # no index entry tells before
    end = SEGMENT + 10
    work = recover_segments(request(disk, clean_shutdown=True, recovery_point=end))
    assert next(work) == Warm(path_of(SEGMENT), 0, BATCH)
    disk.inodes[path_of(0)].data.clear()
    with pytest.raises(CorruptLogError, match="the file ends inside a batch"):
        walked(work)


def test_a_segment_that_gets_shorter_before_it_is_replayed_is_corrupt() -> None:
    disk = in_segments(1, index_interval_bytes=4096)
    recovered = opened(request(disk, index_interval_bytes=4096))
    disk.inodes[path_of(0)].data.clear()
    with pytest.raises(CorruptLogError, match="the file ends inside a batch"):
        walked(replay(recovered.segments, 0, lambda header, _: None))
