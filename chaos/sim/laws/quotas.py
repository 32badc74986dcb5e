"""What clients may use."""

from __future__ import annotations

from typing import Final, Self

from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene

BURST_S: Final = 3.0
"""A client that was silent may use 2 s worth at once. The request that goes beyond is answered,
too, and is less than a second's worth."""


class QuotasAreKept(Law):
    """A client that sends as fast as it can gets its rate and one burst, whatever it heeds.

    A client below its quota never waits.

    Only what was answered on one connection counts, and since this was opened. All of that was used
    at one broker and after the opening, however late the answers were.
    """

    name = "quotas are kept, and nobody below them waits"
    cadence = Cadence.TOLD
    proof = Proof.CAMPAIGN

    def __init__(self, report: Report) -> None:
        self._report = report

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.report)

    def used(self, broker: int, rate: float, answered_bytes: int, since_s: float) -> None:
        """A broker has answered requests of so many bytes on a connection of this age."""
        self.looked += 1
        if answered_bytes > rate * (since_s + BURST_S):
            self._report(
                f"broker {broker} took {answered_bytes} bytes in {since_s:.1f} s from a client "
                f"that may send {rate:g} bytes per second"
            )

    def waits(self, broker: int, throttle_ms: int) -> None:
        """A client below its quota was told to wait so long; 0: not at all."""
        self.looked += 1
        if throttle_ms:
            self._report(f"broker {broker} lets a client wait {throttle_ms} ms below its quota")
