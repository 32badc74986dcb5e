"""A node whose clients log in and have rights, and the clients that harm it: one that may do
nothing, and one that may do everything."""

from __future__ import annotations

from typing import Any, Final

from stele.addresses import SecurityProtocol
from stele.cluster.kafka_connection import KafkaConnection
from stele.errors import ErrorCode
from stele.security.client_security import ClientSecurity, SaslCredentials
from stele.wire import kafka as wire
from stele.wire.kafka.messages import create_delegation_token as creation
from stele.wire.kafka.messages import sasl_authenticate, sasl_handshake
from tests.support.one_node import HOST
from world.world import World

USERS: Final = ("mallory", "good")
"""Who may do nothing, and who may do everything. Their passwords are their names."""

SETTINGS: Final = {
    "listener_security_protocol_map": "PLAINTEXT:SASL_PLAINTEXT",
    "inter_broker_listener_name": "PLAINTEXT",
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl_mechanism_inter_broker_protocol": "PLAIN",
    "listener_name_plaintext_plain_sasl_jaas_config": "x.PlainLoginModule required "
    'username="node" password="n" user_node="n" user_good="good" user_mallory="mallory";',
    "delegation_token_secret_key": "secret",
    "authorizer_class_name": "stele",
    # The node's two roles speak with one another without a login.
    "super_users": "User:ANONYMOUS;User:node;User:good",
}


def secured(user: str) -> ClientSecurity:
    """How this user logs in."""
    credentials = SaslCredentials(mechanism="PLAIN", username=user, password=user)
    return ClientSecurity(protocol=SecurityProtocol.SASL_PLAINTEXT, sasl=credentials)


def login_frames(user: str) -> list[bytes]:
    """The requests of this user's login."""
    shake = sasl_handshake.SaslHandshakeRequest("PLAIN")
    token = sasl_authenticate.SaslAuthenticateRequest(f"\0{user}\0{user}".encode())
    return [frame(sasl_handshake.API, 1, shake), frame(sasl_authenticate.API, 2, token)]


def frame(api: wire.Api[Any, Any], version: int, message: Any) -> bytes:
    return b"".join(wire.encode_request(api, version, 1, "rude", message))[wire.SIZE_BYTES :]


async def new_token(world: World, user: str) -> creation.CreateDelegationTokenResponse:
    """A delegation token of this user."""
    network = world.network.secured(secured(user))
    connection = await KafkaConnection.open(network, HOST, 9092)
    made = await connection.request(
        creation.API, 3, creation.CreateDelegationTokenRequest(), timeout_s=10
    )
    assert made.error_code == ErrorCode.NONE
    connection.close()
    return made


def by_token(made: creation.CreateDelegationTokenResponse, password: str) -> ClientSecurity:
    """How the holder of a token logs in."""
    credentials = SaslCredentials(
        mechanism="SCRAM-SHA-256",
        username=made.token_id,
        password=password,
        is_delegation_token=True,
    )
    return ClientSecurity(protocol=SecurityProtocol.SASL_PLAINTEXT, sasl=credentials)
