"""Elections of partition leaders: on request, after a takeover, and for preferred replicas."""

from __future__ import annotations

from controller.machine import RECORDS_MAX, Context, ControllerResult, Decision, check_size
from controller.partitions import (
    Election,
    RulesByTopic,
    change,
    changes,
    is_leaderless,
    prefers_another,
)
from metadata.partitions import NO_LEADER, PartitionState, changed_state
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.wire.v1 import metadata_pb2 as pb
from stele.wire.v1.admin_pb2 import ElectLeadersRequest, ElectLeadersResponse

ElectionAnswer = ElectLeadersResponse.Partition


def elect_leaders(
    context: Context, request: ElectLeadersRequest
) -> ControllerResult[ElectLeadersResponse]:
    """Elect the preferred leader, or (``unclean``) any live replica of a partition without a
    leader.

    A request that names no partitions means all of them. The reply then leaves out partitions that
    need no election. Raises ApiError POLICY_VIOLATION for a request of too many partitions.
    """
    check_size(len(request.partitions), "partitions")
    asked = _Elections(context, Election.UNCLEAN if request.unclean else Election.PREFERRED)
    if request.partitions:
        answers = [asked.elect(each.topic, each.partition) for each in request.partitions]
    else:
        answers = [
            asked.elect(topic.name, number)
            for topic, number, state in context.image.sorted_partitions()
            if asked.needs(state)
        ]
    decision = Decision(context)
    decision.extend(asked.records)
    return decision.result(ElectLeadersResponse(partitions=answers))


class _Elections:
    """The elections of one request. Each sees the decisions of those before it, since a request may
    name a partition twice."""

    def __init__(self, context: Context, election: Election) -> None:
        self._context = context
        self._election = election
        self._rules = RulesByTopic(context.image, context.static)
        self._decided: dict[PartitionId, PartitionState] = {}
        self.records: list[pb.MetadataRecord] = []

    def needs(self, state: PartitionState) -> bool:
        """Whether the partition has no leader, or in a preferred election another one."""
        if self._election is Election.UNCLEAN:
            return state.leader == NO_LEADER
        return state.leader != state.preferred_leader

    def elect(self, topic_name: str, number: int) -> ElectionAnswer:
        answer = ElectionAnswer(topic=topic_name, partition=number)
        try:
            self._elect(topic_name, number)
        except ApiError as error:
            answer.error, answer.message = error.code, error.message
        return answer

    def _elect(self, topic_name: str, number: int) -> None:
        topic = self._context.image.topic(topic_name)
        if topic is None or not 0 <= number < len(topic.partitions):
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no partition {topic_name}-{number}",
            )
        key = PartitionId(topic.topic_id, number)
        state = self._decided.get(key, topic.partitions[number])
        if not self.needs(state):
            raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {state.leader} leads it")
        if len(self.records) == RECORDS_MAX:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"more than {RECORDS_MAX} elections in one request: repeat the request for "
                "this one",
            )
        record = change(key, state, self._rules.of(topic_name), election=self._election)
        if record is not None:
            self.records.append(record)
            state = self._decided[key] = changed_state(state, record.partition_change)
        if state.leader == NO_LEADER or (
            self._election is Election.PREFERRED and state.leader != state.preferred_leader
        ):
            refusal = (
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
                if self._election is Election.UNCLEAN
                else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            )
            raise ApiError(refusal, f"replicas {list(state.replicas)}, ISR {list(state.isr)}")


def elect_leaderless(context: Context) -> ControllerResult[int]:
    """Elect leaders for partitions without one, where possible. The reply counts the changes.

    Every change that makes an election possible also elects. A controller that takes over calls
    this in case an earlier controller decided by other rules.
    """
    decision = Decision(context)
    decision.extend(changes(context.image, context.static, is_leaderless))
    return decision.result(decision.next_offset - context.next_offset)


def rebalance(context: Context, *, percentage: int) -> ControllerResult[int]:
    """Elect preferred leaders for brokers that lead too few of the partitions that prefer them.

    ``percentage``: the share of such partitions that other brokers may lead
    (leader.imbalance.per.broker.percentage). The reply counts the changed partitions.
    """
    decision = Decision(context)
    preferred: dict[int, int] = {}
    elsewhere: dict[int, int] = {}
    for _, _, state in context.image.sorted_partitions():
        broker_id = state.preferred_leader
        preferred[broker_id] = preferred.get(broker_id, 0) + 1
        if state.leader != broker_id:
            elsewhere[broker_id] = elsewhere.get(broker_id, 0) + 1
    unbalanced = {
        broker_id
        for broker_id, count in elsewhere.items()
        if 100 * count > percentage * preferred[broker_id]
    }
    records = changes(
        context.image,
        context.static,
        lambda state: prefers_another(state) and state.preferred_leader in unbalanced,
        election=Election.PREFERRED,
    )
    decision.extend(records[:RECORDS_MAX])
    return decision.result(len(records[:RECORDS_MAX]))
