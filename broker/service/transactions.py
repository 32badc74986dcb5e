"""Transactions: what their coordinators are asked, by clients and by brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeVar

from broker.coordinator.asking import ask_coordinator
from broker.coordinator.step import Request
from broker.coordinator.transaction.types import (
    NEEDS_PRODUCER_ID,
    STATES_BY_LABEL,
    AddPartitionsRequest,
    CompletionRequest,
    DescribedTransaction,
    DescribeRequest,
    EndAnswer,
    EndRequest,
    ForgetRequest,
    InitAnswer,
    InitRequest,
    ListAnswer,
    ListedTransaction,
    ListRequest,
    TransactionRef,
)
from broker.replication.types import Marker
from broker.service.context import BrokerContext
from broker.service.coordinators import (
    TRANSACTIONS,
    check_coordination_known,
    coordinated_by,
)
from broker.service.group_regexes import matching_names
from broker.service.internal_topics import group_topic, made
from broker.service.topics import Topics
from metadata.internal_topics import coordinating_partition
from metadata.topics import Topic
from runtime.authorization.authorizer import (
    CLUSTER,
    Operation,
    group_resource,
    refusal,
    topic_resource,
    transactional_id_resource,
)
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from storage.turns import SLICE_STEPS, Slices, gather_in_slices, in_slices

_MARKERS_A_TURN: Final = 200
_DESCRIBED_AT_ONCE: Final = 100

PATIENCE_S: Final = 0.1
"""How long a client's next transaction waits for the markers of its last one, before it is refused
with CONCURRENT_TRANSACTIONS. The markers take one replication. A client that is refused pauses for
longer than that: librdkafka for 20 ms or more, each time."""

A = TypeVar("A")


async def _ask(context: BrokerContext, transactional_id: str, request: Request[A]) -> A:
    """What the coordinator of the transactional id, if it is here, answers to a request.

    Raises ApiError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
    """
    number = coordinated_by(context, TRANSACTIONS, transactional_id)
    return await ask_coordinator(context.transactions, number, request)


def check(
    context: BrokerContext,
    caller: Caller,
    transactional_id: str,
    operation: Operation = Operation.WRITE,
) -> None:
    """Raises ApiError TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""
    resource = transactional_id_resource(transactional_id)
    why = refusal(context.authorizer, caller, operation, resource)
    if why is not None:
        raise why


# ------------------------------------------------------------------------------- producers
# The following raise ApiError TRANSACTIONAL_ID_AUTHORIZATION_FAILED, and as ``_ask`` does. Other
# errors are in the answer.


async def init_producer_id(
    context: BrokerContext, caller: Caller, request: InitRequest
) -> InitAnswer:
    """Also raises ApiError INVALID_REQUEST, and as ``ProducerIds.take`` does."""
    check(context, caller, request.transactional_id)
    if not request.transactional_id:  # at any coordinator
        raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    if request.enable_two_phase_commit:
        check(context, caller, request.transactional_id, Operation.TWO_PHASE_COMMIT)
    asked = request
    while True:
        answer = await _ask(context, request.transactional_id, asked)
        if answer is not NEEDS_PRODUCER_ID:
            return answer
        asked = replace(request, fresh_producer_id=await context.producer_ids.take())


async def add_partitions(
    context: BrokerContext,
    caller: Caller,
    ref: TransactionRef,
    partitions: Sequence[TopicPartition],
) -> list[ErrorCode]:
    """What became of each partition: all of them are part of the transaction, or none is. Where
    one is refused before that, the others get OPERATION_NOT_ATTEMPTED."""
    check(context, caller, ref.transactional_id)
    topics = Topics(context, caller, Operation.WRITE)
    errors = await in_slices(lambda each: _addable(topics, each), partitions)
    if any(errors):
        return [error or ErrorCode.OPERATION_NOT_ATTEMPTED for error in errors]
    each_once = tuple(dict.fromkeys(partitions))  # no more than there are
    told = await _add_patiently(context, AddPartitionsRequest(ref, each_once))
    error_of = dict(zip(each_once, told, strict=True))
    return [error_of[each] for each in partitions]


def _addable(topics: Topics, partition: TopicPartition) -> ErrorCode:
    topic = topics.named(partition.topic)
    if not isinstance(topic, Topic):
        return topic
    known = 0 <= partition.partition < len(topic.partitions)
    return ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _add(context: BrokerContext, request: AddPartitionsRequest) -> tuple[ErrorCode, ...]:
    return (await _ask(context, request.ref.transactional_id, request)).by_partition


async def add_offsets(
    context: BrokerContext, caller: Caller, ref: TransactionRef, group_id: str
) -> ErrorCode:
    """Make the offsets of a group part of the transaction. Also raises ApiError
    GROUP_AUTHORIZATION_FAILED."""
    check(context, caller, ref.transactional_id)
    why = refusal(context.authorizer, caller, Operation.READ, group_resource(group_id))
    if why is not None:
        raise why
    topic = await made(context, group_topic(context.config, context.image()))
    number = coordinating_partition(group_id, len(topic.partitions))
    partition = TopicPartition(topic.name, number)
    (error,) = await _add_patiently(context, AddPartitionsRequest(ref, (partition,)))
    return error


async def _add_patiently(
    context: BrokerContext, request: AddPartitionsRequest
) -> tuple[ErrorCode, ...]:
    """``_add`` for a client. It asks again when the markers of the last transaction are written."""
    errors = await _add(context, request)
    if ErrorCode.CONCURRENT_TRANSACTIONS not in errors:
        return errors
    transactional_id = request.ref.transactional_id
    try:
        async with asyncio.timeout(PATIENCE_S):
            await _ask(context, transactional_id, CompletionRequest(transactional_id))
    except TimeoutError:
        return errors
    return await _add(context, request)


