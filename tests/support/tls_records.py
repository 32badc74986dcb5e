"""Records of a TLS 1.3 client that Python's ssl does not write: KeyUpdates, and data in any pieces.

The keys come from the key log of the client's context (RFC 8446, sections 5.3, 7.2 and 7.3).
"""

from __future__ import annotations

import struct
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

CIPHER = "TLS_AES_256_GCM_SHA384"
_HANDSHAKE, _DATA = b"\x16", b"\x17"
_KEY_UPDATE = b"\x18\x00\x00\x01\x00"  # asks for none in return


class ClientRecords:
    """Encrypts in place of a client that has written no data yet."""

    def __init__(self, key_log: Path) -> None:
        lines = [line.split() for line in key_log.read_text().splitlines()]
        secrets = [words[2] for words in lines if words[:1] == ["CLIENT_TRAFFIC_SECRET_0"]]
        self._use(bytes.fromhex(secrets[-1]))

    def data(self, plain: bytes) -> bytes:
        return self._record(plain + _DATA)

    def key_update(self) -> bytes:
        record = self._record(_KEY_UPDATE + _HANDSHAKE)
        self._use(_expanded(self._secret, "traffic upd", 48))
        return record

    def _use(self, secret: bytes) -> None:
        self._secret, self._sequence = secret, 0
        self._key = AESGCM(_expanded(secret, "key", 32))
        self._nonce = int.from_bytes(_expanded(secret, "iv", 12))

    def _record(self, inner: bytes) -> bytes:
        header = b"\x17\x03\x03" + struct.pack(">H", len(inner) + 16)
        nonce = (self._nonce ^ self._sequence).to_bytes(12)
        self._sequence += 1
        return header + self._key.encrypt(nonce, inner, header)


def _expanded(secret: bytes, label: str, length: int) -> bytes:
    name = b"tls13 " + label.encode()
    info = struct.pack(">HB", length, len(name)) + name + b"\x00"
    return HKDFExpand(hashes.SHA384(), length, info).derive(secret)
