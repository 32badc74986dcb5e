"""Follows leaders: one loop, one connection and one fetch session per peer.

For each partition a Fetch names an offset below which everything is on this broker's disk: so it
acknowledges all earlier records. The next Fetch therefore leaves only when the records of the last
answer are durable. If another partition is to be followed while a Fetch waits at the leader, a
second Fetch is sent behind it; the leader then answers the first at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from broker.replication.fetch_session import INITIAL_EPOCH, INVALID_SESSION_ID, next_epoch
from broker.replication.fetcher_session import FetcherSession, SentFetch
from broker.replication.follower import REST_MAX_S, Following, Verdict
from broker.replication.follower_throttle import FollowerThrottle
from broker.replication.leader_connection import LeaderConnection
from broker.replication.replica import Replica, ReportCorrupt
from runtime.backoff import node_backoff
from runtime.config.node import NodeConfig
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.wire.kafka.messages import fetch as wire
from storage.directory import LogDirectory
from storage.errors import StorageError
from storage.log import PartitionLog
from world.tracing import Tracer

logger = logging.getLogger(__name__)

_MAX_IN_FLIGHT = 2

CUTS_AT_ONCE: Final = 16
"""Logs that are cut in one turn of the event loop. Each cut waits for the device up to 8 times, and
one answer may ask for thousands."""


Connect = Callable[[int], Awaitable[LeaderConnection]]
"""Opens a connection to a broker by id. Raises OSError, ApiError."""


class PeerFetcher:
    """Follows everything that one peer leads and this broker replicates."""

    def __init__(
        self,
        leader_id: int,
        *,
        broker_id: int,
        config: NodeConfig,
        connect: Connect,
        broker_epoch: Callable[[], int],
        count: Callable[[Verdict], None],
        on_corrupt: ReportCorrupt,
        throttle: FollowerThrottle,
        tracer: Tracer | None,
    ) -> None:
        self._leader_id = leader_id
        self._tracer = tracer
        self._throttle = throttle
        self._broker_id = broker_id
        self._config = config
        self._connect = connect
        self._broker_epoch = broker_epoch
        self._count = count
        self._on_corrupt = on_corrupt
        self._following: dict[PartitionId, Following] = {}
        # The contents of the next request: partitions whose position or epoch the leader does not
        # know yet (in order), and partitions that it must forget.
        self._news: dict[PartitionId, None] = {}
        self._forgotten: dict[PartitionId, None] = {}
        # Partitions that rest after an error, and when they are taken up again.
        self._resting: dict[PartitionId, asyncio.TimerHandle] = {}
        # Partitions that wait for quota, in order; out of the session meanwhile.
        self._held: dict[PartitionId, None] = {}
        self._session: FetcherSession | None = None
        self._is_nudged = False
        self._is_at_work = False
        self._task: asyncio.Task[None] | None = None

    @property
    def is_empty(self) -> bool:
        return not self._following

    def assign(self, replica: Replica, leader_epoch: int) -> None:
        """Follow a partition in an epoch; again with every new epoch."""
        self._end_rest(replica.id)
        backoff_s = self._config.replica_fetch_backoff_ms / 1000
        self._following[replica.id] = Following(
            replica, leader_epoch, backoff_s, self._on_corrupt, self._tracer
        )
        self._tell(replica.id)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(
                self._run(), name=f"fetcher-{self._broker_id}-from-{self._leader_id}"
            )

    def remove(self, partition: PartitionId) -> None:
        if self._following.pop(partition, None) is None:
            return
        self._end_rest(partition)
        self._held.pop(partition, None)
        self._news.pop(partition, None)
        self._forgotten[partition] = None

    async def stop(self) -> None:
        for partition in list(self._resting):
            self._end_rest(partition)
        self._following.clear()
        self._held.clear()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _tell(self, partition: PartitionId) -> None:
        if self._throttle.holds_back(self._following[partition].replica):
            self._hold(partition)
            return
        self._held.pop(partition, None)
        self._forgotten.pop(partition, None)
        self._news[partition] = None
        self._nudge()

    # ---------------------------------------------------------------------------- quota

    def _hold(self, partition: PartitionId) -> None:
        """Leave a partition out of the session until there is quota."""
        self._news.pop(partition, None)
        self._forgotten[partition] = None
        self._held[partition] = None
        self._nudge()  # the leader has to forget it
        self._throttle.await_quota(self._release)

    def _release(self) -> None:
        """Ask for as many as there may be quota for, by the most that each may bring."""
        room_bytes = self._throttle.available_bytes()
        while self._held and room_bytes > 0:
            room_bytes -= max(1, self._config.replica_fetch_max_bytes)
            self._tell(next(iter(self._held)))
        if self._held:
            self._throttle.await_quota(self._release)

    def look_again(self, partition: PartitionId) -> None:
        """The partition is in sync or not throttled: it need not wait for quota any more."""
        if partition in self._held:
            self._tell(partition)

    def made_durable(self, partition: PartitionId) -> None:
        """Report the log end offset to the leader, which did not get it while it was not
        durable."""
        if partition not in self._resting:
            self._tell(partition)

    # ---------------------------------------------------------------------------- resting

    def _rest(self, partition: PartitionId, delay_s: float) -> None:
        """Take a partition out of the session for a while."""
        self._end_rest(partition)
        self._held.pop(partition, None)
        self._news.pop(partition, None)
        self._forgotten[partition] = None
        self._resting[partition] = asyncio.get_running_loop().call_later(
            delay_s, self._resume, partition
        )

    def _resume(self, partition: PartitionId) -> None:
        del self._resting[partition]
        if partition in self._following:
            self._tell(partition)

    def _end_rest(self, partition: PartitionId) -> None:
        timer = self._resting.pop(partition, None)
        if timer is not None:
            timer.cancel()

    # --------------------------------------------------------------------------- the loop

    async def _run(self) -> None:
        backoff = node_backoff()
        while True:
            session: FetcherSession | None = None
            try:
                session = FetcherSession(await self._connect(self._leader_id))
                await self._follow(session)
            except (OSError, ApiError) as error:
                logger.info("fetching from broker %d: %s", self._leader_id, error)
                if session is not None and session.id != INVALID_SESSION_ID:
                    backoff.reset()  # it worked for a while
            except Exception:
                logger.exception("fetching from broker %d", self._leader_id)
            finally:
                self._session = None
                if session is not None:
                    await session.end()
            await asyncio.sleep(backoff.next_s())

    async def _follow(self, session: FetcherSession) -> None:
        """Fetch over one connection until it fails. Raises its error.

        The work is done where something happens: when an answer comes, when records are durable,
        and once after the events that bring news. This only waits for the end.
        """
        self._forgotten.clear()
        self._news = {
            each: None
            for each in self._following
            if each not in self._resting and each not in self._held
        }
        self._session = session
        self._go_on(session)
        await session.failure

    def _nudge(self) -> None:
        """There is news. Go on after the events at hand, which may bring more."""
        session = self._session
        if session is not None and not (self._is_nudged or self._is_at_work or session.is_busy):
            self._is_nudged = True
            asyncio.get_running_loop().call_soon(self._go_on_nudged)

    def _go_on_nudged(self) -> None:
        self._is_nudged = False
        if self._session is not None:
            self._go_on(self._session)

    def _go_on(self, session: FetcherSession) -> None:
        """Take the answers that are there and send what may be sent."""
        if self._is_at_work or session.is_over:
            return
        self._is_at_work = True
        try:
            while not session.is_busy:
                if session.in_flight and session.in_flight[0].done():
                    self._take(session, session.in_flight.popleft())
                elif not self._may_send(session):
                    break
                elif not self._settle_news(session):
                    self._send(session)
        except Exception as error:
            session.fail(error)
        finally:
            self._is_at_work = False

    def _settle_news(self, session: FetcherSession) -> bool:
        """Have records of an earlier leader, or of this broker as a leader, made durable.

        Returns whether there are any. Anything may have changed when they are durable.
        """
        unsettled = [
            following
            for partition in self._news
            if not (following := self._following[partition]).is_durable
        ]
        for following in unsettled:
            del self._news[following.replica.id]
        if unsettled:
            self._make_durable(session, unsettled)
        return bool(unsettled)

    def _may_send(self, session: FetcherSession) -> bool:
        if session.in_flight:
            # Behind a waiting one only with news, and once the session has an id.
            return (
                bool(self._news)
                and session.id != INVALID_SESSION_ID
                and len(session.in_flight) < _MAX_IN_FLIGHT
            )
        away = len(self._resting) + len(self._held)
        return len(self._following) > away or bool(self._forgotten)

    def _send(self, session: FetcherSession) -> None:
        session.sent += 1
        sent = SentFetch(session.sent, lambda: self._go_on(session))
        session.connection.fetch(self._request(session), sent)
        session.in_flight.append(sent)
        session.epoch = next_epoch(session.epoch)

    def _request(self, session: FetcherSession) -> wire.FetchRequest:
        config = self._config
        topics: dict[bytes, wire.FetchTopic] = {}
        for partition in self._news:
            following = self._following[partition]
            following.told_in = session.sent
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = topics[partition.topic_id] = wire.FetchTopic(topic_id=partition.topic_id)
            max_bytes = self._throttle.limit(following.replica, config.replica_fetch_max_bytes)
            topic.partitions.append(following.position(max_bytes))
        forgotten: dict[bytes, wire.ForgottenTopic] = {}
        if session.epoch != INITIAL_EPOCH:
            for topic_id, number in self._forgotten:
                gone = forgotten.get(topic_id)
                if gone is None:
                    gone = forgotten[topic_id] = wire.ForgottenTopic(topic_id=topic_id)
                gone.partitions.append(number)
        self._news.clear()
        self._forgotten.clear()
        return wire.FetchRequest(
            replica_state=wire.ReplicaState(self._broker_id, self._broker_epoch()),
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=session.id,
            session_epoch=session.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )

    # -------------------------------------------------------------------------- an answer

    def _take(self, session: FetcherSession, answered: SentFetch) -> None:
        """Do what an answer asks for, and have the records made durable. Raises its error."""
        response, number = answered.response, answered.number
        if response is None:
            assert answered.error is not None
            raise answered.error
        if response.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(response.error_code), "the fetch session ended")
        if response.session_id == INVALID_SESSION_ID:
            raise ApiError(
                ErrorCode.STALE_BROKER_EPOCH, "the leader does not know this broker's epoch yet"
            )
        session.id = response.session_id
        entries = (
            (PartitionId(topic.topic_id, data.partition_index), data)
            for topic in response.responses
            for data in topic.partitions
        )
        self._take_entries(session, number, entries, [])

    def _take_entries(
        self,
        session: FetcherSession,
        number: int,
        entries: Iterator[tuple[PartitionId, wire.PartitionData]],
        written: list[Following],
    ) -> None:
        """Take the entries of an answer to the request of that number, in as many turns of the
        event loop as the cuts of logs need. The session is busy meanwhile."""
        cuts_left = CUTS_AT_ONCE
        for partition, data in entries:
            following = self._following.get(partition)
            # An answer to a request that named another epoch says nothing about this one.
            if following is None or number < following.told_in:
                continue
            cuts_before = following.cuts
            verdict = following.take(data)
            if partition in self._following:  # else its own log was found corrupt
                self._heed(following, verdict, written)
            cuts_left -= following.cuts - cuts_before
            if cuts_left <= 0:
                session.is_busy = True
                asyncio.get_running_loop().call_soon(
                    self._take_on, session, number, entries, written
                )
                return
        session.is_busy = False
        if written:
            self._make_durable(session, written)
        elif self._held:
            self._release()

    def _take_on(
        self,
        session: FetcherSession,
        number: int,
        entries: Iterator[tuple[PartitionId, wire.PartitionData]],
        written: list[Following],
    ) -> None:
        """Take the rest of an answer, in the next turn of the event loop."""
        if session.is_over:
            return
        try:
            self._take_entries(session, number, entries, written)
        except Exception as error:
            session.fail(error)
        else:
            self._go_on(session)

    def _heed(self, following: Following, verdict: Verdict, written: list[Following]) -> None:
        partition = following.replica.id
        if verdict.rest_s > 0:
            self._rest(partition, verdict.rest_s)
        elif verdict.moved:
            written.append(following)
            self._count(verdict)
            self._throttle.fetched(following.replica, verdict.written_bytes)

    def _make_durable(self, session: FetcherSession, written: Sequence[Following]) -> None:
        """Have the logs made durable, because the next request's position acknowledges all records
        below it. A log that cannot be made durable rests for a while."""
        session.is_busy = True
        logs: dict[LogDirectory, list[PartitionLog]] = {}
        for following in written:
            if not following.is_durable:
                replica = following.replica
                logs.setdefault(replica.directory, []).append(replica.log)
        session.unflushed = len(logs)

        def synced(error: StorageError | None) -> None:
            if error is not None:
                logger.error("not durable, so not acknowledged: %s", error)
            session.unflushed -= 1
            if not session.unflushed:
                try:
                    self._persist_bounds(session, written)
                except Exception as failure:
                    session.fail(failure)  # nothing else would end the session, which is busy

        for directory, unsynced in logs.items():
            directory.synced_then(unsynced, synced)
        if not logs:
            self._persist_bounds(session, written)

    def _persist_bounds(self, session: FetcherSession, written: Sequence[Following]) -> None:
        """Records that the leader has deleted stay deleted here: then the new start is reported,
        too. The leader's dropped end becomes that of this log."""
        if session.is_over:
            return
        moved = [following for following in written if following.has_bounds_to_write]
        if not moved:
            self._made_durable(session, written)
            return

        async def persist() -> None:
            try:
                await self._write_bounds(moved)
                if not session.is_over:
                    self._made_durable(session, written)
            except Exception as error:
                session.fail(error)

        session.starts = asyncio.get_running_loop().create_task(persist())

    async def _write_bounds(self, moved: Sequence[Following]) -> None:
        for directory in {following.replica.directory: None for following in moved}:
            try:
                await directory.persist_start_offsets()
            except ApiError as error:
                logger.error("the start or dropped end of logs is not on disk: %s", error)
        for following in moved:
            following.start_moved = False
            partition = following.replica.id
            if self._following.get(partition) is not following or not following.is_durable:
                continue
            if following.replica.durable_start_offset < following.replica.log.start_offset:
                self._rest(partition, REST_MAX_S)  # the leader tells it again afterwards

    def _made_durable(self, session: FetcherSession, written: Sequence[Following]) -> None:
        for following in written:
            partition = following.replica.id
            if following.copying is not None:
                following.copied()
            if self._following.get(partition) is not following or partition in self._resting:
                continue
            if following.is_durable:
                self._tell(partition)
            else:  # nothing else would try again
                self._rest(partition, REST_MAX_S)
        if self._held:
            self._release()
        session.is_busy = False
        self._go_on(session)