async def end(context: BrokerContext, caller: Caller, request: EndRequest) -> EndAnswer:
    """Commit or abort. The answer leaves when the decision is on disk; markers may come later.
    Also raises ApiError as ``ProducerIds.take`` does."""
    check(context, caller, request.ref.transactional_id)
    asked = request
    while True:
        answer = await _ask(context, request.ref.transactional_id, asked)
        if answer is not NEEDS_PRODUCER_ID:
            return answer
        asked = replace(request, fresh_producer_id=await context.producer_ids.take())


# ------------------------------------------------------------------------------- brokers


def check_markers(context: BrokerContext, caller: Caller) -> None:
    """Raises ApiError CLUSTER_AUTHORIZATION_FAILED: only nodes, and administrators of hanging
    transactions, may have markers written."""
    if not context.authorizer.allows(caller, Operation.ALTER, CLUSTER):
        check_node(context, caller)


def check_node(context: BrokerContext, caller: Caller) -> None:
    """Raises ApiError CLUSTER_AUTHORIZATION_FAILED: only nodes may ask this."""
    why = refusal(context.authorizer, caller, Operation.CLUSTER_ACTION, CLUSTER)
    if why is not None:
        raise why


async def verify(
    context: BrokerContext, requests: Sequence[AddPartitionsRequest]
) -> list[tuple[ErrorCode, ...]]:
    """What the coordinators say of the partitions of each request of a broker, in its order. They
    are asked at once, so that they share batches."""
    image = context.image()

    async def one(request: AddPartitionsRequest) -> tuple[ErrorCode, ...]:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        states = await in_slices(image.named_partition, request.partitions)
        if None in states:
            other = ErrorCode.OPERATION_NOT_ATTEMPTED
            return tuple([unknown if each is None else other for each in states])
        try:
            return await _add(context, request)
        except ApiError as error:
            return (error.code,) * len(request.partitions)

    slices = Slices(SLICE_STEPS)
    asked = []
    for request in requests:
        asked.append(asyncio.ensure_future(one(request)))
        await slices.step()
    return [await each for each in asked]


async def write_markers(context: BrokerContext, markers: Sequence[Marker]) -> list[ErrorCode]:
    """What became of each marker of a coordinator."""
    slices = Slices(_MARKERS_A_TURN)
    parts = []
    for start in range(0, len(markers), _MARKERS_A_TURN):
        some = markers[start : start + _MARKERS_A_TURN]
        parts.append(_written(context, some))
        await slices.step(len(some))
    return [error for part in parts for error in await part]


def _written(context: BrokerContext, markers: Sequence[Marker]) -> asyncio.Future[list[ErrorCode]]:
    future: asyncio.Future[list[ErrorCode]] = asyncio.get_running_loop().create_future()

    def done(errors: list[ErrorCode]) -> None:
        if not future.done():
            future.set_result(errors)

    context.replicas.markers.write(markers, done)
    return future


# ------------------------------------------------------------------------------- administration


async def describe(
    context: BrokerContext, caller: Caller, transactional_ids: Sequence[str]
) -> list[DescribedTransaction]:
    """Each transactional id, or why it is not described. Partitions of topics that the caller may
    not DESCRIBE are left out."""

    async def one(transactional_id: str) -> DescribedTransaction:
        try:
            check(context, caller, transactional_id, Operation.DESCRIBE)
            answer = await _ask(context, transactional_id, DescribeRequest(transactional_id))
        except ApiError as refused:
            return DescribedTransaction(refused.code, transactional_id)
        allows = context.authorizer.allows
        seen = {
            name: allows(caller, Operation.DESCRIBE, topic_resource(name))
            for name in {each.topic for each in answer.partitions}
        }
        return replace(answer, partitions=tuple(p for p in answer.partitions if seen[p.topic]))

    return await gather_in_slices(one, transactional_ids, _DESCRIBED_AT_ONCE)


async def forget(
    context: BrokerContext, caller: Caller, transactional_ids: Sequence[str]
) -> list[ErrorCode]:
    """What became of each transactional id."""

    async def one(transactional_id: str) -> ErrorCode:
        try:
            check(context, caller, transactional_id)
            return await _ask(context, transactional_id, ForgetRequest(transactional_id))
        except ApiError as refused:
            return refused.code

    return await gather_in_slices(one, transactional_ids, _DESCRIBED_AT_ONCE)


async def list_transactions(
    context: BrokerContext, caller: Caller, request: ListRequest, regex: str = ""
) -> ListAnswer:
    """Transactions that this broker coordinates and the caller may see, by their ids. ``regex``:
    of all of the transactional id; empty: any.

    Raises ApiError COORDINATOR_LOAD_IN_PROGRESS: there may be more; INVALID_REGULAR_EXPRESSION.
    """
    check_coordination_known(context)
    found: list[ListedTransaction] = []
    for number in context.transactions.partitions:
        found += (await ask_coordinator(context.transactions, number, request)).transactions

    def may_see(each: ListedTransaction) -> bool:
        resource = transactional_id_resource(each.transactional_id)
        return context.authorizer.allows(caller, Operation.DESCRIBE, resource)

    seen = sorted(filter(may_see, found), key=lambda each: each.transactional_id)
    if regex:
        names = [each.transactional_id for each in seen]
        matching = set(await matching_names(regex, names, of_topics=False))
        seen = [each for each in seen if each.transactional_id in matching]
    unknown = tuple(name for name in request.states if name not in STATES_BY_LABEL)
    return ListAnswer(tuple(seen), unknown)
