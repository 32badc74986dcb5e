"""A client's login on a gRPC listener with SASL."""

from __future__ import annotations

import asyncio
import base64
from typing import Final, Protocol

from stele.security import dialogues
from stele.security.client_security import SaslCredentials, TokenUnavailableError
from stele.security.dialogues import LoginRefusedError
from stele.wire.v1.login_pb2 import LogInRequest, LogInResponse
from stele.world import Rng, RpcCode, RpcError, Stream

LOG_IN: Final = "/stele.v1.Logins/LogIn"
LOGIN_SCHEME: Final = "SASL"
"""A server reads no request of a stranger: a login is in the metadata of its call."""

_SESSION_SHARE: Final = 0.85
"""A session is used for this share of its time."""

_NONCE_BYTES: Final = 18

_STEP_S: Final = 10.0
"""How long a step of the dialogue may take."""


class OpenChannel(Protocol):
    """A channel whose calls may say who calls."""

    async def call(
        self, method: str, request: bytes, *, timeout_s: float, authorization: str | None = None
    ) -> bytes: ...

    def stream(self, method: str, authorization: str | None = None) -> Stream: ...

    async def close(self) -> None: ...


class LoggedInChannel:
    """A channel that logs in at its first call, and again before its session ends."""

    def __init__(self, channel: OpenChannel, credentials: SaslCredentials, rng: Rng) -> None:
        self._channel = channel
        self._login = _Login(channel, credentials, rng)

    async def call(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        """See ``stele.world.Channel``. A call whose session is not accepted, as after a restart of
        the server, is repeated once: it was not carried out."""
        authorization, is_new = await self._login.authorization()
        try:
            return await self._channel.call(
                method, request, timeout_s=timeout_s, authorization=authorization
            )
        except RpcError as error:
            if error.code is not RpcCode.UNAUTHENTICATED or is_new:
                raise
        self._login.forget(authorization)
        authorization, _ = await self._login.authorization()
        return await self._channel.call(
            method, request, timeout_s=timeout_s, authorization=authorization
        )

    def stream(self, method: str) -> Stream:
        return _LoggedInStream(self._channel, self._login, method)

    async def close(self) -> None:
        await self._channel.close()


class _LoggedInStream:
    """A stream that opens when it is first used, after the login."""

    def __init__(self, channel: OpenChannel, login: _Login, method: str) -> None:
        self._channel, self._login, self._method = channel, login, method
        self._opening = asyncio.Lock()
        self._stream: Stream | None = None
        self._is_closed = False

    async def _opened(self) -> Stream:
        async with self._opening:
            if self._is_closed:
                raise RpcError(RpcCode.CANCELLED, "the stream was closed")
            if self._stream is None:
                authorization, _ = await self._login.authorization()
                self._stream = self._channel.stream(self._method, authorization)
            return self._stream

    async def send(self, message: bytes) -> None:
        await (await self._opened()).send(message)

    async def receive(self) -> bytes | None:
        try:
            return await (await self._opened()).receive()
        except RpcError as error:
            if error.code is RpcCode.UNAUTHENTICATED:
                self._login.forget(None)  # for the next stream
            raise

    async def close(self) -> None:
        self._is_closed = True
        if self._stream is not None:
            await self._stream.close()


class _Login:
    """The login of one channel. All its calls share the session."""

    def __init__(self, channel: OpenChannel, credentials: SaslCredentials, rng: Rng) -> None:
        self._channel = channel
        self._credentials = credentials
        self._rng = rng
        self._session = ""
        self._ends_s = 0.0  # in the loop's time
        self._lock = asyncio.Lock()

    async def authorization(self) -> tuple[str, bool]:
        """What a call says about its caller, and whether that is new. Raises RpcError."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            is_new = not self._session or loop.time() >= self._ends_s
            if is_new:
                await self._log_in()
            return f"Session {self._session}", is_new

    def forget(self, authorization: str | None) -> None:
        """The server does not accept this session, or the newest one: the next call logs in."""
        if authorization is None or authorization == f"Session {self._session}":
            self._session = ""

    async def _log_in(self) -> None:
        credentials = self._credentials
        token_text = ""
        if credentials.token is not None:
            # The user's function may ask an identity provider.
            loop = asyncio.get_running_loop()
            try:
                token_text = await loop.run_in_executor(None, credentials.token)
            except TokenUnavailableError as error:
                raise RpcError(RpcCode.UNAVAILABLE, f"no token of OAUTHBEARER: {error}") from error
            except Exception as error:
                raise self._refused(
                    f"no token of OAUTHBEARER: {type(error).__name__}: {error}"
                ) from error
        nonce = base64.b64encode(self._rng.randbytes(_NONCE_BYTES)).decode()
        dialogue = dialogues.dialogue_of(credentials, nonce, token_text)
        request = LogInRequest(mechanism=credentials.mechanism, token=dialogue.first())
        while True:
            said = base64.b64encode(request.SerializeToString()).decode()
            told = await self._channel.call(
                LOG_IN, b"", timeout_s=_STEP_S, authorization=f"{LOGIN_SCHEME} {said}"
            )
            answer = LogInResponse.FromString(told)
            if answer.error:
                raise self._refused(answer.message)
            try:
                token = dialogue.answer(answer.token)
            except LoginRefusedError as error:
                raise self._refused(str(error)) from error
            if answer.session:
                break
            request = LogInRequest(token=token or b"", dialogue_id=answer.dialogue_id)
        self._session = answer.session
        now_s = asyncio.get_running_loop().time()
        self._ends_s = now_s + answer.session_lifetime_ms / 1000 * _SESSION_SHARE

    def _refused(self, reason: str) -> RpcError:
        credentials = self._credentials
        who = f" of user {credentials.username!r}" if credentials.username else ""
        return RpcError(
            RpcCode.UNAUTHENTICATED,
            f"the login{who} by {credentials.mechanism} failed: {reason}",
        )
