"""The gate of a connection on a SASL listener: who the client is, before anything else.

Until the client has proven that, it may send ApiVersions, SaslHandshake and SaslAuthenticate only,
in small frames, in a bounded number, and within a deadline. Any other request closes the connection
before its body is parsed. A client may prove who it is again while it works (KIP-368). It must stay
the same one, so requests under way keep their caller. A session that has ended serves no request.
A session whose credential or delegation token is removed ends at once, with the connection.

The dialogues themselves are machines (``security.sasl``). This drives one of them: it does its slow
work off the event loop, and delays the answer to a failure without keeping anybody else waiting.
"""

from __future__ import annotations

import asyncio
import enum
import math
from typing import Final, Protocol

from runtime.logins.listener import ListenerLogins
from runtime.metrics.registry import Counter
from security.sasl.dialogue import Basis, Challenge, Dialogue, Failure, Success
from stele.errors import ErrorCode
from stele.wire.kafka import SIZE_BYTES, ApiKey, RequestHeader, Struct
from stele.wire.kafka.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from stele.wire.kafka.messages.sasl_handshake import SaslHandshakeResponse
from stele.world import Buffer

MAX_REQUESTS: Final = 16
"""The most requests before a client has logged in. A login takes five at most."""

DEADLINE_S: Final = 30.0
"""How long a client may take to log in."""

_REPEAT_MIN_S: Final = 1.0
"""A client may not log in again more often. Kafka refuses it, and clients take that for a wrong
credential; here it waits. librdkafka looks for a new token once a second, so it may log in again
with one that has half a second left, and once more before that has ended."""

RAW_TOKEN: Final = RequestHeader(ApiKey.SASL_AUTHENTICATE, -1, 0, None)
"""The header of a token that came without one, as after version 0 of SaslHandshake."""

_BEFORE_LOGIN: Final = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
_OF_A_LOGIN: Final = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


