"""Liveness and readiness of live processes while others stand still."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from chaos.process_cluster import ProcessCluster
from tests.support.acceptance import grpc_port
from tests.support.timing import until

pytestmark = pytest.mark.processes

BROKER = 101
SESSION_MS = 2000


@pytest.fixture
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ProcessCluster]:
    settings = {
        "broker.session.timeout.ms": str(SESSION_MS),
        "broker.heartbeat.interval.ms": "200",
    }
    cluster = ProcessCluster(
        tmp_path_factory.mktemp("health"), controllers=3, brokers=1, settings=settings
    )
    await cluster.start()
    yield cluster
    await cluster.stop()


def asked(cluster: ProcessCluster, node_id: int, path: str) -> tuple[int, dict[str, Any]]:
    address = cluster.nodes[node_id].settings["metrics.listener"]
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def complaints(cluster: ProcessCluster, node_id: int) -> dict[str, str]:
    _, body = asked(cluster, node_id, "/readyz")
    return {each["name"]: each["reason"] for each in body["checks"] if not each["ok"]}


def served(cluster: ProcessCluster, service: str) -> bool:
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port(cluster, BROKER)}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def test_frozen_controllers(cluster: ProcessCluster) -> None:
    for node_id in cluster.nodes:
        for path in ("/healthz", "/livez", "/readyz"):
            status, body = asked(cluster, node_id, path)
            assert (status, body["status"]) == (200, "ok"), body
    # Nothing is on the broker. Of the controllers the active one may go, and alone knows it.
    assert asked(cluster, BROKER, "/safe-to-restart")[0] == 200
    assert served(cluster, "safe-to-restart")
    safe = [asked(cluster, each, "/safe-to-restart")[0] for each in cluster.nodes if each != BROKER]
    assert sorted(safe) == [200, 503, 503]
    controllers = [node_id for node_id in cluster.nodes if node_id != BROKER]
    frozen = [cluster.nodes[node_id].process for node_id in controllers]
    for process in frozen:
        assert process is not None
        process.send_signal(signal.SIGSTOP)
    try:
        await until(
            lambda: complaints(cluster, BROKER).keys() >= {"quorum", "heartbeat"},
            "the broker says that it hears no controller",
        )
        assert "no active controller answered" in complaints(cluster, BROKER)["quorum"]
        assert "the session lasts 2 s" in complaints(cluster, BROKER)["heartbeat"]
        status, body = asked(cluster, BROKER, "/readyz")
        assert (status, body["status"]) == (503, "not ok")
        status, _ = asked(cluster, BROKER, "/healthz")
        assert status == 200, "to start it again would not help"
        assert not served(cluster, "stele.v1.Log")
        assert not served(cluster, "safe-to-restart"), "what it knows may be old"
        assert served(cluster, "stele.v1.BrokerControl")
    finally:
        for process in frozen:
            assert process is not None
            process.send_signal(signal.SIGCONT)
    await until(lambda: complaints(cluster, BROKER) == {}, "the broker is ready again")
    assert served(cluster, "")


async def test_a_controller_that_is_left_alone(cluster: ProcessCluster) -> None:
    controllers = [node_id for node_id in cluster.nodes if node_id != BROKER]
    alone, *others = controllers
    for node_id in others:
        cluster.kill(node_id)
    await until(
        lambda: complaints(cluster, alone).keys() == {"quorum"}, "it says that nobody leads"
    )
    status, _ = asked(cluster, alone, "/healthz")
    assert status == 200
