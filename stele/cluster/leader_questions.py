"""Questions to partition leaders that are answered with an offset and repeated until they are."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from stele.cluster.messages import Leader
from stele.cluster.view import ClusterView
from stele.cluster.waiting import client_backoff
from stele.errors import ApiError, ErrorCode, UnreachableError
from stele.ids import TopicPartition
from stele.records import OffsetAndTimestamp
from stele.world import RpcError

Take = Callable[[TopicPartition, OffsetAndTimestamp | ApiError], None]
"""Called once per partition, as soon as its answer or failure is known."""


class OffsetAnswer(NamedTuple):
    """A leader's answer for one partition."""

    name: TopicPartition
    code: ErrorCode
    found: OffsetAndTimestamp
    message: str = ""


SILENT_S = 1.0
"""After this time a question goes on without the leaders that have not answered."""

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
    ) -> list[OffsetAnswer]:
        """Send one request to the leader of these partitions. Raises RpcError. ``wanted`` may lose
        entries while the request is under way."""

    async def offsets(
        self, wanted: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The answer for each partition. ``wanted`` has the number that the question is about.
        Raises the first failure. ``timeout_s``: None: ``default_api_timeout_ms``."""
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        failed: list[ApiError] = []

        def take(name: TopicPartition, answer: OffsetAndTimestamp | ApiError) -> None:
            if isinstance(answer, ApiError):
                failed.append(answer)
            else:
                found[name] = answer

        await self.ask_until_answered(wanted, take, timeout_s)
        if failed:
            raise failed[0]
        return {name: found[name] for name in wanted}

    async def ask_until_answered(
        self, wanted: Mapping[TopicPartition, int], take: Take, timeout_s: float | None = None
    ) -> None:
        """Ask until every partition has an answer or a failure."""
        if timeout_s is None:
            timeout_s = self._view.config.default_api_timeout_ms / 1000
        timeout_s = self._view.left_s(timeout_s)
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
        rounds = _Round(self, missing, take)
        try:
            while True:
                rounds.ask()
                await rounds.wait()
                if not missing:
                    return
                pause_s = backoff.next_s()
                if self._clock.monotonic() + pause_s >= deadline:
                    for name in missing:
                        take(name, rounds.cause(name))
                    missing.clear()
                    return
                if backoff.failures > 2:
                    first = next(iter(missing))
                    self._view.waiting.say(f"{self.doing}: {rounds.cause(first)}", self.doing)
                await asyncio.sleep(pause_s)
                await self._refresh()
        finally:
            await rounds.close()

    async def _refresh(self) -> None:
        try:
            await self._view.refresh()
        except UnreachableError as error:
            self._view.waiting.say(str(error), "unreachable")

    def leader(self, name: TopicPartition) -> Leader | None:
        return self._view.leader(name)

    def without_leader(self, name: TopicPartition) -> ApiError:
        if is_gone(self._view, name):
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, gone(name))
        return ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name} has no leader that is known")


class _Round:
    """The requests of one question. All leaders are asked at once, and one that is silent holds up
    no other: the next round begins without it."""

    def __init__(
        self, question: LeaderQuestions, missing: dict[TopicPartition, int], take: Take
    ) -> None:
        self._question = question
        self._missing = missing
        self._take = take
        self._causes: dict[TopicPartition, ApiError] = {}  # why there was no answer last time
        self._asked: dict[asyncio.Task[None], list[TopicPartition]] = {}
        self._ended: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()

    def ask(self) -> None:
        """Ask the leaders of all partitions that are missing and not asked about at the moment."""
        busy = {name for names in self._asked.values() for name in names}
        by_leader: dict[int, list[tuple[TopicPartition, Leader]]] = {}
        for name in self._missing:
            if name in busy:
                continue
            leader = self._question.leader(name)
            if leader is None:
                self._causes[name] = self._question.without_leader(name)
            else:
                by_leader.setdefault(leader.broker_id, []).append((name, leader))
        for broker_id, names in by_leader.items():
            task = asyncio.get_running_loop().create_task(self._ask(broker_id, names))
            self._asked[task] = [name for name, _ in names]
            task.add_done_callback(self._end)

    async def wait(self) -> None:
        """Until all have answered, or some of them have not for ``SILENT_S``."""
        try:
            async with asyncio.timeout(SILENT_S):
                while self._asked and self._missing:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pass
        ended, self._ended = self._ended, []
        for task in ended:
            task.result()

    def cause(self, name: TopicPartition) -> ApiError:
        asked = any(name in names for names in self._asked.values())
        silent = f"{name}: its leader has not answered yet"
        if asked and name not in self._causes:
            return ApiError(ErrorCode.REQUEST_TIMED_OUT, silent)
        return self._causes.get(name) or ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"{name}: no answer"
        )

    async def close(self) -> None:
        tasks = list(self._asked)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _end(self, task: asyncio.Task[None]) -> None:
        del self._asked[task]
        self._ended.append(task)
        self._news.set()

    async def _ask(self, broker_id: int, names: list[tuple[TopicPartition, Leader]]) -> None:
        missing, causes = self._missing, self._causes
        for name, _ in names:
            causes.pop(name, None)
        try:
            answers = await self._question.ask_leader(broker_id, names, missing)
        except RpcError as error:
            for name, _ in names:
                text = f"{name}: broker {broker_id}: {error}"
                causes[name] = ApiError(ErrorCode.NETWORK_EXCEPTION, text)
        except ApiError as error:  # that broker cannot be asked this
            for name, _ in names:
                del missing[name]
                self._take(name, error)
        else:
            causes.update(_take_answers(broker_id, answers, missing, self._take))


def _take_answers(
    broker_id: int,
    answers: Sequence[OffsetAnswer],
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