class GatedConnection(Protocol):
    """The connection behind a gate."""

    peer: str

    @property
    def listener_name(self) -> str: ...

    def log_in(self, principal: str, *, by_delegation_token: bool) -> None:
        """From now on requests come from this principal, and may be as large as any."""
        ...

    def drain(self) -> None:
        """Take no more requests; close once those in flight are answered."""
        ...

    def close(self) -> None:
        """Close after what is written has gone out; unanswered requests stay so."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...


class _State(enum.Enum):
    """What the gate expects of the client next."""

    HANDSHAKE = enum.auto()
    TOKEN = enum.auto()  # in SaslAuthenticate
    RAW_TOKEN = enum.auto()  # in a frame of its own
    DONE = enum.auto()
    FAILED = enum.auto()


class Gate:
    """The gate of one connection."""

    MAX_FRAME_BYTES: Final = 64 * 1024
    """The largest request before a client has logged in. Tokens are the largest ones."""

    def __init__(self, connection: GatedConnection, logins: ListenerLogins) -> None:
        self._connection = connection
        self._logins = logins
        self._state = _State.HANDSHAKE
        self._loop = asyncio.get_running_loop()
        self._deadline: asyncio.TimerHandle | None = self._loop.call_later(
            DEADLINE_S, self._too_late
        )
        self._requests = 0  # before the login
        self._mechanism = ""
        self._dialogue: Dialogue | None = None
        self._principal: str | None = None  # None: it has never logged in
        self._by_delegation_token = False  # its first login
        self._basis: Basis | None = None  # what its last login rests on
        self._ends_s = math.inf  # the session, in the loop's time
        self._expires_ms: int | None = None  # what its last login rests on, if that has an end
        self._repeated_s = -math.inf  # the last login but the first, or the attempt
        self._is_lost = False  # the connection

    @property
    def expects_raw_token(self) -> bool:
        """Whether the next frame is a token without a header."""
        return self._state is _State.RAW_TOKEN

    @staticmethod
    def raw_request(frame: bytearray) -> SaslAuthenticateRequest:
        """A token that came without a header, as if it had one."""
        return SaslAuthenticateRequest(bytes(frame))

    @staticmethod
    def raw_answer(response: Struct) -> list[Buffer]:
        """The answer to such a token: the next one. A failure has none."""
        if not isinstance(response, SaslAuthenticateResponse) or response.error_code:
            return []
        return [len(response.auth_bytes).to_bytes(SIZE_BYTES), response.auth_bytes]

    def admits(self, header: RequestHeader) -> bool:
        """Whether a request of this kind is served. Otherwise the connection ends; the log says why
        as rarely as of failed logins, because strangers can cause it as often as they like."""
        return self._is_served(self._refusal(header))

    def still_admits(self, header: RequestHeader) -> bool:
        """Whether a request that was admitted, and then waited for its turn, is still served: the
        session may have ended meanwhile. Otherwise as ``admits``."""
        return self._is_served(self._end_of_session(header))

    def _is_served(self, why_not: str | None) -> bool:
        if why_not is not None:
            self._logins.log_failure(self._connection, f"is closed: {why_not}")
        return why_not is None

    def _refusal(self, header: RequestHeader) -> str | None:
        if self._principal is None:
            self._requests += 1
            if self._state is _State.FAILED or header.api_key not in _BEFORE_LOGIN:
                return f"API key {header.api_key} came before the client had logged in"
            if self._requests > MAX_REQUESTS:
                return f"the client has sent {MAX_REQUESTS} requests and not logged in"
            return None
        return self._end_of_session(header)

    def _end_of_session(self, header: RequestHeader) -> str | None:
        """Why a request comes too late for its session. A login under way has none yet."""
        if header.api_key not in _OF_A_LOGIN and self._is_over():
            self._logins.metrics.expired.value += 1
            return (
                f"the session of {self._principal} has ended (connections.max.reauth.ms, or its "
                "token expired)"
            )
        return None

    def _is_over(self) -> bool:
        if self._loop.time() >= self._ends_s:
            return True
        # The expiry of a token is one of the wall clock, which may have been set since the login.
        return self._expires_ms is not None and self._logins.now_ms > self._expires_ms

    def closed(self) -> None:
        """The connection is lost."""
        self._is_lost = True
        self._state = _State.FAILED
        self._dialogue = None
        self._logins.sessions.remove(self, self._basis)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def revoke(self, why: str) -> None:
        """See ``Session``. Requests under way are not answered: a Fetch may wait for days."""
        self._state = _State.FAILED
        self._dialogue = None
        self._logins.note_revoked(self._connection, why)
        self._connection.close()

    def _too_late(self) -> None:
        self._deadline = None
        self._logins.log_failure(self._connection, f"did not log in within {DEADLINE_S:g} s")
        self._logins.metrics.failed.value += 1
        self._connection.abort()

    # ------------------------------------------------------------------ SaslHandshake

    async def handshake(self, mechanism: str, version: int) -> SaslHandshakeResponse:
        """The answer to SaslHandshake. An error closes the connection behind it."""
        enabled = self._logins.mechanisms
        if self._state is _State.DONE:
            if self._ends_s == math.inf:
                return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE, enabled)
            await asyncio.sleep(self._repeated_s + _REPEAT_MIN_S - self._loop.time())
            if self._is_lost:
                return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)  # to nobody
        error = self._handshake_error(mechanism)
        if error is None:
            self._mechanism = mechanism
            self._state = _State.TOKEN if version else _State.RAW_TOKEN
            return SaslHandshakeResponse(mechanisms=enabled)
        code, reason = error
        await self._fail(Failure("", reason), self._loop.time())
        return SaslHandshakeResponse(code, enabled)

    def _handshake_error(self, mechanism: str) -> tuple[ErrorCode, str] | None:
        if self._state is _State.DONE:
            if mechanism != self._mechanism:
                return (
                    ErrorCode.SASL_AUTHENTICATION_FAILED,
                    f"changes its mechanism from {self._mechanism} to {mechanism!r}",
                )
        elif self._state is not _State.HANDSHAKE:
            return ErrorCode.ILLEGAL_SASL_STATE, "began a login within a login"
        is_repeated = self._state is _State.DONE
        self._dialogue = self._logins.begin(mechanism)
        if self._dialogue is None:
            enabled = ", ".join(self._logins.mechanisms)
            return (
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                f"asks for the mechanism {mechanism!r}; sasl.enabled.mechanisms has {enabled}",
            )
        if is_repeated:
            self._repeated_s = self._loop.time()
        return None

    # ------------------------------------------------------------------ SaslAuthenticate

    async def authenticate(self, token: bytes) -> SaslAuthenticateResponse | None:
        """The answer to a token; None: none, the connection just ends. A failure closes it."""
        came_s = self._loop.time()
        dialogue = self._dialogue
        if dialogue is None or self._state not in (_State.TOKEN, _State.RAW_TOKEN):
            await self._fail(Failure("", "sent a token outside of a login"), came_s)
            return SaslAuthenticateResponse(
                ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake must come before SaslAuthenticate"
            )
        step = await self._logins.step(dialogue, token)
        if self._dialogue is not dialogue:
            return None  # the connection was lost meanwhile
        if isinstance(step, Challenge):
            return SaslAuthenticateResponse(auth_bytes=step.token)
        if isinstance(step, Success):
            changed = self._changed_principal(step)
            if changed is None:
                return self._succeeded(step)
            step = changed
        assert isinstance(step, Failure)
        await self._fail(step, came_s)
        if step.is_retriable:
            return None
        return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, self._told(step))

    def _told(self, failure: Failure) -> str:
        """The message to the client: the same for whoever fails with this mechanism."""
        return failure.public or f"the login by {self._mechanism} failed"

    def _changed_principal(self, success: Success) -> Failure | None:
        if self._principal is None:
            return None
        if success.principal != self._principal:
            return Failure(
                f"Cannot change principals during re-authentication from {self._principal}",
                f"changes its principal to {success.principal}",
            )
        if success.by_delegation_token != self._by_delegation_token:
            # Its callers keep what they may do with tokens, as they keep their principal.
            return Failure(
                "a connection logs in again as before: always by a delegation token, or never",
                "changes between a delegation token and a secret of its own",
            )
        return None

    def _succeeded(self, success: Success) -> SaslAuthenticateResponse:
        lifetime_ms = self._logins.lifetime_ms(self._mechanism, success)
        self._ends_s = math.inf
        if lifetime_ms is not None:
            self._ends_s = self._loop.time() + lifetime_ms / 1000
        self._expires_ms = success.expires_ms
        metrics, sessions = self._logins.metrics, self._logins.sessions
        self._count(metrics.succeeded, metrics.repeated)
        sessions.remove(self, self._basis)
        self._basis = success.basis
        sessions.add(self, self._basis)
        self._dialogue = None
        self._state = _State.DONE
        if self._principal is None:
            self._principal = success.principal
            self._by_delegation_token = success.by_delegation_token
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            self._connection.log_in(
                success.principal, by_delegation_token=success.by_delegation_token
            )
        return SaslAuthenticateResponse(
            auth_bytes=success.token, session_lifetime_ms=lifetime_ms or 0
        )

    def _count(self, first: Counter, again: Counter) -> None:
        counter = first if self._principal is None else again
        counter.value += 1

    async def _fail(self, failure: Failure, came_s: float) -> None:
        """Note the failure and wait, as in ``delay_failure``. The answer is the last one."""
        self._state = _State.FAILED
        self._dialogue = None
        metrics = self._logins.metrics
        self._count(metrics.failed, metrics.repeat_failed)
        by = f" by {self._mechanism}" if self._mechanism else ""
        self._logins.log_failure(self._connection, f"failed to log in{by}: {failure.private}")
        await self._logins.delay_failure(came_s)
        self._connection.drain()
