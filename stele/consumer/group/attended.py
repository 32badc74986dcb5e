"""A member of a group whose application must poll."""

from __future__ import annotations

from collections.abc import Callable

from stele.cluster.view import ClusterView
from stele.config import ConsumerConfig
from stele.consumer.group.topic_choice import TopicChoice
from stele.errors import SteleError


class Attended:
    """What both protocols have in common: a subscription, and polls that must come in time.
    ``announce`` is called when the next poll has something to do."""

    def __init__(
        self, config: ConsumerConfig, view: ClusterView, announce: Callable[[], None]
    ) -> None:
        self.failure: SteleError | None = None
        """Poll raises it, and the member does nothing more. If a right was missing, the member
        begins anew after that poll."""
        self.waits_for = ""  # why the join is not over, in words
        self._config = config
        self._view = view
        self._clock = view.world.clock
        self._announce = announce
        self._choice: TopicChoice | None = None
        self._polled_at = self._clock.monotonic()
        self._polls = 0  # that have begun and not ended: a rebalance listener may poll, too

    def refuse(self, error: SteleError) -> None:
        """The next poll raises the error. The first of several counts."""
        self.failure = self.failure or error
        self._announce()

    def poll_begins(self) -> None:
        self._polls += 1

    def poll_ends(self) -> None:
        self._polls -= 1
        self._polled_at = self._clock.monotonic()

    def _polls_too_rarely(self) -> bool:
        if self._polls:
            return False
        ago_s = self._clock.monotonic() - self._polled_at
        return ago_s * 1000 > self._config.max_poll_interval_ms

    def _say_unattended(self) -> str:
        """Log why the member leaves. Returns the reason."""
        reason = (
            f"the application has not polled for max_poll_interval_ms="
            f"{self._config.max_poll_interval_ms}"
        )
        self._view.waiting.say(
            f"leaving group {self._config.group_id}: {reason}; poll more often, poll fewer records "
            "(max_poll_records), or allow more time",
            "unattended",
        )
        return reason
