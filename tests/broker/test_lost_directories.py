"""A broker that comes back without one of its log directories."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from typing import Any

import pytest

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from metadata.features import metadata_version
from metadata.partitions import NO_LEADER, PartitionState
from stele.wire.v1 import admin_pb2 as pb
from tests.support.sim_cluster import admin_of
from tests.support.worlds import Scenario, gives

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


@gives("cluster", "node")
def with_two_directories(scenario: Scenario, /, brokers: int = 1, **config: Any) -> None:
    """A cluster, and its broker 1, which has two log directories. ``config``: of this node."""
    cluster = SimCluster(1, controllers=1, brokers=brokers)
    node = cluster.brokers[1]
    node.config = replace(node.config, **{"log_dirs": ("/data", "/more"), **config})
    cluster.run(lambda _: scenario(cluster, node))


@with_two_directories
async def test_a_directory_that_is_taken_out_costs_its_own_replicas_and_no_other(
    cluster: SimCluster, node: SimNode
) -> None:
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


async def lower_level(cluster: SimCluster, level: int) -> None:
    request = pb.UpdateFeaturesRequest()
    request.updates.add(name="metadata.version", level=level, type=pb.UpgradeType.UNSAFE_DOWNGRADE)
    answer = await cluster.client.administrate("UpdateFeatures", request.SerializeToString())
    assert not pb.UpdateFeaturesResponse.FromString(answer).error


@pytest.mark.parametrize("level", [4, 5])
@with_two_directories(brokers=3)
async def test_a_directory_that_fails_costs_what_is_in_it_while_the_broker_serves_the_rest(
    cluster: SimCluster, node: SimNode, level: int
) -> None:
    if level < 5:
        await lower_level(cluster, level)
    safe = {"min.insync.replicas": "2"}
    await cluster.client.create_topic("safe", partitions=PARTITIONS, configs=safe)
    await cluster.client.create_topic("alone", partitions=12, replication_factor=1)
    for number in range(PARTITIONS):
        await cluster.until_isr("safe", 3, number)
    there = places(node, "safe")
    assert there["/data"]
    assert there["/more"]

    assert node.broker is not None
    assert node.process is not None
    lost = next(r for r in node.broker.replicas if r.directory.path == "/more")
    node.process.loop.call_soon(
        lost.directory.failed, lost.log, OSError(errno.EIO, "the device is gone")
    )
    await cluster.until(
        lambda: all(1 not in states(cluster, "safe")[each].isr for each in there["/more"]),
        "the replicas in it leave the ISRs",
    )
    for number, state in states(cluster, "safe").items():
        assert (1 in state.isr) == (number in there["/data"])
        assert state.leader in state.isr
    alone = {n: s for n, s in states(cluster, "alone").items() if s.replicas == (1,)}
    assert alone
    assert all(state.isr == (1,) for state in alone.values()), "nobody else has its records"
    if level == 5:
        offline = {n for n, state in alone.items() if state.leader == NO_LEADER}
        assert offline == {n for n in alone if f"alone-{n}" in node.machine.disk.names("/more")}
    await asyncio.sleep(10.0)
    assert node.ready, "it is not fenced"
    for number in there["/more"]:
        await cluster.client.produce_until_acknowledged("safe", b"record", partition=number)


@with_two_directories(brokers=3)
async def test_a_directory_that_fails_before_its_broker_hears_of_a_downgrade_is_reported(
    cluster: SimCluster, node: SimNode
) -> None:
    """The broker names the directory in a heartbeat, which means nothing to the controller now."""
    await cluster.client.create_topic("safe", configs={"min.insync.replicas": "2"})
    await cluster.until_isr("safe", 3, 0)
    assert node.broker is not None
    assert node.process is not None
    lost = next(r for r in node.broker.replicas if r.topic == "safe")
    controller = cluster.active_controller
    assert controller is not None
    cluster.simulation.fabric.isolate(node.host, [controller.host])
    async with admin_of(cluster, through=cluster.brokers[2]) as admin:
        await admin.update_features({"metadata.version": 4}, pb.UpgradeType.SAFE_DOWNGRADE)
    node.process.loop.call_soon(
        lost.directory.failed, lost.log, OSError(errno.EIO, "the device is gone")
    )
    await cluster.until(lambda: lost.directory.offline is not None, "the directory fails")
    assert metadata_version(node.broker.image) > 4, "it has not heard of the downgrade"
    cluster.simulation.fabric.heal()
    await cluster.until(lambda: 1 not in states(cluster, "safe")[0].isr, "it leaves the ISR")
    assert states(cluster, "safe")[0].leader in (2, 3)
    assert node.ready, "it is not fenced"


@with_two_directories
async def test_a_topic_is_made_anew_beside_the_failed_directory_that_held_it(
    cluster: SimCluster, node: SimNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.client.create_topic("t", partitions=PARTITIONS, replication_factor=1)
    await cluster.until(lambda: sum(map(len, places(node, "t").values())) == 4, "logs")
    assert node.broker is not None
    assert node.process is not None
    lost = next(r for r in node.broker.replicas if r.directory.path == "/more")
    node.process.loop.call_soon(
        lost.directory.failed, lost.log, OSError(errno.EIO, "the device is gone")
    )
    await cluster.until(lambda: lost.directory.offline is not None, "it is offline")
    rename = node.process.world.disk.rename

    def failing(source: str, target: str) -> None:
        if source.startswith("/more"):
            raise OSError(errno.EIO, "the device is gone")
        rename(source, target)

    monkeypatch.setattr(node.process.world.disk, "rename", failing)
    await cluster.client.delete_topic("t")
    await cluster.until(lambda: not states(cluster, "t"), "the topic is deleted")
    await cluster.client.create_topic("t", partitions=PARTITIONS, replication_factor=1)
    for number in range(PARTITIONS):
        await cluster.client.produce_until_acknowledged("t", b"record", partition=number)

    monkeypatch.undo()  # the disk was only unplugged
    node.kill()
    node.start()
    await cluster.until(lambda: node.ready, "it serves again")
    assert places(node, "t") == {"/data": set(range(PARTITIONS)), "/more": set()}
    for number in range(PARTITIONS):
        assert len(await cluster.client.read_back("t", number)) == 1
