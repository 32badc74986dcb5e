"""ConsumerGroupHeartbeat (68), versions 0-1: members of the consumer protocol (KIP-848).

Deviations: a member that waits for the next target assignment is asked to come back when it may be
made. A regular expression never stands for internal topics, and may have a part of RE2's syntax
(``metadata.name_pattern``).
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.api.handler import RequestContext, Served
from broker.coordinator.group.consumer.types import (
    ConsumerHeartbeatAnswer,
    ConsumerHeartbeatRequest,
)
from broker.service import groups
from broker.service.context import BrokerContext
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import consumer_group_heartbeat as messages
from stele.wire.kafka.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from stele.wire.kafka.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest as Request,
)

_OWN_MEMBER_ID_FROM = 1


async def handle(
    context: BrokerContext, request_context: RequestContext, request: Request
) -> ConsumerGroupHeartbeatResponse:
    caller = request_context.caller
    names = request.subscribed_topic_names
    heartbeat = ConsumerHeartbeatRequest(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        None if names is None else tuple(names),
        request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=None if request.topic_partitions is None else _owned(request.topic_partitions),
        client_id=caller.client_id or "",
        client_host=f"/{caller.address}",  # as Java writes an address without a name
        makes_member_id=request_context.version >= _OWN_MEMBER_ID_FROM,
    )
    try:
        answer = await groups.consumer_heartbeat(context, caller, heartbeat)
    except ApiError as error:
        answer = ConsumerHeartbeatAnswer(error.code, error.message or None)
    return _response(answer)


def _owned(told: Iterable[TopicPartitions]) -> dict[bytes, frozenset[int]]:
    owned: dict[bytes, frozenset[int]] = {}
    for each in told:
        if each.partitions:
            before = owned.get(each.topic_id, frozenset())
            owned[each.topic_id] = before.union(each.partitions)
    return owned


def _response(answer: ConsumerHeartbeatAnswer) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if answer.assigned is not None:
        assignment = Assignment(
            [
                TopicPartitions(topic_id, sorted(numbers))
                for topic_id, numbers in sorted(answer.assigned.items())
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=answer.error,
        error_message=answer.message,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
    )


def refuse(
    request_context: RequestContext, request: Request, error: ErrorCode
) -> ConsumerGroupHeartbeatResponse:
    return _response(ConsumerHeartbeatAnswer(error))


SERVED = Served(messages.API, refuse, handle_async=handle)
