"""The server's end of a TLS connection: an adapter between a TCP transport and a protocol.

The protocol's ``connection_made`` is called when the connection is accepted, so a peer is counted
before its handshake. Its bytes arrive after the handshake, which runs in a thread: the event loop
does no signature. From then on bytes are encrypted and decrypted on the loop, in slices. What the
protocol writes waits in the clear until the network takes more, so a large answer is not in memory
twice, and encrypting it is no long turn of the loop.

Neither uvloop's nor asyncio's own TLS is used. They hide peers until the handshake is over, give no
reason for a failed handshake, allocate 256 KiB for each connection, and make a record of each small
piece that is written.
"""

from __future__ import annotations

import asyncio
import enum
import ssl
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Any, Final, Protocol, cast

from runtime.real.tls_engine import RECORD_BYTES, EndOfStreamError, TlsEngine
from runtime.real.tls_first_bytes import NEEDED_BYTES, is_tls
from stele.world import Buffer
from world.network import Identity, IdentityError, LearnsIdentity

HANDSHAKE_S: Final = 10.0
"""A peer that has not completed its handshake by then is let go."""

RECEIVE_BYTES: Final = 256 * 1024
"""The size of the buffer into which all connections of a listener receive, one after the other."""

SLICE_BYTES: Final = 8 * RECORD_BYTES
"""The most that is encrypted in one call."""

TURN_BYTES: Final = 4 * SLICE_BYTES
"""The most that one connection encrypts in one turn of the event loop."""

TURN_RECORDS: Final = 64
"""The most records that one connection decrypts in one turn of the event loop. 64 KeyUpdates take
OpenSSL about a millisecond."""

EMPTY_RECORDS: Final = 64
"""A peer that sends more records in a row without data is let go. An honest one sends a KeyUpdate
now and then."""

CONNECTION_BYTES: Final = 32 * 1024
"""About what OpenSSL and this adapter hold for one idle connection (``bench secure``)."""

_LEFT: Final = "it left before the handshake was complete"
_NOBODY: Final = asyncio.BaseProtocol()
_DEFAULT_HIGH_WATER: Final = 64 * 1024


class Failure(enum.Enum):
    """Why TLS failed with a peer, in the words of the metric."""

    NOT_TLS = "not_tls"
    TIMEOUT = "timeout"
    LEFT = "left"
    TLS = "tls"
    CERTIFICATE = "certificate"
    IDENTITY = "identity"


class Handshakes(Protocol):
    """What a listener knows of TLS: the context of the day, and what a certificate means."""

    @property
    def context(self) -> ssl.SSLContext: ...

    @property
    def executor(self) -> Executor:
        """The threads that handshakes run in."""
        ...

    def identity_of(self, certificate: bytes | None) -> Identity:
        """The identity in a peer's certificate in DER. Raises IdentityError."""
        ...

    def failed(self, failure: Failure, peer: object, first_bytes: bytes, reason: str) -> None:
        """A handshake failed, or TLS did after it. An empty reason: the first bytes tell."""
        ...

    def succeeded(self) -> None:
        """A handshake is complete."""
        ...


