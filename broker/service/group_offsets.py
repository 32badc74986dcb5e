"""The offsets that groups have committed: how far they have read partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from broker.coordinator.group.types import (
    FetchedOffset,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetToCommit,
    OffsetToDelete,
    TopicToFetch,
)
from broker.coordinator.layout import utf16_units
from broker.coordinator.step import STEP_BYTES, Transaction
from broker.service.context import BrokerContext
from broker.service.groups import ask, ask_unchecked
from broker.service.topics import NO_TOPIC_ID, Topics
from metadata.topics import Topic
from runtime.authorization.authorizer import (
    Operation,
    group_resource,
    refusal,
    transactional_id_resource,
)
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode
from storage.turns import in_slices

_KEY_BYTES: Final = 10
"""What the key of an offset's record has besides the names of group and topic."""

_VALUE_BYTES: Final = 42
"""What the value of an offset's record has besides the metadata."""

T = TypeVar("T")


class AskedTopic(NamedTuple):
    """A topic by its id, or by its name where the id is zeros."""

    name: str
    topic_id: bytes
    partitions: Sequence[int]


class ToldTopic(NamedTuple):
    """A topic and, for each partition, the committed offset or the error."""

    name: str
    topic_id: bytes
    partitions: list[tuple[FetchedOffset, ErrorCode]]


# ------------------------------------------------------------------------------- commit


async def commit(
    context: BrokerContext,
    caller: Caller,
    request: OffsetCommitRequest,
    offsets: Iterable[OffsetToCommit],
    transaction: Transaction | None = None,
) -> list[ErrorCode]:
    """What became of each of ``offsets``, in their order. ``request`` says who commits; its own
    offsets are not looked at. An offset names its topic by id, or by name where the id is zeros.
    With a transaction, the offsets count when it is committed.

    Raises ApiError as ``ask`` does, and TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """
    if transaction is not None:
        resource = transactional_id_resource(transaction.transactional_id)
        why = refusal(context.authorizer, caller, Operation.WRITE, resource)
        if why is not None:
            raise why
        request = replace(request, producer=transaction.producer)
    group = group_resource(request.group_id)
    why = refusal(context.authorizer, caller, Operation.READ, group)
    if why is not None:
        raise why
    topics = Topics(context, caller, Operation.READ)
    items = await in_slices(lambda each: _committable(topics, each), offsets)
    allowed = [each for each in items if isinstance(each, OffsetToCommit)]
    if transaction is not None and not allowed:
        return [each for each in items if isinstance(each, ErrorCode)]  # it gets no partition
    decided = iter(await _commit(context, request, allowed, transaction))
    return [next(decided) if isinstance(each, OffsetToCommit) else each for each in items]


async def _commit(
    context: BrokerContext,
    request: OffsetCommitRequest,
    offsets: Sequence[OffsetToCommit],
    transaction: Transaction | None,
) -> list[ErrorCode]:
    """Many offsets are committed in parts, so that no turn of the loop is long. Each part is
    committed as a whole or not at all. The caller was checked for the whole request."""

    async def one(part: tuple[OffsetToCommit, ...]) -> Sequence[ErrorCode] | ApiError:
        commits = replace(request, offsets=part)
        try:
            answer = await ask_unchecked(context, commits, transaction)
        except ApiError as refused:
            return refused
        return answer.errors

    parts = list(_in_parts(offsets, lambda each: _size_bound(request.group_id, each)))
    if len(parts) == 1:  # needs no task of its own
        commits = replace(request, offsets=parts[0])
        return [*(await ask_unchecked(context, commits, transaction)).errors]
    # The first part of a transaction makes the partition part of it, and the others need not ask.
    first = 0 if transaction is None else 1
    answers = [await one(each) for each in parts[:first]]
    answers += await asyncio.gather(*map(one, parts[first:]))
    refusals = [each for each in answers if isinstance(each, ApiError)]
    if len(refusals) == len(parts):
        raise refusals[0]
    return [
        answer.code if isinstance(answer, ApiError) else answer[number]
        for part, answer in zip(parts, answers, strict=True)
        for number in range(len(part))
    ]


def _committable(topics: Topics, offset: OffsetToCommit) -> OffsetToCommit | ErrorCode:
    """The offset with name and id of its topic, or the error to answer."""
    topic = topics.either(offset.topic, offset.topic_id)
    if not isinstance(topic, Topic):
        return topic
    if not 0 <= offset.partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return offset._replace(topic=topic.name, topic_id=topic.topic_id)


def why_refused(context: BrokerContext, metadata: str, error: ErrorCode) -> str | None:
    """More than the error of a commit says of an offset with this metadata, if there is more."""
    if error is not ErrorCode.OFFSET_METADATA_TOO_LARGE:
        return None
    units, limit = utf16_units(metadata), context.config.offset_metadata_max_bytes
    return f"the metadata has {units} UTF-16 units, and offset.metadata.max.bytes is {limit}"


# -------------------------------------------------------------------------------- fetch


