"""The processes of transactional producers that were replaced."""

from __future__ import annotations

from typing import Self

from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Scene


class FencedProducersWriteNothing(Law):
    """Once a process of a transactional producer has got its producer id and epoch, no request of
    an earlier process is accepted any more: no batch, no offsets, no end of a transaction.

    There is one exception. If the process keeps a prepared transaction (KIP-939), only the
    coordinator has its epoch. Partitions get an epoch with the marker. Until then the partitions of
    the transaction still accept writes of the former process.
    """

    name = "fenced producers write nothing"
    cadence = Cadence.TOLD
    proof = Proof.CAMPAIGN

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._newest: dict[str, int] = {}  # the last process, by transactional id
        self._kept: dict[str, str] = {}  # the transaction that it has kept

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def began(self, transactional_id: str, process: int, *, kept: str | None = None) -> None:
        """InitProducerId was answered to this process. Later ones have higher numbers. ``kept``:
        the transaction of a former process that is still open."""
        if process < self._newest.get(transactional_id, process):
            return
        self._newest[transactional_id] = process
        self._kept.pop(transactional_id, None)
        if kept is not None:
            self._kept[transactional_id] = kept

    def is_fenced(self, transactional_id: str, process: int, *, part_of: str | None = None) -> bool:
        """Whether everything has to be refused that the process asks for now. ``part_of``: it asks
        a partition that may be part of this transaction already."""
        if part_of is not None and part_of == self._kept.get(transactional_id):
            return False
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
