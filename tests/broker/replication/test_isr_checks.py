"""When a leader looks who lags."""

from __future__ import annotations

import asyncio

from broker.replication.housekeeping import every_on_time
from broker.replication.replica import ReplicaState
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.support.replication import with_topic
from tests.support.worlds import virtual


class _LateLoop:
    """Sleeps of the test end so much later than asked for."""

    def __init__(self) -> None:
        self.late_s = [0.0, 5.0, 5.0, 0.1, 5.0, 0.0]
        self.checked_at: list[float] = []

    async def sleep(self, delay_s: float) -> None:
        if not self.late_s:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(delay_s + self.late_s.pop(0))

    async def check(self) -> None:
        self.checked_at.append(asyncio.get_running_loop().time())


@virtual
async def test_after_a_stall_followers_are_heard_before_they_are_judged() -> None:
    """A round after a stall is left out, but never two in a row."""

    late = _LateLoop()
    task = asyncio.create_task(every_on_time(1.0, late.check, sleep=late.sleep))
    await asyncio.sleep(100.0)
    task.cancel()
    assert [round(at, 3) for at in late.checked_at] == [1.0, 13.0, 14.1, 21.1]


@with_topic
async def test_a_leader_without_its_log_takes_nobody_out_of_the_isr(
    cluster: ReplicaCluster,
) -> None:
    """It could not tell who lags. Alone in the ISR, it would leave nobody to lead."""
    node = cluster[1]
    cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
    await node.produce(acks=1)
    assert P0 in node.manager.hosted.unsettled
    node.process.loop.call_soon(node.manager.take_down, node.replica(), ReplicaState.OFFLINE)
    await asyncio.sleep(60)
    assert node.replica().machine.is_leader, "the metadata still say so"
    assert cluster.proposals == []
    assert cluster.state().isr == (1, 2, 3)
    assert P0 not in node.manager.hosted.unsettled
