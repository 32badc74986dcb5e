"""AlterReplicaLogDirs, DescribeLogDirs, DescribeProducers, DescribeQuorum and
DescribeTopicPartitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.replication.descriptions import DirectoryDescription, ReplicaSize
from stele.errors import ErrorCode
from stele.ids import PartitionId, TopicPartition
from stele.wire.kafka.messages import alter_replica_log_dirs as alter_log_dirs
from stele.wire.kafka.messages import describe_log_dirs as log_dirs
from stele.wire.kafka.messages import describe_producers as producers
from stele.wire.kafka.messages import describe_quorum as quorum
from stele.wire.kafka.messages import describe_topic_partitions as topics
from storage.producer_state import AppendedBatch, ProducerEntry
from tests.support.broker_apis import Edges, topic_id
from tests.support.worlds import virtual


@pytest.mark.parametrize("version", range(1, 5))
@virtual
async def test_log_directories(version: int) -> None:
    edges = Edges()
    edges.replicas.descriptions.answer = [
        DirectoryDescription(
            "/data/a",
            total_bytes=1000,
            usable_bytes=400,
            replicas=[
                ReplicaSize("a", 0, 10, 0),
                ReplicaSize("b", 0, 30, 5),
                ReplicaSize("a", 1, 20, 0, is_future=True),
            ],
        ),
        DirectoryDescription("/data/b", ErrorCode.KAFKA_STORAGE_ERROR),
    ]
    client = edges.client()
    named = [log_dirs.DescribableLogDirTopic("a", [0, 1]), log_dirs.DescribableLogDirTopic("b")]
    answer = await client.call(log_dirs.API, version, log_dirs.DescribeLogDirsRequest(named))
    await client.call(log_dirs.API, version, log_dirs.DescribeLogDirsRequest(None))
    await client.call(log_dirs.API, version, log_dirs.DescribeLogDirsRequest([]))
    assert edges.replicas.descriptions.described == [{("a", 0), ("a", 1)}, None, set()]
    good, offline = answer.results
    assert (good.log_dir, good.error_code) == ("/data/a", ErrorCode.NONE)
    assert (good.total_bytes, good.usable_bytes) == ((1000, 400) if version >= 4 else (-1, -1))
    assert {
        (topic.name, each.partition_index): (
            each.partition_size,
            each.offset_lag,
            each.is_future_key,
        )
        for topic in good.topics
        for each in topic.partitions
    } == {("a", 0): (10, 0, False), ("a", 1): (20, 0, True), ("b", 0): (30, 5, False)}
    assert (offline.error_code, offline.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])


@pytest.mark.parametrize("version", range(1, 3))
@virtual
async def test_directories_that_replicas_are_to_be_in(version: int) -> None:
    edges = Edges()
    request = alter_log_dirs.AlterReplicaLogDirsRequest(
        [
            alter_log_dirs.AlterReplicaLogDir(
                path, [alter_log_dirs.AlterReplicaLogDirTopic(*each) for each in topics]
            )
            for path, topics in (
                ("/data/a", [("a", [0, 1]), ("b", [0])]),
                ("/data/b", [("a", [1])]),
                ("/elsewhere", [("c", [0])]),
            )
        ]
    )
    answer = await edges.client().call(alter_log_dirs.API, version, request)
    assert edges.replicas.moves.wanted == {
        TopicPartition("a", 0): "/data/a",
        TopicPartition("a", 1): "/data/b",
        TopicPartition("b", 0): "/data/a",
        TopicPartition("c", 0): "/elsewhere",
    }
    assert [
        (
            topic.topic_name,
            [(each.partition_index, each.error_code) for each in topic.partitions],
        )
        for topic in answer.results
    ] == [
        ("a", [(0, ErrorCode.NONE), (1, ErrorCode.NONE)]),
        ("b", [(0, ErrorCode.NONE)]),
        ("c", [(0, ErrorCode.LOG_DIR_NOT_FOUND)]),
    ]


@virtual
async def test_producers() -> None:
    edges = Edges()
    edges.add_topic("a", [[1], [2]])
    batch = AppendedBatch(0, 4, 10, 14, 1000)
    edges.replicas.descriptions.known[PartitionId(topic_id("a"), 0)] = [
        ProducerEntry(7, 2, (batch,), last_append_ms=1000)
    ]
    request = producers.DescribeProducersRequest(
        [producers.TopicRequest("a", [0, 1, 5]), producers.TopicRequest("x", [0])]
    )
    known, unknown = (await edges.client().call(producers.API, 0, request)).topics
    assert [each.error_code for each in known.partitions] == [
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    (state,) = known.partitions[0].active_producers
    assert (state.producer_id, state.producer_epoch) == (7, 2)
    assert (state.last_sequence, state.last_timestamp) == (4, 1000)
    assert state.current_txn_start_offset == -1
    assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@virtual
async def test_the_answer_has_a_leaders_producer_with_its_batches() -> None:
    edges = Edges()
    edges.add_topic("a", [[1], [2]])
    batches = (AppendedBatch(0, 4, 10, 14, 1000), AppendedBatch(5, 5, 20, 20, 1001))
    edges.replicas.descriptions.known[PartitionId(topic_id("a"), 0)] = [
        ProducerEntry(7, 0, batches, last_append_ms=1001),
        ProducerEntry(8, 0, (), last_append_ms=1000),
    ]

    async def one(producer_id: int, *numbers: int) -> list[producers.PartitionResponse]:
        topic = producers.TopicRequest("", list(numbers), topic_id=topic_id("a"))
        request = producers.DescribeProducersRequest([topic], producer_id)
        (told,) = (await edges.client().call(producers.API, 0, request)).topics
        return told.partitions

    (known,) = await one(7, 0)
    assert known.high_watermark >= 0
    (state,) = known.active_producers
    told = [(each.base_sequence, each.last_sequence, each.base_offset) for each in state.batches]
    assert told == [(0, 4, 10), (5, 5, 20)]
    (unknown,) = await one(9, 0)
    assert (unknown.error_code, unknown.active_producers) == (ErrorCode.NONE, [])
    assert unknown.high_watermark >= 0
    assert [each.error_code for each in await one(7, 1)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert [each.error_code for each in await one(7, 0, 1)] == [ErrorCode.INVALID_REQUEST] * 2


def _metadata_log(*partitions: int, topic: str = "__cluster_metadata") -> quorum.TopicRequest:
    return quorum.TopicRequest(topic, [quorum.PartitionRequest(each) for each in partitions])


@pytest.mark.parametrize("version", range(3))
@virtual
async def test_the_quorum(version: int) -> None:
    edges = Edges()
    client = edges.client()
    request = quorum.DescribeQuorumRequest([_metadata_log(0)])
    answer = await client.call(quorum.API, version, request)
    assert answer.error_code == ErrorCode.NONE
    ((partition,),) = [topic.partitions for topic in answer.topics]
    assert (partition.leader_id, partition.leader_epoch) == (100, 7)
    assert partition.high_watermark == 40
    ((voter,), (observer,)) = partition.current_voters, partition.observers
    assert (voter.replica_id, voter.log_end_offset) == (100, 42)
    assert (observer.replica_id, observer.last_fetch_timestamp) == (1, -1)
    assert voter.last_fetch_timestamp == (1000 if version >= 1 else -1)
    assert voter.replica_directory_id == (b"d" * 16 if version >= 2 else bytes(16))
    assert [
        (node.node_id, each.name, each.host, each.port)
        for node in answer.nodes
        for each in node.listeners
    ] == ([(100, "CONTROLLER", "::1", 9093)] if version >= 2 else [])


@pytest.mark.parametrize(
    "asked", [[], [_metadata_log(1)], [_metadata_log(0, topic="a")], [_metadata_log(0, 1)]]
)
@virtual
async def test_there_is_no_other_quorum(asked: list[quorum.TopicRequest]) -> None:
    answer = await Edges().client().call(quorum.API, 2, quorum.DescribeQuorumRequest(asked))
    errors = [each.error_code for topic in answer.topics for each in topic.partitions]
    wanted = sum(len(topic.partitions) for topic in asked)
    assert errors == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * wanted


@virtual
async def test_no_leader_of_the_quorum_answers() -> None:
    edges = Edges()
    edges.controller.refuse_with = ErrorCode.NOT_CONTROLLER
    request = quorum.DescribeQuorumRequest([_metadata_log(0)])
    answer = await edges.client().call(quorum.API, 2, request)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT


@given(
    counts=st.lists(st.integers(1, 5), max_size=4),
    limit=st.integers(0, 7),
    configured=st.integers(1, 7),
    all_of_them=st.booleans(),
)
@virtual
async def test_topics_come_in_pages(
    counts: list[int], limit: int, configured: int, all_of_them: bool
) -> None:
    edges = Edges(max_request_partition_size_limit=str(configured))
    names = [f"t{number}" for number in range(len(counts))]
    for name, count in zip(names, counts, strict=True):
        edges.add_topic(name, [[2, 3]] * count)
    asked = [] if all_of_them else [topics.TopicRequest(each) for each in [*names, "t9", "?"]]
    client = edges.client()
    found: list[tuple[str | None, int]] = []
    failed: dict[str | None, int] = {}
    cursor: topics.Cursor | None = None
    while True:
        request = topics.DescribeTopicPartitionsRequest(asked, limit, cursor)
        page = await client.call(topics.API, 0, request)
        size = sum(len(topic.partitions) for topic in page.topics)
        assert size <= max(1, min(limit, configured))
        found += [(t.name, each.partition_index) for t in page.topics for each in t.partitions]
        failed |= {each.name: each.error_code for each in page.topics if each.error_code}
        cursor = page.next_cursor
        if cursor is None:
            break
        assert size > 0, "every page brings something"
    assert found == [
        (name, number) for name, count in zip(names, counts, strict=True) for number in range(count)
    ]
    assert failed == (
        {}
        if all_of_them
        else {
            "t9": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "?": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
    )


@virtual
async def test_a_page_tells_replicas_and_refuses_a_bad_cursor() -> None:
    edges = Edges()
    edges.add_topic("a", [[2, 3]])
    edges.register(3, fenced=True)
    client = edges.client()
    request = topics.DescribeTopicPartitionsRequest([topics.TopicRequest("a")])
    (topic,) = (await client.call(topics.API, 0, request)).topics
    (partition,) = topic.partitions
    assert topic.topic_id == topic_id("a")
    assert (partition.leader_id, partition.leader_epoch) == (2, 5)
    assert (partition.replica_nodes, partition.isr_nodes) == ([2, 3], [2, 3])
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])
    assert partition.offline_replicas == [3]
    request.cursor = topics.Cursor("a", -1)
    (topic,) = (await client.call(topics.API, 0, request)).topics
    assert topic.error_code == ErrorCode.INVALID_REQUEST
