"""A broker that starts while one of its log directories cannot be opened."""

from __future__ import annotations

import asyncio

import pytest

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.world.disk import DiskFaults
from metadata.partitions import NO_LEADER
from stele.admin.log_dirs import LogDirDescription
from stele.errors import ApiError, BulkError, ErrorCode
from storage.checkpoints import META_PROPERTIES_FILE
from tests.broker.test_lost_directories import (
    PARTITIONS,
    lower_level,
    places,
    states,
    with_two_directories,
)
from tests.support.sim_cluster import admin_of


async def restart_without(cluster: SimCluster, node: SimNode) -> None:
    node.kill()
    node.machine.disk.faults.dead = "/more"
    node.start()
    await cluster.until(lambda: node.ready, "it serves without the directory")


async def restart_with(cluster: SimCluster, node: SimNode) -> None:
    node.kill()
    node.machine.disk.faults = DiskFaults()
    node.start()
    await cluster.until(lambda: node.ready, "it serves again")


async def described(cluster: SimCluster, path: str) -> LogDirDescription:
    async with admin_of(cluster) as admin:
        return next(each for each in await admin.describe_log_dirs([1]) if each.path == path)


@with_two_directories(brokers=3)
async def test_it_serves_what_is_in_the_others_and_loses_nothing(
    cluster: SimCluster, node: SimNode, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.client.create_topic("all", partitions=PARTITIONS)
    await cluster.client.create_topic("alone", partitions=12, replication_factor=1)
    mine = {n: s for n, s in states(cluster, "alone").items() if s.replicas == (1,)}
    for number in range(PARTITIONS):
        await cluster.until_isr("all", 3, number)
    await cluster.until(
        lambda: all(
            any(f"alone-{n}" in node.machine.disk.names(d) for d in ("/data", "/more"))
            for n in mine
        ),
        "its logs are made",
    )
    await asyncio.sleep(1.0)  # its reports are committed
    there = places(node, "all")
    in_more = {n for n in mine if f"alone-{n}" in node.machine.disk.names("/more")}
    assert in_more
    assert set(mine) - in_more
    for number in mine:
        await cluster.client.produce_until_acknowledged("alone", b"record", partition=number)

    await restart_without(cluster, node)
    assert "/more is offline, and so are the replicas in it" in caplog.text
    assert "/more is not formatted" in caplog.text
    for number in mine:
        state = states(cluster, "alone")[number]
        assert (state.leader, state.isr) == ((NO_LEADER if number in in_more else 1), (1,))
    await cluster.until(
        lambda: all(
            (1 in state.isr) == (number in there["/data"])
            for number, state in states(cluster, "all").items()
        ),
        "its other replicas are in sync",
    )
    directory = await described(cluster, "/more")
    assert directory.is_offline
    assert {each.partition for each in directory.replicas} == {
        *(("alone", number) for number in in_more),
        *(("all", number) for number in there["/more"]),
    }
    async with admin_of(cluster) as admin:
        for path in ("/more", "/data"):
            with pytest.raises(BulkError, match="KAFKA_STORAGE_ERROR"):
                await admin.alter_replica_log_dirs({("alone", min(in_more), 1): path})
    # A topic that is new now is made in the other directory.
    await cluster.client.create_topic("new", partitions=PARTITIONS)
    for number in range(PARTITIONS):
        await cluster.until_isr("new", 3, number)
    assert places(node, "new")["/more"] == set()

    await restart_with(cluster, node)
    await cluster.until(
        lambda: all(states(cluster, "alone")[number].leader == 1 for number in mine),
        "what was in it leads again",
    )
    for number in mine:
        assert len(await cluster.client.read_back("alone", number)) == 1
    for number in range(PARTITIONS):
        await cluster.until_isr("all", 3, number)
    assert not (await described(cluster, "/more")).is_offline


@with_two_directories(brokers=3)
async def test_a_disk_that_is_replaced_later_is_filled_again(
    cluster: SimCluster, node: SimNode
) -> None:
    await cluster.client.create_topic("all", partitions=PARTITIONS)
    for number in range(PARTITIONS):
        await cluster.client.produce_until_acknowledged("all", b"record", partition=number)
        await cluster.until_isr("all", 3, number)
    await restart_without(cluster, node)
    node.machine.disk.lose("/more")
    await restart_with(cluster, node)
    for number in range(PARTITIONS):
        await cluster.until_isr("all", 3, number)
    assert not (await described(cluster, "/more")).is_offline


@with_two_directories(brokers=3)
async def test_a_directory_that_fails_while_it_is_opened_is_left_out(
    cluster: SimCluster, node: SimNode
) -> None:
    """It has its id, but its logs cannot be read."""
    await cluster.client.create_topic("all", partitions=PARTITIONS)
    for number in range(PARTITIONS):
        await cluster.until_isr("all", 3, number)
    there = places(node, "all")
    node.kill()
    checkpoint = node.machine.disk.file("/more/.incarnations")
    sound = bytes(checkpoint.data)
    checkpoint.data[:] = b"?"
    node.start()
    await cluster.until(lambda: node.ready, "it serves without the directory")
    assert (await described(cluster, "/more")).is_offline
    assert {each.partition for each in (await described(cluster, "/more")).replicas} == {
        ("all", number) for number in there["/more"]
    }
    node.kill()
    checkpoint.data[:] = sound
    node.start()
    for number in range(PARTITIONS):
        await cluster.until_isr("all", 3, number)


@with_two_directories(log_dirs=("/more",), metadata_log_dir="/data")
async def test_without_any_directory_it_ends_and_says_why(
    cluster: SimCluster, node: SimNode
) -> None:
    node.kill()
    node.machine.disk.faults.dead = "/more"
    node.start()
    await cluster.until(lambda: bool(node.failure), "it ends")
    assert "no directory of log.dirs can be used: /more is not formatted" in node.failure


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("a copy", "/data and /more have the same directory.id"),
        ("of another cluster", "/more belongs to cluster another"),
    ],
)
@with_two_directories
async def test_a_directory_that_is_somebody_elses_stops_the_start(
    cluster: SimCluster, node: SimNode, what: str, said: str
) -> None:
    """Nothing is broken then: the configuration is wrong."""
    await node.stop()
    disk = node.machine.disk
    properties = disk.file(f"/more/{META_PROPERTIES_FILE}").data
    if what == "a copy":
        properties[:] = disk.file(f"/data/{META_PROPERTIES_FILE}").data
    else:
        properties[:] = properties.replace(cluster.cluster_id.encode(), b"another")
    node.start()
    await cluster.until(lambda: bool(node.failure), "it ends")
    assert said in node.failure


@with_two_directories
async def test_below_level_5_it_ends_and_names_the_level(
    cluster: SimCluster, node: SimNode
) -> None:
    await lower_level(cluster, 4)
    node.kill()
    node.machine.disk.faults.dead = "/more"
    node.start()
    await cluster.until(lambda: bool(node.failure), "it ends")
    assert "stele features upgrade --metadata 5" in node.failure


@with_two_directories
async def test_a_request_for_a_replica_in_it_is_refused_with_the_reason(
    cluster: SimCluster, node: SimNode
) -> None:
    await cluster.client.create_topic("t", partitions=PARTITIONS, replication_factor=1)
    await cluster.until(lambda: sum(map(len, places(node, "t").values())) == 4, "logs")
    await asyncio.sleep(1.0)
    number = min(places(node, "t")["/more"])
    await restart_without(cluster, node)
    with pytest.raises(ApiError) as refused:
        await cluster.client.produce("t", b"record", broker=1, partition=number)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
