"""Tokens that a client asks its issuer for, of a real endpoint on loopback."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jwt
import pytest

from stele.errors import ConfigError
from stele.security.answer_content import MAX_BYTES
from stele.security.client_security import Store, TlsSettings, TokenUnavailableError
from stele.security.token_endpoint import (
    CLIENT_ID,
    CLIENT_SECRET,
    REFRESH_SHARE,
    SCOPE,
    ClientCredentials,
    TokenEndpoint,
    TokenRefusedError,
    source_of,
)
from stele.security.token_file import TokenFile
from tests.support.token_issuer import TokenIssuer, token_issuer

LIFE_S = 100
SETTINGS = {CLIENT_ID: "app", CLIENT_SECRET: "hidden"}


class Times:
    """A clock that stands still between the steps of a test."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def given(token: str = "a-token", **more: object) -> tuple[int, bytes]:
    return 200, json.dumps({"access_token": token, "expires_in": LIFE_S, **more}).encode()


@pytest.fixture
def issuer(tmp_path: Path) -> Iterator[TokenIssuer]:
    with token_issuer(tmp_path, given) as running:
        yield running


@pytest.fixture
def times() -> Times:
    return Times()


def endpoint(issuer: TokenIssuer, times: Times, scope: str = "") -> TokenEndpoint:
    trust = TlsSettings(truststore=Store(location=str(issuer.ca_file)))
    credentials = ClientCredentials("app", "hidden", scope)
    return TokenEndpoint(issuer.url, credentials, trust, times, times)


def test_the_client_shows_its_id_its_secret_and_its_scope(
    issuer: TokenIssuer, times: Times
) -> None:
    source = endpoint(issuer, times, "orders write")
    assert source() == "a-token"
    ((authorization, form),) = issuer.requests
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"app:hidden"
    assert form == {"grant_type": "client_credentials", "scope": "orders write"}
    assert "hidden" not in repr(source)
    assert endpoint(issuer, times)() == "a-token"
    assert issuer.requests[1][1] == {"grant_type": "client_credentials"}


def test_a_token_is_used_for_the_most_of_its_life(issuer: TokenIssuer, times: Times) -> None:
    source = endpoint(issuer, times)
    assert source() == "a-token"
    issuer.answer = lambda: given("the-next")
    times.now_s += LIFE_S * REFRESH_SHARE - 1
    assert source() == "a-token"
    times.now_s += 1
    assert source() == "the-next"
    assert len(issuer.requests) == 2


def test_a_token_is_used_to_its_end_while_the_issuer_is_out_of_order(
    issuer: TokenIssuer, times: Times
) -> None:
    source = endpoint(issuer, times)
    source()
    issuer.answer = lambda: (503, b"closed for today")
    times.now_s += LIFE_S - 1
    assert source() == "a-token"
    times.now_s += 1
    with pytest.raises(TokenUnavailableError, match="status 503: closed for today"):
        source()
    issuer.answer = lambda: given("the-next")
    times.now_s += 1
    assert source() == "the-next"


def test_a_token_without_expires_in_ends_when_it_says_so(issuer: TokenIssuer, times: Times) -> None:
    token = jwt.encode({"exp": times.now_s + 10}, "k" * 32)
    issuer.answer = lambda: given(token, expires_in=None)
    source = endpoint(issuer, times)
    assert [source(), source()] == [token, token]
    assert len(issuer.requests) == 1
    times.now_s += 9
    source()
    assert len(issuer.requests) == 2


@pytest.mark.parametrize("token", ["opaque", "a.b.c", f"a.{base64.b64encode(b'[]').decode()}.c"])
def test_a_token_of_unknown_life_is_shown_once(
    issuer: TokenIssuer, times: Times, token: str
) -> None:
    issuer.answer = lambda: given(token, expires_in=None)
    source = endpoint(issuer, times)
    assert [source(), source()] == [token, token]
    assert len(issuer.requests) == 2


def test_expires_in_may_be_a_text(issuer: TokenIssuer, times: Times) -> None:
    issuer.answer = lambda: given(expires_in="100")
    source = endpoint(issuer, times)
    source()
    source()
    assert len(issuer.requests) == 1


