"""What opening does with a log after a crash: kept, truncated, or corrupt."""

import logging
from dataclasses import dataclass
from typing import Any

import pytest

from stele.ids import TopicPartition
from storage import opening
from storage.config import LogConfig
from storage.errors import CorruptLogError
from storage.log import PartitionLog
from storage.producer_state import ProducerStates
from tests.support.batches import header_of, make_batch
from tests.support.storage import MemoryDisk, append
from tests.support.timing import HandClock

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100)
BATCH = len(make_batch(10))
PER_SEGMENT = 1000 // BATCH
FIRST = f"/d/t-0/{0:020d}.log"

KEY = TopicPartition("t", 0)


def open_log(disk: MemoryDisk, **checkpoints: Any) -> PartitionLog:
    return opening.open_log(disk, "/d/t-0", CONFIG, HandClock(), key=KEY, **checkpoints)


def written(count: int) -> MemoryDisk:
    """A disk with ``count`` batches of 10 records, all synced. The node was killed."""
    disk = MemoryDisk()
    log = open_log(disk)
    for number in range(count):
        append(log, make_batch(10, producer=(5, 0, 10 * number)), epoch=number)
    log.sync_now()
    log.close()
    return disk


@dataclass(frozen=True)
class Damage:
    name: str
    batches: int
    recovery_point: int
    high_watermark: int
    kept: int | None  # batches; None: corrupt
    cut_last_by: int = 0  # bytes off the end of the last file
    flip: int | None = None  # batch of the first segment
    zeroes: int = 0  # bytes behind the last batch

    def __str__(self) -> str:
        return self.name


LAST = PER_SEGMENT - 1

MATRIX = [
    Damage("nothing happened", 3, 0, 0, 3),
    Damage("nothing happened, all below the recovery point", 3, 30, 30, 3),
    Damage("tail torn", 3, 0, 0, 2, cut_last_by=1),
    Damage("tail torn inside the header", 3, 20, 20, 2, cut_last_by=BATCH - 5),
    Damage("tail torn at the recovery point", 3, 20, 0, 2, cut_last_by=1),
    Damage("tail torn below the recovery point", 3, 21, 0, None, cut_last_by=1),
    Damage("tail torn at the high watermark", 3, 0, 20, 2, cut_last_by=1),
    Damage("tail torn below the high watermark", 3, 0, 30, None, cut_last_by=1),
    Damage("last batch gone, below the recovery point", 3, 30, 0, None, cut_last_by=BATCH),
    Damage("last batch gone, below the high watermark", 3, 0, 30, None, cut_last_by=BATCH),
    Damage("last batch gone, above both", 3, 20, 20, 2, cut_last_by=BATCH),
    Damage("last batch half written", 3, 20, 20, 2, flip=2),
    Damage("flip in the last batch, below the recovery point", 3, 30, 0, None, flip=2),
    Damage("flip, a whole batch behind it", 3, 0, 0, None, flip=1),
    Damage("flip, whole batches in the next segment", PER_SEGMENT + 1, 0, 0, None, flip=LAST),
    Damage("file extended, not written", 3, 20, 20, 3, zeroes=700),
]


@pytest.mark.parametrize("damage", MATRIX, ids=str)
def test_matrix(damage: Damage) -> None:
    disk = written(damage.batches)
    last = max(path for path in disk.inodes if path.endswith(".log"))
    if damage.cut_last_by:
        del disk.inodes[last].data[-damage.cut_last_by :]
    if damage.flip is not None:
        disk.flip(FIRST, damage.flip * BATCH + 70)
    disk.inodes[last].data += bytes(damage.zeroes)
    checkpoints = {
        "recovery_point": damage.recovery_point,
        "high_watermark_checkpoint": damage.high_watermark,
    }
    if damage.kept is None:
        before = {path: bytes(inode.data) for path, inode in disk.inodes.items()}
        with pytest.raises(CorruptLogError) as caught:
            open_log(disk, **checkpoints)
        assert caught.value.path.startswith("/d/t-0/")
        logs = {path: data for path, data in before.items() if path.endswith(".log")}
        assert {path: bytes(disk.inodes[path].data) for path in logs} == logs  # evidence is kept
        return
    log = open_log(disk, **checkpoints)
    assert log.end_offset == log.durable_offset == damage.kept * 10
    assert log.epochs.entries == [(n, n * 10) for n in range(damage.kept)]
    last_state = log.producers.get(5)
    assert last_state is not None
    assert last_state.last_sequence == damage.kept * 10 - 1
    # Everything kept is on disk now, and the log goes on.
    disk.power_loss()
    log = open_log(disk, **checkpoints)
    assert log.end_offset == damage.kept * 10
    assert append(log, make_batch(10), epoch=99) == damage.kept * 10
    assert [h.base_offset for h, _ in log.batches_now(0)] == list(range(0, log.end_offset, 10))


