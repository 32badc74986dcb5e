"""A leader that clients reach and controllers do not."""

from chaos.sim.laws.judged import JudgedCluster
from tests.support.sim_cluster import TOPIC, a_topic, consumer_of, judged, read, write

FOUND_WITHIN_S = 2.0  # a fetch that waits in vain, a refresh of metadata, another fetch


@judged(5)
async def test_a_consumer_leaves_it_for_the_next_leader_while_it_is_still_cut_off(
    cluster: JudgedCluster,
) -> None:
    await a_topic(cluster)
    await write(cluster, 3)
    clock, fabric = cluster.client_world.clock, cluster.simulation.fabric
    async with consumer_of(cluster) as consumer:
        await read(consumer, 3)
        deposed = cluster.leader(TOPIC)
        controllers = [node.host for node in cluster.controllers.values()]
        fabric.isolate(deposed.host, controllers)
        await cluster.until(lambda: cluster.leader(TOPIC) is not deposed, "another one leads")
        await write(cluster, 4, "of the next leader ")
        began = clock.monotonic()
        assert len(await read(consumer, 4)) == 4
        assert clock.monotonic() - began < FOUND_WITHIN_S
    fabric.heal()
    await cluster.until_isr(TOPIC, 3)


@judged(6)
async def test_consumers_read_on_what_is_there_while_no_controller_runs(
    cluster: JudgedCluster,
) -> None:
    await a_topic(cluster)
    await write(cluster, 3)
    async with consumer_of(cluster) as consumer:
        await read(consumer, 3)
        for node in cluster.controllers.values():
            node.kill()
        assert await consumer.poll(timeout_ms=20_000) == []
        for _ in range(3):
            consumer.seek(TOPIC, 0, 0)
            assert len(await read(consumer, 3)) == 3
            assert await consumer.poll(timeout_ms=2_000) == []
    for node in cluster.controllers.values():
        node.start()
    await write(cluster, 1)
