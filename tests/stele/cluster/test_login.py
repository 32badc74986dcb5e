"""Our clients on a listener with SASL: how they log in, again, and what they say if they cannot."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stele.addresses import SecurityProtocol
from stele.aio import Admin as AioAdmin
from stele.aio import Producer as AioProducer
from stele.cluster.kafka_connection import ConnectionLostError, KafkaConnection
from stele.cluster.kafka_login import LoginError
from stele.config import ClientWorld
from stele.errors import ErrorCode
from stele.security.client_security import ClientSecurity, SaslCredentials
from stele.wire.kafka.messages import (
    alter_user_scram_credentials,
    api_versions,
    create_topics,
    find_coordinator,
)
from tests.support.one_node import HOST, on_a_node
from tests.support.scram import SALT, upsertion
from world.world import World

PLAIN = 'x.PlainLoginModule required user_alice="alice-secret" user_node="node-secret"'
SETTINGS: dict[str, Any] = {
    "listeners": f"INTERNAL://{HOST}:9092,CLIENTS://{HOST}:9095",
    "grpc_listeners": f"INTERNAL://{HOST}:9192,CLIENTS://{HOST}:9195",
    "listener_security_protocol_map": "CLIENTS:SASL_PLAINTEXT",
    "inter_broker_listener_name": "INTERNAL",
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl_jaas_config": f"{PLAIN};",
}
NODES: dict[str, Any] = {
    **SETTINGS,
    "inter_broker_listener_name": "CLIENTS",
    "sasl_mechanism_inter_broker_protocol": "PLAIN",
    "sasl_jaas_config": f'{PLAIN} username="node" password="node-secret";',
}
PORT = 9095


def secured(world: World, user: str, password: str, mechanism: str = "PLAIN") -> Any:
    sasl = SaslCredentials(mechanism=mechanism, username=user, password=password)
    security = ClientSecurity(protocol=SecurityProtocol.SASL_PLAINTEXT, sasl=sasl)
    return world.network.secured(security)


async def connect(
    world: World, user: str = "alice", password: str = "alice-secret", mechanism: str = "PLAIN"
) -> KafkaConnection:
    connector = secured(world, user, password, mechanism)
    return await KafkaConnection.open(connector, HOST, PORT, "me")


async def ask(connection: KafkaConnection) -> int:
    request = api_versions.ApiVersionsRequest("stele", "1")
    answer = await connection.request(api_versions.API, 3, request, timeout_s=5)
    return answer.error_code


@on_a_node(**SETTINGS)
async def test_plain_and_scram(world: World) -> None:
    connection = await connect(world)
    altered = upsertion("bob", "bob-secret")
    request = alter_user_scram_credentials.AlterUserScramCredentialsRequest(
        upsertions=[
            alter_user_scram_credentials.ScramCredentialUpsertion(
                "bob", 1, 4096, SALT, altered.salted_password
            )
        ]
    )
    api = alter_user_scram_credentials.API
    answer = await connection.request(api, 0, request, timeout_s=5)
    assert [(each.user, each.error_code) for each in answer.results] == [("bob", 0)]
    connection.close()
    connection = await connect(world, "bob", "bob-secret", "SCRAM-SHA-256")
    assert await ask(connection) == ErrorCode.NONE
    connection.close()


@pytest.mark.parametrize(
    ("user", "mechanism", "code", "reason"),
    [
        ("alice", "PLAIN", ErrorCode.SASL_AUTHENTICATION_FAILED, "check user, password"),
        ("nobody", "SCRAM-SHA-256", ErrorCode.SASL_AUTHENTICATION_FAILED, "by SCRAM-SHA-256"),
        ("bob", "SCRAM-SHA-512", ErrorCode.UNSUPPORTED_SASL_MECHANISM, "PLAIN, SCRAM-SHA-256"),
    ],
)
@on_a_node(**SETTINGS)
async def test_a_refused_login_says_what_to_check(
    world: World, user: str, mechanism: str, code: ErrorCode, reason: str
) -> None:
    with pytest.raises(LoginError) as caught:
        await connect(world, user, "wrong", mechanism)
    assert caught.value.code is code
    assert reason in caught.value.message
    assert f"{HOST}:{PORT}" in caught.value.message
    assert "wrong" not in caught.value.message


@on_a_node(**SETTINGS)
async def test_a_login_where_there_is_no_sasl(world: World) -> None:
    connector = secured(world, "alice", "alice-secret")
    with pytest.raises(
        LoginError, match="the listener has no SASL: set security_protocol to PLAINTEXT"
    ):
        await KafkaConnection.open(connector, HOST, 9092, "me")


@on_a_node(**SETTINGS)
async def test_a_connection_without_a_login_ends(world: World) -> None:
    connection = await KafkaConnection.open(world.network, HOST, PORT, "me")
    with pytest.raises(ConnectionLostError):
        await connection.request(
            find_coordinator.API, 3, find_coordinator.FindCoordinatorRequest("g"), timeout_s=5
        )


@on_a_node(**SETTINGS)
async def test_a_wrong_password_fails_a_call_at_once(world: World) -> None:
    connector = secured(world, "alice", "wrong")
    client = ClientWorld(world.clock, connector, world.rng)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    async with AioProducer(f"{HOST}:{PORT}", world=client) as producer:
        with pytest.raises(LoginError, match="the login of user 'alice' by PLAIN failed"):
            await producer.send("t", b"x")
    assert loop.time() - began_s < 2


@on_a_node(**SETTINGS, connections_max_reauth_ms="10000")
async def test_a_client_logs_in_again_while_it_works(world: World) -> None:
    connection, idle = (
        await connect(world),
        await KafkaConnection.open(secured(world, "alice", "alice-secret"), HOST, PORT, "me"),
    )
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while loop.time() - began_s < 60:
        answers = [asyncio.ensure_future(ask(connection)) for _ in range(3)]
        assert await asyncio.gather(*answers) == [0, 0, 0]
        await asyncio.sleep(0.05)
    assert await ask(idle) == ErrorCode.NONE
    for each in (connection, idle):
        assert not each.is_closed
        each.close()


@on_a_node(**SETTINGS, connections_max_reauth_ms="10000")
async def test_a_client_that_is_closed_logs_in_no_more(world: World) -> None:
    connection = await connect(world)
    await asyncio.sleep(8.49)
    waiting = asyncio.ensure_future(ask(connection))
    await asyncio.sleep(0.02)
    connection.close()
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.sleep(20)
    assert connection.is_closed


@on_a_node(**NODES)
async def test_brokers_log_in_at_one_another(world: World) -> None:
    """Transactions take requests between brokers, and the thin gateway is a client, too."""
    connector = secured(world, "alice", "alice-secret")
    client = ClientWorld(world.clock, connector, world.rng)
    connection = await connect(world)
    topics = create_topics.CreateTopicsRequest(
        [create_topics.CreatableTopic("t", 1, 1)], timeout_ms=5000
    )
    await connection.request(create_topics.API, 7, topics, timeout_s=10)
    connection.close()
    async with AioProducer(f"{HOST}:{PORT}", world=client, transactional_id="tx") as producer:
        await producer.begin_transaction()
        await (await producer.send("t", b"x", partition=0))
        await producer.commit_transaction()


@on_a_node(**SETTINGS)
async def test_an_administrator_logs_in_on_both_planes(world: World) -> None:
    for user, password in (("alice", "alice-secret"), ("alice", "wrong")):
        client = ClientWorld(world.clock, secured(world, user, password), world.rng)
        async with AioAdmin(f"{HOST}:{PORT}", world=client) as admin:
            if password == "wrong":
                with pytest.raises(LoginError):
                    await admin.describe_cluster()
            else:
                assert len((await admin.describe_cluster()).brokers) == 1
