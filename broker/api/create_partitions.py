"""CreatePartitions (37), versions 0-3, forwarded to the active controller (KIP-195).

Deviations: the answer waits until this broker's own metadata has the decision, a second at most.
"""

from __future__ import annotations

from collections import Counter

from broker.api.handler import RequestContext, Served
from broker.service.changes import (
    accepted_change,
    check_named,
    patience_s,
)
from broker.service.context import BrokerContext
from runtime.administration.parts import error_code
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import create_partitions as messages
from stele.wire.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from stele.wire.v1 import admin_pb2 as pb
from storage.turns import in_slices

_STRICT_FROM = 3
"""As in CreateTopics."""


async def handle(
    context: BrokerContext, request_context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    check_named(len(request.topics), "topics")
    check_named(sum(len(topic.assignments or ()) for topic in request.topics), "partitions")
    timeout_s = patience_s(request.timeout_ms)
    # A topic that is named twice is refused, and answered once.
    named = Counter(topic.name for topic in request.topics)
    twice = [(name, times) for name, times in named.items() if times > 1]
    results = {each.name: each for each in await in_slices(_named_twice, twice)}
    wanted = [topic for topic in request.topics if named[topic.name] == 1]
    wishes = pb.CreatePartitionsRequest(
        topics=await in_slices(_wish, wanted), validate_only=request.validate_only
    )
    wishes.on_behalf_of.may_exceed_quota = request_context.version < _STRICT_FROM
    throttle_time_ms = 0
    if wanted:
        try:
            answer = await accepted_change(
                context,
                request_context.caller,
                wishes,
                timeout_s=timeout_s,
            )
        except ApiError as error:
            why = error.code, error.message
            told = await in_slices(lambda topic: _result(topic.name, *why), wanted)
        else:
            throttle_time_ms = answer.throttle_time_ms
            told = await in_slices(_told, answer.topics)
        results |= {each.name: each for each in told}
    return CreatePartitionsResponse(throttle_time_ms, [results[name] for name in named])


def _wish(topic: CreatePartitionsTopic) -> pb.CreatePartitionsRequest.Topic:
    wish = pb.CreatePartitionsRequest.Topic(name=topic.name, count=topic.count)
    if topic.assignments is not None:
        wish.assignments.SetInParent()  # also empty ones: only null leaves it to the controller
        for assignment in topic.assignments:
            wish.assignments.partitions.add(ids=assignment.broker_ids)
    return wish


def _named_twice(named: tuple[str, int]) -> CreatePartitionsTopicResult:
    name, times = named
    message = f"topic {name} is named {times} times"
    return _result(name, ErrorCode.INVALID_REQUEST, message)


def _told(topic: pb.CreatePartitionsResponse.Topic) -> CreatePartitionsTopicResult:
    return _result(topic.name, error_code(topic.error), topic.message)


def _result(name: str, error: ErrorCode, message: str) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name, error, message or None)


async def refuse(
    request_context: RequestContext, request: CreatePartitionsRequest, error: ErrorCode
) -> CreatePartitionsResponse:
    names = dict.fromkeys(topic.name for topic in request.topics)
    refused = await in_slices(lambda name: _result(name, error, ""), names)
    return CreatePartitionsResponse(results=refused)


SERVED = Served(messages.API, refuse, handle_async=handle)
