"""A listener with SASL, and clients that log in step by step."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

from metadata.delta import MetadataDelta
from metadata.image import EMPTY
from metadata.scram_credentials import secret_record
from runtime.logins.listener import AuthenticationMetrics, Begin, ListenerLogins
from runtime.logins.sessions import OpenSessions
from runtime.metrics.registry import MetricsRegistry
from security.sasl.dialogue import Failure, Success
from security.sasl.oauthbearer import OauthBearerDialogue
from security.sasl.plain import PlainDialogue
from security.sasl.scram import ScramDialogue
from stele.errors import ErrorCode
from stele.security.scram import SCRAM_SHA_256, ScramCredential, ScramMechanism
from stele.wire.kafka.messages import (
    metadata,
    sasl_authenticate,
    sasl_handshake,
)
from tests.support.broker_apis import Client, Edges
from tests.support.scram import SALT

SCRAM = "SCRAM-SHA-256"
TOKEN = b"n,,\x01auth=Bearer token\x01\x01"
METADATA = metadata.MetadataRequest()


class Inline:
    """Computes at once, or fails."""

    def __init__(self) -> None:
        self.fails = False
        self.calls = 0

    async def call(self, work: Callable[..., Any], *arguments: Any) -> Any:
        self.calls += 1
        await asyncio.sleep(0.01)
        if self.fails:
            raise OSError("nobody computes")
        return work(*arguments)


class Credentials:
    """One user of SCRAM."""

    is_loaded = True

    def __init__(self) -> None:
        self.of_bob: ScramCredential | None = ScramCredential.of_password(
            SCRAM_SHA_256, "bob-secret", SALT, 4096
        )

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        return self.of_bob if (mechanism, user) == (SCRAM_SHA_256, "bob") else None

    def stand_in(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        return ScramCredential(SALT, bytes(32), bytes(32), 4096)


class World:
    """A broker with a SASL listener, in virtual time."""

    def __init__(self, session_ms: Mapping[str, int] | None = None) -> None:
        self.edges = Edges()
        self.compute = Inline()
        self.credentials = Credentials()
        self.sessions = OpenSessions(self.credentials)
        self.metrics = AuthenticationMetrics(MetricsRegistry())
        self.verified: Success | Failure = Success("User:token")
        begin: dict[str, Begin] = {
            "PLAIN": lambda nonce: PlainDialogue({"alice": "alice-secret"}, self.credentials),
            SCRAM: lambda nonce: ScramDialogue(SCRAM_SHA_256, self.credentials, nonce),
            "OAUTHBEARER": lambda nonce: OauthBearerDialogue(),
        }
        self.logins = ListenerLogins(
            begin,
            clock=self.edges.clock,
            rng=random.Random(1),
            compute=self.compute,
            metrics=self.metrics,
            sessions=self.sessions,
            failure_delay_ms=100,
            session_ms=session_ms or {},
            verify_token=self._verify,
        )

    async def _verify(self, token: str) -> Success | Failure:
        await asyncio.sleep(0.01)
        return self.verified

    def remove_bob(self) -> None:
        """The metadata have no credential of bob any more."""
        self.credentials.of_bob = None
        look_at(self.sessions)

    def client(self) -> Client:
        return self.edges.client(logins=self.logins)


def look_at(sessions: OpenSessions) -> None:
    """The credentials in the metadata have changed."""
    delta = MetadataDelta(EMPTY)
    delta.replay(0, secret_record(b"another"))
    for _ in sessions.apply(delta, delta.apply()) or ():
        pass


async def shake(
    client: Client, mechanism: str, version: int = 1
) -> sasl_handshake.SaslHandshakeResponse:
    request = sasl_handshake.SaslHandshakeRequest(mechanism)
    return await client.call(sasl_handshake.API, version, request)


async def say(
    client: Client, token: bytes, version: int = 2
) -> sasl_authenticate.SaslAuthenticateResponse:
    request = sasl_authenticate.SaslAuthenticateRequest(token)
    return await client.call(sasl_authenticate.API, version, request)


async def log_in(client: Client, user: str = "alice") -> sasl_authenticate.SaslAuthenticateResponse:
    assert (await shake(client, "PLAIN")).error_code == ErrorCode.NONE
    return await say(client, f"\0{user}\0{user}-secret".encode())


async def is_closed(client: Client) -> bool:
    """Whether the connection closes without another answer."""
    for _ in range(10):
        await asyncio.sleep(0.05)
        if client.transport.closed:
            return client.transport.written.empty()
    return False
