"""A node whose logs take long to open: its quorum works meanwhile, and the node can be stopped."""

from __future__ import annotations

import asyncio
import signal
from typing import cast

import pytest

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from node.node import Node
from node.process import _Runner
from node.process_end import EXIT_FAILED, EXIT_OK
from tests.support.sim_cluster import TOPIC, a_topic, judged, write

_LOGS = 20
_SYNC_S = 0.25  # two of a log's recovery, at least


def _opens_its_logs(node: SimNode) -> bool:
    running = node.running
    return running is not None and running.broker is None and running.quorum is not None


def _reasons(node: SimNode) -> str:
    if node.node is None:
        return "its process begins"
    return "\n".join(check.reason for check in node.node.readiness() if not check.ok)


async def until_it_tells(cluster: SimCluster, node: SimNode, text: str) -> None:
    await cluster.until(lambda: text in _reasons(node), text)


@pytest.mark.parametrize("seed", range(3))
@judged(combined=True)
async def test_a_combined_node_votes_and_has_the_metadata_while_it_recovers_its_logs(
    cluster: SimCluster, seed: int
) -> None:
    await a_topic(cluster)
    await cluster.client.create_topic("many", partitions=_LOGS)
    await write(cluster, 10)
    slow, other, third = cluster.brokers.values()
    disk = cluster.simulation.machine(slow.host).disk
    slow.kill()
    disk.faults.extra_sync_s = _SYNC_S
    slow.start()
    await until_it_tells(cluster, slow, "recovering log 3 of")
    # The other two are no majority without it.
    third.kill()
    began = cluster.simulation.now
    await cluster.until(
        lambda: cluster.active_controller in (slow, other), "a controller leads", timeout_s=5
    )
    await cluster.client.create_topic("meanwhile", replication_factor=1)
    assert cluster.simulation.now - began < _LOGS * _SYNC_S
    assert _opens_its_logs(slow)
    assert slow.node is not None
    assert slow.node.quorum is not None
    assert slow.node.quorum.hears_leader
    disk.faults.extra_sync_s = 0.0
    third.start()
    await cluster.until_isr(TOPIC, 3)
    await write(cluster, 5, "w")
    await cluster.client.check_promises(TOPIC)


@pytest.mark.parametrize("seed", range(3))
@judged(combined=True)
async def test_a_power_loss_in_the_middle_of_a_recovery_costs_nothing(
    cluster: SimCluster, seed: int
) -> None:
    await a_topic(cluster)
    await cluster.client.create_topic("many", partitions=_LOGS)
    await write(cluster, 20)
    slow = cluster.brokers[1 + seed]
    machine = cluster.simulation.machine(slow.host)
    slow.kill()
    machine.disk.faults.extra_sync_s = _SYNC_S
    for number in (2, 7, 12):
        slow.start()
        await until_it_tells(cluster, slow, f"recovering log {number} of")
        cluster.simulation.power_off(slow.host)
        cluster.simulation.power_on(slow.host)
    machine.disk.faults.extra_sync_s = 0.0
    slow.start()
    await cluster.until_isr(TOPIC, 3)
    await write(cluster, 5, "w")
    await cluster.client.check_promises(TOPIC)


class _SlowNode:
    """A node that never ends its start."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self.failed = asyncio.Event()
        self.undone = False

        class Config:
            node_id = 1

        self.config = Config()

    async def start(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.undone = True

    async def wait_failed(self) -> BaseException:
        await self.failed.wait()
        assert self.failure is not None
        return self.failure

    def halt(self) -> None:
        pass


async def test_a_signal_breaks_off_a_start() -> None:
    node = _SlowNode()
    life = asyncio.ensure_future(_Runner(cast(Node, node), None).run())
    await asyncio.sleep(0.01)
    assert not life.done()
    signal.raise_signal(signal.SIGTERM)
    assert await asyncio.wait_for(life, 5) == EXIT_OK
    assert node.undone


async def test_a_node_that_fails_while_it_starts_ends(capsys: pytest.CaptureFixture[str]) -> None:
    node = _SlowNode()
    life = asyncio.ensure_future(_Runner(cast(Node, node), None).run())
    await asyncio.sleep(0)
    node.failure = OSError("the disk of the metadata broke")
    node.failed.set()
    assert await asyncio.wait_for(life, 5) == EXIT_FAILED
    assert node.undone
    assert capsys.readouterr().err == (
        "stele: node 1 cannot go on: the disk of the metadata broke\n"
    )