class _State(enum.Enum):
    HANDSHAKE = enum.auto()
    OPEN = enum.auto()
    CLOSING = enum.auto()  # sends what was written, reads nothing
    CLOSED = enum.auto()


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """Both sides of the adapter: a protocol to the raw transport, a transport to the application.

    ``received`` is shared by all connections of a listener: a transport asks for the buffer, fills
    it and says so without a pause, and nothing stays in it.
    """

    def __init__(
        self, handshakes: Handshakes, protocol: asyncio.BaseProtocol, received: bytearray
    ) -> None:
        super().__init__()
        self._handshakes = handshakes
        self._protocol = protocol
        self._received = memoryview(received)
        self._raw: asyncio.Transport = cast(asyncio.Transport, None)  # set by connection_made
        self._loop = asyncio.get_running_loop()
        self._engine = TlsEngine(handshakes.context)
        self._state = _State.HANDSHAKE
        self._first_bytes = bytearray()
        self._is_in_thread = False  # then nobody else touches the engine
        self._is_reason_due = False  # the peer left meanwhile
        self._deadline: asyncio.TimerHandle | None = None
        self._identity: Identity | None = None
        # What was written and is not encrypted yet.
        self._written: deque[memoryview] = deque()
        self._written_bytes = 0
        self._high_water = _DEFAULT_HIGH_WATER
        self._is_raw_full = False
        self._is_protocol_paused = False
        self._is_pumping = False  # the next turn goes on encrypting
        self._is_reading = True  # the application wants bytes
        self._is_raw_reading = True
        self._is_delivering = False
        self._is_delivery_due = False  # the next turn goes on decrypting
        self._empty_records = 0  # since the application got its last bytes
        self._is_raw_ended = False  # reading is neither paused nor resumed any more
        self._is_ended = False  # the application knows that the peer sends no more

    # ------------------------------------------------------------- of the raw transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance
        self.set_write_buffer_limits()
        self._start_deadline()
        self._protocol.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._state is _State.HANDSHAKE:
            self._leave()
        self._state = _State.CLOSED
        self._stop_deadline()
        self._written.clear()
        self._written_bytes = 0
        # Let go of it: the two know each other, and would stay until the next garbage collection.
        protocol, self._protocol = self._protocol, _NOBODY
        protocol.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        data = self._received[:nbytes]
        if self._state is _State.HANDSHAKE:
            self._greet(bytes(data))
        elif self._state is _State.OPEN and not self._is_ended:
            self._engine.receive(data)
            self._deliver()

    def eof_received(self) -> bool:
        self._is_raw_ended = True
        if self._state is _State.HANDSHAKE:
            self._leave()
            self.abort()
        elif self._state is _State.OPEN:
            self._engine.receive_end()
            self._deliver()
        return True

    def pause_writing(self) -> None:
        self._is_raw_full = True

    def resume_writing(self) -> None:
        self._is_raw_full = False
        self._pump()

    # ----------------------------------------------------------------------- handshake

    def _greet(self, data: bytes) -> None:
        """Bytes before the handshake is complete; none come while it runs in a thread."""
        if len(self._first_bytes) < NEEDED_BYTES:
            self._first_bytes += data[:NEEDED_BYTES]
            if not is_tls(bytes(self._first_bytes)):
                self._report(Failure.NOT_TLS, "")
                self.abort()
                return
        self._engine.receive(data)
        self._pause_raw()
        self._is_in_thread = True
        running = self._loop.run_in_executor(self._handshakes.executor, self._engine.shake_hands)
        running.add_done_callback(self._shaken)

    def _shaken(self, step: asyncio.Future[bool]) -> None:
        """A step of the handshake has ended in its thread."""
        self._is_in_thread = False
        error = asyncio.CancelledError() if step.cancelled() else step.exception()
        if self._is_reason_due:
            self._report(*((Failure.LEFT, _LEFT) if error is None else _failure_of(error)))
        if self._state is not _State.HANDSHAKE:
            return
        output = self._engine.take_output()
        if output:
            self._raw.write(output)  # after a failure, an alert that says why
        if error is not None:
            failure, reason = _failure_of(error)
            self._report(failure, reason)
            self._raw.close()
        elif not step.result():
            self._resume_raw()
        else:
            self._established()

    def _established(self) -> None:
        self._stop_deadline()
        try:
            self._identity = self._handshakes.identity_of(self._engine.peer_certificate)
        except IdentityError as error:
            self._report(Failure.IDENTITY, str(error))
            self.abort()
            return
        self._state = _State.OPEN
        self._handshakes.succeeded()
        self._first_bytes.clear()
        if isinstance(self._protocol, LearnsIdentity):
            self._protocol.tls_established(self._identity)
        self._deliver()
        self._pump()

    def _leave(self) -> None:
        """The peer has left. If the thread has its last bytes, these may say why."""
        if self._is_in_thread:
            self._is_reason_due = True
        else:
            self._report(Failure.LEFT, _LEFT)

    def _too_late(self) -> None:
        self._report(Failure.TIMEOUT, f"its handshake was not complete after {HANDSHAKE_S:.0f} s")
        self.abort()

    def _report(self, failure: Failure, reason: str) -> None:
        self._state = _State.CLOSED if self._state is _State.HANDSHAKE else self._state
        self._stop_deadline()
        peer = self._raw.get_extra_info("peername")
        self._handshakes.failed(failure, peer, bytes(self._first_bytes), reason)

    def _start_deadline(self) -> None:
        self._deadline = self._loop.call_later(HANDSHAKE_S, self._too_late)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # ------------------------------------------------------------------------- reading

    def _deliver(self) -> None:
        """Give the application what can be decrypted in one turn, while it wants it."""
        if self._is_delivering or self._is_delivery_due:
            return
        self._is_delivering = True
        try:
            self._deliver_records()
        except EndOfStreamError:
            self._end()
        except ssl.SSLError as error:
            self._break(_failure_of(error)[1])
            return
        finally:
            self._is_delivering = False
        if self._state is _State.OPEN:
            self._send_output()
            if self._is_reading and not self._is_delivery_due:
                self._resume_raw()
            else:
                self._pause_raw()

    def _deliver_records(self) -> None:
        """Raises EndOfStreamError or ssl.SSLError."""
        left = TURN_RECORDS
        while self._is_reading and self._state is _State.OPEN and not self._is_ended:
            if self._deliver_some():
                self._empty_records = 0
            elif self._empty_records > EMPTY_RECORDS:
                self._break(f"it sent {self._empty_records} records in a row without data")
            elif left == 0:
                self._deliver_soon()
                return
            elif admitted := self._engine.admit(left):
                left -= admitted
                self._empty_records += admitted
            else:
                return

    def _deliver_soon(self) -> None:
        if not self._is_delivery_due:
            self._is_delivery_due = True
            self._loop.call_soon(self._deliver_on)

    def _deliver_on(self) -> None:
        self._is_delivery_due = False
        if self._state is _State.OPEN:
            self._deliver()

    def _deliver_some(self) -> bool:
        """One piece; False if more records must be admitted first."""
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            count = self._engine.read_into(cast(memoryview, protocol.get_buffer(-1)))
            if count:
                protocol.buffer_updated(count)
            return count > 0
        buffer = bytearray(RECORD_BYTES)
        count = self._engine.read_into(buffer)
        if count:
            cast(asyncio.Protocol, protocol).data_received(bytes(buffer[:count]))
        return count > 0

    def _end(self) -> None:
        self._is_ended = True
        self._engine.forget()  # after its farewell a peer has nothing to say
        protocol = cast(asyncio.Protocol | asyncio.BufferedProtocol, self._protocol)
        if not protocol.eof_received():
            self.close()

    def _break(self, reason: str) -> None:
        """Bytes that are no TLS, that somebody has changed, or that only keep this node busy."""
        self._send_output()  # an alert that says why
        self._state = _State.CLOSED
        self._written.clear()
        self._written_bytes = 0
        self._engine.forget()
        self._report(Failure.TLS, reason)
        self._raw.close()

    def _pause_raw(self) -> None:
        if self._is_raw_reading and not self._is_raw_ended and not self._raw.is_closing():
            self._is_raw_reading = False
            self._raw.pause_reading()

    def _resume_raw(self) -> None:
        if not self._is_raw_reading and not self._is_raw_ended and not self._raw.is_closing():
            self._is_raw_reading = True
            self._raw.resume_reading()

    # ------------------------------------------------------------------------- writing

    def _pump(self) -> None:
        """Encrypt and send what was written, as much as the network takes and a turn allows."""
        if self._state not in (_State.OPEN, _State.CLOSING):
            return
        left = TURN_BYTES
        try:
            while self._written and not self._is_raw_full and left > 0:
                left -= self._encrypt_slice()
        except ssl.SSLError as error:
            self._break(_failure_of(error)[1])
            return
        if self._written and not self._is_raw_full and not self._is_pumping:
            self._is_pumping = True
            self._loop.call_soon(self._pump_on)
        self._update_protocol()
        if self._state is _State.CLOSING and not self._written:
            self._say_goodbye()

    def _pump_on(self) -> None:
        self._is_pumping = False
        self._pump()

    def _encrypt_slice(self) -> int:
        """Encrypt the next pieces with few records, and send them; how many bytes."""
        engine, taken = self._engine, 0
        while self._written and taken < SLICE_BYTES:
            piece = self._next_piece()
            engine.encrypt(piece)
            taken += len(piece)
        self._written_bytes -= taken
        self._raw.write(engine.take_output())
        return taken

    def _next_piece(self) -> Buffer:
        """The next bytes to encrypt in one call: a part of a large buffer as it is, or small
        buffers together, up to one record."""
        written = self._written
        first = written[0]
        if len(first) >= RECORD_BYTES:
            return self._take(first, min(len(first) // RECORD_BYTES * RECORD_BYTES, SLICE_BYTES))
        if len(written) == 1:
            return written.popleft()
        record = bytearray()
        while written and len(record) < RECORD_BYTES:
            first = written[0]
            record += self._take(first, min(len(first), RECORD_BYTES - len(record)))
        return record

    def _take(self, first: memoryview, count: int) -> memoryview:
        """The first bytes of the first buffer."""
        if count == len(first):
            return self._written.popleft()
        self._written[0] = first[count:]
        return first[:count]

    def _send_output(self) -> None:
        output = self._engine.take_output()
        if output and not self._raw.is_closing():
            self._raw.write(output)

    def _update_protocol(self) -> None:
        """Tell the application to pause above the high water mark and to go on below half of it.

        The network pauses this adapter at half of the mark, too. So if the application is paused,
        either the network is full and says when it is not, or the next turn encrypts on.
        """
        size = self.get_write_buffer_size()
        protocol = cast(asyncio.Protocol, self._protocol)
        if not self._is_protocol_paused and size > self._high_water:
            self._is_protocol_paused = True
            protocol.pause_writing()
        elif self._is_protocol_paused and size <= self._high_water // 2:
            self._is_protocol_paused = False
            protocol.resume_writing()

    def _say_goodbye(self) -> None:
        self._state = _State.CLOSED
        self._engine.say_goodbye()
        self._send_output()
        self._raw.close()

    # -------------------------------------------------------- the application's transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Beside what sockets have: ``principal``, None before the handshake is complete,
        ``tls_version``, and ``tls_memory_bytes``, about what TLS holds for the connection."""
        if name == "principal":
            return default if self._identity is None else self._identity.principal
        if name == "tls_version":
            return default if self._is_in_thread else self._engine.version or default
        if name == "tls_memory_bytes":
            return CONNECTION_BYTES
        return self._raw.get_extra_info(name, default)

    @property
    def held_bytes(self) -> int:
        """Bytes of the network that are not decrypted yet."""
        return self._engine.held_bytes

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_closing(self) -> bool:
        return self._state in (_State.CLOSING, _State.CLOSED) or self._raw.is_closing()

    def is_reading(self) -> bool:
        return self._is_reading and not self.is_closing()

    def pause_reading(self) -> None:
        """Before the first bytes of the peer, its handshake waits for ``resume_reading``, too."""
        self._is_reading = False
        if self._state is _State.HANDSHAKE and not self._first_bytes:
            self._stop_deadline()
            self._pause_raw()

    def resume_reading(self) -> None:
        self._is_reading = True
        if self._state is _State.HANDSHAKE and not self._first_bytes and self._deadline is None:
            self._start_deadline()
            self._resume_raw()
        if self._state is _State.OPEN and not self._is_delivering:
            self._deliver_soon()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """``low`` is half of ``high``, whatever is given."""
        self._high_water = _DEFAULT_HIGH_WATER if high is None else high
        self._raw.set_write_buffer_limits(self._high_water // 2, self._high_water // 4)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._high_water // 2, self._high_water

    def get_write_buffer_size(self) -> int:
        return self._written_bytes + self._raw.get_write_buffer_size()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        if self.is_closing():
            return
        for data in list_of_data:
            if len(data):
                view = memoryview(data).cast("B")
                self._written.append(view)
                self._written_bytes += len(view)
        if self._state is _State.OPEN and not self._is_pumping:
            self._pump()
        else:
            self._update_protocol()

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        """Close after what was written has gone out."""
        if self.is_closing():
            return
        if self._state is _State.HANDSHAKE:
            self.abort()
            return
        self._state = _State.CLOSING
        self._pause_raw()
        self._pump()

    def abort(self) -> None:
        self._state = _State.CLOSED
        self._stop_deadline()
        self._raw.abort()


_REASONS: Final = (
    ("did not return a certificate", "it showed no certificate, and ssl.client.auth is required"),
    ("alert unknown ca", "it does not trust the authority of this listener's certificate"),
    ("alert bad certificate", "it refuses this listener's certificate"),
    ("alert certificate", "it refuses this listener's certificate"),
    ("unsupported protocol", "it offers no version of ssl.enabled.protocols"),
    ("no shared cipher", "it offers no cipher suite of ssl.cipher.suites that fits the key"),
)
"""OpenSSL's reasons in words that say what to look at; each is shown with OpenSSL's own."""


def _failure_of(error: BaseException) -> tuple[Failure, str]:
    """The kind of a failure, and its reason."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Failure.CERTIFICATE, f"its certificate is not accepted: {error.verify_message}"
    if not isinstance(error, ssl.SSLError):
        return Failure.TLS, f"{type(error).__name__}: {error}"
    words = (error.reason or str(error)).lower().replace("_", " ")
    meaning = next((plain for said, plain in _REASONS if said in words), None)
    kind = Failure.CERTIFICATE if "certificate" in words else Failure.TLS
    return kind, words if meaning is None else f"{meaning} ({words})"
