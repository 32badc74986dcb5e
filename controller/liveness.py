"""Which brokers are alive: soft state of the active controller, lost with its leadership. Pure.

When a process is killed, its heartbeat stream ends at once, and a probe then tells whether it is
really gone. A broker whose stream stays open in silence has the session timeout. Times are seconds
of the monotonic clock.

    connected ── stream ends ──> missing: probed at once; refused, or answered by another
        ^                        incarnation: fence; answered by its own: missing, but alive;
        │                        no answer and no new stream within STREAM_GRACE_S: fence
        └──── heartbeat ─────────
    missing but alive: probed every PROBE_INTERVAL_S, as nothing else would show its death
    not heard from since this controller took over: as missing but alive, after TAKEOVER_GRACE_S
    silent for the session timeout, in any state: fence
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from metadata.brokers import STREAM_GRACE_S, BrokerRegistration

TAKEOVER_GRACE_S = 0.5
PROBE_INTERVAL_S = 0.5
PROBE_TIMEOUT_S = 0.3
RESUME_GRACE_S = 1.0
FENCE_RETRY_S = 0.5


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask which process runs as the broker, and report with ``Liveness.probed``."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Fence:
    """The process of that registration is gone: fence the broker."""

    broker_id: int
    broker_epoch: int
    reason: str


class Silence(enum.Enum):
    """How a probe can fail."""

    REFUSED = "refused"  # the host answered: no process listens there
    NO_ANSWER = "no answer"


@dataclass(slots=True)
class _Tracked:
    broker_epoch: int
    incarnation_id: bytes
    # When its last heartbeat came, or when this controller began to wait for one.
    last_contact_s: float
    stream: int | None = None  # the open stream, by the number its server gave it
    # The time of the next probe. None if there is no next probe: a stream is open, a probe is under
    # way, or the broker will be fenced.
    probe_at_s: float | None = None
    # When to fence it before the session timeout, and why.
    fence_at_s: float | None = None
    reason: str = ""


class Liveness:
    """Collects signs of life; ``due`` says which brokers to probe and which to fence."""

    def __init__(self, session_timeout_s: float) -> None:
        self._session_s = session_timeout_s
        # By broker: the registration that counts as alive. ``due`` removes the brokers to fence. A
        # heartbeat puts them back.
        self._tracked: dict[int, _Tracked] = {}

    # ---------------------------------------------------------------- what is heard

    def claimed(self, now: float, registrations: Iterable[BrokerRegistration]) -> None:
        """This controller has just become active. Brokers have not opened their streams yet."""
        self._tracked = {
            registration.broker_id: _Tracked(
                registration.broker_epoch,
                registration.incarnation_id,
                now,
                probe_at_s=now + TAKEOVER_GRACE_S,
            )
            for registration in registrations
            if not registration.fenced
        }

    def resigned(self) -> None:
        self._tracked = {}

    def heartbeat(self, now: float, registration: BrokerRegistration, stream: int) -> None:
        """A heartbeat of the current registration came over a stream."""
        self._tracked[registration.broker_id] = _Tracked(
            registration.broker_epoch, registration.incarnation_id, now, stream
        )

    def stream_ended(self, now: float, broker_id: int, stream: int) -> None:
        """A stream has ended. It matters only if no newer stream has replaced it."""
        tracked = self._tracked.get(broker_id)
        if tracked is not None and tracked.stream == stream:
            tracked.stream = None
            tracked.probe_at_s = now
            tracked.fence_at_s = now + STREAM_GRACE_S
            tracked.reason = "its heartbeat stream ended and it did not come back"

    def probed(self, now: float, probe: Probe, answer: bytes | Silence) -> None:
        """A probe was answered with an incarnation id, or failed."""
        tracked = self._tracked.get(probe.broker_id)
        if tracked is None or tracked.broker_epoch != probe.broker_epoch:
            return
        if isinstance(answer, bytes) and answer != tracked.incarnation_id:
            tracked.fence_at_s, tracked.reason = now, "another process has taken its place"
        if tracked.stream is not None:
            return
        if answer is Silence.REFUSED:
            tracked.fence_at_s, tracked.reason = now, "no process listens at its address"
        elif answer == tracked.incarnation_id:
            tracked.fence_at_s = None
        tracked.probe_at_s = now + PROBE_INTERVAL_S

    def not_fenced(self, now: float, registration: BrokerRegistration, action: Fence) -> None:
        """Fencing failed, for example because of a full disk. It is tried again later."""
        if registration.broker_epoch == action.broker_epoch and not registration.fenced:
            self._tracked[registration.broker_id] = _Tracked(
                registration.broker_epoch,
                registration.incarnation_id,
                now,
                fence_at_s=now + FENCE_RETRY_S,
                reason=action.reason,
            )

    def resumed(self, now: float) -> None:
        """This process itself stood still, and has not read yet what brokers sent meanwhile."""
        least = now + RESUME_GRACE_S
        for tracked in self._tracked.values():
            tracked.last_contact_s = max(tracked.last_contact_s, least - self._session_s)
            if tracked.fence_at_s is not None:
                tracked.fence_at_s = max(tracked.fence_at_s, least)

    # ---------------------------------------------------------------- what follows

    def alive(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether that registration counts as alive."""
        tracked = self._tracked.get(broker_id)
        return tracked is not None and tracked.broker_epoch == broker_epoch

    def due(self, now: float) -> list[Probe | Fence]:
        """The probes and fencings to do now, in order of broker ids. Each is returned once."""
        actions: list[Probe | Fence] = []
        for broker_id in sorted(self._tracked):
            tracked = self._tracked[broker_id]
            if now >= tracked.last_contact_s + self._session_s:
                reason = f"it was silent for {self._session_s:g} s"
                actions.append(Fence(broker_id, tracked.broker_epoch, reason))
                del self._tracked[broker_id]
            elif tracked.fence_at_s is not None and now >= tracked.fence_at_s:
                actions.append(Fence(broker_id, tracked.broker_epoch, tracked.reason))
                del self._tracked[broker_id]
            elif tracked.probe_at_s is not None and now >= tracked.probe_at_s:
                actions.append(Probe(broker_id, tracked.broker_epoch))
                tracked.probe_at_s = None
        return actions

    def deadline(self) -> float | None:
        """When ``due`` next returns something, if no broker is heard from before that. None if
        nothing is tracked."""
        times = [tracked.last_contact_s + self._session_s for tracked in self._tracked.values()]
        for tracked in self._tracked.values():
            times += [at for at in (tracked.fence_at_s, tracked.probe_at_s) if at is not None]
        return min(times, default=None)
