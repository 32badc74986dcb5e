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
        self.listeners: list[Listener] = []
        self.holds: list[Hold] = []
        self.echoes: list[Echo] = []

    def tell(self, stage: Stage, said: Said) -> None:
        for listener in list(self.listeners):
            listener(stage, said)

    def held_s(self, said: Said) -> float:
        return sum(hold(said) for hold in list(self.holds))

    def echoes_s(self, said: Said) -> list[float]:
        after = [echo(said) for echo in list(self.echoes)]
        return [delay_s for delay_s in after if delay_s is not None]
