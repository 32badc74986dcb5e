"""OffsetFetch (9), versions 1-10: how far groups have read partitions.

What is told is committed. Deviations: none known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from broker.api.handler import RequestContext, Served
from broker.coordinator.group import types
from broker.coordinator.group.types import FetchedOffset, OffsetFetchAnswer, TopicToFetch
from broker.service import groups
from broker.service.context import BrokerContext
from broker.service.topics import NO_TOPIC_ID, Topics
from metadata.topics import Topic
from runtime.authorization.authorizer import Operation
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import offset_fetch as messages
from stele.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_GROUP_ERROR_FROM = 2
_SEVERAL_FROM = 8
_TOPIC_IDS_FROM = 10


class _Asked(NamedTuple):
    """One topic of a request, by name or by id."""

    name: str
    topic_id: bytes
    partitions: Sequence[int]


class _Told(NamedTuple):
    """One topic of an answer."""

    name: str
    topic_id: bytes
    partitions: list[tuple[FetchedOffset, ErrorCode]]


async def handle(
    context: BrokerContext, request_context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    stable = request.require_stable
    if request_context.version < _SEVERAL_FROM:
        asked = None
        if request.topics is not None:
            asked = [_Asked(t.name, NO_TOPIC_ID, t.partition_indexes) for t in request.topics]
        told = await _told(context, request_context, request.group_id, asked, stable)
        return _single(told)
    answered = []
    for group in request.groups:
        asked = None
        if group.topics is not None:
            asked = [_Asked(t.name, t.topic_id, t.partition_indexes) for t in group.topics]
        try:
            told = await _told(context, request_context, group.group_id, asked, stable)
        except ApiError as error:
            answered.append(OffsetFetchResponseGroup(group.group_id, error_code=error.code))
        else:
            answered.append(OffsetFetchResponseGroup(group.group_id, _topics(told)))
    return OffsetFetchResponse(groups=answered)


async def _told(
    context: BrokerContext,
    request_context: RequestContext,
    group_id: str,
    asked: Sequence[_Asked] | None,
    require_stable: bool,
) -> list[_Told]:
    """A topic for each that was asked for, in order; all topics of the group for None."""
    topics = groups.topics(context, request_context.caller, Operation.DESCRIBE)
    by_id = request_context.version >= _TOPIC_IDS_FROM
    found = None if asked is None else [_found(topics, each, by_id=by_id) for each in asked]
    fetch = types.OffsetFetchRequest(
        group_id,
        None if found is None else tuple(each for each in found if isinstance(each, TopicToFetch)),
        require_stable,
    )
    answer: OffsetFetchAnswer = await groups.ask(
        context,
        request_context.caller,
        Operation.DESCRIBE,
        group_id,
        lambda machine, waiter, now: machine.fetch_offsets(fetch, waiter, now),
    )
    if asked is None or found is None:
        return _by_topic(topics, answer.offsets)
    offsets = iter(answer.offsets)
    return [
        _Told(
            each.name,
            each.topic_id,
            [
                (next(offsets), ErrorCode.NONE)
                if isinstance(what, TopicToFetch)
                else (FetchedOffset(each.name, number), what)
                for number in each.partitions
            ],
        )
        for each, what in zip(asked, found, strict=True)
    ]


def _found(topics: Topics, asked: _Asked, *, by_id: bool) -> TopicToFetch | ErrorCode:
    partitions = tuple(asked.partitions)
    if by_id:
        topic = topics.identified(asked.topic_id)
        if isinstance(topic, Topic):
            return TopicToFetch(topic.name, partitions, topic.topic_id)
        return topic
    if not topics.may(asked.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = topics.named(asked.name)  # of a topic that is no more, offsets may be left
    return TopicToFetch(
        asked.name, partitions, topic.topic_id if isinstance(topic, Topic) else NO_TOPIC_ID
    )


def _by_topic(topics: Topics, offsets: Iterable[FetchedOffset]) -> list[_Told]:
    found: dict[str, _Told] = {}
    for each in offsets:
        if topics.may(each.topic):
            told = found.setdefault(each.topic, _Told(each.topic, each.topic_id, []))
            told.partitions.append((each, ErrorCode.NONE))
    return list(found.values())


def _topics(told: list[_Told]) -> list[OffsetFetchResponseTopics]:
    return [
        OffsetFetchResponseTopics(
            topic.name,
            topic.topic_id,
            [
                OffsetFetchResponsePartitions(
                    each.partition, each.offset, each.leader_epoch, each.metadata, error
                )
                for each, error in topic.partitions
            ],
        )
        for topic in told
    ]


def _single(told: list[_Told]) -> OffsetFetchResponse:
    """Up to version 7 the answer is about one group."""
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                topic.name,
                [
                    OffsetFetchResponsePartition(
                        each.partition, each.offset, each.leader_epoch, each.metadata, error
                    )
                    for each, error in topic.partitions
                ],
            )
            for topic in told
        ]
    )


def refuse(
    request_context: RequestContext, request: OffsetFetchRequest, error: ErrorCode
) -> OffsetFetchResponse:
    if request_context.version >= _SEVERAL_FROM:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(each.group_id, error_code=error) for each in request.groups
            ]
        )
    if request_context.version >= _GROUP_ERROR_FROM:
        return OffsetFetchResponse(error_code=error)
    return _single(list(_refused(request, error)))


def _refused(request: OffsetFetchRequest, error: ErrorCode) -> Iterator[_Told]:
    for topic in request.topics or ():
        parts = [(FetchedOffset(topic.name, each), error) for each in topic.partition_indexes]
        yield _Told(topic.name, NO_TOPIC_ID, parts)


SERVED = Served(messages.API, refuse, handle_async=handle)
