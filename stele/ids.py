"""Ids of 16 bytes in Kafka's text form: of directories, clusters and topics."""

from __future__ import annotations

import base64


def encode_uuid(value: bytes) -> str:
    """Kafka's text form of a 16-byte id: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def decode_uuid(text: str) -> bytes:
    """Raises ValueError."""
    value = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(value) != 16:
        raise ValueError(f"{text} is not the text of a 16-byte id")
    return value
