"""What a port speaks: TLS or plaintext, and whether it asks for a login.

A broker closes a connection that does not fit, and cannot say why. So a client that is set to
another security protocol than the listener asks the port itself, once, to tell its user. It sends
nothing but a SaslHandshake, believes nothing that it is told, and shows no certificate.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from typing import Final

from stele.addresses import Address
from stele.errors import ErrorCode
from stele.wire import kafka
from stele.wire.kafka.messages import sasl_handshake
from stele.world import PortFacts

PROBE_S: Final = 2.0
"""How long each step may take."""

_VERSION: Final = 1
_SIZE: Final = struct.Struct(">i")
_ANSWER_MAX: Final = 4096
_ASKED: Final = "PLAIN"  # the answer names all mechanisms, whichever is asked for


def look_at_port(address: Address) -> PortFacts | None:
    """Blocks for a few seconds at most. None: it speaks neither, or cannot be reached."""
    with contextlib.suppress(OSError):
        return _with_tls(address)
    try:
        with _connected(address) as connection:
            mechanisms = _mechanisms(connection)
    except OSError:
        return None
    return None if mechanisms is None else PortFacts(has_tls=False, mechanisms=mechanisms)


def _with_tls(address: Address) -> PortFacts:
    """Raises OSError if the port does not speak TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with _connected(address) as plain:
        try:
            encrypted = context.wrap_socket(plain, server_hostname=address.host)
        except ssl.SSLError as error:
            if "alert" not in (error.reason or "").lower():
                raise
            return PortFacts(has_tls=True)  # TLS 1.2 refuses here whoever has no certificate
        with encrypted:
            try:
                return PortFacts(has_tls=True, mechanisms=_mechanisms(encrypted))
            except OSError as error:
                reason = (getattr(error, "reason", None) or "").lower()
                return PortFacts(True, needs_certificate="certificate_required" in reason)


def _connected(address: Address) -> socket.socket:
    return socket.create_connection((address.host, address.port), timeout=PROBE_S)


def _mechanisms(connection: socket.socket) -> tuple[str, ...] | None:
    """The SASL mechanisms of the listener, none if it asks for no login. None: the answer is not
    Kafka's. Raises OSError."""
    request = sasl_handshake.SaslHandshakeRequest(_ASKED)
    connection.sendall(b"".join(kafka.encode_request(sasl_handshake.API, _VERSION, 0, "", request)))
    (size,) = _SIZE.unpack(_received(connection, _SIZE.size))
    if not 0 < size <= _ANSWER_MAX:
        return None
    try:
        answer = kafka.decode_response(sasl_handshake.API, _VERSION, _received(connection, size))
    except kafka.MalformedMessageError:
        return None
    return () if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE else tuple(answer.mechanisms)


def _received(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionResetError("the peer has closed the connection")
        data += more
    return bytes(data)
