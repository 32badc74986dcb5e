"""Failed handshakes and logins, and refused certificates, in the audit log."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.server import write_audit
from runtime.audit_events import CONNECTIONS, audit_failed_connection, host_of
from runtime.log_format import AUDIT_LOGGER
from runtime.real.tls_listener import RealServerTls
from runtime.real.tls_transport import Failure
from security.audit import Event
from stele.security.client_security import Store
from tests.runtime.real.test_tls_fragments import Inline
from tests.support.logins import World
from tests.support.tls import AUTHORITY, in_files, listener, overwrite


@pytest.fixture
def audit_file(tmp_path: Path) -> Iterator[Path]:
    loggers = [logging.getLogger(name) for name in (AUDIT_LOGGER, CONNECTIONS)]
    before = [(each.level, each.propagate, [*each.handlers]) for each in loggers]
    file = tmp_path / "audit.log"
    write_audit(str(file))
    yield file
    for each, (level, propagate, handlers) in zip(loggers, before, strict=True):
        for handler in set(each.handlers) - set(handlers):
            each.removeHandler(handler)
            handler.close()
        each.setLevel(level)
        each.propagate = propagate


class Client:
    peer = "10.0.0.9:7000"
    listener_name = "SASL"


def events(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def fail(tls: RealServerTls) -> None:
    tls.failed(Failure.NOT_TLS, ("10.0.0.7", 40522), b"GET / HTTP", "")


def test_a_failed_handshake(audit_file: Path) -> None:
    fail(RealServerTls(listener(), Inline()))
    (event,) = events(audit_file)
    assert (event["event"], event["host"], event["left_out"]) == ("tls_failed", "10.0.0.7", 0)
    assert "it speaks HTTP" in str(event["reason"])


async def test_a_refused_certificate_and_the_next_one(audit_file: Path, tmp_path: Path) -> None:
    file = in_files(tmp_path, AUTHORITY.key_store("localhost"))
    tls = RealServerTls(listener(keystore=file), Inline())
    overwrite(file, Store(key="half writ"))
    await tls.refresh()
    await tls.refresh()
    overwrite(file, AUTHORITY.key_store("localhost"))
    await tls.refresh()
    assert [each["event"] for each in events(audit_file)] == [
        "certificate_refused",
        "certificate_exchanged",
    ]


async def test_failed_logins_that_follow_at_once_are_one_line(audit_file: Path) -> None:
    world = World()
    for _ in range(3):
        world.logins.log_failure(Client(), "failed to log in by PLAIN: wrong password")
    (event,) = events(audit_file)
    assert (event["event"], event["listener"], event["host"]) == (
        "login_failed",
        "SASL",
        "10.0.0.9",
    )
    assert event["reason"] == "failed to log in by PLAIN: wrong password"


def test_without_an_audit_file_a_failed_connection_is_in_the_nodes_log_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    fail(RealServerTls(listener(), Inline()))
    assert [each.name for each in caplog.records] == ["runtime.real.tls_listener"]
    assert "tls_failed" not in caplog.text
    audit_failed_connection(Event.LOGIN_FAILED, "A", "h", "no", time_ms=1, left_out=0)
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("10.0.0.7:40522", "10.0.0.7"),
        ("10.0.0.7", "10.0.0.7"),
        ("[::1]:40522", "::1"),
        ("fe80::5:7", "fe80::5:7"),
        ("unknown", "unknown"),
    ],
)
def test_the_host_of_a_peer(peer: str, host: str) -> None:
    assert host_of(peer) == host
