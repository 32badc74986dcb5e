"""The offsets that groups have committed, as clients are told of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.register import Register
from chaos.sim.laws.scene import Scene


class Place(NamedTuple):
    """What a group commits an offset of."""

    group_id: str
    topic: str
    partition: int


_NONE = "no offset, by removal {}"


@dataclass(slots=True)
class _History:
    """One place as a register. To have no offset is a value, too, but no removal can be told from
    another: a read that finds no offset is one of the values of ``removals``."""

    may_vanish: bool
    register: Register = field(default_factory=lambda: Register(_NONE.format(0)))
    removals: list[str] = field(default_factory=lambda: [_NONE.format(0)])

    def read(self, value: str | None, began: int, ended: int) -> str | None:
        if value is not None:
            return self.register.read(value, began, ended)
        if self.may_vanish:
            return None
        wrongs = {each: self.register.wrong_with(each, began, ended) for each in self.removals}
        possible = [each for each, wrong in wrongs.items() if wrong is None]
        if len(possible) == 1:
            return self.register.read(possible[0], began, ended)
        return None if possible else wrongs[self.removals[-1]]


@dataclass(slots=True)
class OffsetChange:
    """A commit, or a removal, that was asked for. It may be confirmed, or refused, or neither."""

    confirmed: Callable[[], None]
    refused: Callable[[], None]


class CommittedOffsetsStay(Law):
    """An offset that a group has committed is a linearizable register: an acknowledged commit is
    seen by every later fetch until another commit or a removal takes effect, and never again after
    that. A refused commit is never seen. One of unknown outcome takes effect at most once.

    No value may be committed twice, so commits name themselves in their metadata.
    """

    name = "committed offsets stay"
    cadence = Cadence.TOLD
    proof = Proof.CAMPAIGN

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._moment = 0
        self._histories: dict[Place, _History] = {}
        self._vanishing: set[str] = set()

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def may_vanish(self, topic: str) -> None:
        """The topic is deleted and created again at times, so its offsets may vanish at any time.
        Answers about them are judged nevertheless."""
        self._vanishing.add(topic)

    def commit_asked(self, place: Place, value: str) -> OffsetChange:
        history = self._history(place)
        history.register.write(value, self._now())
        return self._change(place, value)

    def removal_asked(self, place: Place) -> OffsetChange:
        history = self._history(place)
        value = _NONE.format(len(history.removals))
        history.removals.append(value)
        history.register.write(value, self._now())
        return self._change(place, value)

    def fetch_asked(self) -> int:
        """To be given to ``fetched`` with the answer."""
        return self._now()

    def fetched(self, place: Place, value: str | None, began: int) -> None:
        """A client got a committed offset, or (None) that there is none."""
        self.looked += 1
        wrong = self._history(place).read(value, began, self._now())
        if wrong is not None:
            self._report(place, wrong)

    def _change(self, place: Place, value: str) -> OffsetChange:
        register = self._histories[place].register

        def refused() -> None:
            wrong = register.refuse(value)
            if wrong is not None:
                self._report(place, wrong)

        return OffsetChange(lambda: register.confirm(value, self._now()), refused)

    def _report(self, place: Place, wrong: str) -> None:
        group_id, topic, partition = place
        self._scene.report(f"group {group_id}, {topic}-{partition}: {wrong}")

    def _history(self, place: Place) -> _History:
        history = self._histories.get(place)
        if history is None:
            history = self._histories[place] = _History(place.topic in self._vanishing)
        return history

    def _now(self) -> int:
        self._moment += 1
        return self._moment
