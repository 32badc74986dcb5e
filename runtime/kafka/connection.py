"""The server's end of a Kafka connection: frames in, requests out to handlers, answers in order.

Handlers may answer in any order and at any time; the connection writes the answers in the order of
the requests. It stops reading while the peer does not take its answers, while too much is
unanswered, while the node is short of memory (``connection_memory``), and while other connections
have their turn (``turns``). Most requests of one connection take turns, too: each begins when the
answer of the one before is written, as in Kafka. Bytes that are no request close the connection,
and so does a request that the gate of a SASL listener refuses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from typing import Any, Final, cast

from runtime.kafka.authentication import RAW_TOKEN, Gate
from runtime.kafka.connection_memory import SMALL_BYTES, ConnectionMemory, MemoryShare
from runtime.kafka.in_flight import InFlight
from runtime.kafka.loop_share import LoopShare
from runtime.kafka.mute import Mute
from runtime.kafka.requests import Dispatch, PendingRequest, Queue, other_version_needed
from runtime.kafka.turns import CLIENT_ID_BYTES, Turns
from runtime.logins.listener import ListenerLogins
from stele.wire import kafka
from stele.wire.kafka.frames import FrameReader, FrameSizeError
from stele.world import Buffer
from world.network import ANONYMOUS, Identity

logger = logging.getLogger(__name__)

MAX_IN_FLIGHT_REQUESTS: Final = 64
MAX_IN_FLIGHT_BYTES: Final = 64 * 1024 * 1024
WRITE_HIGH_WATER_BYTES: Final = 1024 * 1024


class KafkaServerProtocol(asyncio.BufferedProtocol):
    """One connection. ``Network.listen`` makes one per accepted peer through its factory.

    ``max_request_bytes`` is ``socket.request.max.bytes``. The hooks are called once each, when the
    peer is there and when the connection is lost. ``memory`` and ``turns`` are shared by a node's
    connections.
    ``logins``: the listener has SASL, and this is how its clients log in.
    """

    def __init__(
        self,
        handlers: Dispatch,
        *,
        max_request_bytes: int,
        listener_name: str,
        memory: ConnectionMemory | None = None,
        turns: Turns | None = None,
        logins: ListenerLogins | None = None,
        on_connect: Callable[[KafkaServerProtocol], None] | None = None,
        on_close: Callable[[KafkaServerProtocol], None] | None = None,
        max_in_flight_requests: int = MAX_IN_FLIGHT_REQUESTS,
        max_in_flight_bytes: int = MAX_IN_FLIGHT_BYTES,
    ) -> None:
        self.listener_name: Final = listener_name
        self.peer = "?"
        self.address = "?"  # the peer's, without its port
        self.principal = ANONYMOUS
        self.node_ids: frozenset[int] = frozenset()  # that its certificate names
        self.is_of_follower = False  # whether it has sent a follower's Fetch
        self.by_delegation_token = False  # whether a delegation token has proven the principal
        self.gate: Gate | None = None  # on a SASL listener, once the peer is there
        # The client's, as its last ApiVersions says (KIP-511).
        self.software_name = ""
        self.software_version = ""
        self.client_id = ""  # of its last request
        self.loop_share: Final = LoopShare()
        self.muted: Final = Mute(self._end_mute)
        self.requests = 0  # taken so far
        self.bytes_in = 0
        self.bytes_out = 0
        self.errors = 0  # answers with an error of the whole request
        self.opened_s = 0.0  # the loop's time
        # When the peer last sent, or took what was written: for connections.max.idle.ms.
        self.last_active_s = 0.0  # the loop's time
        self._handlers = handlers
        self._timing = handlers.timing
        self._logins = logins
        self._on_connect = on_connect
        self._on_close = on_close
        self._max_in_flight_requests = max_in_flight_requests
        self._max_in_flight_bytes = max_in_flight_bytes
        self._memory = MemoryShare(memory or ConnectionMemory(-1), self)
        self._turns = turns or Turns()
        self.awaits_turn = False  # others of the node go first
        self._has_enough = False  # it receives no more before its turn
        self._tls_bytes = 0  # what encryption holds for the connection
        self._max_request_bytes = max_request_bytes
        self._reader = FrameReader(max_request_bytes, kafka.largest_request_bytes)
        self._transport: asyncio.Transport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pending: Final = InFlight()
        self._unsent_bytes = 0  # written and not taken, while that is much
        # Of those that take turns, the one whose turn it is, and the next; nothing is taken behind.
        self._turn: PendingRequest | None = None
        # The newest, while its message is decoded in slices; nothing is taken behind it.
        self._decoding: tuple[PendingRequest, Generator[None, None, kafka.Struct]] | None = None
        self._next: tuple[PendingRequest, kafka.Struct] | None = None
        self.is_held = False  # whether nothing is read, because too many connections come
        self._is_writable = True
        self._is_reading = True
        self._is_draining = False  # takes no more requests
        self._is_ended = False  # the peer sends no more
        self._is_processing = False

    @property
    def in_flight(self) -> int:
        """Requests taken and not answered yet."""
        return self._pending.count

    @property
    def is_stalled(self) -> bool:
        """Whether the peer does not take its answers."""
        return not self._is_writable

    @property
    def is_closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def close(self) -> None:
        """Close after what is written has gone out; unanswered requests stay so."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once, whatever was written."""
        if self._transport is not None:
            self._transport.abort()

    def memory_freed(self) -> None:
        """See ``Holder``."""
        self._memory.freed()
        self._process()

    def give_way(self) -> bool:
        """See ``Holder``."""
        if self._pending.count or not self._reader.held_bytes:
            return False
        logger.warning(
            "closing %s on %s: all memory of queued.max.request.bytes is held by half received "
            "requests, of this one %d bytes",
            self.peer,
            self.listener_name,
            self._reader.held_bytes,
        )
        self.abort()
        return True

    def log_in(self, principal: str, *, by_delegation_token: bool) -> None:
        """See ``GatedConnection``."""
        self.principal = principal
        self.by_delegation_token = by_delegation_token
        self._reader.max_bytes = self._max_request_bytes

    def hold(self) -> None:
        """Read nothing until ``let_in``."""
        self.is_held = True
        self._update_reading()

    def let_in(self) -> None:
        self.is_held = False
        if self._loop is not None:
            self.last_active_s = self._loop.time()
        self._process()

    def mute(self, seconds: float) -> None:
        """Take no request for this time. The longest of such times counts."""
        if not self.is_closed:
            self.muted.extend(seconds)
            self._update_reading()

    def _end_mute(self) -> None:
        if self._loop is not None:
            self.last_active_s = self._loop.time()  # nobody could send meanwhile
        self._process()

    def drain(self) -> None:
        """Take no more requests; close once those in flight are answered."""
        self._is_draining = True
        self._process()

    # ------------------------------------------------------------------ asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        self._loop = asyncio.get_running_loop()
        self.opened_s = self.last_active_s = self._loop.time()
        self.peer = _name_of(transport.get_extra_info("peername"))
        self.address = self.peer.rpartition(":")[0]
        if self._logins is None:
            self.principal = transport.get_extra_info("principal") or ANONYMOUS
        else:
            self.gate = Gate(self, self._logins)
            self._reader.max_bytes = min(Gate.MAX_FRAME_BYTES, self._max_request_bytes)
        self._tls_bytes = transport.get_extra_info("tls_memory_bytes", 0)
        if self._on_connect is not None:
            self._on_connect(self)

    def tls_established(self, identity: Identity) -> None:
        """See ``world.network.LearnsIdentity``. Where clients log in, that says who they are. A
        certificate binds its holder to a node there, too."""
        self.node_ids = identity.node_ids
        if self._logins is None:
            self.principal = identity.principal

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reader.has_partial and not self._is_draining:
            logger.info("%s on %s left inside a request", self.peer, self.listener_name)
        self._transport = None
        self.muted.cancel()
        if self.gate is not None:
            self.gate.closed()
        lost = self._pending.clear()
        self._unsent_bytes = 0
        self._next = None
        self._decoding = None
        self._turns.leave(self)
        self._memory.close()
        for request in lost:
            withdraw, request.withdraw = request.withdraw, None
            if withdraw is not None:
                withdraw()
        if self._on_close is not None:
            self._on_close(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.bytes_in += nbytes
        if self._loop is not None:
            self.last_active_s = self._loop.time()
        self._reader.received(nbytes)
        if self.awaits_turn:
            self._has_enough = True
        self._process()

    def eof_received(self) -> bool:
        """A peer that only stops sending still gets the answers it waits for."""
        self._is_ended = True
        self._process()
        return True

    def pause_writing(self) -> None:
        self._is_writable = False
        self._note_unsent()
        self._update_reading()

    def resume_writing(self) -> None:
        self._is_writable = True
        self._unsent_bytes = 0
        if self._loop is not None:
            self.last_active_s = self._loop.time()
        self._process()

    # -------------------------------------------------------------------------- requests

    def _note_unsent(self) -> None:
        if self._transport is not None:
            self._unsent_bytes = self._transport.get_write_buffer_size()

    def _note_held(self) -> None:
        held = self._reader.held_bytes + self._pending.memory_bytes + self._unsent_bytes
        if held < SMALL_BYTES:
            held = 0
        held += self._tls_bytes
        if held != self._memory.held_bytes and self._transport is not None:
            self._memory.note(held)

    def _may_take(self) -> bool:
        """Whether the next request may be taken, if there is memory."""
        if self._is_draining or self.is_held or self.muted.is_on or not self._is_writable:
            return False
        pending = self._pending  # the next one, and the one that is decoded, too
        return not pending.count or (
            self._next is None
            and self._decoding is None
            and pending.count < self._max_in_flight_requests
            and pending.size_bytes < self._max_in_flight_bytes
        )

    def _process(self) -> None:
        """Take the frames that are there, as far as is allowed.

        Handlers that answer at once come back here through ``_flush``: the loop goes on itself.
        """
        if self._is_processing:
            return
        if self.awaits_turn:
            self._settle()
        elif self._turns.is_contended and self.has_request:
            self._await_turn()
            if self._has_enough or not self._is_reading:
                self._settle()  # otherwise it is read on, and holds what it held
        else:
            self._turns.run(self)

    @property
    def has_request(self) -> bool:
        """Whether a request is there that may be taken, or begun, now."""
        if self._next is not None:
            return self._turn is None and self._is_writable and not self.muted.is_on
        return self._may_take() and not self._memory.is_lacking and self._reader.has_frame

    def _await_turn(self) -> None:
        """Most peers send no more before they are answered, so reading ends only when more comes:
        to stop and to resume costs the kernel more than a small request."""
        self.awaits_turn = True
        self._has_enough = not self._reader.has_room
        named = self.client_id or kafka.client_id_within(self._reader.peek(CLIENT_ID_BYTES))
        self._turns.wait(self, self.principal, named)

    def take_turn(self) -> int:
        """See ``Taker``."""
        self.awaits_turn = self._has_enough = False
        before = self.requests
        if (clock := self._timing.turn_clock) is None:
            self._process_frames()
        else:
            self.loop_share.run(clock, self._process_frames)
        return self.requests - before

    def _process_frames(self) -> None:
        self._is_processing = True
        last = self.requests + self._turns.requests
        transport = self._transport
        try:
            while transport is not None and not transport.is_closing():
                if self._next is not None:
                    if not self._begin_next():
                        break
                    continue
                if not self._may_take() or (self._memory.held_bytes and self._memory.is_lacking):
                    break
                if self.requests == last and self._reader.has_frame:
                    self._await_turn()
                    break
                frame = self._reader.next_frame()
                if frame is None:
                    break
                self._take(frame)
                if self._next is None and not self._reader.has_partial:
                    break
        except FrameSizeError as error:
            self._refuse(f"{error.message} (socket.request.max.bytes); is this a Kafka client?")
        except kafka.MalformedMessageError as error:
            self._refuse(error.message)
        finally:
            self._is_processing = False
        self._settle()

    def _settle(self) -> None:
        """Close the connection if it is over, or read on if it may."""
        if (self._is_draining or self._is_ended) and self._is_over():
            self.close()
        else:
            self._update_reading()

    def _is_over(self) -> bool:
        will_take = not self._is_draining and (self.muted.is_on or self.awaits_turn)
        return not will_take and not self._pending.count

    def _update_reading(self) -> None:
        """Read only while requests may be taken: later bytes stay with the peer."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._note_held()
        if self._is_ended:
            return
        may_take, memory = self._may_take(), self._memory
        awaits_memory = may_take and memory.held_bytes > 0 and memory.is_lacking
        if awaits_memory or memory.awaits:
            memory.wait(awaits_memory)
        may_read = may_take and not awaits_memory and not self._has_enough
        if may_read is self._is_reading:
            return
        self._is_reading = may_read
        if may_read:
            transport.resume_reading()
        else:
            transport.pause_reading()

    def _take(self, frame: bytearray) -> None:
        self.requests += 1
        gate = self.gate
        if gate is not None and gate.expects_raw_token:
            self._decoded(self._begin(RAW_TOKEN, len(frame)), gate.raw_request(frame))
            return
        try:
            header, position, api = kafka.read_request_header(frame)
        except kafka.UnsupportedRequestError as error:
            self._take_unsupported(error.header, len(frame))
            return
        if gate is not None and not gate.admits(header):
            self._is_draining = True
            return
        version = header.api_version
        if not self._handlers.serves(header.api_key, version):
            self._take_unsupported(header, len(frame))
            return
        pending = self._begin(header, len(frame))
        try:
            message = api.decode_request(version, frame, position, kafka.SLICE_ELEMENTS)
        except kafka.TooManyElementsError:
            self._pending.count_elements(pending)
            self._note_held()
            decoding = api.decode_request_in_slices(version, frame, position)
            self._decoding = pending, self._prepared(pending, decoding)
            self._decode_slice()
        except kafka.MalformedMessageError as error:
            self._pending.withdraw(pending)
            self._refuse(error.message)
        else:
            self._decoded(pending, message)

    def _prepared(
        self, pending: PendingRequest, decoding: Generator[None, None, kafka.Struct]
    ) -> Generator[None, None, kafka.Struct]:
        message = yield from decoding
        return (yield from self._handlers.prepare(pending, message))

    def _decode_slice(self) -> None:
        """Decode on; a message with many elements takes more than one turn of the event loop."""
        if self._decoding is None or self._loop is None:
            return  # the connection is lost
        pending, decoding = self._decoding
        try:
            next(decoding)
        except StopIteration as end:
            self._decoding = None
            self._decoded(pending, end.value)
        except kafka.MalformedMessageError as error:
            self._decoding = None
            self._pending.withdraw(pending)
            self._refuse(error.message)
        else:
            self._loop.call_soon(self._decode_on)

    def _decode_on(self) -> None:
        if not self.is_closed:
            self._timed(self._decode_slice)
            self._process()

    def _timed(self, work: Callable[..., None], *arguments: Any) -> None:
        clock = self._timing.turn_clock
        if clock is None:
            work(*arguments)
        else:
            self.loop_share.run(clock, work, *arguments)

    def _decoded(self, pending: PendingRequest, message: kafka.Struct) -> None:
        header = pending.header
        if self._handlers.takes_turns(header, message):
            if self._turn is not None or self.muted.is_on or not self._is_writable:
                self._next = pending, message
                self._note_wait(pending)
                return
            self._turn = pending
        self._handle(pending, message)

    def _begin_next(self) -> bool:
        """Handle the request that waits for its turn, if that has come."""
        if self._next is None or self._turn is not None or not self._is_writable:
            return False
        if self.muted.is_on:
            return False
        (pending, message), self._next = self._next, None
        self._end_wait(pending, Queue.REQUESTS)
        if self.gate is not None and not self.gate.still_admits(pending.header):
            self._pending.withdraw(pending)
            self._is_draining = True
            return False
        self._turn = pending
        self._handle(pending, message)
        return True

    def _note_wait(self, pending: PendingRequest) -> None:
        if pending.waits_since_s is None and self._loop is not None:
            pending.waits_since_s = self._loop.time()

    def _end_wait(self, pending: PendingRequest, queue: Queue) -> None:
        if pending.waits_since_s is None or self._loop is None:
            return
        waited_s = self._loop.time() - pending.waits_since_s
        pending.waits_since_s = None
        self._handlers.waited(pending.header, queue, waited_s)

    def _handle(self, pending: PendingRequest, message: kafka.Struct) -> None:
        try:
            self._handlers.handle(pending, message)
        except Exception:
            logger.exception(
                "handling %s from %s on %s failed", pending.header, self.peer, self.listener_name
            )
            self.close()

    def _begin(self, header: kafka.RequestHeader, size_bytes: int) -> PendingRequest:
        pending = PendingRequest(self, header, size_bytes)
        self._pending.add(pending)
        if pending.memory_bytes >= SMALL_BYTES:
            self._note_held()  # of smaller ones at the end of the turn
        return pending

    def _take_unsupported(self, header: kafka.RequestHeader, size_bytes: int) -> None:
        """A client that asks for versions in a newer way learns which to use (KIP-511)."""
        if header.api_key != kafka.ApiKey.API_VERSIONS:
            self._refuse(
                f"API key {header.api_key} version {header.api_version} is not served here"
            )
            return
        self._send(self._begin(header._replace(api_version=0), size_bytes), other_version_needed())

    def _refuse(self, reason: str) -> None:
        """Take nothing more from this peer; its earlier requests are still answered."""
        logger.warning("closing %s on %s: %s", self.peer, self.listener_name, reason)
        self._is_draining = True

    # --------------------------------------------------------------------------- answers

    def answer(self, pending: PendingRequest, message: kafka.Struct | None) -> None:
        """As ``PendingRequest.answer``."""
        if pending.is_answered:
            raise RuntimeError(f"{pending.header} is answered twice")
        pending.is_answered = True
        pending.withdraw = None
        self._handlers.answered(pending, message)
        if not self.is_closed:
            # The whole turn is measured, so an answer within it is.
            if self._is_processing or (clock := self._timing.turn_clock) is None:
                self._send(pending, message)
            else:
                self.loop_share.run(clock, self._send, pending, message)

    def _send(self, pending: PendingRequest, message: kafka.Struct | None) -> None:
        if message is None:
            self._answered(pending)
            return
        key, version, correlation_id, _ = pending.header
        try:
            if pending.header is RAW_TOKEN:
                pending.buffers = Gate.raw_answer(message)
            else:
                pending.buffers = kafka.encode_response(
                    key, version, correlation_id, message, kafka.SLICE_ELEMENTS
                )
        except kafka.TooManyElementsError:
            encoding = kafka.encode_response_in_slices(key, version, correlation_id, message)
            self._note_wait(pending)
            self._encode_slice(pending, encoding)
        except kafka.UnencodableMessageError as error:
            self._give_up(pending, error)
        else:
            self._answered(pending)

    def _encode_slice(
        self, pending: PendingRequest, encoding: Generator[None, None, list[Buffer]]
    ) -> None:
        """Encode on, as ``_decode_slice``; answers that come meanwhile wait behind."""
        if self.is_closed or self._loop is None:
            return
        try:
            next(encoding)
        except StopIteration as end:
            pending.buffers = end.value
            self._answered(pending)
        except kafka.UnencodableMessageError as error:
            self._give_up(pending, error)
        else:
            self._loop.call_soon(self._timed, self._encode_slice, pending, encoding)

    def _give_up(self, pending: PendingRequest, error: kafka.UnencodableMessageError) -> None:
        logger.error(
            "the answer to %s from %s cannot be sent", pending.header, self.peer, exc_info=error
        )
        self.close()

    def _answered(self, pending: PendingRequest) -> None:
        pending.done = True
        if pending is self._pending.requests[0]:
            self._flush()
        else:
            self._note_wait(pending)
            self._pending.count_answer(pending)
            self._note_held()

    def _flush(self) -> None:
        """Write the answers at the head that are there, all with one call."""
        buffers: list[Buffer] = []
        for pending in self._pending.take_done():
            if pending is self._turn:
                self._turn = None
            if pending.waits_since_s is not None:
                self._end_wait(pending, Queue.ANSWERS)
            buffers += pending.buffers
        if buffers and self._transport is not None:
            self.bytes_out += sum(map(len, buffers))
            self._transport.writelines(buffers)
            if not self._is_writable:
                self._note_unsent()
        if self._memory.held_bytes:
            self._note_held()
        if not self._is_reading or self._is_draining or self._is_ended:
            self._process()  # otherwise no frame waits to be taken


def _name_of(peer: object) -> str:
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) > 1 else str(peer)
