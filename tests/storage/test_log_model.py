"""A log, compared with a list: whatever is done to both, they have the same content, also after a
crash."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stele.ids import TopicPartition
from stele.wire.batch import batches, read_header, stamp
from storage import producer_files
from storage.config import LogConfig
from storage.log import PartitionLog
from storage.log_types import SyncTicket
from storage.opening import open_log
from tests.support.batches import make_batch
from tests.support.storage import MemoryDisk
from tests.support.timing import HandClock

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=150)
DIRECTORY = "/d/t-0"


@dataclass(frozen=True)
class Written:
    """One batch of the twin."""

    base_offset: int
    next_offset: int
    epoch: int
    data: bytes


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.twin: list[Written] = []
        self.epoch = 0
        self.start = 0
        self.sequence = 0
        self.checkpointed = 0  # recovery point and high watermark on disk
        # Also snapshots within segments, as in logs that are much longer.
        self.few = mock.patch.object(producer_files, "REPLAY_BATCHES", 3)
        self.few.start()
        self.under_way: tuple[SyncTicket, Callable[[], None]] | None = None  # a sync

    @initialize()
    def open_first(self) -> None:
        self.log = self.open()

    def teardown(self) -> None:
        self.few.stop()

    def open(self, *, clean: bool = False) -> PartitionLog:
        self.under_way = None  # a process took it along
        return open_log(
            self.disk,
            DIRECTORY,
            CONFIG,
            HandClock(),
            key=TopicPartition("t", 0),
            start_offset=self.start,
            recovery_point=self.checkpointed,
            high_watermark_checkpoint=self.checkpointed,
            clean_shutdown=clean,
        )

    @property
    def end(self) -> int:
        return self.twin[-1].next_offset if self.twin else self.start

    # ------------------------------------------------------------------- writing

    @rule(count=st.integers(1, 5), size=st.integers(0, 120), as_leader=st.booleans())
    def append(self, count: int, size: int, as_leader: bool) -> None:
        batch = make_batch(count, size=size, producer=(3, 0, self.sequence))
        if as_leader:
            header = read_header(batch)
            result = self.log.append_as_leader(batch, header, leader_epoch=self.epoch, now_ms=0)
        else:
            stamp(batch, 0, base_offset=self.end, leader_epoch=self.epoch)
            result = self.log.append_as_follower(batch)
        assert result.base_offset == self.end
        self.twin.append(Written(self.end, self.end + count, self.epoch, bytes(batch)))
        self.sequence += count

    @rule()
    def roll(self) -> None:
        segments = len(self.log.segment_bases)
        while len(self.log.segment_bases) == segments:
            self.append(count=1, size=120, as_leader=True)

    @rule()
    def raise_epoch(self) -> None:
        self.epoch += 1

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        """Truncate, but never below the checkpoints, which a log without an owner cannot lower."""
        offset = self.checkpointed + round(share * (self.end - self.checkpointed))
        new_end = self.log.truncate_to(offset)
        self.twin = [written for written in self.twin if written.next_offset <= offset]
        assert new_end == self.end
        state = self.log.producers.get(3)
        self.sequence = 0 if state is None else state.last_sequence + 1

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        start = self.start + round(share * (self.checkpointed - self.start))
        if start > self.start:
            self.log.advance_start_offset(start)
            self.start = start
            self.log.remove_dead_segments()

    # ------------------------------------------------------------------- disk

    @rule()
    def sync(self) -> None:
        self.log.sync_now()
        assert self.log.durable_offset == self.end

    @precondition(lambda self: self.under_way is None)
    @rule()
    def begin_sync(self) -> None:
        """Begin a sync as a group commit does: what is written from now on waits for the next
        one."""
        ticket = self.log.begin_sync()
        self.under_way = ticket, self.disk.begin_sync(ticket.paths)

    @precondition(lambda self: self.under_way is not None)
    @rule()
    def finish_sync(self) -> None:
        assert self.under_way is not None
        ticket, settle = self.under_way
        self.under_way = None
        settle()
        self.log.finish_sync(ticket)
        if ticket.generation == self.log.truncation_generation:
            assert self.log.durable_offset >= ticket.end_offset

    @rule()
    def checkpoint(self) -> None:
        epochs = self.log.checkpoint_epochs()
        if epochs is not None:
            self.disk.replace_file_now(*epochs)
        self.checkpointed = self.log.durable_offset

    @rule()
    def restart_cleanly(self) -> None:
        self.log.prepare_clean_shutdown()
        self.log.sync_now()
        self.checkpoint()
        self.log.close()
        self.log = self.open(clean=True)

    @rule()
    def kill(self) -> None:
        """The process dies. What it wrote is still in the page cache."""
        self.log.close()
        self.log = self.open()
        assert self.log.durable_offset == self.end

    @precondition(lambda self: self.end > self.start)
    @rule(kept=st.floats(0, 1))
    def lose_power(self, kept: float) -> None:
        """Everything that was not synced is lost except for a part."""
        durable = self.log.durable_offset
        self.log.close()
        self.disk.power_loss(lambda unsynced: int(unsynced * kept))
        self.log = self.open()
        assert durable <= self.log.end_offset <= self.end
        self.twin = [w for w in self.twin if w.next_offset <= self.log.end_offset]
        state = self.log.producers.get(3)
        self.sequence = 0 if state is None else state.last_sequence + 1

    # ------------------------------------------------------------------- what holds

    @invariant()
    def holds_the_same(self) -> None:
        log = self.log
        assert (log.start_offset, log.end_offset) == (self.start, self.end)
        assert log.synced_offset <= log.durable_offset <= log.end_offset
        alive = [w for w in self.twin if w.next_offset > self.start]
        read = [(h.base_offset, bytes(data)) for h, data in log.batches_now(self.start)]
        assert read == [(w.base_offset, w.data) for w in alive]
        for base, following in zip(log.segment_bases, log.segment_bases[1:], strict=False):
            assert base < following

    @invariant()
    def knows_its_epochs(self) -> None:
        alive = [w for w in self.twin if w.next_offset > self.start]
        for written in alive:
            assert self.log.epochs.epoch_for(max(written.base_offset, self.start)) == written.epoch

    @rule(share=st.floats(0, 1), max_bytes=st.integers(1, 2000), limit=st.floats(0, 1))
    def read(self, share: float, max_bytes: int, limit: float) -> None:
        offset = self.start + round(share * (self.end - self.start))
        bound = self.start + round(limit * (self.end - self.start))
        result = self.log.read(offset, max_bytes, limit_offset=bound)
        got = [bytes(result.data[at : at + h.size_bytes]) for at, h in batches(result.data)]
        assert sum(map(len, got)) == len(result.data)
        below = [w for w in self.twin if w.next_offset > offset and w.next_offset <= bound]
        assert got == [w.data for w in below[: len(got)]]
        if below and offset < bound:
            assert got
            assert len(result.data) <= max_bytes or len(got) == 1
            assert result.next_offset == below[len(got) - 1].next_offset


LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestLog = LogMachine.TestCase