class Fetchers:
    """A fetcher for every peer that leads something replicated here."""

    def __init__(
        self,
        *,
        broker_id: int,
        config: NodeConfig,
        connect: Connect,
        broker_epoch: Callable[[], int],
        count: Callable[[Verdict], None],
        on_corrupt: ReportCorrupt,
        throttle: FollowerThrottle,
        tracer: Tracer | None,
    ) -> None:
        self._broker_id = broker_id
        self._tracer = tracer
        self._throttle = throttle
        self._config = config
        self._connect = connect
        self._broker_epoch = broker_epoch
        self._count = count
        self._on_corrupt = on_corrupt
        self._peers: dict[int, PeerFetcher] = {}
        self._leader_of: dict[PartitionId, int] = {}
        # Fetchers of peers that lead nothing any more, on their way out.
        self._stopping: set[asyncio.Task[None]] = set()

    def follow(self, replica: Replica, leader_id: int, leader_epoch: int) -> None:
        """Fetch a partition from ``leader_id`` from now on."""
        if self._leader_of.get(replica.id, leader_id) != leader_id:
            self.leave(replica.id)
        self._leader_of[replica.id] = leader_id
        peer = self._peers.get(leader_id)
        if peer is None:
            peer = self._peers[leader_id] = PeerFetcher(
                leader_id,
                broker_id=self._broker_id,
                config=self._config,
                connect=self._connect,
                broker_epoch=self._broker_epoch,
                count=self._count,
                on_corrupt=self._on_corrupt,
                throttle=self._throttle,
                tracer=self._tracer,
            )
        peer.assign(replica, leader_epoch)

    def look_again(self, partition: PartitionId) -> None:
        """Whether it has to wait for quota may have changed."""
        leader_id = self._leader_of.get(partition)
        if leader_id is not None:
            self._peers[leader_id].look_again(partition)

    def made_durable(self, partition: PartitionId) -> None:
        """All of the log may be acknowledged again, without an answer of the leader."""
        leader_id = self._leader_of.get(partition)
        if leader_id is not None:
            self._peers[leader_id].made_durable(partition)

    def leave(self, partition: PartitionId) -> None:
        """Fetch a partition no more; harmless if it was not."""
        leader_id = self._leader_of.pop(partition, None)
        if leader_id is None:
            return
        peer = self._peers[leader_id]
        peer.remove(partition)
        if peer.is_empty:
            del self._peers[leader_id]
            task = asyncio.get_running_loop().create_task(peer.stop())
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)

    async def stop(self) -> None:
        peers, self._peers = self._peers, {}
        self._leader_of.clear()
        self._throttle.stop()
        for _, peer in sorted(peers.items()):
            await peer.stop()
        await asyncio.gather(*self._stopping)
