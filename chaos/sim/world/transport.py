"""Byte connections of the simulated data plane, behind asyncio's transport interface."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, cast

from chaos.sim.world.fabric import Fabric, Route
from chaos.sim.world.process import Process

# How many bytes the kernels on both ends buffer before a sender has to wait.
_KERNEL_BYTES = 128 * 1024
_HIGH_WATER_BYTES = 64 * 1024
_NOTHING = memoryview(b"")

Bytes = bytes | bytearray | memoryview
_BYTES = (bytes, bytearray, memoryview)


class SimTransport(asyncio.Transport):
    """One end of a connection. It copies written bytes only when they arrive.

    Like uvloop it does not copy them before: bytes that are changed after they were written may
    arrive changed.
    """

    def __init__(
        self,
        fabric: Fabric,
        process: Process,
        port: int,
        peer: Process,
        peer_port: int,
        principal: str | None = None,
        peer_address: str | None = None,
    ) -> None:
        """``principal``: what the peer has proven. ``peer_address``: in place of its machine's
        name."""
        super().__init__(
            {
                "principal": principal,
                "peername": (peer_address or peer.machine.name, peer_port),
                "sockname": (process.machine.name, port),
            }
        )
        self.process = process
        self.peer_transport: SimTransport  # set by `pair`
        self._fabric = fabric
        self._route = Route(fabric, process.machine, peer.machine, on_give_up=self._given_up)
        self._protocol: asyncio.BaseProtocol | None = None
        self._resource = process.own(self)
        # Set once this end must not be used any more.
        self._closing = False
        self._eof_sent = False
        # The kernel has dropped this end. It answers data that still arrives with a reset.
        self._gone = False
        self._lost_called = False
        self._inbox: deque[Bytes | None] = deque()  # arrived, not yet read; None: end of file
        self._pump_scheduled = False
        self._reading_paused = False
        self._unread_bytes = 0  # written here, not yet read by the peer's protocol
        self._writing_paused = False
        self._low_bytes, self._high_bytes = _HIGH_WATER_BYTES // 4, _HIGH_WATER_BYTES

    # -------------------------------------------------------------------------- as a transport

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        if self._reading_paused and not self._closing:
            self._reading_paused = False
            self._schedule_pump()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH_WATER_BYTES if low is None else 4 * low
        self._high_bytes, self._low_bytes = high, high // 4 if low is None else low
        self._maybe_pause_writing()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_bytes, self._high_bytes

    def get_write_buffer_size(self) -> int:
        return max(0, self._unread_bytes - _KERNEL_BYTES)

    def write(self, data: Bytes) -> None:
        self._send((data,))

    def writelines(self, list_of_data: Iterable[Bytes]) -> None:
        """Bytes written together arrive together, except while a fault slows links down."""
        if self._fabric.faults.slow:
            for data in list_of_data:
                self._send((data,))
        else:
            self._send(tuple(list_of_data))

    def _send(self, parts: tuple[Bytes, ...]) -> None:
        size = 0
        for data in parts:
            if not isinstance(data, _BYTES):
                raise TypeError(f"not bytes: {type(data).__name__}")
            size += data.nbytes if type(data) is memoryview else len(data)
        if self._eof_sent:
            raise RuntimeError("write after write_eof")
        if self._closing or self.process.dead or not size:
            return
        self._unread_bytes += size
        peer = self.peer_transport
        self._route.send(lambda: peer.arrived(parts))
        self._maybe_pause_writing()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not (self._eof_sent or self._closing or self.process.dead):
            self._eof_sent = True
            self._route.send(self.peer_transport.eof_arrived)

    def close(self) -> None:
        """Stop reading, send everything that was written, then tell the protocol."""
        if self._closing or self.process.dead:
            return
        self._closing = True
        self._inbox.clear()
        if not self._eof_sent:
            self._route.send(self.peer_transport.eof_arrived)
        if self.get_write_buffer_size() == 0:
            self._lose(None)

    def abort(self) -> None:
        if self._gone or self.process.dead:
            return
        self._closing = True
        self._route.send(self.peer_transport.reset_arrived)
        self._lose(None)

    # ------------------------------------------------------------------- as the kernel behind it

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand the new connection to its protocol, within the process."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._schedule_pump()

    def send_handshake(self, deliver: Callable[[], object]) -> None:
        """Tell the client that the connection is made, before anything else is sent."""
        self._route.send(deliver)

    def die(self, *, silent: bool) -> None:
        """The process is dead. The kernel sends all or a part of what it had taken, and closes."""
        if self._gone:
            return
        self._closing = self._gone = True
        if silent:
            return
        rng = self._fabric.rng(self.process.machine, self.peer_transport.process.machine)
        if rng.random() < 0.5:
            self._route.drop_queued(rng.randint(0, self._route.queued))
        orderly = rng.random() < 0.5 and not self._inbox
        peer = self.peer_transport
        self._route.send(peer.eof_arrived if orderly else peer.reset_arrived)

    def arrived(self, parts: tuple[Bytes, ...]) -> None:
        if not self.process.machine.powered:
            return
        if self._gone or self._closing:
            self._answer_reset()
            return
        self._inbox.append(b"".join(parts) if len(parts) > 1 else bytes(parts[0]))
        self._schedule_pump()

    def eof_arrived(self) -> None:
        if not (self._gone or self._closing):
            self._inbox.append(None)
            self._schedule_pump()

    def reset_arrived(self) -> None:
        if not self._gone:
            self._inbox.clear()
            self._closing = True
            self._lose(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def _answer_reset(self) -> None:
        """Answer data for a dropped end: its sender finds the connection reset."""
        reply = Route(self._fabric, self.process.machine, self.peer_transport.process.machine)
        reply.send(self.peer_transport.reset_arrived)

    def _given_up(self) -> None:
        if not self._gone:
            self._closing = True
            self._lose(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))

    def _lose(self, error: Exception | None) -> None:
        """End the connection. The protocol hears of it as soon as its process runs."""
        if not self._gone:
            self._gone = True
            self.process.disown(self._resource)
            self.process.loop.call_soon(self._call_connection_lost, error)

    def _call_connection_lost(self, error: Exception | None) -> None:
        if self._protocol is not None and not self._lost_called:
            self._lost_called = True
            self._protocol.connection_lost(error)

    # ------------------------------------------------------------------------- moving the bytes

    def _schedule_pump(self) -> None:
        if not self._pump_scheduled and self._protocol is not None:
            self._pump_scheduled = True
            self.process.loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Give the protocol the data that has arrived, until it pauses reading."""
        self._pump_scheduled = False
        try:
            while self._inbox and not self._reading_paused and not self._closing:
                data = self._inbox.popleft()
                if data is None:
                    self._feed_eof()
                else:
                    self._feed(data)
        except Exception as error:
            self.process.loop.call_exception_handler(
                {"message": "the protocol failed on received data", "exception": error}
            )
            self._closing = True
            self._route.send(self.peer_transport.reset_arrived)
            self._lose(error)

    def _feed(self, data: Bytes) -> None:
        if hasattr(self._protocol, "get_buffer"):
            self._feed_buffered(memoryview(data))
        else:
            cast(asyncio.Protocol, self._protocol).data_received(bytes(data))
            self.peer_transport.read_by_peer(len(data))

    def _feed_buffered(self, view: memoryview) -> None:
        protocol: Any = self._protocol  # an asyncio.BufferedProtocol
        while len(view) and not self._closing:
            if self._reading_paused:
                self._inbox.appendleft(view)
                return
            buffer = memoryview(protocol.get_buffer(-1))
            room, count = len(buffer), len(view)
            if not room:
                raise RuntimeError("get_buffer() returned an empty buffer")
            if count <= room:
                buffer[:count] = view
                view = _NOTHING
            else:
                count = room
                buffer[:] = view[:room]
                view = view[room:]
            buffer.release()  # as asyncio does: the protocol may want to resize its buffer
            protocol.buffer_updated(count)
            self.peer_transport.read_by_peer(count)

    def _feed_eof(self) -> None:
        keep_open = cast(asyncio.Protocol, self._protocol).eof_received()
        if not keep_open:
            self.close()

    def read_by_peer(self, count: int) -> None:
        self._unread_bytes -= count
        if self._closing and not self._gone and self.get_write_buffer_size() == 0:
            self._lose(None)
        if self._writing_paused and self.get_write_buffer_size() <= self._low_bytes:
            self._writing_paused = False
            self.process.loop.call_soon(self._call_resume_writing)

    def _maybe_pause_writing(self) -> None:
        if not self._writing_paused and self.get_write_buffer_size() > self._high_bytes:
            self._writing_paused = True
            self.get_protocol().pause_writing()

    def _call_resume_writing(self) -> None:
        if not self._lost_called:
            self.get_protocol().resume_writing()


def pair(
    fabric: Fabric,
    client: Process,
    client_port: int,
    server: Process,
    server_port: int,
    principal: str | None = None,
    address: str | None = None,
) -> tuple[SimTransport, SimTransport]:
    """Both ends of a new connection, the client's first. ``principal`` and ``address`` are the
    client's."""
    near = SimTransport(fabric, client, client_port, server, server_port)
    far = SimTransport(fabric, server, server_port, client, client_port, principal, address)
    near.peer_transport, far.peer_transport = far, near
    return near, far
