"""What laws hold against whom: what is claimed of a cluster must have been promised."""

import asyncio

import pytest

from chaos.sim.cluster import SimCluster
from chaos.sim.laws import newest_image
from tests.support.sim_cluster import TOPIC, a_topic, write

LOOKS_S = 3.0  # long enough for every law to look while something runs


@pytest.mark.parametrize("seed", range(2))
def test_a_controller_cut_off_does_not_say_who_leads_when_the_others_are_down(seed: int) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await a_topic(cluster)
        await write(cluster, 3)
        deposed = cluster.leader(TOPIC)
        active = cluster.active_controller
        cut_off = next(node for node in cluster.controllers.values() if node is not active)
        dark = [deposed.host, cut_off.host]
        light = [node.host for node in cluster.nodes.values() if node.host not in dark]
        cluster.simulation.fabric.partition(dark, [*light, "client"])
        await cluster.until(lambda: cluster.leader(TOPIC) is not deposed, "another one leads")
        await write(cluster, 3, "w")
        await asyncio.sleep(0.5)  # for the laws to see that it is committed
        others = [node for node in cluster.controllers.values() if node is not cut_off]
        metadata = cluster.invariants._metadata
        newest = metadata.newest
        for node in others:
            node.kill()
        await asyncio.sleep(LOOKS_S)
        assert newest is not None
        known = newest_image(cluster)
        assert known is not None
        assert known.offset < newest.offset
        assert metadata.newest is newest
        cluster.simulation.fabric.heal()
        for node in others:
            node.start()
        await cluster.until_isr(TOPIC, 3)
        await cluster.client.check_promises(TOPIC)

    SimCluster(seed).run(scenario)
