"""Killed, paused and missing brokers as processes. Each scenario starts with a complete cluster.

``tests/chaos/sim/cluster/test_cluster.py`` shows the same and more over many seeds on virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chaos.process_cluster import ProcessCluster
from chaos.sim.cluster.client import SimClient
from stele.admin.descriptions import PartitionDescription
from stele.aio import Admin
from stele.errors import ApiError, ErrorCode
from tests.support.acceptance import client_of, running

pytestmark = pytest.mark.processes

TOPIC = "orders"
SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "4000",
}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ProcessCluster]:
    async with running(tmp_path, brokers=3, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: ProcessCluster) -> AsyncIterator[SimClient]:
    async with client_of(cluster) as client:
        yield client


@pytest.fixture
async def admin(cluster: ProcessCluster) -> AsyncIterator[Admin]:
    async with Admin(cluster.bootstrap_servers, on_wait=lambda _: None) as admin:
        yield admin


async def state(admin: Admin) -> PartitionDescription:
    (topic,) = await admin.describe_topics([TOPIC])
    return topic.partitions[0]


async def until_isr(admin: Admin, size: int) -> PartitionDescription:
    async with asyncio.timeout(40):
        while len((described := await state(admin)).isr) != size:  # noqa: ASYNC110 - polls others
            await asyncio.sleep(0.05)
    return described


async def until_leader(admin: Admin, *, other_than: int) -> int:
    async with asyncio.timeout(40):
        while (leader := (await state(admin)).leader) in (None, other_than):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert leader is not None
    return leader


async def a_topic(client: SimClient, admin: Admin, **configs: str) -> int:
    """Create a topic with three in-sync replicas and one record. Returns the leader."""
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    await client.create_topic(TOPIC, configs=settings)
    await client.produce_until_acknowledged(TOPIC, b"first")
    leader = (await until_isr(admin, 3)).leader
    assert leader is not None
    return leader


async def refusal(client: SimClient, broker: int, acks: int = -1) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        await client.produce(TOPIC, b"refused", broker=broker, acks=acks, timeout_s=3)
    return caught.value.code


def segment(cluster: ProcessCluster, broker: int) -> bytes:
    directory = Path(cluster.nodes[broker].settings["log.dirs"])
    return (directory / f"{TOPIC}-0" / "00000000000000000000.log").read_bytes()


async def test_a_leader_stopped_past_its_session_acknowledges_nothing_when_it_goes_on(
    cluster: ProcessCluster, client: SimClient, admin: Admin
) -> None:
    """The leader gets SIGSTOP. What is sent meanwhile waits in its socket, and is what it reads
    first."""
    zombie = await a_topic(client, admin, min_insync_replicas="2")
    epoch = (await state(admin)).leader_epoch
    await client.connection(zombie)
    cluster.pause(zombie)
    late = [
        asyncio.create_task(
            client.produce(TOPIC, b"late %d" % number, broker=zombie, acks=acks, timeout_s=60)
        )
        for number, acks in enumerate((-1, 1, -1, 1))
    ]
    others = [each for each in cluster.broker_ids if each != zombie]
    servers = ",".join(f"127.0.0.1:{cluster.nodes[each].kafka_port}" for each in others)
    async with Admin(servers) as aside:
        successor = await until_leader(aside, other_than=zombie)
        assert (await state(aside)).leader_epoch > epoch
    for number in range(10):
        await client.produce(TOPIC, b"successor's %d" % number, broker=successor)
    cluster.resume(zombie)
    outcomes = await asyncio.gather(*late, return_exceptions=True)
    assert all(isinstance(outcome, ApiError) for outcome in outcomes), outcomes
    await until_isr(admin, 3)
    records = await client.check_promises(TOPIC)
    assert len(records) == 11
    assert not any(value.startswith(b"late") for _, value in records)
    logs = {segment(cluster, broker) for broker in cluster.broker_ids}
    assert len(logs) == 1, "the replicas differ"


async def test_with_two_of_three_brokers_down_writes_are_refused_until_one_is_back(
    cluster: ProcessCluster, client: SimClient, admin: Admin
) -> None:
    leader = await a_topic(client, admin, min_insync_replicas="2")
    followers = [each for each in cluster.broker_ids if each != leader]
    for follower in followers:
        cluster.kill(follower)
    async with asyncio.timeout(30):
        while await refusal(client, leader) is not ErrorCode.NOT_ENOUGH_REPLICAS:
            pass  # until the leader knows: earlier refusals are timeouts, or came after the append
    assert await refusal(client, leader) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await client.fetch_all(TOPIC, broker=leader))[0][1].startswith(b"first")
    await cluster.restart(followers[0])
    await client.produce_until_acknowledged(TOPIC, b"two are enough")
    await cluster.restart(followers[1])
    await until_isr(admin, 3)
    await client.produce_until_acknowledged(TOPIC, b"all are back")
    values = [value for _, value in await client.read_back(TOPIC)]
    assert values[-1].startswith(b"all are back")
    for promise in client.acknowledged:
        assert values[promise.offset] == promise.value


async def only_the_laggard(
    cluster: ProcessCluster, client: SimClient, admin: Admin, leader: int
) -> int:
    """Let one replica miss some records, then stop every other one. Returns the one that still
    runs."""
    behind, ahead = (each for each in cluster.broker_ids if each != leader)
    cluster.kill(behind)
    await until_isr(admin, 2)
    for number in range(5):
        await client.produce_until_acknowledged(TOPIC, b"unknown to one %d" % number)
    cluster.kill(ahead)
    await until_isr(admin, 1)
    cluster.kill(leader)
    await cluster.restart(behind)
    return behind


async def test_without_unclean_election_the_partition_waits_and_nothing_is_lost(
    cluster: ProcessCluster, client: SimClient, admin: Admin
) -> None:
    leader = await a_topic(client, admin, min_insync_replicas="1")
    behind = await only_the_laggard(cluster, client, admin, leader)
    await asyncio.sleep(5)
    described = await state(admin)
    assert (described.leader, described.unclean_elections) == (None, 0)
    assert await refusal(client, behind) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await cluster.restart(leader)
    await client.produce_until_acknowledged(TOPIC, b"served again")
    await client.check_promises(TOPIC)
    assert (await state(admin)).unclean_elections == 0


async def test_with_unclean_election_the_partition_serves_and_the_loss_is_recorded(
    cluster: ProcessCluster, client: SimClient, admin: Admin
) -> None:
    leader = await a_topic(
        client, admin, min_insync_replicas="1", unclean_leader_election_enable="true"
    )
    behind = await only_the_laggard(cluster, client, admin, leader)
    assert await until_leader(admin, other_than=leader) == behind
    assert (await state(admin)).unclean_elections == 1
    await client.produce_until_acknowledged(TOPIC, b"served by the one behind")
    for broker in cluster.broker_ids:
        if broker != behind:
            await cluster.restart(broker)
    await until_isr(admin, 3)
    values = [value for _, value in await client.read_back(TOPIC)]
    assert [value.partition(b"/")[0] for value in values] == [b"first", b"served by the one behind"]
    logs = {segment(cluster, broker) for broker in cluster.broker_ids}
    assert len(logs) == 1, "the replicas differ"
    text = "".join(cluster.nodes[each].log_file.read_text() for each in cluster.controller_ids)
    assert f"unclean election of {TOPIC}-0: broker {behind} leads" in text


async def test_a_replica_that_was_away_truncates_its_diverging_tail(
    cluster: ProcessCluster, client: SimClient, admin: Admin
) -> None:
    """The leader goes on writing while its followers stand still for less than their session."""
    leader = await a_topic(client, admin, min_insync_replicas="2")
    followers = [each for each in cluster.broker_ids if each != leader]
    for follower in followers:
        cluster.pause(follower)
    await asyncio.sleep(1)  # replica.fetch.wait.max.ms: fetches that wait at the leader are over
    for number in range(5):
        await client.produce(TOPIC, b"only here %d" % number, broker=leader, acks=1)
    cluster.kill(leader)
    for follower in followers:
        cluster.resume(follower)
    assert b"only here 4" in segment(cluster, leader)
    await until_leader(admin, other_than=leader)
    for number in range(3):
        await client.produce_until_acknowledged(TOPIC, b"after %d" % number)
    await cluster.restart(leader)
    await until_isr(admin, 3)
    records = await client.check_promises(TOPIC)
    assert not any(value.startswith(b"only here") for _, value in records)
    logs = {segment(cluster, broker) for broker in cluster.broker_ids}
    assert len(logs) == 1, "the replicas differ"
