"""What members of share groups ask of the leaders of partitions: to get records, and to take their
decisions about them (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.service.context import BrokerContext
from broker.service.share_groups import check_member, check_version
from broker.service.topics import Topics
from broker.share.values import AcknowledgementBatch, AcknowledgeType
from broker.sharing.fetching import Delivery, ShareFetch, Wanted
from broker.sharing.sessions import ENDS, OPENS, SessionKey, ShareSession
from metadata.topics import Topic
from runtime.authorization.authorizer import Operation
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from storage.turns import SLICE_STEPS, Slices

_MEMBER_ID_MAX: Final = 36
_NONE_WANTED: Final = Wanted(0, 0, 0, is_strict=False)


class Acknowledged(NamedTuple):
    """A range of records, with one number of an acknowledge type, or one for each of them."""

    first: int
    last: int
    types: Sequence[int]


@dataclass(slots=True)
class ShareRequest:
    """A request of a member in its share session."""

    key: SessionKey
    epoch: int
    owner: object
    """The connection, to which the session belongs."""
    acknowledged: dict[PartitionId, Sequence[Acknowledged]]
    renews: bool = False
    """Whether acknowledgements may renew locks. A fetch with them gets no records (KIP-1222)."""


@dataclass(slots=True)
class ShareFetchRequest(ShareRequest):
    wanted: Wanted = _NONE_WANTED
    added: list[PartitionId] = field(default_factory=list)
    forgotten: list[PartitionId] = field(default_factory=list)


@dataclass(slots=True)
class PartitionAnswer:
    """The answer about one partition."""

    acknowledged: ApiError | None = None
    """Why the acknowledgements do not count."""
    delivery: Delivery = field(default_factory=Delivery)


Answers = dict[PartitionId, PartitionAnswer]


async def fetch(context: BrokerContext, caller: Caller, request: ShareFetchRequest) -> Answers:
    """Take acknowledgements, and give records. Raises ApiError UNSUPPORTED_VERSION,
    GROUP_AUTHORIZATION_FAILED, INVALID_REQUEST, SHARE_SESSION_NOT_FOUND,
    INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED: then nothing has changed."""
    _check(context, caller, request)
    if request.renews and (request.wanted != _NONE_WANTED or request.added):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "a fetch that renews locks asks for records: bytes, records and wait must be 0",
        )
    topics = Topics(context, caller, Operation.READ)
    sessions = context.sharing.sessions
    if request.epoch == OPENS:
        if request.acknowledged:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "the first fetch of a share session acknowledges records",
            )
        session = sessions.open(request.key, request.owner)
    else:
        session = sessions.next(request.key, request.epoch, request.owner)
    session.change([*request.added, *request.acknowledged], request.forgotten)
    # Acknowledgements are about earlier deliveries. If a lock has ended, the same records may be in
    # this delivery, and the acknowledgements must not be taken for decisions about it.
    taken = await _take_all(context, topics, request)
    deliveries: dict[PartitionId, Delivery] = {}
    if request.epoch != ENDS and not request.renews:
        deliveries = await _deliver(context, topics, session, request.wanted)
    answers = await _outcomes(taken)
    if request.epoch == ENDS:
        sessions.end(session)
    slices = Slices(SLICE_STEPS)
    for partition, delivery in deliveries.items():
        await slices.step()
        answers.setdefault(partition, PartitionAnswer()).delivery = delivery
    return answers


async def acknowledge(context: BrokerContext, caller: Caller, request: ShareRequest) -> Answers:
    """Take acknowledgements. Raises ApiError as ``fetch``."""
    _check(context, caller, request)
    if request.epoch == OPENS:
        raise ApiError(
            ErrorCode.INVALID_SHARE_SESSION_EPOCH,
            "acknowledgements belong to a share session, which a fetch opens",
        )
    session = context.sharing.sessions.next(request.key, request.epoch, request.owner)
    topics = Topics(context, caller, Operation.READ)
    answers = await _outcomes(await _take_all(context, topics, request))
    if request.epoch == ENDS:
        context.sharing.sessions.end(session)
    return answers


def _check(context: BrokerContext, caller: Caller, request: ShareRequest) -> None:
    check_version(context)
    group_id, member_id = request.key
    check_member(context, caller, group_id)
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    if not 0 < len(member_id) <= _MEMBER_ID_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"a member id has 1 to {_MEMBER_ID_MAX} characters, and this one {len(member_id)}",
        )


# ------------------------------------------------------------------------------- partitions


def _check_partition(topics: Topics, partition: PartitionId) -> None:
    """Raises ApiError UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED."""
    topic = topics.identified(partition.topic_id)
    if not isinstance(topic, Topic):
        raise ApiError(topic)
    if not 0 <= partition.partition < len(topic.partitions):
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic.name} has no partition {partition.partition}",
        )


async def _deliver(
    context: BrokerContext, topics: Topics, session: ShareSession, wanted: Wanted
) -> dict[PartitionId, Delivery]:
    group_id = session.key.group_id
    refused: dict[PartitionId, Delivery] = {}
    partitions = []
    slices = Slices(SLICE_STEPS)
    for each in session.in_turn():
        await slices.step()
        try:
            _check_partition(topics, each)
            partitions.append(context.sharing.partitions.take(group_id, each))
        except ApiError as error:
            refused[each] = Delivery(error)
    if wanted.max_records <= 0:
        return refused
    if refused or not partitions:
        wanted = wanted._replace(max_wait_ms=0)
    share_fetch = ShareFetch(
        session, partitions, wanted, context.clock, context.sharing.answer_share
    )
    return refused | await share_fetch.run()


_Taken = dict[PartitionId, "asyncio.Future[None] | ApiError"]
"""By partition, what ends when the acknowledgements count, or why they were not taken."""


async def _take_all(context: BrokerContext, topics: Topics, request: ShareRequest) -> _Taken:
    """Take the acknowledgements of all partitions, without waiting until they count."""
    taken: _Taken = {}
    slices = Slices(SLICE_STEPS)
    for partition in request.acknowledged:
        await slices.step()
        try:
            taken[partition] = await _take(context, topics, request, partition)
        except ApiError as refused:
            taken[partition] = refused
    return taken


async def _outcomes(taken: _Taken) -> Answers:
    answers: Answers = {}
    slices = Slices(SLICE_STEPS)
    for partition, outcome in taken.items():
        await slices.step()
        refusal = outcome if isinstance(outcome, ApiError) else await _refusal(outcome)
        answers[partition] = PartitionAnswer(refusal)
    return answers


async def _refusal(counted: asyncio.Future[None]) -> ApiError | None:
    try:
        await counted
    except ApiError as error:
        return error
    return None


async def _take(
    context: BrokerContext, topics: Topics, request: ShareRequest, partition: PartitionId
) -> asyncio.Future[None]:
    _check_partition(topics, partition)
    slices = Slices(SLICE_STEPS)
    batches = []
    for first, last, types in request.acknowledged[partition]:
        told = await slices.map(lambda each: _type(each, renews=request.renews), types)
        batches.append(AcknowledgementBatch(first, last, told))
        await slices.step()
    group_id, member_id = request.key
    led = context.sharing.partitions.find(group_id, partition)
    if led is None:
        state = context.image().partition(*partition)
        if state is None or state.leader != context.broker_id:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition"
            )
        raise ApiError(
            ErrorCode.INVALID_RECORD_STATE,
            f"share group {group_id} has got no record of the partition from this leader",
        )
    return led.acknowledge(member_id, batches)


def _type(number: int, *, renews: bool) -> AcknowledgeType:
    try:
        found = AcknowledgeType(number)
    except ValueError:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"there is no acknowledge type {number}"
        ) from None
    if found is AcknowledgeType.RENEW and not renews:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "the request renews locks and does not say so (IsRenewAck)"
        )
    return found