def test_the_cut_may_have_taken_the_length_too() -> None:
    """A whole batch after the cut is found although nothing leads to it."""
    disk = written(4)
    data = disk.inodes[FIRST].data
    data[BATCH : BATCH + 40] = b"\xee" * 40
    with pytest.raises(CorruptLogError, match="a whole batch stands behind it"):
        open_log(disk)


@pytest.mark.parametrize("size", [100, 700, 3000, 9000])
def test_a_page_that_was_not_written_before_a_later_one_is_a_torn_write(size: int) -> None:
    """Pages reach the device in any order. Sectors that were not written are zeroes."""
    size_bytes = len(make_batch(1, size=size))
    config = LogConfig(index_interval_bytes=100)
    for unit in (512, 4096):
        for at in range(0, 6 * size_bytes, unit):
            disk = MemoryDisk()
            log = opening.open_log(disk, "/d/t-0", config, HandClock(), key=KEY)
            for _ in range(6):
                append(log, make_batch(1, size=size))
            log.close()
            synced = 2 * size_bytes  # say
            data = disk.inodes[FIRST].data
            start, end = max(at, synced), min(at + unit, len(data))
            if end - start < 17:
                continue
            data[start:end] = bytes(end - start)
            log = opening.open_log(disk, "/d/t-0", config, HandClock(), key=KEY)
            assert log.end_offset == start // size_bytes


@pytest.mark.parametrize("behind", [0, 1])
@pytest.mark.parametrize("taken", range(1, 40))
def test_a_sector_that_was_not_written_may_take_no_more_than_the_offset(
    taken: int, behind: int
) -> None:
    """The offset is not under the CRC, so a batch without it can look whole."""
    boundary = 1024  # of two sectors
    first = next(
        batch
        for size in range(boundary)
        if len(batch := make_batch(1, size=size)) == boundary - taken
    )
    disk = MemoryDisk()
    log = opening.open_log(disk, "/d/t-0", LogConfig(), HandClock(), key=KEY)
    for batch in (first, *(make_batch(1) for _ in range(1 + behind))):
        append(log, batch)
    log.close()
    before = bytes(disk.inodes[FIRST].data)
    disk.inodes[FIRST].data[boundary - taken : boundary] = bytes(taken)
    is_torn = disk.inodes[FIRST].data != before
    assert is_torn == (taken >= 8)
    log = opening.open_log(disk, "/d/t-0", LogConfig(), HandClock(), key=KEY)
    assert log.end_offset == (1 if is_torn else 2 + behind)


def test_a_flipped_bit_among_whole_batches_is_corruption_wherever_it_is() -> None:
    for position in range(BATCH, 2 * BATCH):
        disk = written(4)
        disk.flip(FIRST, position)
        if position < BATCH + 8 or BATCH + 12 <= position < BATCH + 16:
            continue  # offset and leader epoch are not under the CRC: a greater one may pass
        with pytest.raises(CorruptLogError):
            open_log(disk)


def test_a_whole_batch_out_of_order_is_no_torn_write() -> None:
    disk = written(2)
    disk.inodes[FIRST].data += disk.inodes[FIRST].data[:BATCH]
    with pytest.raises(CorruptLogError, match="offset 0 after 19"):
        open_log(disk)


