"""A checkpoint that is cancelled half-way must not keep the next one from writing the epochs."""

import asyncio
import random

import pytest

from chaos.sim.world.simulation import Simulation
from node.format import format_directory
from raft.messages import Batch
from runtime.quorum.config import QuorumConfig
from runtime.quorum.log import QuorumLog
from stele.wire.batch import BatchBuilder
from storage.directory import LogDirectory
from storage.log import PartitionLog
from tests.support.storage import commit
from tests.support.worlds import simulated
from world.disk import Disk

DELAYS_S = (0.0, 0.0001, 0.0005, 0.001, 0.002, 0.004, 0.006)


def append(log: PartitionLog, epoch: int) -> None:
    builder = BatchBuilder(log.end_offset)
    builder.append(None, b"x", timestamp_ms=0)
    log.append_as_follower(builder.build(leader_epoch=epoch))


async def cancel_after(work: "asyncio.Task[None]", delay_s: float) -> None:
    await asyncio.sleep(delay_s)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


@pytest.mark.parametrize("delay_s", DELAYS_S)
@simulated(1)
async def test_in_a_log_directory(sim: Simulation, delay_s: float) -> None:
    async def life(disk: Disk) -> list[tuple[int, int]]:
        clock = sim.machine("a").clock
        directory = LogDirectory.open(disk, "/d", clock)
        directory.start()
        log = directory.create("t", 0, bytes(16))
        append(log, 1)
        await asyncio.sleep(1)
        commit(log, 1)
        await directory.checkpoint()
        append(log, 2)
        append(log, 3)
        await asyncio.sleep(1)
        commit(log, 3)
        await cancel_after(asyncio.get_running_loop().create_task(directory.checkpoint()), delay_s)
        await directory.close()
        return log.epochs.entries

    process = sim.process("a")
    format_directory(process.world.disk, ["/d"], "cluster", 1, random.Random(1))
    epochs = await process.run(life(process.world.disk))
    assert [epoch for epoch, _ in epochs] == [1, 2, 3]
    process.kill()
    again = LogDirectory.open(sim.process("a").world.disk, "/d", sim.machine("a").clock)
    log = again.get("t", 0)
    assert log is not None
    assert log.epochs.entries == epochs


@pytest.mark.parametrize("delay_s", DELAYS_S)
@simulated(1)
async def test_in_the_metadata_log(sim: Simulation, delay_s: float) -> None:
    config = QuorumConfig("cluster", 1, bytes(16), ())

    def propose(log: QuorumLog, epoch: int) -> None:
        payload = log.encode_proposal([b"x"], epoch)
        log.append([Batch(log.end_offset, 1, epoch, payload)])

    async def life(log: QuorumLog) -> None:
        propose(log, 1)
        await log.sync(None, log.begin_sync())
        await log.checkpoint(1)
        propose(log, 2)
        propose(log, 3)
        await log.sync(None, log.begin_sync())
        await cancel_after(asyncio.get_running_loop().create_task(log.checkpoint(3)), delay_s)
        await log.checkpoint(3)
        log.close()

    process = sim.process("a")
    process.world.disk.make_directory("/d")
    await process.run(life(QuorumLog(config, process.world, "/d")))
    process.kill()
    again = QuorumLog(config, sim.process("a").world, "/d")
    assert [epoch for epoch, _ in again.view().epochs] == [1, 2, 3]
