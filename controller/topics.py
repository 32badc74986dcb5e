"""Creation and deletion of topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from controller.machine import Context, ControllerResult, Decision, check_size
from controller.partitions import Rules, new_partition
from controller.placement import StripedPlacer, check_assigned
from metadata.config_keys import (
    DEFAULT_REPLICATION_FACTOR,
    NUM_PARTITIONS,
    validate_together,
    validate_topic_config,
)
from metadata.effective import cluster_int
from metadata.internal_topics import check_cleanup, check_stays
from metadata.topics import Topic
from stele import topic_names
from stele.errors import ApiError, ErrorCode
from stele.ids import encode_uuid
from stele.wire.v1 import metadata_pb2 as pb
from stele.wire.v1.admin_pb2 import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    NewTopic,
)

Deleted = DeleteTopicsResponse.Topic

TOPIC_ID_BYTES = 16

_RESERVED = frozenset({"__cluster_metadata"})  # its directory is the metadata log's


def validate_name(name: str) -> None:
    """Check a name by Kafka's rules. Raises ApiError INVALID_TOPIC_EXCEPTION."""
    fault = topic_names.fault_in(name)
    if fault is None and name in _RESERVED:
        fault = "it is the cluster's own"
    if fault is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name[:300]!r}: {fault}")


# ---------------------------------------------------------------------------------- creation


def create_topics(
    context: Context, request: CreateTopicsRequest
) -> ControllerResult[CreateTopicsResponse]:
    """Create topics. Each is decided on its own, so a refusal does not affect the others.

    Raises ApiError POLICY_VIOLATION for a request of too many topics.
    """
    check_size(len(request.topics), "topics")
    decision = Decision(context)
    named = Counter(topic.name for topic in request.topics)
    answers = []
    for topic in request.topics:
        try:
            if named[topic.name] > 1:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"the request names topic {topic.name} twice"
                )
            answers.append(_create(decision, topic))
        except ApiError as error:
            answers.append(
                CreateTopicsResponse.Topic(name=topic.name, error=error.code, message=error.message)
            )
    response = CreateTopicsResponse(topics=answers)
    return decision.nothing(response) if request.validate_only else decision.result(response)


def _create(decision: Decision, topic: NewTopic) -> CreateTopicsResponse.Topic:
    validate_name(topic.name)
    if decision.image.topic(topic.name) is not None:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.name} exists already")
    if (other := decision.image.topics.colliding(topic.name)) is not None:
        told = f"topic {other}" if decision.context.sees(other) else "another one"
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {topic.name} collides with {told}: metric names do not tell . from _",
        )
    for name in sorted(topic.configs):
        validate_topic_config(name, topic.configs[name])
    validate_together(topic.configs)
    check_cleanup(topic.name, topic.configs)
    replicas = _assigned(decision, topic) if topic.assignments else _placed(decision, topic)
    topic_id = _new_topic_id(decision)
    decision.extend_asked(_records(decision, topic, topic_id, replicas))
    return CreateTopicsResponse.Topic(
        name=topic.name,
        topic_id=topic_id,
        partitions=len(replicas),
        replication_factor=len(replicas[0]),
    )


def _records(
    decision: Decision, topic: NewTopic, topic_id: bytes, replicas: Sequence[tuple[int, ...]]
) -> list[pb.MetadataRecord]:
    records = [pb.MetadataRecord(topic=pb.TopicRecord(name=topic.name, topic_id=topic_id))]
    for name in sorted(topic.configs):
        config = pb.ConfigRecord(
            resource_type=pb.ConfigResourceType.TOPIC,
            resource_name=topic.name,
            name=name,
            value=topic.configs[name],
        )
        records.append(pb.MetadataRecord(config=config))
    # A new partition is empty, so all its replicas have everything, and only liveness and free disk
    # space matter.
    rules = Rules(
        decision.image.is_active,
        min_insync_replicas=1,
        unclean_allowed=False,
        has_room=decision.image.has_room,
    )
    for number, assignment in enumerate(replicas):
        record = new_partition(topic_id, number, assignment, rules)
        if record is None:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"all replicas of partition {number} would be on fenced brokers",
            )
        records.append(record)
    return records