def test_a_torn_write_drops_the_empty_segments_behind_it(caplog: pytest.LogCaptureFixture) -> None:
    disk = written(PER_SEGMENT)
    disk.replace_file_now(f"/d/t-0/{PER_SEGMENT * 10:020d}.log", b"")
    del disk.inodes[FIRST].data[-1:]
    with caplog.at_level(logging.WARNING):
        log = open_log(disk)
    assert log.segment_bases == [0]
    assert log.end_offset == (PER_SEGMENT - 1) * 10
    assert log.truncated_bytes == BATCH - 1
    assert "torn write" in caplog.text


def test_a_missing_segment_is_corruption() -> None:
    disk = written(3 * PER_SEGMENT)
    for suffix in (".log", ".index", ".timeindex"):
        disk.remove(f"/d/t-0/{PER_SEGMENT * 10:020d}{suffix}")
    with pytest.raises(CorruptLogError, match="the next segment begins at"):
        open_log(disk)


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_segment_is_corruption_also_at_the_beginning(clean: bool, number: int) -> None:
    disk = written(2 * PER_SEGMENT + 1)
    disk.remove(f"/d/t-0/{number * PER_SEGMENT * 10:020d}.log")
    with pytest.raises(CorruptLogError, match="the file is missing, but its index exists"):
        open_log(disk, clean_shutdown=clean)


def test_a_deletion_that_no_checkpoint_knows_of_is_none() -> None:
    """On a full disk segments are deleted before the new start can be written."""
    disk = written(2 * PER_SEGMENT + 1)
    log = open_log(disk)
    log.advance_start_offset(PER_SEGMENT * 10)
    assert log.remove_dead_segments(in_order=True) == 1
    disk.power_loss()
    assert open_log(disk).start_offset == PER_SEGMENT * 10


def test_a_log_that_lost_every_file_is_corrupt() -> None:
    disk = MemoryDisk()
    with pytest.raises(CorruptLogError, match="there is no segment"):
        open_log(disk, recovery_point=10)


def test_only_what_lies_above_the_recovery_point_is_looked_at() -> None:
    disk = written(3 * PER_SEGMENT)
    disk.flip(FIRST, 70)
    point = PER_SEGMENT * 10
    log = open_log(disk, recovery_point=point, high_watermark_checkpoint=point)
    assert log.end_offset == 3 * PER_SEGMENT * 10


@pytest.mark.parametrize("clean", [False, True])
def test_what_recovery_did_not_look_at_is_checked_when_it_is_read(clean: bool) -> None:
    disk = written(2 * PER_SEGMENT + 1)
    end_offset = 10 * (2 * PER_SEGMENT + 1)
    disk.flip(FIRST, BATCH + 80)
    log = open_log(
        disk,
        recovery_point=end_offset,
        high_watermark_checkpoint=end_offset,
        clean_shutdown=clean,
    )
    assert len(log.read(0, BATCH).data) == BATCH
    for offset, size in ((0, 2 * BATCH), (10, BATCH)):
        with pytest.raises(CorruptLogError, match="the CRC does not match"):
            log.read(offset, size)
    for offset in range(20, end_offset, 10):
        assert len(log.read(offset, BATCH).data) == BATCH


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("number", [0, LAST, PER_SEGMENT, 2 * PER_SEGMENT])
def test_what_only_the_recovery_point_proves_is_checked_at_once(number: int, clean: bool) -> None:
    """The recovery point is lowered to the high watermark, so later the damage would look like a
    torn write."""
    disk = written(2 * PER_SEGMENT + 1)
    first = number // PER_SEGMENT * PER_SEGMENT * 10
    position = number % PER_SEGMENT * BATCH
    disk.flip(f"/d/t-0/{first:020d}.log", position + 80)
    checkpoints = {"recovery_point": 10 * (2 * PER_SEGMENT + 1), "clean_shutdown": clean}
    for high_watermark in (0, 10 * number):
        with pytest.raises(CorruptLogError, match="the CRC does not match") as caught:
            open_log(disk, **checkpoints, high_watermark_checkpoint=high_watermark)
        assert (caught.value.offset, caught.value.position) == (10 * number, position)


