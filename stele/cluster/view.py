"""A client's view of the cluster: brokers, topics and leaders, and how it is refreshed.

It starts at any broker's Kafka port.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from stele.addresses import address_text
from stele.cluster.kafka_link import KafkaLink, Question, refusal_of
from stele.cluster.kafka_plane import KafkaPlane
from stele.cluster.messages import (
    BrokerAddress,
    ClusterNews,
    Leader,
    TopicNews,
)
from stele.cluster.metrics_push import MetricsPush
from stele.cluster.missing_right import missing_right
from stele.cluster.waiting import WaitReporter, client_backoff
from stele.config import ClientConfig, ClientWorld, parse_bootstrap_servers
from stele.errors import (
    ApiError,
    AuthenticationError,
    ClosedError,
    CommitFailedError,
    ErrorCode,
    SteleError,
    TlsError,
    UnreachableError,
)
from stele.ids import TopicPartition
from stele.topic_names import is_encodable
from stele.world import Connector, RpcCode, RpcError

log = logging.getLogger(__name__)

BOOTSTRAP_ATTEMPT_S = 5.0
_LONGEST_NAME = 8_000  # characters; Kafka's requests hold 32,767 bytes
MIN_ATTEMPT_S = 0.1
HEDGE_S = 0.5
"""After this time without an answer, a question about metadata goes to another broker as well."""


AnswerT = TypeVar("AnswerT")


@dataclass(slots=True)
class KnownTopic:
    name: str
    topic_id: bytes
    partitions: dict[int, Leader] = field(default_factory=dict)  # a broker of -1 means no leader
    available: list[int] = field(default_factory=list)  # partitions with a leader, ascending

    def set_leader(self, partition: int, leader: Leader) -> None:
        self.partitions[partition] = leader
        self.available = sorted(p for p, each in self.partitions.items() if each.broker_id >= 0)


class _Newest(NamedTuple):
    """The newest known topic of a name, as of this offset of the cluster's metadata."""

    topic: KnownTopic
    metadata_offset: int  # -1: the broker does not give it


