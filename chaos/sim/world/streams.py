"""Ordered streams of the simulated control plane. They slow a fast sender down."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from chaos.sim.world.fabric import Route
from chaos.sim.world.process import Machine
from chaos.sim.world.rpc_server import INTERNAL_ERROR, ProcessNetwork, RpcServer
from stele.addresses import Address
from stele.world import RpcCode, RpcError
from world.network import Peer

logger = logging.getLogger(__name__)

# The keepalive options of real channels (interval, timeout): a silent peer's streams break.
_CLIENT_KEEPALIVE_S = (10.0, 5.0)
_SERVER_KEEPALIVE_S = (20.0, 10.0)
# How many bytes a stream's sender may be ahead of its receiver.
_WINDOW_BYTES = 1024 * 1024


class StreamEnd:
    """One end of a stream: its inbox, its route to the peer, and how it ended."""

    def __init__(
        self, network: ProcessNetwork, peer: Machine, keepalive_s: tuple[float, float]
    ) -> None:
        self.network = network
        self.process = network.process
        self.other: StreamEnd | None = None  # None until the server has taken the stream
        self.route = Route(network.fabric, self.process.machine, peer)
        self._inbox: deque[bytes] = deque()
        self._ended = False  # the peer has ended its side in order
        self.broken: RpcError | None = None
        self._news: asyncio.Future[None] | None = None  # set while somebody waits for a message
        self._window = asyncio.Event()
        self._ahead_bytes = 0  # sent, but not yet received by the peer's code
        self._keepalive_s = keepalive_s
        self._timer: asyncio.TimerHandle | None = None

    # The stream interface, called within the process.

    async def send(self, message: bytes) -> None:
        while True:
            if self.broken is not None:
                raise self.broken
            if self._ended or self.process.dead:
                raise RpcError(RpcCode.UNAVAILABLE, "the peer has ended the stream")
            if self._ahead_bytes <= _WINDOW_BYTES:
                break
            self._window.clear()
            await self._window.wait()
        self._ahead_bytes += len(message)
        self.deliver(lambda end: end.take(message))

    async def next_message(self) -> bytes | None:
        while True:
            if self._inbox:
                message = self._inbox.popleft()
                if self.other is not None:
                    self.other.received(len(message))
                return message
            if self.broken is not None:
                raise self.broken
            if self._ended:
                return None
            if self._news is not None and not self._news.done():
                raise RuntimeError("two wait for the same stream's next message")
            self._news = self.process.loop.create_future()
            await self._news

    # The other end calls these through the network, as callbacks of this process.

    def deliver(self, action: Callable[[Any], None]) -> None:
        """Let the other end act, after everything that was sent before."""
        self.route.send(lambda: self._at_the_other(action))

    def _at_the_other(self, action: Callable[[Any], None]) -> None:
        if self.other is not None:
            self.other.process.loop.hand_in(action, self.other)

    def take(self, message: bytes) -> None:
        if self.broken is None:
            self._inbox.append(message)
            self._tell()

    def peer_ended(self) -> None:
        self._ended = True
        self.stop_keepalive()
        self._wake()

    def break_off(self, error: RpcError) -> None:
        """End the stream at this end. Messages that have arrived can still be received."""
        if self.broken is None and not self._ended:
            self.broken = error
        self.stop_keepalive()
        self._wake()

    def received(self, size: int) -> None:
        self._ahead_bytes -= size
        self._window.set()

    def _tell(self) -> None:
        """Wake the reader that waits for a message, if there is one."""
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)

    def _wake(self) -> None:
        self._tell()
        self._window.set()

    # Keepalive pings, as in gRPC: the process sends them, so none are sent during its pause.

    def start_keepalive(self) -> None:
        self._timer = self.process.loop.call_later(self._keepalive_s[0], self._ping)

    def stop_keepalive(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ping(self) -> None:
        self.deliver(lambda end: end.deliver(lambda back: back.pong()))
        self._timer = self.process.loop.call_later(self._keepalive_s[1], self._silent)

    def pong(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self.start_keepalive()

    def _silent(self) -> None:
        self.break_off(RpcError(RpcCode.UNAVAILABLE, "keepalive timeout"))


class ClientStream(StreamEnd):
    """The client's end. As with gRPC, cancelling a pending operation cancels the stream."""

    def __init__(
        self,
        network: ProcessNetwork,
        address: Address,
        client_id: str | None,
        method: str,
        on_end: Callable[[ClientStream], None],
    ) -> None:
        target = network.resolve(address.host)
        super().__init__(network, target or network.process.machine, _CLIENT_KEEPALIVE_S)
        self.method = method
        self.client_id = client_id
        self.authorization: str | None = None
        self._port = address.port
        self._on_end = on_end
        self._resource = self.process.own(self)
        if target is None:
            self.break_off(RpcError(RpcCode.UNAVAILABLE, f"no host {address.host}"))
            return
        network.note("stream", f"{target.name}:{address.port}{method}")
        self.route.send(lambda: self._arrive(target))
        self.start_keepalive()

    def _arrive(self, target: Machine) -> None:
        """The stream arrives at the server's machine: find the server of the port."""
        server = target.ports.get(self._port)
        if isinstance(server, RpcServer):
            self.other = ServerStream(server, self)
            return
        error = RpcError(RpcCode.UNAVAILABLE, f"{target.name}:{self._port} refused")
        self.network.fabric.send(
            target, self.process.machine, self.process.loop.hand_in, self.break_off, error
        )

    async def send(self, message: bytes) -> None:
        try:
            await super().send(message)
        except asyncio.CancelledError:
            self._leave("cancelled")
            raise

    async def receive(self) -> bytes | None:
        try:
            return await self.next_message()
        except asyncio.CancelledError:
            self._leave("cancelled")
            raise

    async def close(self) -> None:
        self._leave("the stream was closed")

    def channel_closed(self) -> None:
        self._leave("the channel was closed")

    def _leave(self, why: str) -> None:
        if self.process.dead:
            return
        if self.broken is None and not self._ended:
            self.deliver(lambda end: end.client_left())
        self._inbox.clear()
        self._ended = False
        self.broken = RpcError(RpcCode.CANCELLED, why)
        self.stop_keepalive()
        self._wake()
        self.process.disown(self._resource)
        self._on_end(self)

    def die(self, *, silent: bool) -> None:
        if not silent and self.broken is None and not self._ended:
            self.deliver(lambda end: end.client_left())


