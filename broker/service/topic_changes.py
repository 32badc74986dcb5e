"""Topics made and deleted: many are several decisions of the controller, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from broker.service.changes import NAMED_MAX, accepted_change, check_named, known_here_s
from broker.service.context import BrokerContext
from metadata.image import MetadataImage
from metadata.topics import metric_name
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as pb

AT_ONCE: Final = 64
"""Topics and partitions of one decision: brokers make or delete their logs in one turn of the event
loop. A topic of more partitions is one decision all the same."""


async def create(
    context: BrokerContext,
    caller: Caller,
    topics: Sequence[pb.NewTopic],
    *,
    timeout_s: float,
    validate_only: bool = False,
) -> list[pb.CreateTopicsResponse.Topic]:
    """A result for each topic, by name. Many topics are several decisions, one after the other.

    Raises ApiError when nothing was decided: POLICY_VIOLATION for too many topics, or no
    controller answered in time. What is left when a later decision fails gets its error.
    """
    check_named(len(topics), "topics")
    deadline = context.clock.monotonic() + timeout_s
    if validate_only:  # no decision sees what others would have made, but names may collide
        topics = sorted(topics, key=lambda topic: metric_name(topic.name))
    results: list[pb.CreateTopicsResponse.Topic] = []
    created: list[bytes] = []
    made = 0
    for part in _creations(topics):
        request = pb.CreateTopicsRequest(topics=part, validate_only=validate_only)
        try:
            if results:
                _check_left(made + sum(map(_size_of, part)), deadline - context.clock.monotonic())
            left_s = deadline - context.clock.monotonic()
            answer = await accepted_change(
                context, caller, request, pb.CreateTopicsResponse, timeout_s=left_s
            )
        except ApiError as error:
            if not results:
                raise
            left = topics[len(results) :]
            results += [_not_created(topic, error) for topic in left]
            break
        results += answer.topics
        created = [t.topic_id for t in answer.topics if t.error == ErrorCode.NONE] or created
        made += sum(topic.partitions for topic in answer.topics)
    if created and not validate_only:
        # A client's next request often comes to this broker: it should know the topics by then.
        await context.wait_until(
            lambda image: all(topic_id in image.topics for topic_id in created),
            known_here_s(context, deadline),
        )
    return results


def _size_of(topic: pb.NewTopic) -> int:
    return max(1, topic.partitions, len(topic.assignments))


def _check_left(partitions: int, left_s: float) -> None:
    if partitions > NAMED_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"the topics before it have made of {NAMED_MAX} partitions for one request too many",
        )
    if left_s <= 0:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the time of the request was over before it")


def _not_created(topic: pb.NewTopic, error: ApiError) -> pb.CreateTopicsResponse.Topic:
    return pb.CreateTopicsResponse.Topic(name=topic.name, error=error.code, message=error.message)


def _creations(topics: Sequence[pb.NewTopic]) -> Iterator[list[pb.NewTopic]]:
    part: list[pb.NewTopic] = []
    size = 0
    for topic in topics:
        more = _size_of(topic)
        # Neighbours that collide stay together.
        if size + more > AT_ONCE and part and metric_name(part[-1].name) != metric_name(topic.name):
            yield part
            part, size = [], 0
        part.append(topic)
        size += more
    if part:
        yield part


async def delete(
    context: BrokerContext,
    caller: Caller,
    names: Sequence[str],
    topic_ids: Sequence[bytes],
    *,
    timeout_s: float,
) -> list[pb.DeleteTopicsResponse.Topic]:
    """Results for names and ids, those for names first. As ``create``, many are several decisions.

    Raises ApiError when nothing was decided.
    """
    check_named(len(names) + len(topic_ids), "topics")
    deadline = context.clock.monotonic() + timeout_s
    results: list[pb.DeleteTopicsResponse.Topic] = []
    deleted: list[bytes] = []
    for request in _deletions(context.image(), names, topic_ids):
        try:
            if results:
                _check_left(0, deadline - context.clock.monotonic())
            left_s = deadline - context.clock.monotonic()
            answer = await accepted_change(
                context, caller, request, pb.DeleteTopicsResponse, timeout_s=left_s
            )
        except ApiError as error:
            if not results:
                raise
            results += _not_deleted(names, topic_ids, len(results), error)
            break
        results += answer.topics
        deleted = [t.topic_id for t in answer.topics if t.error == ErrorCode.NONE] or deleted
    if deleted:
        await context.wait_until(
            lambda image: not any(topic_id in image.topics for topic_id in deleted),
            known_here_s(context, deadline),
        )
    return results


def _not_deleted(
    names: Sequence[str], topic_ids: Sequence[bytes], done: int, error: ApiError
) -> Iterator[pb.DeleteTopicsResponse.Topic]:
    for name in names[done:]:
        yield pb.DeleteTopicsResponse.Topic(name=name, error=error.code, message=error.message)
    for topic_id in topic_ids[max(0, done - len(names)) :]:
        yield pb.DeleteTopicsResponse.Topic(
            topic_id=topic_id, error=error.code, message=error.message
        )


def _deletions(
    image: MetadataImage, names: Sequence[str], topic_ids: Sequence[bytes]
) -> Iterator[pb.DeleteTopicsRequest]:
    request, size = pb.DeleteTopicsRequest(), 0
    asked: list[str | bytes] = [*names, *topic_ids]
    for each in asked:
        topic = image.topic(each) if isinstance(each, str) else image.topic_by_id(each)
        more = 1 if topic is None else len(topic.partitions)
        if size and size + more > AT_ONCE:
            yield request
            request, size = pb.DeleteTopicsRequest(), 0
        if isinstance(each, str):
            request.names.append(each)
        else:
            request.topic_ids.append(each)
        size += more
    yield request