class ClusterView:
    """The view of one client. Refreshes are merged: at most one runs at a time."""

    def __init__(
        self,
        config: ClientConfig,
        world: ClientWorld,
        plane: Callable[[Connector, str, float], KafkaPlane] = KafkaPlane,
    ) -> None:
        self.config = config
        self.world = world
        self.plane = plane(world.connector, config.client_id, config.request_timeout_ms / 1000)
        self.metrics = MetricsPush(world.clock, world.rng, is_enabled=config.enable_metrics_push)
        self.plane.on_open = self.metrics.connected
        self.waiting = WaitReporter(config.on_wait, world.clock)
        self.cluster_id = ""
        self.controller_id = -1
        # Called after every refresh, and after every hint that is news.
        self.on_change: list[Callable[[], None]] = []
        self._bootstrap = parse_bootstrap_servers(config.bootstrap_servers)
        self._brokers: dict[int, BrokerAddress] = {}
        self._topics: dict[str, KnownTopic] = {}
        # By name. Kept while the topic is missing, as leader epochs do not go back.
        self._newest: dict[str, _Newest] = {}
        # Another id of a name, from the last refresh and not believed yet.
        self._rumours: dict[str, bytes] = {}
        self._topic_errors: dict[str, ErrorCode] = {}  # according to the last refresh
        # Topics that refreshes ask for, in the order in which they were wanted.
        self._wanted: dict[str, None] = {}
        self._links: dict[BrokerAddress, KafkaLink] = {}
        self._next_broker = 0
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed_at = world.clock.monotonic()
        total_ms = config.total_timeout_ms
        # All calls end by then, even if their own timeouts are later.
        self._give_up_at = (
            float("inf") if total_ms is None else world.clock.monotonic() + total_ms / 1000
        )
        self._closed = False
        # From then on a broker that fails at TLS is asked again: it may be exchanging its
        # certificate. Before, the client's own settings are wrong.
        self._has_reached = False

    # ------------------------------------------------------------------------- known

    def broker_ids(self) -> list[int]:
        return sorted(self._brokers)

    def knows(self, broker_id: int) -> bool:
        """Whether there is such a broker, as of the last refresh."""
        return broker_id in self._brokers

    def topic(self, name: str) -> KnownTopic | None:
        return self._topics.get(name)

    def leader(self, partition: TopicPartition) -> Leader | None:
        """The last known leader; None if the partition has no leader or it is not known."""
        topic = self._topics.get(partition.topic)
        leader = topic.partitions.get(partition.partition) if topic else None
        if leader is None or leader.broker_id not in self._brokers:
            return None
        return leader

    def leader_epoch(self, partition: TopicPartition) -> int:
        topic = self._topics.get(partition.topic)
        leader = topic.partitions.get(partition.partition) if topic else None
        return -1 if leader is None else leader.epoch

    def topic_error(self, name: str) -> ErrorCode:
        return self._topic_errors.get(name, ErrorCode.NONE)

    def was_deleted(self, topic: str, topic_id: bytes) -> bool:
        """Whether the topic of this id, which had this name, is known to be deleted. If it is not
        known, the view asks."""
        known = self._topics.get(topic)
        if known is None:
            is_gone = self.topic_error(topic) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            is_gone = known.topic_id != topic_id
        if not is_gone:
            self.want(topic)
            self.refresh_soon()
        return is_gone

    def hint(self, partition: TopicPartition, topic_id: bytes, leader: Leader) -> bool:
        """Take the leader that an answer names, if that is news. True if it can be used at once.

        ``topic_id``: that of the topic in the request. A topic that is created again under the same
        name counts its leader epochs from 0, so the epochs of the deleted one mean nothing for it.
        """
        topic = self._topics.get(partition.topic)
        if topic is None or topic.topic_id != topic_id:
            return False
        known = topic.partitions.get(partition.partition)
        if known is None or leader.broker_id < 0 or leader.epoch <= known.epoch:
            return False
        topic.set_leader(partition.partition, leader)
        self._tell()
        return leader.broker_id in self._brokers

    def link(self, broker_id: int) -> KafkaLink:
        """The link to a known broker, one for each address. Raises RpcError if the broker is not
        known any more."""
        address = self._brokers.get(broker_id)
        if address is None:
            raise RpcError(RpcCode.UNAVAILABLE, f"broker {broker_id} is not in the cluster now")
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = self.plane.link(address)
        return link

    # ---------------------------------------------------------------------- learning

    def want(self, topic: str) -> None:
        """Refreshes ask for this topic from now on.

        Raises ApiError INVALID_TOPIC_EXCEPTION for what no request can hold: every refresh would
        fail because of it.
        """
        if topic not in self._wanted:
            if not isinstance(topic, str) or not is_encodable(topic) or len(topic) > _LONGEST_NAME:
                raise ApiError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic!r:.300} cannot be a topic's name"
                )
            self._wanted[topic] = None

    def refresh_soon(self) -> None:
        """Start a refresh unless one is running."""
        if not self._closed and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh_logged())

    @property
    def is_stale(self) -> bool:
        age_s = self.world.clock.monotonic() - self._refreshed_at
        return age_s * 1000 > self.config.metadata_max_age_ms

    async def refresh(self) -> None:
        """Refresh the view by a request that begins after this call. Raises UnreachableError."""
        if self._refreshing is not None and not self._refreshing.done():
            try:
                await asyncio.shield(self._refreshing)
            except asyncio.CancelledError:
                self._check_open()  # `close` has cancelled it, not this caller
                raise
        await self._refresh()

    async def wait_for_topic(self, name: str, timeout_s: float) -> KnownTopic:
        """The topic, once it is known. Raises ApiError UNKNOWN_TOPIC_OR_PARTITION at the
        deadline."""
        self.want(name)
        deadline = self.world.clock.monotonic() + self.left_s(timeout_s)
        backoff = client_backoff(self.config, self.world)
        cause: SteleError = UnreachableError(f"topic {name!r}: no answer within {timeout_s:g} s")
        while (topic := self._topics.get(name)) is None:
            self._check_open()
            try:
                async with asyncio.timeout(deadline - self.world.clock.monotonic()):
                    await self.refresh()
            except TimeoutError:
                raise cause from None
            except UnreachableError as error:
                cause = error
            else:
                if name in self._topics:
                    continue
                code = self.topic_error(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                cause = ApiError(code, self._unusable_topic(name, code))
                if not code.retriable:
                    raise cause
            pause_s = backoff.next_s()
            if self.world.clock.monotonic() + pause_s >= deadline:
                raise cause
            if backoff.failures > 2:  # brokers hear of a new topic shortly after its creation
                self.waiting.say(f"waiting for topic {name!r}: {cause}", f"topic {name}")
            await asyncio.sleep(pause_s)
        return topic

    async def _refresh_logged(self) -> None:
        try:
            await self._refresh()
        except (UnreachableError, AuthenticationError) as error:
            self.waiting.say(str(error), "unreachable")
        except ClosedError:
            return

    async def _refresh(self) -> None:
        news = await self._ask_several(self.plane.metadata(list(self._wanted)))
        # A broker that is cut off from the controllers would give the same old view for ever.
        self.ask_another_first()
        if not self._closed:
            self._apply(news)

    def _apply(self, news: ClusterNews) -> None:
        self.cluster_id = news.cluster_id
        self.controller_id = news.controller_id
        if news.brokers:
            self._brokers = dict(news.brokers)
        for each in news.topics:
            if each.code is ErrorCode.NONE:
                self._topic_errors.pop(each.name, None)
                self._take_topic(each, news.metadata_offset)
            elif not self._is_outdated(each.name, news.metadata_offset):
                self._topic_errors[each.name] = each.code
                if each.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self._topics.pop(each.name, None)
        self._refreshed_at = self.world.clock.monotonic()
        self._tell()

    def _take_topic(self, news: TopicNews, metadata_offset: int) -> None:
        """Take a broker's description of a topic, except for parts that are older than what is
        known.

        A slow broker may give leaders of an older epoch, also after another one did not know the
        topic, or it gives an earlier topic of the same name. A producer that went back to the
        earlier topic, and forward again, would no longer know which of its batches the current
        topic has, and would write them twice. A producer that went back to an earlier leader would
        be told that the records which it has acknowledged since are lost.
        """
        newest = self._newest.get(news.name)
        if newest is not None and newest.topic.topic_id != news.topic_id:
            if not self._is_later_topic(news, metadata_offset, newest):
                return
            newest = None
        self._rumours.pop(news.name, None)
        known = KnownTopic(news.name, news.topic_id) if newest is None else newest.topic
        offset = metadata_offset if newest is None else max(metadata_offset, newest.metadata_offset)
        self._newest[news.name] = _Newest(known, offset)
        self._topics[news.name] = known
        for partition, leader in news.partitions:
            old = known.partitions.get(partition)
            if old is None or leader.epoch >= old.epoch:
                known.set_leader(partition, leader)

    def _is_outdated(self, name: str, metadata_offset: int) -> bool:
        """Whether an answer about a topic is older than what is known of the topic."""
        newest = self._newest.get(name)
        return newest is not None and 0 <= metadata_offset < newest.metadata_offset

    def _is_later_topic(self, news: TopicNews, metadata_offset: int, newest: _Newest) -> bool:
        """Whether a newer topic with another id has replaced the known one.

        Answers without metadata offsets do not say which topic is newer. Then another id is
        believed when two refreshes in a row have it. They ask two brokers, if there are two.
        """
        if metadata_offset >= 0:
            return metadata_offset >= newest.metadata_offset
        if self._rumours.get(news.name) == news.topic_id:
            return True
        self._rumours[news.name] = news.topic_id
        asyncio.get_running_loop().call_soon(self.refresh_soon)
        return False

    def _tell(self) -> None:
        for listener in self.on_change:
            listener()

    # ------------------------------------------------------------------------- asking

    async def ask(
        self,
        broker_id: int,
        question: Question[AnswerT],
        *,
        timeout_s: float | None = None,
    ) -> AnswerT:
        """Ask one broker once. Raises RpcError, ApiError as a question does."""
        timeout_s = timeout_s or self.config.request_timeout_ms / 1000
        answer = await question.ask(self.link(broker_id), timeout_s)
        self._has_reached = True
        return answer

    def _final_refusal(self, error: RpcError) -> AuthenticationError | None:
        """The error to raise at once if trying again does not help."""
        refusal = refusal_of(error)
        return None if isinstance(refusal, TlsError) and self._has_reached else refusal

    async def ask_any(
        self,
        question: Question[AnswerT],
        *,
        timeout_s: float | None = None,
        on_lost: Callable[[RpcError], None] = lambda error: None,
    ) -> AnswerT:
        """Ask each known broker once, until one answers. Raises UnreachableError, TlsError, and
        ApiError as a question does.

        ``timeout_s``: the time of one attempt, if an answer takes long. ``on_lost`` is called for
        each attempt without an answer, since it may have been carried out. It bootstraps first if
        no broker is known, and again if no known broker answers.
        """
        self._check_open()
        causes: dict[int, str] = {}  # the last failure of each broker
        refusal: AuthenticationError | None = None
        for fresh in (False, True):
            if fresh or not self._brokers:
                await self._find_brokers()
            for broker_id in self._in_turn():
                if broker_id not in self._brokers:
                    continue  # another task has found out meanwhile that the broker is gone
                try:
                    answer = await self.ask(
                        broker_id, question, timeout_s=timeout_s or self.attempt_s
                    )
                except RpcError as error:
                    self._check_open()
                    causes[broker_id] = f"broker {broker_id}: {error}"
                    refusal = refusal or self._final_refusal(error)
                    on_lost(error)
                    continue
                except asyncio.CancelledError:
                    on_lost(RpcError(RpcCode.CANCELLED, "cancelled before the broker answered"))
                    raise
                # The next request goes first to a broker that answers.
                self._next_broker = broker_id
                return answer
        if isinstance(refusal, TlsError):
            raise refusal
        reasons = "; ".join(causes.values()) or "none known"
        raise UnreachableError(f"no broker answers {question.what}: {reasons}")

    def ask_another_first(self) -> None:
        """The next request goes first to the broker after the one that answered last."""
        self._next_broker += 1

    @property
    def attempt_s(self) -> float:
        """The time of one attempt: a silent broker must not use up all the time if there are
        others."""
        others = max(len(self._bootstrap), len(self._brokers))
        whole_s = self.left_s(self.config.default_api_timeout_ms / 1000)
        shared_s = max(whole_s / others, MIN_ATTEMPT_S)
        return min(self.config.request_timeout_ms / 1000, BOOTSTRAP_ATTEMPT_S, shared_s)

    def left_s(self, timeout_s: float) -> float:
        """The time in seconds that a call with this timeout has from now on."""
        return max(0.0, min(timeout_s, self._give_up_at - self.world.clock.monotonic()))

    async def _ask_several(self, question: Question[AnswerT]) -> AnswerT:
        """As ``ask_any``, for a question that changes nothing. A broker that hangs costs little:
        whenever none has answered for ``HEDGE_S``, another one is asked as well."""
        left, asked = deque(self._in_turn()), dict[asyncio.Task[AnswerT], int]()
        ended: asyncio.Queue[asyncio.Task[AnswerT]] = asyncio.Queue()
        try:
            while left or asked:
                if left:
                    broker_id = left.popleft()
                    work = self.ask(broker_id, question, timeout_s=self.attempt_s)
                    task = asyncio.get_running_loop().create_task(work)
                    task.add_done_callback(ended.put_nowait)
                    asked[task] = broker_id
                try:
                    async with asyncio.timeout(HEDGE_S if left else None):
                        task = await ended.get()
                except TimeoutError:
                    continue
                broker_id = asked.pop(task)
                try:
                    answer = task.result()
                except RpcError:
                    continue
                self._next_broker = broker_id
                return answer
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        return await self.ask_any(question)  # there may be others by now

    def _in_turn(self) -> list[int]:
        """All brokers, beginning with the one that answered last."""
        ids = self.broker_ids()
        return [each for each in ids if each >= self._next_broker] + [
            each for each in ids if each < self._next_broker
        ]

    async def _find_brokers(self) -> None:
        """Ask the bootstrap servers one after the other. Raises UnreachableError, TlsError if
        the client has never reached a broker, and LoginError: the next server would refuse the
        login, too."""
        causes: list[str] = []
        refused: list[str] = []
        for host, port in self._bootstrap:
            try:
                async with asyncio.timeout(self.attempt_s):
                    news = await self.plane.find_brokers(host, port, self.attempt_s)
            except TlsError as error:
                refused.append(error.message)
                causes.append(error.message)
                continue
            except AuthenticationError:
                raise
            except (OSError, SteleError) as error:
                reason = "no answer in time" if isinstance(error, TimeoutError) else str(error)
                causes.append(f"{address_text(host, port)}: {reason}")
                continue
            if not news.brokers:
                causes.append(
                    f"{address_text(host, port)}: it knows of no broker that is in service yet"
                )
                continue
            self.cluster_id = news.cluster_id
            self._brokers = dict(news.brokers)
            return
        if refused and not self._has_reached:
            raise TlsError("; ".join(refused))
        if len(refused) == len(causes):
            raise UnreachableError("; ".join(causes))
        raise UnreachableError(
            f"cannot reach the cluster: {'; '.join(causes)}. Are these the Kafka ports of running "
            "brokers?"
        )

    async def keep_asking(
        self, attempt: Callable[[], Awaitable[AnswerT]], what: str, timeout_s: float
    ) -> AnswerT:
        """Repeat a call while it fails for a passing reason, for at most ``timeout_s``.

        Raises the last failure, as ApiError or UnreachableError, and AuthenticationError at once.
        An attempt that is under way at
        the deadline is cancelled.
        """
        deadline = self.world.clock.monotonic() + self.left_s(timeout_s)
        backoff = client_backoff(self.config, self.world)
        cause: SteleError = UnreachableError(f"{what}: no answer within {timeout_s:g} s")
        while True:
            self._check_open()
            try:
                async with asyncio.timeout(deadline - self.world.clock.monotonic()):
                    return await attempt()
            except TimeoutError:
                raise cause from None
            except RpcError as error:
                refusal = self._final_refusal(error)
                if refusal is not None:
                    raise refusal from error
                cause = UnreachableError(f"{what}: {error}")
            except UnreachableError as error:
                cause = error
            except CommitFailedError:
                raise  # by UNKNOWN_TOPIC_ID it says more than the code, which is a passing one
            except ApiError as error:
                if not error.code.retriable:
                    raise
                cause = error
            pause_s = backoff.next_s()
            if self.world.clock.monotonic() + pause_s >= deadline:
                raise cause
            self.waiting.say(f"{what}: {cause}", what)
            await asyncio.sleep(pause_s)

    # ------------------------------------------------------------------------- closing

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the client is closed")

    async def close(self) -> None:
        self._closed = True
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)
        await self.metrics.close()
        links, self._links = self._links, {}
        for link in links.values():
            await link.close()

    def _unusable_topic(self, name: str, code: ErrorCode) -> str:
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return f"there is no topic {name!r}: create it first (stele topic create {name})"
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return missing_right(self.world.connector.security, "DESCRIBE", "topic", name)
        return f"topic {name!r} cannot be used"
