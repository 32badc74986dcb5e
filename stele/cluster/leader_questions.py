"""Questions to partition leaders that are answered with an offset and repeated until they are."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from stele.cluster.plane import Leader
from stele.cluster.view import ClusterView
from stele.cluster.waiting import client_backoff
from stele.errors import ApiError, ErrorCode, UnreachableError
from stele.ids import TopicPartition
from stele.records import OffsetAndTimestamp
from stele.world import RpcError

Take = Callable[[TopicPartition, OffsetAndTimestamp | ApiError], None]
"""Called once per partition, as soon as its answer or failure is known."""


class Answer(NamedTuple):
    """A leader's answer for one partition."""

    name: TopicPartition
    code: ErrorCode
    found: OffsetAndTimestamp
    message: str = ""


TOPIC_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class LeaderQuestions(ABC):
    """One kind of question. It is repeated for at most ``default_api_timeout_ms``."""

    doing: str
    """What the client does, in words, for messages about waiting."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._clock = view.world.clock

    @abstractmethod
    async def ask_leader(
        self,
        broker_id: int,
        names: Sequence[tuple[TopicPartition, Leader]],
        wanted: Mapping[TopicPartition, int],
    ) -> list[Answer]:
        """Send one request to the leader of these partitions. Raises RpcError."""

    async def offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The answer for each partition. ``wanted`` has the number that the question is about.
        Raises the first failure."""
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        failed: list[ApiError] = []

        def take(name: TopicPartition, answer: OffsetAndTimestamp | ApiError) -> None:
            if isinstance(answer, ApiError):
                failed.append(answer)
            else:
                found[name] = answer

        await self.ask_until_answered(wanted, take)
        if failed:
            raise failed[0]
        return {name: found[name] for name in wanted}

    async def ask_until_answered(self, wanted: Mapping[TopicPartition, int], take: Take) -> None:
        """Ask until every partition has an answer or a failure."""
        timeout_s = self._view.left_s(self._view.config.default_api_timeout_ms / 1000)
        missing = dict(wanted)
        try:
            async with asyncio.timeout(timeout_s):
                await self._ask_repeatedly(missing, take, timeout_s)
        except TimeoutError:
            for name in missing:
                text = f"{name}: no answer within {timeout_s:g} s"
                take(name, ApiError(ErrorCode.REQUEST_TIMED_OUT, text))

    async def _ask_repeatedly(
        self, missing: dict[TopicPartition, int], take: Take, timeout_s: float
    ) -> None:
        """Ask until ``missing`` is empty: partitions leave it when they are answered. ``take`` gets
        the reason if one has no answer within ``timeout_s``."""
        deadline = self._clock.monotonic() + timeout_s
        backoff = client_backoff(self._view.config, self._view.world)
        for name in missing:
            self._view.want(name.topic)
        if any(self._view.topic(name.topic) is None for name in missing):
            await self._refresh()
        while True:
            causes = await self._ask_once(missing, take)
            if not missing:
                return
            pause_s = backoff.next_s()
            if self._clock.monotonic() + pause_s >= deadline:
                for name in missing:
                    take(name, causes[name])
                missing.clear()
                return
            if backoff.failures > 2:
                first = next(iter(missing))
                self._view.waiting.say(f"{self.doing}: {causes[first]}", self.doing)
            await asyncio.sleep(pause_s)
            await self._refresh()

    async def _refresh(self) -> None:
        try:
            await self._view.refresh()
        except UnreachableError as error:
            self._view.waiting.say(str(error), "unreachable")

    async def _ask_once(
        self, missing: dict[TopicPartition, int], take: Take
    ) -> dict[TopicPartition, ApiError]:
        """Send one request to each leader. Answered partitions leave ``missing``. Returns why the
        others had no answer."""
        causes: dict[TopicPartition, ApiError] = {}
        by_leader: dict[int, list[tuple[TopicPartition, Leader]]] = {}
        for name in missing:
            leader = self._view.leader(name)
            if leader is None:
                causes[name] = self._without_leader(name)
            else:
                by_leader.setdefault(leader.broker_id, []).append((name, leader))
        for broker_id, names in by_leader.items():
            try:
                answers = await self.ask_leader(broker_id, names, missing)
            except RpcError as error:
                for name, _ in names:
                    text = f"{name}: broker {broker_id}: {error}"
                    causes[name] = ApiError(ErrorCode.NETWORK_EXCEPTION, text)
            except ApiError as error:  # that broker cannot be asked this
                for name, _ in names:
                    del missing[name]
                    take(name, error)
            else:
                causes.update(_take_answers(broker_id, answers, missing, take))
        for name in missing:
            causes.setdefault(name, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{name}: no answer"))
        return causes

    def _without_leader(self, name: TopicPartition) -> ApiError:
        if is_gone(self._view, name):
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, gone(name))
        return ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name} has no leader that is known")


def _take_answers(
    broker_id: int,
    answers: Sequence[Answer],
    missing: dict[TopicPartition, int],
    take: Take,
) -> dict[TopicPartition, ApiError]:
    causes: dict[TopicPartition, ApiError] = {}
    for name, code, found, message in answers:
        if name not in missing:
            continue
        if code is ErrorCode.NONE:
            del missing[name]
            take(name, found)
            continue
        said = f": {message}" if message else ""
        causes[name] = ApiError(code, f"{name}: broker {broker_id} answers {code.name}{said}")
        if not code.retriable:
            del missing[name]
            take(name, causes[name])
    return causes


def is_gone(view: ClusterView, name: TopicPartition) -> bool:
    """Whether there is no such partition, as far as the view knows."""
    topic = view.topic(name.topic)
    if topic is not None:
        return name.partition not in topic.partitions
    return view.topic_error(name.topic) in TOPIC_GONE


def gone(name: TopicPartition) -> str:
    return f"there is no partition {name}: was its topic created, or deleted?"
