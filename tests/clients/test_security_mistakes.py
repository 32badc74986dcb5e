"""Clients whose security does not fit the listener say at once what to set, and do not try on."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from cli import main
from stele.aio import Admin, Consumer, Producer
from stele.errors import AuthenticationError, ConfigError, TlsError
from stele.sync import Producer as SyncProducer
from tests.support.sasl_node import free_ports_of, running_node
from tests.support.secure_cluster import write_store
from tests.support.tls import Authority

OWN: Final = Authority("own")
LISTENERS: Final = {
    "PLAIN": "PLAINTEXT",
    "SASL": "SASL_PLAINTEXT",
    "TLS": "SSL",
    "BOTH": "SASL_SSL",
    "MUTUAL": "SSL",
    "OLD": "SSL",
    "OTHER": "SSL",
    "APART": "SSL",
}
LATEST_S: Final = 15.0
"""By then a client has said what is wrong. Its time limit is ``LIMIT_MS``."""
LIMIT_MS: Final = 60_000
ENDED: Final = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=3)


@dataclass(frozen=True)
class Stage:
    """A node with a listener of each kind."""

    directory: Path
    ports: dict[str, int]

    def server(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def file(self, name: str) -> str:
        return str(self.directory / name)

    def options(self, **changed: str | None) -> dict[str, Any]:
        """Of a client with TLS that believes the node's authority."""
        tls = {"security_protocol": "SSL", "ssl_truststore_location": self.file("ca.pem")}
        return {**tls, **changed}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("node")
    names = [*LISTENERS, *(f"grpc-{name}" for name in LISTENERS), "controller", "metrics"]
    made = Stage(directory, free_ports_of(names))
    (directory / "ca.pem").write_text(OWN.pem)
    (directory / "stranger.pem").write_text(Authority("stranger").pem)
    hosts = ("127.0.0.1", "localhost")
    write_store(directory / "node.pem", OWN.key_store(*hosts))
    write_store(directory / "apart.pem", OWN.key_store("localhost"))
    write_store(directory / "other.pem", OWN.key_store("b1.example", "10.0.0.1"))
    old = OWN.key_store(*hosts, valid_for=ENDED - datetime.datetime.now(datetime.UTC))
    write_store(directory / "old.pem", old)
    write_store(directory / "client-of-stranger.pem", Authority("stranger").key_store("me"))
    with running_node(directory, _settings(made)):
        yield made


def _settings(stage: Stage) -> dict[str, str]:
    def addresses(prefix: str) -> str:
        return ",".join(f"{name}://{_at(stage.ports[prefix + name])}" for name in LISTENERS)

    controller = _at(stage.ports["controller"])
    return {
        "node.id": "1",
        "process.roles": "broker,controller",
        "log.dirs": stage.file("data"),
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener": controller,
        "metrics.listener": _at(stage.ports["metrics"]),
        "listeners": addresses(""),
        "grpc.listeners": addresses("grpc-"),
        "advertised.listeners": f"APART://localhost:{stage.ports['APART']}",
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in LISTENERS.items()
        ),
        "inter.broker.listener.name": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.jaas.config": 'x.PlainLoginModule required user_ann="secret";',
        "ssl.keystore.location": stage.file("node.pem"),
        "ssl.truststore.location": stage.file("ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.old.ssl.keystore.location": stage.file("old.pem"),
        "listener.name.apart.ssl.keystore.location": stage.file("apart.pem"),
        "listener.name.other.ssl.keystore.location": stage.file("other.pem"),
    }


def _at(port: int) -> str:
    return f"127.0.0.1:{port}"


LOGIN: Final = {"sasl_mechanism": "PLAIN", "sasl_username": "ann", "sasl_password": "secret"}
PLAINTEXT: Final = {"security_protocol": "PLAINTEXT", "ssl_truststore_location": None}

MISTAKES: Final[dict[str, tuple[str, Mapping[str, str | None], list[str]]]] = {
    "an authority that the client does not know": (
        "TLS",
        {"ssl_truststore_location": "{stranger.pem}"},
        ["issued by CN=own) is not accepted", "ssl_truststore_location"],
    ),
    "a host that the certificate does not name": (
        "OTHER",
        {},
        ["not valid for '127.0.0.1'", "it names DNS:b1.example, IP:10.0.0.1"],
    ),
    "a certificate that has expired": ("OLD", {}, [f"expired on {ENDED:%Y-%m-%d}"]),
    "plaintext on a port of TLS": (
        "TLS",
        PLAINTEXT,
        ["this port is SSL, and security_protocol is PLAINTEXT: set it to SSL"],
    ),
    "plaintext on a port of TLS with a login": (
        "BOTH",
        PLAINTEXT,
        ["set it to SASL_SSL, with sasl_mechanism one of PLAIN, SCRAM-SHA-256"],
    ),
    "plaintext where a login is asked for": (
        "SASL",
        PLAINTEXT,
        ["this port is SASL_PLAINTEXT", "set it to SASL_PLAINTEXT, with sasl_mechanism one of"],
    ),
    "TLS on a port of plaintext": (
        "PLAIN",
        {},
        ["this port is PLAINTEXT, and security_protocol is SSL: set it to PLAINTEXT"],
    ),
    "TLS where a login is asked for": (
        "BOTH",
        {},
        ["this port is SASL_SSL, and security_protocol is SSL: set it to SASL_SSL"],
    ),
    "a login over TLS on a port of plaintext": (
        "SASL",
        {"security_protocol": "SASL_SSL", **LOGIN},
        ["this port is SASL_PLAINTEXT, and security_protocol is SASL_SSL"],
    ),
    "a login where there is none": (
        "TLS",
        {"security_protocol": "SASL_SSL", **LOGIN},
        ["the listener has no SASL: set security_protocol to SSL"],
    ),
    "no certificate where one is required": (
        "MUTUAL",
        {},
        ["requires a certificate: set ssl_keystore_location"],
    ),
    "a certificate of an authority that the broker does not know": (
        "MUTUAL",
        {"ssl_keystore_location": "{client-of-stranger.pem}"},
        ["refuses this client's certificate", "unknown ca"],
    ),
    "no such trust store": (
        "TLS",
        {"ssl_truststore_location": "{missing.pem}"},
        ["ssl_truststore_location={missing.pem}: No such file or directory"],
    ),
    "a key store that is none": (
        "TLS",
        {"ssl_keystore_location": "{server.properties}"},
        ["{server.properties} is neither PEM nor PKCS12"],
    ),
}


