"""ShareAcknowledge (79), versions 1-2: members of share groups say what became of records
(KIP-932).

Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.api.share_fetch import leader_hint
from broker.service import share_fetching
from broker.service.cluster import leader_endpoints
from broker.service.context import BrokerContext
from broker.service.share_fetching import Acknowledged, ShareRequest
from broker.sharing.sessions import SessionKey
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.wire.kafka.messages import share_acknowledge as messages
from stele.wire.kafka.messages.share_acknowledge import (
    AcknowledgementBatch,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from storage.turns import SLICE_STEPS, Slices


async def handle(
    context: BrokerContext, request_context: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    caller = request_context.caller
    key = SessionKey(request.group_id or "", request.member_id or "")
    asked = ShareRequest(
        key, request.share_session_epoch, request_context.connection, {}, request.is_renew_ack
    )
    slices = Slices(SLICE_STEPS)
    for named in request.topics:
        for each in named.partitions:
            partition = PartitionId(named.topic_id, each.partition_index)
            asked.acknowledged[partition] = await slices.map(
                _acknowledged, each.acknowledgement_batches
            )
            await slices.step()
        await slices.step()
    try:
        answers = await share_fetching.acknowledge(context, caller, asked)
    except ApiError as error:
        return _refused(error)
    response = ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=context.sharing.partitions.lock_duration_ms(key.group_id)
    )
    hints = []
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    for partition, answer in answers.items():
        await slices.step()
        topic = topics.get(partition.topic_id)
        if topic is None:
            topic = ShareAcknowledgeTopicResponse(partition.topic_id)
            topics[partition.topic_id] = topic
            response.responses.append(topic)
        data = PartitionData(partition.partition, current_leader=LeaderIdAndEpoch(-1, -1))
        if answer.acknowledged is not None:
            data.error_code = answer.acknowledged.code
            data.error_message = answer.acknowledged.message or None
            if answer.acknowledged.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                hint = leader_hint(context, partition)
                hints.append(hint)
                data.current_leader = LeaderIdAndEpoch(*hint)
        topic.partitions.append(data)
    response.node_endpoints = [
        NodeEndpoint(registration.broker_id, endpoint.host, endpoint.port, registration.rack)
        for registration, endpoint in leader_endpoints(context, caller, hints)
    ]
    return response


def _acknowledged(batch: AcknowledgementBatch) -> Acknowledged:
    return Acknowledged(batch.first_offset, batch.last_offset, batch.acknowledge_types)


def _refused(error: ApiError) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(error_code=error.code, error_message=error.message or None)


def refuse(
    request_context: RequestContext, request: ShareAcknowledgeRequest, error: ErrorCode
) -> ShareAcknowledgeResponse:
    return _refused(ApiError(error))


SERVED = Served(messages.API, refuse, handle_async=handle)
