"""Subscribe: records of partitions to a thin client, as many as it has granted."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from broker.gateway import membership
from broker.gateway.credit import Credit, Grant
from broker.gateway.membership import SESSION_TIMEOUT_MS, Joining, Membership, Offsets
from broker.gateway.message_sizes import sizes_of_message
from broker.gateway.refusals import Refusal, bug, stream_error, stream_failure
from broker.gateway.share_subscribing import (
    Acknowledgements,
    ShareOutlet,
    ShareStart,
    ShareSubscription,
)
from broker.gateway.start_offsets import Edge, start_offsets
from broker.gateway.topic_pattern import TOPICS_MAX, TopicPattern
from broker.service.context import BrokerContext
from broker.service.topics import Topics
from metadata.topics import Topic
from runtime.authorization.authorizer import (
    Operation,
    group_resource,
    refusal,
    topic_resource,
)
from runtime.authorization.caller import Caller
from stele.aio import Consumer
from stele.config import ClientWorld, IsolationLevel, OffsetReset
from stele.consumer.positions import Progress, RawBatch
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode, OffsetOutOfRangeError, SteleError
from stele.ids import TopicPartition
from stele.wire.record import Record
from stele.world import RpcError

PARTITIONS_MAX: Final = 1_000
PREFETCH_BYTES: Final = 1024 * 1024
"""The most that is kept for a client without credit, beside one batch that is larger."""
MESSAGE_RECORDS_MAX: Final = 500
POLL_BYTES: Final = 128 * 1024
"""After batches of this size from one partition it is another partition's turn."""
_LOOK_UP_TIMEOUT_MS = 30_000
_LONG_POLL_MS = 5_000
"""An idle subscription asks each leader this often. A new record answers at once."""
_POLL_MS = 60_000
_MEMBER_POLL_MS = 5_000
"""A member that gets no records asks after this time whether the group still has it. Members of
Kafka send heartbeats as often."""
_STAY_S = 1.0
"""How often a member of a group without credit looks what the group wants of it."""


class From(NamedTuple):
    """A partition to read, or all of a topic's."""

    topic: str
    partition: int | None
    place: int | Edge  # an offset, an edge of the log, or:
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """What a client reads."""

    partitions: Sequence[From]
    reset: OffsetReset
    grant: Grant | None
    joining: Joining | None = None  # instead of partitions
    isolation_level: IsolationLevel = "read_uncommitted"


class Reading(NamedTuple):
    """A partition that is read."""

    partition: TopicPartition
    position: int
    end_offset: int


class _Fetched:
    """A batch that was fetched for the client, and how far it was sent."""

    __slots__ = ("_batch", "_records", "_sent", "topic_id")

    def __init__(self, batch: RawBatch, topic_id: bytes) -> None:
        self._batch = batch
        self.topic_id = topic_id
        self._records: list[Record] | None = None  # None: not decoded yet
        self._sent = 0

    @property
    def partition(self) -> TopicPartition:
        return self._batch.partition

    @property
    def is_append_time(self) -> bool:
        return self._batch.header.is_log_append_time

    def left(self, most: int) -> list[Record]:
        """The next records. Raises UnreadableBatchError."""
        if self._records is None:
            self._records = self._batch.decode(check_crcs=True)
        return self._records[self._sent : self._sent + most]

    def sent(self, count: int) -> None:
        self._sent += count

    @property
    def is_over(self) -> bool:
        return self._records is not None and self._sent >= len(self._records)


class SubscribeOutlet(membership.MemberOutlet, ShareOutlet, Protocol):
    """The client's side of a stream."""

    async def receive(self) -> Start | ShareStart | Grant | Offsets | Acknowledgements | None:
        """What the client asks. None if it has ended its side, or ``close`` was called. Raises
        RpcError."""
        ...

    async def assigned(self, readings: Sequence[Reading]) -> None:
        """Raises RpcError."""
        ...

    async def records(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        records: Sequence[Record],
        end_offset: int | None,
        *,
        is_append_time: bool,
    ) -> None:
        """``end_offset``: of the log, None if it is not known. ``is_append_time``: timestamps are
        the leader's. Raises RpcError."""
        ...

    async def positions(self, moved: Mapping[TopicPartition, Progress]) -> None:
        """Raises RpcError."""
        ...

    async def close(self) -> None:
        """Wake ``receive``. Nothing can be sent any more."""
        ...


