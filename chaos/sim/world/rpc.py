"""The simulated control plane: unary calls, which may overtake each other, and ordered streams."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from chaos.sim.world.fabric import Fabric, Route
from chaos.sim.world.process import Machine, Process
from chaos.sim.world.wire import Said, Stage
from stele.world import RpcCode, RpcError, Stream
from world.network import Peer, Service

logger = logging.getLogger(__name__)

# The keepalive options of real channels (interval, timeout): a silent peer's streams break.
_CLIENT_KEEPALIVE_S = (10.0, 5.0)
_SERVER_KEEPALIVE_S = (20.0, 10.0)
# How many bytes a stream's sender may be ahead of its receiver.
_WINDOW_BYTES = 1024 * 1024

# Calls whose copies may arrive much later: their handlers must not rely on the caller's waiting.
_MAY_COME_LATE = frozenset(
    {
        "/stele.v1.Controller/AlterPartition",
        "/stele.v1.Raft/Vote",
        "/stele.v1.Raft/BeginQuorumEpoch",
        "/stele.v1.Raft/EndQuorumEpoch",
        "/stele.v1.Raft/Fetch",
        "/stele.v1.Admin/AddVoter",
        "/stele.v1.Admin/RemoveVoter",
    }
)

_INTERNAL_ERROR = RpcError(RpcCode.INTERNAL, "internal error; see the node's log")


class ProcessNetwork(Protocol):
    """What calls need of their process's network."""

    fabric: Fabric
    process: Process

    def resolve(self, host: str) -> Machine | None: ...

    def note(self, kind: str, text: str) -> None: ...

    def internal_error(self, text: str) -> None:
        """A handler failed with an error that it should have handled."""
        ...


class RpcServer:
    """A port that serves the control plane, and the calls that run there now."""

    def __init__(
        self, network: ProcessNetwork, port: int, service: Service, health: Mapping[str, bool]
    ) -> None:
        self.network = network
        self.process: Process = network.process
        self.service = service
        self.port = port
        self.health = health
        self.open = True
        self.calls: dict[int, ServerCall | ServerStream] = {}
        self._next_call = 0
        self._resource = self.process.own(self)
        self.process.machine.ports[port] = self

    def add(self, call: ServerCall | ServerStream) -> int:
        self._next_call += 1
        self.calls[self._next_call] = call
        return self._next_call

    def die(self, *, silent: bool) -> None:
        self.open = False
        self.process.machine.ports.pop(self.port, None)
        for call in list(self.calls.values()):
            call.server_died(silent=silent)
        self.calls.clear()

    async def close(self, *, grace_s: float = 0.0) -> None:
        if self.process.dead or not self.open:
            return
        self.open = False
        self.process.machine.ports.pop(self.port, None)
        self.process.disown(self._resource)
        deadline = self.process.loop.time() + grace_s
        while self.calls and self.process.loop.time() < deadline:
            await asyncio.sleep(0.01)
        for call in list(self.calls.values()):
            call.server_closed()
        while self.calls:
            await asyncio.sleep(0.01)


# ------------------------------------------------------------------------------- unary calls


