"""Credentials and tokens that are removed while clients of a whole cluster use them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chaos.sim.cluster.cluster import GRPC_PORT, KAFKA_PORT, SimCluster
from stele.addresses import Address, SecurityProtocol
from stele.admin.users import ScramDeletion, ScramUpsertion
from stele.aio import Admin
from stele.cluster.kafka_connection import KafkaConnection
from stele.errors import ApiError
from stele.security.client_security import ClientSecurity, SaslCredentials
from stele.wire.kafka.messages import fetch
from stele.wire.v1 import log_pb2 as pb
from stele.world import RpcCode, RpcError
from tests.support.sim_cluster import TOPIC, a_topic, admin_of, judged
from tests.support.thin_client import Subscribing

SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": "x.PlainLoginModule required "
    'username="node" password="n" user_node="n" user_alice="a";',
    "delegation.token.secret.key": "secret",
}
ALICE = SaslCredentials(mechanism="PLAIN", username="alice", password="a")
BOB = SaslCredentials(mechanism="SCRAM-SHA-256", username="bob", password="b")
BOBS = ScramUpsertion("bob", "b", mechanism="SCRAM-SHA-256")


def secured(credentials: SaslCredentials) -> ClientSecurity:
    return ClientSecurity(protocol=SecurityProtocol.SASL_PLAINTEXT, sasl=credentials)


class Clients:
    """Clients of one login at each broker: a Fetch that waits, and a stream without records."""

    def __init__(self, cluster: SimCluster, credentials: SaslCredentials) -> None:
        self._cluster = cluster
        self._network: Any = cluster.client_world.network.secured(secured(credentials))
        self._waiting: list[asyncio.Task[Any]] = []
        self._streams: list[asyncio.Task[Any]] = []

    async def begin(self) -> None:
        topic = self._cluster.image.topic(TOPIC)
        assert topic is not None
        partition = fetch.FetchPartition(0, partition_max_bytes=1000)
        request = fetch.FetchRequest(
            max_wait_ms=2**31 - 1,
            min_bytes=1,
            topics=[fetch.FetchTopic(topic_id=topic.topic_id, partitions=[partition])],
        )
        leader = self._cluster.leader(TOPIC)
        connection = await KafkaConnection.open(self._network, leader.host, KAFKA_PORT)
        self._waiting.append(
            asyncio.ensure_future(connection.request(fetch.API, 13, request, timeout_s=1e6))
        )
        for broker in self._cluster.brokers.values():
            stream = Subscribing(self._network.channel(Address(broker.host, GRPC_PORT)))
            await stream.start(pb.PartitionStart(topic=TOPIC, partition=0))
            self._streams.append(asyncio.ensure_future(stream.receive()))

    @property
    def ended(self) -> int:
        return sum(each.done() for each in (*self._waiting, *self._streams))

    async def check_all_ended(self, why: str) -> None:
        for waiting in self._waiting:
            with pytest.raises((ApiError, OSError)):
                await waiting
        for stream in self._streams:
            with pytest.raises(RpcError, match=why) as caught:
                await stream
            assert caught.value.code is RpcCode.UNAUTHENTICATED


async def begun(cluster: SimCluster) -> tuple[Admin, Clients]:
    """A topic, the user bob, and the administrator alice."""
    network: Any = cluster.client_world.network
    network.security = secured(ALICE)
    await a_topic(cluster)
    admin = admin_of(cluster)
    await admin.alter_user_scram_credentials([BOBS])
    return admin, Clients(cluster, BOB)


@judged(settings=SETTINGS)
async def test_a_removed_credential_ends_everything_at_every_broker(cluster: SimCluster) -> None:
    admin, bob = await begun(cluster)
    await bob.begin()
    await admin.alter_user_scram_credentials([ScramUpsertion("ann", "x")])
    await asyncio.sleep(5)
    assert bob.ended == 0
    await admin.alter_user_scram_credentials(
        deletions=[ScramDeletion("bob", mechanism="SCRAM-SHA-256")]
    )
    await asyncio.sleep(0.5)  # what the servers have ended arrives
    assert bob.ended == 4
    await bob.check_all_ended("the SCRAM-SHA-256 credential of user 'bob' was removed")
    await admin.close()


@judged(settings=SETTINGS)
async def test_a_token_ends_everything_when_it_is_removed_or_expires(cluster: SimCluster) -> None:
    admin, _ = await begun(cluster)
    for removes, why in ((True, "was removed"), (False, "has expired")):
        token = await admin.create_delegation_token()
        holder = Clients(
            cluster,
            SaslCredentials(
                mechanism="SCRAM-SHA-256",
                username=token.token_id,
                password=token.password,
                is_delegation_token=True,
            ),
        )
        await holder.begin()
        await asyncio.sleep(5)
        assert holder.ended == 0
        await admin.expire_delegation_token(
            token.token_id, expiry_period_ms=None if removes else 3000
        )
        await asyncio.sleep(0.5)
        assert holder.ended == (4 if removes else 0)
        await asyncio.sleep(3)
        assert holder.ended == 4
        await holder.check_all_ended(why)
    await admin.close()
