"""Subscribe as a member of a share group: records to a thin client, and what became of them.

Locks are the client's affair: the consumer renews none by itself, unless the client wants it. A
worker that hangs would otherwise keep its records as long as its connection lasts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import Final, NamedTuple, Protocol

from broker.gateway.credit import Credit, Grant
from broker.gateway.message_sizes import sizes_of_message
from broker.gateway.refusals import Refusal, refusal_of, stream_error, stream_failure
from broker.gateway.topic_pattern import TOPICS_MAX
from broker.service.context import BrokerContext
from broker.service.topics import Topics
from runtime.authorization.authorizer import Operation, group_resource, refusal, topic_resource
from runtime.authorization.caller import Caller
from stele.aio import ShareConsumer
from stele.config import ClientWorld
from stele.errors import ApiError, ErrorCode, SteleError
from stele.ids import TopicPartition
from stele.records import AcknowledgeType, ShareRecord, TimestampType
from stele.wire.record import Record
from stele.world import RpcError

ACKNOWLEDGED_MAX: Final = 5_000
"""Offsets of one message."""
UNANSWERED_MAX: Final = 10_000
"""Acknowledgements of one stream without an answer. Then no more of its messages are read."""
_SLICE: Final = 250
"""Acknowledgements that are taken in one turn of the event loop."""
TAKEN_MAX: Final = 500
"""Records that a leader gives at a time."""
_FETCH_BYTES: Final = 1024 * 1024
"""The most that a leader gives at a time, or one record."""
_POLL_MS: Final = 5_000
"""An idle member asks each leader this often. A new record answers at once."""
_CHECK_S: Final = 1.0
"""How often a member without credit is asked for its permission."""
_ENDLESS_MS: Final = 2**31 - 1
"""A stream without credit polls nothing, and stays a member."""


class ShareStart(NamedTuple):
    """The share group that the client joins."""

    group: str
    topics: tuple[str, ...]
    client_id: str
    lock_renewal_ms: int
    grant: Grant | None


class RecordsToAcknowledge(NamedTuple):
    partition: TopicPartition
    offsets: tuple[int, ...]
    type: AcknowledgeType


class Acknowledgements(NamedTuple):
    """What became of records."""

    records: tuple[RecordsToAcknowledge, ...]


class AcknowledgeResult(NamedTuple):
    """``refusal`` None: the acknowledgements count."""

    partition: TopicPartition
    offsets: tuple[int, ...]
    refusal: Refusal | None
    is_renewal: bool


class ShareOutlet(Protocol):
    """The client's side of a stream. Each method but ``receive`` raises RpcError."""

    async def receive(self) -> object:
        """A Grant, Acknowledgements or something else. None: the client has ended its side, or the
        stream was ended. Raises RpcError."""
        ...

    async def share_records(
        self, partition: TopicPartition, records: Sequence[ShareRecord]
    ) -> None: ...

    async def acknowledged(self, results: Sequence[AcknowledgeResult]) -> None: ...