@pytest.mark.parametrize(
    ("status", "content", "said"),
    [
        (401, b'{"error": "invalid_client"}', "status 401: .*invalid_client.*client id 'app'"),
        (302, b"", "status 302"),
        (200, b"<html>", "no JSON object with access_token"),
        (200, b"[]", "no JSON object with access_token"),
        (200, b'{"access_token": 7}', "not a text that can be sent"),
        (200, b'{"access_token": "a\\u0001b"}', "not a text that can be sent"),
        (200, b'{"access_token": ""}', "is empty"),
        (200, b" " * (MAX_BYTES + 1), "more than"),
    ],
)
def test_a_refusal_is_final_and_shows_no_secret(
    issuer: TokenIssuer, times: Times, status: int, content: bytes, said: str
) -> None:
    issuer.answer = lambda: (status, content)
    with pytest.raises(TokenRefusedError, match=said) as caught:
        endpoint(issuer, times)()
    assert issuer.url in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert len(issuer.requests) == 1, "the secret goes to no other URL"


@pytest.mark.parametrize("status", [408, 429, 500])
def test_trouble_of_the_issuer_may_pass(issuer: TokenIssuer, times: Times, status: int) -> None:
    issuer.answer = lambda: (status, b"")
    with pytest.raises(TokenUnavailableError, match=f"status {status}"):
        endpoint(issuer, times)()


def test_an_issuer_that_is_not_there(issuer: TokenIssuer, times: Times) -> None:
    trust = TlsSettings(truststore=Store(location=str(issuer.ca_file)))
    source = TokenEndpoint("https://localhost:1/", ClientCredentials("a", "b"), trust)
    with pytest.raises(TokenUnavailableError, match="https://localhost:1/ cannot be reached"):
        source()


def test_an_issuer_whose_certificate_is_not_believed(issuer: TokenIssuer, times: Times) -> None:
    source = TokenEndpoint(issuer.url, ClientCredentials("app", "hidden"))
    with pytest.raises(TokenRefusedError, match=r"not believed .*ssl\.truststore\.location of the"):
        source()
    assert issuer.requests == []


@pytest.mark.parametrize("status", [200, 500])
def test_connections_that_log_in_at_once_share_one_answer(
    issuer: TokenIssuer, times: Times, status: int
) -> None:
    asked, goes_on = threading.Event(), threading.Event()

    def answer() -> tuple[int, bytes]:
        asked.set()
        assert goes_on.wait(30)
        times.now_s += 1
        return (status, given()[1])

    issuer.answer = answer
    source = endpoint(issuer, times)

    def told() -> str:
        try:
            return source()
        except TokenUnavailableError:
            return "none"

    with ThreadPoolExecutor(8) as threads:
        first = threads.submit(told)
        assert asked.wait(30)
        calls: list[object] = []

        def call() -> str:
            calls.append(None)
            return told()

        others = [threads.submit(call) for _ in range(7)]
        while len(calls) < len(others):
            time.sleep(0.01)
        goes_on.set()
        answers = {each.result(30) for each in (first, *others)}
    assert answers == ({"a-token"} if status == 200 else {"none"})
    assert len(issuer.requests) == 1


# ------------------------------------------------------------------------------ settings


def test_where_tokens_come_from() -> None:
    jaas = {
        "clientId": "other",
        "clientSecret": "theirs",
        "scope": "s",
        "ssl.truststore.location": "/ca.pem",
    }
    issuer = source_of("https://h/token", SETTINGS, jaas, str)
    assert isinstance(issuer, TokenEndpoint)
    assert issuer.credentials == ClientCredentials("app", "hidden", "s"), "keys win over JAAS"
    assert issuer.tls.truststore == Store(location="/ca.pem")
    of_jaas = source_of("https://h/token", {}, jaas, str)
    assert isinstance(of_jaas, TokenEndpoint)
    assert of_jaas.credentials == ClientCredentials("other", "theirs", "s")
    explicit = source_of("https://h/token", {**SETTINGS, SCOPE: "t"}, jaas, str)
    assert isinstance(explicit, TokenEndpoint)
    assert explicit.credentials.scope == "t"
    assert source_of("file:/a%20token", {}, {}, str) == TokenFile("/a token")


@pytest.mark.parametrize(
    ("url", "settings", "said"),
    [
        ("http://h/token", SETTINGS, "must be an https URL"),
        ("https://h/token", {}, f"set {CLIENT_ID}, or clientId in sasl.jaas.config"),
        ("https://h/token", {CLIENT_ID: "app"}, f"set {CLIENT_SECRET}, or clientSecret"),
        ("https://h/token", {**SETTINGS, CLIENT_ID: "a:b"}, "cannot have a colon"),
    ],
)
def test_settings_that_cannot_work(url: str, settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        source_of(url, settings, {}, str)
    assert said in str(caught.value)
    assert "hidden" not in str(caught.value)
