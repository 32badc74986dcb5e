"""The processes of transactional producers that were replaced."""

from __future__ import annotations

from typing import Self

from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Scene


class FencedProducersWriteNothing(Law):
    """Once a process of a transactional producer was told its producer id and epoch, nothing is
    taken any more that a process before it asks for: no batch, no offsets, no end of a
    transaction."""

    name = "fenced producers write nothing"
    cadence = Cadence.TOLD
    proof = Proof.CAMPAIGN

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._newest: dict[str, int] = {}  # the last process, by transactional id

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def began(self, transactional_id: str, process: int) -> None:
        """InitProducerId was answered to this process. Later ones have higher numbers."""
        newest = self._newest.get(transactional_id, process)
        self._newest[transactional_id] = max(newest, process)

    def is_fenced(self, transactional_id: str, process: int) -> bool:
        """Whether everything has to be refused that the process asks for now."""
        return process < self._newest.get(transactional_id, process)

    def accepted(self, transactional_id: str, process: int, what: str, *, was_fenced: bool) -> None:
        """``was_fenced``: what ``is_fenced`` said when the request was sent."""
        self.looked += was_fenced
        if was_fenced:
            self._scene.report(
                f"{what} of process {process} of {transactional_id} was taken, and process "
                f"{self._newest[transactional_id]} had begun"
            )

    def refused(self, *, was_fenced: bool) -> None:
        self.looked += was_fenced
