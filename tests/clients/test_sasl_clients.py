"""Unmodified Kafka clients, and our own, on listeners with TLS and SASL."""

from __future__ import annotations

import asyncio
import http.server
import importlib
import itertools
import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stele import Admin, Consumer, Producer, TopicPartition
from stele.cluster.kafka_login import LoginError
from stele.errors import SteleError
from tests.support.sasl_node import PROTOCOLS, SESSION_S, USERS, SaslNode, sasl_node
from tests.support.token_issuer import token_issuer

pytestmark = pytest.mark.processes

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
WAYS = pytest.mark.parametrize(
    ("listener", "mechanism"),
    [*itertools.product(("SASL", "TLS"), MECHANISMS), ("ENCRYPTED", ""), ("MUTUAL", "")],
)
"""Into the node. Without a mechanism there is no login; on MUTUAL the client has a certificate."""

TOPIC = "t"
PLAIN_NAME = "dave"
"""A user for clients that do not escape names, as SCRAM demands."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslNode]:
    with sasl_node(tmp_path_factory.mktemp("sasl")) as running:
        _make_users(running)
        yield running


def _make_users(node: SaslNode) -> None:
    confluent_admin: Any = importlib.import_module("confluent_kafka.admin")
    mechanisms = confluent_admin.ScramMechanism
    admin = confluent_admin.AdminClient({"bootstrap.servers": node.server("INTERNAL")})
    users = [
        (USERS["SCRAM-SHA-256"], mechanisms.SCRAM_SHA_256),
        (USERS["SCRAM-SHA-512"], mechanisms.SCRAM_SHA_512),
        (PLAIN_NAME, mechanisms.SCRAM_SHA_512),
    ]
    altered = admin.alter_user_scram_credentials(
        [
            confluent_admin.UserScramCredentialUpsertion(
                user,
                confluent_admin.ScramCredentialInfo(mechanism, 4096),
                f"{user}-secret".encode(),
            )
            for user, mechanism in users
        ]
    )
    for each in altered.values():
        each.result(10)
    admin.create_topics([confluent_admin.NewTopic(TOPIC, 1, 1)])[TOPIC].result(10)
    described = admin.describe_user_scram_credentials().result(10)
    assert set(described) == {user for user, _ in users}


def password(mechanism: str) -> str:
    return f"{USERS[mechanism]}-secret"


# -------------------------------------------------------------------------- librdkafka


def confluent(node: SaslNode, listener: str, mechanism: str, **more: Any) -> dict[str, Any]:
    options: dict[str, Any] = librdkafka(node, listener, mechanism)
    if mechanism == "OAUTHBEARER":
        options["oauth_cb"] = lambda config: (node.token(), time.time() + 60)
    return options | more


def librdkafka(node: SaslNode, listener: str, mechanism: str) -> dict[str, str]:
    """The properties that need no function."""
    options = {
        "bootstrap.servers": node.server(listener),
        "security.protocol": PROTOCOLS[listener],
    }
    if PROTOCOLS[listener].endswith("SSL"):
        options["ssl.ca.location"] = node.ca_file
    if listener == "MUTUAL":
        options |= dict.fromkeys(("ssl.certificate.location", "ssl.key.location"), node.client_file)
    if mechanism:
        options["sasl.mechanism"] = mechanism
    if mechanism in USERS:
        options |= {"sasl.username": USERS[mechanism], "sasl.password": password(mechanism)}
    return options


@WAYS
def test_confluent_kafka(node: SaslNode, listener: str, mechanism: str) -> None:
    from confluent_kafka import Consumer as ConfluentConsumer
    from confluent_kafka import Producer as ConfluentProducer

    delivered: list[object] = []
    producer = ConfluentProducer(confluent(node, listener, mechanism))
    producer.produce(TOPIC, mechanism, on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(20) == 0
    assert delivered == [None]
    more = {"group.id": f"confluent-{listener}-{mechanism}", "auto.offset.reset": "earliest"}
    consumer = ConfluentConsumer(confluent(node, listener, mechanism, **more))
    consumer.subscribe([TOPIC])
    try:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
    finally:
        consumer.close()


def test_confluent_kafka_with_a_wrong_password(node: SaslNode) -> None:
    from confluent_kafka import KafkaError
    from confluent_kafka import Producer as ConfluentProducer

    errors: list[Any] = []
    options = confluent(node, "SASL", "SCRAM-SHA-256", error_cb=errors.append)
    producer = ConfluentProducer(options | {"sasl.password": "guess"})
    deadline = time.monotonic() + 20
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    assert errors[0].code() == KafkaError._AUTHENTICATION  # noqa: SLF001
    assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in errors[0].str()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER"])
def test_confluent_kafka_logs_in_again_while_it_works(node: SaslNode, mechanism: str) -> None:
    from confluent_kafka import Producer as ConfluentProducer

    errors: list[Any] = []
    delivered: list[object] = []
    producer = ConfluentProducer(confluent(node, "SHORT", mechanism, error_cb=errors.append))
    end = time.monotonic() + 4 * SESSION_S
    sent = 0
    while time.monotonic() < end:
        producer.produce(TOPIC, b"x", on_delivery=lambda error, _: delivered.append(error))
        sent += 1
        producer.poll(0.05)
    assert producer.flush(20) == 0
    assert delivered == [None] * sent
    assert errors == []


class _Issuer(http.server.BaseHTTPRequestHandler):
    """An issuer's token endpoint, as OpenID Connect has it."""

    node: SaslNode

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        answer = json.dumps({"access_token": self.node.token(), "expires_in": 60}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def token_endpoint(node: SaslNode) -> Iterator[str]:
    handler = type("Issuer", (_Issuer,), {"node": node})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as issuer:
        serving = threading.Thread(target=issuer.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{issuer.server_port}/token"
        issuer.shutdown()
        serving.join()


def test_confluent_kafka_gets_its_tokens_from_the_issuer(
    node: SaslNode, token_endpoint: str
) -> None:
    from confluent_kafka import Producer as ConfluentProducer

    delivered: list[object] = []
    options = librdkafka(node, "TLS", "OAUTHBEARER") | {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "app",
        "sasl.oauthbearer.client.secret": "secret",
        "sasl.oauthbearer.token.endpoint.url": token_endpoint,
    }
    producer = ConfluentProducer(options)
    producer.produce(TOPIC, b"x", on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(20) == 0
    assert delivered == [None]


# -------------------------------------------------------------------------------- kcat


def kcat(
    options: dict[str, str], *arguments: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    properties = [part for name, value in options.items() for part in ("-X", f"{name}={value}")]
    return subprocess.run(
        ["kcat", "-b", options["bootstrap.servers"], *properties, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def kcats_librdkafka() -> tuple[int, ...]:
    """Its version."""
    said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
    (version,) = re.findall(r"librdkafka ([0-9.]+)", said)
    return tuple(map(int, version.split(".")))


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
@WAYS
def test_kcat(node: SaslNode, listener: str, mechanism: str) -> None:
    if mechanism == "OAUTHBEARER":
        listener = "UNSIGNED"  # kcat has no function that could give a token
    options = librdkafka(node, listener, mechanism)
    if mechanism == "OAUTHBEARER":
        options["enable.sasl.oauthbearer.unsecure.jwt"] = "true"
        options["sasl.oauthbearer.config"] = "principal=olga"
    value = f"{listener}-{mechanism}"
    made = kcat(options, "-P", "-t", TOPIC, stdin=f"{value}\n")
    if mechanism.startswith("SCRAM") and kcats_librdkafka() < (2, 6, 1):
        assert "invalid credentials" in made.stderr  # it repeats its nonce wrongly
        return
    assert made.returncode == 0, made.stderr
    read = kcat(options, "-C", "-e", "-q", "-o", "beginning", "-t", TOPIC)
    assert value in read.stdout.split("\n"), read.stderr


# ------------------------------------------------------------------ clients in Python


def python_options(node: SaslNode, listener: str, mechanism: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap_servers": node.server(listener),
        "security_protocol": PROTOCOLS[listener],
    }
    if PROTOCOLS[listener].endswith("SSL"):
        options["ssl_context"] = node.ca_context()
    if listener == "MUTUAL":
        options["ssl_context"].load_cert_chain(node.client_file)
    if mechanism:
        options["sasl_mechanism"] = mechanism
    if mechanism in USERS:
        options["sasl_plain_username"] = USERS[mechanism]
        options["sasl_plain_password"] = password(mechanism)
    return options


@WAYS
def test_kafka_python(node: SaslNode, listener: str, mechanism: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return node.token()

    options = python_options(node, listener, mechanism)
    if mechanism == "OAUTHBEARER":
        options["sasl_oauth_token_provider"] = Tokens()
    if mechanism == "SCRAM-SHA-512":
        options["sasl_plain_username"] = PLAIN_NAME
        options["sasl_plain_password"] = f"{PLAIN_NAME}-secret"
    producer = KafkaProducer(**options)
    try:
        offset = producer.send(TOPIC, mechanism.encode()).get(20).offset
    finally:
        producer.close()
    consumer = KafkaConsumer(TOPIC, auto_offset_reset="earliest", group_id=None, **options)
    try:
        found = consumer.poll(20_000)
        assert found
        assert offset >= 0
    finally:
        consumer.close()


@WAYS
async def test_aiokafka(node: SaslNode, listener: str, mechanism: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return node.token()

    options = python_options(node, listener, mechanism)
    if mechanism == "OAUTHBEARER":
        options["sasl_oauth_token_provider"] = Tokens()
    producer = AIOKafkaProducer(**options)
    await producer.start()
    try:
        await producer.send_and_wait(TOPIC, mechanism.encode())
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(TOPIC, auto_offset_reset="earliest", **options)
    await consumer.start()
    try:
        async with asyncio.timeout(20):
            assert (await consumer.getone()).topic == TOPIC
    finally:
        await consumer.stop()


def test_kafka_python_logs_in_again_while_it_works(node: SaslNode) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(**python_options(node, "SHORT", "SCRAM-SHA-256"))
    try:
        end = time.monotonic() + 4 * SESSION_S
        while time.monotonic() < end:
            producer.send(TOPIC, b"x").get(20)
            time.sleep(0.05)
    finally:
        producer.close()


async def test_aiokafka_connects_again_when_its_session_has_ended(node: SaslNode) -> None:
    """It does not know KIP-368: the node closes its connection, and it opens another one."""
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(**python_options(node, "SHORT", "SCRAM-SHA-256"))
    await producer.start()
    try:
        end = time.monotonic() + 4 * SESSION_S
        while time.monotonic() < end:
            await producer.send_and_wait(TOPIC, b"x")
            await asyncio.sleep(0.05)
    finally:
        await producer.stop()


# -------------------------------------------------------------------------------- ours


def own_options(node: SaslNode, listener: str, mechanism: str) -> dict[str, Any]:
    options: dict[str, Any] = {"security_protocol": PROTOCOLS[listener]}
    if PROTOCOLS[listener].endswith("SSL"):
        options["ssl_truststore_location"] = node.ca_file
    if listener == "MUTUAL":
        options["ssl_keystore_location"] = node.client_file
    if mechanism:
        options["sasl_mechanism"] = mechanism
    if mechanism == "OAUTHBEARER":
        options["sasl_oauthbearer_token"] = node.token
    elif mechanism:
        options |= {"sasl_username": USERS[mechanism], "sasl_password": password(mechanism)}
    return options


@WAYS
def test_our_clients(node: SaslNode, listener: str, mechanism: str) -> None:
    options = own_options(node, listener, mechanism)
    with Producer(node.server(listener), **options) as producer:
        producer.send(TOPIC, mechanism.encode()).result(20)
    with Consumer(node.server(listener), auto_offset_reset="earliest", **options) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        assert consumer.poll(20)
    with Admin(node.server(listener), **options) as admin:
        assert TOPIC in [each.name for each in admin.list_topics()]


def test_our_clients_say_why_they_cannot_log_in(node: SaslNode) -> None:
    options = own_options(node, "SASL", "SCRAM-SHA-256") | {"sasl_password": "guess"}
    said = "the login of user 'bob' by SCRAM-SHA-256 failed"
    with Producer(node.server("SASL"), **options) as own, pytest.raises(LoginError, match=said):
        own.send(TOPIC, b"x").result(20)
    with Admin(node.server("SASL"), **options) as admin, pytest.raises(LoginError, match=said):
        admin.list_topics()


def test_our_client_logs_in_again_while_it_works(node: SaslNode) -> None:
    options = own_options(node, "SHORT", "SCRAM-SHA-256")
    end = time.monotonic() + 4 * SESSION_S
    with (
        Producer(node.server("SHORT"), **options) as producer,
        Admin(node.server("SHORT"), **options) as admin,
    ):
        while time.monotonic() < end:
            producer.send(TOPIC, b"x").result(20)
            assert admin.list_topics()
            time.sleep(0.05)


@pytest.mark.parametrize("listener", ["SASL", "SHORT"])
def test_our_clients_get_their_tokens_from_the_issuer(
    node: SaslNode, tmp_path: Path, listener: str
) -> None:
    """Also for the sessions of SHORT, which are shorter than the life of a token."""
    life_s = SESSION_S * 1.5

    def answer() -> tuple[int, bytes]:
        token = node.token(exp=time.time() + life_s)
        return 200, json.dumps({"access_token": token, "expires_in": life_s}).encode()

    with token_issuer(tmp_path, answer) as issuer:
        options = own_options(node, listener, "OAUTHBEARER")
        del options["sasl_oauthbearer_token"]
        options |= {
            "sasl_oauthbearer_token_endpoint_url": issuer.url,
            "sasl_jaas_config": (
                'OAuthBearerLoginModule required clientId="app" clientSecret="secret" '
                f'ssl.truststore.location="{issuer.ca_file}";'
            ),
        }
        with Producer(node.server(listener), **options) as producer:
            end = time.monotonic() + 3 * life_s
            while time.monotonic() < end:
                producer.send(TOPIC, b"x").result(20)
                time.sleep(0.05)
        assert 2 <= len(issuer.requests) <= 10
        issuer.answer = lambda: (401, b'{"error": "invalid_client"}')
        with (
            Admin(node.server(listener), **options) as admin,
            pytest.raises(LoginError, match="invalid_client"),
        ):
            admin.list_topics()
        issuer.answer = lambda: (503, b"closed")
        with (
            Admin(node.server(listener), default_api_timeout_ms=3_000, **options) as admin,
            pytest.raises(SteleError, match="closed") as caught,
        ):
            admin.list_topics()
        assert not isinstance(caught.value, LoginError), "the issuer may come back"
