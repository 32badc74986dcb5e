"""Which pushes of metrics brokers take, and what they ask clients for (KIP-714)."""

from __future__ import annotations

import enum
from typing import Final, Self

from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from stele.errors import ErrorCode


class Kind(enum.Enum):
    """A request of a client that pushes metrics, and what a broker may answer."""

    ASK = "asks for the first time, or after UNKNOWN_SUBSCRIPTION_ID"
    IN_TIME = "pushes when its interval is over"
    EARLY = "pushes within its interval"
    LARGE = "pushes more than telemetry.max.bytes when its interval is over"
    AFTER_LAST = "pushes after its last push"


_CHANGED: Final = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
"""May come at any push that is in time, because the subscription has changed meanwhile. A change
also begins the interval anew, so that no push is early."""

_ANSWERS: Final = {
    Kind.ASK: {ErrorCode.NONE},
    Kind.IN_TIME: {ErrorCode.NONE, _CHANGED},
    Kind.EARLY: {ErrorCode.THROTTLING_QUOTA_EXCEEDED, _CHANGED},
    Kind.LARGE: {ErrorCode.TELEMETRY_TOO_LARGE, _CHANGED},
    Kind.AFTER_LAST: {ErrorCode.INVALID_REQUEST},
}


class PushesAreTakenInTheirTime(Law):
    """A broker takes a push that is in time and not too large, and no other one. In the end every
    broker asks its clients for what the newest subscription says."""

    name = "metrics are taken once in an interval, and asked for by the newest subscription"
    cadence = Cadence.TOLD
    proof = Proof.CAMPAIGN

    def __init__(self, report: Report) -> None:
        self._report = report

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.report)

    def answered(self, broker: int, kind: Kind, error: int) -> None:
        """A broker has answered a request of this kind."""
        self.looked += 1
        if error not in _ANSWERS[kind]:
            self._report(
                f"broker {broker} answers {ErrorCode(error).name} to a client that {kind.value}"
            )

    def settled(self, broker: int, told_ms: int, interval_ms: int) -> None:
        """What a broker asks an old client for, some time after the last change."""
        self.looked += 1
        if told_ms != interval_ms:
            self._report(
                f"broker {broker} asks a client to push each {told_ms} ms, and the subscription "
                f"says {interval_ms} ms"
            )