def test_after_a_clean_shutdown_nothing_is_scanned_but_a_cut_is_corruption() -> None:
    disk = written(3)
    checkpoints = {"recovery_point": 30, "high_watermark_checkpoint": 30, "clean_shutdown": True}
    log = open_log(disk, **checkpoints)
    assert log.end_offset == 30
    log.prepare_clean_shutdown()
    log.close()
    assert open_log(disk, **checkpoints).end_offset == 30
    del disk.inodes[FIRST].data[-1:]
    with pytest.raises(CorruptLogError):
        open_log(disk, **checkpoints)


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("damage", ["gone", "short", "flip"])
async def test_indexes_are_made_anew(suffix: str, damage: str) -> None:
    disk = written(3 * PER_SEGMENT)
    end = 3 * PER_SEGMENT * 10
    path = f"/d/t-0/{0:020d}.{suffix}"
    if damage == "gone":
        disk.remove(path)
    elif damage == "short":
        del disk.inodes[path].data[-3:]
    else:
        disk.flip(path, 8 if suffix == "timeindex" else 5)
    log = open_log(disk, recovery_point=end)
    for offset in range(0, end, 7):
        header = next(log.batches_now(offset))[0]
        assert header.base_offset == offset // 10 * 10
    found = await log.offset_for_timestamp(1_000_009)
    assert found is not None
    assert found.offset == 9


