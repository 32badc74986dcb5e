"""The transactions of a log, compared with a twin that makes them anew from the list of batches:
whatever is done to the log, and after every crash."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from unittest import mock

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from stele.wire.batch import BatchHeader, read_header, stamp
from stele.wire.control_records import end_marker_batch
from storage import producer_files
from storage.cold_range import ColdRange
from storage.config import LogConfig
from storage.log import PartitionLog
from storage.opening import open_log
from storage.producer_state import NEVER, EndedTransaction
from storage.txn_index import AbortedTransaction
from tests.support.batches import make_batch
from tests.support.storage import MemoryDisk
from tests.support.timing import HandClock

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150)
DIRECTORY = "/d/t-0"
PRODUCERS = (3, 4, 5)


@dataclass(frozen=True)
class Written:
    """One batch of the twin. ``commit``: of a marker; None for records."""

    header: BatchHeader
    commit: bool | None

    @property
    def next_offset(self) -> int:
        return self.header.next_offset


class Twin:
    """Everything that the batches say."""

    def __init__(self, batches: list[Written]) -> None:
        self.open: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.sequences: dict[int, int] = {}
        self.ended: list[EndedTransaction] = []
        self.aborted: list[AbortedTransaction] = []
        for header, commit in ((each.header, each.commit) for each in batches):
            producer_id = header.producer_id
            if self.epochs.get(producer_id) != header.producer_epoch:
                self.sequences[producer_id] = -1
            self.epochs[producer_id] = header.producer_epoch
            if commit is None:
                self.sequences[producer_id] = header.last_sequence
                if header.is_transactional:
                    self.open.setdefault(producer_id, header.base_offset)
            elif producer_id in self.open:
                self._end(
                    EndedTransaction(
                        producer_id, self.open.pop(producer_id), header.base_offset, commit
                    )
                )

    def _end(self, ended: EndedTransaction) -> None:
        self.ended.append(ended)
        if not ended.commit:
            stable = min([*self.open.values(), ended.marker_offset + 1])
            self.aborted.append(AbortedTransaction(*ended[:3], stable))


class TransactionsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.batches: list[Written] = []
        self.leader_epoch = 0
        self.start = 0
        self.recovery_point = self.high_watermark = 0  # as they are on disk
        self.told: list[EndedTransaction] = []
        # By producer: where the log ended when it was forgotten.
        self.forgotten: dict[int, int] = {}
        self.lost_below = 0  # segments that begin below have lost their snapshots
        # Also snapshots within segments, as in logs that are much longer.
        self.few = mock.patch.object(producer_files, "REPLAY_BATCHES", 3)
        self.few.start()

    @initialize()
    def open_first(self) -> None:
        self.log = self.open()

    def teardown(self) -> None:
        self.few.stop()

    def open(self, *, clean: bool = False) -> PartitionLog:
        log = open_log(
            self.disk,
            DIRECTORY,
            CONFIG,
            HandClock(),
            key=TopicPartition("t", 0),
            start_offset=self.start,
            recovery_point=self.recovery_point,
            high_watermark_checkpoint=self.high_watermark,
            clean_shutdown=clean,
        )
        # The callback reports later ends. The recovery has reported the earlier ones.
        self.told = list(log.transactions.undecided)
        log.transactions.on_ended = self.told.append
        return log

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    # ------------------------------------------------------------------- writing

    def append(self, batch: bytearray, commit: bool | None, as_leader: bool) -> None:
        base_offset = self.end
        if as_leader:
            header = read_header(batch)
            self.log.append_as_leader(
                batch, header, leader_epoch=self.leader_epoch, now_ms=0, check_sequence=False
            )
        else:
            stamp(batch, 0, base_offset=base_offset, leader_epoch=self.leader_epoch)
            self.log.append_as_follower(batch)
        header = read_header(batch)
        assert header.base_offset == base_offset
        self.batches.append(Written(header, commit))

    @rule(
        producer_id=st.sampled_from(PRODUCERS),
        count=st.integers(1, 3),
        bumps=st.booleans(),
        is_transactional=st.booleans(),
        as_leader=st.booleans(),
    )
    def append_records(
        self, producer_id: int, count: int, bumps: bool, is_transactional: bool, as_leader: bool
    ) -> None:
        twin = Twin(self.batches)
        is_open = producer_id in twin.open
        epoch = twin.epochs.get(producer_id, 0) + (bumps and not is_open)
        known = twin.epochs.get(producer_id) == epoch
        sequence = twin.sequences[producer_id] + 1 if known else 0
        batch = make_batch(
            count,
            size=40,
            producer=(producer_id, epoch, sequence),
            is_transactional=is_transactional or is_open,
        )
        self.append(batch, None, as_leader)

    @rule(
        producer_id=st.sampled_from(PRODUCERS),
        commit=st.booleans(),
        bumps=st.booleans(),
        as_leader=st.booleans(),
    )
    def append_marker(self, producer_id: int, commit: bool, bumps: bool, as_leader: bool) -> None:
        epoch = Twin(self.batches).epochs.get(producer_id, 0) + bumps
        batch = end_marker_batch(
            producer_id, epoch, commit=commit, coordinator_epoch=1, timestamp_ms=0
        )
        self.append(batch, commit, as_leader)

    @rule()
    def roll(self) -> None:
        segments = len(self.log.segment_bases)
        while len(self.log.segment_bases) == segments:
            self.append(make_batch(3, size=60, producer=(9, 0, 0)), None, as_leader=False)

    @rule()
    def expire(self) -> None:
        """All that have been silent, which are those without an open transaction."""
        before = {each.producer_id for each in self.log.producers}
        self.log.producers.expire(1 << 40, 1)
        gone = before - {each.producer_id for each in self.log.producers}
        self.forgotten |= dict.fromkeys(gone, self.log.end_offset)
        assert len(self.log.producers) == len(self.log.producers.open_transactions())

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        """Never below the checkpoints, which a log without an owner cannot lower."""
        floor = max(self.recovery_point, self.high_watermark, self.start)
        self.log.truncate_to(floor + round(share * (self.end - floor)))
        self.cut()

    def is_forgotten(self, producer_id: int) -> bool:
        """Whether it has written no records since it was forgotten."""
        since = self.forgotten.get(producer_id)
        return since is not None and not any(
            each.header.producer_id == producer_id
            and each.commit is None
            and each.header.base_offset >= since
            for each in self.batches
        )

    def cut(self) -> None:
        end = self.log.end_offset
        self.batches = [each for each in self.batches if each.next_offset <= end]
        self.told[:] = [each for each in self.told if each.marker_offset < end]
        self.forgotten = {each: min(since, end) for each, since in self.forgotten.items()}

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        start = self.start + round(share * (self.high_watermark - self.start))
        base = self.log.segments.first_base_above(start)
        is_told = base == self.log.segment_bases[0] or base >= self.lost_below
        if start > self.start and is_told:
            self.log.advance_start_offset(start)
            self.start = start
            self.log.remove_dead_segments()

    @rule()
    def reset(self) -> None:
        self.recovery_point = self.high_watermark = 0
        self.log.reset_to(0)
        self.start = self.lost_below = 0
        self.cut()

    # ------------------------------------------------------------------- disk

    @rule()
    def sync(self) -> None:
        self.log.sync_now()

    @rule(share=st.floats(0, 1))
    def checkpoint(self, share: float) -> None:
        """The high watermark may be below the recovery point only after a clean shutdown."""
        epochs = self.log.checkpoint_epochs()
        if epochs is not None:
            self.disk.replace_file_now(*epochs)
        known = max(self.high_watermark, self.start)
        reached = known + round(share * (self.log.durable_offset - known))
        ends = [each.next_offset for each in self.batches if known <= each.next_offset <= reached]
        self.recovery_point = self.high_watermark = max([known, *ends])

    @rule(share=st.floats(0, 1))
    def restart_cleanly(self, share: float) -> None:
        self.log.prepare_clean_shutdown()
        self.log.sync_now()
        self.checkpoint(share)
        self.log.close()
        self.recovery_point = self.log.end_offset
        self.log = self.open(clean=True)
        self.recovery_point = self.high_watermark  # the first checkpoint lowers it

    @rule()
    def kill(self) -> None:
        """The process dies. What it wrote is still in the page cache."""
        self.log.close()
        self.log = self.open()
        assert self.log.end_offset == self.end

    @rule(kept=st.floats(0, 1))
    def lose_power(self, kept: float) -> None:
        """Everything that was not synced is lost except for a part."""
        self.log.close()
        self.disk.power_loss(lambda unsynced: int(unsynced * kept))
        self.log = self.open()
        self.cut()

    @rule()
    def lose_snapshots(self) -> None:
        """Without deleted records, the batches say everything. So no segments are deleted from here
        on until the first one that stays has a snapshot."""
        if self.start == 0:
            self.lost_below = self.end + 1
            for name in self.disk.list(DIRECTORY):
                if name.endswith(".snapshot"):
                    self.disk.remove(f"{DIRECTORY}/{name}")
            self.kill()

    # ------------------------------------------------------------------- what holds

    def first_left(self, producer_id: int, first_offset: int, last_offset: int) -> int | None:
        """The offset of the first record of a transaction that is left; None if none is."""
        return next(
            (
                max(each.header.base_offset, self.start)
                for each in self.batches
                if each.header.producer_id == producer_id
                and each.header.is_transactional
                and each.commit is None
                and first_offset <= each.header.base_offset < last_offset
                and each.next_offset > self.start
            ),
            None,
        )

    @invariant()
    def knows_what_is_open(self) -> None:
        """A transaction whose records are all deleted may be forgotten. Then it seems to begin
        with its next record."""
        twin, states = Twin(self.batches), self.log.producers
        known = dict(states.open_transactions())
        assert set(known) <= set(twin.open)
        for producer_id, first_offset in twin.open.items():
            left = self.first_left(producer_id, first_offset, NEVER)
            if left is not None:
                assert first_offset <= max(known[producer_id], self.start) <= left
        assert states.first_open_offset == min(known.values(), default=NEVER)
        assert self.log.transactions.first_open_offset == states.first_open_offset
        for entry in states:
            assert entry.epoch == twin.epochs[entry.producer_id]
            # A marker makes a producer known again, without its sequence.
            if entry.last_sequence != -1 or not self.is_forgotten(entry.producer_id):
                assert entry.last_sequence == twin.sequences[entry.producer_id]

    @invariant()
    def told_what_markers_above_the_high_watermark_have_ended(self) -> None:
        told = {each for each in self.told if each.marker_offset >= self.high_watermark}
        for each in Twin(self.batches).ended:
            left = self.first_left(*each[:3])
            if each.marker_offset >= self.high_watermark and left is not None:
                assert any(
                    (other.producer_id, other.marker_offset, other.commit)
                    == (each.producer_id, each.marker_offset, each.commit)
                    and other.first_offset <= left
                    for other in told
                ), (each, told)

    @rule(first=st.floats(0, 1), last=st.floats(0, 1))
    def aborted(self, first: float, last: float) -> None:
        twin = Twin(self.batches)
        stable = min([*twin.open.values(), self.end])
        if stable <= self.start:
            return
        offset = self.start + round(first * (stable - self.start - 1))
        end = offset + 1 + round(last * (stable - offset - 1))
        found = self.log.transactions.aborted(offset, end)
        assert not isinstance(found, ColdRange)
        known = {(each.producer_id, each.last_offset): each.first_offset for each in found}
        wanted = [
            each for each in twin.aborted if each.last_offset >= offset and each.first_offset < end
        ]
        unexpected = dict(known)
        for each in wanted:
            first_offset = unexpected.pop((each.producer_id, each.last_offset), None)
            left = self.first_left(each.producer_id, each.first_offset, each.last_offset)
            # Only its records that are left must be known to be aborted.
            if left is not None and left < end:
                assert first_offset is not None
                assert first_offset <= left
        assert not unexpected
        assert list(known) == sorted(known, key=itemgetter(1))

    @rule(producer_id=st.sampled_from(PRODUCERS))
    def refuse(self, producer_id: int) -> None:
        """What a leader refuses of a producer with an open transaction."""
        twin = Twin(self.batches)
        states = self.log.producers
        if producer_id not in dict(states.open_transactions()):
            return
        epoch, sequence = twin.epochs[producer_id], twin.sequences[producer_id] + 1
        batch = make_batch(producer=(producer_id, epoch, sequence))
        with pytest.raises(ApiError) as refused:
            states.check(read_header(batch))
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE


TransactionsMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40)
TestTransactions = TransactionsMachine.TestCase
