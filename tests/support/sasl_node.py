"""One process of a node whose listeners have every protection, for real clients."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
import trustme
from cryptography.hazmat.primitives.asymmetric import ec

START_S = 60.0
USERS = {"PLAIN": "alice", "SCRAM-SHA-256": "bob", "SCRAM-SHA-512": "carol, = é"}
"""The user of each mechanism; passwords are the names with ``-secret``."""

PROTOCOLS = {
    "INTERNAL": "PLAINTEXT",
    "SASL": "SASL_PLAINTEXT",
    "TLS": "SASL_SSL",
    "SHORT": "SASL_PLAINTEXT",
    "UNSIGNED": "SASL_PLAINTEXT",
    "ENCRYPTED": "SSL",
    "MUTUAL": "SSL",
}
"""The listeners of the node, by name."""

SESSION_S = 2


@dataclass
class SaslNode:
    """A node that serves. On SHORT a login lasts two seconds, UNSIGNED believes any token, and
    MUTUAL wants a certificate."""

    directory: Path
    ports: dict[str, int]
    key: ec.EllipticCurvePrivateKey

    def server(self, listener: str) -> str:
        return f"localhost:{self.ports[listener]}"

    @property
    def ca_file(self) -> str:
        return str(self.directory / "ca.pem")

    @property
    def client_file(self) -> str:
        """A key with its certificate, for MUTUAL."""
        return str(self.directory / "client.pem")

    def ca_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca_file)

    def token(self, **claims: Any) -> str:
        """A token of the issuer that the node believes."""
        now_s = time.time()
        told = {"sub": "olga", "aud": "stele", "iat": now_s, "exp": now_s + 60} | claims
        return jwt.encode(told, self.key, "ES256", headers={"kid": "1"})


@contextmanager
def sasl_node(directory: Path, *first_users: str) -> Iterator[SaslNode]:
    """Runs the node until the end of the block. ``first_users``: as ``stele format --add-scram``
    takes them."""
    names = [*PROTOCOLS, *(f"grpc-{name}" for name in PROTOCOLS), "controller", "metrics"]
    node = new_issuer(directory, free_ports_of(names))
    with running_node(directory, _settings(node), *first_users):
        yield node


@contextmanager
def running_node(directory: Path, settings: Mapping[str, str], *first_users: str) -> Iterator[None]:
    """Runs a node with these settings, among them ``metrics.listener``, in a process."""
    config = directory / "server.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    stele = [sys.executable, "-m", "cli"]
    options = [word for each in first_users for word in ("--add-scram", each)]
    format_command = [*stele, "format", "-c", str(config), *options]
    subprocess.run(format_command, check=True, capture_output=True)
    log_file = directory / "node.log"
    with log_file.open("wb") as log:
        process = subprocess.Popen([*stele, "server", str(config)], stdout=log, stderr=log)
        try:
            _wait_ready(f"http://{settings['metrics.listener']}/readyz", log_file, process)
            yield
        finally:
            process.terminate()
            process.wait(timeout=30)


def _settings(node: SaslNode) -> dict[str, str]:
    def addresses(prefix: str) -> str:
        return ",".join(f"{name}://localhost:{node.ports[prefix + name]}" for name in PROTOCOLS)

    users = " ".join(f'user_{name}="{name}-secret"' for name in ("alice",))
    controller = f"127.0.0.1:{node.ports['controller']}"
    return {
        "node.id": "1",
        "process.roles": "broker,controller",
        "log.dirs": str(node.directory / "data"),
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener": controller,
        "metrics.listener": f"127.0.0.1:{node.ports['metrics']}",
        "listeners": addresses(""),
        "grpc.listeners": addresses("grpc-"),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()
        ),
        "inter.broker.listener.name": "INTERNAL",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.jaas.config": f"org.apache.kafka.PlainLoginModule required {users};",
        "sasl.oauthbearer.jwks.endpoint.url": (node.directory / "jwks.json").as_uri(),
        "sasl.oauthbearer.expected.audience": "stele",
        "listener.name.short.connections.max.reauth.ms": str(SESSION_S * 1000),
        "listener.name.unsigned.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "",
        "listener.name.unsigned.oauthbearer.sasl.oauthbearer.unsecured.enable": "true",
        "listener.name.unsigned.oauthbearer.sasl.oauthbearer.expected.audience": "",
        "delegation.token.secret.key": "the secret of tokens",
        "delegation.token.expiry.check.interval.ms": "1000",
        "ssl.keystore.location": str(node.directory / "node.pem"),
        "listener.name.mutual.ssl.truststore.location": node.ca_file,
        "listener.name.mutual.ssl.client.auth": "required",
    }


def new_issuer(directory: Path, ports: dict[str, int]) -> SaslNode:
    """A node that does not serve yet, with its certificates and the keys of its tokens."""
    node = SaslNode(directory, ports, ec.generate_private_key(ec.SECP256R1()))
    _write_keys(node)
    return node


def _write_keys(node: SaslNode) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(node.ca_file)
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(
        str(node.directory / "node.pem")
    )
    authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(node.client_file)
    entry = json.loads(jwt.get_algorithm_by_name("ES256").to_jwk(node.key.public_key()))
    entry.pop("key_ops", None)
    (node.directory / "jwks.json").write_text(json.dumps({"keys": [entry | {"kid": "1"}]}))


def free_ports_of(names: Sequence[str]) -> dict[str, int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in names]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return dict(zip(names, ports, strict=True))


def _wait_ready(url: str, log_file: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(log_file.read_text())
