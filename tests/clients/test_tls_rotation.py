"""Certificates that are exchanged while clients produce."""

from __future__ import annotations

import asyncio
import datetime
import importlib
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from cli import main
from runtime.tls import listeners
from security.node_identity import node_uri
from stele.admin.descriptions import ConfigResource, NewTopic
from stele.aio import Admin, Producer
from stele.security.client_security import Store
from tests.support.secure_cluster import SecureCluster, secure_cluster
from tests.support.timing import until
from tests.support.tls import AUTHORITY, overwrite

NAMES = ("127.0.0.1", "localhost", node_uri(1))


def served(port: int) -> x509.Certificate:
    return x509.load_pem_x509_certificate(ssl.get_server_certificate(("127.0.0.1", port)).encode())


def renewed(*names: str, days: int = 90) -> Store:
    valid_for = datetime.timedelta(days=days)
    return AUTHORITY.key_store(*(names or NAMES), common_name="node-1", valid_for=valid_for)


def own_file(cluster: SecureCluster) -> Store:
    return Store(location=str(cluster.folder / "node-1.pem"))


def is_logged(caplog: pytest.LogCaptureFixture, said: str) -> bool:
    begin = "listener SSL goes on with its old certificate"
    return any(begin in line and said in line for line in caplog.messages)


async def test_a_changed_file_is_served_to_new_connections_and_old_ones_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listeners, "LOOK_S", 0.1)
    async with secure_cluster(tmp_path, client_auth="none") as cluster:
        (node,) = cluster.nodes
        port = node.ports.kafka["SSL"]
        before = await asyncio.to_thread(served, port)
        options = {"security_protocol": "SSL", "ssl_truststore_location": cluster.ca_file}
        async with (
            Admin(cluster.bootstrap, **options) as admin,  # type: ignore[arg-type]
            Producer(cluster.bootstrap, **options) as producer,  # type: ignore[arg-type]
        ):
            await admin.create_topics([NewTopic("t", 1, 1)])
            await producer.send("t", b"1")

            def refused() -> float:
                name = 'stele_tls_exchange_refused{listener="SSL"}'
                return node.registry.values()[name]

            for bad, said in (
                (Store(key="half writ"), "is neither PEM nor PKCS12"),
                (renewed("localhost"), "lacks the names IP:127.0.0.1"),
                (renewed(days=-1), "the new certificate expired"),
            ):
                caplog.clear()
                overwrite(own_file(cluster), bad)
                await until(lambda: is_logged(caplog, said))  # noqa: B023
                assert refused() == 1
                told = (await admin.describe_certificates())[1]
                assert [each.listener for each in told] == ["CONTROLLER", "SSL"]
                assert said in (told[1].refusal or "")
                ends_s = before.not_valid_after_utc.timestamp()
                assert told[1].valid_until_ms == ends_s * 1000
                assert await asyncio.to_thread(served, port) == before
                await producer.send("t", b"2")
            good = renewed()
            overwrite(own_file(cluster), good)
            await until(lambda: refused() == 0)
            told = (await admin.describe_certificates([1]))[1]
            assert told[1].refusal is None
            assert good.certificates is not None
            now = await asyncio.to_thread(served, port)
            assert now == x509.load_pem_x509_certificate(good.certificates.encode())
            await producer.send("t", b"3")
        async with Producer(cluster.bootstrap, **options) as producer:  # type: ignore[arg-type]
            await producer.send("t", b"4")


async def test_the_doctor_tells_of_a_certificate_that_a_listener_has_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(listeners, "LOOK_S", 0.1)
    properties = tmp_path / "client.properties"
    async with secure_cluster(tmp_path, client_auth="none") as cluster:
        (node,) = cluster.nodes
        properties.write_text(f"security.protocol=SSL\nssl.truststore.location={cluster.ca_file}\n")
        command = ["doctor", "-b", cluster.bootstrap, "--command-config", str(properties)]

        async def examined() -> list[dict[str, str]]:
            capsys.readouterr()
            await asyncio.to_thread(main.run, [*command, "--json"])
            found: list[dict[str, str]] = json.loads(capsys.readouterr().out)
            return [each for each in found if "listener" in each["where"]]

        assert await examined() == []
        overwrite(own_file(cluster), renewed("localhost"))
        name = 'stele_tls_exchange_refused{listener="SSL"}'
        await until(lambda: node.registry.values()[name] == 1)
        *_, told = await examined()
        assert (told["level"], told["where"]) == ("problem", "broker 1, listener SSL")
        assert "lacks the names IP:127.0.0.1" in told["what"]


async def test_a_broker_takes_another_store_from_its_configuration(tmp_path: Path) -> None:
    async with secure_cluster(tmp_path, client_auth="none") as cluster:
        (node,) = cluster.nodes
        port = node.ports.kafka["SSL"]
        options = {"security_protocol": "SSL", "ssl_truststore_location": cluster.ca_file}
        key = "listener.name.ssl.ssl.keystore.location"
        async with Admin(cluster.bootstrap, **options) as admin:  # type: ignore[arg-type]
            other = Store(location=str(tmp_path / "other.pem"))
            first, second = renewed(), renewed()
            original = pem(await asyncio.to_thread(served, port))
            overwrite(other, first)
            broker = ConfigResource.broker(1)
            await admin.alter_configs({broker: {key: other.location}})
            await served_becomes(port, first)
            # The same value again: the file is read again.
            overwrite(other, second)
            await admin.alter_configs({broker: {key: other.location}})
            await served_becomes(port, second)
            await admin.alter_configs({broker: {key: None}})
            await served_becomes(port, Store(certificates=original))


async def test_a_store_that_does_not_fit_is_refused_by_the_broker_that_is_asked(
    tmp_path: Path,
) -> None:
    confluent: Any = importlib.import_module("confluent_kafka.admin")

    async with secure_cluster(tmp_path, client_auth="none") as cluster:
        at = {
            "bootstrap.servers": cluster.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": cluster.ca_file,
            "ssl.endpoint.identification.algorithm": "none",
        }
        bad = Store(location=str(tmp_path / "bad.pem"))
        overwrite(bad, renewed("localhost"))

        def alter(listener: str) -> None:
            entry = confluent.ConfigEntry(
                f"listener.name.{listener}.ssl.keystore.location",
                bad.location,
                incremental_operation=confluent.AlterConfigOpType.SET,
            )
            resource = confluent.ConfigResource(
                confluent.ConfigResource.Type.BROKER, "1", incremental_configs=[entry]
            )
            admin = confluent.AdminClient(at)
            (done,) = admin.incremental_alter_configs([resource]).values()
            done.result(20)

        with pytest.raises(confluent.KafkaException, match=r"lacks the names IP:127\.0\.0\.1"):
            await asyncio.to_thread(alter, "ssl")
        with pytest.raises(confluent.KafkaException, match="there is no listener other"):
            await asyncio.to_thread(alter, "other")


def certificate(store: Store) -> x509.Certificate:
    assert store.certificates is not None
    return x509.load_pem_x509_certificate(store.certificates.encode())


def pem(of: x509.Certificate) -> str:
    return of.public_bytes(Encoding.PEM).decode()


async def served_becomes(port: int, store: Store) -> None:
    for _ in range(100):
        if await asyncio.to_thread(served, port) == certificate(store):
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the certificate was not exchanged")