class ServerStream(StreamEnd):
    """The server's end, and the handler that runs with it."""

    def __init__(self, server: RpcServer, client: ClientStream) -> None:
        super().__init__(server.network, client.process.machine, _SERVER_KEEPALIVE_S)
        self.other = client
        self._method = client.method
        self.peer = Peer(
            client.process.machine.name,
            client.client_id,
            client.network.principal,
            authorization=client.authorization,
        )
        self._server = server
        self._task: asyncio.Task[None] | None = None
        self._began = False
        self._closed = False
        self._in_operation = False  # the handler waits in send or receive
        self._number = server.add(self)
        self.process.loop.call_soon(self._start)

    def _start(self) -> None:
        if self.broken is None:
            self.start_keepalive()
            self._task = self.process.loop.create_task(self._serve())

    async def _serve(self) -> None:
        self._began = True
        method = self._method
        error: RpcError | None = None
        try:
            await self._server.service.converse(method, self, self.peer)
        except RpcError as raised:
            error = raised
        except asyncio.CancelledError:
            error = RpcError(RpcCode.CANCELLED, method)
        except Exception as raised:
            logger.exception("%s: %s failed", self.process.name, method)
            self.network.internal_error(f"{method}: {raised!r}")
            error = INTERNAL_ERROR
        self._finish(error)

    def _finish(self, error: RpcError | None) -> None:
        self.stop_keepalive()
        self._server.calls.pop(self._number, None)
        if self.broken is not None or self.process.dead:
            return
        self.broken = RpcError(RpcCode.CANCELLED, "the stream has ended")
        if error is None:
            self.deliver(lambda end: end.peer_ended())
        else:
            final = error
            self.deliver(lambda end: end.break_off(final))

    async def send(self, message: bytes) -> None:
        if self._closed:
            raise RpcError(RpcCode.CANCELLED, "the stream has ended")
        self._in_operation = True
        try:
            await super().send(message)
        finally:
            self._in_operation = False

    async def receive(self) -> bytes | None:
        if self._closed:
            return None
        self._in_operation = True
        try:
            return await self.next_message()
        finally:
            self._in_operation = False

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._ended = True
            self._wake()

    def client_left(self) -> None:
        """The client has cancelled or died. The handler hears of it as in gRPC."""
        self.break_off(RpcError(RpcCode.CANCELLED, "the client has gone"))

    def break_off(self, error: RpcError) -> None:
        super().break_off(error)
        if not self._began:  # and it never will: a task that is cancelled first never runs
            self._server.calls.pop(self._number, None)
        if self._task is not None and not self._in_operation:
            self._task.cancel()

    def server_closed(self) -> None:
        error = RpcError(RpcCode.UNAVAILABLE, "the server is shutting down")
        self.deliver(lambda end: end.break_off(error))
        self.break_off(error)

    def server_died(self, *, silent: bool) -> None:
        if not silent:
            error = RpcError(RpcCode.UNAVAILABLE, "the connection was reset")
            self.deliver(lambda end: end.break_off(error))