def _placed(decision: Decision, topic: NewTopic) -> list[tuple[int, ...]]:
    image, static = decision.image, decision.context.static
    partitions, factor = topic.partitions, topic.replication_factor
    if partitions == -1:
        partitions = cluster_int(image, NUM_PARTITIONS, static)
    if factor == -1:
        factor = cluster_int(image, DEFAULT_REPLICATION_FACTOR, static)
    if partitions < 1:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions: at least 1 is needed"
        )
    decision.check_records(partitions + len(topic.configs) + 1)
    placer = StripedPlacer(image.sorted_brokers(), decision.context.rng)
    return [placer.place(factor) for _ in range(partitions)]


def _assigned(decision: Decision, topic: NewTopic) -> list[tuple[int, ...]]:
    """The replicas of each partition as the request assigns them. Raises ApiError."""
    if topic.partitions != -1 or topic.replication_factor != -1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "with assignments, partitions and replication factor must both be -1",
        )
    given: dict[int, tuple[int, ...]] = {}
    for assignment in topic.assignments:
        if assignment.partition in given:
            raise _bad_assignment(f"partition {assignment.partition} is assigned twice")
        given[assignment.partition] = tuple(assignment.replicas)
    if sorted(given) != list(range(len(given))):
        raise _bad_assignment("partitions must be numbered from 0 without gaps")
    assignments = [given[number] for number in range(len(given))]
    for number, replicas in enumerate(assignments):
        if not replicas or len(replicas) != len(assignments[0]):
            raise _bad_assignment("all partitions must have the same number of replicas, 1 or more")
        check_assigned(decision.image, number, replicas)
    decision.check_records(len(assignments) + len(topic.configs) + 1)
    return assignments


def _bad_assignment(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _new_topic_id(decision: Decision) -> bytes:
    """16 random bytes that no topic has. Kafka reserves 0 and 1."""
    while True:
        topic_id = decision.context.rng.randbytes(TOPIC_ID_BYTES)
        if int.from_bytes(topic_id, "big") > 1 and decision.image.topic_by_id(topic_id) is None:
            return topic_id


# ---------------------------------------------------------------------------------- deletion


def delete_topics(
    context: Context, request: DeleteTopicsRequest
) -> ControllerResult[DeleteTopicsResponse]:
    """Delete topics by name or id, each on its own, together with their configurations.

    Raises ApiError POLICY_VIOLATION for a request of too many topics.
    """
    check_size(len(request.names) + len(request.topic_ids), "topics")
    decision = Decision(context)
    answers = []
    for name in request.names:
        try:
            answers.append(_delete_named(decision, name))
        except ApiError as error:
            answers.append(Deleted(name=name, error=error.code, message=error.message))
    for topic_id in request.topic_ids:
        try:
            answers.append(_delete_by_id(decision, topic_id))
        except ApiError as error:
            answers.append(Deleted(topic_id=topic_id, error=error.code, message=error.message))
    return decision.result(DeleteTopicsResponse(topics=answers))


def _delete_named(decision: Decision, name: str) -> Deleted:
    check_stays(name, "be deleted")
    topic = decision.image.topic(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    return _delete(decision, topic)


def _delete_by_id(decision: Decision, topic_id: bytes) -> Deleted:
    topic = decision.image.topic_by_id(topic_id)
    if topic is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {encode_uuid(topic_id)}"
        )
    check_stays(topic.name, "be deleted")
    return _delete(decision, topic)


def _delete(decision: Decision, topic: Topic) -> Deleted:
    decision.add(pb.MetadataRecord(remove_topic=pb.RemoveTopicRecord(topic_id=topic.topic_id)))
    return Deleted(name=topic.name, topic_id=topic.topic_id)
