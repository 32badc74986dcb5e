"""Logs on disks that lose power: what was synced is still there, and nothing looks corrupt."""

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.sim.world.disk import DiskFaults
from chaos.sim.world.simulation import Simulation
from stele.ids import TopicPartition
from stele.wire.batch import batches
from storage import opening, producer_files
from storage.config import LogConfig
from storage.errors import CorruptLogError
from storage.log import PartitionLog
from tests.support.batches import make_batch
from tests.support.storage import append
from world.world import World

LOG = "/d/t-0"
FILE = f"{LOG}/{0:020d}.log"


def open_log(world: World) -> PartitionLog:
    log = opening.open_log(world.disk, LOG, LogConfig(), world.clock, key=TopicPartition("t", 0))
    for path in (LOG, "/d", "/"):
        world.disk.sync_now(path)
    return log


def write(log: PartitionLog, size: int) -> None:
    append(log, make_batch(size=size))


def power_cycled(sim: Simulation) -> World:
    sim.power_off("a")
    sim.power_on("a")
    return sim.process("a").world


def fail_a_sync_under_way(sim: Simulation, log: PartitionLog) -> None:
    """Let a sync fail while more is written."""
    disk = sim.machine("a").disk
    disk.faults.failing_sync = True
    finish = disk.begin_sync(log.begin_sync().paths)
    write(log, 100)
    with pytest.raises(OSError, match="Input/output"):
        finish()
    disk.faults.failing_sync = False


@settings(max_examples=300)
@given(
    st.lists(st.one_of(st.integers(1, 9000), st.sampled_from(["sync", "fail", "power"]))),
    st.integers(0, 10_000),
    st.sampled_from([0.0, 0.3, 0.8]),
)
def test_a_power_loss_is_never_taken_for_corruption(
    steps: list[int | str], seed: int, torn_page: float
) -> None:
    sim = Simulation(seed)
    sim.machine("a").disk.faults = DiskFaults(torn_page=torn_page)
    log = open_log(sim.process("a").world)
    synced = 0
    for step in [*steps, "power"]:
        if isinstance(step, int):
            write(log, step)
        elif step == "sync":
            log.sync_now()
            synced = log.end_offset
        else:
            if step == "fail":
                fail_a_sync_under_way(sim, log)
            written = log.end_offset
            log = open_log(power_cycled(sim))
            assert synced <= log.end_offset <= written
            assert len(list(log.batches_now(0))) == log.end_offset
            synced = log.end_offset


@settings(max_examples=100)
@given(st.lists(st.integers(1, 3000), min_size=2, max_size=6), st.data())
def test_a_bit_flipped_before_a_whole_batch_is_never_taken_for_a_torn_write(
    sizes: list[int], data: st.DataObject
) -> None:
    sim = Simulation(1)
    log = open_log(sim.process("a").world)
    ends = [0]
    for size in sizes:
        write(log, size)
        ends.append(len(sim.machine("a").disk.file(FILE).data))
    log.sync_now()
    number = data.draw(st.integers(0, len(sizes) - 2))
    # After the bytes that are not under the CRC.
    position = data.draw(st.integers(ends[number] + 21, ends[number + 1] - 1))
    sim.machine("a").disk.flip_bit(FILE, position, data.draw(st.integers(0, 7)))
    with pytest.raises(CorruptLogError):
        open_log(power_cycled(sim))


SPARSE = LogConfig(index_interval_bytes=200, segment_bytes=6000)


def reopened(world: World, recovery_point: int) -> PartitionLog:
    log = opening.open_log(
        world.disk,
        LOG,
        SPARSE,
        world.clock,
        key=TopicPartition("t", 0),
        recovery_point=recovery_point,
        high_watermark_checkpoint=recovery_point,
    )
    for path in (LOG, "/d", "/"):
        world.disk.sync_now(path)
    return log


def found_by_index(log: PartitionLog) -> list[int]:
    """The batch of each record, looked up by itself: from the last to the first, because otherwise
    a reader's place would be used."""
    found = []
    for offset in reversed(range(log.end_offset)):
        result = log.read(offset, 1)
        assert result.cold is None
        found.append(next(batches(result.data))[1].base_offset)
    return found[::-1]


@settings(max_examples=150)
@given(
    st.lists(
        st.one_of(
            st.integers(1, 700),
            st.tuples(st.just("cut"), st.integers(0, 15)),
            st.sampled_from(["sync", "checkpoint", "power", "kill"]),
        ),
        max_size=60,
    ),
    st.integers(0, 10_000),
    st.sampled_from([0.0, 0.3, 0.8]),
    st.sampled_from([3, 20]),
)
def test_recovery_from_the_recovery_point_on_finds_what_a_whole_scan_finds(
    steps: list[int | str | tuple[str, int]], seed: int, torn_page: float, replay_batches: int
) -> None:
    """Indexes and producer snapshots are written now and then and torn like everything else.
    Batches that replace truncated ones are at the same positions as the indexed ones."""
    sim = Simulation(seed)
    sim.machine("a").disk.faults = DiskFaults(torn_page=torn_page)
    with mock.patch.object(producer_files, "REPLAY_BATCHES", replay_batches):
        log = reopened(sim.process("a").world, 0)
        synced = checkpointed = sequence = 0
        for step in [*steps, "power", "checkpoint", "power"]:
            if isinstance(step, int):
                append(log, make_batch(size=step, producer=(7, 0, sequence), timestamp_ms=sequence))
                sequence += 1
            elif isinstance(step, tuple):
                before = log.end_offset
                if log.truncate_to(max(checkpointed, before - step[1])) < before:
                    synced = log.end_offset
            elif step == "sync":
                log.sync_now()
                synced = log.end_offset
            elif step == "checkpoint":
                epochs = log.checkpoint_epochs()
                if epochs is not None:
                    sim.process("a").world.disk.replace_file_now(*epochs)
                checkpointed = synced
            else:
                written = log.end_offset
                world = power_cycled(sim) if step == "power" else sim.process("a").world
                log.close()
                log = reopened(world, checkpointed)
                assert synced <= log.end_offset <= written
                synced = log.end_offset
                assert found_by_index(log) == list(range(log.end_offset))
            state = log.producers.get(7)
            assert (state.last_sequence + 1 if state else 0) == log.end_offset
            sequence = log.end_offset
