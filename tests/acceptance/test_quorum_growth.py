"""A quorum of one controller grows to five and shrinks to three, while records are written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from metadata.features import supported_ranges
from runtime.quorum.messages import SUPPORTED_FEATURES
from runtime.real.network import RealNetwork
from stele.addresses import Address
from stele.aio import Producer
from stele.ids import decode_uuid
from stele.wire.v1.raft_pb2 import SupportedFeaturesResponse
from tests.support.quorum_processes import QuorumProcesses
from world.network import Peer, Service

pytestmark = pytest.mark.processes

TOPIC = "orders"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[QuorumProcesses]:
    processes = QuorumProcesses(tmp_path)
    try:
        yield processes
    finally:
        processes.end()


@dataclass
class IdleController:
    """A fake controller, which reports what it supports and does nothing else."""

    endpoint: str = ""
    asked: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def idle_controller(node_id: int, directory_id: str) -> AsyncIterator[IdleController]:
    idle = IdleController()

    async def supported_features(request: bytes, _: Peer) -> bytes:
        idle.asked.set()
        return SupportedFeaturesResponse(
            node_id=node_id, directory_id=decode_uuid(directory_id), features=supported_ranges()
        ).SerializeToString()

    server = await RealNetwork().serve(
        Address("127.0.0.1", 0), Service(unary={SUPPORTED_FEATURES: supported_features})
    )
    idle.endpoint = f"127.0.0.1:{server.port}"
    try:
        yield idle
    finally:
        await server.close()


async def start_with_one_controller(cluster: QuorumProcesses, brokers: int = 3) -> None:
    await cluster.start(cluster.controller(1), "--standalone")
    for number in range(brokers):
        await cluster.start(cluster.broker(101 + number))
    await cluster.until_serving(brokers)
    arguments = ["--partitions", "3", "--replication-factor", str(brokers)]
    await cluster.stele("topic", "create", TOPIC, *arguments)


async def join(cluster: QuorumProcesses, node_id: int) -> None:
    """Start a new controller, which observes, and make it a voter on its own machine."""
    node = cluster.controller(node_id)
    await cluster.start(node, "--no-initial-controllers")
    await cluster.until_observed(node_id)
    assert f"controller {node_id}" in await cluster.add_voter(node)


async def test_three_begin_together_and_learn_their_directories(
    cluster: QuorumProcesses,
) -> None:
    nodes = [cluster.controller(node_id) for node_id in (1, 2, 3)]
    line = ",".join(f"{node.node_id}@{node.settings['controller.listener']}" for node in nodes)
    for node in nodes:
        await cluster.start(node, "--initial-controllers", line)
    await cluster.start(cluster.broker(101))
    await cluster.until_serving(1)
    for node in nodes:
        meta = (node.directory / "data" / "meta.properties").read_text()
        async with asyncio.timeout(20):
            while not (known := await cluster.directory_id(node.node_id)):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert f"directory.id={known}\n" in meta
    # The bootstrap server of all nodes is removed. Nobody needs it any more.
    first = nodes[0]
    cluster.kill(first)
    await cluster.stele("topic", "create", TOPIC, "--replication-factor", "1", "--timeout", "60")
    await cluster.remove_voter(first.node_id)
    assert await cluster.voters() == [2, 3]


@dataclass
class Writing:
    acknowledged: list[bytes] = field(default_factory=list)
    failed: list[BaseException] = field(default_factory=list)

    async def goes_on(self) -> None:
        """Check that records are acknowledged from now on."""
        before = len(self.acknowledged)
        async with asyncio.timeout(30):
            while len(self.acknowledged) < before + 5:  # noqa: ASYNC110 - it is elsewhere
                await asyncio.sleep(0.05)


@asynccontextmanager
async def writing(cluster: QuorumProcesses) -> AsyncIterator[Writing]:
    """Write records with acks=all one after the other without a pause."""
    written = Writing()

    async def write() -> None:
        async with Producer(cluster.bootstrap_servers, acks="all") as producer:
            number = 0
            while True:
                value = b"%d" % number
                number += 1
                try:
                    await (await producer.send(TOPIC, value))
                except Exception as error:
                    written.failed.append(error)
                else:
                    written.acknowledged.append(value)
                await asyncio.sleep(0.02)

    task = asyncio.create_task(write())
    try:
        yield written
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_growth_to_five_and_back_to_three(cluster: QuorumProcesses) -> None:
    await start_with_one_controller(cluster)
    async with writing(cluster) as written:
        for node_id in range(2, 6):
            await join(cluster, node_id)
            assert await cluster.voters() == list(range(1, node_id + 1))
            await cluster.stele("topic", "create", f"with-{node_id}")
            await written.goes_on()

        # The leader is removed first, and one more.
        for _ in range(2):
            leader = await cluster.leader()
            await cluster.remove_voter(leader.node_id)
            assert await cluster.stop(leader) == 0
            await written.goes_on()
        assert len(await cluster.voters()) == 3

        leader = await cluster.leader()
        cluster.kill(leader)
        await cluster.stele("topic", "create", "after-the-leader", "--timeout", "60")
        assert (await cluster.leader()).node_id != leader.node_id
        await written.goes_on()
    assert not written.failed
    out = await cluster.stele("consume", TOPIC)
    read = out.encode().split()
    assert set(written.acknowledged) <= set(read)
    assert len(read) == len(set(read))


async def test_a_wiped_controller_is_no_voter_until_it_is_added_again(
    cluster: QuorumProcesses,
) -> None:
    await start_with_one_controller(cluster, brokers=1)
    for node_id in (2, 3):
        await join(cluster, node_id)
    leader = await cluster.leader()
    wiped = next(n for i, n in cluster.nodes.items() if i in (1, 2, 3) and n is not leader)
    cluster.kill(wiped)
    cluster.wipe(wiped)
    await cluster.start(wiped, "--no-initial-controllers")
    await cluster.until_observed(wiped.node_id)
    config = ["--config", str(wiped.config_file)]
    assert "DUPLICATE_VOTER" in await cluster.refusal("quorum", "add-voter", *config)
    assert "directory" in await cluster.refusal("quorum", "remove-voter", *config)
    assert await cluster.voters() == [1, 2, 3]

    await cluster.remove_voter(wiped.node_id)
    await cluster.add_voter(wiped)
    assert await cluster.voters() == [1, 2, 3]
    third = next(n for i, n in cluster.nodes.items() if i in (1, 2, 3) and n not in (leader, wiped))
    cluster.kill(third)  # the wiped one is needed now
    await cluster.stele("topic", "create", "needs-it", "--replication-factor", "1")


async def test_what_is_refused_changes_nothing(cluster: QuorumProcesses) -> None:
    await start_with_one_controller(cluster, brokers=1)
    before = await cluster.describe()
    mine = await cluster.directory_id(1)
    other = "AAAAAAAAAAAAAAAAAAAAAQ"

    async def refused(command: str, node_id: int, directory_id: str, *more: str) -> str:
        name = ["--id", str(node_id), "--directory-id", directory_id]
        return await cluster.refusal("quorum", command, *name, *more)

    assert "INVALID_REQUEST" in (last := await refused("remove-voter", 1, mine))
    assert "last" in last or "only" in last
    assert "VOTER_NOT_FOUND" in await refused("remove-voter", 1, other)
    assert "VOTER_NOT_FOUND" in await refused("remove-voter", 7, other)
    at = ("--endpoint", "127.0.0.1:1")
    assert "DUPLICATE_VOTER" in await refused("add-voter", 1, mine, *at)
    assert "DUPLICATE_VOTER" in await refused("add-voter", 1, other, *at)
    assert "directory id" in await refused("add-voter", 7, "x", *at)
    assert "endpoint" in await refused("add-voter", 7, other, "--endpoint", "nowhere")

    assert "does not answer" in await refused("add-voter", 8, other, *at, "--timeout", "2")
    # A controller that fetches nothing never catches up, and other changes wait for it meanwhile.
    async with idle_controller(8, other) as idle, idle_controller(9, other) as next_one:
        at = ("--endpoint", idle.endpoint)
        pending = asyncio.create_task(refused("add-voter", 8, other, *at, "--timeout", "12"))
        await asyncio.wait_for(idle.asked.wait(), 30)
        at = ("--endpoint", next_one.endpoint)
        assert "voter 8 is being added" in await refused("add-voter", 9, other, *at)
        assert "REQUEST_TIMED_OUT" in await pending

    foreign = QuorumProcesses(cluster.directory / "foreign", "b3RoZXItY2x1c3Rlci0xMQ")
    stranger = foreign.controller(9)
    await foreign.start(stranger, "--standalone")
    try:
        config = ["--config", str(stranger.config_file)]
        said = await cluster.refusal("quorum", "add-voter", *config)
        assert "INCONSISTENT_CLUSTER_ID" in said
    finally:
        foreign.end()
    after = await cluster.describe()
    assert [v.directory_id for v in after.voters] == [v.directory_id for v in before.voters]