class ClientCall:
    """A unary call at its client. It takes the first answer or error that comes."""

    def __init__(self, channel: SimChannel, method: str) -> None:
        self.network = channel.network
        self.process = channel.network.process
        self.method = method
        self._channel = channel
        self._host, self._port = channel.host, channel.port
        self._answer: asyncio.Future[bytes] = self.process.loop.create_future()
        self.server_calls: list[ServerCall] = []
        self.over = False
        self._request = b""
        self._resource = self.process.own(self)

    async def run(self, request: bytes, timeout_s: float) -> bytes:
        deadline = self.process.loop.call_later(
            timeout_s, self.fail, RpcError(RpcCode.DEADLINE_EXCEEDED, self.method)
        )
        self._send(request, timeout_s)
        try:
            return await self._answer
        finally:
            deadline.cancel()
            self._end()

    def _send(self, request: bytes, timeout_s: float) -> None:
        fabric = self.network.fabric
        machine = self.process.machine
        target = self.network.resolve(self._host)
        if target is None:
            self.process.loop.call_soon(
                self.fail, RpcError(RpcCode.UNAVAILABLE, f"no host {self._host}")
            )
            return
        rng = fabric.rng(machine, target)
        faults = fabric.faults
        copies = 1
        if faults.lost_request and rng.random() < faults.lost_request:
            copies = 0
        elif faults.duplicate and rng.random() < faults.duplicate:
            copies = 2
        self.network.note(
            "call", f"{target.name}:{self._port}{self.method} {len(request)}x{copies}"
        )
        self._request = request
        said = self._said(machine, target)
        fabric.wire.tell(Stage.SENT, said)
        held_s = [fabric.wire.held_s(said)] * copies
        late = faults.late_copy if self.method in _MAY_COME_LATE else 0.0
        if late and rng.random() < late:
            held_s.append(rng.uniform(0.0, faults.late_copy_s))
        held_s += fabric.wire.echoes_s(said)
        for late_s in held_s:
            if late_s:
                fabric.scheduler.at(late_s, self._leave, target, request, timeout_s)
            else:
                self._leave(target, request, timeout_s)

    def _said(self, source: Machine, target: Machine, answer: bytes = b"") -> Said:
        return Said(source.name, target.name, self.method, self._request, answer)

    def _leave(self, target: Machine, request: bytes, timeout_s: float) -> None:
        self.network.fabric.send(
            self.process.machine, target, self._arrive, target, request, timeout_s
        )

    def _arrive(self, target: Machine, request: bytes, timeout_s: float) -> None:
        """The request arrives at the server's machine."""
        self.network.fabric.wire.tell(Stage.ARRIVED, self._said(self.process.machine, target))
        server = target.ports.get(self._port)
        if not isinstance(server, RpcServer):
            self.reply(target, RpcError(RpcCode.UNAVAILABLE, f"{target.name}:{self._port} refused"))
            return
        call = ServerCall(server, self)
        self.server_calls.append(call)
        call.begin(request, timeout_s)

    def reply(self, source: Machine, outcome: bytes | RpcError) -> None:
        """Send the outcome, from the server's machine."""
        fabric = self.network.fabric
        faults = fabric.faults
        if isinstance(outcome, bytes):
            said = self._said(self.process.machine, source, outcome)
            fabric.wire.tell(Stage.ANSWERED, said)
        rng = fabric.rng(source, self.process.machine)
        if faults.lost_reply and rng.random() < faults.lost_reply:
            return
        fabric.send(source, self.process.machine, self.process.loop.hand_in, self._take, outcome)

    def _take(self, outcome: bytes | RpcError) -> None:
        if isinstance(outcome, RpcError):
            self.fail(outcome)
        elif not self._answer.done():
            self._answer.set_result(outcome)

    def fail(self, error: RpcError) -> None:
        if not self._answer.done():
            self._answer.set_exception(error)

    def _end(self) -> None:
        """End the call. Whatever still runs for it at the server is cancelled."""
        if self.over or self.process.dead:
            return
        self.over = True
        self.process.disown(self._resource)
        self._channel.open_calls.pop(self, None)
        self._cancel_at_server()

    def die(self, *, silent: bool) -> None:
        self.over = True
        if not silent:
            self._cancel_at_server()

    def _cancel_at_server(self) -> None:
        for call in self.server_calls:
            if not call.over:
                self.network.fabric.send(
                    self.process.machine, call.server.process.machine, call.client_left
                )


