"""Keeps a membership alive, whatever the application does between its polls.

Two tasks run: one sends heartbeats, the other one joins. They stop where a function of the
application must be called, and announce it. The next poll goes on there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from stele.cluster.heartbeats import Heartbeats
from stele.cluster.view import ClusterView
from stele.cluster.waiting import client_backoff
from stele.config import ConsumerConfig
from stele.consumer.group.attended import Attended
from stele.consumer.group.coordinator import Coordinator
from stele.consumer.group.membership import FATAL, Membership, State
from stele.consumer.group.requests import Standing
from stele.consumer.group.topic_choice import TopicChoice
from stele.error_meanings import explain
from stele.errors import (
    ApiError,
    ErrorCode,
    FencedInstanceError,
    SteleError,
    UnreachableError,
)

log = logging.getLogger(__name__)

LEAVE_S: Final = 5.0
"""How long a consumer that closes tries to leave. If it fails, its session ends some time later."""


class GroupMember(Attended):
    """A member of the classic protocol."""

    def __init__(
        self,
        config: ConsumerConfig,
        view: ClusterView,
        coordinator: Coordinator,
        membership: Membership,
        announce: Callable[[], None],
    ) -> None:
        super().__init__(config, view, announce)
        self.membership = membership
        self._coordinator = coordinator
        self._metadata_is_news = False
        self._joining: asyncio.Task[None] | None = None
        self._heartbeats = Heartbeats(
            "consumer",
            client_backoff(config, view.world),
            self._turn,
            on_failure=self._on_failure,
            on_end=self.refuse,
        )
        self._heartbeats.interval_s = config.heartbeat_interval_ms / 1000
        self._denials = client_backoff(config, view.world)
        self._denied_pause_s = 0.0  # before the next join
        view.on_change.append(self._metadata_changed)

    # ---------------------------------------------------------------------- the application

    def subscribe(self, choice: TopicChoice) -> None:
        self._choice = choice
        if self.failure is not None:  # perhaps its heartbeats have ended
            self.failure = None
            self._heartbeats.forget()
        # The topics of a pattern are found before the member joins, or at the next heartbeat.
        self.membership.subscribe(choice.names or self.membership.subscription)

    def begin_anew(self) -> None:
        """A poll has raised that a right was missing: join again, after a growing pause."""
        self.failure = None
        self._denied_pause_s = self._denials.next_s()

    def start(self) -> None:
        self._heartbeats.start()

    @property
    def is_joining(self) -> bool:
        return self._joining is not None and not self._joining.done()

    @property
    def needs_join(self) -> bool:
        """Whether the application must give partitions up, and then ``join``."""
        return self.failure is None and not self.is_joining and self.membership.needs_join

    def join(self) -> None:
        self._joining = asyncio.get_running_loop().create_task(self._join())

    def consider_metadata(self) -> None:
        """Have the leader assign anew if the topics have other partitions now."""
        if self._metadata_is_news and self.membership.state is State.STABLE:
            self._metadata_is_news = False
            self.membership.metadata_changed(self._partition_counts())

    def took_share(self) -> None:
        """The application's functions were called for the share."""
        self._denials.reset()

    async def leave(self, reason: str) -> None:
        """Leave the group, unless the member is static: its session keeps its place. Partitions
        must have been given up."""
        await self._stop()
        await self._leave(reason)
        self.membership.unsubscribe()

    async def _leave(self, reason: str) -> None:
        standing = self.membership.leave()
        if not standing.member_id or standing.instance_id is not None:
            return
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._coordinator.leave(standing, reason)
        except (TimeoutError, SteleError) as error:
            log.warning("group %s was not left: %s", self._config.group_id, error)

    async def close(self) -> None:
        """The view is closed next, so that it calls nobody any more."""
        await self._stop()

    async def _stop(self) -> None:
        await self._heartbeats.stop()
        joining, self._joining = self._joining, None
        if joining is not None:
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)

    # ---------------------------------------------------------------------------- joining

    async def _join(self) -> None:
        """Join until there is a share, or the application must give something up first."""
        backoff = client_backoff(self._config, self._view.world)
        pause_s, self._denied_pause_s = self._denied_pause_s, 0.0
        try:
            await asyncio.sleep(pause_s)
            while self.membership.needs_join and not self.membership.giving_up().partitions:
                try:
                    if await self._join_once():
                        backoff.reset()
                        continue
                except UnreachableError as error:
                    self.waits_for = f"the coordinator ({error})"
                except ApiError as error:
                    if not error.code.retriable:
                        raise
                    self.waits_for = f"the coordinator ({error})"
                pause_s = backoff.next_s()
                if backoff.failures > 2:
                    self._view.waiting.say(
                        f"joining a group waits for {self.waits_for}", "joining a group"
                    )
                await asyncio.sleep(pause_s)
        except SteleError as error:
            self.refuse(error)
        except Exception as error:
            log.error("the consumer's group stops because of a bug in it", exc_info=error)
            self.refuse(SteleError(f"a bug in the consumer, see the log: {error!r}"))
        finally:
            self.waits_for = ""
            self._announce()

    async def _join_once(self) -> bool:
        """Whether there was progress; if not, the next attempt is better made a little later."""
        membership = self.membership
        await self._choose_topics()
        join = membership.join_request()
        self.waits_for = "the other members to join"
        try:
            joined = await self._coordinator.join(join)
        except SteleError:
            membership.on_lost(join.standing)
            raise
        membership.on_join(join, joined)
        if joined.error is ErrorCode.MEMBER_ID_REQUIRED:
            return True
        self._check(joined.error, joined.message)
        if membership.state is not State.SYNCING:
            return False
        standing = membership.standing
        try:
            sync = membership.sync_request(await self._learned_partition_counts())
            self.waits_for = "the group's leader to assign the partitions"
            synced = await self._coordinator.sync(sync)
        except SteleError:
            membership.on_lost(standing)
            raise
        membership.on_sync(sync, synced)
        self._check(synced.error, synced.message)
        # After a share, the loop ends. A rebalance that has begun meanwhile is joined at once.
        return synced.error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)

    def _check(self, code: ErrorCode, message: str) -> None:
        """Raises ApiError for an error that joining again cannot mend."""
        if code is ErrorCode.FENCED_INSTANCE_ID:
            raise FencedInstanceError(self._config.group_instance_id or "")
        if code in FATAL:
            reason = message or explain(code)
            raise ApiError(code, f"group {self._config.group_id} cannot be joined: {reason}")
        if code is not ErrorCode.NONE:
            self.waits_for = f"another attempt, since the coordinator answers {code.name}"

    async def _choose_topics(self) -> None:
        assert self._choice is not None  # a member begins after it was subscribed
        if self._choice.is_due(self._clock.monotonic()):
            self.membership.subscribe(await self._choice.found())

    async def _learned_partition_counts(self) -> dict[str, int]:
        """The partitions of all topics that are to be assigned, as they are now."""
        for topic in self.membership.topics:
            self._view.want(topic)
        if self.membership.is_leader:
            await self._view.refresh()
        self._metadata_is_news = True
        return self._partition_counts()

    def _partition_counts(self) -> dict[str, int]:
        known = ((name, self._view.topic(name)) for name in self.membership.topics)
        return {name: len(topic.partitions) for name, topic in known if topic is not None}

    def _metadata_changed(self) -> None:
        self._metadata_is_news = True
        self._announce()

    # -------------------------------------------------------------------------- heartbeats

    async def _turn(self) -> float | None:
        """Heartbeats go on while the application handles records, for as long as it may."""
        if self.membership.standing.member_id and self._polls_too_rarely():
            await self._leave_unattended()
            return None
        if not self.membership.may_heartbeat:
            return None
        standing = self.membership.standing
        try:
            await self._look_around()
            self._heard(standing, await self._coordinator.heartbeat(standing))
        except ApiError as error:
            if not error.code.is_denial:
                raise
            self._refused(standing, error)
        return self._heartbeats.interval_s

    def _on_failure(self, error: SteleError) -> None:
        self._view.waiting.say(f"heartbeat: {error}", "heartbeat")

    def _heard(self, standing: Standing, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            return
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self._refused(standing, FencedInstanceError(self._config.group_instance_id or ""))
        elif code in FATAL:
            text = f"group {self._config.group_id}: {explain(code)}"
            self._refused(standing, ApiError(code, text))
        else:
            self.membership.on_told(standing, code)
            self._announce()

    def _refused(self, standing: Standing, error: ApiError) -> None:
        """A heartbeat was refused for good. An outdated one says nothing about the member."""
        if standing == self.membership.standing:
            self.membership.on_told(standing, error.code)
            self.refuse(error)

    async def _look_around(self) -> None:
        """Look again for the topics of a pattern, and for topics that were missing."""
        await self._choose_topics()
        if any(self._view.topic_error(name) for name in self.membership.topics):
            self._view.refresh_soon()
        if self.membership.needs_join:
            self._announce()

    async def _leave_unattended(self) -> None:
        """The application does not poll. Its partitions go to others, and it hears so when it
        polls again."""
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.gather(self._joining, return_exceptions=True)
        await self._leave(self._say_unattended())
