"""CreatePartitions: more partitions for existing topics (KIP-195)."""

from __future__ import annotations

from collections import Counter

from controller.machine import Context, ControllerResult, Decision, check_size
from controller.partitions import Rules, new_partition
from controller.placement import StripedPlacer, check_assigned
from metadata.internal_topics import check_stays
from metadata.topics import Topic
from stele.errors import ApiError, ErrorCode
from stele.wire.v1.admin_pb2 import CreatePartitionsRequest, CreatePartitionsResponse

Wish = CreatePartitionsRequest.Topic
CountAnswer = CreatePartitionsResponse.Topic


def create_partitions(
    context: Context, request: CreatePartitionsRequest
) -> ControllerResult[CreatePartitionsResponse]:
    """Add partitions. Each topic is decided on its own, so a refusal does not affect the others.

    Raises ApiError POLICY_VIOLATION for a request of too many topics.
    """
    check_size(len(request.topics), "topics")
    decision = Decision(context)
    named = Counter(wish.name for wish in request.topics)
    answers = []
    for wish in request.topics:
        answer = CountAnswer(name=wish.name)
        try:
            if named[wish.name] > 1:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"the request names topic {wish.name} twice"
                )
            answer.partitions = _grow(decision, wish)
        except ApiError as error:
            answer.error, answer.message = error.code, error.message
        answers.append(answer)
    response = CreatePartitionsResponse(topics=answers)
    return decision.nothing(response) if request.validate_only else decision.result(response)


def _grow(decision: Decision, wish: Wish) -> int:
    """The number of partitions that are added."""
    check_stays(wish.name, "get more partitions")
    topic = decision.image.topic(wish.name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {wish.name}")
    before = len(topic.partitions)
    if wish.count <= before:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name} has {before} partitions: {wish.count} would not be more",
        )
    added = wish.count - before
    decision.check_records(added)
    # A new partition is empty, so all its replicas have everything, and only liveness matters.
    rules = Rules(decision.image.is_active, min_insync_replicas=1, unclean_allowed=False)
    records = []
    for number, replicas in enumerate(_replicas(decision, topic, wish), before):
        record = new_partition(topic.topic_id, number, replicas, rules)
        if record is None:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"all replicas of partition {number} would be on fenced brokers",
            )
        records.append(record)
    decision.extend_asked(records)
    return added


def _replicas(decision: Decision, topic: Topic, wish: Wish) -> list[tuple[int, ...]]:
    """The replicas of each new partition, as many as the topic's first partition has."""
    factor = topic.partitions[0].replication_factor
    added = wish.count - len(topic.partitions)
    if not wish.HasField("assignments"):
        placer = StripedPlacer(decision.image.sorted_brokers(), decision.context.rng)
        return [placer.place(factor) for _ in range(added)]
    given = [tuple(each.ids) for each in wish.assignments.partitions]
    if len(given) != added:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"topic {topic.name} would get {added} new partitions, and {len(given)} are assigned",
        )
    for number, replicas in enumerate(given, len(topic.partitions)):
        if len(replicas) != factor:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partition {number} is assigned {len(replicas)} replicas, and those of topic "
                f"{topic.name} have {factor}",
            )
        check_assigned(decision.image, number, replicas)
    return given
