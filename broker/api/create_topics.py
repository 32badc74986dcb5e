"""CreateTopics (19), versions 2-7, forwarded to the active controller.

Deviations: the answer waits until this broker knows the topic too, a second at most. ``configs``,
which Java's client needs, is never null.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from broker.api.describe_configs import CONFIG_SOURCES
from broker.api.handler import RequestContext, Served
from broker.service import changes
from broker.service.config_view import NewTopicConfigs
from broker.service.context import BrokerContext
from runtime.administration.parts import error_code
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import create_topics as messages
from stele.wire.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from stele.wire.v1 import admin_pb2 as pb
from storage.turns import SLICE_STEPS, Slices, in_slices

_STRICT_FROM = 6
"""From this version on topics above a quota are refused with THROTTLING_QUOTA_EXCEEDED. Clients of
older versions get them, and wait afterwards (KIP-599)."""


async def handle(
    context: BrokerContext, request_context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    changes.check_named(len(request.topics), "topics")
    assigned = sum([len(topic.assignments) for topic in request.topics])
    changes.check_named(assigned, "partitions")
    named = Counter([topic.name for topic in request.topics])
    results: dict[str, CreatableTopicResult] = {}
    wanted = []
    slices = Slices(SLICE_STEPS)
    for topic in request.topics:
        refusal = _refusal(topic, named[topic.name])
        if refusal is None:
            wanted.append(_new_topic(topic))
        else:
            results[topic.name] = _failed(topic.name, *refusal)
        await slices.step(1 + len(topic.assignments) + len(topic.configs))
    throttle_time_ms = 0
    if wanted:
        change = pb.CreateTopicsRequest(topics=wanted, validate_only=request.validate_only)
        change.on_behalf_of.may_exceed_quota = request_context.version < _STRICT_FROM
        try:
            answer = await changes.accepted_change(
                context,
                request_context.caller,
                change,
                timeout_s=changes.patience_s(request.timeout_ms),
            )
            throttle_time_ms = answer.throttle_time_ms
            configs = _Configs(NewTopicConfigs(context, request_context.caller))
            wishes = {topic.name: topic for topic in wanted}
            for made in answer.topics:
                wish = wishes[made.name]
                results[made.name] = _result(made, wish, configs)
                await slices.step(1 + _ENTRIES_COST * len(wish.configs))
        except ApiError as error:
            results |= {t.name: _failed(t.name, error.code, error.message) for t in wanted}
    return CreateTopicsResponse(throttle_time_ms, [results[name] for name in named])


def _refusal(topic: CreatableTopic, times: int) -> tuple[ErrorCode, str] | None:
    """The error of a topic that the controller's form of the request cannot express."""
    if times > 1:
        return ErrorCode.INVALID_REQUEST, f"the topic {topic.name} is named {times} times"
    for config in topic.configs:
        if config.value is None:
            return ErrorCode.INVALID_CONFIG, f"{config.name} has no value"
    return None


def _new_topic(topic: CreatableTopic) -> pb.NewTopic:
    return pb.NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            pb.NewTopic.Assignment(partition=a.partition_index, replicas=a.broker_ids)
            for a in topic.assignments
        ],
        configs={config.name: config.value or "" for config in topic.configs},
    )


_ENTRIES_COST = 8
"""Steps of work for a topic with configurations of its own: the answer tells all its keys."""


class _Configs:
    """The configurations in an answer; topics without any of their own share it."""

    def __init__(self, configs: NewTopicConfigs) -> None:
        self._configs = configs
        self._inherited = self._entries({})

    def may_be_told(self, name: str) -> bool:
        return self._configs.may_be_told(name)

    def of(self, wish: pb.NewTopic) -> list[CreatableTopicConfigs]:
        return self._entries(wish.configs) if wish.configs else self._inherited

    def _entries(self, own: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        return [
            CreatableTopicConfigs(
                name=entry.key.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=CONFIG_SOURCES[entry.source],
            )
            for entry in self._configs.of(own)
        ]


def _result(
    topic: pb.CreateTopicsResponse.Topic, wish: pb.NewTopic, configs: _Configs
) -> CreatableTopicResult:
    error = error_code(topic.error)
    if error is not ErrorCode.NONE:
        return _failed(topic.name, error, topic.message)
    topic_id = topic.topic_id.ljust(16, b"\x00")  # with validate_only there is none
    if not configs.may_be_told(topic.name):
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic_id,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            configs=[],
        )
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=configs.of(wish),
    )


def _failed(name: str, error: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=error, error_message=message or None, configs=[]
    )


async def refuse(
    request_context: RequestContext, request: CreateTopicsRequest, error: ErrorCode
) -> CreateTopicsResponse:
    names = dict.fromkeys([topic.name for topic in request.topics])
    failed = await in_slices(lambda name: _failed(name, error, ""), names)
    return CreateTopicsResponse(topics=failed)


SERVED = Served(messages.API, refuse, handle_async=handle)
