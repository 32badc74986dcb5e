"""TxnOffsetCommit (28), versions 0-5: how far a group has read, once a transaction is committed.

From version 3 on the request says which member commits, and members of other generations are fenced
(KIP-447). From version 5 on the broker adds the group to the transaction (KIP-890). Before that the
producer has done so by AddOffsetsToTxn.

Deviations: a topic may be named by its id in a tagged field of ours. Then the offset is never
committed for another topic of that name.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

from broker.api.handler import RequestContext, Served
from broker.coordinator.group.types import OffsetCommitRequest, OffsetToCommit
from broker.coordinator.step import Producer, Transaction
from broker.service import group_offsets
from broker.service.context import BrokerContext
from stele.errors import ErrorCode
from stele.wire.kafka.messages import txn_offset_commit as messages
from stele.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from storage.turns import SLICE_STEPS, Slices

_LOADING_KNOWN_FROM = 2
_ABORTABLE_KNOWN_FROM = 4
_ADDS_FROM = 5


async def handle(
    context: BrokerContext, request_context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    commit = OffsetCommitRequest(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        offsets=(),
    )
    transaction = Transaction(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        adds=request_context.version >= _ADDS_FROM,
    )
    if not request.group_id:
        return await refuse(request_context, request, ErrorCode.INVALID_GROUP_ID)
    offsets = (
        OffsetToCommit(
            topic.name,
            each.partition_index,
            each.committed_offset,
            each.committed_leader_epoch,
            each.committed_metadata or "",
            topic.topic_id,
        )
        for topic in request.topics
        for each in topic.partitions
    )
    errors = await group_offsets.commit(
        context, request_context.caller, commit, offsets, transaction
    )
    response = await _response(request, (_known(each, request_context.version) for each in errors))
    if request_context.is_ours and ErrorCode.OFFSET_METADATA_TOO_LARGE in errors:
        for topic, answer in zip(request.topics, response.topics, strict=True):
            for asked, told in zip(topic.partitions, answer.partitions, strict=True):
                told.error_message = group_offsets.why_refused(
                    context, asked.committed_metadata or "", ErrorCode(told.error_code)
                )
    return response


def _known(error: ErrorCode, version: int) -> ErrorCode:
    """The error in the words of the client's version."""
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOADING_KNOWN_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE  # old clients fail at it (KAFKA-7296)
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_KNOWN_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return error


async def _response(
    request: TxnOffsetCommitRequest, errors: Iterator[ErrorCode]
) -> TxnOffsetCommitResponse:
    slices = Slices(SLICE_STEPS)

    def told(partition: TxnOffsetCommitRequestPartition) -> TxnOffsetCommitResponsePartition:
        return TxnOffsetCommitResponsePartition(partition.partition_index, next(errors))

    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(topic.name, await slices.map(told, topic.partitions))
            for topic in request.topics
        ]
    )


async def refuse(
    request_context: RequestContext, request: TxnOffsetCommitRequest, error: ErrorCode
) -> TxnOffsetCommitResponse:
    return await _response(request, repeat(_known(error, request_context.version)))


SERVED = Served(messages.API, refuse, handle_async=handle, explains=True)
