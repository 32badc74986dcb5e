"""The certificates of a node's listeners: what is read, warned of, counted and exchanged."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import cast

import pytest

from runtime.config.security import ListenerSecurity
from runtime.metrics.registry import MetricsRegistry
from runtime.tls import listeners
from runtime.tls.listeners import TlsListeners
from stele.addresses import SecurityProtocol
from stele.errors import ConfigError
from stele.security.client_security import Store, TlsSettings
from stele.world import Clock
from tests.support.timing import until
from tests.support.tls import AUTHORITY
from world.network import IdentityError, Network, ServerTlsSettings

DAY_MS = 24 * 3600 * 1000


class FakeTls:
    """A listener's certificate that names ``broker-1`` and ends at a time that the test sets."""

    def __init__(self, settings: ServerTlsSettings) -> None:
        self.settings = settings
        self.valid_until_ms = 100 * DAY_MS
        self.handshakes = 0
        self.failures: dict[str, int] = {}
        self.refusal: str | None = None
        self.refreshed = 0
        self.fails = False
        self.exchanged: list[TlsSettings] = []

    def names_host(self, host: str) -> bool:
        return host == "broker-1"

    async def refresh(self) -> None:
        self.refreshed += 1
        if self.fails:
            raise RuntimeError("unexpected")

    async def exchange(self, tls: TlsSettings) -> str | None:
        self.exchanged.append(tls)
        return None

    async def why_not(self, tls: TlsSettings) -> str | None:
        return "it does not fit"


class FakeNetwork:
    def __init__(self) -> None:
        self.made: list[FakeTls] = []

    def server_tls(self, settings: ServerTlsSettings) -> FakeTls:
        self.made.append(FakeTls(settings))
        return self.made[-1]


class FakeClock:
    now_ms = 0

    def time_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000


class Bench:
    def __init__(self) -> None:
        self.network, self.clock, self.registry = FakeNetwork(), FakeClock(), MetricsRegistry()
        self.listeners = TlsListeners(
            cast(Network, self.network), cast(Clock, self.clock), self.registry
        )

    def add(self, name: str, *hosts: str, protocol: str = "SSL", **values: str) -> FakeTls:
        own = {("", key.replace("_", ".")): value for key, value in values.items()}
        security = ListenerSecurity(name, SecurityProtocol(protocol), own)
        self.listeners.add(security, hosts)
        return self.network.made[-1]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_listener_without_tls_reads_nothing(bench: Bench) -> None:
    for protocol in (SecurityProtocol.PLAINTEXT, SecurityProtocol.SASL_PLAINTEXT):
        bench.listeners.add(ListenerSecurity("PLAIN", protocol), ["x"])
    assert bench.network.made == []
    assert bench.listeners.of("PLAIN") is None


def test_a_listener_has_its_own_settings(bench: Bench) -> None:
    made = bench.add(
        "Clients",
        ssl_client_auth="required",
        ssl_keystore_location="/own.pem",
        ssl_allow_san_changes="true",
    )
    assert bench.listeners.of("Clients") is made
    settings = made.settings
    assert settings.listener == "Clients"
    assert settings.client_auth == "required"
    assert settings.tls.keystore.location == "/own.pem"
    assert (settings.allows_dn_changes, settings.allows_san_changes) == (False, True)
    assert settings.named("ssl.key.password") == "listener.name.clients.ssl.key.password"


def der() -> bytes:
    store = AUTHORITY.key_store("a", common_name="app")
    assert store.certificates is not None
    return ssl.PEM_cert_to_DER_cert(store.certificates)