async def fetch(
    context: BrokerContext,
    caller: Caller,
    group_id: str,
    asked: Sequence[AskedTopic] | None,
    *,
    require_stable: bool,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> list[ToldTopic]:
    """A topic for each requested one, in order; all topics of the group for None. The answer
    contains only committed records. A member of the consumer protocol gives its id and epoch.
    Raises ApiError as ``ask`` does, and UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
    topics = Topics(context, caller, Operation.DESCRIBE)
    found = None
    if asked is not None:
        found = await in_slices(lambda each: _fetchable(topics, each), asked)
    request = OffsetFetchRequest(
        group_id,
        None if found is None else tuple(each for each in found if isinstance(each, TopicToFetch)),
        require_stable,
        member_id,
        member_epoch,
    )
    answer = await ask(context, caller, Operation.DESCRIBE, request)
    if answer.error is not ErrorCode.NONE:
        raise ApiError(answer.error)
    if asked is None or found is None:
        return _by_topic(topics, answer.offsets)
    offsets = iter(answer.offsets)

    def tell(asked: tuple[AskedTopic, TopicToFetch | ErrorCode]) -> ToldTopic:
        topic, what = asked
        partitions = [
            _told(next(offsets))
            if isinstance(what, TopicToFetch)
            else (FetchedOffset(topic.name, number), what)
            for number in topic.partitions
        ]
        return ToldTopic(topic.name, topic.topic_id, partitions)

    return await in_slices(tell, zip(asked, found, strict=True))


def _fetchable(topics: Topics, asked: AskedTopic) -> TopicToFetch | ErrorCode:
    partitions = tuple(asked.partitions)
    if asked.topic_id != NO_TOPIC_ID or not asked.name:
        topic = topics.identified(asked.topic_id)
        if isinstance(topic, Topic):
            return TopicToFetch(topic.name, partitions, topic.topic_id)
        return topic
    topic = topics.named(asked.name)  # offsets of a deleted topic may be left
    if topic is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return topic
    return TopicToFetch(
        asked.name, partitions, topic.topic_id if isinstance(topic, Topic) else NO_TOPIC_ID
    )


def _told(fetched: FetchedOffset) -> tuple[FetchedOffset, ErrorCode]:
    return fetched, fetched.error


def _by_topic(topics: Topics, offsets: Iterable[FetchedOffset]) -> list[ToldTopic]:
    found: dict[str, ToldTopic] = {}
    for each in offsets:
        if topics.may(each.topic):
            told = found.setdefault(each.topic, ToldTopic(each.topic, each.topic_id, []))
            told.partitions.append(_told(each))
    return list(found.values())


# ------------------------------------------------------------------------------- delete


async def delete(
    context: BrokerContext, caller: Caller, group_id: str, offsets: Sequence[OffsetToDelete]
) -> list[ErrorCode]:
    """What became of each offset, in their order. Many are deleted in parts. If the group gets
    members meanwhile, the offsets that are left get its error. Raises ApiError as ``ask`` does, and
    the error of the whole group, if nothing was deleted."""
    why = refusal(context.authorizer, caller, Operation.DELETE, group_resource(group_id))
    if why is not None:
        raise why
    topics = Topics(context, caller, Operation.READ)
    found = await in_slices(lambda each: topics.named(each.topic), offsets)
    if offsets and not any(isinstance(each, Topic) for each in found):
        return [each for each in found if isinstance(each, ErrorCode)]
    known = [each for each, what in zip(offsets, found, strict=True) if isinstance(what, Topic)]
    errors: list[ErrorCode] = []
    for some in _in_parts(known, lambda each: _size_bound(group_id, each)):
        try:
            errors += await _delete(context, caller, OffsetDeleteRequest(group_id, some))
        except ApiError as refused:
            if not errors:
                raise
            errors += [refused.code] * (len(known) - len(errors))
            break
    decided = iter(errors)
    return [next(decided) if isinstance(each, Topic) else each for each in found]


async def _delete(
    context: BrokerContext, caller: Caller, request: OffsetDeleteRequest
) -> tuple[ErrorCode, ...]:
    answer = await ask(context, caller, Operation.DELETE, request)
    if answer.error is not ErrorCode.NONE:
        raise ApiError(answer.error)
    return answer.errors


def _in_parts(items: Sequence[T], size_of: Callable[[T], int]) -> Iterator[tuple[T, ...]]:
    """The items in parts whose records fit into one step; one part if there are none."""
    some: list[T] = []
    size = 0
    for each in items:
        some.append(each)
        size += size_of(each)
        if size >= STEP_BYTES:
            yield tuple(some)
            some, size = [], 0
    if some or not items:
        yield tuple(some)


def _size_bound(group_id: str, offset: OffsetToCommit | OffsetToDelete) -> int:
    """About the bytes of an offset's record."""
    size = len(group_id) + len(offset.topic) + _KEY_BYTES
    if isinstance(offset, OffsetToCommit):
        size += len(offset.metadata) + _VALUE_BYTES
    return size
