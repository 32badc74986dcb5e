"""The protocols of the world that a client needs: types only, no implementation.

Time, randomness and the network come through these. The real ones are in ``stele/real.py``, the
simulated ones in ``chaos/sim``. Protocols that only a node needs, such as the disk's, are in
``world/``.

Timers and tasks are asyncio's own. The simulation runs on an event loop with virtual time, so all
code may use ``asyncio.sleep`` and ``loop.call_later``.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from stele.addresses import Address
from stele.security.client_security import ClientSecurity

Buffer = bytes | bytearray | memoryview

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""The largest message of the control plane (gRPC), in both directions."""


class Clock(Protocol):
    """Time. Each call reads the clock, unlike ``loop.time()``."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary point. Never goes back, and goes on while the process is
        paused."""
        ...

    def time_ms(self) -> int:
        """Milliseconds since the Unix epoch. May jump."""
        ...


class Rng(Protocol):
    """Randomness. ``random.Random`` satisfies it."""

    def random(self) -> float: ...

    def randrange(self, start: int, stop: int, /) -> int: ...

    def uniform(self, a: float, b: float, /) -> float: ...

    def randbytes(self, n: int, /) -> bytes: ...


# ------------------------------------------------------------------------------- network


class RpcCode(enum.Enum):
    """Why a call failed. These are gRPC's status codes."""

    UNAVAILABLE = "unavailable"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    UNIMPLEMENTED = "unimplemented"
    INVALID_ARGUMENT = "invalid_argument"
    CANCELLED = "cancelled"
    INTERNAL = "internal"
    NOT_FOUND = "not_found"
    PERMISSION_DENIED = "permission_denied"
    UNAUTHENTICATED = "unauthenticated"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    FAILED_PRECONDITION = "failed_precondition"
    OUT_OF_RANGE = "out_of_range"


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """Why a call failed, for programs: ``google.rpc.ErrorInfo`` and ``google.rpc.RetryInfo``."""

    reason: str  # the name of Kafka's error
    metadata: Mapping[str, str] = field(default_factory=dict)
    retry_after_ms: int | None = None  # None: the same request will not succeed later


class RpcError(Exception):
    """A call or stream of the control plane failed. ``info`` does not reach our own clients."""

    def __init__(self, code: RpcCode, detail: str = "", info: ErrorInfo | None = None) -> None:
        super().__init__(f"{code.value}: {detail}" if detail else code.value)
        self.code = code
        self.detail = detail
        self.info = info


class Stream(Protocol):
    """One end of a bidirectional stream of messages, in order."""

    async def send(self, message: bytes) -> None:
        """Send a message. Waits while the peer is slow. Raises RpcError if the stream is broken."""
        ...

    async def receive(self) -> bytes | None:
        """The next message. None if the peer has ended its side. Raises RpcError if the stream is
        broken."""
        ...

    async def close(self) -> None:
        """End this side (client: cancels the call). Idempotent."""
        ...


class Channel(Protocol):
    """A client's connection to one peer of the control plane. It connects and reconnects by
    itself."""

    async def call(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        """One unary call. ``method`` is ``/stele.v1.Service/Method``. Raises RpcError."""
        ...

    def stream(self, method: str) -> Stream:
        """Open a bidirectional stream. A failure to connect is raised by the first receive."""
        ...

    async def close(self) -> None: ...


AUTHORIZATION_KEY: Final = "authorization"
"""The key of a gRPC call's metadata with the login of a client."""

CLIENT_ID_KEY: Final = "client-id"
"""The key of a gRPC call's metadata with the name by which a client calls itself,
percent-encoded."""


class PortFacts(NamedTuple):
    """What a port of Kafka's protocol asks of its clients."""

    has_tls: bool
    mechanisms: tuple[str, ...] | None = None
    """The mechanisms of a login by SASL, none if there is no login. None: that is not known."""
    needs_certificate: bool = False


class Connector(Protocol):
    """The half of the network that a client needs."""

    @property
    def security(self) -> ClientSecurity:
        """What every connection and channel is protected with."""
        ...

    async def connect(
        self, address: Address, factory: Callable[[], asyncio.BaseProtocol]
    ) -> asyncio.Transport:
        """Open a byte connection of the data plane. Raises OSError."""
        ...

    async def look_at_port(self, address: Address) -> PortFacts | None:
        """What the port of a broker that closes this client's connections speaks, to tell the user.
        None: that is not known. It may take seconds."""
        ...

    def channel(self, address: Address, client_id: str | None = None) -> Channel:
        """A gRPC channel. ``client_id``: the name by which the client calls itself in each call's
        metadata."""
        ...
