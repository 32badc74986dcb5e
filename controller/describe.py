"""Descriptions of the cluster and its topics for administrators, made from an image."""

from __future__ import annotations

from collections.abc import Callable

from metadata.brokers import BrokerRegistration, Plane
from metadata.configs import ConfigResource
from metadata.image import MetadataImage
from metadata.topics import Topic
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as admin


def describe_cluster(
    image: MetadataImage, *, cluster_id: str, controller_id: int, listener: str
) -> admin.DescribeClusterResponse:
    """All brokers with their addresses on ``listener``. ``controller_id`` is -1 if no active
    controller is known."""
    return admin.DescribeClusterResponse(
        cluster_id=cluster_id,
        controller_id=controller_id,
        brokers=[_broker(registration, listener) for registration in image.sorted_brokers()],
        metadata_offset=image.offset,
    )


def _broker(registration: BrokerRegistration, listener: str) -> admin.BrokerDescription:
    description = admin.BrokerDescription(
        broker_id=registration.broker_id,
        rack=registration.rack or "",
        fenced=registration.fenced,
        in_controlled_shutdown=registration.in_controlled_shutdown,
        broker_epoch=registration.broker_epoch,
    )
    kafka = registration.endpoint(listener)
    if kafka is not None:
        description.host, description.port = kafka.host, kafka.port
    grpc = registration.endpoint(listener, Plane.GRPC)
    if grpc is not None:
        description.grpc_host, description.grpc_port = grpc.host, grpc.port
    return description


def describe_topics(
    image: MetadataImage,
    request: admin.DescribeTopicsRequest,
    shows: Callable[[str], bool],
    refusal: Callable[[str], ApiError | None],
    shows_configs: Callable[[str], bool],
) -> admin.DescribeTopicsResponse:
    """The topics that the request names, in its order. All topics in order of their names if it
    names none.

    A list of all topics leaves out those that the caller may not see, which ``shows`` tells. That
    is no denial. A topic that the request names is refused, whether it exists or not, for the
    reason that ``refusal`` gives. ``shows_configs`` says whether the caller may see the configs of
    a topic.
    """
    answer = admin.DescribeTopicsResponse()
    if not request.names:
        for topic in image.sorted_topics():
            if shows(topic.name):
                answer.topics.append(_topic(image, topic, shows_configs(topic.name)))
        return answer
    for name in request.names:
        why, found = refusal(name), image.topic(name)
        if why is not None:
            answer.topics.add(name=name, error=why.code, message=why.message)
        elif found is None:
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer.topics.add(name=name, error=missing, message=f"there is no topic {name}")
        else:
            answer.topics.append(_topic(image, found, shows_configs(name)))
    return answer


def _topic(
    image: MetadataImage, topic: Topic, shows_configs: bool
) -> admin.DescribeTopicsResponse.Topic:
    configs = image.config(ConfigResource.topic(topic.name)) if shows_configs else {}
    return admin.DescribeTopicsResponse.Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            admin.PartitionDescription(
                partition=number,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                replicas=state.replicas,
                isr=state.isr,
                elr=state.elr,
                unclean_elections=state.unclean_elections,
                adding_replicas=state.adding_replicas,
                removing_replicas=state.removing_replicas,
                offline_replicas=image.offline_replicas(state),
            )
            for number, state in enumerate(topic.partitions)
        ],
        configs=dict(configs),
    )