@pytest.mark.parametrize("which", ["all", "the last"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_snapshot_gives_way_to_the_log(clean: bool, which: str) -> None:
    disk = written(3 * PER_SEGMENT)
    log = open_log(disk)
    whole = log.producers.encode()
    log.prepare_clean_shutdown()
    log.close()
    snapshots = sorted(path for path in disk.inodes if path.endswith(".snapshot"))
    for path in snapshots if which == "all" else snapshots[-1:]:
        disk.flip(path, 8)
    again = open_log(disk, recovery_point=log.end_offset, clean_shutdown=clean)
    assert again.producers.encode() == whole


def test_segments_below_the_start_are_dropped_unseen() -> None:
    disk = written(3 * PER_SEGMENT)
    disk.flip(FIRST, 70)
    log = open_log(disk, start_offset=PER_SEGMENT * 10 + 5)
    assert log.start_offset == PER_SEGMENT * 10 + 5
    assert log.segment_bases == [PER_SEGMENT * 10, 2 * PER_SEGMENT * 10]
    assert not disk.exists(FIRST)


def test_a_start_above_the_end_begins_anew() -> None:
    disk = written(2)
    log = open_log(disk, start_offset=500)
    assert (log.start_offset, log.end_offset) == (500, 500)
    assert append(log, make_batch()) == 500


def test_a_start_at_the_end_keeps_what_there_is() -> None:
    """All records are deleted. Retention deletes their segment later."""
    disk = written(2)
    log = open_log(disk, start_offset=20)
    assert (log.start_offset, log.end_offset) == (20, 20)
    assert log.segment_bases == [0]


@pytest.mark.parametrize(
    ("name", "stays"),
    [
        (f"{9:020d}.snapshot", False),  # of a segment that is gone
        (f"{10:020d}.snapshot", True),  # no other file has the producers whose records are gone
        (f"{9:020d}.timeindex", False),
        (f"{10:020d}.timeindex", True),
        (f"{500:020d}.index", False),  # of a segment that was never begun
        ("partition.metadata", True),
    ],
)
def test_only_files_of_segments_that_are_gone_are_removed(name: str, *, stays: bool) -> None:
    disk = written(0)
    log = open_log(disk)
    log.reset_to(10)
    append(log, make_batch(10))
    log.sync_now()
    log.close()
    disk.replace_file_now(f"/d/t-0/{name}", ProducerStates().encode())
    log = open_log(disk, start_offset=10)
    assert (log.start_offset, log.end_offset) == (10, 20)
    assert disk.exists(f"/d/t-0/{name}") == stays


def test_a_producer_with_the_id_zero_is_known_as_any_other() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, make_batch(10, producer=(0, 0, 0)))
    log.sync_now()
    log.close()
    state = open_log(disk).producers.get(0)
    assert state is not None
    assert state.last_sequence == 9


def test_a_file_of_epochs_is_written_anew_only_if_it_was_wrong() -> None:
    disk = written(2)
    found = open_log(disk).checkpoint_epochs()
    assert found is not None
    disk.replace_file_now(*found)
    assert open_log(disk).checkpoint_epochs() is None
    disk.replace_file_now(found[0], b"0\n1\n0 0\n")
    assert open_log(disk).checkpoint_epochs() == found


def test_epochs_that_begin_at_the_recovery_point_tell_the_start() -> None:
    """All records below it are deleted, and the start was not checkpointed."""
    disk = written(4)
    disk.replace_file_now("/d/t-0/leader-epoch-checkpoint", b"0\n1\n3 30\n")
    log = open_log(disk, recovery_point=30)
    assert (log.start_offset, log.end_offset) == (30, 40)


def test_epochs_above_the_recovery_point_come_from_the_batches() -> None:
    """The file may be from before a truncation. It is right only below the recovery point."""
    disk = written(4)
    disk.replace_file_now("/d/t-0/leader-epoch-checkpoint", b"0\n3\n0 0\n1 10\n9 25\n")
    assert open_log(disk, recovery_point=20).epochs.entries == [(0, 0), (1, 10), (2, 20), (3, 30)]


def test_an_epoch_whose_first_records_are_deleted_is_kept() -> None:
    disk = written(1)
    log = open_log(disk, recovery_point=10)
    log.advance_start_offset(10)
    append(log, make_batch(10), epoch=0)
    log.sync_now()
    epochs = log.checkpoint_epochs()
    assert epochs is not None
    disk.replace_file_now(*epochs)
    assert epochs[1] == b"0\n1\n0 10\n"
    again = open_log(disk, start_offset=10, recovery_point=10)
    assert again.epochs.entries == [(0, 10)]


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_that_only_the_epochs_knew_of_is_the_logs(clean: bool) -> None:
    disk = written(2 * PER_SEGMENT)
    end = 20 * PER_SEGMENT
    log = open_log(disk, recovery_point=end)
    log.advance_start_offset(end - 10)
    epochs = log.checkpoint_epochs()
    assert epochs is not None
    disk.replace_file_now(*epochs)
    log.close()  # before the start is checkpointed
    again = open_log(disk, recovery_point=end, clean_shutdown=clean)
    assert again.start_offset == end - 10
    assert again.epochs.entries == [(2 * PER_SEGMENT - 1, end - 10)]


def test_epochs_that_begin_above_the_recovery_point_are_read_from_the_batches() -> None:
    """The entries may be from before a truncation."""
    disk = written(2 * PER_SEGMENT)
    end = 20 * PER_SEGMENT
    disk.replace_file_now("/d/t-0/leader-epoch-checkpoint", f"0\n1\n99 {end - 10}\n".encode())
    again = open_log(disk, recovery_point=end - 20)
    assert again.start_offset == 0
    assert again.epochs.entries == [(number, 10 * number) for number in range(2 * PER_SEGMENT)]


# ------------------------------------------------------------------------------- index files

FINE = LogConfig(index_interval_bytes=1)


def fine_log(disk: MemoryDisk, **checkpoints: Any) -> PartitionLog:
    return opening.open_log(disk, "/d/t-0", FINE, HandClock(), key=KEY, **checkpoints)


def each_is_found(log: PartitionLog) -> bool:
    for offset in reversed(range(log.end_offset)):  # else a reader's last position tells
        result = log.read(offset, 1)
        if result.cold is not None:
            return False  # the index is wrong, as was found out
        header = header_of(result.data)
        if not header.base_offset <= offset <= header.last_offset:
            return False
    return True


def alternating(log: PartitionLog, count: int, sizes: tuple[int, int]) -> None:
    """After every second batch the log has the same length, whichever size comes first."""
    for number in range(count):
        append(log, make_batch(size=sizes[number % 2]))


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
async def test_an_index_with_sectors_that_were_not_written_is_not_gone_by(suffix: str) -> None:
    for sector in range(4):
        disk = MemoryDisk()
        log = fine_log(disk)
        for number in range(300):
            append(log, make_batch(2, timestamp_ms=2 * number))
        log.sync_now()
        log.segments.active.flush_indexes()
        log.close()
        path = FIRST.removesuffix("log") + suffix
        disk.inodes[path].data[sector * 512 : (sector + 1) * 512] = bytes(512)
        log = fine_log(disk, recovery_point=600, high_watermark_checkpoint=600)
        assert each_is_found(log)
        for asked in range(0, 600, 7):
            found = await log.offset_for_timestamp(asked)
            assert found is not None
            assert found.offset == asked


def test_a_cut_is_in_the_index_files_before_anything_takes_the_place_of_what_was_cut() -> None:
    disk = MemoryDisk()
    log = fine_log(disk)
    alternating(log, 101, (40, 60))
    log.segments.active.flush_indexes()
    log.require_synced("/d", "/d/t-0", *log.segments.active.index_paths())
    log.sync_now()
    log.truncate_to(20)
    alternating(log, 101, (60, 40))  # and no index entry of theirs gets to the disk
    log.sync_now()
    log.close()
    disk.power_loss()
    log = fine_log(disk, recovery_point=91, high_watermark_checkpoint=91)
    assert log.end_offset == 121
    assert each_is_found(log)


def test_after_a_torn_write_the_index_files_name_nothing_behind_it() -> None:
    disk = MemoryDisk()
    log = fine_log(disk)
    alternating(log, 20, (40, 60))
    log.sync_now()
    alternating(log, 81, (40, 60))
    log.segments.active.flush_indexes()
    for path in ("/d", "/d/t-0", *log.segments.active.index_paths()):
        disk.sync_now(path)  # before the batches
    log.close()
    disk.power_loss()
    log = fine_log(disk, recovery_point=20, high_watermark_checkpoint=20)
    assert log.end_offset == 20
    alternating(log, 101, (60, 40))
    log.sync_now()
    log.close()
    disk.power_loss()
    log = fine_log(disk, recovery_point=91, high_watermark_checkpoint=91)
    assert log.end_offset == 121
    assert each_is_found(log)


@pytest.mark.parametrize("after", ["kill", "clean shutdown", "cut"])
def test_a_producer_is_known_by_its_last_batch_though_its_records_are_deleted(after: str) -> None:
    """Its records are deleted, but their segment still exists.

    The producer goes on from its last batch. If the log knew only an earlier one, from a snapshot,
    it would refuse everything.
    """
    disk = written(PER_SEGMENT)
    log = open_log(disk)
    append(log, make_batch(10, producer=(5, 0, 10 * PER_SEGMENT)), epoch=PER_SEGMENT)
    append(log, make_batch(10, producer=(6, 0, 0)), epoch=PER_SEGMENT)
    end = log.end_offset
    assert log.segment_bases == [0, 10 * PER_SEGMENT]
    log.advance_start_offset(end - 10)
    log.remove_dead_segments()
    append(log, make_batch(10), epoch=PER_SEGMENT)
    if after == "cut":
        log.truncate_to(end)
    else:
        log.sync_now()
        is_clean = after == "clean shutdown"
        log.close()
        log = open_log(disk, start_offset=end - 10, clean_shutdown=is_clean)
    repeated = make_batch(10, producer=(5, 0, 10 * PER_SEGMENT))
    assert append(log, repeated, epoch=PER_SEGMENT) == 10 * PER_SEGMENT
    assert append(log, make_batch(producer=(5, 0, 10 * PER_SEGMENT + 10)), epoch=PER_SEGMENT) > 0


def test_epochs_above_the_recovery_point_do_not_tell_the_start() -> None:
    """They may be of a log that was there before: everything was checked, and is kept."""
    disk = written(4)
    disk.replace_file_now("/d/t-0/leader-epoch-checkpoint", b"0\n1\n3 30\n")
    log = open_log(disk, recovery_point=0)
    assert (log.start_offset, log.end_offset) == (0, 40)
