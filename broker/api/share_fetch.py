"""ShareFetch (78), versions 1-2: members of share groups get records, and acknowledge them
(KIP-932).

Deviations: an answer does not wait for more bytes than there are. AcquiredRecords go by the record
batches of the log, so BatchSize has no effect.
"""

from __future__ import annotations

import math

from broker.api.handler import RequestContext, Served
from broker.replication.types import LeaderHint
from broker.service import share_fetching
from broker.service.cluster import leader_endpoints
from broker.service.context import BrokerContext
from broker.service.quotas import EXEMPT, log_throttle
from broker.service.share_fetching import Acknowledged, Answers, PartitionAnswer
from broker.sharing.fetching import Wanted
from broker.sharing.sessions import SessionKey
from metadata.client_quotas import CONSUMER_BYTE_RATE
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.wire.kafka.messages import share_fetch as messages
from stele.wire.kafka.messages.share_fetch import (
    AcknowledgementBatch,
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from storage.turns import SLICE_STEPS, Slices

_RECORD_LIMIT = 1  # KIP-1206
_HINTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


async def handle(
    context: BrokerContext, request_context: RequestContext, request: ShareFetchRequest
) -> ShareFetchResponse:
    caller = request_context.caller
    key = SessionKey(request.group_id or "", request.member_id or "")
    asked = await _asked(request_context, key, request)
    try:
        answers = await share_fetching.fetch(context, caller, asked)
    except ApiError as error:
        return _refused(error)
    hints = []
    slices = Slices(SLICE_STEPS)
    for partition, each in answers.items():
        if _error_of(each) in _HINTED:
            hints.append(leader_hint(context, partition))
        await slices.step()
    endpoints = [
        NodeEndpoint(registration.broker_id, endpoint.host, endpoint.port, registration.rack)
        for registration, endpoint in leader_endpoints(context, caller, hints)
    ]
    return ShareFetchResponse(
        throttle_time_ms=_charge(context, request_context, answers),
        acquisition_lock_timeout_ms=context.sharing.partitions.lock_duration_ms(key.group_id),
        responses=await _responses(context, answers),
        node_endpoints=endpoints,
    )


async def _asked(
    request_context: RequestContext, key: SessionKey, request: ShareFetchRequest
) -> share_fetching.ShareFetchRequest:
    asked = share_fetching.ShareFetchRequest(
        key,
        request.share_session_epoch,
        request_context.connection,
        {},
        request.is_renew_ack,
        Wanted(
            request.max_wait_ms,
            request.max_bytes,
            request.max_records,
            request.share_acquire_mode == _RECORD_LIMIT,
        ),
    )
    slices = Slices(SLICE_STEPS)
    for topic in request.topics:
        for each in topic.partitions:
            partition = PartitionId(topic.topic_id, each.partition_index)
            if each.acknowledgement_batches:
                asked.acknowledged[partition] = await slices.map(
                    acknowledged, each.acknowledgement_batches
                )
            else:
                asked.added.append(partition)
            await slices.step()
        await slices.step()
    for forgotten in request.forgotten_topics_data:
        for number in forgotten.partitions:
            asked.forgotten.append(PartitionId(forgotten.topic_id, number))
            await slices.step()
        await slices.step()
    return asked


def acknowledged(batch: AcknowledgementBatch) -> Acknowledged:
    return Acknowledged(batch.first_offset, batch.last_offset, batch.acknowledge_types)


def leader_hint(context: BrokerContext, partition: PartitionId) -> LeaderHint:
    """The leader by the metadata."""
    state = context.image().partition(*partition)
    return LeaderHint() if state is None else LeaderHint(state.leader, state.leader_epoch)


def _error_of(answer: PartitionAnswer) -> ErrorCode:
    """One that may name another leader."""
    for error in (answer.delivery.error, answer.acknowledged):
        if error is not None and error.code in _HINTED:
            return error.code
    return ErrorCode.NONE


async def _responses(context: BrokerContext, answers: Answers) -> list[ShareFetchableTopicResponse]:
    topics: dict[bytes, ShareFetchableTopicResponse] = {}
    slices = Slices(SLICE_STEPS)
    for partition, answer in answers.items():
        await slices.step()
        topic = topics.get(partition.topic_id)
        if topic is None:
            topic = ShareFetchableTopicResponse(partition.topic_id)
            topics[partition.topic_id] = topic
        topic.partitions.append(_partition(context, partition, answer))
    return list(topics.values())


def _partition(
    context: BrokerContext, partition: PartitionId, answer: PartitionAnswer
) -> PartitionData:
    delivery, refused = answer.delivery, answer.acknowledged
    data = PartitionData(partition.partition)
    if delivery.error is not None:
        data.error_code = delivery.error.code
        data.error_message = delivery.error.message or None
    if refused is not None:
        data.acknowledge_error_code = refused.code
        data.acknowledge_error_message = refused.message or None
    hint = LeaderHint()
    if _error_of(answer) in _HINTED:
        hint = leader_hint(context, partition)
    data.current_leader = LeaderIdAndEpoch(*hint)
    data.records = delivery.records
    data.acquired_records = [AcquiredRecords(*each) for each in delivery.acquired]
    return data


def _charge(context: BrokerContext, request_context: RequestContext, answers: Answers) -> int:
    """How long the client has to wait for the bytes of this answer."""
    quotas = context.quotas
    if quotas.manager is None:
        return 0
    payer = quotas.payer(request_context.caller)
    size = sum(len(each) for answer in answers.values() for each in answer.delivery.records)
    if payer is EXEMPT or not size:
        return 0
    throttle = quotas.manager.record(CONSUMER_BYTE_RATE, payer, size, quotas.now_s())
    if throttle is None:
        return 0
    log_throttle(payer, throttle)
    return math.ceil(throttle.seconds * 1000)


def _refused(error: ApiError) -> ShareFetchResponse:
    return ShareFetchResponse(error_code=error.code, error_message=error.message or None)


def refuse(
    request_context: RequestContext, request: ShareFetchRequest, error: ErrorCode
) -> ShareFetchResponse:
    return _refused(ApiError(error))


SERVED = Served(messages.API, refuse, handle_async=handle)
