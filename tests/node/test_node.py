"""Complete nodes: in the real world on loopback, and their refusals to start."""

import asyncio
import gc
from pathlib import Path

import pytest

from chaos.sim.world.simulation import Simulation
from node.directories import directories_of
from node.format import format_directory
from node.node import Node, build
from runtime.config.node import NodeConfig, from_settings
from runtime.real.world import RealWorld
from stele.addresses import Address
from stele.cluster.kafka_connection import KafkaConnection
from stele.errors import ErrorCode, SteleError
from stele.wire.kafka.messages import metadata
from stele.wire.v1 import admin_pb2, raft_pb2
from tests.support.sim import combined_config
from tests.support.worlds import simulated


def format_for(world: RealWorld, config: NodeConfig) -> None:
    format_directory(
        world.world.disk, directories_of(config), "a-cluster", config.node_id, world.world.rng
    )


def is_ready(node: Node) -> bool:
    return node.ready


async def http_get(port: int, path: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_a_combined_node_serves_all_its_ports_and_stops_cleanly(tmp_path: Path) -> None:
    world = RealWorld()
    config = combined_config(tmp_path / "data")
    format_for(world, config)
    node = build(config, world.world)
    assert not is_ready(node)
    await node.start()
    async with asyncio.timeout(20):
        await node.wait_ready()
    assert is_ready(node)
    ports = node.ports
    assert ports.controller is not None
    assert ports.metrics is not None

    network = world.world.network
    connection = await KafkaConnection.open(network, "127.0.0.1", ports.kafka["PLAINTEXT"])
    await connection.negotiate(timeout_s=5)
    answer = await connection.request(
        metadata.API,
        connection.version_of(metadata.API),
        metadata.MetadataRequest(topics=[]),
        timeout_s=5,
    )
    assert answer.cluster_id == "a-cluster"
    connection.close()
    await connection.wait_closed()

    for port in (ports.grpc["PLAINTEXT"], ports.controller):
        channel = network.channel(Address("127.0.0.1", port))
        described = raft_pb2.DescribeQuorumResponse.FromString(
            await channel.call("/stele.v1.Admin/DescribeQuorum", b"", timeout_s=5)
        )
        assert (described.error, described.leader_id) == (0, 1)
        cluster = admin_pb2.DescribeClusterResponse.FromString(
            await channel.call("/stele.v1.Admin/DescribeCluster", b"", timeout_s=5)
        )
        assert cluster.cluster_id == "a-cluster"
        assert [broker.broker_id for broker in cluster.brokers] == [1]
        await channel.close()

    metrics = await http_get(ports.metrics, "/metrics")
    assert "stele_controller_active_count 1.0" in metrics
    assert "200 OK" in await http_get(ports.metrics, "/healthz")
    assert "200 OK" in await http_get(ports.metrics, "/readyz")
    alone = await http_get(ports.metrics, "/safe-to-restart")
    assert "503 Service Unavailable" in alone
    assert "0 of 1 controllers would be left" in alone
    await node.stop()
    assert world.world.disk.exists(f"{tmp_path}/data/.kafka_cleanshutdown")
    world.close()
    gc.collect()


async def test_a_node_starts_again_on_its_directory(tmp_path: Path) -> None:
    world = RealWorld()
    config = combined_config(tmp_path)
    format_for(world, config)
    for _ in range(2):
        node = build(config, world.world)
        await node.start()
        async with asyncio.timeout(20):
            await node.wait_ready()
        await node.stop()
    world.close()


async def refusal(config: NodeConfig, world: RealWorld) -> str:
    with pytest.raises(SteleError) as caught:
        await build(config, world.world).start()
    text = str(caught.value)
    assert "\n" not in text
    return text


async def test_refusals_are_one_line_and_leave_nothing_open(tmp_path: Path) -> None:
    world = RealWorld()
    config = combined_config(tmp_path)
    assert "stele format" in await refusal(config, world)
    format_for(world, config)
    foreign = from_settings({**config.raw, "cluster.id": "another"})
    assert "belongs to cluster a-cluster" in await refusal(foreign, world)

    taken = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    for key, value in {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "grpc.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener": f"127.0.0.1:{port}",
        "metrics.listener": f"127.0.0.1:{port}",
    }.items():
        text = await refusal(from_settings({**config.raw, key: value}), world)
        assert str(port) in text
        assert key in text
        assert "in use" in text
    taken.close()
    await taken.wait_closed()

    node = build(config, world.world)  # all of the refused ones gave everything back
    await node.start()
    assert "in use by another process" in await refusal(config, world)
    await node.stop()
    world.close()


@simulated(1)
async def test_a_controllers_metadata_directory_is_locked(sim: Simulation) -> None:
    config = from_settings(
        {
            "node.id": "1",
            "process.roles": "controller",
            "controller.quorum.voters": "1@c1:9093",
            "controller.listener": "c1:9093",
            "metrics.listener": "",
            "log.dirs": "/data",
        }
    )

    first, second = sim.process("c1", "first"), sim.process("c1", "second")
    format_directory(first.world.disk, ["/data"], "cluster", 1, first.world.rng)

    async def start(node: Node) -> Node:
        await node.start()
        return node

    node = await first.run(start(build(config, first.world)))
    with pytest.raises(SteleError, match="in use by another process"):
        await second.run(start(build(config, second.world)))
    await first.run(node.stop())
    await second.run(start(build(config, second.world)))


@simulated(1)
async def test_a_broken_disk_ends_the_node(sim: Simulation) -> None:
    config = from_settings(
        {
            "node.id": "1",
            "process.roles": "controller",
            "controller.quorum.voters": "1@c1:9093",
            "controller.listener": "c1:9093",
            "metrics.listener": "",
            "log.dirs": "/data",
        }
    )

    process = sim.process("c1")
    format_directory(process.world.disk, ["/data"], "cluster", 1, process.world.rng)

    async def live() -> BaseException:
        node = build(config, process.world)
        await node.start()
        await asyncio.sleep(5)
        assert is_ready(node)
        sim.machine("c1").disk.faults.failing_sync = True
        channel = process.world.network.channel(Address("c1", 9093))
        request = admin_pb2.AlterConfigsRequest(
            resources=[
                admin_pb2.AlterConfigsRequest.Resource(
                    resource=admin_pb2.ConfigResource(type=4, name=""),
                    changes=[
                        admin_pb2.AlterConfigsRequest.Change(name="min.insync.replicas", value="2")
                    ],
                )
            ]
        )
        call = asyncio.create_task(
            channel.call("/stele.v1.Admin/AlterConfigs", request.SerializeToString(), timeout_s=5)
        )
        failure = await node.wait_failed()
        answer = admin_pb2.AlterConfigsResponse.FromString(await call)
        assert answer.error != ErrorCode.NONE
        assert not is_ready(node)
        await node.stop()
        return failure

    assert "Input/output error" in str(await process.run(live()))
