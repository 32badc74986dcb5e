"""Where something is reached, and how an address is written for people and for gRPC."""

from __future__ import annotations

import enum
from typing import NamedTuple


class SecurityProtocol(enum.Enum):
    """How the connections to an address are protected, with Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether a client says who it is by a SASL dialogue."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Address(NamedTuple):
    """A machine and a port, to listen on or to connect to. What is spoken there, Kafka's protocol
    or gRPC, is up to those who do."""

    host: str
    port: int
    security: SecurityProtocol = SecurityProtocol.PLAINTEXT

    def __str__(self) -> str:
        return address_text(self.host, self.port)


def address_text(host: str, port: int | str) -> str:
    """``host:port``. An IPv6 host gets brackets: without them its end could not be found."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
