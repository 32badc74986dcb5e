"""The protocols of the world that a client needs: types only, no implementation.

Time, randomness and the network come through these. The real ones live in ``stele/real.py``, the
simulated ones in ``chaos/sim``. Protocols that only a node needs, such as the disk's, are in
``world/``.
Timers and tasks are asyncio's: the simulation runs on an event loop with virtual time,
so ``asyncio.sleep`` and ``loop.call_later`` may be used everywhere.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    """Time. Both readings are taken anew at every call, unlike ``loop.time()``."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary point; never goes back; goes on during a pause."""
        ...

    def time_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump."""
        ...


class Rng(Protocol):
    """Randomness. ``random.Random`` satisfies it."""

    def random(self) -> float: ...

    def randrange(self, start: int, stop: int, /) -> int: ...

    def uniform(self, a: float, b: float, /) -> float: ...

    def randbytes(self, n: int, /) -> bytes: ...


# ------------------------------------------------------------------------------- network


class RpcCode(enum.Enum):
    """Why a call failed, in gRPC's words."""

    UNAVAILABLE = "unavailable"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    UNIMPLEMENTED = "unimplemented"
    INVALID_ARGUMENT = "invalid_argument"
    CANCELLED = "cancelled"
    INTERNAL = "internal"


class RpcError(Exception):
    """A call or stream of the control plane failed."""

    def __init__(self, code: RpcCode, detail: str = "") -> None:
        super().__init__(f"{code.value}: {detail}" if detail else code.value)
        self.code = code
        self.detail = detail


class Stream(Protocol):
    """One end of a bidirectional stream of messages, in order."""

    async def send(self, message: bytes) -> None:
        """Raises RpcError when the stream is broken; waits while the peer is slow."""
        ...

    async def receive(self) -> bytes | None:
        """The next message; None when the peer has ended its side; RpcError when it broke."""
        ...

    async def close(self) -> None:
        """End this side (client: cancels the call). Idempotent."""
        ...


class Channel(Protocol):
    """A client's way to one peer of the control plane. Connects and reconnects by itself."""

    async def call(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        """One unary call. ``method`` is ``/stele.v1.Service/Method``. Raises RpcError."""
        ...

    def stream(self, method: str) -> Stream:
        """Open a bidirectional stream; a failure to connect shows at the first receive."""
        ...

    async def close(self) -> None: ...


class Connector(Protocol):
    """The half of the network that a client needs."""

    async def connect(
        self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> asyncio.Transport:
        """Open a byte connection of the data plane. Raises OSError."""
        ...

    def channel(self, host: str, port: int) -> Channel: ...
