"""The Kafka APIs of a broker: one file each, and the registry that dispatches to them.

Every file opens with its versions and its known deviations from Kafka.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, cast

from broker.api import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    expire_delegation_token,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    push_telemetry,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    share_group_states,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from broker.api.charging import charge, take_up
from broker.api.handler import RequestContext, Served
from broker.api.topic_views import TopicViews
from broker.api.trace_context import context_of
from broker.metrics import RequestMeter
from broker.service.context import BrokerContext
from runtime.authorization.caller import Caller, Plane
from runtime.kafka.connection import KafkaServerProtocol
from runtime.kafka.requests import AnsweringConnection, PendingRequest, Queue
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka import ApiKey, RequestHeader, Struct
from stele.wire.kafka.messages.api_versions import API as API_VERSIONS
from stele.wire.kafka.messages.fetch import FetchRequest
from stele.wire.kafka.messages.produce import ProduceRequest
from world.tracing import Span, Tracer

logger = logging.getLogger(__name__)


async def _api_versions(
    context: BrokerContext, request_context: RequestContext, request: Any
) -> Struct:
    request_context.connection.software_name = request.client_software_name
    request_context.connection.software_version = request.client_software_version
    return api_versions.respond(served_by(context), request_context, request, context.image())


SERVED = (
    produce.SERVED,
    fetch.SERVED,
    list_offsets.SERVED,
    metadata.SERVED,
    offset_commit.SERVED,
    offset_fetch.SERVED,
    find_coordinator.SERVED,
    join_group.SERVED,
    heartbeat.SERVED,
    leave_group.SERVED,
    sync_group.SERVED,
    describe_groups.SERVED,
    list_groups.SERVED,
    Served(API_VERSIONS, api_versions.refuse, handle_async=_api_versions),
    sasl_handshake.SERVED,
    create_topics.SERVED,
    delete_topics.SERVED,
    delete_records.SERVED,
    init_producer_id.SERVED,
    offset_for_leader_epoch.SERVED,
    add_partitions_to_txn.SERVED,
    add_offsets_to_txn.SERVED,
    end_txn.SERVED,
    write_txn_markers.SERVED,
    txn_offset_commit.SERVED,
    describe_acls.SERVED,
    create_acls.SERVED,
    delete_acls.SERVED,
    describe_configs.SERVED,
    alter_configs.SERVED,
    alter_replica_log_dirs.SERVED,
    describe_log_dirs.SERVED,
    sasl_authenticate.SERVED,
    create_partitions.SERVED,
    create_delegation_token.SERVED,
    renew_delegation_token.SERVED,
    expire_delegation_token.SERVED,
    describe_delegation_token.SERVED,
    delete_groups.SERVED,
    elect_leaders.SERVED,
    incremental_alter_configs.SERVED,
    alter_partition_reassignments.SERVED,
    list_partition_reassignments.SERVED,
    offset_delete.SERVED,
    describe_client_quotas.SERVED,
    alter_client_quotas.SERVED,
    describe_user_scram_credentials.SERVED,
    alter_user_scram_credentials.SERVED,
    describe_quorum.SERVED,
    update_features.SERVED,
    describe_cluster.SERVED,
    describe_producers.SERVED,
    unregister_broker.SERVED,
    describe_transactions.SERVED,
    list_transactions.SERVED,
    consumer_group_heartbeat.SERVED,
    consumer_group_describe.SERVED,
    list_config_resources.SERVED,
    describe_topic_partitions.SERVED,
    share_group_heartbeat.SERVED,
    share_group_describe.SERVED,
    share_fetch.SERVED,
    share_acknowledge.SERVED,
    *share_group_states.SERVED,
    describe_share_group_offsets.SERVED,
    alter_share_group_offsets.SERVED,
    delete_share_group_offsets.SERVED,
)
"""The APIs that every broker serves."""

OF_TELEMETRY = (get_telemetry_subscriptions.SERVED, push_telemetry.SERVED)
"""Further APIs of a broker that has a receiver for the metrics of clients."""


def served_by(context: BrokerContext) -> tuple[Served, ...]:
    """Every API that a broker serves. ApiVersions lists exactly these."""
    return SERVED if context.telemetry is None else SERVED + OF_TELEMETRY


class KafkaApis:
    """The ``runtime.kafka.requests.Dispatch`` of a broker.

    Requests that come before ``open`` wait: a broker answers nothing before it is unfenced.
    """

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._quotas = self.timing = context.quotas
        self._now_s = context.clock.monotonic
        served = served_by(context)
        self._served = {int(each.api.key): each for each in served}
        self._versions = frozenset(
            (int(each.api.key), version) for each in served for version in each.decodable
        )
        self._waiting: list[Callable[[], None]] | None = []
        self._topic_views = TopicViews()
        # The last context of each connection. The next request nearly always has the same version
        # and client id, and shares the object then.
        self._last_contexts: dict[AnsweringConnection, RequestContext] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._meters: dict[int, RequestMeter] = {}  # by API key

    def open(self) -> None:
        """Answer requests from now on, beginning with those that came before."""
        waiting, self._waiting = self._waiting or [], None
        for start in waiting:
            start()

    async def close(self) -> None:
        """Cancel the requests that have no answer yet."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def forget(self, connection: KafkaServerProtocol) -> None:
        """The connection is lost: end its session."""
        self._last_contexts.pop(connection, None)
        self._context.sessions.forget(connection)
        self._context.sharing.sessions.forget(connection)
        if self._context.telemetry is not None:
            self._context.telemetry.disconnected(connection)

    # ------------------------------------------------------------------ Dispatch

    def serves(self, api_key: int, api_version: int) -> bool:
        return (api_key, api_version) in self._versions

    def takes_turns(self, header: RequestHeader, message: Struct) -> bool:
        """Two kinds do not. Batches of several Produce requests share a sync, and a follower sends
        a second Fetch to have the waiting one answered."""
        if header.api_key == ApiKey.PRODUCE:
            return False
        return not (isinstance(message, FetchRequest) and fetch.is_of_follower(message))

    def prepare(self, request: PendingRequest, message: Struct) -> Generator[None, None, Struct]:
        prepare = self._served[request.header.api_key].prepare
        if prepare is None or self._waiting is not None:  # there is no metadata yet
            return message
        prepared = yield from prepare(self._context, self._context_of(request), message)
        return cast(Struct, prepared)

    def _context_of(self, request: PendingRequest) -> RequestContext:
        """The context of a request. Requests that follow each other may share one."""
        header = request.header
        request_context = self._last_contexts.get(request.connection)
        if (
            request_context is None
            or request_context.version != header.api_version
            or request_context.caller.client_id != header.client_id
            or request_context.caller.principal is not request_context.connection.principal
        ):
            connection = cast(KafkaServerProtocol, request.connection)
            request_context = self._request_context(connection, header)
            self._last_contexts[connection] = request_context
        return request_context

    def handle(self, request: PendingRequest, message: Struct) -> None:
        request_context = self._context_of(request)
        request.began_s = self._now_s()
        if (tracer := self._context.tracer) is not None:
            request.span = _begin(tracer, request_context, request.header, message)
        if (manager := self._quotas.manager) is not None:
            take_up(self._quotas, manager, request_context.caller, request, message)
        served = self._served[request.header.api_key]
        if self._waiting is None:
            self._start(served, request_context, message, request)
        else:
            self._waiting.append(partial(self._start, served, request_context, message, request))

    def answered(self, request: PendingRequest, message: Struct | None) -> None:
        if request.payer is not None:
            charge(self._quotas, request.payer, request, message)
        if getattr(message, "error_code", 0):
            cast(KafkaServerProtocol, request.connection).errors += 1
        took_s = self._now_s() - request.began_s
        meter = self._meters.get(request.header.api_key) or self._meter(request.header.api_key)
        meter.answered(took_s, request.local_s)
        if request.span is not None:
            _end(request.span, took_s, request.local_s)

    def waited(self, header: RequestHeader, queue: Queue, waited_s: float) -> None:
        self._meter(header.api_key).waited(queue, waited_s)

    def _request_context(
        self, connection: KafkaServerProtocol, header: RequestHeader
    ) -> RequestContext:
        connection.client_id = header.client_id or ""
        caller = Caller(
            connection.principal,
            header.client_id,
            connection.listener_name,
            Plane.KAFKA,
            connection.address,
            connection.node_ids,
            connection.by_delegation_token,
        )
        return RequestContext(header.api_version, caller, self._topic_views, connection)

    def _meter(self, api_key: int) -> RequestMeter:
        meter = self._meters.get(api_key)
        if meter is None:
            name = ApiKey(api_key).name
            meter = self._meters[api_key] = self._context.metrics.of_requests(name)
        return meter

    # ------------------------------------------------------------------ handlers

    def _start(
        self,
        served: Served,
        request_context: RequestContext,
        message: Struct,
        request: PendingRequest,
    ) -> None:
        if served.handle_async is not None:
            work = self._handle_async(served, request_context, message, request)
            self._begin_task(request_context, work)
            return
        assert served.handle is not None
        handle = served.handle if request.span is None else request.span.around(served.handle)
        try:
            withdraw = handle(self._context, request_context, message, request.answer)
        except Exception as error:
            failure = self._failed(served, request_context, message, error)
            if isinstance(failure, Awaitable):
                self._begin_task(request_context, _answer_later(request, failure))
            elif not request.is_answered:
                request.answer(failure)
            return
        if not request.is_answered:
            request.local_s = self._now_s() - request.began_s
            request.withdraw = withdraw

    def _begin_task(self, request_context: RequestContext, work: Coroutine[Any, Any, None]) -> None:
        if (clock := self._quotas.turn_clock) is not None:
            work = request_context.connection.loop_share.run_async(clock, work)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _handle_async(
        self,
        served: Served,
        request_context: RequestContext,
        message: Struct,
        request: PendingRequest,
    ) -> None:
        assert served.handle_async is not None
        try:
            response = await served.handle_async(self._context, request_context, message)
        except Exception as error:
            failure = self._failed(served, request_context, message, error)
            response = await failure if isinstance(failure, Awaitable) else failure
            if isinstance(error, ApiError) and served.explains and request_context.is_ours:
                cast(Any, response).error_message = error.message or None
        request.answer(response)

    def _failed(
        self, served: Served, request_context: RequestContext, message: Struct, error: Exception
    ) -> Struct | Awaitable[Struct]:
        """The answer to a request whose handler raised: the client's connection lives."""
        if isinstance(error, ApiError):
            # Its frames hold the request, and the frame that raised it holds the error.
            error.__traceback__ = None
            return served.refuse(request_context, message, error.code)
        name = served.api.key.name
        logger.error(
            "%s v%d from %s (client %r) failed",
            name,
            request_context.version,
            request_context.connection.peer,
            request_context.caller.client_id,
            exc_info=error,
        )
        self._context.metrics.failures(name).value += 1
        return served.refuse(request_context, message, ErrorCode.UNKNOWN_SERVER_ERROR)


async def _answer_later(request: PendingRequest, answer: Awaitable[Struct]) -> None:
    """Answer a request whose handler has failed, unless it had answered before."""
    refused = await answer
    if not request.is_answered:
        request.answer(refused)


def _begin(
    tracer: Tracer, request_context: RequestContext, header: RequestHeader, message: Struct
) -> Span | None:
    attributes = {
        "stele.client_id": header.client_id or "",
        "stele.peer": request_context.connection.peer,
        "stele.listener": request_context.connection.listener_name,
    }
    of_follower = isinstance(message, FetchRequest) and fetch.is_of_follower(message)
    context = ""
    if tracer.context_header and isinstance(message, ProduceRequest):
        context = context_of(message, tracer.context_header)
    return tracer.begin(
        ApiKey(header.api_key).name, attributes, of_follower=of_follower, context=context
    )


def _end(span: Span, took_s: float, local_s: float | None) -> None:
    """The request of this span is answered, so long after it came. ``local_s``: as for
    ``RequestMeter.answered``."""
    if local_s is not None:
        span.child("wait", {}, began_s_ago=took_s - local_s).end()
    span.end()
