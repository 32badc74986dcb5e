"""What a peer speaks, seen by its first bytes: to tell people of a wrong port what is wrong."""

from __future__ import annotations

from typing import Final

_HTTP: Final = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"CONN", b"PRI ")
_HANDSHAKE: Final = 0x16
NEEDED_BYTES: Final = 5
"""The number of bytes that tell the protocols apart."""


def is_tls(data: bytes) -> bool:
    """Whether these may be the first bytes of a TLS client; a prefix of them is enough."""
    return data[:1] == bytes([_HANDSHAKE]) and data[1:2] in (b"", b"\x03")


def why_not_tls(data: bytes, protocol: str) -> str:
    """What a peer speaks on a port of TLS, and what its user is to set. ``protocol``: the port's,
    SSL or SASL_SSL."""
    if data[:4] in _HTTP:
        return f"it speaks HTTP, and this port speaks Kafka's protocol over TLS ({protocol})"
    if data[:1] == b"\x00":
        plain = "SASL_PLAINTEXT" if protocol == "SASL_SSL" else "PLAINTEXT"
        return (
            "it speaks Kafka's protocol in plaintext, and this port expects TLS: set "
            f"security.protocol={protocol} in the client, or let it connect to a listener of "
            f"{plain}"
        )
    return f"its first bytes {data[:8].hex(' ')} are not those of TLS"
