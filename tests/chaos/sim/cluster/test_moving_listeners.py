"""Brokers whose listener among themselves moves, one after the other, under load."""

from __future__ import annotations

from collections.abc import Mapping

from chaos.sim.cluster.cluster import GRPC_PORT, KAFKA_PORT, SimCluster
from tests.support.sim_cluster import TOPIC, a_topic, consumer_of, judged, read, write

_JAAS = 'x.PlainLoginModule required username="node" password="n" user_node="n";'


def with_nodes(port: int, inter_broker: str) -> dict[str, str]:
    """A listener for nodes with logins beside the one of plaintext."""
    return {
        "listeners": f"PLAINTEXT://{{host}}:{KAFKA_PORT},NODES://{{host}}:{port}",
        "grpc.listeners": f"PLAINTEXT://{{host}}:{GRPC_PORT},NODES://{{host}}:{port + 100}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,NODES:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name": inter_broker,
        "listener.name.nodes.sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.nodes.plain.sasl.jaas.config": _JAAS,
    }


async def roll(cluster: SimCluster, settings: Mapping[str, str], prefix: str) -> None:
    """Restart each broker with these settings. Meanwhile and afterwards records are acknowledged,
    and every replica gets in sync again: each node finds the others."""
    for broker in cluster.brokers.values():
        broker.kill()
        broker.reconfigure(settings)
        broker.start()
        await write(cluster, 5, f"{prefix}-{broker.id}-")
        await cluster.until_isr(TOPIC, len(cluster.brokers))


def of_nodes(cluster: SimCluster, listener: str) -> int:
    """The connections on a listener whose principal is a node's, or anybody's in plaintext."""
    return sum(
        each.listener_name == listener and (each.client_id or "").startswith("broker-")
        for broker in cluster.brokers.values()
        if broker.broker is not None
        for each in broker.broker.connections.open
    )


@judged()
async def test_the_listener_of_nodes_moves_there_changes_its_port_and_moves_back(
    cluster: SimCluster,
) -> None:
    await a_topic(cluster)
    await write(cluster, 5)
    await roll(cluster, with_nodes(9094, "PLAINTEXT"), "beside")
    await roll(cluster, with_nodes(9094, "NODES"), "moved")
    assert of_nodes(cluster, "PLAINTEXT") == 0
    assert of_nodes(cluster, "NODES") > 0
    await roll(cluster, with_nodes(9095, "NODES"), "port")
    await roll(cluster, with_nodes(9095, "PLAINTEXT"), "back")
    assert of_nodes(cluster, "NODES") == 0
    async with consumer_of(cluster) as consumer:
        assert len(await read(consumer, 65)) == 65
