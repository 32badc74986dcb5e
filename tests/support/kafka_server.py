"""The server's end of a Kafka connection on a fake transport; the test answers for its handlers."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Generator
from typing import Any

from runtime.kafka.connection import KafkaServerProtocol
from runtime.kafka.requests import PendingRequest, Queue, Timing
from stele.wire import kafka
from stele.wire.kafka.messages import find_coordinator

MAX_REQUEST_BYTES = 4_000_000

Respond = Callable[[kafka.Struct | None], None]


class FakeTransport(asyncio.Transport):
    """Records the calls of a connection."""

    def __init__(self, tls_memory_bytes: int = 0) -> None:
        super().__init__({"peername": ("10.0.0.7", 5555), "tls_memory_bytes": tls_memory_bytes})
        self.written: list[bytes] = []
        self.write_calls = 0
        self.is_paused = False
        self.pauses = 0
        self.closing = False
        self.unsent_bytes = 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def abort(self) -> None:
        self.closing = True

    def writelines(self, list_of_data: Any) -> None:
        self.write_calls += 1
        self.written += [bytes(each) for each in list_of_data]

    def pause_reading(self) -> None:
        assert not self.is_paused
        self.is_paused = True
        self.pauses += 1

    def resume_reading(self) -> None:
        assert self.is_paused
        self.is_paused = False

    def is_reading(self) -> bool:
        return not self.is_paused

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True


class Handlers:
    """Keeps requests until the test answers them. With ``at_once`` it answers by itself."""

    def __init__(self, at_once: Callable[[Any], Any] | None = None) -> None:
        self.taken: list[tuple[kafka.RequestHeader, Any, Respond]] = []
        self.at_once = at_once
        self.unserved: set[int] = set()
        self.in_turn: set[int] = set()
        self.waits: list[tuple[int, Queue, float]] = []  # by correlation id
        self.requests: list[PendingRequest] = []
        self.turn_clock: Callable[[], float] | None = None
        self.answered_ids: list[int] = []
        self._came = asyncio.Event()

    @property
    def timing(self) -> Timing:
        return self

    async def wait_for(self, count: int) -> None:
        while len(self.taken) < count:
            self._came.clear()
            await self._came.wait()

    def serves(self, api_key: int, api_version: int) -> bool:
        return api_key not in self.unserved

    def prepare(
        self, request: PendingRequest, message: kafka.Struct
    ) -> Generator[None, None, kafka.Struct]:
        yield from ()
        return message

    def takes_turns(self, header: kafka.RequestHeader, message: kafka.Struct) -> bool:
        return header.api_key in self.in_turn

    def handle(self, request: PendingRequest, message: kafka.Struct) -> None:
        self.requests.append(request)
        self.taken.append((request.header, message, request.answer))
        self._came.set()
        if self.at_once is not None:
            request.answer(self.at_once(message))

    def answered(self, request: PendingRequest, message: kafka.Struct | None) -> None:
        self.answered_ids.append(request.header.correlation_id)

    def waited(self, header: kafka.RequestHeader, queue: Queue, waited_s: float) -> None:
        self.waits.append((header.correlation_id, queue, waited_s))


class Server:
    """A server protocol on a fake transport."""

    def __init__(self, handlers: Handlers | None = None, **options: Any) -> None:
        self.handlers = handlers or Handlers()
        self.transport = FakeTransport(options.pop("tls_memory_bytes", 0))
        self.events: list[str] = []
        self.protocol = KafkaServerProtocol(
            self.handlers,
            max_request_bytes=options.pop("max_request_bytes", MAX_REQUEST_BYTES),
            listener_name="EXTERNAL",
            on_connect=lambda _: self.events.append("connect"),
            on_close=lambda _: self.events.append("close"),
            **options,
        )
        self.protocol.connection_made(self.transport)

    def feed(self, data: bytes, piece: int = 1 << 30) -> int:
        """Receive as a transport would, ``piece`` bytes at a time. Returns the number of bytes
        taken."""
        fed = 0
        while fed < len(data) and self.transport.is_reading() and not self.transport.is_closing():
            buffer = self.protocol.get_buffer(-1)
            size = min(len(buffer), piece, len(data) - fed)
            buffer[:size] = data[fed : fed + size]
            buffer.release()
            fed += size
            self.protocol.buffer_updated(size)
        return fed

    def answers(self) -> list[int]:
        """The correlation ids written so far, in order."""
        data, ids = b"".join(self.transport.written), []
        while data:
            size, correlation_id = struct.unpack_from(">ii", data)
            ids.append(correlation_id)
            data = data[4 + size :]
        return ids


def request(correlation_id: int, client_id: str = "c") -> bytes:
    message = find_coordinator.FindCoordinatorRequest(key="group")
    return b"".join(
        kafka.encode_request(find_coordinator.API, 3, correlation_id, client_id, message)
    )


ANSWER = find_coordinator.FindCoordinatorResponse(error_code=15)
