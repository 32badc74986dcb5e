"""Carries out the membership in a share group: one task sends heartbeats."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from stele.cluster.coordinator import group_coordinator
from stele.cluster.heartbeats import Heartbeats
from stele.cluster.kafka_link import question
from stele.cluster.messages import error_code
from stele.cluster.view import ClusterView
from stele.cluster.waiting import client_backoff
from stele.config import ShareConsumerConfig
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode, SteleError
from stele.ids import PartitionId
from stele.share_consumer.membership import (
    REMOVED,
    ShareHeartbeat,
    ShareHeartbeatAnswer,
    ShareMembership,
)
from stele.wire.kafka.messages import share_group_heartbeat

log = logging.getLogger(__name__)

HEARTBEAT_S: Final = 10.0
"""How long a heartbeat waits for its answer."""
LEAVE_S: Final = 5.0
"""How long leaving may take."""


class ShareMember:
    """``on_change`` is called after each change of the assignment, and after a failure."""

    def __init__(
        self,
        config: ShareConsumerConfig,
        view: ClusterView,
        membership: ShareMembership,
        on_change: Callable[[], None],
    ) -> None:
        self.membership = membership
        self.failure: SteleError | None = None  # polls raise it; there are no more heartbeats
        self._config = config
        self._view = view
        self._clock = view.world.clock
        self._on_change = on_change
        self._coordinator = group_coordinator(view, config.group_id)
        self._heartbeats = Heartbeats(
            "share consumer",
            client_backoff(config, view.world),
            self._turn,
            on_failure=self._on_failure,
            on_end=self._on_end,
        )
        self._polls = 0
        self._polled_at_s = self._clock.monotonic()

    # ---------------------------------------------------------------------- the application

    def wake(self) -> None:
        self._heartbeats.wake()

    def begin_anew(self) -> None:
        """A call has raised that a right was missing: join again, after a growing pause."""
        self.failure = None
        self.membership.begin_anew()
        self._heartbeats.begin_again()
        self._on_change()

    def poll_begins(self) -> None:
        self._polls += 1
        if not self._heartbeats.has_begun:
            self._heartbeats.start()
        elif not self.membership.is_member:
            self.wake()

    def poll_ends(self) -> None:
        self._polls -= 1
        self._polled_at_s = self._clock.monotonic()

    async def close(self) -> None:
        self.failure = None
        await self._heartbeats.stop()
        await self._leave()

    async def _leave(self) -> None:
        farewell = self.membership.leave()
        self._on_change()
        if farewell is None:
            return
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._ask(farewell)
        except (TimeoutError, SteleError) as error:
            log.warning("share group %s was not left: %s", self._config.group_id, error)

    # -------------------------------------------------------------------------- heartbeats

    def _on_end(self, error: SteleError) -> None:
        self.failure = error
        self._on_change()

    async def _turn(self) -> float | None:
        if not self._is_unattended():
            await self._beat_once()
            return self._heartbeats.interval_s if self.membership.is_member else 0.001
        if self.membership.is_member:
            self._say_unattended()
            await self._leave()
        return None

    def _is_unattended(self) -> bool:
        ago_ms = (self._clock.monotonic() - self._polled_at_s) * 1000
        return not self._polls and ago_ms > self._config.max_poll_interval_ms

    def _say_unattended(self) -> None:
        self._view.waiting.say(
            f"leaving share group {self._config.group_id}: the application has not polled for "
            f"max_poll_interval_ms={self._config.max_poll_interval_ms}; poll more often, poll "
            "fewer records (max_poll_records), or allow more time",
            "unattended",
        )

    def _on_failure(self, error: SteleError) -> None:
        self._view.waiting.say(f"heartbeat: {error}", "heartbeat")

    async def _beat_once(self) -> None:
        membership = self.membership
        before = membership.assigned
        asked = membership.heartbeat()
        try:
            answer = await self._ask(asked)
        except SteleError:
            membership.on_lost()
            raise
        membership.on_answer(asked, answer)
        if membership.assigned != before:
            self._on_change()
        if answer.error is ErrorCode.NONE:
            self._heartbeats.interval_s = answer.interval_ms / 1000
        elif answer.error not in REMOVED:
            reason = answer.message or explain(answer.error)
            raise ApiError(answer.error, f"share group {self._config.group_id}: {reason}")

    async def _ask(self, beat: ShareHeartbeat) -> ShareHeartbeatAnswer:
        """Raises UnreachableError, ApiError."""
        message = share_group_heartbeat.ShareGroupHeartbeatRequest(
            self._config.group_id,
            beat.member_id,
            beat.member_epoch,
            self._config.client_rack or None,
            None if beat.topics is None else sorted(beat.topics),
        )
        timeout_s = min(self._config.request_timeout_ms / 1000, HEARTBEAT_S)
        told = await self._coordinator.ask(
            question(share_group_heartbeat.API, lambda version: message), timeout_s=timeout_s
        )
        code = error_code(told.error_code)
        self._coordinator.note(code)
        assigned = None
        if told.assignment is not None:
            assigned = frozenset(
                PartitionId(topic.topic_id, number)
                for topic in told.assignment.topic_partitions
                for number in topic.partitions
            )
        return ShareHeartbeatAnswer(
            code, told.error_message or "", told.member_epoch, told.heartbeat_interval_ms, assigned
        )
