"""When a leader looks who lags."""

from __future__ import annotations

import asyncio

from broker.replication.housekeeping import every_on_time
from broker.replication.replica import ReplicaState
from stele.errors import ErrorCode
from stele.ids import PartitionId
from tests.support.replica_cluster import P0, TOPIC_ID, ReplicaCluster
from tests.support.replication import with_topic
from tests.support.timing import until
from tests.support.worlds import virtual

P1 = PartitionId(TOPIC_ID, 1)


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


def proposals(cluster: ReplicaCluster, partition: PartitionId) -> int:
    """How often the controller was asked for another ISR of the partition."""
    return sum(asked == partition for asked, _ in cluster.proposals)


async def proposing(cluster: ReplicaCluster) -> None:
    """Broker 3 has to leave the ISR of two partitions, and no controller is active."""
    cluster.refuse = ErrorCode.NOT_CONTROLLER
    cluster.simulation.fabric.isolate("b3", ["b1", "b2"])
    for partition in (P0, P1):
        await cluster[1].produce(partition=partition, acks=1)
    await until(lambda: min(proposals(cluster, each) for each in (P0, P1)) > 1)


@with_topic((1, 2, 3), (1, 2, 3))
async def test_a_proposal_is_repeated_only_while_its_partition_wants_it(
    cluster: ReplicaCluster,
) -> None:
    """The metadata have overtaken the proposal of one partition. That of the other one goes on."""
    await proposing(cluster)
    cluster.change(isr=(1, 2))
    await asyncio.sleep(5)
    before = proposals(cluster, P0), proposals(cluster, P1)
    await asyncio.sleep(60)
    assert proposals(cluster, P0) == before[0]
    assert proposals(cluster, P1) > before[1]


@with_topic((1, 2, 3), (1, 2, 3))
async def test_a_partition_that_goes_takes_no_proposal_of_another_one_along(
    cluster: ReplicaCluster,
) -> None:
    await proposing(cluster)
    cluster.change(P1, leader=2, isr=(2,), replicas=(2, 3))
    await until(lambda: not cluster[1].holds(P1))
    cluster.refuse = None
    await until(lambda: cluster.state().isr == (1, 2))