def _told(stage: Stage, name: str) -> tuple[str, dict[str, Any], list[str]]:
    """The server, the options of the client, and what it must say."""
    listener, changed, said = MISTAKES[name]

    def filled(text: str) -> str:
        for file in ("stranger.pem", "client-of-stranger.pem", "missing.pem", "server.properties"):
            text = text.replace("{" + file + "}", stage.file(file))
        return text

    options = stage.options(**changed)
    given = {key: filled(value) for key, value in options.items() if value is not None}
    return stage.server(listener), given, [filled(each) for each in said]


@pytest.mark.parametrize("name", MISTAKES)
async def test_a_producer_says_so_at_once(stage: Stage, name: str) -> None:
    server, options, said = _told(stage, name)
    began_s = time.monotonic()
    async with Producer(server, max_block_ms=LIMIT_MS, **options) as producer:
        with pytest.raises(AuthenticationError) as caught:
            await producer.send("t", b"x")
    assert time.monotonic() - began_s < LATEST_S
    for each in said:
        assert each in str(caught.value)
    assert server in str(caught.value)


@pytest.mark.parametrize("name", ["plaintext on a port of TLS", "a certificate that has expired"])
async def test_a_consumer_and_an_administrator_say_so_at_once(stage: Stage, name: str) -> None:
    server, options, said = _told(stage, name)
    began_s = time.monotonic()
    async with Admin(server, default_api_timeout_ms=LIMIT_MS, **options) as admin:
        with pytest.raises(TlsError) as caught:
            await admin.list_topics()
    for group in (None, "g"):
        async with Consumer(server, group_id=group, **options) as consumer:
            if group is None:
                with pytest.raises(TlsError):
                    await consumer.partitions_for("t")
                continue
            consumer.subscribe(["t"])
            with pytest.raises(TlsError):
                await consumer.poll(timeout_ms=LIMIT_MS)
    assert all(each in str(caught.value) for each in said)
    assert time.monotonic() - began_s < 3 * LATEST_S


def test_a_synchronous_producer_says_so_at_once(stage: Stage) -> None:
    server, options, said = _told(stage, "a host that the certificate does not name")
    with SyncProducer(server, **options) as producer, pytest.raises(TlsError) as caught:
        producer.send("t", b"x").result()
    assert all(each in str(caught.value) for each in said)


def test_a_command_says_so_at_once(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    server, _, said = _told(stage, "plaintext on a port of TLS with a login")
    began_s = time.monotonic()
    assert main.run(["topic", "list", "-b", server, "--timeout", "60"]) == main.EXIT_FAILED
    assert time.monotonic() - began_s < LATEST_S
    shown = capsys.readouterr().err
    assert all(each in shown for each in said)
    assert "SASL_AUTHENTICATION_FAILED" not in shown


async def test_one_of_several_servers_is_enough(stage: Stage) -> None:
    servers = f"{stage.server('OLD')},{stage.server('TLS')}"
    async with Admin(servers, **stage.options()) as admin:
        assert await admin.list_topics() == []


async def test_a_grpc_port_whose_host_the_certificate_does_not_name(stage: Stage) -> None:
    server = f"localhost:{stage.ports['APART']}"
    began_s = time.monotonic()
    async with Admin(server, default_api_timeout_ms=LIMIT_MS, **stage.options()) as admin:
        with pytest.raises(TlsError) as caught:
            await admin.list_topics()
    said = f"cannot connect to {_at(stage.ports['grpc-APART'])}: the server's certificate does not"
    assert said in str(caught.value)
    assert "name '127.0.0.1', where its gRPC port is" in str(caught.value)
    assert time.monotonic() - began_s < LATEST_S


async def test_what_grpc_cannot_do_is_said_at_once(stage: Stage) -> None:
    options = stage.options(ssl_endpoint_identification_algorithm="")
    began_s = time.monotonic()
    async with Admin(stage.server("OTHER"), default_api_timeout_ms=LIMIT_MS, **options) as admin:
        with pytest.raises(ConfigError, match="gRPC always checks the host name"):
            await admin.list_topics()
    assert time.monotonic() - began_s < LATEST_S
