"""Log directories that die and come back."""

from __future__ import annotations

import asyncio

from chaos.sim.cluster.node import SimNode
from chaos.sim.faults.directories import SECOND
from chaos.sim.faults.field import Field
from chaos.sim.faults.storm import Storm
from chaos.sim.laws.judged import JudgedCluster
from stele.admin.admin import Admin
from stele.config import ClientWorld
from storage.copies import COPY_FILE


def test_a_storm_of_dying_directories_loses_nothing() -> None:
    cluster = JudgedCluster(3, directories=("/data", SECOND))

    async def scenario(cluster: JudgedCluster) -> None:
        storm = Storm(cluster, kinds=(), has_directories=True)
        await cluster.client.create_topic(
            "orders", partitions=4, configs={"min.insync.replicas": "2"}
        )
        for number in range(4):
            await cluster.client.produce_until_acknowledged("orders", b"before", partition=number)
        await storm.rage(60.0)
        assert storm.counts["log directories dead"]
        assert storm.counts["brokers restarted without a log directory"]
        assert storm.drawn >= sum(storm.counts.values()) - storm.counts["log directories repaired"]
        await storm.calm()
        assert not any(node.machine.disk.faults.dead for node in cluster.brokers.values())
        for number in range(4):
            await cluster.until_whole("orders", number)
            await cluster.client.produce_until_acknowledged("orders", b"after", partition=number)
            found = await cluster.client.read_back("orders", number)
            assert len(found) >= 2
        assert storm.violations == []

    cluster.run(scenario)


def admin_of(cluster: JudgedCluster) -> Admin:
    world = cluster.client_world
    servers = ",".join(f"{node.host}:9092" for node in cluster.brokers.values())
    return Admin(servers, world=ClientWorld(world.clock, world.network, world.rng))


def used_path(node: SimNode, name: str) -> str:
    assert node.broker is not None
    return next(each.log.directory for each in node.broker.replicas if repr(each) == name)


def test_where_a_restart_finds_a_log_that_is_moved() -> None:
    cluster = JudgedCluster(4, directories=("/data", SECOND))

    async def scenario(cluster: JudgedCluster) -> None:
        await cluster.client.create_topic("orders", partitions=1)
        await cluster.client.produce_until_acknowledged("orders", b"before")
        node = next(iter(cluster.brokers.values()))
        disk = node.machine.disk
        before = node.replica_path("orders-0")
        assert [used_path(node, "orders-0")] == node.kept_paths("orders-0") == [before]
        target = SECOND if before.startswith("/data/") else "/data"
        copy = f"{target}/orders-0"
        seen = set()
        async with admin_of(cluster) as admin:
            await admin.alter_replica_log_dirs({("orders", 0, node.id): target})
            while disk.find(before) is not None:
                await asyncio.sleep(0.001)
                assert node.replica_path("orders-0") == used_path(node, "orders-0")
                is_copy = disk.exists_durably(f"{copy}/{COPY_FILE}")
                seen.add((is_copy, node.replica_path("orders-0"), *node.kept_paths("orders-0")))
        assert seen >= {(True, before, before), (True, copy, before), (False, copy, copy)}

    cluster.run(scenario)


def test_a_directory_is_restored_only_where_that_is_recognized() -> None:
    cluster = JudgedCluster(5, directories=("/data", SECOND))

    async def scenario(cluster: JudgedCluster) -> None:
        await cluster.client.create_topic(
            "orders", partitions=4, configs={"min.insync.replicas": "2"}
        )
        field = Field(cluster)
        images, node = field.images, next(iter(cluster.brokers.values()))
        for number in range(4):
            await cluster.client.produce_until_acknowledged("orders", b"before", partition=number)
        assert images.take(node, SECOND)
        assert not images.take(node, SECOND), "one snapshot for each disk"
        field.kill(node)
        assert not images.restore(node, SECOND), "the same process registered last"
        field.revive(node)
        for number in range(4):
            await cluster.until_whole("orders", number)
            await cluster.client.produce_until_acknowledged("orders", b"after", partition=number)
            await cluster.until_whole("orders", number)
        await asyncio.sleep(1.0)
        field.kill(node)
        assert images.restore(node, SECOND)
        assert field.damage.counts["log directories restored"] == 1
        field.revive(node)
        for number in range(4):
            await cluster.until_whole("orders", number)
            found = await cluster.client.read_back("orders", number)
            assert [value.split(b"/")[0] for _, value in found] == [b"before", b"after"]

    cluster.run(scenario)
