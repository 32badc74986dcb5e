"""TLS between memory and memory: bytes of the network in, bytes of the application out, and back.

It knows no socket and no event loop. Calls of OpenSSL release the interpreter's lock, so a
handshake may run in a thread, as long as nobody else touches the engine meanwhile.
"""

from __future__ import annotations

import ssl
from typing import Final, cast

from stele.world import Buffer

RECORD_BYTES: Final = 16 * 1024
"""The most that one TLS record carries."""


class EndOfStreamError(Exception):
    """The peer sends nothing more."""


class TlsEngine:
    """One side of a TLS connection."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    @property
    def held_bytes(self) -> int:
        """Bytes of the network that are not decrypted yet."""
        return self._incoming.pending

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
        self._incoming.write(data)

    def receive_end(self) -> None:
        """The network has no more."""
        self._incoming.write_eof()

    def shake_hands(self) -> bool:
        """Go on with the handshake; whether it is complete. Raises ssl.SSLError."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def read_into(self, buffer: bytearray | memoryview) -> int:
        """Decrypt into a buffer: how many bytes, 0 if more must come first.

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
