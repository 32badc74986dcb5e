"""gRPC channels of the real world.

Only administrators and nodes load this module, and gRPC with it.
"""

from __future__ import annotations

import asyncio
import datetime
import os
from collections.abc import Callable
from typing import Any

# The C core reads it once, at import. Otherwise its informational lines would appear on a user's
# terminal.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

from urllib.parse import quote

import grpc
import grpc.aio

from stele.addresses import Address
from stele.errors import SteleError
from stele.forks import forks
from stele.security.client_security import PLAINTEXT, ClientSecurity
from stele.security.files import FileStates, look_at
from stele.world import (
    AUTHORIZATION_KEY,
    CLIENT_ID_KEY,
    MAX_MESSAGE_BYTES,
    RpcCode,
    RpcError,
    Stream,
)

# gRPC's own backoff starts at one second: it would find a restarted peer seconds late.
CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    # This is no backoff: gRPC gives up an attempt to connect after it. TLS takes three round trips.
    ("grpc.min_reconnect_backoff_ms", 3_000),
    ("grpc.max_reconnect_backoff_ms", 250),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # A silent peer is given up after 15 s, so that streams to it break.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    # An HTTP proxy in the environment is meant for the internet, not for a cluster.
    ("grpc.enable_http_proxy", 0),
)

LOOK_S = 10.0
"""How often the files of a client's certificate are looked at, at its calls."""

RETIRED_S = 3600.0
"""How long the calls of a channel with an old certificate may go on."""

_RPC_CODES = {
    grpc.StatusCode.UNAVAILABLE: RpcCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: RpcCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNIMPLEMENTED: RpcCode.UNIMPLEMENTED,
    grpc.StatusCode.INVALID_ARGUMENT: RpcCode.INVALID_ARGUMENT,
    grpc.StatusCode.CANCELLED: RpcCode.CANCELLED,
    grpc.StatusCode.INTERNAL: RpcCode.INTERNAL,
    grpc.StatusCode.NOT_FOUND: RpcCode.NOT_FOUND,
    grpc.StatusCode.PERMISSION_DENIED: RpcCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED: RpcCode.UNAUTHENTICATED,
    grpc.StatusCode.RESOURCE_EXHAUSTED: RpcCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.FAILED_PRECONDITION: RpcCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE: RpcCode.OUT_OF_RANGE,
}


def rpc_error_of(error: grpc.aio.AioRpcError) -> RpcError:
    """The same failure as an error of ``stele.world``."""
    return RpcError(_RPC_CODES.get(error.code(), RpcCode.INTERNAL), error.details() or "")


