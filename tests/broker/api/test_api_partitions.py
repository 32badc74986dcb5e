"""CreatePartitions, ElectLeaders and UnregisterBroker."""

from __future__ import annotations

import pytest

from stele.errors import ErrorCode
from stele.wire.kafka.messages import create_partitions as creating
from stele.wire.kafka.messages import elect_leaders as electing
from stele.wire.kafka.messages import unregister_broker as unregistering
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.broker_apis import Edges
from tests.support.worlds import virtual

PREFERRED, UNCLEAN = 0, 1


def _topic(
    name: str, count: int, assignments: list[list[int]] | None = None
) -> creating.CreatePartitionsTopic:
    assigned = None
    if assignments is not None:
        assigned = [creating.CreatePartitionsAssignment(each) for each in assignments]
    return creating.CreatePartitionsTopic(name, count, assigned)


@pytest.mark.parametrize("version", range(4))
@virtual
async def test_partitions_are_added(version: int) -> None:
    edges = Edges()
    edges.add_topic("a", [[1, 2]])
    edges.add_topic("b", [[1]])
    client = edges.client()

    async def create(
        *topics: creating.CreatePartitionsTopic, validate_only: bool = False
    ) -> list[tuple[str, int, bool]]:
        request = creating.CreatePartitionsRequest(list(topics), 5000, validate_only)
        answer = await client.call(creating.API, version, request)
        return [(each.name, each.error_code, bool(each.error_message)) for each in answer.results]

    def replicas(name: str) -> list[tuple[int, ...]]:
        topic = edges.publisher.image.topic(name)
        assert topic is not None
        return [each.replicas for each in topic.partitions]

    good = [("a", ErrorCode.NONE, False)]
    assert await create(_topic("a", 3), validate_only=True) == good
    assert replicas("a") == [(1, 2)]
    assert await create(_topic("a", 3, [[3, 1], [2, 3]])) == good
    assert replicas("a") == [(1, 2), (3, 1), (2, 3)]
    assert await create(_topic("a", 5), _topic("x", 2), _topic("b", 1), _topic("b", 2)) == [
        ("a", ErrorCode.NONE, False),
        ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        ("b", ErrorCode.INVALID_REQUEST, True),
    ]
    assert [len(each) for each in replicas("a")] == [2] * 5
    assert len(replicas("b")) == 1
    bad = [("b", ErrorCode.INVALID_REPLICA_ASSIGNMENT, True)]
    assert await create(_topic("b", 2, [])) == bad, "no assignments are not null"
    assert await create(_topic("b", 1)) == [("b", ErrorCode.INVALID_PARTITIONS, True)]


@pytest.mark.parametrize("version", range(3))
@virtual
async def test_elections(version: int) -> None:
    edges = Edges()
    edges.add_topic("a", [[1, 2], [2, 1], [3, 1]], leaders=[2, 2, -1])
    client = edges.client()

    async def elect(
        partitions: dict[str, list[int]] | None, kind: int = PREFERRED
    ) -> dict[tuple[str, int], int]:
        named = None
        if partitions is not None:
            named = [electing.TopicPartitions(*each) for each in partitions.items()]
        request = electing.ElectLeadersRequest(kind, named, 5000)
        answer = await client.call(electing.API, version, request)
        assert answer.error_code == ErrorCode.NONE
        for topic in answer.replica_election_results:
            for each in topic.partition_result:
                assert bool(each.error_message) == bool(each.error_code), each
        return {
            (topic.topic, each.partition_id): each.error_code
            for topic in answer.replica_election_results
            for each in topic.partition_result
        }

    assert await elect({}) == {}, "none is not all"
    assert await elect({"a": [0, 1, 7], "x": [0]}) == {
        ("a", 0): ErrorCode.NONE,
        ("a", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("a", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("x", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert await elect(None) == {("a", 2): ErrorCode.NONE}
    assert await elect(None) == {}
    topic = edges.publisher.image.topic("a")
    assert topic is not None
    assert [each.leader for each in topic.partitions] == [1, 2, 3]


@virtual
async def test_an_unclean_election_is_recorded_and_other_kinds_are_refused() -> None:
    edges = Edges()
    edges.add_topic("a", [[2, 1]])
    edges.register(2, fenced=True)
    nodes = pb.PartitionChangeRecord.Nodes(ids=[2])
    topic = edges.publisher.image.topic("a")
    assert topic is not None
    change = pb.PartitionChangeRecord(topic_id=topic.topic_id, partition=0, isr=nodes, leader=-1)
    edges.commit(pb.MetadataRecord(partition_change=change))
    client = edges.client()

    async def elect(kind: int) -> tuple[int, list[int]]:
        named = [electing.TopicPartitions("a", [0])]
        request = electing.ElectLeadersRequest(kind, named, 5000)
        answer = await client.call(electing.API, 2, request)
        (results,) = answer.replica_election_results
        return answer.error_code, [each.error_code for each in results.partition_result]

    gone = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert await elect(PREFERRED) == (ErrorCode.NONE, [gone])
    assert (await elect(2))[0] == ErrorCode.INVALID_REQUEST
    assert await elect(UNCLEAN) == (ErrorCode.NONE, [ErrorCode.NONE])
    state = edges.publisher.image.partition(topic.topic_id, 0)
    assert state is not None
    assert (state.leader, state.unclean_elections) == (1, 1)
    assert await elect(UNCLEAN) == (ErrorCode.NONE, [ErrorCode.ELECTION_NOT_NEEDED])


@virtual
async def test_a_broker_is_unregistered() -> None:
    edges = Edges()
    client = edges.client()

    async def unregister(broker_id: int) -> int:
        request = unregistering.UnregisterBrokerRequest(broker_id)
        answer = await client.call(unregistering.API, 0, request)
        assert bool(answer.error_message) == bool(answer.error_code)
        return answer.error_code

    assert await unregister(9) == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert await unregister(3) == ErrorCode.INVALID_REQUEST, "it is alive"
    edges.register(3, fenced=True)
    assert await unregister(3) == ErrorCode.NONE
    assert edges.publisher.image.broker(3) is None
    edges.controller.refuse_with = ErrorCode.NOT_CONTROLLER
    assert await unregister(2) == ErrorCode.REQUEST_TIMED_OUT
