"""Two brokers that log in at one another by OAUTHBEARER, with tokens of a file or of an issuer."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stele import Admin, Producer
from stele.admin.descriptions import NewTopic
from tests.support.sasl_node import SaslNode, free_ports_of, new_issuer, running_node
from tests.support.token_issuer import TokenIssuer, token_issuer

pytestmark = pytest.mark.processes

URL = "sasl.oauthbearer.token.endpoint.url"
TOKEN_S = 10
TOPIC = "t"
LISTENERS = ("NODES", "CLIENTS")


@pytest.fixture(scope="module", params=["file", "issuer"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SaslNode, str, Path]]:
    """The issuer, the bootstrap server of its clients, and the file with the nodes' token, which
    they may not look at."""
    folder = tmp_path_factory.mktemp("cluster")
    names = [f"{name}-{node}" for node in "12" for name in (*LISTENERS, "grpc", "own-grpc", "http")]
    issuer = new_issuer(folder, free_ports_of([*names, "controller"]))
    token = folder / "token"
    token.write_text(issuer.token(sub="node", exp=time.time() + 60))
    with ExitStack() as running:
        source = {URL: token.as_uri()}
        if request.param == "issuer":
            endpoint = running.enter_context(token_issuer(folder, lambda: _given(issuer)))
            source = {URL: endpoint.url, "sasl.jaas.config": _login_module(endpoint)}
        for node in "12":
            directory = folder / node
            directory.mkdir()
            settings = _settings(issuer, node) | source
            running.enter_context(running_node(directory, settings))
        yield issuer, issuer.server("CLIENTS-1"), token


def _given(issuer: SaslNode) -> tuple[int, bytes]:
    token = issuer.token(sub="node", exp=time.time() + TOKEN_S)
    return 200, json.dumps({"access_token": token, "expires_in": TOKEN_S}).encode()


def _login_module(endpoint: TokenIssuer) -> str:
    return (
        'x.OAuthBearerLoginModule required clientId="node" clientSecret="secret" '
        f'ssl.truststore.location="{endpoint.ca_file}";'
    )


def _settings(issuer: SaslNode, node: str) -> dict[str, str]:
    ports = issuer.ports
    controller = f"127.0.0.1:{ports['controller']}"
    first = {"process.roles": "broker,controller", "controller.listener": controller}
    return {
        "node.id": node,
        "cluster.id": "a-cluster",
        "log.dirs": str(issuer.directory / node / "data"),
        "controller.quorum.voters": f"1@{controller}",
        "metrics.listener": f"127.0.0.1:{ports[f'http-{node}']}",
        "listeners": ",".join(
            f"{each}://localhost:{ports[f'{each}-{node}']}" for each in LISTENERS
        ),
        "grpc.listeners": (
            f"NODES://localhost:{ports[f'own-grpc-{node}']},"
            f"CLIENTS://localhost:{ports[f'grpc-{node}']}"
        ),
        "listener.security.protocol.map": "NODES:SASL_PLAINTEXT,CLIENTS:PLAINTEXT",
        "inter.broker.listener.name": "NODES",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": (issuer.directory / "jwks.json").as_uri(),
        "sasl.oauthbearer.expected.audience": "stele",
        "sasl.oauthbearer.clock.skew.seconds": "0",
        **(first if node == "1" else {"process.roles": "broker"}),
    }


def test_brokers_replicate_while_their_tokens_are_renewed(
    cluster: tuple[SaslNode, str, Path],
) -> None:
    issuer, server, token = cluster
    with Admin(server) as admin:
        configs = {"min.insync.replicas": "2"}
        admin.create_topics([NewTopic(TOPIC, 4, 2, configs=configs)])
    with Producer(server, acks="all") as producer:
        began = time.monotonic()
        told = ""
        # Through two lives of a token, and until a connection has logged in again: a connection
        # does so with its next request, and on a slow machine a new one may take its place.
        while not told or time.monotonic() < began + 2 * TOKEN_S or not _logged_in_again(told):
            assert time.monotonic() < began + 20 * TOKEN_S
            token.write_text(issuer.token(sub="node", exp=time.time() + TOKEN_S))
            for partition in range(4):
                producer.send(TOPIC, b"x", partition=partition).result(30)
            time.sleep(0.5)
            address = f"http://127.0.0.1:{issuer.ports['http-1']}/metrics"
            with urllib.request.urlopen(address) as page:
                told = page.read().decode()
    assert _counted("stele_expired_connections_killed", told) == 0


def _logged_in_again(told: str) -> bool:
    return _counted("stele_successful_reauthentications", told) > 0


def _counted(name: str, page: str) -> float:
    found = re.search(rf"^{name}(?:_total)?(?:{{[^}}]*}})? ([0-9.e+]+)$", page, re.MULTILINE)
    assert found is not None, name
    return float(found[1])
