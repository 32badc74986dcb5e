"""Logins on a gRPC listener with SASL: the dialogues of ``security.sasl`` in unary calls.

A client that has logged in gets a session, which it sends with each call. A session is signed by
this process and stored nowhere, so that sessions take no memory. Another broker, and this one after
a restart, asks the client to log in again. A session names what its login rests on. So each call is
refused, and each stream ended, once the credential or the delegation token is gone. A dialogue
under way is stored: their number and their time are bounded.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from google.protobuf.message import DecodeError

from metadata.scram_credentials import ScramUser
from runtime.logins.listener import ListenerLogins
from runtime.logins.pending import Pending, PendingDialogues
from security.sasl.dialogue import Basis, Challenge, Failure, HeldToken, Success
from stele.errors import ErrorCode
from stele.wire.v1.login_pb2 import LogInRequest, LogInResponse
from stele.world import Clock, Rng, RpcCode, RpcError, Stream
from world.network import REFLECTION, Peer, Service, StreamHandler

LOG_IN: Final = "/stele.v1.Logins/LogIn"

LOGIN_SCHEME: Final = "SASL"
"""The scheme of the authorization of a call that is a step of a login."""

MAX_REQUEST_CHARACTERS: Final = 64 * 1024
"""The largest request of a login, in base64. gRPC itself takes some 8 KiB of metadata."""

SESSION_MS: Final = 3_600_000
"""The longest session. Its client logs in again then, which nobody notices."""

_ID_BYTES: Final = 16
_KEY_BYTES: Final = 32
TOKENS_MAX: Final = 1024
"""The most tokens that are remembered as verified."""


@dataclass(frozen=True, slots=True)
class _Session:
    principal: str
    ends_ms: int  # since the Unix epoch
    basis: Basis | None

    def caller_of(self, peer: Peer) -> Peer:
        """The peer with the identity of this session."""
        return replace(
            peer,
            principal=self.principal,
            by_delegation_token=isinstance(self.basis, HeldToken),
            session=self,
        )


class _RunningStream:
    """A stream that is served. It ends with its session."""

    def __init__(self, timeout: asyncio.Timeout, on_revoked: Callable[[str], None]) -> None:
        self._timeout = timeout
        self._on_revoked = on_revoked
        self.why = "the session has ended: log in again"

    def revoke(self, why: str) -> None:
        """See ``Session``."""
        if self._timeout.expired():
            return
        self.why = why
        self._on_revoked(why)
        self._timeout.reschedule(asyncio.get_running_loop().time())


@dataclass(frozen=True, slots=True)
class _Caller:
    """The client that logs in, for the log."""

    peer: str
    listener_name: str


class GrpcLogins:
    """The logins of one gRPC listener."""

    def __init__(self, listener: str, logins: ListenerLogins, clock: Clock, rng: Rng) -> None:
        self._listener = listener
        self._logins = logins
        self._clock = clock
        self._rng = rng
        self._key = rng.randbytes(_KEY_BYTES)
        self._pending = PendingDialogues()
        self._verified: dict[str, _Session] = {}  # by the token that proves it, the oldest first

    def protect(self, service: Service) -> Service:
        """The service for those who have logged in, and the method by which they do. Everybody else
        is refused with RpcError UNAUTHENTICATED before anything of the request is read. The
        messages of a login are in the metadata of its calls for the same reason."""

        async def admit(peer: Peer) -> Peer:
            return (await self._session_of(peer)).caller_of(peer)

        def stream(handler: StreamHandler) -> StreamHandler:
            return lambda stream, peer: self._serve_stream(handler, stream, peer)

        streams = {name: stream(handler) for name, handler in service.streams.items()}
        protected = replace(service, streams=streams).behind(admit)
        protected.admissions[REFLECTION] = (admit,)
        protected.unread[LOG_IN] = self._log_in
        return protected

    async def _serve_stream(self, handler: StreamHandler, stream: Stream, peer: Peer) -> None:
        session = peer.session
        assert isinstance(session, _Session)  # by `admit`
        self._check_basis(session)
        sessions = self._logins.sessions
        left_s = (session.ends_ms - self._clock.time_ms()) / 1000
        who = _Caller(peer.address, self._listener)
        try:
            async with asyncio.timeout(left_s) as timeout:
                running = _RunningStream(timeout, lambda why: self._logins.note_revoked(who, why))
                sessions.add(running, session.basis)
                try:
                    await handler(stream, peer)
                finally:
                    sessions.remove(running, session.basis)
        except TimeoutError:
            if not timeout.expired():
                raise
            raise self._refused(running.why) from None

    def _check_basis(self, session: _Session) -> None:
        """Raises RpcError UNAUTHENTICATED if nobody could log in by this any more."""
        if (why := self._logins.sessions.why_gone(session.basis)) is not None:
            raise self._refused(why)

    def _refused(self, why: str) -> RpcError:
        return RpcError(RpcCode.UNAUTHENTICATED, f"listener {self._listener}: {why}")

    # ------------------------------------------------------------------ sessions

    async def _session_of(self, peer: Peer) -> _Session:
        """Raises RpcError UNAUTHENTICATED."""
        scheme, _, value = (peer.authorization or "").partition(" ")
        found: _Session | None = None
        match scheme.lower():
            case "":
                raise self._refused("it has SASL, and the call has no login (stele.v1.Logins)")
            case "session":
                found = self._read(value)
            case "bearer":
                found = self._verified.get(value) or await self._verify(peer, value)
        if found is None:
            raise self._refused(f"a login of the kind {scheme[:20]!r} is not valid here")
        if found.ends_ms <= self._clock.time_ms():
            self._verified.pop(value, None)
            self._logins.metrics.expired.value += 1
            raise self._refused("the session has ended: log in again")
        self._check_basis(found)
        return found

    def _issue(self, session: _Session) -> str:
        principal = base64.urlsafe_b64encode(session.principal.encode()).decode()
        content = f"{session.ends_ms}.{principal}.{_basis_text(session.basis)}"
        return f"{content}.{self._signature(content)}"

    def _signature(self, content: str) -> str:
        return hmac.new(self._key, content.encode(), "sha256").hexdigest()

    def _read(self, token: str) -> _Session | None:
        content, _, signature = token.rpartition(".")
        if not hmac.compare_digest(self._signature(content).encode(), signature.encode()):
            return None
        ends_ms, encoded, basis = content.split(".")
        principal = base64.urlsafe_b64decode(encoded).decode()
        return _Session(principal, int(ends_ms), _read_basis(basis, principal))

    async def _verify(self, peer: Peer, token: str) -> _Session | None:
        """A token of OAUTHBEARER, which is itself the login."""
        if not self._logins.verifies_tokens:
            return None
        came_s = asyncio.get_running_loop().time()
        result = await self._logins.verified(token)
        if isinstance(result, Failure):
            if result.is_retriable:
                raise RpcError(RpcCode.UNAVAILABLE, "tokens cannot be verified now: try again")
            await self._fail(peer, "OAUTHBEARER", result, came_s)
            return None
        session = self._session(result, "OAUTHBEARER")
        while len(self._verified) >= TOKENS_MAX:
            del self._verified[next(iter(self._verified))]
        self._verified[token] = session
        return session

    def _session(self, success: Success, mechanism: str) -> _Session:
        lifetime_ms = self._logins.lifetime_ms(mechanism, success)
        lifetime_ms = SESSION_MS if lifetime_ms is None else min(lifetime_ms, SESSION_MS)
        self._logins.metrics.succeeded.value += 1
        return _Session(
            success.principal,
            self._clock.time_ms() + lifetime_ms,
            success.basis,
        )

    # ------------------------------------------------------------------ dialogues

    async def _log_in(self, peer: Peer) -> bytes:
        scheme, _, value = (peer.authorization or "").partition(" ")
        if scheme.lower() != LOGIN_SCHEME.lower():
            raise RpcError(
                RpcCode.INVALID_ARGUMENT,
                f"a login is in the metadata of its call: 'authorization: {LOGIN_SCHEME} ' and the "
                "LogInRequest in base64",
            )
        if len(value) > MAX_REQUEST_CHARACTERS:
            raise RpcError(RpcCode.INVALID_ARGUMENT, f"a login of {len(value)} characters")
        try:
            request = LogInRequest.FromString(base64.b64decode(value, validate=True))
        except (DecodeError, ValueError) as error:
            raise RpcError(RpcCode.INVALID_ARGUMENT, f"no LogInRequest: {error}") from error
        answer = await self._answer(request, peer)
        return answer.SerializeToString()

    async def _answer(self, request: LogInRequest, peer: Peer) -> LogInResponse:
        came_s = asyncio.get_running_loop().time()
        pending = self._taken(request, peer)
        if pending is None:
            if request.dialogue_id:
                why, code = "continues no dialogue that is under way", ErrorCode.ILLEGAL_SASL_STATE
            else:
                why = f"asks for the mechanism {request.mechanism!r}"
                code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            await self._fail(peer, "", Failure("", why), came_s)
            return LogInResponse(error=code, message=why, mechanisms=self._logins.mechanisms)
        step = await self._logins.step(pending.dialogue, request.token)
        if isinstance(step, Challenge):
            return LogInResponse(token=step.token, dialogue_id=self._wait(pending))
        if isinstance(step, Success):
            session = self._session(step, pending.mechanism)
            return LogInResponse(
                token=step.token,
                session=self._issue(session),
                session_lifetime_ms=session.ends_ms - self._clock.time_ms(),
            )
        assert isinstance(step, Failure)
        await self._fail(peer, pending.mechanism, step, came_s)
        if step.is_retriable:
            raise RpcError(RpcCode.UNAVAILABLE, "logins cannot be checked now: try again")
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        return LogInResponse(error=code, message=step.public or "the login failed")

    def _taken(self, request: LogInRequest, peer: Peer) -> Pending | None:
        """The dialogue that the request begins or continues; nobody else can continue it then."""
        now_s = self._clock.monotonic()
        if request.dialogue_id:
            return self._pending.take(request.dialogue_id, now_s)
        dialogue = self._logins.begin(request.mechanism)
        if dialogue is None:
            return None
        return Pending(dialogue, request.mechanism, peer.address, now_s)

    def _wait(self, pending: Pending) -> bytes:
        dialogue_id = self._rng.randbytes(_ID_BYTES)
        self._pending.add(dialogue_id, pending)
        return dialogue_id

    async def _fail(self, peer: Peer, mechanism: str, failure: Failure, came_s: float) -> None:
        self._logins.metrics.failed.value += 1
        by = f" by {mechanism}" if mechanism else ""
        who = _Caller(peer.address, self._listener)
        self._logins.log_failure(who, f"failed to log in{by}: {failure.private}")
        await self._logins.delay_failure(came_s)


def _basis_text(basis: Basis | None) -> str:
    """Without a dot. A user's name is in the principal."""
    match basis:
        case ScramUser():
            return str(basis.mechanism)
        case HeldToken():
            return "token-" + base64.urlsafe_b64encode(basis.token_id.encode()).decode()
    return ""


def _read_basis(text: str, principal: str) -> Basis | None:
    token_id = text.removeprefix("token-")
    if token_id != text:
        return HeldToken(base64.urlsafe_b64decode(token_id).decode())
    return ScramUser(principal.partition(":")[2], int(text)) if text else None
