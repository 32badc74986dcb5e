"""``stele server`` with an impossible configuration ends at once, with one line that says what to
do."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest

from chaos.process_cluster import ProcessCluster
from node.format import format_directory, random_cluster_id
from runtime.real.world import RealWorld
from tests.support.acceptance import client_of
from tests.support.sim import combined_settings, free_ports
from tests.support.timing import until

pytestmark = pytest.mark.processes


def configured(directory: Path, **changes: str) -> dict[str, str]:
    settings = combined_settings(directory / "data", free_ports(1)[0])
    settings.update({key.replace("_", "."): value for key, value in changes.items()})
    return settings


def format_for(settings: Mapping[str, str], cluster_id: str = "") -> None:
    world = RealWorld()
    rng = world.world.rng
    identity = cluster_id or random_cluster_id(rng)
    node_id = int(settings["node.id"])
    format_directory(world.world.disk, [settings["log.dirs"]], identity, node_id, rng)
    world.close()


def write_properties(directory: Path, settings: Mapping[str, str]) -> Path:
    file = directory / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return file


def start_server(file: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "cli.main", "server", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def refusal(directory: Path, settings: Mapping[str, str]) -> str:
    return refusal_of(write_properties(directory, settings))


def refusal_of(file: Path) -> str:
    """The one line of a server that does not start, without what it logged before."""
    process = start_server(file)
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 1, errors
    assert out == ""
    assert "Traceback" not in errors
    said = [line for line in errors.splitlines() if line.startswith("stele: ")]
    assert len(said) == 1, errors
    assert errors.endswith(f"{said[0]}\n")
    return said[0]


# -------------------------------------------------------------------------------- directories


def test_an_unformatted_directory(tmp_path: Path) -> None:
    said = refusal(tmp_path, configured(tmp_path))
    assert f"{tmp_path}/data" in said
    assert "stele format" in said


def test_a_directory_of_another_cluster(tmp_path: Path) -> None:
    settings = configured(tmp_path, cluster_id="ours")
    format_for(settings, "theirs")
    before = sorted((tmp_path / "data").iterdir())
    said = refusal(tmp_path, settings)
    assert "belongs to cluster theirs" in said
    assert "ours" in said
    assert {each.name for each in before} <= {"meta.properties"}


def test_a_directory_of_another_node(tmp_path: Path) -> None:
    format_for(configured(tmp_path))
    settings = configured(tmp_path, node_id="7")
    settings["controller.quorum.voters"] = settings["controller.quorum.voters"].replace("1@", "7@")
    assert "belongs to node 1, this is node 7" in refusal(tmp_path, settings)


def test_directories_of_two_clusters(tmp_path: Path) -> None:
    for name in ("one", "two"):
        format_for(configured(tmp_path, log_dirs=f"{tmp_path}/{name}"), name)
    said = refusal(tmp_path, configured(tmp_path, log_dirs=f"{tmp_path}/one,{tmp_path}/two"))
    assert f"{tmp_path}/two belongs to cluster two" in said


def test_a_file_where_the_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    assert f"{tmp_path}/data" in refusal(tmp_path, configured(tmp_path))


def test_a_directory_whose_meta_properties_are_noise(tmp_path: Path) -> None:
    settings = configured(tmp_path)
    format_for(settings)
    (tmp_path / "data" / "meta.properties").write_bytes(b"\x00\xff\xfe noise")
    assert "meta.properties" in refusal(tmp_path, settings)


# -------------------------------------------------------------------------------------- ports


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listeners", "PLAINTEXT://127.0.0.1:{}"),
        ("grpc.listeners", "PLAINTEXT://127.0.0.1:{}"),
        ("controller.listener", "127.0.0.1:{}"),
        ("metrics.listener", "127.0.0.1:{}"),
    ],
)
def test_a_port_in_use(tmp_path: Path, taken: int, key: str, value: str) -> None:
    settings = configured(tmp_path)
    format_for(settings)
    settings[key] = value.format(taken)
    said = refusal(tmp_path, settings)
    assert key in said
    assert f"127.0.0.1:{taken}" in said
    assert "in use" in said


def test_an_address_that_is_not_of_this_machine(tmp_path: Path) -> None:
    settings = configured(tmp_path, listeners="PLAINTEXT://192.0.2.1:9092")
    format_for(settings)
    said = refusal(tmp_path, settings)
    assert "listeners" in said
    assert "192.0.2.1" in said


# ----------------------------------------------------------------------------------- settings


def test_a_typo_is_reported_and_the_node_starts_without_it(tmp_path: Path) -> None:
    settings = configured(tmp_path)
    format_for(settings)
    settings["log.retention.horus"] = "5"
    settings["retention.ms"] = "5"
    process = start_server(write_properties(tmp_path, settings))
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if "broker 1 serves" in line:
            break
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 0
    (typo,) = (line for line in seen if "log.retention.horus" in line)
    assert "WARNING" in typo
    assert "log.retention.hours" in typo
    (scope,) = (line for line in seen if "retention.ms is a config of topics" in line)
    assert "log.retention.ms" in scope


MALFORMED = [
    ("node.id", "one"),
    ("node.id", "-1"),
    ("process.roles", "king"),
    ("controller.quorum.voters", "1-127.0.0.1:9093"),
    ("listeners", "127.0.0.1:9092"),
    ("listeners", "PLAINTEXT://127.0.0.1:99999"),
    ("log.dirs", "relative/path"),
    ("message.max.bytes", "1 MB"),
    ("message.max.bytes", "-5"),
    ("auto.create.topics.enable", "perhaps"),
    ("compression.type", "rar"),
    ("log.retention.hours", "99999999999999999999"),
    ("broker.session.timeout.ms", "1"),
]


@pytest.mark.parametrize(("key", "value"), MALFORMED)
def test_a_malformed_value(tmp_path: Path, key: str, value: str) -> None:
    said = refusal(tmp_path, {**configured(tmp_path), key: value})
    assert key in said or value in said


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            {"listeners": "SASL_SSL://127.0.0.1:0", "grpc.listeners": "SASL_SSL://127.0.0.1:0"},
            "set listener.name.sasl_ssl.ssl.keystore.location",
        ),
        (
            {"listener.security.protocol.map": "PLAINTEXT:SSL"},
            "listener PLAINTEXT is SSL without a certificate",
        ),
        (
            {"ssl.keystore.location": "/etc/keystore.jks"},
            "ssl.keystore.location protects nothing",
        ),
        (
            {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"},
            "super.users names nobody",
        ),
    ],
)
def test_security_that_is_promised_and_could_not_be_given(
    tmp_path: Path, settings: dict[str, str], why: str
) -> None:
    settings = {**configured(tmp_path), **settings}
    format_for(settings)
    assert why in refusal(tmp_path, settings)


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    settings = {**configured(tmp_path), "message.max.bytes": "big", "compression.type": "rar"}
    said = refusal(tmp_path, settings)
    assert "message.max.bytes" in said
    assert "compression.type" in said


def test_without_a_node_id(tmp_path: Path) -> None:
    settings = configured(tmp_path)
    del settings["node.id"]
    assert "node.id must be set" in refusal(tmp_path, settings)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00noise", b"node.id=1\\", b"\\u12"])
def test_properties_that_are_none(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(content)
    refusal_of(file)


def test_no_file_and_a_directory(tmp_path: Path) -> None:
    assert str(tmp_path / "none") in refusal_of(tmp_path / "none")
    assert str(tmp_path) in refusal_of(tmp_path)


# --------------------------------------------------------------------- beside a running node


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ProcessCluster]:
    cluster = ProcessCluster(tmp_path / "cluster", controllers=1, brokers=1)
    await cluster.start()
    try:
        async with client_of(cluster) as client:
            await client.create_topic("t", replication_factor=1)
            await client.produce_until_acknowledged("t", b"before")
            yield cluster
            await client.produce("t", b"after", broker=101)
            assert len(await client.check_promises("t")) == 2
    finally:
        await cluster.stop()


def a_second(cluster: ProcessCluster, directory: Path, **changes: str) -> dict[str, str]:
    settings = dict(cluster.nodes[101].settings)
    for key in ("listeners", "grpc.listeners"):
        settings[key] = "PLAINTEXT://127.0.0.1:0"
    settings["metrics.listener"] = ""
    settings["log.dirs"] = f"{directory}/second"
    settings.update({key.replace("_", "."): value for key, value in changes.items()})
    return settings


async def test_the_directory_of_a_running_node(cluster: ProcessCluster, tmp_path: Path) -> None:
    settings = a_second(cluster, tmp_path, log_dirs=cluster.nodes[101].settings["log.dirs"])
    said = await asyncio.to_thread(refusal, tmp_path, settings)
    assert "in use by another process" in said


async def test_a_broker_of_another_cluster(cluster: ProcessCluster, tmp_path: Path) -> None:
    settings = a_second(cluster, tmp_path, node_id="102")
    format_for(settings, "another-cluster")
    said = await asyncio.to_thread(refusal, tmp_path, settings)
    assert (
        "belong to another cluster, and this node's directories are formatted for another-cluster"
        in said
    )


async def test_a_second_broker_with_the_same_id(cluster: ProcessCluster, tmp_path: Path) -> None:
    """It is refused as long as the first one lives."""
    settings = a_second(cluster, tmp_path)
    format_for(settings, cluster.cluster_id)
    file = write_properties(tmp_path, settings)
    log = tmp_path / "second.log"
    with log.open("w") as out:
        process = subprocess.Popen(  # noqa: ASYNC220 - it starts in a moment
            [sys.executable, "-m", "cli.main", "server", str(file)], stderr=out
        )
    try:
        said = "another process is registered as broker 101 and alive"
        await until(lambda: said in log.read_text(), "the second one is refused")
        assert "give this one another node.id, or stop the other" in log.read_text()
        assert "is unfenced" not in log.read_text()
    finally:
        process.terminate()
        process.wait(30)
    assert process.returncode == 0


async def test_a_broker_without_the_listener_of_the_others(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    """Only the cluster knows by which listener its brokers reach one another."""
    alone = dict.fromkeys(("listeners", "grpc_listeners"), "ALONE://127.0.0.1:0")
    settings = a_second(cluster, tmp_path, node_id="102", **alone)
    format_for(settings, cluster.cluster_id)
    said = await asyncio.to_thread(refusal, tmp_path, settings)
    assert "broker 102 has no listener PLAINTEXT" in said
    assert "inter.broker.listener.name of broker 101" in said