class ShareSubscription:
    """One member, as long as its stream lasts."""

    def __init__(
        self,
        context: BrokerContext,
        caller: Caller,
        outlet: ShareOutlet,
        start: ShareStart,
        begin: Callable[[Callable[[], Awaitable[None]]], asyncio.Task[None]],
        ended: asyncio.Event,
    ) -> None:
        """``begin`` starts work whose failure ends the stream, and sets ``ended``. Raises RpcError:
        the caller may not join this group, or read these topics."""
        self._context = context
        self._caller = caller
        self._outlet = outlet
        self._start = start
        self._begin = begin
        self._ended = ended
        self._credit = Credit()
        self._granted = asyncio.Event()
        self._unanswered = 0
        self._results: deque[AcknowledgeResult] = deque()
        self._has_results = asyncio.Event()
        self._has_answered = asyncio.Event()
        self._check(start)

    def _check(self, start: ShareStart) -> None:
        if not 0 < len(start.topics) <= TOPICS_MAX:
            raise invalid(f"a share group has 1 to {TOPICS_MAX} topics")
        self._check_group()
        topics = Topics(self._context, self._caller, Operation.READ)
        for name in start.topics:
            if isinstance(topic := topics.named(name), ErrorCode):
                raise stream_error(topic, metadata={"topic": name})

    async def run(self, world: ClientWorld, bootstrap_servers: str) -> None:
        """Serve until the client has ended its side, or the stream is ended. Raises RpcError."""
        grant = self._start.grant
        try:
            consumer = ShareConsumer(
                bootstrap_servers,
                world=world,
                client_id=self._start.client_id or "stele-gateway",
                group_id=self._start.group,
                share_acknowledgement_mode="explicit",
                share_acquire_mode="record_limit",
                max_poll_records=min((grant and grant.records) or TAKEN_MAX, TAKEN_MAX),
                fetch_max_bytes=_FETCH_BYTES,
                fetch_max_wait_ms=_POLL_MS,
                max_poll_interval_ms=_ENDLESS_MS,
                lock_renewal_ms=self._start.lock_renewal_ms,
                on_acknowledged=self._on_acknowledged,
                on_renewed=self._on_renewed,
                on_wait=lambda reason: None,
            )
            consumer.subscribe(self._start.topics)
        except SteleError as error:
            raise stream_failure(error) from error
        if grant is not None:
            self._grant(grant)
        pump = self._begin(lambda: self._pump(consumer))
        telling = self._begin(self._tell_results)
        try:
            await self._take_requests(consumer)
            pump.cancel()
            await self._all_answered()
        finally:
            for task in (pump, telling):
                task.cancel()
            await asyncio.gather(pump, telling, return_exceptions=True)
            await consumer.close()

    # ------------------------------------------------------------------------ records

    async def _pump(self, consumer: ShareConsumer) -> None:
        while True:
            await self._has_credit()
            records = await consumer.poll(min(self._credit.records, TAKEN_MAX), timeout_ms=_POLL_MS)
            self._check_group()
            left = await self._send(records)
            consumer.put_back(left)

    async def _has_credit(self) -> None:
        while self._credit.is_spent:
            self._granted.clear()
            try:
                async with asyncio.timeout(_CHECK_S):
                    await self._granted.wait()
            except TimeoutError:
                self._check_group()

    async def _send(self, records: Sequence[ShareRecord]) -> list[ShareRecord]:
        """Returns what the credit was not enough for."""
        left: list[ShareRecord] = []
        for name, run in groupby(records, lambda each: TopicPartition(each.topic, each.partition)):
            self._check_readable(name.topic)
            waiting = list(run)
            while waiting and not self._credit.is_spent:
                count = self._credit.spend(sizes_of_message([_record(each) for each in waiting]))
                await self._outlet.share_records(name, waiting[:count])
                del waiting[:count]
            left += waiting
        return left

    # --------------------------------------------------------------- acknowledgements

    async def _take_requests(self, consumer: ShareConsumer) -> None:
        while (request := await self._outlet.receive()) is not None:
            if isinstance(request, Grant):
                self._grant(request)
            elif isinstance(request, Acknowledgements):
                self._check_group()
                await self._acknowledge(consumer, request)
                await self._below(UNANSWERED_MAX)
            else:
                raise invalid("a member of a share group grants credit and acknowledges records")

    def _grant(self, grant: Grant) -> None:
        self._credit.grant(grant.records, grant.bytes)
        self._granted.set()

    async def _acknowledge(self, consumer: ShareConsumer, request: Acknowledgements) -> None:
        """In slices, between which others have their turn."""
        for partition, offsets, kind in request.records:
            for start in range(0, len(offsets), _SLICE):
                part = offsets[start : start + _SLICE]
                self._unanswered += len(part)
                for offset in part:
                    consumer.acknowledge(_named(partition, offset), kind)
                await asyncio.sleep(0)

    def _on_acknowledged(
        self, partition: TopicPartition, offsets: Sequence[int], error: ApiError | None
    ) -> None:
        self._answered(partition, offsets, error, is_renewal=False)

    def _on_renewed(
        self, partition: TopicPartition, offsets: Sequence[int], error: ApiError | None
    ) -> None:
        self._answered(partition, offsets, error, is_renewal=True)

    def _answered(
        self,
        partition: TopicPartition,
        offsets: Sequence[int],
        error: ApiError | None,
        *,
        is_renewal: bool,
    ) -> None:
        why = None if error is None else refusal_of(error, accepted=False)
        self._results.append(AcknowledgeResult(partition, tuple(offsets), why, is_renewal))
        self._has_results.set()

    async def _tell_results(self) -> None:
        while True:
            await self._has_results.wait()
            self._has_results.clear()
            results = list(self._results)
            self._results.clear()
            await self._outlet.acknowledged(results)
            self._unanswered -= sum(len(each.offsets) for each in results)
            self._has_answered.set()

    async def _below(self, most: int) -> None:
        """Wait until so many acknowledgements have no answer, or fewer."""
        while self._unanswered > most:
            self._has_answered.clear()
            await self._has_answered.wait()

    async def _all_answered(self) -> None:
        """Wait until the client has every answer, or the stream is ended."""
        loop = asyncio.get_running_loop()
        answered, ended = loop.create_task(self._below(0)), loop.create_task(self._ended.wait())
        try:
            ended.add_done_callback(lambda done: answered.cancel())
            await asyncio.gather(answered, return_exceptions=True)
        finally:
            for task in (answered, ended):
                task.cancel()
            await asyncio.gather(answered, ended, return_exceptions=True)

    # --------------------------------------------------------------------- permission

    def _check_group(self) -> None:
        """Raises RpcError."""
        group = self._start.group
        why = refusal(self._context.authorizer, self._caller, Operation.READ, group_resource(group))
        if why is not None:
            raise stream_error(why.code, why.message, {"group": group})

    def _check_readable(self, topic: str) -> None:
        """Raises RpcError."""
        why = refusal(self._context.authorizer, self._caller, Operation.READ, topic_resource(topic))
        if why is not None:
            raise stream_error(why.code, why.message, {"topic": topic})


def invalid(message: str) -> RpcError:
    return stream_error(ErrorCode.INVALID_REQUEST, message)


def _record(each: ShareRecord) -> Record:
    return Record(each.offset, each.timestamp_ms, each.key, each.value, each.headers)


def _named(partition: TopicPartition, offset: int) -> ShareRecord:
    """A record as acknowledgements name it. The consumer keeps those that it has returned."""
    kind = TimestampType.CREATE_TIME
    return ShareRecord(*partition, offset, 0, kind, None, None, (), -1, 0)
