"""The options of a client about security, as one value or as an error that says what to change."""

from __future__ import annotations

from typing import Any

import pytest

from stele.addresses import SecurityProtocol
from stele.config import ClientConfig
from stele.errors import ConfigError
from stele.security.client_security import PLAINTEXT, ClientSecurity
from stele.security.options import SecurityConfig, SecurityOptions
from stele.security.token_endpoint import ClientCredentials, TokenEndpoint

SCRAM: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "u",
    "sasl_password": "hidden",
}


def security(**options: Any) -> ClientSecurity:
    return ClientConfig.of("127.0.0.1:9092", options).client_security()


def fault(**options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        security(**options)
    return str(caught.value)


def test_plaintext_by_default() -> None:
    assert security() == PLAINTEXT


def test_tls_with_files() -> None:
    found = security(
        security_protocol="SSL",
        ssl_truststore_location="/ca.pem",
        ssl_keystore_location="/me.p12",
        ssl_keystore_password="hidden",
        ssl_enabled_protocols="TLSv1.3",
        ssl_endpoint_identification_algorithm="",
    )
    assert found.protocol is SecurityProtocol.SSL
    assert found.tls.truststore.location == "/ca.pem"
    assert found.tls.keystore.password == "hidden"
    assert found.tls.enabled_protocols == ("TLSv1.3",)
    assert not found.tls.checks_host_name
    assert found.sasl is None
    assert "hidden" not in repr(found)


def test_a_user_and_a_password() -> None:
    found = security(**SCRAM).sasl
    assert found is not None
    assert (found.mechanism, found.username, found.password) == ("SCRAM-SHA-256", "u", "hidden")
    assert "hidden" not in repr(ClientConfig.of("h:1", SCRAM)) + repr(found)


def test_the_text_of_kafkas_login_module() -> None:
    jaas = 'org.apache.kafka.ScramLoginModule required username="u" password="p" tokenauth="true";'
    options = {**SCRAM, "sasl_username": None, "sasl_password": None, "sasl_jaas_config": jaas}
    found = security(**options).sasl
    assert found is not None
    assert (found.username, found.password, found.is_delegation_token) == ("u", "p", True)


def test_a_token_as_text_or_by_a_function() -> None:
    bearer = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
    for token in ("abc", lambda: "abc"):
        found = security(**bearer, sasl_oauthbearer_token=token).sasl
        assert found is not None
        assert found.token is not None
        assert found.token() == "abc"
    assert "needs sasl_oauthbearer_token or sasl_oauthbearer_token_endpoint_url" in fault(**bearer)


def test_a_client_asks_an_issuer_for_its_tokens() -> None:
    bearer = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": "https://issuer/token",
    }
    name = "sasl_oauthbearer_client_credentials_client"
    assert f"set {name}_id, or clientId in sasl_jaas_config" in fault(**bearer)
    assert "set only one" in fault(**bearer, sasl_oauthbearer_token="abc")
    jaas = 'OAuthBearerLoginModule required clientId="app" clientSecret="hidden" scope="s";'
    keys = {f"{name}_id": "app", f"{name}_secret": "hidden", "sasl_oauthbearer_scope": "s"}
    for told in (keys, {"sasl_jaas_config": jaas}):
        found = security(**bearer, **told).sasl
        assert found is not None
        credentials = ClientCredentials("app", "hidden", "s")
        assert found.token == TokenEndpoint("https://issuer/token", credentials)
        assert "hidden" not in repr(ClientConfig.of("h:1", {**bearer, **told})) + repr(found)


def test_an_unknown_protocol() -> None:
    said = fault(security_protocol="TLS")
    assert said == (
        "security_protocol='TLS' must be one of: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"
    )


@pytest.mark.parametrize("mechanism", [None, "GSSAPI", "scram-sha-256"])
def test_an_unknown_mechanism(mechanism: str | None) -> None:
    said = fault(**{**SCRAM, "sasl_mechanism": mechanism})
    assert f"sasl_mechanism={mechanism!r}" in said
    assert "SCRAM-SHA-512" in said
    assert ("GSSAPI is not built" in said) == (mechanism == "GSSAPI")


@pytest.mark.parametrize("missing", ["sasl_username", "sasl_password"])
def test_a_missing_credential(missing: str) -> None:
    assert f"needs {missing}" in fault(**{**SCRAM, missing: None})


@pytest.mark.parametrize(
    "name", [name for name in SecurityOptions.__annotations__ if name != "security_protocol"]
)
def test_an_option_without_effect_is_a_mistake(name: str) -> None:
    """The error names every option that the chosen protocol does not use."""
    default = getattr(SecurityConfig(), name)
    value = "" if name.endswith("algorithm") else "TLSv1.3"
    assert value != default
    said = fault(**{name: value})
    assert f"{name} has no effect with security_protocol=PLAINTEXT" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ssl_keystore_key": "k"}, "ssl_keystore_certificate_chain: set both or none"),
        ({"ssl_keystore_certificate_chain": "c"}, "set both or none"),
        (
            {
                "ssl_keystore_location": "/x",
                "ssl_keystore_key": "k",
                "ssl_keystore_certificate_chain": "c",
            },
            "set only one of them",
        ),
        (
            {"ssl_truststore_location": "/x", "ssl_truststore_certificates": "c"},
            "set only one of them",
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "PLAIN",
                "sasl_password": "one",
                "sasl_jaas_config": 'M required username="u" password="two";',
            },
            "sasl_password and sasl_jaas_config say two different things",
        ),
        ({"ssl_enabled_protocols": "TLSv1.1"}, "'TLSv1.1' must be one of: TLSv1.2, TLSv1.3"),
        ({"ssl_endpoint_identification_algorithm": "http"}, "must be 'https' or ''"),
    ],
)
def test_options_that_contradict_one_another(options: dict[str, str], said: str) -> None:
    assert said in fault(**{"security_protocol": "SSL", **options})


def test_kafkas_names_are_understood_as_a_hint() -> None:
    assert "did you mean ssl_truststore_location?" in fault(**{"ssl.truststore.location": "/x"})