def test_a_certificate_gives_the_principal_by_the_mapping_rules(bench: Bench) -> None:
    plain = bench.add("A").settings
    assert plain.principal_of(der()) == "User:CN=app"
    assert plain.principal_of(None) == "User:ANONYMOUS"
    mapped = bench.add("B", ssl_principal_mapping_rules="RULE:CN=(a.*)/$1/U").settings
    assert mapped.principal_of(der()) == "User:APP"
    unmatched = bench.add("C", ssl_principal_mapping_rules="RULE:x/y/").settings
    with pytest.raises(IdentityError, match=r"no rule of ssl\.principal\.mapping\.rules"):
        unmatched.principal_of(der())
    with pytest.raises(IdentityError, match="not one certificate"):
        plain.principal_of(b"")
    login = bench.add("D", protocol="SASL_SSL").settings
    assert login.principal_of(der()) == "User:ANONYMOUS"


def test_rules_that_cannot_be_read_keep_the_node_from_starting(bench: Bench) -> None:
    with pytest.raises(ConfigError, match=r"listener A: ssl\.principal\.mapping\.rules: 'x' is"):
        bench.add("A", ssl_principal_mapping_rules="x")


def test_advertised_hosts_that_the_certificate_lacks_are_warned_of(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.add("A", "broker-1", "other", "other")
    (line,) = caplog.messages
    assert "listener A is advertised at other, which its certificate does not name" in line


async def test_an_end_that_comes_is_logged_once_a_day(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "LOOK_S", 0.001)
    made = bench.add("A")
    with caplog.at_level(logging.WARNING):
        bench.listeners.start()

        async def days(left: float) -> list[str]:
            caplog.clear()
            bench.clock.now_ms = int(made.valid_until_ms - left * DAY_MS)
            before = made.refreshed
            await until(lambda: made.refreshed >= before + 3)
            return list(caplog.messages)

        assert await days(30.5) == []
        assert await days(29.9) == ["the certificate of listener A ends in 29 days"]
        assert await days(29.1) == []
        assert await days(0.5) == ["the certificate of listener A ends in 0 days"]
        assert await days(-0.5) == ["the certificate of listener A has expired: clients refuse it"]
        assert await days(90) == []
        assert await days(29.5) == ["the certificate of listener A ends in 29 days"]
    await bench.listeners.stop()
    seen = made.refreshed
    await asyncio.sleep(0.01)
    assert made.refreshed == seen


def test_a_short_life_is_logged_at_the_start(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        bench.clock.now_ms = 95 * DAY_MS
        bench.add("A")
        bench.listeners.start()
        await bench.listeners.stop()

    asyncio.run(run())
    assert "the certificate of listener A ends in 5 days" in caplog.messages


async def test_a_look_that_fails_ends_no_other(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "LOOK_S", 0.001)
    one, two = bench.add("A"), bench.add("B")
    one.fails = True
    bench.listeners.start()
    await until(lambda: one.refreshed > 2 and two.refreshed > 2)
    await bench.listeners.stop()
    assert "looking at the certificate of listener A failed" in caplog.text


async def test_another_store_is_for_the_listener_of_its_name(bench: Bench) -> None:
    made = bench.add("A")
    tls = TlsSettings(keystore=Store(location="/new.pem"))
    assert await bench.listeners.exchange("A", tls) is None
    assert made.exchanged == [tls]
    assert await bench.listeners.exchange("B", tls) == "listener B has no TLS"
    assert await bench.listeners.why_not("A", tls) == "it does not fit"
    assert await bench.listeners.why_not("B", tls) == "listener B has no TLS"


def test_what_happened_is_in_the_metrics(bench: Bench) -> None:
    one, two = bench.add("A"), bench.add("B")
    bench.clock.now_ms = 40 * DAY_MS
    one.failures, two.failures = {"timeout": 2, "tls": 1}, {"tls": 4}
    one.handshakes, two.refusal = 7, "it does not fit"
    values = bench.registry.values()
    assert values['stele_tls_certificate_days_left{listener="A"}'] == 60
    assert values['stele_tls_handshakes_total{listener="A"}'] == 7
    assert values['stele_tls_failures_total{reason="tls"}'] == 5
    assert values['stele_tls_failures_total{reason="timeout"}'] == 2
    assert values['stele_tls_exchange_refused{listener="A"}'] == 0
    assert values['stele_tls_exchange_refused{listener="B"}'] == 1
