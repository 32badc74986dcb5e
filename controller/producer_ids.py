"""Blocks of producer ids, each handed out once in the life of the cluster (KIP-730)."""

from __future__ import annotations

from typing import NamedTuple

from controller import cluster
from controller.machine import Context, ControllerResult, Decision
from metadata.config_keys import LONG_MAX
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import metadata_pb2 as pb
from stele.wire.v1.controller_pb2 import AllocateProducerIdsRequest

BLOCK_SIZE = 1000


class ProducerIdBlock(NamedTuple):
    first: int
    size: int


def allocate(
    context: Context, request: AllocateProducerIdsRequest
) -> ControllerResult[ProducerIdBlock]:
    """The next block of producer ids. No other broker ever gets it.

    Raises ApiError STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED, and UNKNOWN_SERVER_ERROR when no
    ids are left.
    """
    cluster.current(context, request)
    first = context.image.producer_ids.next_id
    if first > LONG_MAX - BLOCK_SIZE:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids have been handed out")
    decision = Decision(context)
    decision.add(
        pb.MetadataRecord(
            producer_ids=pb.ProducerIdsRecord(
                broker_id=request.broker_id,
                broker_epoch=request.broker_epoch,
                next_producer_id=first + BLOCK_SIZE,
            )
        )
    )
    return decision.result(ProducerIdBlock(first, BLOCK_SIZE))
