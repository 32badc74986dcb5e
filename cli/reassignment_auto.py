"""``stele reassign execute --throttle auto``: sets the rate of a move while it is under way, and
afterwards removes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from cli.interruption import terminable
from cli.output import note
from cli.reassignment_pace import MIB, Pace
from cli.reassignment_throttles import FETCHING, RATES, SENDING, Changes

if TYPE_CHECKING:
    from stele.sync import Admin

AUTO: Final = "auto"
LOOK_EVERY_S: Final = 2.0
QUIET_S: Final = 5.0
"""How long the quiet latency is measured before a move begins."""

_LISTS: Final = (SENDING, FETCHING)
_SET_HERE: Final = "DYNAMIC_TOPIC"

Look = Callable[[], float | None]


class PacedMoves:
    """The throttles of some moves, for as long as this object follows them.

    ``throttles`` are the changes at a given rate (``reassignment_throttles.changes``). ``look``
    measures the tenants' latency since its last call. ``is_resumed``: the moves are under way
    already. Then the quiet latency cannot be measured, and lists of theirs are what an earlier
    command has left behind.
    """

    def __init__(
        self,
        admin: Admin,
        throttles: Callable[[int], Changes],
        look: Look,
        pause: Callable[[float], None],
        *,
        is_resumed: bool,
    ) -> None:
        self._admin = admin
        self._throttles = throttles
        self._look = look
        self._pause = pause
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
            before = self._before(found)
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
                self._admin.alter_configs(before)
                note("stele: the throttles are removed, and lists of topics are as before the move")

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

    def _before(self, found: Changes) -> Changes:
        """What is set at the end: the topics' lists as they are now, and no rates, as after
        `verify`. Only a broker itself says which rates it has."""
        unset: Changes = {resource: dict.fromkeys(values) for resource, values in found.items()}
        topics = [each for each, values in found.items() if SENDING in values]
        described = self._admin.describe_configs(topics)
        before: Changes = unset | {
            resource: {
                **unset[resource],
                **{
                    entry.name: entry.value
                    for entry in entries
                    if entry.name in unset[resource] and entry.source == _SET_HERE
                },
            }
            for resource, entries in described.items()
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
