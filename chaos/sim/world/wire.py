"""What is said in unary calls of the control plane: laws listen, aimed faults hold it back."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple


class Stage(enum.Enum):
    """Where a message is."""

    SENT = "sent"  # the request leaves its sender
    ARRIVED = "arrived"  # the request is at its target, which has not read it yet
    ANSWERED = "answered"  # the answer leaves; nothing can take it back


class Said(NamedTuple):
    """A request, or an answer together with what it answers."""

    source: str  # the machine that asks
    target: str  # the one that is asked
    method: str
    request: bytes
    answer: bytes = b""


Listener = Callable[[Stage, Said], None]
"""Called within the process that sends, or as the network: it must not stop a process itself."""

Hold = Callable[[Said], float]
"""How many seconds longer a request is under way."""

Echo = Callable[[Said], float | None]
"""After how many seconds a copy of a request follows it, if one does."""


class Wire:
    """The places to listen and to interfere; empty unless somebody does."""

    def __init__(self) -> None:
        self._listeners: list[tuple[tuple[str, ...], Listener]] = []
        self._listening: dict[str, tuple[Listener, ...]] = {}  # by method; asked for so far
        self.holds: list[Hold] = []
        self.echoes: list[Echo] = []

    def listen(self, listener: Listener, *methods: str) -> None:
        """Hear of the methods whose names end in one of these; of all, if none are named."""
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
