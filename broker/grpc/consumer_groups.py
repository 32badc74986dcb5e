"""Groups of the consumer protocol (KIP-848) in the messages of stele.v1.Groups."""

from __future__ import annotations

from collections.abc import Iterator

from broker.coordinator.assignors.spec import Partitions
from broker.coordinator.group.consumer.types import ConsumerDescribeAnswer
from broker.coordinator.group.types import CONSUMER_PROTOCOL, GroupType
from metadata.image import MetadataImage
from stele.wire.v1 import groups_pb2 as pb


def tell(
    told: pb.DescribeGroupsResponse.Group, found: ConsumerDescribeAnswer, image: MetadataImage
) -> None:
    """Fill in a description. Topics that ``image`` does not have are left out."""
    told.state, told.type = found.state.value, GroupType.CONSUMER.value
    told.protocol_type, told.protocol = CONSUMER_PROTOCOL, found.assignor
    told.group_epoch, told.assignment_epoch = found.epoch, found.assignment_epoch
    for each in found.members:
        told.members.add(
            member_id=each.member_id,
            group_instance_id=each.instance_id,
            client_id=each.client_id,
            host=each.client_host,
            member_epoch=each.member_epoch,
            assigned=_topics(each.assigned, image),
            target=_topics(each.target, image),
            is_classic=each.is_classic,
        )


def _topics(
    partitions: Partitions, image: MetadataImage
) -> Iterator[pb.DescribeGroupsResponse.Topic]:
    for topic_id, numbers in sorted(partitions.items()):
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            yield pb.DescribeGroupsResponse.Topic(topic=topic.name, partitions=sorted(numbers))
