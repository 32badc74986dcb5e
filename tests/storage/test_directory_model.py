"""Logs that are created, deleted and created again under their names, compared with a list for
each.

Nothing that was begun for one log affects another, whatever is under way, and also across a power
loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stele.ids import TopicPartition
from stele.wire.batch import batches
from storage.checkpoints import MetaProperties
from storage.config import LogConfig
from storage.directory import LogDirectory
from storage.formatted import format_directory
from storage.group_commit import PATIENCE_S
from storage.log import PartitionLog
from tests.support.batches import make_batch
from tests.support.storage import MemoryDisk, append, commit, enforce_retention
from tests.support.timing import HandClock

PATH = "/data"
CONFIG = LogConfig(segment_bytes=500)
KEYS = [TopicPartition("t", 0), TopicPartition("t", 1)]
keys = st.sampled_from(KEYS)


@dataclass
class Twin:
    """The expected content of one log."""

    topic_id: bytes
    log: PartitionLog
    durable: int = 0  # the highest durable offset so far; nothing below may be lost
    start: int = 0
    written: list[bytes] = field(default_factory=list)


class HandLoop(asyncio.SelectorEventLoop):
    """Time passes when a rule says so. Otherwise a busy machine would decide which timers are due,
    and a run could not be repeated."""

    now_s = 0.0

    def time(self) -> float:
        return self.now_s


class DirectoryMachine(RuleBasedStateMachine):
    """Syncs take any time: each ends by a rule of its own."""

    def __init__(self) -> None:
        super().__init__()
        # A checkpoint looks at one log in a turn.
        self.slices = patch("storage.offset_checkpoints.SLICE_STEPS", 1)
        self.slices.start()
        self.loop = HandLoop()
        self.disk = MemoryDisk()
        format_directory(self.disk, PATH, MetaProperties("c", 1, "d"))
        self.twins: dict[TopicPartition, Twin] = {}
        self.topics = 0
        self.epoch = 0
        self.work: asyncio.Task[Any] | None = None
        self.open()

    def open(self) -> None:
        self.disk.gate = asyncio.Event()
        self.directory = LogDirectory.open(self.disk, PATH, HandClock(), CONFIG)
        self.directory.start()

    def teardown(self) -> None:
        self.end_tasks()
        self.loop.close()
        self.slices.stop()

    # ------------------------------------------------------------------- the loop

    def run(self) -> None:
        """Run everything that can go on."""
        for _ in range(6):
            self.loop.run_until_complete(asyncio.sleep(0))

    def on_loop(self, work: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(work)
        self.run()

    def end_tasks(self) -> None:
        async def ending() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.loop.run_until_complete(ending())
        self.work = None

    @rule()
    def end_syncs(self) -> None:
        """End the syncs under way. Those that waited for them may begin the next ones."""
        before, self.disk.gate = self.disk.gate, asyncio.Event()
        assert before is not None
        before.set()
        self.run()
        if self.work is not None and self.work.done():
            self.work.result()
            self.work = None

    @rule()
    def pass_time(self) -> None:
        """Logs that wait for a slow sync get one beside it."""
        self.loop.now_s += 2 * PATIENCE_S
        self.run()

    # ------------------------------------------------------------------- logs

    @initialize()
    def make_all(self) -> None:
        for key in KEYS:
            self.make(key)
            self.write(key, count=2, rises=True)

    @rule(key=keys)
    def make(self, key: TopicPartition) -> None:
        """Create a log, or delete the existing one and create it again."""
        self.delete(key)

        async def create() -> None:
            self.topics += 1
            topic_id = self.topics.to_bytes(16)
            log = self.directory.create(*key, topic_id)
            self.twins[key] = Twin(topic_id, log)

        self.on_loop(create())

    @rule(key=keys)
    def delete(self, key: TopicPartition) -> None:
        if self.twins.pop(key, None) is not None:
            self.directory.delete(*key)

    @rule()
    def remove_deleted(self) -> None:
        self.on_loop(self.directory.remove_deleted())

    @rule(key=keys, count=st.integers(1, 4), rises=st.booleans())
    def write(self, key: TopicPartition, count: int, rises: bool) -> None:
        self.epoch += rises

        async def appending(twin: Twin) -> None:
            for _ in range(count):
                batch = make_batch(value=b"%d" % self.topics * 10)
                append(twin.log, batch, epoch=self.epoch)
                twin.written.append(bytes(batch))
            self.note(twin)

        if (twin := self.twins.get(key)) is not None:
            self.on_loop(appending(twin))

    @rule(key=keys, share=st.floats(0, 1))
    def commit(self, key: TopicPartition, share: float) -> None:
        if (twin := self.twins.get(key)) is not None:
            commit(twin.log, round(share * twin.durable))

    @rule(key=keys, share=st.floats(0, 1))
    def cut(self, key: TopicPartition, share: float) -> None:
        async def truncating(twin: Twin) -> None:
            end = round(share * len(twin.written))
            twin.log.truncate_to(max(end, twin.start))
            del twin.written[twin.log.end_offset :]
            commit(twin.log, min(twin.log.ask_high_watermark(), twin.log.end_offset))
            twin.durable = min(twin.durable, twin.log.end_offset)

        if (twin := self.twins.get(key)) is not None:
            self.on_loop(truncating(twin))

    @rule(key=keys)
    def delete_records(self, key: TopicPartition) -> None:
        if (twin := self.twins.get(key)) is not None:
            twin.start = max(twin.start, twin.log.ask_high_watermark())
            twin.log.advance_start_offset(twin.start)

    # ------------------------------------------------------------------- the directory

    @precondition(lambda self: self.work is None)
    @rule(retention=st.booleans())
    def begin_housekeeping(self, retention: bool) -> None:
        work: Coroutine[Any, Any, Any] = (
            enforce_retention(self.directory) if retention else self.directory.checkpoint()
        )
        self.work = self.loop.create_task(work)
        self.run()

    @rule(in_order=st.booleans())
    def restart(self, in_order: bool) -> None:
        """Restart after a clean shutdown, or after a power loss."""
        if in_order:
            gate, self.disk.gate = self.disk.gate, None
            assert gate is not None
            gate.set()
            if self.work is not None:
                self.loop.run_until_complete(self.work)
                self.work = None
            self.loop.run_until_complete(self.directory.close())
            for twin in self.twins.values():
                twin.durable = len(twin.written)
        else:
            for twin in self.twins.values():
                self.note(twin)
            self.end_tasks()
            self.disk.power_loss()
        self.open_again()

    def open_again(self) -> None:
        async def opening() -> None:
            self.open()

        self.on_loop(opening())
        assert self.directory.corrupt == {}
        before, self.twins = self.twins, {}
        for key, log in list(self.directory.logs.items()):
            twin = before.pop(key, None)
            if twin is None or twin.topic_id != log.topic_id:
                assert twin is None or twin.durable == 0, f"{key}: the log was not on disk"
                self.directory.delete(*key)  # deleted, or never durably created
                continue
            assert twin.durable <= log.end_offset <= len(twin.written)
            assert log.start_offset <= twin.start
            del twin.written[log.end_offset :]
            twin.log, twin.durable, twin.start = log, log.end_offset, log.start_offset
            self.twins[key] = twin
        assert all(twin.durable == 0 for twin in before.values()), "a log is gone"

    # ------------------------------------------------------------------- what holds

    def note(self, twin: Twin) -> None:
        twin.durable = max(twin.durable, twin.log.durable_offset)

    @invariant()
    def goes_on(self) -> None:
        assert self.directory.offline is None
        assert set(self.directory.logs) == set(self.twins)

    @invariant()
    def holds_its_own(self) -> None:
        for twin in self.twins.values():
            self.note(twin)
            log = twin.log
            assert log.end_offset == len(twin.written)
            data = [bytes(data) for _, data in log.batches_now(log.start_offset)]
            assert data == twin.written[log.start_offset :]
            for offset, batch in enumerate(twin.written):
                (_, header), *_ = batches(batch)
                if offset >= log.start_offset:
                    assert log.epochs.epoch_for(offset) == header.leader_epoch


DirectoryMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None
)
TestDirectory = DirectoryMachine.TestCase
