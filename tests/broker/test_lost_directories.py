"""A broker that comes back without one of its log directories."""

from __future__ import annotations

from dataclasses import replace

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from metadata.partitions import NO_LEADER, PartitionState

PARTITIONS = 4


def states(cluster: SimCluster, topic: str) -> dict[int, PartitionState]:
    active = cluster.active_controller
    assert active is not None
    assert active.node is not None
    assert active.node.controller is not None
    found = active.node.controller.image.topic(topic)
    return {} if found is None else dict(enumerate(found.partitions))


def places(node: SimNode, topic: str) -> dict[str, set[int]]:
    """The partitions in each log directory."""
    names = {path: node.machine.disk.names(path) for path in ("/data", "/more")}
    return {
        path: {number for number in range(PARTITIONS) if f"{topic}-{number}" in found}
        for path, found in names.items()
    }


def test_a_directory_that_is_taken_out_costs_its_own_replicas_and_no_other() -> None:
    cluster = SimCluster(1, controllers=1, brokers=1)
    node = cluster.brokers[1]
    node.config = replace(node.config, log_dirs=("/data", "/more"))

    async def scenario(cluster: SimCluster) -> None:
        await cluster.client.create_topic("t", partitions=PARTITIONS, replication_factor=1)
        await cluster.until(lambda: sum(map(len, places(node, "t").values())) == 4, "logs")
        there = places(node, "t")
        assert there["/data"]
        assert there["/more"]
        for number in range(PARTITIONS):
            await cluster.client.produce("t", b"record", broker=1, partition=number)
        node.kill()
        node.config = replace(node.config, log_dirs=("/data",))
        node.start()
        await cluster.until(lambda: node.ready, "it serves again")
        for number, state in states(cluster, "t").items():
            if number in there["/data"]:
                assert (state.leader, state.isr) == (1, (1,))
            else:
                assert (state.leader, state.isr) == (NO_LEADER, ())
                assert state.last_known_elr == (1,)

    cluster.run(scenario)
