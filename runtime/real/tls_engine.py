"""TLS between memory and memory: bytes of the network in, bytes of the application out, and back.

OpenSSL handles in one call every record that it has until one of them carries data. A peer chooses
how many records carry none: a record with a KeyUpdate has 27 bytes. So records wait here, and the
caller says how many of them OpenSSL is given.

The engine knows no socket and no event loop. Calls of OpenSSL release the interpreter's lock, so a
handshake may run in a thread, as long as nobody else touches the engine meanwhile.
"""

from __future__ import annotations

import ssl
from typing import Final, cast

from stele.world import Buffer

RECORD_BYTES: Final = 16 * 1024
"""The most that one TLS record carries."""

_HEADER_BYTES: Final = 5  # type, version, and in two bytes the length of what follows
_LONGEST_RECORD: Final = RECORD_BYTES + 2048  # as TLS 1.2 allows; OpenSSL refuses longer ones


class EndOfStreamError(Exception):
    """The peer sends nothing more."""


class TlsEngine:
    """One side of a TLS connection."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._waiting = bytearray()  # records that OpenSSL has not been given
        self._is_over = False  # nothing more comes, and OpenSSL does not know yet
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    @property
    def held_bytes(self) -> int:
        """Bytes of the network that are not decrypted yet."""
        return len(self._waiting) + self._incoming.pending

    @property
    def version(self) -> str | None:
        """E.g. ``TLSv1.3``; None before the handshake."""
        return self._object.version()

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's certificate in DER, None if it showed none."""
        return self._object.getpeercert(binary_form=True)

    def receive(self, data: Buffer) -> None:
        """Bytes have come from the network."""
        self._waiting += data

    def receive_end(self) -> None:
        """The network has no more."""
        self._is_over = True

    def forget(self) -> None:
        """Drop the records that wait."""
        self._waiting.clear()

    def admit(self, most: int) -> int:
        """Give OpenSSL the next complete records, at most so many; returns how many.

        The end of the stream follows the last record. It counts as one, with what is cut off.
        """
        count, size = 0, 0
        while count < most and (length := self._record_at(size)):
            count, size = count + 1, size + length
        if size:
            with memoryview(self._waiting)[:size] as records:
                self._incoming.write(records)
            del self._waiting[:size]
        if count < most and self._is_over:
            self._is_over = False
            self._incoming.write(self._waiting)
            self._waiting.clear()
            self._incoming.write_eof()
            count += 1
        return count

    def _record_at(self, start: int) -> int:
        """The length of a record that waits, 0 if it is not complete."""
        waiting = self._waiting
        if len(waiting) - start < _HEADER_BYTES:
            return 0
        length = waiting[start + 3] << 8 | waiting[start + 4]
        if length > _LONGEST_RECORD:
            return len(waiting) - start  # no TLS; OpenSSL says so
        length += _HEADER_BYTES
        return length if len(waiting) - start >= length else 0

    def shake_hands(self) -> bool:
        """Go on with the handshake; whether it is complete. Raises ssl.SSLError.

        Records behind the handshake wait.
        """
        while True:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                if not self.admit(1):
                    return False
            else:
                return True

    def read_into(self, buffer: bytearray | memoryview) -> int:
        """Decrypt into a buffer: how many bytes, 0 if more must be admitted first.

        Raises EndOfStreamError or ssl.SSLError.
        """
        try:
            # With a buffer it returns how many bytes it wrote there, whatever its stub says.
            count = cast(int, self._object.read(len(buffer), cast(bytearray, buffer)))
        except ssl.SSLWantReadError:
            return 0
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            raise EndOfStreamError from None
        if count == 0:
            raise EndOfStreamError
        return count

    def encrypt(self, data: Buffer) -> None:
        """The result is taken by ``take_output``. Raises ssl.SSLError."""
        self._object.write(data)

    def say_goodbye(self) -> None:
        """Tell the peer that nothing more comes."""
        try:
            self._object.unwrap()
        except ssl.SSLError:
            pass  # the peer has not said so, and need not

    def take_output(self) -> bytes:
        """What is to be sent to the network."""
        return self._outgoing.read() if self._outgoing.pending else b""
