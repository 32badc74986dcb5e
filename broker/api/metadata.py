"""Metadata (3), versions 0-13: brokers, topics, and who leads each partition.

Deviations: a topic that is made by asking for it is waited for, two seconds at most, before
LEADER_NOT_AVAILABLE is answered; in version 0 partitions with absent replicas are told like all
others; everybody is authorized for everything.
"""

from __future__ import annotations

import logging
import re

from broker.api import topic_requests
from broker.api.call import NO_OPERATIONS, Call, Served
from broker.api.describe_cluster import CLUSTER_OPERATIONS
from broker.context import BrokerContext
from metadata.image import NO_LEADER, PLAINTEXT, MetadataImage, PartitionState, Topic
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import metadata as messages
from stele.wire.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from stele.wire.v1 import admin_pb2 as pb

logger = logging.getLogger(__name__)

TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
"""All that may be done to a topic (KIP-430): there are no ACLs, so everybody may."""

_CREATE_TIMEOUT_S = 2.0
_MAX_NAME = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


async def handle(context: BrokerContext, call: Call, request: MetadataRequest) -> MetadataResponse:
    failures = await _create_missing(context, request)
    image = context.image()
    view = _View(image, call, request.include_topic_authorized_operations)
    if request.topics is None or (call.version == 0 and not request.topics):
        topics = [view.topic(topic) for topic in image.sorted_topics()]
    else:
        topics = [_requested(view, image, failures, asked) for asked in request.topics]
    wants_operations = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                registration.broker_id, endpoint.host, endpoint.port, registration.rack
            )
            for registration, endpoint in context.live_endpoints(call.listener, PLAINTEXT)
        ],
        cluster_id=context.cluster_id,
        controller_id=context.any_live_broker(),
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS if wants_operations else NO_OPERATIONS,
    )


def _requested(
    view: _View, image: MetadataImage, failures: dict[str, ErrorCode], asked: MetadataRequestTopic
) -> MetadataResponseTopic:
    if asked.name is None:
        by_id = image.topic_by_id(asked.topic_id)
        if by_id is None:
            return MetadataResponseTopic(
                ErrorCode.UNKNOWN_TOPIC_ID, name=view.no_name, topic_id=asked.topic_id
            )
        return view.topic(by_id)
    topic = image.topic(asked.name)
    if topic is not None:
        return view.topic(topic)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not is_valid_topic_name(asked.name):
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    return MetadataResponseTopic(failures.get(asked.name, error), name=asked.name)


def is_valid_topic_name(name: str) -> bool:
    """Kafka's rule: 1 to 249 of letters, digits, dot, underscore and hyphen; not . and not .."""
    return len(name) <= _MAX_NAME and _NAME.fullmatch(name) is not None and name not in (".", "..")


# ---------------------------------------------------------------------- what is there


class _View:
    """The image in the eyes of one call: its version and its listener."""

    def __init__(self, image: MetadataImage, call: Call, with_operations: bool) -> None:
        self._version = call.version
        self._operations = TOPIC_OPERATIONS if with_operations else NO_OPERATIONS
        # Brokers that are up, and those of them that a client of this listener can reach.
        self._live = {b.broker_id for b in image.brokers.values() if not b.fenced}
        self._reachable = {
            b.broker_id
            for b in image.brokers.values()
            if not b.fenced and b.endpoint(call.listener, PLAINTEXT) is not None
        }

    @property
    def no_name(self) -> str | None:
        return None if self._version >= 12 else ""

    def topic(self, topic: Topic) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[self._partition(i, state) for i, state in enumerate(topic.partitions)],
            topic_authorized_operations=self._operations,
        )

    def _partition(self, index: int, state: PartitionState) -> MetadataResponsePartition:
        error, leader = ErrorCode.NONE, state.leader
        if leader not in self._reachable:
            error, leader = ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
            if state.leader in self._live and self._version >= 6:
                error = ErrorCode.LISTENER_NOT_FOUND
        return MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=list(state.isr),
            offline_replicas=[r for r in state.replicas if r not in self._live],
        )


# ---------------------------------------------------------------------- auto creation


async def _create_missing(context: BrokerContext, request: MetadataRequest) -> dict[str, ErrorCode]:
    """Make the topics asked for by name that are not there; return the errors of those."""
    if not (context.config.auto_create_topics_enable and request.allow_auto_topic_creation):
        return {}
    image = context.image()
    asked = dict.fromkeys(topic.name for topic in request.topics or ())
    missing = [
        name
        for name in asked
        if name is not None and image.topic(name) is None and is_valid_topic_name(name)
    ]
    if not missing:
        return {}
    topics = [pb.NewTopic(name=name, partitions=-1, replication_factor=-1) for name in missing]
    try:
        results = await topic_requests.create(context, topics, timeout_s=_CREATE_TIMEOUT_S)
    except ApiError as error:
        logger.warning("auto creation of %s: %s", ", ".join(missing), error)
        return dict.fromkeys(missing, ErrorCode.LEADER_NOT_AVAILABLE)
    return {result.name: _creation_error(result) for result in results}


def _creation_error(result: pb.CreateTopicsResponse.Topic) -> ErrorCode:
    """What a client is told of a topic that is still not in the image afterwards."""
    error = topic_requests.error_code(result.error)
    if error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS) or error.retriable:
        return ErrorCode.LEADER_NOT_AVAILABLE
    logger.warning("auto creation of %s: %s: %s", result.name, error.name, result.message)
    return error


def refuse(call: Call, request: MetadataRequest, error: ErrorCode) -> MetadataResponse:
    no_name = None if call.version >= 12 else ""
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(
                error, topic.name if topic.name is not None else no_name, topic.topic_id
            )
            for topic in request.topics or ()
        ],
        error_code=error,
    )


SERVED = Served(messages.API, refuse, handle_async=handle)
