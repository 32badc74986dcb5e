"""Tokens of OAUTHBEARER that an issuer gives for a client's id and secret (RFC 6749, section 4.4).

All connections of a client share one token until most of its life is over. Then the next login asks
for another one. While the issuer cannot be reached, the token that is there is used to its end.

One thread asks at a time. The others wait for its answer, also for a failure: otherwise each of
many connections would wait for an issuer that is down, one after the other.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stele.errors import ConfigError, SteleError
from stele.security.answer_content import TooLongError, content_of
from stele.security.client_security import (
    Store,
    TlsSettings,
    TokenSource,
    TokenUnavailableError,
)
from stele.security.token_file import TokenFile

TIMEOUT_S: Final = 10.0
"""How long the issuer may take to accept a connection, to begin its answer, and to send it."""

REFRESH_SHARE: Final = 0.8
"""The part of its life for which a token is shown without a question to the issuer, as in Kafka.
Sessions are renewed at a later part of theirs, so each renewal brings a new token."""

_SHOWN_BYTES: Final = 300
"""How much of an issuer's refusal an error shows."""

URL: Final = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE: Final = "sasl.oauthbearer.scope"
_OF_JAAS: Final[Mapping[str, str]] = {
    CLIENT_ID: "clientId",
    CLIENT_SECRET: "clientSecret",
    SCOPE: "scope",
}
"""The options of Kafka's login module that mean the same as these keys."""

_TRUST: Final = "ssl.truststore."


class TokenRefusedError(SteleError):
    """The issuer refuses to give a token, or gave none that can be read. Asking again is of no
    use."""


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """What a client shows its issuer."""

    client_id: str
    secret: str = field(repr=False)
    scope: str = ""


