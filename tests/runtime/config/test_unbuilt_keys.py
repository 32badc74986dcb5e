"""Keys for security that is not built stop the start, so that plaintext is not served instead."""

from __future__ import annotations

import logging

import pytest

from metadata.config_keys import NODE_KEYS
from runtime.config.node import ConfigError, NodeConfig, from_settings, load
from runtime.config.unbuilt_keys import PROMISES, no_effect, refusal

MINIMAL = {"node.id": "1", "controller.quorum.voters": "1@127.0.0.1:9093"}

# The keys of Kafka's brokers that are about security and not built here
# (org.apache.kafka.common.config.*, org.apache.kafka.server.config.*), and some of older versions.
SECURITY_KEYS = [
    "config.providers",
    "delegation.token.master.key",
    "early.start.listeners",
    "password.encoder.cipher.algorithm",
    "password.encoder.iterations",
    "password.encoder.key.length",
    "password.encoder.keyfactory.algorithm",
    "password.encoder.old.secret",
    "password.encoder.secret",
    "principal.builder.class",
    "sasl.client.callback.handler.class",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.principal.to.local.rules",
    "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.mechanism",
    "sasl.mechanism.controller.protocol",
    "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.server.callback.handler.class",
    "sasl.server.max.receive.size",
    "security.providers",
    "ssl.engine.factory.class",
    "ssl.keymanager.algorithm",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
]

# Kafka's defaults that mean "none": stated, they promise nothing.
HARMLESS = {
    "delete.topic.enable": "true",
    "remote.log.storage.system.enable": "false",
    "ssl.protocol": "TLSv1.3",
}


def started(**settings: str) -> NodeConfig:
    return from_settings({**MINIMAL, **settings})


def fault(settings: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        started(**settings)
    return str(caught.value)


@pytest.mark.parametrize("name", SECURITY_KEYS)
def test_every_security_key_is_refused(name: str) -> None:
    said = fault({name: "something"})
    assert f"{name} promises " in said
    assert "not built" in said
    assert "remove it" in said or "write values out" in said or "ssl.enabled.protocols" in said


@pytest.mark.parametrize("name", [key for key in SECURITY_KEYS if key.startswith(("ssl", "sasl"))])
def test_so_it_is_for_a_single_listener(name: str) -> None:
    prefixed = f"listener.name.external.{name}"
    assert f"{prefixed} promises " in fault({prefixed: "something"})


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("ssl.client.auht", "ssl.client.auth"),
        ("ssl.keystor.location", "ssl.keystore.location"),
        ("listener.name.plaintext.ssl.client.auht", "listener.name.plaintext.ssl.client.auth"),
        ("sasl.enabled.mechanism", "sasl.enabled.mechanisms"),
    ],
)
def test_a_typing_error_is_reported_as_one(wrong: str, right: str) -> None:
    assert f"there is no configuration {wrong}; did you mean {right}?" in fault({wrong: "x"})


def test_a_mechanism_of_one_listener() -> None:
    name = "listener.name.external.gssapi.sasl.login.class"
    assert f"{name} promises " in fault({name: "org.apache.kafka.…;"})


@pytest.mark.parametrize("name", SECURITY_KEYS)
def test_without_a_value_nothing_is_promised(name: str) -> None:
    started(**{name: " "})


@pytest.mark.parametrize(("name", "value"), HARMLESS.items())
def test_harmless_values_start(name: str, value: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        started(**{name: value})
    if name not in NODE_KEYS:
        assert caplog.text.count(name) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("create.topic.policy.class.name", "org.example.Policy"),
        ("alter.config.policy.class.name", "org.example.Policy"),
        ("delete.topic.enable", "false"),
        ("remote.log.storage.system.enable", "true"),
        ("log.dir", "/data"),
    ],
)
def test_other_promises_of_safety(name: str, value: str) -> None:
    if name not in NODE_KEYS:  # built since
        assert f"{name} promises " in fault({name: value})


def test_variables_of_the_environment_count_too() -> None:
    with pytest.raises(ConfigError, match=r"ssl\.engine\.factory\.class promises"):
        load(
            "node.id=1\ncontroller.quorum.voters=1@h:1",
            environment={"STELE_SSL_ENGINE_FACTORY_CLASS": "org.example.Factory"},
        )


def test_all_broken_promises_are_reported_at_once() -> None:
    said = fault({"ssl.provider": "/x", "security.providers": "A", "password.encoder.secret": "U"})
    for name in ("ssl.provider", "security.providers", "password.encoder.secret"):
        assert name in said


# --------------------------------------------------------------------------------- the rest


@pytest.mark.parametrize(
    "name",
    [
        "group.consumer.heartbeat.interval.ms",
        "offsets.topic.compression.codec",
        "transaction.state.log.min.isr",
        "quota.window.num",
        "num.network.threads",
        "remote.log.manager.thread.pool.size",
        "zookeeper.connect",
    ],
)
def test_what_promises_no_safety_has_no_effect_and_is_named_once(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    if name in NODE_KEYS:  # built since
        return
    with caplog.at_level(logging.WARNING):
        started(**{name: "1"})
    (record,) = caplog.records
    assert f"{name} has no effect: there " in record.getMessage()


def test_a_key_of_nobody_is_neither() -> None:
    assert refusal("broker.rak", "a") is None
    assert no_effect("broker.rak") is None


def test_every_promise_says_what_to_do() -> None:
    for promise in PROMISES:
        assert "\n" not in promise.remedy
        assert promise.remedy.startswith(("remove", "write", "name"))
