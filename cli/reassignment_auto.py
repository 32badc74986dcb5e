"""``stele reassign execute --throttle auto``: sets the rate of a move while it is under way, and
afterwards the throttles that there were before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from cli.interruption import terminable
from cli.output import note
from cli.reassignment_kept import KeptThrottles
from cli.reassignment_pace import MIB, Pace
from cli.reassignment_throttles import FETCHING, RATES, SENDING, Changes
from stele.errors import SteleError

if TYPE_CHECKING:
    from stele.sync import Admin

AUTO: Final = "auto"
LOOK_EVERY_S: Final = 2.0
QUIET_S: Final = 5.0
"""How long the quiet latency is measured before a move begins."""

_LISTS: Final = (SENDING, FETCHING)
_SET_HERE: Final = ("DYNAMIC_TOPIC", "DYNAMIC_BROKER")
"""The sources of values of a topic and of a broker itself, and not of the cluster's defaults."""

Look = Callable[[], float | None]


class PacedMoves:
    """The throttles of some moves, for as long as this object follows them.

    ``throttles`` are the changes at a given rate (``reassignment_throttles.changes``). ``look``
    measures the tenants' latency since its last call. ``is_resumed``: the moves are under way
    already. Then the quiet latency cannot be measured, and throttles of theirs are what an earlier
    command has left behind. ``kept`` has those from before that command, if it could not restore
    them.
    """

    def __init__(
        self,
        admin: Admin,
        throttles: Callable[[int], Changes],
        look: Look,
        pause: Callable[[float], None],
        kept: KeptThrottles,
        *,
        is_resumed: bool,
    ) -> None:
        self._admin = admin
        self._throttles = throttles
        self._look = look
        self._pause = pause
        self._kept = kept
        self._is_resumed = is_resumed
        self._pace = Pace(None)

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Measure, set the throttles, and take them back at the end, however that comes."""
        with terminable():
            self._look()
            if not self._is_resumed:
                self._pause(QUIET_S)
                self._pace = Pace(self._look())
            found = self._throttles(self._pace.rate)
            unset: Changes = {resource: dict.fromkeys(values) for resource, values in found.items()}
            earlier = self._kept.load()
            before = self._before(unset) if earlier is None else unset | earlier
            self._kept.save(before)
            self._say(self._pace.quiet_s)
            try:
                self._admin.alter_configs(found)
                yield
            except KeyboardInterrupt:
                note(
                    "stele: the moves go on, and nothing paces them any more. "
                    "`stele reassign cancel` cancels them, and the same command paces them again"
                )
                raise
            finally:
                self._kept.restore(self._admin, before)
                note("stele: the throttles are as before the move")

    def follow(self, is_moving: Callable[[], bool]) -> None:
        """Adapt the rate until nothing is being moved."""
        while is_moving():
            self._pause(LOOK_EVERY_S)
            latency_s = self._look()
            pace = self._pace.after(latency_s)
            rate_before, self._pace = self._pace.rate, pace
            if pace.rate != rate_before:
                self._admin.alter_configs(
                    {
                        resource: {name: value for name, value in values.items() if name in RATES}
                        for resource, values in self._throttles(pace.rate).items()
                        if any(name in RATES for name in values)
                    }
                )
                self._say(latency_s)

    def _before(self, unset: Changes) -> Changes:
        """What is set at the end: what is set now, of the keys in ``unset``."""
        before = {resource: {**values} for resource, values in unset.items()}
        topics = [each for each, values in unset.items() if SENDING in values]
        described = self._admin.describe_configs(topics)
        for broker in unset.keys() - set(topics):
            try:
                described |= self._admin.describe_configs([broker])
            except SteleError as error:
                note(f"stele: the rates of {broker} are not known and removed at the end: {error}")
        for resource, entries in described.items():
            before[resource] |= {
                entry.name: entry.value
                for entry in entries
                if entry.name in unset[resource] and entry.source in _SET_HERE
            }
        was_throttled = any(values.get(name) for values in before.values() for name in _LISTS)
        return unset if self._is_resumed and was_throttled else before

    def _say(self, latency_s: float | None) -> None:
        pace = self._pace
        what = "no tenant produces" if latency_s is None else f"p99 of Produce {_ms(latency_s)}"
        if pace.tolerated_s is not None:
            what += f" (tolerated: {_ms(pace.tolerated_s)})"
        note(f"stele: {what}; each broker moves at most {pace.rate / MIB:g} MiB/s")


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"
