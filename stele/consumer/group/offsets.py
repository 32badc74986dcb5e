"""Commits of a group's offsets, and where its members begin to read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from stele.cluster.view import ClusterView
from stele.cluster.waiting import client_backoff
from stele.config import ConsumerConfig
from stele.consumer.group.commit_order import CommitOrder, Turn
from stele.consumer.group.coordinator import Coordinator
from stele.consumer.group.requests import CommittedOffset, Standing
from stele.consumer.positions import PartitionPosition
from stele.error_meanings import explain
from stele.errors import (
    ApiError,
    CommitFailedError,
    ErrorCode,
    FencedInstanceError,
    SteleError,
    UnreachableError,
)
from stele.ids import TopicPartition
from stele.records import OffsetAndMetadata

log = logging.getLogger(__name__)

Offsets = dict[TopicPartition, OffsetAndMetadata]

_LEFT_BEHIND: Final = {
    ErrorCode.ILLEGAL_GENERATION: "the group has gone on without this member",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has removed this member",
    ErrorCode.FENCED_MEMBER_EPOCH: "the group has removed this member",
    ErrorCode.STALE_MEMBER_EPOCH: "the group has gone on without this member",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is being rebalanced: poll, and commit what is "
    "still assigned",
}
_NOT_COMMITTED: Final = "offsets were not committed: %s"
_TOO_SLOW: Final = (
    "; if handling the records takes long, poll fewer of them (max_poll_records) or allow more "
    "time (max_poll_interval_ms)"
)


class GroupOffsets:
    """``told`` gets the errors of commits, with the identity that the commit had. ``standing`` is
    the consumer's present identity: in the consumer protocol its epoch rises while it keeps its
    partitions.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        view: ClusterView,
        coordinator: Coordinator,
        positions: Mapping[TopicPartition, PartitionPosition],
        told: Callable[[Standing, ErrorCode], None],
        standing: Callable[[], Standing],
        announce: Callable[[], None],
    ) -> None:
        self._config = config
        self._view = view
        self._coordinator = coordinator
        self._positions = positions
        self._told = told
        self._renewed = standing
        self._announce = announce
        self._order = CommitOrder()
        # By this consumer, since it heard last what the group has committed.
        self._committed: Offsets = {}
        self._next_auto_commit = view.world.clock.monotonic() + self._interval_s
        self._auto_commit: asyncio.Task[None] | None = None
        self._looking_up: asyncio.Task[None] | None = None
        self._denial: ApiError | None = None  # of an automatic commit; the next poll raises it
        self.waits_for = ""  # why positions are not known yet, in words

    @property
    def _interval_s(self) -> float:
        return self._config.auto_commit_interval_ms / 1000

    # ------------------------------------------------------------------------ commits

    def consumed(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Where the application is in partitions that it reads."""
        found: Offsets = {}
        for name in partitions:
            position = self._positions.get(name)
            if position is not None and position.offset is not None:
                found[name] = OffsetAndMetadata(
                    position.offset, position.consumed_epoch, topic_id=position.topic_id
                )
        return found

    def identified(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Offsets:
        """With the topics that the application has read from, where offsets do not name theirs."""
        found: Offsets = {}
        for name, each in offsets.items():
            position = self._positions.get(name)
            if position is not None and not each.topic_id:
                found[name] = each._replace(topic_id=position.read_id or position.topic_id)
            else:
                found[name] = each
        return found

    async def commit(
        self, standing: Standing, offsets: Offsets, timeout_s: float | None = None
    ) -> None:
        """Commit as the member that the consumer was when it was asked to, after all commits that
        began earlier. ``timeout_s``: None: ``default_api_timeout_ms``.

        Raises CommitFailedError, FencedInstanceError, ApiError, UnreachableError.
        """
        turn = self._order.join()
        try:
            await self._commit(turn, standing, offsets, self._limit_s(timeout_s))
        finally:
            turn.end()

    def begin(self, standing: Standing, offsets: Offsets) -> asyncio.Task[None]:
        """Begin a ``commit`` now. Commits that begin after this call come after it."""
        turn = self._order.join()
        commit = self._commit(turn, standing, offsets, self._limit_s(None))
        task = asyncio.get_running_loop().create_task(commit)
        task.add_done_callback(lambda _: turn.end())  # also if it was cancelled before it ran
        return task

    async def _commit(
        self, turn: Turn, standing: Standing, offsets: Offsets, timeout_s: float
    ) -> None:
        deadline = self._view.world.clock.monotonic() + timeout_s
        await self._come(turn, deadline)
        left, speaker = dict(offsets), standing

        async def attempt() -> None:
            nonlocal speaker
            if left:
                for each in await self._coordinator.commit(speaker, left):
                    if each.error is ErrorCode.NONE:
                        self._committed[each.partition] = left.pop(each.partition)
                        continue
                    if each.error is ErrorCode.STALE_MEMBER_EPOCH and self._owns(left):
                        speaker = self._renewed()
                        raise UnreachableError("the member has another epoch now")
                    if each.error is ErrorCode.UNKNOWN_TOPIC_ID:
                        self._check_topic(each.partition, left[each.partition].topic_id)
                    self._told(speaker, each.error)
                    raise self._refusal(each)

        left_s = deadline - self._view.world.clock.monotonic()
        what = f"committing offsets of {self._config.group_id}"
        await self._view.keep_asking(attempt, what, left_s)

    async def _come(self, turn: Turn, deadline: float) -> None:
        try:
            async with asyncio.timeout(deadline - self._view.world.clock.monotonic()):
                await turn.come()
        except TimeoutError:
            text = f"earlier commits have no answer yet: {self._coordinator.where}"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, text) from None

    def _limit_s(self, timeout_s: float | None) -> float:
        return self._config.default_api_timeout_ms / 1000 if timeout_s is None else timeout_s

    def _check_topic(self, partition: TopicPartition, topic_id: bytes) -> None:
        """The coordinator knows no topic of this id. It may be behind. Raises CommitFailedError if
        the topic was deleted as far as this client knows, and UnreachableError otherwise."""
        if not self._view.was_deleted(partition.topic, topic_id):
            raise UnreachableError(f"the coordinator does not know topic {partition.topic} yet")
        raise CommitFailedError(
            ErrorCode.UNKNOWN_TOPIC_ID,
            f"the offset of {partition} was not committed: the topic that it was read from was "
            "deleted",
        )

    def _owns(self, partitions: Iterable[TopicPartition]) -> bool:
        return all(name in self._positions for name in partitions)

    def _refusal(self, told: CommittedOffset) -> ApiError:
        code = told.error
        if code is ErrorCode.FENCED_INSTANCE_ID:
            return FencedInstanceError(self._config.group_instance_id or "")
        if code in _LEFT_BEHIND:
            return CommitFailedError(
                code, f"nothing was committed: {_LEFT_BEHIND[code]}{_TOO_SLOW}"
            )
        why = told.message or explain(code)
        return ApiError(code, f"the offset of {told.partition} was not committed: {why}")

    def commit_in_time(self, standing: Standing, partitions: Iterable[TopicPartition]) -> None:
        """At a poll: commit what earlier polls returned, if it is time. Does not wait."""
        now = self._view.world.clock.monotonic()
        if now < self._next_auto_commit or not self._config.enable_auto_commit:
            return
        if self._auto_commit is None or self._auto_commit.done():
            self._next_auto_commit = now + self._interval_s
            offsets = self._news(partitions)
            if offsets:
                self._auto_commit = self.begin(standing, offsets)
                self._auto_commit.add_done_callback(self._auto_committed)

    def _auto_committed(self, commit: asyncio.Task[None]) -> None:
        error = None if commit.cancelled() else commit.exception()
        if isinstance(error, Exception):
            self._not_committed(error)

    def _not_committed(self, error: Exception) -> None:
        """An automatic commit has failed: its records are read again."""
        log.warning(_NOT_COMMITTED, error)
        if isinstance(error, ApiError) and error.code.is_denial:
            self._denial = error
            self._announce()

    def raise_denial(self) -> None:
        """Raise, once, that an automatic commit was refused because a right is missing."""
        denial, self._denial = self._denial, None
        if denial is not None:
            raise denial

    async def commit_at_once(
        self, standing: Standing, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> None:
        """Commit returned records before their partition is given up. A failure is logged: the
        records are read again. The next poll raises it if a right is missing."""
        offsets = self._news(partitions)
        if not self._config.enable_auto_commit or not offsets:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self.commit(standing, offsets)
        except TimeoutError:
            log.warning("%s was not committed in time: %s", offsets, self._coordinator.where)
        except SteleError as error:
            self._not_committed(error)

    def _news(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return {
            name: each
            for name, each in self.consumed(partitions).items()
            if self._committed.get(name) != each
        }

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """What this consumer has committed of them says nothing any more."""
        for name in partitions:
            self._committed.pop(name, None)

    # ------------------------------------------------------------------------ positions

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where that is nothing. Raises ApiError."""
        names = list(partitions)

        async def attempt() -> dict[TopicPartition, OffsetAndMetadata | None]:
            found = await self._ask_committed(names, self._topic_ids(names)) if names else []
            for each in found:
                if each.error is not ErrorCode.NONE:
                    raise ApiError(
                        each.error, f"the committed offset of {each.partition} cannot be given"
                    )
            return {each.partition: each.committed for each in found}

        what = f"committed offsets of {self._config.group_id}"
        return await self._view.keep_asking(attempt, what, self._limit_s(timeout_s))

    def _topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, bytes]:
        """The topics with these names that the consumer reads, as far as this client knows."""
        return {
            name.topic: topic.topic_id
            for name in partitions
            if name in self._positions and (topic := self._view.topic(name.topic)) is not None
        }

    async def _ask_committed(
        self, partitions: list[TopicPartition], topic_ids: Mapping[str, bytes]
    ) -> list[CommittedOffset]:
        found = await self._coordinator.committed(partitions, topic_ids)
        if any(each.error is ErrorCode.UNKNOWN_TOPIC_ID for each in found):
            # the knowledge of this client or of the coordinator is outdated
            self._view.refresh_soon()
        return found

    def find_starts(self) -> None:
        """Have partitions that await their committed offset begin there."""
        if self._looking_up is not None and not self._looking_up.done():
            return
        if any(each.awaits_committed for each in self._positions.values()):
            self._looking_up = asyncio.get_running_loop().create_task(self._find_starts())

    async def _find_starts(self) -> None:
        backoff = client_backoff(self._config, self._view.world)
        while True:
            waiting = {
                name: (position, position.generation)
                for name, position in self._positions.items()
                if position.awaits_committed
            }
            if not waiting:
                break
            try:
                topic_ids = self._topic_ids(waiting)
                found = await self._ask_committed(list(waiting), topic_ids)
            except (UnreachableError, ApiError) as error:
                self.waits_for = str(error)
                if isinstance(error, ApiError) and not error.code.retriable:
                    self._fail(waiting, error)
            else:
                for each in found:
                    topic_id = topic_ids.get(each.partition.topic, b"")
                    self._take_start(each, topic_id, *waiting[each.partition])
            self._announce()
            if any(each.awaits_committed for each in self._positions.values()):
                pause_s = backoff.next_s()
                if backoff.failures > 2:
                    self._view.waiting.say(f"committed offsets: {self.waits_for}", "committed")
                await asyncio.sleep(pause_s)
        self.waits_for = ""

    def _take_start(
        self, told: CommittedOffset, topic_id: bytes, position: PartitionPosition, generation: int
    ) -> None:
        if position.generation != generation:
            return  # the application has sought, or the partition was given up
        self.forget([told.partition])  # others may have committed since this consumer did
        if told.error.retriable:
            self.waits_for = f"{told.partition}: the coordinator answers {told.error.name}"
        elif told.error is not ErrorCode.NONE:
            text = f"the committed offset of {told.partition} cannot be given"
            _stop(position, ApiError(told.error, text))
        elif told.committed is None:
            position.awaits_committed = False  # auto_offset_reset decides
        else:
            position.seek(told.committed.offset, told.committed.leader_epoch, topic_id)

    def _fail(
        self, waiting: Mapping[TopicPartition, tuple[PartitionPosition, int]], error: ApiError
    ) -> None:
        for position, generation in waiting.values():
            if position.generation == generation:
                _stop(position, error)

    async def close(self) -> None:
        tasks = [each for each in (self._auto_commit, self._looking_up) if each is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _stop(position: PartitionPosition, error: ApiError) -> None:
    """The group's offset is not given. It is asked for again if a right is missing."""
    position.awaits_committed = error.code.is_denial
    position.error = error
