"""DescribeQuorum (55), versions 0-2, answered by the leader of the metadata log (KIP-595,
KIP-853).

Deviation: the listeners of a controller speak gRPC.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.api.handler import RequestContext, Served
from broker.service.changes import ask
from broker.service.context import BrokerContext
from runtime.administration.parts import error_code
from runtime.authorization.authorizer import Operation
from runtime.config.addresses import parse_endpoint
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import describe_quorum as messages
from stele.wire.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from stele.wire.v1 import raft_pb2 as pb
from storage.directory_names import METADATA_TOPIC

_TIMEOUT_S = 10.0
"""The request carries no time-out of its own."""


async def handle(
    context: BrokerContext, request_context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    asked = [
        (topic.topic_name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    if asked != [(METADATA_TOPIC, 0)]:
        return _refused_partitions(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        answer = await ask(
            context,
            request_context.caller,
            Operation.DESCRIBE,
            pb.DescribeQuorumRequest(),
            pb.DescribeQuorumResponse,
            timeout_s=_TIMEOUT_S,
        )
    except ApiError as error:
        return DescribeQuorumResponse(error_code=error.code, error_message=error.message)
    if answer.error != ErrorCode.NONE:
        return refuse(request_context, request, error_code(answer.error))
    partition = PartitionData(
        leader_id=answer.leader_id,
        leader_epoch=answer.epoch,
        high_watermark=answer.high_watermark,
        current_voters=[_replica(each) for each in answer.voters],
        observers=[_replica(each) for each in answer.observers],
    )
    return DescribeQuorumResponse(
        topics=[TopicData(METADATA_TOPIC, [partition])], nodes=list(_nodes(answer.voters))
    )


def _replica(replica: pb.ReplicaState) -> ReplicaState:
    return ReplicaState(
        replica_id=replica.replica_id,
        replica_directory_id=replica.directory_id.ljust(16, b"\x00"),
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.last_fetch_time_ms,
        last_caught_up_timestamp=replica.last_caught_up_time_ms,
    )


def _nodes(voters: Iterable[pb.ReplicaState]) -> Iterable[Node]:
    for voter in voters:
        listeners = parse_endpoint(voter.listeners or voter.endpoint) or ()
        yield Node(voter.replica_id, [Listener(*each) for each in listeners])


def _refused_partitions(request: DescribeQuorumRequest, error: ErrorCode) -> DescribeQuorumResponse:
    """The metadata log is the only log of a quorum, and has one partition."""
    return DescribeQuorumResponse(
        topics=[
            TopicData(
                topic.topic_name,
                [PartitionData(each.partition_index, error) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def refuse(
    request_context: RequestContext, request: DescribeQuorumRequest, error: ErrorCode
) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=error)


SERVED = Served(messages.API, refuse, handle_async=handle)
