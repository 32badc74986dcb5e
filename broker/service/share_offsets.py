"""The offsets at which share groups begin (KIP-932): described, set anew and deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from broker.coordinator.assignors.spec import NO_PARTITIONS, Partitions
from broker.coordinator.group.share.types import (
    InitializedRequest,
    NewStatesRequest,
    SharePartitionsRequest,
    StatesDeletedRequest,
    StatesDeletionRequest,
)
from broker.coordinator.share.types import (
    NO_COUNT,
    NO_EPOCH,
    NO_START,
    ForgetRequest,
    InitializeRequest,
    ShareState,
    StateAnswer,
    StateKey,
    SummaryRequest,
)
from broker.service.context import BrokerContext
from broker.service.groups import ask_unchecked, existing_partitions
from broker.service.internal_topics import made, share_topic
from broker.service.share_groups import ask_states, check_version, state_keys
from broker.service.topics import NO_TOPIC_ID, Topics
from metadata.internal_topics import SHARE_TOPIC
from metadata.topics import Topic
from runtime.authorization.authorizer import Operation, group_resource, refusal
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from storage.turns import SLICE_STEPS, Slices, gather_in_slices, in_slices

NO_LAG: Final = -1
"""The lag is not known."""

_GROUPS_AT_ONCE: Final = 32


class PartitionOffset(NamedTuple):
    """Where a share group begins in a partition."""

    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    start_offset: int = NO_START
    leader_epoch: int = NO_EPOCH
    lag: int = NO_LAG


class TopicOffsets(NamedTuple):
    name: str
    topic_id: bytes
    partitions: list[PartitionOffset]


class Outcome(NamedTuple):
    """What became of one partition or topic."""

    topic_id: bytes = NO_TOPIC_ID
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


AskedTopics = Sequence[tuple[str, Sequence[int]]]
"""Names of topics, and numbers of their partitions."""


# ------------------------------------------------------------------------------- describe


async def describe(
    context: BrokerContext,
    caller: Caller,
    groups: Sequence[tuple[str, AskedTopics | None]],
    *,
    with_lags: bool,
) -> list[list[TopicOffsets] | ApiError]:
    """The offsets of each group, or why they are not described. None as topics: all that the group
    has read and the caller may see."""

    async def one(group: tuple[str, AskedTopics | None]) -> list[TopicOffsets] | ApiError:
        try:
            return await _describe(context, caller, *group, with_lags=with_lags)
        except ApiError as refused:
            return refused

    return await gather_in_slices(one, groups, _GROUPS_AT_ONCE)


async def _describe(
    context: BrokerContext,
    caller: Caller,
    group_id: str,
    asked: AskedTopics | None,
    *,
    with_lags: bool,
) -> list[TopicOffsets]:
    check_version(context)
    _check_group(context, caller, Operation.DESCRIBE, group_id)
    topics = Topics(context, caller, Operation.DESCRIBE)
    partitions: Partitions = NO_PARTITIONS
    named = await in_slices(lambda each: topics.named(each[0]), asked or ())
    if not _are_denied(named):
        answer = await ask_unchecked(context, SharePartitionsRequest(group_id))
        if answer.partitions is None:
            raise _no_group(group_id)
        partitions = answer.partitions
    if asked is None:
        existing = existing_partitions(topics.image, partitions)
        asked = [(each.name, numbers) for each, numbers in existing if topics.may(each.name)]
        named = await in_slices(lambda each: topics.named(each[0]), asked)
    found = {name: topic for (name, _), topic in zip(asked, named, strict=True)}
    known: dict[bytes, frozenset[int]] = {}
    slices = Slices(SLICE_STEPS)
    for name, numbers in asked:
        topic_id = _id_of(found[name])
        more = partitions.get(topic_id, frozenset()).intersection(numbers)
        known[topic_id] = known.get(topic_id, frozenset()) | more
        await slices.step()
    keys = state_keys(group_id, known)
    states = dict(
        zip(keys, await ask_states(context, [SummaryRequest(each) for each in keys]), strict=True)
    )
    lags = await _lags(context, states) if with_lags else {}

    def told(topic: Topic | ErrorCode, number: int) -> PartitionOffset:
        if not isinstance(topic, Topic):
            return PartitionOffset(number, topic)
        if not 0 <= number < len(topic.partitions):
            return PartitionOffset(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        key = StateKey(group_id, topic.topic_id, number)
        return _offset(number, states.get(key), lags.get(key, NO_LAG))

    pairs = [(name, number) for name, numbers in asked for number in numbers]
    offsets = iter(await in_slices(lambda pair: told(found[pair[0]], pair[1]), pairs))
    return await slices.map(
        lambda each: TopicOffsets(
            each[0], _id_of(found[each[0]]), list(islice(offsets, len(each[1])))
        ),
        asked,
    )


def _are_denied(topics: Sequence[Topic | ErrorCode]) -> bool:
    """Whether topics are named, and the caller may do nothing with any of them. Then the group is
    not asked, as in Kafka."""
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return bool(topics) and all(each is denied for each in topics)


def _id_of(topic: Topic | ErrorCode) -> bytes:
    return topic.topic_id if isinstance(topic, Topic) else NO_TOPIC_ID


def _offset(number: int, answer: StateAnswer | None, lag: int) -> PartitionOffset:
    if answer is None:
        return PartitionOffset(number)  # no leader has decided where the group begins
    if answer.state is None:
        return PartitionOffset(number, answer.error, answer.message)
    state = answer.state
    return PartitionOffset(
        number, start_offset=state.start_offset, leader_epoch=state.leader_epoch, lag=lag
    )


async def _lags(
    context: BrokerContext, answers: dict[StateKey, StateAnswer]
) -> dict[StateKey, int]:
    """The records of each share partition whose delivery is not complete (KIP-1226), where both the
    state and the end of the partition are known."""
    states = {key: answer.state for key, answer in answers.items() if answer.state is not None}
    known = [key for key, state in states.items() if _has_position(state)]
    ends = await context.sharing.end_offsets.of(
        [PartitionId(each.topic_id, each.partition) for each in known]
    )
    found = {}
    for key, end in zip(known, ends, strict=True):
        if end is not None:
            state = states[key]
            found[key] = max(0, end - state.start_offset - state.complete_count)
    return found


def _has_position(state: ShareState) -> bool:
    return state.start_offset != NO_START and state.complete_count != NO_COUNT


# ------------------------------------------------------------------------------- alter


async def alter(
    context: BrokerContext,
    caller: Caller,
    group_id: str,
    offsets: Sequence[tuple[str, int, int]],
) -> list[Outcome]:
    """Let a group without members begin at these offsets (topic, partition, offset): what became of
    each. What its former members acknowledged above counts no more.

    Raises ApiError UNSUPPORTED_VERSION, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, and as ``groups.ask``.
    """
    check_version(context)
    _check_group(context, caller, Operation.READ, group_id)
    topics = Topics(context, caller, Operation.READ)
    named = Counter([each[:2] for each in offsets])

    def check(asked: tuple[str, int, int]) -> Outcome:
        if named[asked[:2]] > 1:
            return Outcome(error=ErrorCode.INVALID_REQUEST, message="it is named twice")
        return _alterable(topics, *asked)

    checked = await in_slices(check, offsets)
    if _are_denied([each.error for each in checked]):
        return checked
    starts = {}
    slices = Slices(SLICE_STEPS)
    for each, (_, number, start) in zip(checked, offsets, strict=True):
        if each.error is ErrorCode.NONE:
            starts[PartitionId(each.topic_id, number)] = start
        await slices.step()
    partitions = _partitions(starts)
    answer = await ask_unchecked(context, NewStatesRequest(group_id, partitions))
    _raise(answer.error, group_id)
    await made(context, share_topic(context.config, context.image()))
    keys = state_keys(group_id, partitions)
    answers = await ask_states(
        context,
        [InitializeRequest(key, answer.state_epoch, starts[PartitionId(*key[1:])]) for key in keys],
    )
    told = {PartitionId(*key[1:]): each for key, each in zip(keys, answers, strict=True)}
    done = [each for each, state in told.items() if state.error is ErrorCode.NONE]
    if done:
        # The group assigns a partition only after that, if the group did not have it before.
        await ask_unchecked(context, InitializedRequest(group_id, _partitions(done)))

    def outcome(item: tuple[Outcome, tuple[str, int, int]]) -> Outcome:
        before, (_, number, _) = item
        if before.error is not ErrorCode.NONE:
            return before
        state = told[PartitionId(before.topic_id, number)]
        return before._replace(error=state.error, message=state.message)

    return await in_slices(outcome, zip(checked, offsets, strict=True))


def _alterable(topics: Topics, name: str, number: int, start: int) -> Outcome:
    topic = topics.named(name)
    if not isinstance(topic, Topic):
        return Outcome(error=topic)
    if not 0 <= number < len(topic.partitions):
        why = f"topic {name} has no partition {number}"
        return Outcome(topic.topic_id, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
    if start < 0:
        return Outcome(topic.topic_id, ErrorCode.INVALID_REQUEST, f"{start} is no offset")
    return Outcome(topic.topic_id)


def _partitions(each_of: Sequence[PartitionId] | dict[PartitionId, int]) -> Partitions:
    found: dict[bytes, set[int]] = {}
    for topic_id, number in each_of:
        found.setdefault(topic_id, set()).add(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}


# ------------------------------------------------------------------------------- delete


async def delete(
    context: BrokerContext, caller: Caller, group_id: str, names: Sequence[str]
) -> list[Outcome]:
    """Let a group without members forget topics: what became of each. If members subscribe to them
    again, the group begins anew. A topic that it never read is forgotten already.

    Raises ApiError as ``alter``.
    """
    check_version(context)
    _check_group(context, caller, Operation.DELETE, group_id)
    topics = Topics(context, caller, Operation.READ)
    found = await in_slices(topics.named, names)
    if _are_denied(found):
        return [Outcome(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED) for _ in found]
    ids = frozenset(each.topic_id for each in found if isinstance(each, Topic))
    answer = await ask_unchecked(context, StatesDeletionRequest(group_id, ids))
    _raise(answer.error, group_id)
    keys = state_keys(group_id, answer.states or {})
    # Without the topic of the states, none was ever made.
    is_stored = context.image().topic(SHARE_TOPIC) is not None
    forgotten = [ForgetRequest(key) for key in keys]
    told = (
        await ask_states(context, forgotten)
        if is_stored
        else [StateAnswer(ErrorCode.NONE) for _ in keys]
    )
    failed = {
        key.topic_id: each.message
        for key, each in zip(keys, told, strict=True)
        if each.error is not ErrorCode.NONE
    }
    deleted = frozenset(key.topic_id for key in keys) - failed.keys()
    if keys:
        over = None if failed else answer.number
        await ask_unchecked(context, StatesDeletedRequest(group_id, deleted, over))

    def outcome(topic: Topic | ErrorCode) -> Outcome:
        if not isinstance(topic, Topic):
            return Outcome(error=topic)
        if topic.topic_id in failed:
            error, why = ErrorCode.COORDINATOR_NOT_AVAILABLE, failed[topic.topic_id]
            return Outcome(topic.topic_id, error, why)
        return Outcome(topic.topic_id)

    return await in_slices(outcome, found)


def _check_group(
    context: BrokerContext, caller: Caller, operation: Operation, group_id: str
) -> None:
    """Raises ApiError GROUP_AUTHORIZATION_FAILED."""
    why = refusal(context.authorizer, caller, operation, group_resource(group_id))
    if why is not None:
        raise why


def _raise(error: ErrorCode, group_id: str) -> None:
    """Raise the group coordinator's refusal, if it is one."""
    if error is ErrorCode.GROUP_ID_NOT_FOUND:
        raise _no_group(group_id)
    if error is ErrorCode.NON_EMPTY_GROUP:
        raise ApiError(error, f"share group {group_id} has members: stop them first")
    if error is not ErrorCode.NONE:
        raise ApiError(error, f"share group {group_id} is being changed: try again")


def _no_group(group_id: str) -> ApiError:
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no share group {group_id}")
