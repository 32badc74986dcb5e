"""AssignReplicasToDirectories: a broker reports the directories of its replicas (KIP-858)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from controller import cluster
from controller.machine import Context, ControllerResult, Decision, check_size
from controller.partitions import NOBODY, RulesByTopic, change
from metadata.directories import REPLICA_DIRECTORIES
from metadata.features import require
from metadata.partitions import PartitionState, changed_state
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId, encode_uuid
from stele.wire.v1 import metadata_pb2 as pb
from stele.wire.v1.controller_pb2 import (
    AssignReplicasToDirectoriesRequest,
    AssignReplicasToDirectoriesResponse,
    PartitionReference,
)

Refusal = AssignReplicasToDirectoriesResponse.Refusal


def assign_replicas(
    context: Context, request: AssignReplicasToDirectoriesRequest
) -> ControllerResult[AssignReplicasToDirectoriesResponse]:
    """Put replicas into directories. A replica in an offline directory leaves the ISR. A replica
    that is in none any more may be elected again.

    Raises ApiError for the request as a whole: STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED,
    UNSUPPORTED_VERSION, POLICY_VIOLATION for too many replicas, and INVALID_REQUEST for a directory
    that the broker's registration does not have.
    """
    registration = cluster.current(context, request)
    require(context.image, REPLICA_DIRECTORIES, "to tell the directories of replicas")
    check_size(sum(len(each.replicas) for each in request.directories), "replicas")
    for each in request.directories:
        if each.directory_id not in registration.log_directories:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"broker {request.broker_id} has not registered a log directory"
                f" {encode_uuid(each.directory_id)}",
            )
    assignments = _Assignments(context, request.broker_id)
    refusals = [
        refusal
        for each in request.directories
        for refusal in assignments.put(each.directory_id, each.replicas)
    ]
    decision = Decision(context)
    decision.extend(assignments.records)
    return decision.result(AssignReplicasToDirectoriesResponse(refusals=refusals))


class _Assignments:
    """The assignments of one request. Each sees those before it, since a request may name a replica
    twice."""

    def __init__(self, context: Context, broker_id: int) -> None:
        self._image = context.image
        self._broker_id = broker_id
        self._rules = RulesByTopic(context.image, context.static)
        self._decided: dict[PartitionId, PartitionState] = {}
        self.records: list[pb.MetadataRecord] = []

    def put(self, directory_id: bytes, replicas: Iterable[PartitionReference]) -> Iterator[Refusal]:
        """Put replicas into a directory of the broker. The result says which are none of it."""
        online = self._image.has_online(self._broker_id, directory_id)
        leaving = NOBODY if online else frozenset({self._broker_id})
        for each in replicas:
            topic = self._image.topic_by_id(each.topic_id)
            key = PartitionId(each.topic_id, each.partition)
            state = self._decided.get(key) or self._image.partition(*key)
            if topic is None:
                yield _refused(each, ErrorCode.UNKNOWN_TOPIC_ID, "there is no such topic")
            elif state is None:
                why = f"topic {topic.name} has no partition {each.partition}"
                yield _refused(each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
            elif self._broker_id not in state.replicas:
                why = f"broker {self._broker_id} has no replica of {topic.name}-{each.partition}"
                yield _refused(each, ErrorCode.NOT_LEADER_OR_FOLLOWER, why)
            else:
                record = change(
                    key,
                    state,
                    self._rules.of(topic.name),
                    leaving=leaving,
                    directories=state.directories_with(self._broker_id, directory_id),
                )
                if record is not None:
                    self.records.append(record)
                    self._decided[key] = changed_state(state, record.partition_change)


def _refused(replica: PartitionReference, error: ErrorCode, message: str) -> Refusal:
    return Refusal(
        topic_id=replica.topic_id, partition=replica.partition, error=error, message=message
    )
