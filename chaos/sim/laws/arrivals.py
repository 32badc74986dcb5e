"""Facts at the arrival of a request, kept until its answer leaves."""

from __future__ import annotations

from typing import Generic, TypeVar

from chaos.sim.world.wire import Said, Stage

T = TypeVar("T")

_KEPT = 200


class Arrivals(Generic[T]):
    """By request. If a request arrives several times, its first arrival counts: the answering node
    has decided after it."""

    def __init__(self) -> None:
        self._found: dict[Said, T] = {}

    def keep(self, said: Said, found: T) -> None:
        self._found.setdefault(said._replace(answer=b""), found)
        if len(self._found) > _KEPT:
            del self._found[next(iter(self._found))]

    def get(self, answered: Said) -> T | None:
        return self._found.get(answered._replace(answer=b""))

    def met(self, stage: Stage, said: Said, now: T) -> T | None:
        """Keep the facts at the arrival of a request. Returns them when its answer leaves."""
        if stage is Stage.ARRIVED:
            self.keep(said, now)
        return self.get(said) if stage is Stage.ANSWERED else None
