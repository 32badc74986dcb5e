"""WriteTxnMarkers (27), versions 1-2: a coordinator has the ends of transactions written to the
partitions that this broker leads.

Nodes send it (CLUSTER_ACTION), and administrators that end a hanging transaction (ALTER).
Deviations: none known.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

from broker.api.handler import RequestContext, Served
from broker.replication.types import Marker
from broker.service import transactions
from broker.service.context import BrokerContext
from broker.service.topics import error_by_name
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.kafka.messages import write_txn_markers as messages
from stele.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from storage.turns import SLICE_STEPS, Slices


async def handle(
    context: BrokerContext, request_context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    transactions.check_markers(context, request_context.caller)
    image = context.image()
    slices = Slices(SLICE_STEPS)
    asked: list[Marker | None] = []
    for marker in request.markers:
        for topic in marker.topics:
            known = image.topic(topic.name)
            for number in topic.partition_indexes:
                partition = None if known is None else PartitionId(known.topic_id, number)
                asked.append(None if partition is None else _marker(marker, partition))
            await slices.step(1 + len(topic.partition_indexes))
    markers = [each for each in asked if each is not None]
    errors = iter(await transactions.write_markers(context, markers))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return await _response(
        request, (unknown if each is None else error_by_name(next(errors)) for each in asked)
    )


def _marker(marker: WritableTxnMarker, partition: PartitionId) -> Marker:
    return Marker(
        partition,
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        marker.coordinator_epoch,
        marker.transaction_version,
    )


async def _response(
    request: WriteTxnMarkersRequest, errors: Iterator[ErrorCode]
) -> WriteTxnMarkersResponse:
    slices = Slices(SLICE_STEPS)

    def told(number: int) -> WritableTxnMarkerPartitionResult:
        return WritableTxnMarkerPartitionResult(number, next(errors))

    return WriteTxnMarkersResponse(
        [
            WritableTxnMarkerResult(
                marker.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic.name, await slices.map(told, topic.partition_indexes)
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


async def refuse(
    request_context: RequestContext, request: WriteTxnMarkersRequest, error: ErrorCode
) -> WriteTxnMarkersResponse:
    return await _response(request, repeat(error))


SERVED = Served(messages.API, refuse, handle_async=handle)
