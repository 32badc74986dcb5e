"""Carries out the membership of the consumer protocol, whatever the application does between its
polls: one task sends heartbeats."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from stele.cluster.heartbeats import Heartbeats
from stele.cluster.view import ClusterView
from stele.cluster.waiting import client_backoff
from stele.config import ConsumerConfig
from stele.consumer.group.attended import Attended
from stele.consumer.group.coordinator import Coordinator
from stele.consumer.group.member import LEAVE_S
from stele.consumer.group.membership import State
from stele.consumer.group.reconciling import REMOVED, ReconcilingMembership
from stele.consumer.group.topic_choice import TopicChoice
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode, FencedInstanceError, SteleError

log = logging.getLogger(__name__)


class ReconcilingMember(Attended):
    def __init__(
        self,
        config: ConsumerConfig,
        view: ClusterView,
        coordinator: Coordinator,
        membership: ReconcilingMembership,
        announce: Callable[[], None],
    ) -> None:
        super().__init__(config, view, announce)
        self.membership = membership
        self._coordinator = coordinator
        self._heartbeats = Heartbeats(
            "consumer",
            client_backoff(config, view.world),
            self._turn,
            on_failure=self._on_failure,
            on_end=self._on_end,
        )

    # ---------------------------------------------------------------------- the application

    def subscribe(self, choice: TopicChoice) -> None:
        self._choice = choice
        if self.failure is not None:  # its heartbeats have ended
            self.failure = None
            self._heartbeats.forget()
            self.membership.begin_anew()
        # The topics of a pattern are found before the next heartbeat.
        self.membership.subscribe(choice.names or self.membership.subscription)
        self._heartbeats.wake()

    def start(self) -> None:
        self._heartbeats.start()

    def begin_anew(self) -> None:
        """A poll has raised that a right was missing: join again, after a growing pause."""
        self.failure = None
        self.membership.begin_anew()
        self._heartbeats.begin_again()

    @property
    def is_joining(self) -> bool:
        return self.membership.state is State.JOINING

    @property
    def needs_join(self) -> bool:
        """Whether the application must learn of lost partitions, and then ``join``."""
        return self.membership.needs_join

    def join(self) -> None:
        self.membership.join()
        self._heartbeats.wake()

    def consider_metadata(self) -> None:
        """The coordinator does it."""

    def took_share(self) -> None:
        """The coordinator waits to hear it."""
        self._heartbeats.wake()

    async def leave(self, reason: str) -> None:
        """Leave the group. A static member says that it will come back. Partitions must have been
        given up."""
        await self._heartbeats.stop()
        await self._leave()
        self.membership.unsubscribe()

    async def _leave(self) -> None:
        farewell = self.membership.leave()
        if farewell is None:
            return
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._coordinator.consumer_heartbeat(farewell)
        except (TimeoutError, SteleError) as error:
            log.warning("group %s was not left: %s", self._config.group_id, error)

    async def close(self) -> None:
        await self._heartbeats.stop()

    # -------------------------------------------------------------------------- heartbeats

    def _on_end(self, error: SteleError) -> None:
        self.refuse(error)

    async def _turn(self) -> float | None:
        if not self.membership.may_heartbeat:
            return None
        if self._polls_too_rarely():
            self._say_unattended()
            await self._leave()
            return None
        await self._beat_once()
        return self._heartbeats.interval_s

    def _on_failure(self, error: SteleError) -> None:
        self.waits_for = f"the coordinator ({error})"
        self._view.waiting.say(f"heartbeat: {error}", "heartbeat")

    async def _beat_once(self) -> None:
        membership = self.membership
        await self._choose_topics()
        asked = membership.heartbeat()
        try:
            answer = await self._coordinator.consumer_heartbeat(asked)
        except SteleError:
            membership.on_lost()
            raise
        membership.on_answer(asked, answer)
        if answer.error is not ErrorCode.NONE:
            self._check(answer.error, answer.message)
        else:
            self.waits_for = ""
            self._heartbeats.interval_s = answer.interval_ms / 1000
            await self._learn_names()
        if membership.state is not State.STABLE:
            self._announce()

    def _check(self, code: ErrorCode, message: str) -> None:
        """Raises ApiError for what another heartbeat does not mend, or only later."""
        if code is ErrorCode.FENCED_INSTANCE_ID:
            raise FencedInstanceError(self._config.group_instance_id or "")
        if code not in REMOVED:
            reason = message or explain(code)
            raise ApiError(code, f"group {self._config.group_id}: {reason}")

    async def _choose_topics(self) -> None:
        assert self._choice is not None  # a member begins after it was subscribed
        if self._choice.is_due(self._clock.monotonic()):
            self.membership.subscribe(await self._choice.found())

    async def _learn_names(self) -> None:
        """Raises UnreachableError. Topics that are gone by now keep no name."""
        self._learn_known_names()
        if self.membership.unknown_topics:
            for topic in self.membership.subscription:
                self._view.want(topic)
            await self._view.refresh()
            self._learn_known_names()

    def _learn_known_names(self) -> None:
        known = ((name, self._view.topic(name)) for name in self.membership.subscription)
        names = {topic.topic_id: name for name, topic in known if topic is not None}
        self.membership.learn(names)
