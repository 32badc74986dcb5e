"""Drills on a compose cluster, and what else only containers show: a leader is cut off, too few
replicas are left."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.compose_cluster import ComposeCluster, cutting_unavailable, unavailable
from chaos.drills.compose import DrillContainers
from chaos.drills.planted import plant_all
from chaos.drills.registry import by_name
from chaos.drills.run import run_drill
from stele import Admin, ConfigResource, Consumer, NewTopic, Producer
from stele.errors import ApiError, ErrorCode, SteleError
from stele.records import RecordMetadata

BOOTSTRAP = "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
SERVICES = {101: "broker-1", 102: "broker-2", 103: "broker-3"}
RECORDS = 300

pytestmark = pytest.mark.containers


@pytest.fixture(scope="module")
def cluster() -> Iterator[ComposeCluster]:
    if reason := unavailable():
        pytest.skip(reason)
    with ComposeCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cutting() -> None:
    if reason := cutting_unavailable():
        pytest.skip(reason)


@pytest.fixture
def admin(cluster: ComposeCluster) -> Iterator[Admin]:
    with Admin(BOOTSTRAP) as admin:
        yield admin


def create(admin: Admin, name: str) -> str:
    admin.create_topics([NewTopic(name, 1, 3, configs={"min.insync.replicas": "2"})])
    return name


def leader_of(admin: Admin, topic: str) -> int | None:
    (described,) = admin.describe_topics([topic])
    return described.partitions[0].leader


def isr_of(admin: Admin, topic: str) -> tuple[int, ...]:
    (described,) = admin.describe_topics([topic])
    return described.partitions[0].isr


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if condition():
                return
        except SteleError as error:
            what = f"{what} (last: {error})"
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(0.1)


def send(producer: Producer, topic: str, numbers: range) -> list[RecordMetadata]:
    futures = [producer.send(topic, b"%d" % number, partition=0) for number in numbers]
    return [future.result(timeout_s=90) for future in futures]


def read_all(topic: str) -> list[int]:
    with Consumer(BOOTSTRAP, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        end = consumer.end_offsets([(topic, 0)])[(topic, 0)]  # type: ignore[index]
        read: list[int] = []
        while consumer.position(topic, 0) < end:
            read += [int(record.value or b"") for record in consumer.poll(1000, 10_000)]
    return read


@pytest.mark.parametrize("name", ["leader-killed", "controller-killed"])
def test_a_drill_is_green_on_containers(cluster: ComposeCluster, name: str, tmp_path: Path) -> None:
    drill = by_name()[name]
    outcome = asyncio.run(
        run_drill(drill, DrillContainers(cluster), tmp_path, seed=1, topic=f"drill-{name}")
    )
    assert [(check.name, check.told) for check in outcome.verdict.broken] == []
    caught, missed = plant_all(outcome.history)
    assert missed == []
    assert "lose_one" in caught


@pytest.mark.usefixtures("cutting")
@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_a_leader_that_is_cut_off_acknowledges_nothing_and_comes_back(
    cluster: ComposeCluster, admin: Admin
) -> None:
    topic = create(admin, "cut-off")
    with Producer(BOOTSTRAP) as producer:
        send(producer, topic, range(RECORDS))
        zombie = leader_of(admin, topic)
        assert zombie is not None
        cluster.isolate(SERVICES[zombie])
        # Clients on the host still reach it, and it believes to lead until its lease ends.
        refused = produce_to_one_broker(9092 + zombie - 101, topic, b"zombie")
        others = ",".join(f"127.0.0.1:{9092 + each - 101}" for each in SERVICES if each != zombie)
        with Admin(others) as reachable:
            wait_until(
                lambda: leader_of(reachable, topic) not in (zombie, None), "another leader is there"
            )
        send(producer, topic, range(RECORDS, 2 * RECORDS))
        cluster.heal()
        wait_until(lambda: len(isr_of(admin, topic)) == 3, "the ISR is whole again", 90)
    assert refused, "a leader without its cluster acknowledged a write"
    assert read_all(topic) == list(range(2 * RECORDS))


def produce_to_one_broker(port: int, topic: str, value: bytes) -> bool:
    """Whether a write that only this broker can accept was refused or never answered."""
    command = ["kcat", "-b", f"127.0.0.1:{port}", "-P", "-t", topic, "-p", "0"]
    settings = ["-X", "acks=all", "-X", "message.timeout.ms=4000"]
    done = subprocess.run(
        [*command, *settings], input=value, capture_output=True, timeout=60, check=False
    )
    return done.returncode != 0 or b"Delivery failed" in done.stderr


def test_too_few_replicas_refuse_and_recover(cluster: ComposeCluster, admin: Admin) -> None:
    topic = create(admin, "too-few")
    with Producer(BOOTSTRAP) as producer:
        send(producer, topic, range(RECORDS))
    leader = leader_of(admin, topic)
    victims = [broker for broker in SERVICES if broker != leader]
    for victim in victims:
        cluster.kill(SERVICES[victim])
    wait_until(lambda: isr_of(admin, topic) == (leader,), "the ISR is the leader alone")
    with Producer(BOOTSTRAP, delivery_timeout_ms=3000, request_timeout_ms=1000) as producer:
        with pytest.raises(SteleError) as refused:
            producer.send(topic, b"-1", partition=0).result(timeout_s=30)
        with pytest.raises(SteleError):
            producer.flush()
    assert ErrorCode.NOT_ENOUGH_REPLICAS.name in str(refused.value)
    for victim in victims:
        cluster.start(SERVICES[victim])
    wait_until(lambda: len(isr_of(admin, topic)) == 3, "the ISR is whole again")
    with Producer(BOOTSTRAP) as producer:
        send(producer, topic, range(RECORDS, 2 * RECORDS))
    assert read_all(topic) == list(range(2 * RECORDS))


def test_every_node_tells_its_metrics(cluster: ComposeCluster) -> None:
    """The metrics are available on the host, where people and Prometheus use them."""
    pages = {service: page(cluster, service, "/metrics") for service in cluster.services()}
    active = [name for name, page in pages.items() if "stele_controller_active_count 1.0" in page]
    assert len(active) == 1
    assert active[0].startswith("controller-")
    for name in SERVICES.values():
        assert "stele_bytes_in_total" in pages[name]
        assert "stele_under_replicated_partition" in pages[name]
    assert "stele_offline_partitions_count" in pages[active[0]]


def page(cluster: ComposeCluster, service: str, path: str) -> str:
    port = cluster.published_port(service, 9404)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return str(answer.read().decode())


def test_every_node_says_why_it_is_ready(cluster: ComposeCluster) -> None:
    for service in cluster.services():
        checks = json.loads(page(cluster, service, "/readyz"))["checks"]
        assert [check["name"] for check in checks if not check["ok"]] == []
        assert {"node", "quorum"} < {check["name"] for check in checks}


def test_nodes_share_one_image_and_come_back_by_themselves(cluster: ComposeCluster) -> None:
    services = cluster.configuration()["services"].values()
    assert len({service["image"] for service in services}) == 1
    assert len([service for service in services if "build" in service]) == 1
    assert {service["restart"] for service in services} == {"unless-stopped"}


def test_topics_that_say_nothing_are_replicated(admin: Admin) -> None:
    admin.create_topics([NewTopic("says-nothing")])
    (described,) = admin.describe_topics(["says-nothing"])
    assert len(described.partitions[0].replicas) == 3
    resource = ConfigResource.topic("says-nothing")
    entries = admin.describe_configs([resource])[resource]
    values = {entry.name: entry.value for entry in entries}
    assert values["min.insync.replicas"] == "2"


def test_a_definite_error_names_itself(admin: Admin) -> None:
    with pytest.raises(ApiError) as wrong:
        admin.create_topics([NewTopic("no/slash", 1, 3)])
    assert wrong.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
