"""Clusters in storms: they keep their promises, whatever happens to nodes, disks and network."""

import asyncio
import errno

import pytest

from chaos.sim.cluster.view import online, waits_for_restart
from chaos.sim.faults.storm import Storm
from chaos.sim.laws.judged import JudgedCluster
from stele.aio import Consumer, Producer
from stele.config import ClientWorld
from stele.errors import SteleError
from tests.support.sim_cluster import judged

PLAIN, EXACT = "plain", "exact"
SECONDS = 30.0


class Writers:
    """Four clients that write record by record, and one real idempotent producer."""

    def __init__(self, cluster: JudgedCluster) -> None:
        self.cluster = cluster
        self.done = False
        world = cluster.client_world
        self.world = ClientWorld(world.clock, world.network, world.rng)
        self.delivered = 0

    async def write_plainly(self, writer: int) -> None:
        number = 0
        while not self.done:
            number += 1
            await self.cluster.client.produce_until_acknowledged(
                PLAIN, b"%d-%d" % (writer, number), give_up_s=600
            )
            await asyncio.sleep(0.05)

    async def write_exactly_once(self) -> None:
        """Write records whose keys are 0 to 9 and whose values count up within each key."""
        producer = Producer("b1:9092,b2:9092,b3:9092", world=self.world, on_wait=lambda _: None)
        number = 0
        while not self.done:
            deliveries = []
            for _ in range(20):
                key = b"%d" % (number % 10)
                deliveries.append(await producer.send(EXACT, b"%d" % number, key=key))
                number += 1
            for delivery in deliveries:
                await delivery
                self.delivered += 1
            await asyncio.sleep(0.05)
        await producer.close()

    async def read_exactly_once(self) -> list[tuple[bytes, bytes]]:
        consumer = Consumer("b1:9092,b2:9092,b3:9092", world=self.world, on_wait=lambda _: None)
        partitions = [(EXACT, number) for number in range(3)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = await consumer.end_offsets(partitions)
        found: list[tuple[bytes, bytes]] = []
        while True:
            for record in await consumer.poll(timeout_ms=200):
                assert record.key is not None
                assert record.value is not None
                found.append((record.key, record.value))
            positions = [await consumer.position(topic, number) for topic, number in partitions]
            if positions == [ends[each] for each in ends]:
                break
        await consumer.close()
        return found


@pytest.mark.parametrize("seed", range(6))
@judged
async def test_a_storm_takes_nothing_that_was_promised(cluster: JudgedCluster, seed: int) -> None:
    storm = Storm(cluster)
    writers = Writers(cluster)

    for topic, partitions in ((PLAIN, 1), (EXACT, 3)):
        await cluster.client.create_topic(
            topic, partitions=partitions, configs={"min.insync.replicas": "2"}
        )
        for partition in range(partitions):
            await cluster.until_isr(topic, 3, partition)
    storm.draw_conditions()
    work = [asyncio.create_task(writers.write_plainly(writer)) for writer in range(4)]
    work.append(asyncio.create_task(writers.write_exactly_once()))
    await storm.rage(SECONDS)
    await storm.calm()
    await asyncio.sleep(1)
    writers.done = True
    await asyncio.gather(*work)
    for topic, partitions in ((PLAIN, 1), (EXACT, 3)):
        for partition in range(partitions):
            await cluster.until_isr(topic, 3, partition)
    await cluster.client.check_promises(PLAIN)
    check_exactly_once(await writers.read_exactly_once(), writers.delivered)

    assert len(cluster.client.acknowledged) > 20, "it proves little"
    assert writers.delivered > 20, "it proves little"
    assert sum(storm.counts.values()) > 5, storm.counts


def check_exactly_once(records: list[tuple[bytes, bytes]], delivered: int) -> None:
    """Check that every number is there once, rising within its key."""
    numbers = sorted(int(value) for _, value in records)
    assert numbers == list(range(delivered))
    for key in range(10):
        of_key = [int(value) for found, value in records if found == b"%d" % key]
        assert of_key == sorted(of_key)


@judged(5)
async def test_a_broker_with_a_log_that_only_its_next_start_recovers_is_restarted(
    cluster: JudgedCluster,
) -> None:
    await cluster.client.create_topic(PLAIN, replication_factor=1)
    await cluster.until_isr(PLAIN, 1)
    [(node, replica)] = [each for each in online(cluster) if each[1].topic == PLAIN]
    assert node.process is not None

    async def fail() -> None:
        error = OSError(errno.EMFILE, "Too many open files", PLAIN)
        replica.log.availability.failure(error)

    await node.process.run(fail())
    assert waits_for_restart(node)
    await Storm(cluster).calm()
    assert not waits_for_restart(node)
    await cluster.client.produce_until_acknowledged(PLAIN, b"x", give_up_s=20)


def test_a_storm_is_the_same_every_time() -> None:
    async def scenario(cluster: JudgedCluster) -> None:
        await cluster.client.create_topic(PLAIN)
        storm = Storm(cluster, pace_s=0.5)
        storm.draw_conditions()
        await storm.rage(10)
        try:
            await asyncio.wait_for(cluster.client.produce_until_acknowledged(PLAIN, b"x"), 1)
        except (SteleError, OSError):
            cluster.simulation.note("scenario", "failed")

    def digest(seed: int) -> str:
        cluster = JudgedCluster(seed)
        cluster.run(scenario)
        return cluster.simulation.transcript.digest()

    assert digest(3) == digest(3)
    assert digest(3) != digest(4)
