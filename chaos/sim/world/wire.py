"""Unary calls of the control plane, seen from outside: laws listen, aimed faults hold them back."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple


class Stage(enum.Enum):
    """How far a call has come."""

    SENT = "sent"  # the request leaves its sender
    ARRIVED = "arrived"  # the request is at its target, which has not read it yet
    ANSWERED = "answered"  # the answer leaves, and cannot be taken back
    TAKEN = "taken"  # the client has the answer, in time


class Said(NamedTuple):
    """A request, or an answer with its request."""

    source: str  # the machine of the client
    target: str  # the machine of the server
    method: str
    request: bytes
    answer: bytes = b""


Listener = Callable[[Stage, Said], None]
"""Called within the sending process or by the network. It must not stop a process itself."""

Hold = Callable[[Said], float]
"""How many seconds a request is held back."""

Echo = Callable[[Said], float | None]
"""After how many seconds a copy of the request follows; None: no copy."""


class Wire:
    """Where laws listen and faults interfere."""

    def __init__(self) -> None:
        self._listeners: list[tuple[tuple[str, ...], Listener]] = []
        self._listening: dict[str, tuple[Listener, ...]] = {}  # cache, by method
        self.holds: list[Hold] = []
        self.echoes: list[Echo] = []

    def listen(self, listener: Listener, *methods: str) -> None:
        """Hear of the methods whose names end in one of these. Without names, hear of all."""
        self._listeners.append((methods or ("",), listener))
        self._listening.clear()

    def ignore(self, listener: Listener) -> None:
        """Take back one ``listen``."""
        heard = [heard for _, heard in self._listeners]
        del self._listeners[heard.index(listener)]
        self._listening.clear()

    def tell(self, stage: Stage, said: Said) -> None:
        listening = self._listening.get(said.method)
        if listening is None:
            listening = self._listening[said.method] = tuple(
                listener for methods, listener in self._listeners if said.method.endswith(methods)
            )
        for listener in listening:
            listener(stage, said)

    def held_s(self, said: Said) -> float:
        return sum(hold(said) for hold in list(self.holds)) if self.holds else 0.0

    def echoes_s(self, said: Said) -> list[float]:
        after = [echo(said) for echo in list(self.echoes)]
        return [delay_s for delay_s in after if delay_s is not None]