def _times_cancelled() -> int:
    """How often the current task itself was asked to stop, and not only its call."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


class _Cancellable:
    """Raises a cancellation of the current task that gRPC has swallowed.

    If a call breaks in the turn in which its task is cancelled, gRPC reports only the end of the
    call. A task that went on after that would never be cancelled again, and would keep its process
    from ending.
    """

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = _times_cancelled()

    def __exit__(self, *raised: object) -> None:
        if _times_cancelled() > self._before:
            raise asyncio.CancelledError


class RealStream:
    """The client's end of a bidirectional gRPC stream.

    If a pending ``send`` or ``receive`` is cancelled, gRPC cancels the whole stream.
    """

    def __init__(self, open_call: Callable[[], Any]) -> None:
        self._sending = asyncio.Lock()  # gRPC allows one outstanding write per stream
        self._closed = False
        self._may_write = False
        self._call: Any = None
        try:
            self._call = open_call()
        except grpc.aio.UsageError:  # the channel is closed
            self._closed = True

    async def send(self, message: bytes) -> None:
        async with self._sending:
            self._check_open()
            try:
                with _Cancellable():
                    if not self._may_write:
                        await self._wait_to_write()
                    await self._call.write(message)
            except grpc.aio.AioRpcError as error:
                raise rpc_error_of(error) from None
            except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:
                raise await self._final_error(str(error)) from None
            except asyncio.CancelledError:
                if _times_cancelled():
                    raise
                raise RpcError(RpcCode.CANCELLED, "the stream was closed") from None

    async def receive(self) -> bytes | None:
        self._check_open()
        try:
            with _Cancellable():
                message = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise rpc_error_of(error) from None
        except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:
            raise await self._final_error(str(error)) from None
        except asyncio.CancelledError:
            if _times_cancelled():
                raise
            raise RpcError(RpcCode.CANCELLED, "the stream was closed") from None
        if message is grpc.aio.EOF:
            return None
        return bytes(message)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._call.cancel()

    async def _wait_to_write(self) -> None:
        """Wait until the call has begun or ended. gRPC's own ``write`` does not notice when a call
        is cancelled before it has begun, and would wait for ever."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end(_: object) -> None:
            if not ended.done():
                ended.set_result(None)

        self._call.add_done_callback(end)
        begun = asyncio.ensure_future(self._call.wait_for_connection())
        try:
            await asyncio.wait((begun, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            begun.cancel()
            # `write` raises the reason why it ended.
            await asyncio.gather(begun, return_exceptions=True)
        self._may_write = True

    def _check_open(self) -> None:
        if self._closed:
            raise RpcError(RpcCode.CANCELLED, "the stream was closed")

    async def _final_error(self, detail: str) -> RpcError:
        """The error of a call that has ended; ``detail`` if the call gives no details."""
        if not self._call.done():
            return RpcError(RpcCode.INTERNAL, detail)
        code = await self._call.code()
        if code is grpc.StatusCode.OK:
            return RpcError(RpcCode.UNAVAILABLE, "the peer has ended the stream")
        return RpcError(
            _RPC_CODES.get(code, RpcCode.INTERNAL), await self._call.details() or detail
        )


class _Opened:
    """A channel of gRPC, and what was made of it for its calls."""

    def __init__(self, address: Address, credentials: grpc.ChannelCredentials | None) -> None:
        if credentials is None:
            self.channel = grpc.aio.insecure_channel(str(address), CHANNEL_OPTIONS)
        else:
            self.channel = grpc.aio.secure_channel(str(address), credentials, CHANNEL_OPTIONS)
        self._unary: dict[str, Any] = {}
        self._bidirectional: dict[str, Any] = {}

    def unary(self, method: str) -> Any:
        multicallable = self._unary.get(method)
        if multicallable is None:
            multicallable = self._unary[method] = self.channel.unary_unary(method)
        return multicallable

    def bidirectional(self, method: str) -> Any:
        multicallable = self._bidirectional.get(method)
        if multicallable is None:
            multicallable = self._bidirectional[method] = self.channel.stream_stream(method)
        return multicallable


class RealChannel:
    """A gRPC channel. It connects at the first call and reconnects by itself.

    gRPC reads a client's certificate once. So when the files of ``security`` have changed, a new
    channel takes the next calls, and the old one ends with its own.
    """

    def __init__(
        self,
        address: Address,
        client_id: str | None = None,
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        forks.use_grpc()
        self._address = address
        self._security = security
        self._metadata: tuple[tuple[str, str], ...] = ()
        if client_id is not None:
            self._metadata = ((CLIENT_ID_KEY, quote(client_id)),)
        self._files: FileStates = {}
        self._looked_s = 0.0
        self._opened: _Opened | None = None
        self._retired: dict[asyncio.Task[None], _Opened] = {}
        self._is_closed = False
        if not security.protocol.has_tls:
            self._opened = _Opened(address, None)

    async def call(
        self, method: str, request: bytes, *, timeout_s: float, authorization: str | None = None
    ) -> bytes:
        multicallable = self._current().unary(method)
        metadata = self._metadata_of(authorization)
        try:
            with _Cancellable():
                return bytes(await multicallable(request, timeout=timeout_s, metadata=metadata))
        except grpc.aio.AioRpcError as error:
            raise rpc_error_of(error) from None
        except grpc.aio.UsageError as error:
            raise RpcError(RpcCode.CANCELLED, str(error)) from None
        except asyncio.CancelledError:
            if _times_cancelled():
                raise
            raise RpcError(RpcCode.CANCELLED, "the channel was closed") from None

    def stream(self, method: str, authorization: str | None = None) -> Stream:
        multicallable = self._current().bidirectional(method)
        metadata = self._metadata_of(authorization)
        return RealStream(lambda: multicallable(metadata=metadata))

    def _metadata_of(self, authorization: str | None) -> tuple[tuple[str, str], ...]:
        if authorization is None:
            return self._metadata
        return (*self._metadata, (AUTHORIZATION_KEY, authorization))

    async def close(self) -> None:
        self._is_closed = True
        opened = [*self._retired.values()]
        if self._opened is not None:
            opened.append(self._opened)
        for task in list(self._retired):
            task.cancel()
        await asyncio.gather(*self._retired, return_exceptions=True)
        for each in opened:
            await each.channel.close()

    def _current(self) -> _Opened:
        """The channel for the next call. Raises RpcError if the stores cannot be used."""
        if not self._security.protocol.has_tls or self._is_closed:
            if self._opened is None:
                raise RpcError(RpcCode.CANCELLED, "the channel was closed")
            return self._opened
        now_s = asyncio.get_running_loop().time()
        if self._opened is None or now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            files = look_at(self._security.tls)
            if self._opened is None or files != self._files:
                self._reopen(files)
        assert self._opened is not None
        return self._opened

    def _reopen(self, files: FileStates) -> None:
        from stele.security.grpc_credentials import channel_credentials  # loads cryptography

        # The first channel shows even a certificate that has expired: the peer says what is wrong.
        valid_at = None if self._opened is None else datetime.datetime.now(datetime.UTC)
        try:
            credentials = channel_credentials(self._security.tls, valid_at=valid_at)
        except SteleError as error:
            if self._opened is None:
                raise RpcError(RpcCode.UNAVAILABLE, str(error)) from error
            return  # half written, or not valid now; the next look reads again
        old, self._opened, self._files = (
            self._opened,
            _Opened(self._address, credentials),
            files,
        )
        if old is not None:
            task = asyncio.get_running_loop().create_task(old.channel.close(RETIRED_S))
            self._retired[task] = old
            task.add_done_callback(lambda done: self._retired.pop(done, None))