class Subscription:
    """One stream."""

    def __init__(
        self,
        context: BrokerContext,
        caller: Caller,
        world: ClientWorld,
        bootstrap_servers: str,
        outlet: SubscribeOutlet,
    ) -> None:
        self._context = context
        self._caller = caller
        self._world = world
        self._bootstrap_servers = bootstrap_servers
        self._outlet = outlet
        self._credit = Credit()
        self._granted = asyncio.Event()
        self._has_all_credit = False  # the client has ended its side
        self._waiting: deque[_Fetched] = deque()  # what the credit was not enough for
        # What the client does not know yet. The positions are behind the records that wait.
        self._progress: dict[TopicPartition, Progress] = {}
        self._membership: Membership | None = None
        self._group = ""  # of the membership
        self._broken: RpcError | None = None
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Serve until the client has ended its side and got all it has granted. Raises RpcError."""
        start = await self._outlet.receive()
        if start is None:
            self._raise_if_broken()
            return
        if isinstance(start, ShareStart):
            member = ShareSubscription(
                self._context, self._caller, self._outlet, start, self._begin, self._ended
            )
            await member.run(self._world, self._bootstrap_servers)
            self._raise_if_broken()
            return
        if not isinstance(start, Start):
            raise _invalid("the first message of a stream is its start")
        partitions = await self._partitions(start)
        consumer = self._consumer(start)
        tasks: list[asyncio.Task[None]] = []
        try:
            if start.joining is None:
                await self._assign(consumer, partitions)
            else:
                pattern = self._pattern(start.joining)
                membership = self._membership = self._member(consumer, start.joining)
                if pattern is None:
                    membership.subscribe(start.joining.topics)
                else:
                    membership.subscribe(await pattern.topics())
                    tasks.append(self._begin(lambda: membership.follow(pattern)))
                tasks.append(self._begin(membership.run_commits))
            if start.grant is not None:
                self._grant(start.grant)
            pump = self._begin(lambda: self._pump(consumer))
            tasks.append(pump)
            await self._take_requests()
            self._has_all_credit = True
            self._granted.set()
            if self._broken is None:
                await pump
            if self._broken is None and self._membership is not None:
                await self._membership.all_committed()
            self._raise_if_broken()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._close(consumer)

    async def _close(self, consumer: Consumer) -> None:
        try:
            await consumer.close()
        except RpcError:
            # A stream that was ended cannot say which partitions its member gives up. The client
            # is to hear why it was ended instead.
            if self._broken is None:
                raise

    def _begin(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Work whose failure ends the stream."""

        async def guarded() -> None:
            try:
                await work()
            except RpcError as error:
                await self.end(error)
            except OffsetOutOfRangeError as error:
                where = {"topic": error.topic, "partition": str(error.partition)}
                where["offset"] = str(error.offset)
                await self.end(stream_failure(error, where))
            except SteleError as error:
                await self.end(stream_failure(error))
            except Exception as error:
                await self.end(bug("a Subscribe stream", error))

        return asyncio.get_running_loop().create_task(guarded())

    async def idle(self) -> None:
        """A reader can be told to go at any time."""

    async def end(self, why: RpcError) -> None:
        """End with this status, whatever is under way."""
        if self._broken is None:
            self._broken = why
        self._ended.set()
        await self._outlet.close()

    def _raise_if_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    # -------------------------------------------------------------------------- start

    def _consumer(self, start: Start) -> Consumer:
        joining = start.joining or Joining("", (), "", None)
        return Consumer(
            self._bootstrap_servers,
            world=self._world,
            client_id=joining.client_id or "stele-gateway",
            group_id=joining.group or None,
            group_instance_id=joining.instance_id,
            group_protocol=joining.protocol,
            enable_auto_commit=False,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            auto_offset_reset=start.reset,
            isolation_level=start.isolation_level,
            fetch_max_wait_ms=_LONG_POLL_MS,
            fetch_max_bytes=PREFETCH_BYTES,
            max_partition_fetch_bytes=PREFETCH_BYTES // 4,
            prefetch_bytes=PREFETCH_BYTES,
            default_api_timeout_ms=_LOOK_UP_TIMEOUT_MS,
            on_wait=lambda reason: None,
        )

    async def _partitions(self, start: Start) -> dict[TopicPartition, From]:
        """What is read, by topic and number. Raises RpcError."""
        if start.joining is not None:
            named = start.joining.topics
            if start.partitions or bool(named) == bool(start.joining.pattern):
                raise _invalid("a group has either topics or a topic_pattern, and no partitions")
            if len(named) > TOPICS_MAX:
                raise _invalid(f"a group has at most {TOPICS_MAX} topics")
            return {}
        if not start.partitions:
            raise _invalid("a subscription names at least one partition, or a group")
        topics = Topics(self._context, self._caller, Operation.READ)
        found: dict[TopicPartition, From] = {}
        for each in start.partitions:
            topic = topics.named(each.topic)
            if isinstance(topic, ErrorCode):
                raise stream_error(topic, metadata={"topic": each.topic})
            for number in self._numbers(each, topic):
                name = TopicPartition(each.topic, number)
                if name in found:
                    raise _invalid(f"{name} is named twice")
                found[name] = each
            if len(found) > PARTITIONS_MAX:
                raise stream_error(
                    ErrorCode.POLICY_VIOLATION,
                    f"a stream reads at most {PARTITIONS_MAX} partitions: use several",
                )
        return dict(sorted(found.items()))

    @staticmethod
    def _numbers(each: From, topic: Topic) -> Sequence[int]:
        if each.partition is None:
            return range(len(topic.partitions))
        if 0 <= each.partition < len(topic.partitions):
            return (each.partition,)
        raise stream_error(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {each.topic!r} has partitions 0 to {len(topic.partitions) - 1}, "
            f"not {each.partition}",
            {"topic": each.topic, "partition": str(each.partition)},
        )

    def _pattern(self, joining: Joining) -> TopicPattern | None:
        if not joining.pattern:
            return None
        return TopicPattern(self._context, self._caller, joining.pattern)

    def _member(self, consumer: Consumer, joining: Joining) -> Membership:
        """Raises RpcError: it may not join this group, or read these topics."""
        self._group = joining.group
        self._check_group()
        topics = Topics(self._context, self._caller, Operation.READ)
        for name in joining.topics:
            topic = topics.named(name)
            if isinstance(topic, ErrorCode):
                raise stream_error(topic, metadata={"topic": name})
        return Membership(consumer, self._outlet, self._commit_refusal, self._forget)

    def _group_refusal(self) -> ApiError | None:
        """Why the caller may not be a member of its group."""
        resource = group_resource(self._group)
        return refusal(self._context.authorizer, self._caller, Operation.READ, resource)

    def _check_group(self) -> None:
        """Raises RpcError."""
        why = self._group_refusal()
        if why is not None:
            raise stream_error(why.code, why.message, {"group": self._group})

    def _commit_refusal(self, commit: Offsets) -> Refusal | None:
        why = self._group_refusal()
        if why is not None:
            return Refusal(why.code, explain(why.code, why.message))
        topics = Topics(self._context, self._caller, Operation.READ)
        for topic in {name.topic: None for name in commit.offsets}:
            if isinstance(found := topics.named(topic), ErrorCode):
                return Refusal(found, f"topic {topic!r}: {explain(found)}")
        return None

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        """Records of these partitions wait in vain."""
        names = {*partitions}
        for name in names & self._progress.keys():
            del self._progress[name]
        self._waiting = deque(each for each in self._waiting if each.partition not in names)

    async def _assign(self, consumer: Consumer, partitions: dict[TopicPartition, From]) -> None:
        try:
            begin, ends = await start_offsets(
                consumer,
                {name: each.place for name, each in partitions.items()},
                {
                    (name.topic, name.partition): each.timestamp_ms
                    for name, each in partitions.items()
                    if each.timestamp_ms is not None
                },
            )
        except SteleError as error:
            raise stream_failure(error) from error
        consumer.assign(partitions)
        for name, offset in begin.items():
            consumer.seek(*name, offset)
        await self._outlet.assigned([Reading(name, begin[name], ends[name]) for name in begin])

    # ------------------------------------------------------------------------- credit

    async def _take_requests(self) -> None:
        while (request := await self._outlet.receive()) is not None:
            if isinstance(request, Grant):
                self._grant(request)
            elif isinstance(request, Start | ShareStart):
                raise _invalid("a stream has one start")
            elif isinstance(request, Acknowledgements):
                raise _invalid("only a member of a share group acknowledges records")
            elif self._membership is None:
                raise _invalid("only a member of a group commits")
            else:
                await self._membership.commit(request)

    def _grant(self, grant: Grant) -> None:
        self._credit.grant(grant.records, grant.bytes)
        self._granted.set()

    # ------------------------------------------------------------------------ records

    async def _pump(self, consumer: Consumer) -> None:
        poll_ms = _POLL_MS
        if self._membership is not None:
            poll_ms = _MEMBER_POLL_MS
            await self._membership.has_topics()
        while await self._has_credit(consumer):
            if not self._waiting:
                consumer.resume()
                polled = await consumer.poll_batches_progress(POLL_BYTES, poll_ms)
                self._wait_with(consumer, *polled)
            await self._send_waiting()

    def _wait_with(
        self,
        consumer: Consumer,
        batches: Sequence[RawBatch],
        moved: Mapping[TopicPartition, Progress],
    ) -> None:
        """All records that a poll has returned of a partition are of one topic."""
        self._progress.update(moved)
        for batch in batches:
            topic_id = consumer.read_topic_id(*batch.partition)
            self._waiting.append(_Fetched(batch, topic_id))

    async def _has_credit(self, consumer: Consumer) -> bool:
        """Wait for credit. False if there will be none."""
        while self._credit.is_spent:
            if self._has_all_credit:
                return False
            self._granted.clear()
            if self._membership is None:
                await self._granted.wait()
                continue
            try:
                async with asyncio.timeout(_STAY_S):
                    await self._granted.wait()
            except TimeoutError:
                self._check_group()
                self._wait_with(consumer, *await self._membership.stay())
        return True

    async def _send_waiting(self) -> None:
        """Send a message of records, as many as fit and may be sent. Raises RpcError, also if the
        caller may not be a member of its group any more."""
        if self._membership is not None:
            self._check_group()
        if self._waiting:
            await self._send_records(self._waiting[0])
        if not self._waiting:
            await self._send_progress()

    async def _send_records(self, fetched: _Fetched) -> None:
        name, topic_id = fetched.partition, fetched.topic_id
        records = fetched.left(MESSAGE_RECORDS_MAX)
        del records[self._credit.spend(sizes_of_message(records)) :]
        fetched.sent(len(records))
        if fetched.is_over:
            self._waiting.popleft()
        if not records:
            return  # compaction has left a batch without records
        self._check_readable(name.topic)
        progress = self._progress.get(name)
        if progress is not None and progress.topic_id != topic_id:
            progress = None  # of the topic that was made anew under this name
        await self._outlet.records(
            name,
            topic_id,
            records,
            None if progress is None else progress.end_offset,
            is_append_time=fetched.is_append_time,
        )
        if progress is not None and progress.position == records[-1].offset + 1:
            self._progress.pop(name, None)  # the records have told it

    async def _send_progress(self) -> None:
        """Tell what no record has told."""
        if not self._progress:
            return
        for topic in {name.topic: None for name in self._progress}:
            self._check_readable(topic)
        moved, self._progress = self._progress, {}
        await self._outlet.positions(moved)

    def _check_readable(self, topic: str) -> None:
        """Raises RpcError."""
        why = refusal(self._context.authorizer, self._caller, Operation.READ, topic_resource(topic))
        if why is not None:
            raise stream_error(why.code, why.message, {"topic": topic})


def _invalid(message: str) -> RpcError:
    return stream_error(ErrorCode.INVALID_REQUEST, message)
