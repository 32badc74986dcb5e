"""A whole cluster whose nodes and clients log in at one another."""

from __future__ import annotations

import asyncio
from typing import Any

from chaos.sim.cluster.cluster import SimCluster
from stele.addresses import SecurityProtocol
from stele.security.client_security import ClientSecurity, SaslCredentials
from tests.support.sim_cluster import TOPIC, a_topic, admin_of, consumer_of, judged, read, write

SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.jaas.config": 'x.PlainLoginModule required username="node" password="n" user_node="n" '
    'user_alice="a";',
    "connections.max.reauth.ms": "5000",
}


def log_in(cluster: SimCluster) -> None:
    """Let the clients of the scenario log in, too."""
    network: Any = cluster.client_world.network
    network.security = ClientSecurity(
        protocol=SecurityProtocol.SASL_PLAINTEXT,
        sasl=SaslCredentials(mechanism="PLAIN", username="alice", password="a"),
    )


@judged(settings=SETTINGS)
async def test_brokers_replicate_and_elect_over_a_listener_with_sasl(cluster: SimCluster) -> None:
    log_in(cluster)
    await a_topic(cluster)
    await write(cluster, 10)
    leader = cluster.leader(TOPIC)
    leader.kill()
    await write(cluster, 10, "w")
    leader.start()
    await cluster.until_isr(TOPIC, 3)
    await asyncio.sleep(20)  # several sessions
    await write(cluster, 10, "x")
    async with consumer_of(cluster) as consumer:
        assert len(await read(consumer, 30)) == 30
    async with admin_of(cluster) as admin:
        assert len((await admin.describe_cluster()).brokers) == 3
