"""Descriptions of the cluster and its topics for administrators, made from an image."""

from __future__ import annotations

from metadata.brokers import GRPC, BrokerRegistration
from metadata.configs import ConfigResource
from metadata.image import MetadataImage
from metadata.topics import Topic
from stele.errors import ErrorCode
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
    grpc = registration.endpoint(listener, GRPC)
    if grpc is not None:
        description.grpc_host, description.grpc_port = grpc.host, grpc.port
    return description


def describe_topics(
    image: MetadataImage, request: admin.DescribeTopicsRequest
) -> admin.DescribeTopicsResponse:
    """The topics that the request names, in its order. All topics in order of their names if it
    names none."""
    if not request.names:
        topics = [_topic(image, topic) for topic in image.sorted_topics()]
        return admin.DescribeTopicsResponse(topics=topics)
    answers = []
    for name in request.names:
        topic = image.topic(name)
        if topic is None:
            answer = admin.DescribeTopicsResponse.Topic(
                name=name,
                error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                message=f"there is no topic {name}",
            )
        else:
            answer = _topic(image, topic)
        answers.append(answer)
    return admin.DescribeTopicsResponse(topics=answers)


def _topic(image: MetadataImage, topic: Topic) -> admin.DescribeTopicsResponse.Topic:
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
            )
            for number, state in enumerate(topic.partitions)
        ],
        configs=dict(image.config(ConfigResource.topic(topic.name))),
    )
