"""An image as records: what a snapshot of the metadata log holds (KIP-630). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from metadata.delta import MetadataDelta
from metadata.image import EMPTY, BrokerRegistration, MetadataImage, PartitionState, Topic
from metadata.records import decode, encode
from stele.wire.v1 import metadata_pb2 as pb


def records_of(image: MetadataImage) -> Iterator[bytes]:
    """Encoded records that lead from the empty image to this one, but for its offset.

    The same image always gives the same bytes, on every node.
    """
    return (encode(record) for record in _records(image))


def image_of(end_offset: int, values: Sequence[bytes]) -> MetadataImage:
    """The image of a snapshot that holds everything below ``end_offset``.

    Raises MetadataError when the records do not fit together.
    """
    # Their own positions are no offsets of the log: they only have to ascend up to its last one.
    delta = MetadataDelta(EMPTY)
    delta.replay_all((decode(value) for value in values), offset=end_offset - 1)
    return delta.apply()


def _records(image: MetadataImage) -> Iterator[pb.MetadataRecord]:
    for name in sorted(image.features):
        feature = pb.FeatureLevelRecord(name=name, level=image.features[name])
        yield pb.MetadataRecord(feature_level=feature)
    for controller_id in sorted(image.controllers):
        controller = pb.RegisterControllerRecord(
            controller_id=controller_id, incarnation_id=image.controllers[controller_id]
        )
        yield pb.MetadataRecord(register_controller=controller)
    for registration in image.sorted_brokers():
        yield from _broker(registration)
    for topic in image.sorted_topics():
        yield from _topic(topic)
    for resource, entries in image.sorted_configs():
        for name, value in entries:
            config = pb.ConfigRecord(
                resource_type=pb.ConfigResourceType.Name(resource.type),
                resource_name=resource.name,
                name=name,
                value=value,
            )
            yield pb.MetadataRecord(config=config)
    if image.next_producer_id:
        ids = pb.ProducerIdsRecord(next_producer_id=image.next_producer_id)
        yield pb.MetadataRecord(producer_ids=ids)
    for outcome in image.outcomes:
        remembered = pb.RequestOutcomeRecord(
            request_id=outcome.request_id,
            method=outcome.method,
            digest=outcome.digest,
            reply=outcome.reply,
        )
        yield pb.MetadataRecord(request_outcome=remembered)


def _broker(registration: BrokerRegistration) -> Iterator[pb.MetadataRecord]:
    register = pb.RegisterBrokerRecord(
        broker_id=registration.broker_id,
        incarnation_id=registration.incarnation_id,
        broker_epoch=registration.broker_epoch,
        endpoints=[
            pb.Endpoint(
                listener=endpoint.listener,
                host=endpoint.host,
                port=endpoint.port,
                protocol=endpoint.protocol,
            )
            for endpoint in registration.endpoints
        ],
        rack=registration.rack or "",
        log_directories=registration.log_directories,
        features=[
            pb.FeatureRange(name=each.name, min_level=each.min_level, max_level=each.max_level)
            for each in registration.features
        ],
        inter_broker_listener=registration.inter_broker_listener,
    )
    yield pb.MetadataRecord(register_broker=register)
    state = pb.BrokerStateRecord(
        broker_id=registration.broker_id,
        broker_epoch=registration.broker_epoch,
        fenced=registration.fenced,
        in_controlled_shutdown=registration.in_controlled_shutdown,
        out_of_room=registration.out_of_room,
    )
    yield pb.MetadataRecord(broker_state=state)


def _topic(topic: Topic) -> Iterator[pb.MetadataRecord]:
    yield pb.MetadataRecord(topic=pb.TopicRecord(name=topic.name, topic_id=topic.topic_id))
    for number, state in enumerate(topic.partitions):
        yield pb.MetadataRecord(partition=_partition(topic.topic_id, number, state))


def _partition(topic_id: bytes, number: int, state: PartitionState) -> pb.PartitionRecord:
    return pb.PartitionRecord(
        topic_id=topic_id,
        partition=number,
        replicas=state.replicas,
        isr=state.isr,
        elr=state.elr,
        last_known_elr=state.last_known_elr,
        adding_replicas=state.adding_replicas,
        removing_replicas=state.removing_replicas,
        original_replicas=state.original_replicas,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        leader_recovery_state=state.leader_recovery_state,
        unclean_elections=state.unclean_elections,
    )