class ServerCall:
    """A unary call at its server."""

    def __init__(self, server: RpcServer, client: ClientCall) -> None:
        self.server = server
        self._client = client
        self._task: asyncio.Task[None] | None = None
        self.over = False
        self._number = server.add(self)
        self._deadline: asyncio.TimerHandle | None = None

    def begin(self, request: bytes, timeout_s: float) -> None:
        loop = self.server.process.loop
        self._task = loop.create_task(self._serve(request))
        # A gRPC call carries its deadline to the server.
        self._deadline = loop.call_later(timeout_s, self.client_left)

    async def _serve(self, request: bytes) -> None:
        method = self._client.method
        handler = self.server.service.unary.get(method)
        outcome: bytes | RpcError
        try:
            if handler is None:
                raise RpcError(RpcCode.UNIMPLEMENTED, method)
            outcome = await handler(request, Peer(self._client.process.machine.name))
        except RpcError as error:
            outcome = error
        except asyncio.CancelledError:
            outcome = RpcError(RpcCode.CANCELLED, method)
        except Exception as error:
            logger.exception("%s: %s failed", self.server.process.name, method)
            self.server.network.internal_error(f"{method}: {error!r}")
            outcome = _INTERNAL_ERROR
        self._finish(outcome)

    def _finish(self, outcome: bytes | RpcError) -> None:
        if not self.over:
            self.over = True
            self.server.calls.pop(self._number, None)
            if self._deadline is not None:
                self._deadline.cancel()
            self._client.reply(self.server.process.machine, outcome)

    def client_left(self) -> None:
        """The client has cancelled, or its deadline has passed."""
        self._cancel(RpcError(RpcCode.CANCELLED, "the client has gone"))

    def server_closed(self) -> None:
        self._cancel(RpcError(RpcCode.UNAVAILABLE, "the server is shutting down"))

    def _cancel(self, outcome: RpcError) -> None:
        if self.over:
            return
        if self._task is not None:
            self._task.cancel()
        self._finish(outcome)

    def server_died(self, *, silent: bool) -> None:
        self.over = True
        if not silent:
            error = RpcError(RpcCode.UNAVAILABLE, "the connection was reset")
            self._client.reply(self.server.process.machine, error)


# ----------------------------------------------------------------------------------- streams


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
        """Wake the one who waits for a message, if anybody does."""
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

    def __init__(self, channel: SimChannel, method: str) -> None:
        network = channel.network
        target = network.resolve(channel.host)
        super().__init__(network, target or network.process.machine, _CLIENT_KEEPALIVE_S)
        self.method = method
        self._channel = channel
        self._resource = self.process.own(self)
        if target is None:
            self.break_off(RpcError(RpcCode.UNAVAILABLE, f"no host {channel.host}"))
            return
        network.note("stream", f"{target.name}:{channel.port}{method}")
        self.route.send(lambda: self._arrive(target))
        self.start_keepalive()

    def _arrive(self, target: Machine) -> None:
        """The stream arrives at the server's machine: find the server of the port."""
        port = self._channel.port
        server = target.ports.get(port)
        if isinstance(server, RpcServer):
            self.other = ServerStream(server, self)
            return
        error = RpcError(RpcCode.UNAVAILABLE, f"{target.name}:{port} refused")
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
        self._channel.open_calls.pop(self, None)

    def die(self, *, silent: bool) -> None:
        if not silent and self.broken is None and not self._ended:
            self.deliver(lambda end: end.client_left())


class ServerStream(StreamEnd):
    """The server's end, and the handler that runs with it."""

    def __init__(self, server: RpcServer, client: ClientStream) -> None:
        super().__init__(server.network, client.process.machine, _SERVER_KEEPALIVE_S)
        self.other = client
        self._method = client.method
        self._peer = Peer(client.process.machine.name)
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
        handler = self._server.service.streams.get(method)
        error: RpcError | None = None
        try:
            if handler is None:
                raise RpcError(RpcCode.UNIMPLEMENTED, method)
            await handler(self, self._peer)
        except RpcError as raised:
            error = raised
        except asyncio.CancelledError:
            error = RpcError(RpcCode.CANCELLED, method)
        except Exception as raised:
            logger.exception("%s: %s failed", self.process.name, method)
            self.network.internal_error(f"{method}: {raised!r}")
            error = _INTERNAL_ERROR
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


class SimChannel:
    """``stele.world.Channel``."""

    def __init__(self, network: ProcessNetwork, host: str, port: int) -> None:
        self.network = network
        self.host, self.port = host, port
        self.open_calls: dict[ClientCall | ClientStream, None] = {}  # in the order of their start
        self._closed = False

    async def call(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        if self._closed:
            raise RpcError(RpcCode.CANCELLED, "the channel is closed")
        call = ClientCall(self, method)
        self.open_calls[call] = None
        return await call.run(bytes(request), timeout_s)

    def stream(self, method: str) -> Stream:
        stream = ClientStream(self, method)
        self.open_calls[stream] = None
        if self._closed:
            stream.channel_closed()
        return stream

    async def close(self) -> None:
        if self._closed or self.network.process.dead:
            return
        self._closed = True
        for call in list(self.open_calls):
            if isinstance(call, ClientCall):
                call.fail(RpcError(RpcCode.CANCELLED, "the channel was closed"))
            else:
                call.channel_closed()