@dataclass(slots=True)
class _Held:
    """What the threads of a client share. Times are monotonic, in seconds."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    token: str = ""
    refresh_s: float = 0.0  # from then on another token is asked for
    end_s: float = 0.0
    failure: SteleError | None = None  # of the last attempt, None if it gave a token
    failed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """A ``TokenSource``. It raises TokenRefusedError, TokenUnavailableError, and StoreError or
    ConfigError for a trust store that cannot be read."""

    url: str
    credentials: ClientCredentials
    tls: TlsSettings = field(default_factory=TlsSettings)
    """How the issuer's certificate is checked."""
    monotonic: Callable[[], float] = field(default=time.monotonic, repr=False, compare=False)
    wall_s: Callable[[], float] = field(default=time.time, repr=False, compare=False)
    _held: _Held = field(default_factory=_Held, repr=False, compare=False)

    def __call__(self) -> str:
        called_s = self.monotonic()
        held = self._held
        with held.lock:
            now_s = self.monotonic()
            if held.token and now_s < held.refresh_s:
                return held.token
            if held.failure is None or held.failed_s < called_s:
                self._renew(now_s)
            if held.failure is None:
                return held.token
            if isinstance(held.failure, TokenUnavailableError) and now_s < held.end_s:
                return held.token
            raise type(held.failure)(str(held.failure))

    def _renew(self, now_s: float) -> None:
        held = self._held
        try:
            token, life_s = self._ask()
        except (TokenRefusedError, TokenUnavailableError) as error:
            held.failure, held.failed_s = error, self.monotonic()
            return
        held.failure, held.token = None, token
        held.refresh_s, held.end_s = now_s + life_s * REFRESH_SHARE, now_s + life_s

    def _ask(self) -> tuple[str, float]:
        """A token, and how many seconds it is valid."""
        from stele.security.contexts import client_context  # it brings cryptography

        context = client_context(self.tls, _named_in_jaas)
        opener = urllib.request.build_opener(
            _NoRedirects, urllib.request.HTTPSHandler(context=context)
        )
        try:
            with opener.open(self._request(), timeout=TIMEOUT_S) as answer:
                content = content_of(answer, TIMEOUT_S, self.monotonic)
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from error
        except TooLongError as error:
            raise TokenRefusedError(f"{self.url}: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise TokenRefusedError(
                    f"{self.url}: the certificate of the issuer is not believed "
                    f"({reason.verify_message}): name its authority by "
                    f"{_named_in_jaas('ssl.truststore.location')}"
                ) from error
            raise TokenUnavailableError(
                f"{self.url} cannot be reached: {str(reason) or type(reason).__name__}"
            ) from error
        return self._read(content)

    def _request(self) -> urllib.request.Request:
        form = {"grant_type": "client_credentials"}
        if self.credentials.scope:
            form["scope"] = self.credentials.scope
        both = f"{self.credentials.client_id}:{self.credentials.secret}".encode()
        return urllib.request.Request(
            self.url,
            data=urllib.parse.urlencode(form).encode(),
            headers={
                "Authorization": f"Basic {base64.b64encode(both).decode()}",
                "Accept": "application/json",
                "Content-Type": "application/x-www-form-urlencoded",
            },
            method="POST",
        )

    def _refusal(self, error: urllib.error.HTTPError) -> SteleError:
        try:
            told = error.read(_SHOWN_BYTES).decode(errors="replace").strip()
        except (OSError, http.client.HTTPException):
            told = ""
        said = f"{self.url} answers with the status {error.code}" + (f": {told}" if told else "")
        if error.code >= http.HTTPStatus.INTERNAL_SERVER_ERROR or error.code in (
            http.HTTPStatus.REQUEST_TIMEOUT,
            http.HTTPStatus.TOO_MANY_REQUESTS,
        ):
            return TokenUnavailableError(said)
        return TokenRefusedError(
            f"{said} (check the client id {self.credentials.client_id!r}, its secret, its scope "
            "and the URL)"
        )

    def _read(self, content: bytes) -> tuple[str, float]:
        try:
            answer: dict[str, Any] = json.loads(content)
            token = answer["access_token"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise TokenRefusedError(
                f"{self.url}: the answer is no JSON object with access_token"
            ) from error
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise TokenRefusedError(f"{self.url}: access_token is not a text that can be sent")
        if not token:
            raise TokenRefusedError(f"{self.url}: access_token is empty")
        life_s = _number(answer.get("expires_in"))
        if life_s is None:
            end_s = _end_of(token)
            life_s = 0.0 if end_s is None else end_s - self.wall_s()
        return token, max(life_s, 0.0)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The secret goes to the URL of the configuration, and to no other."""

    def redirect_request(self, *_: Any) -> None:
        return None


def source_of(
    url: str, settings: Mapping[str, str], jaas: Mapping[str, str], named: Callable[[str], str]
) -> TokenSource:
    """Where a client has its tokens from: a file, or an issuer.

    ``settings``: client id, secret and scope by their keys. ``jaas``: the options of the login
    module, for those that are not set. ``named``: the name of a key as its user knows it. Raises
    ConfigError.
    """
    if url.startswith("file:/"):
        return TokenFile.of_url(url)
    if not url.startswith("https://"):
        raise ConfigError(
            f"{named(URL)}={url}: it must be an https URL, or the URL of a file with a token. By "
            "http everybody on the way would read the secret"
        )
    found = {key: settings.get(key) or jaas.get(option, "") for key, option in _OF_JAAS.items()}
    for key in (CLIENT_ID, CLIENT_SECRET):
        if not found[key]:
            raise ConfigError(
                f"{named(URL)} is an issuer: set {named(key)}, or {_OF_JAAS[key]} in "
                f"{named('sasl.jaas.config')}"
            )
    if ":" in found[CLIENT_ID]:
        raise ConfigError(f"{named(CLIENT_ID)}: a client id cannot have a colon")
    trust = Store(
        type=jaas.get(f"{_TRUST}type"),
        location=jaas.get(f"{_TRUST}location"),
        password=jaas.get(f"{_TRUST}password"),
        certificates=jaas.get(f"{_TRUST}certificates"),
    )
    credentials = ClientCredentials(found[CLIENT_ID], found[CLIENT_SECRET], found[SCOPE])
    return TokenEndpoint(url, credentials, TlsSettings(truststore=trust))


def _named_in_jaas(setting: str) -> str:
    """How errors about the issuer's certificate name a setting."""
    return f"{setting} of the login module (sasl.jaas.config)"


def _number(value: Any) -> float | None:
    """A time in seconds. Some issuers send it as a text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _end_of(token: str) -> float | None:
    """When a JSON Web Token says that it ends, in seconds since 1970; None: it does not say so. The
    broker checks the token; here it only tells when to ask for the next one."""
    try:
        part = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        return _number(claims.get("exp"))
    except (IndexError, ValueError, AttributeError, RecursionError, binascii.Error):
        return None
