"""Logs on disks that lose power: what was synced is there again, and nothing passes for corrupt."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.sim.disk import DiskFaults
from chaos.sim.simulation import Simulation
from stele.world import World
from storage.checkpoints import TopicPartition
from storage.config import LogConfig
from storage.errors import CorruptLogError
from storage.log import PartitionLog
from tests.support.storage import append, make_batch

LOG = "/d/t-0"
FILE = f"{LOG}/{0:020d}.log"


def open_log(world: World) -> PartitionLog:
    log = PartitionLog.open(world.disk, LOG, LogConfig(), world.clock, key=TopicPartition("t", 0))
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
    """Something more is written while it fails."""
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
    # Behind what is not under the CRC.
    position = data.draw(st.integers(ends[number] + 21, ends[number + 1] - 1))
    sim.machine("a").disk.flip_bit(FILE, position, data.draw(st.integers(0, 7)))
    with pytest.raises(CorruptLogError):
        open_log(power_cycled(sim))
