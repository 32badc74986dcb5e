"""The security of a node's listeners, as its configuration says it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from metadata.security_settings import LISTENER_KEYS
from runtime.config.node import ConfigError, NodeConfig, from_settings, load
from runtime.config.security import listener_key, security_table
from stele.addresses import SecurityProtocol
from stele.security.token_endpoint import ClientCredentials, TokenEndpoint

MINIMAL = {"node.id": "1", "controller.quorum.voters": "1@127.0.0.1:9093"}
SECURE = {
    "listeners": "IN://h:1,OUT://h:2",
    "grpc.listeners": "IN://h:3,OUT://h:4",
    "listener.security.protocol.map": "IN:SSL,OUT:SASL_SSL,CONTROLLER:SSL",
    "ssl.keystore.location": "/all.pem",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
}
PROTOCOL = {"security.inter.broker.protocol": "SASL_SSL"}


def started(**settings: str) -> NodeConfig:
    return from_settings({**MINIMAL, **settings})


def fault(settings: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        started(**settings)
    return str(caught.value)


# ----------------------------------------------------------------------- protocols of listeners


@pytest.mark.parametrize("name", ["CLIENT_TLS", "MY_SSL", "INTERNAL_SASL"])
def test_a_name_that_promises_security_needs_a_protocol(name: str) -> None:
    said = fault({"listeners": f"{name}://h:1", "grpc.listeners": f"{name}://h:2"})
    assert f"listener {name} promises security by its name" in said
    assert "listener.security.protocol.map" in said


def test_a_name_that_promises_security_may_be_mapped_to_plaintext() -> None:
    both = {"listeners": "MY_SSL://h:1", "grpc.listeners": "MY_SSL://h:2"}
    config = started(**{**both, "listener.security.protocol.map": "MY_SSL:PLAINTEXT"})
    assert config.security.listeners["MY_SSL"].protocol is SecurityProtocol.PLAINTEXT


def test_the_map_names_protocols_that_exist() -> None:
    for wrong in ("OUTSIDE", "OUTSIDE:TLS", ":SSL"):
        said = fault({"listener.security.protocol.map": wrong})
        assert f"{wrong!r} is not NAME:PROTOCOL" in said
        assert said.count("NAME:PROTOCOL") == 1


def test_the_map_of_kafkas_own_file_promises_nothing_by_itself() -> None:
    mapped = (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,"
        "SASL_SSL:SASL_SSL"
    )
    started(**{"listener.security.protocol.map": mapped})


@pytest.mark.parametrize("name", ["SSL", "ssl", "SASL_SSL"])
def test_a_listener_called_like_a_protocol_has_it(name: str) -> None:
    both = {"listeners": f"IN://h:1,{name}://h:2", "grpc.listeners": f"IN://h:3,{name}://h:4"}
    mapped = {"listener.security.protocol.map": "IN:SASL_SSL"}
    mechanism = {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"}
    config = started(**{**SECURE, **both, **mapped, **mechanism})
    assert config.security.listeners[name].protocol is SecurityProtocol[name.upper()]


def test_what_is_not_built_does_not_start() -> None:
    for protocol in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL):
        said = fault({"listener.security.protocol.map": f"CONTROLLER:{protocol.value}"})
        assert f"listener CONTROLLER is {protocol.value}, but controllers cannot" in said
        assert "CONTROLLER:SSL in listener.security.protocol.map" in said
        assert "listener.name.controller.ssl.client.auth=required" in said


def test_a_secure_listener_without_a_certificate_does_not_start() -> None:
    settings = {**SECURE, "ssl.keystore.location": ""}
    said = fault(settings)
    assert "listener IN is SSL without a certificate" in said
    assert "listener.name.out.ssl.keystore.location" in said


def test_a_sasl_listener_without_a_mechanism_does_not_start() -> None:
    said = fault({**SECURE, "sasl.enabled.mechanisms": ""})
    assert "listener OUT is SASL_SSL: set sasl.enabled.mechanisms" in said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ssl.keystore.location", "/x"),
        ("listener.name.plaintext.ssl.keystore.location", "/x"),
        ("ssl.client.auth", "required"),
        ("sasl.enabled.mechanisms", "PLAIN"),
    ],
)
def test_a_key_that_protects_no_listener_does_not_start(name: str, value: str) -> None:
    assert f"{name} protects nothing" in fault({name: value})


@pytest.mark.parametrize("key", LISTENER_KEYS, ids=lambda key: key.name)
def test_a_default_protects_nothing_and_starts(key: object) -> None:
    started(**{key.name: key.default})  # type: ignore[attr-defined]


# ----------------------------------------------------------------------------- inter-broker


def test_the_inter_broker_listener_by_its_protocol() -> None:
    wanted = PROTOCOL
    mechanism = {
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "sasl.jaas.config": 'M required username="b" password="p";',
    }
    config = started(**{**SECURE, **wanted, **mechanism})
    assert config.inter_broker_listener_name == "OUT"
    assert config.security.to_brokers.protocol is SecurityProtocol.SASL_SSL
    credentials = config.security.to_brokers.sasl
    assert credentials is not None
    assert (credentials.mechanism, credentials.username) == ("SCRAM-SHA-512", "b")
    assert "set sasl.mechanism.inter.broker.protocol" in fault({**SECURE, **wanted})


def test_the_inter_broker_listener_is_said_once() -> None:
    said = fault({**SECURE, "inter.broker.listener.name": "IN", **PROTOCOL})
    assert "inter.broker.listener.name: set only one" in said


def test_no_listener_has_the_inter_broker_protocol() -> None:
    said = fault({"security.inter.broker.protocol": "SSL"})
    assert "security.inter.broker.protocol=SSL: no listener has this security protocol" in said
    started(**{"security.inter.broker.protocol": "PLAINTEXT"})


# --------------------------------------------------------------------------------- prefixes


def test_the_parts_of_a_key() -> None:
    parts = listener_key("listener.name.My_Net.scram-sha-256.sasl.jaas.config")
    assert parts is not None
    assert parts[:2] == ("my_net", "scram-sha-256")
    assert parts.key.name == "sasl.jaas.config"
    parts = listener_key("listener.name.a.b.ssl.client.auth")
    assert parts is not None
    assert parts[:2] == ("a.b", "")
    assert listener_key("ssl.client.auth") is None
    assert listener_key("listener.name.in.max.connections") is None
    assert listener_key("listener.name.in.ssl.engine.factory.class") is None


def test_the_longest_prefix_wins() -> None:
    config = started(
        **{
            **SECURE,
            "listener.name.out.ssl.keystore.location": "/out.pem",
            "sasl.jaas.config": "A required;",
            "listener.name.out.sasl.jaas.config": 'B required username="b";',
            "listener.name.out.plain.sasl.jaas.config": 'C required username="c";',
        }
    )
    inner, outer = config.security.listeners["IN"], config.security.listeners["OUT"]
    assert inner.tls.keystore.location == "/all.pem"
    assert outer.tls.keystore.location == "/out.pem"
    assert outer.jaas("PLAIN") == {"username": "c"}
    assert outer.jaas("SCRAM-SHA-512") == {"username": "b"}
    assert inner.mechanisms == ()
    assert outer.mechanisms == ("SCRAM-SHA-512",)


def test_a_prefix_of_no_listener() -> None:
    said = fault({**SECURE, "listener.name.outside.ssl.client.auth": "required"})
    assert "listener.name.outside.ssl.client.auth: there is no such listener" in said
    assert "controller, in, out" in said


def test_a_value_behind_a_prefix_is_checked() -> None:
    said = fault({**SECURE, "listener.name.in.ssl.client.auth": "maybe"})
    assert "listener.name.in.ssl.client.auth=maybe: it must be one of required" in said


@pytest.mark.parametrize("key", ["ssl.keystore.type", "ssl.truststore.type"])
def test_a_java_keystore_is_refused_with_a_way_out(key: str) -> None:
    said = fault({**SECURE, key: "JKS"})
    assert f"{key}=JKS: convert the store to PKCS12, or to PEM" in said


def test_kerberos_is_refused_by_name() -> None:
    for key in ("sasl.enabled.mechanisms", "sasl.mechanism.inter.broker.protocol"):
        said = fault({key: "GSSAPI"})
        assert f"{key}=GSSAPI: Kerberos is not built: use SCRAM-SHA-512, or OAUTHBEARER" in said


def test_environment_variables_protect_too() -> None:
    text = "\n".join(f"{key}={value}" for key, value in {**MINIMAL, **SECURE}.items())
    config = load(text, environment={"STELE_SSL_CLIENT_AUTH": "required"})
    assert config.security.listeners["IN"].client_auth == "required"


# ----------------------------------------------------------------------------------- showing


def test_no_secret_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    secrets = {
        "ssl.keystore.password": "hidden-1",
        "ssl.key.password": "hidden-2",
        "sasl.jaas.config": 'A required username="u" password="hidden-3";',
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "inter.broker.listener.name": "OUT",
    }
    with caplog.at_level(logging.DEBUG):
        config = started(**{**SECURE, **secrets})
    assert "hidden" not in repr(config.security) + caplog.text
    assert config.security.to_brokers.sasl is not None
    assert config.security.to_brokers.sasl.password == "hidden-3"


def test_the_table_of_listeners() -> None:
    config = started(**{**SECURE, "listener.name.in.ssl.client.auth": "required"})
    assert list(security_table(config.security, True, True)) == [
        "listener IN: SSL; client certificates required",
        "listener OUT: SASL_SSL; client certificates none; mechanisms SCRAM-SHA-512",
        "listener CONTROLLER: SSL; client certificates none",
    ]


# ----------------------------------------------------------------------------------- mechanisms

SASL = {
    "listeners": "OUT://h:1",
    "grpc.listeners": "OUT://h:2",
    "listener.security.protocol.map": "OUT:SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
}
USERS = 'x.PlainLoginModule required username="n" password="p" user_n="p" user_a="b=c";'


def test_plain_needs_users_or_the_scram_credentials() -> None:
    settings = {**SASL, "sasl.enabled.mechanisms": "PLAIN"}
    assert "has the mechanism PLAIN and no user" in fault(settings)
    out = started(**settings, **{"listener.name.out.plain.sasl.jaas.config": USERS})
    assert out.security.listeners["OUT"].plain_users == {"n": "p", "a": "b=c"}
    assert out.security.to_brokers.sasl is not None
    out = started(**settings, **{"listener.name.out.plain.sasl.plain.scram.enable": "true"})
    assert out.security.listeners["OUT"].plain_users == {}


def test_oauthbearer_needs_keys_or_belief() -> None:
    settings = {
        **SASL,
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "sasl.plain.scram.enable": "true",
    }
    url, unsecured = "sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.unsecured.enable"
    assert url in fault(settings)
    assert "not both" in fault({**settings, url: "https://h/keys", unsecured: "true"})
    assert "an https or a file URL" in fault({**settings, url: "http://h/keys"})
    for accepted in ({url: "https://h/keys"}, {url: "file:/k.json"}, {unsecured: "true"}):
        started(**settings, **accepted)


def test_brokers_log_in_by_tokens_from_a_file(tmp_path: Path) -> None:
    token, key = tmp_path / "a token", "sasl.oauthbearer.token.endpoint.url"
    settings = {
        **SASL,
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": "file:/k.json",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    }
    assert f"{key}: it is not set" in fault(settings)
    sasl = started(**settings, **{key: token.as_uri()}).security.to_brokers.sasl
    assert sasl is not None
    assert sasl.token is not None
    with pytest.raises(OSError, match="a token"):
        sasl.token()
    for text in ("first", "second"):
        token.write_text(f"{text}\n")
        assert sasl.token() == text, "a renewed token counts"
    token.write_text("\n")
    with pytest.raises(ValueError, match="is empty"):
        sasl.token()


def test_brokers_log_in_by_tokens_of_an_issuer() -> None:
    name = "sasl.oauthbearer.client.credentials.client"
    settings = {
        **SASL,
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": "file:/k.json",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://issuer/token",
    }
    assert f"set {name}.id, or clientId in sasl.jaas.config" in fault(settings)
    http = {"sasl.oauthbearer.token.endpoint.url": "http://issuer/token"}
    assert "it must be an https URL" in fault({**settings, **http})
    module = 'OAuthBearerLoginModule required clientId="node" clientSecret="hidden" scope="s";'
    expected = TokenEndpoint("https://issuer/token", ClientCredentials("node", "hidden", "s"))
    for told in (
        {f"{name}.id": "node", f"{name}.secret": "hidden", "sasl.oauthbearer.scope": "s"},
        {"listener.name.out.oauthbearer.sasl.jaas.config": module},
    ):
        node = started(**settings, **told)
        assert node.security.to_brokers.sasl is not None
        assert node.security.to_brokers.sasl.token == expected
        assert "hidden" not in repr(node)


def test_the_delay_of_a_failed_login() -> None:
    assert started().security.failed_authentication_delay_ms == 100
    key = "connection.failed.authentication.delay.ms"
    assert started(**{key: "250"}).security.failed_authentication_delay_ms == 250


def test_a_controller_logs_in_at_the_listener_of_brokers() -> None:
    settings = {
        "process.roles": "controller",
        "inter.broker.listener.name": "OUT",
        "listener.security.protocol.map": "OUT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.out.plain.sasl.jaas.config": USERS,
    }
    config = started(**settings)
    assert config.security.to_brokers.sasl is not None
    assert config.security.to_brokers.sasl.username == "n"
