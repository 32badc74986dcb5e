"""Carries out the share session with one broker: one connection, and one request at a time."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from stele.cluster.kafka_connection import KafkaConnection
from stele.cluster.view import ClusterView
from stele.cluster.waiting import CONSUMER_QUOTAS, above_quota, client_backoff
from stele.config import ShareConsumerConfig
from stele.errors import ApiError, ErrorCode, SteleError
from stele.share_consumer.requests import (
    RENEWS_FROM,
    PartitionAnswer,
    SessionAnswer,
    acknowledge_message,
    fetch_message,
    session_answer,
)
from stele.share_consumer.session import Kind, SessionRequest, ShareSession
from stele.wire.kafka.messages import share_acknowledge, share_fetch
from stele.world import RpcError

log = logging.getLogger(__name__)

LONGEST_PAUSE_S: Final = 1.0
LAST_REQUEST_S: Final = 5.0
"""How long closing waits for the broker."""


class Receiver(Protocol):
    """What a share session brings, and what it is to ask for."""

    def wait_ms(self, leader: ShareLeader) -> int | None:
        """How long a fetch may wait for records now. None: no records are wanted."""

    def sends_fetch(self, leader: ShareLeader) -> None: ...

    def take(
        self, leader: ShareLeader, answer: PartitionAnswer, asked_at_s: float, lock_s: float
    ) -> None:
        """What an answer says of one partition."""

    def take_outcomes(self, leader: ShareLeader) -> None:
        """Decisions of the session are settled."""

    def take_failure(self, error: SteleError) -> None:
        """The consumer cannot go on."""


class ShareLeader:
    """The broker that leads some of the partitions."""

    def __init__(
        self,
        broker_id: int,
        config: ShareConsumerConfig,
        view: ClusterView,
        member_id: str,
        receiver: Receiver,
    ) -> None:
        self.broker_id = broker_id
        self.session = ShareSession(config.renewed_s)
        self._config = config
        self._view = view
        self._clock = view.world.clock
        self._member_id = member_id
        self._receiver = receiver
        self._backoff = client_backoff(config, view.world)
        self._connection: KafkaConnection | None = None
        self._watching: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._rests_until_s = 0.0  # nothing is sent before
        self._is_closing = False
        self._life = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        self._wake.set()

    async def close(self) -> None:
        """Send the decisions that wait, and end the session: the broker gives the other records to
        others."""
        self._is_closing = True
        self.wake()
        if self.session.awaits_records and not self.session.has_decisions:
            self._life.cancel()  # the lost connection ends the session as well
        try:
            async with asyncio.timeout(LAST_REQUEST_S):
                await asyncio.gather(self._life, return_exceptions=True)
        except TimeoutError:
            await asyncio.gather(self._life, return_exceptions=True)
        self._lose("the consumer was closed", maybe_taken=True)
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    # ----------------------------------------------------------------------- the loop

    async def _run(self) -> None:
        try:
            while not self._is_closing:
                self._wake.clear()
                await self._turn()
            await self._end()
        except SteleError as error:
            self._receiver.take_failure(error)
        except Exception as error:
            log.error("the share consumer stops because of a bug in it", exc_info=error)
            self._receiver.take_failure(
                SteleError(f"a bug in the share consumer, see the log: {error!r}")
            )

    async def _turn(self) -> None:
        """Send one request, or wait until there may be one."""
        if self._connection is not None and self._connection.is_closed:
            self._lose("the connection was lost", maybe_taken=True)
        if self._view.is_stale:
            self._view.refresh_soon()
        now_s = self._clock.monotonic()
        if now_s < self._rests_until_s:
            await self._pause(self._rests_until_s - now_s)
            return
        wait_ms = self._receiver.wait_ms(self)
        request = self.session.next_request(now_s, wants_records=wait_ms is not None)
        self._receiver.take_outcomes(self)
        if request is None:
            await self._pause(self.session.next_at_s(now_s) - now_s)
        else:
            # The outcome of decisions must not wait for records.
            await self._carry_out(request, 0 if request.decisions else wait_ms or 0)

    async def _pause(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(min(max(pause_s, 0.001), LONGEST_PAUSE_S)):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _end(self) -> None:
        while self.session.has_decisions:
            now_s = self._clock.monotonic()
            request = self.session.next_request(now_s, wants_records=False)
            if request is not None:
                await self._carry_out(request, 0)
            elif self.session.has_decisions:
                await asyncio.sleep(max(self.session.next_at_s(now_s) - now_s, 0.001))
        request = self.session.last_request(self._clock.monotonic())
        if request is not None and self._connection is not None:
            await self._carry_out(request, 0)
        self._receiver.take_outcomes(self)

    # ----------------------------------------------------------------------- requests

    async def _carry_out(self, request: SessionRequest, wait_ms: int) -> None:
        if request.kind is Kind.FETCH:
            self._receiver.sends_fetch(self)
        try:
            connection = await self._connected()
        except RpcError as error:
            self._failed(str(error), maybe_taken=False)
            return
        asked_at_s = self._clock.monotonic()
        try:
            answer = await self._ask(connection, request, wait_ms)
        except ApiError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                raise
            self._failed(error.message, maybe_taken=True)
            return
        self._rest(answer.throttle_s)
        if answer.error is not None:
            self._refused(request, answer.error)
        else:
            self._backoff.reset()
            self._answered(request, answer, asked_at_s)

    async def _connected(self) -> KafkaConnection:
        """Raises RpcError."""
        if self._connection is None:
            self._connection = await self._view.link(self.broker_id).open()
            watch = self._watch(self._connection)
            self._watching = asyncio.get_running_loop().create_task(watch)
        return self._connection

    async def _watch(self, connection: KafkaConnection) -> None:
        """Without a request under way, nothing else would notice that the session is over."""
        await connection.wait_closed()
        self.wake()

    async def _ask(
        self, connection: KafkaConnection, request: SessionRequest, wait_ms: int
    ) -> SessionAnswer:
        """Raises ApiError."""
        config = self._config
        timeout_s = config.request_timeout_ms / 1000
        if request.kind is Kind.ACKNOWLEDGE:
            message = acknowledge_message(config, self._member_id, request)
            version = connection.version_of(share_acknowledge.API)
            return session_answer(
                await connection.request(
                    share_acknowledge.API, version, message, timeout_s=timeout_s
                )
            )
        version = connection.version_of(share_fetch.API)
        self.session.can_renew = version >= RENEWS_FROM
        fetch = fetch_message(
            config,
            self._member_id,
            request,
            version=version,
            max_wait_ms=wait_ms,
            max_records=config.max_poll_records,
        )
        told = await connection.request(
            share_fetch.API, version, fetch, timeout_s=timeout_s + wait_ms / 1000
        )
        return session_answer(told)

    # ------------------------------------------------------------------------ answers

    def _answered(self, request: SessionRequest, answer: SessionAnswer, asked_at_s: float) -> None:
        errors = {
            each.partition: each.acknowledge_error
            for each in answer.partitions
            if each.acknowledge_error is not None
        }
        now_s = self._clock.monotonic()
        self.session.on_answer(request, errors, now_s, answer.lock_s, asked_at_s)
        for each in answer.partitions:
            self._receiver.take(self, each, asked_at_s, answer.lock_s)
        self._receiver.take_outcomes(self)

    def _refused(self, request: SessionRequest, error: ApiError) -> None:
        """The broker refuses the request as a whole. A session that it does not know is opened
        anew on another connection, so that the broker gives the records of this one to others."""
        is_session = error.code in (
            ErrorCode.SHARE_SESSION_NOT_FOUND,
            ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        )
        self._failed(f"{error.code.name}: {error.message}", maybe_taken=False)
        if not is_session and not error.code.retriable:
            group = f"share group {self._config.group_id}"
            raise ApiError(error.code, f"{group}: {error.message}")

    def _failed(self, reason: str, *, maybe_taken: bool) -> None:
        self._lose(reason, maybe_taken=maybe_taken)
        self._rest(self._backoff.next_s(), is_quota=False)
        self._view.refresh_soon()
        if self._backoff.failures > 2:
            self._view.waiting.say(
                f"waiting for broker {self.broker_id}: {reason}", f"share {self.broker_id}"
            )

    def _rest(self, pause_s: float, *, is_quota: bool = True) -> None:
        if pause_s > 0:
            self._rests_until_s = self._clock.monotonic() + pause_s
            if is_quota:
                self._view.waiting.say(
                    above_quota(self.broker_id, pause_s, CONSUMER_QUOTAS), "quota"
                )

    def _lose(self, reason: str, *, maybe_taken: bool) -> None:
        """The session is over."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self.session.on_lost(f"broker {self.broker_id}: {reason}", maybe_taken=maybe_taken)
        self._receiver.take_outcomes(self)
