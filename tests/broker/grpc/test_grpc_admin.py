"""stele.v1.Admin on a broker."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.message import Message

from broker.grpc.admin import AdminService
from broker.replication.deletion import Deletion
from metadata.records import METADATA_VERSION_LEVEL, encode
from metadata.scram_credentials import ScramUser, credential_record, secret_record
from raft.api import CommittedBatch, LeaderAndEpoch
from raft.messages import SnapshotId
from runtime.authorization.authorizer import CLUSTER, Operation
from runtime.quorum.snapshots import Snapshot
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.security.scram import ScramCredential
from stele.wire.kafka.messages import describe_user_scram_credentials
from stele.wire.v1 import admin_pb2 as pb
from stele.wire.v1 import metadata_pb2
from stele.wire.v1.controller_pb2 import ReadIndexResponse
from stele.wire.v1.raft_pb2 import DescribeQuorumRequest, DescribeQuorumResponse
from stele.world import RpcCode, RpcError
from tests.support.broker_apis import CONTROLLER, Edges, topic_id
from tests.support.broker_edges import PEER
from tests.support.timing import run_virtual
from tests.support.worlds import virtual
from world.network import Peer


def metadata_version(level: int) -> metadata_pb2.MetadataRecord:
    record = metadata_pb2.FeatureLevelRecord(name="metadata.version", level=level)
    return metadata_pb2.MetadataRecord(feature_level=record)


async def _call(edges: Edges, method: str, request: Message, answer: Any) -> Any:
    service = AdminService(edges.context, "EXTERNAL").service()
    return answer.FromString(
        await service.unary[f"/stele.v1.Admin/{method}"](request.SerializeToString(), PEER)
    )


def test_changes_go_to_the_controller() -> None:
    async def main() -> None:
        edges = Edges()
        request = pb.CreateTopicsRequest(
            topics=[pb.NewTopic(name="a", partitions=3)], request_id=b"i" * 16
        )
        created = await _call(edges, "CreateTopics", request, pb.CreateTopicsResponse)
        assert created.topics[0].topic_id == topic_id("a")
        assert edges.controller.created == [request]


@virtual
async def test_a_large_change_is_several_decisions_and_one_answer() -> None:
    """As by Kafka's protocol. The answer comes when this broker knows what was made."""
    edges = Edges()
    names = [f"t{number}" for number in range(150)]
    request = pb.CreateTopicsRequest(topics=[pb.NewTopic(name=name) for name in names])
    request.request_id = b"i" * 16
    answer = await _call(edges, "CreateTopics", request, pb.CreateTopicsResponse)
    assert [(each.name, each.error) for each in answer.topics] == [(name, 0) for name in names]
    assert all(edges.publisher.image.topic(name) for name in names)
    created = edges.controller.created
    assert [len(each.topics) for each in created] == [64, 64, 22]
    assert created[0].request_id == request.request_id
    assert len({each.request_id for each in created}) == 3


def moves(count: int) -> pb.AlterPartitionReassignmentsRequest:
    request = pb.AlterPartitionReassignmentsRequest(request_id=b"i" * 16)
    for number in range(count):
        request.partitions.add(topic="a", partition=number).target.ids.append(2)
    return request


@virtual
async def test_the_items_of_a_refused_part_get_its_error() -> None:
    edges = Edges()
    edges.controller.refuses_moves_after = 1
    method, kind = "AlterPartitionReassignments", pb.AlterPartitionReassignmentsResponse
    answer = await _call(edges, method, moves(700), kind)
    errors = [each.error for each in answer.partitions]
    assert (answer.error, errors) == (0, [0] * 500 + [ErrorCode.POLICY_VIOLATION] * 200)


@pytest.mark.parametrize("is_answered", [True, False])
@virtual
async def test_a_large_change_that_is_cut_short_has_an_unknown_outcome(
    *, is_answered: bool
) -> None:
    """Its sender repeats it, and the parts that were done are done once."""
    edges = Edges()
    method, kind = "AlterPartitionReassignments", pb.AlterPartitionReassignmentsResponse
    path = f"/stele.v1.Admin/{method}"
    move = edges.network.services[CONTROLLER].unary[path]

    async def first_only(payload: bytes, peer: Peer) -> bytes:
        if edges.controller.moved:
            if not is_answered:
                raise RpcError(RpcCode.UNAVAILABLE, "it is gone")
            refusal = kind(error=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            return bytes(refusal.SerializeToString())
        return await move(payload, peer)

    edges.network.services[CONTROLLER].unary[path] = first_only
    answer = await _call(edges, method, moves(700), kind)
    assert answer.error == ErrorCode.REQUEST_TIMED_OUT
    assert (b"i" * 16).hex() in answer.message
    assert "nothing was done" not in answer.message.split(":")[0]
    edges.network.services[CONTROLLER].unary[path] = move
    answer = await _call(edges, method, moves(700), kind)
    assert [each.error for each in answer.partitions] == [0] * 700
    ids = [each.request_id for each in edges.controller.moved]
    assert ids[0] == ids[1] != ids[2]


@virtual
async def test_too_many_items_are_refused_before_the_controller_is_asked() -> None:
    edges = Edges()
    request = pb.DeleteTopicsRequest(names=[f"t{number}" for number in range(10_001)])
    answer = await _call(edges, "DeleteTopics", request, pb.DeleteTopicsResponse)
    assert answer.error == ErrorCode.POLICY_VIOLATION
    assert edges.controller.deleted == []


def test_a_change_without_a_request_id_gets_one_for_all_attempts() -> None:
    async def main() -> None:
        edges = Edges()
        edges.commit(metadata_version(2))
        ids: list[bytes] = []

        async def create(payload: bytes, _: Peer) -> bytes:
            ids.append(pb.CreateTopicsRequest.FromString(payload).request_id)
            lost = len(ids) < 3  # the leader lost its leadership, twice
            error = ErrorCode.REQUEST_TIMED_OUT if lost else ErrorCode.NONE
            return pb.CreateTopicsResponse(error=error).SerializeToString()

        edges.network.services[CONTROLLER].unary["/stele.v1.Admin/CreateTopics"] = create
        request = pb.CreateTopicsRequest(topics=[pb.NewTopic(name="a")])
        answer = await _call(edges, "CreateTopics", request, pb.CreateTopicsResponse)
        assert answer.error == ErrorCode.NONE
        assert len(ids) == 3
        assert len({*ids}) == 1
        assert len(ids[0]) == 16

    run_virtual(main())


def test_an_outcome_that_stays_unknown_is_said_with_the_request_id() -> None:
    async def main() -> None:
        edges = Edges()

        async def create(payload: bytes, _: Peer) -> bytes:
            return pb.CreateTopicsResponse(error=ErrorCode.REQUEST_TIMED_OUT).SerializeToString()

        edges.network.services[CONTROLLER].unary["/stele.v1.Admin/CreateTopics"] = create
        request = pb.CreateTopicsRequest(topics=[pb.NewTopic(name="a")], request_id=b"i" * 16)
        for level in (1, 2):  # once outcomes are remembered the broker tries again by itself
            edges.commit(metadata_version(level))
            answer = await _call(edges, "CreateTopics", request, pb.CreateTopicsResponse)
            assert answer.error == ErrorCode.REQUEST_TIMED_OUT
            assert f"repeat the request with the id {(b'i' * 16).hex()}" in answer.message

    run_virtual(main())


def test_a_linearizable_read_waits_for_what_the_active_controller_has_committed() -> None:
    async def main() -> None:
        edges = Edges()
        offset = edges.publisher.offset + 2  # a topic and its partition

        async def read_index(payload: bytes, _: Peer) -> bytes:
            return ReadIndexResponse(metadata_offset=offset).SerializeToString()

        edges.network.services[CONTROLLER].unary["/stele.v1.Controller/ReadIndex"] = read_index
        asyncio.get_running_loop().call_later(0.5, edges.add_topic, "late", [[1]])
        edges.lease = False  # is not asked about: the controllers just have been
        request = pb.DescribeTopicsRequest(linearizable=True)
        answer = await _call(edges, "DescribeTopics", request, pb.DescribeTopicsResponse)
        assert [topic.name for topic in answer.topics] == ["late"]

    run_virtual(main())


def test_a_linearizable_read_is_refused_without_an_active_controller() -> None:
    async def main() -> None:
        edges = Edges()
        edges.network.services.clear()
        with pytest.raises(RpcError, match="ReadIndex found no active controller") as caught:
            await _call(
                edges,
                "DescribeTopics",
                pb.DescribeTopicsRequest(linearizable=True),
                pb.DescribeTopicsResponse,
            )
        assert caught.value.code is RpcCode.UNAVAILABLE

    run_virtual(main())


def test_features_are_described() -> None:
    async def main() -> None:
        edges = Edges()
        edges.commit(metadata_version(1))
        request = pb.DescribeFeaturesRequest()
        answer = await _call(edges, "DescribeFeatures", request, pb.DescribeFeaturesResponse)
        (feature,) = (each for each in answer.features if each.name == "metadata.version")
        assert (feature.name, feature.level) == ("metadata.version", 1)
        assert (feature.min_level, feature.max_level) == (1, METADATA_VERSION_LEVEL)
        edges.register(3, is_old=True)
        answer = await _call(edges, "DescribeFeatures", request, pb.DescribeFeaturesResponse)
        (feature,) = (each for each in answer.features if each.name == "metadata.version")
        assert (feature.min_level, feature.max_level) == (1, 1)
        assert [each.node_id for each in feature.brokers] == [1, 2, 3]

    run_virtual(main())

    run_virtual(main())


def test_describe_quorum_comes_from_the_leader() -> None:
    async def main() -> None:
        edges = Edges()

        async def describe(payload: bytes, _: Peer) -> bytes:
            return DescribeQuorumResponse(leader_id=100, high_watermark=33).SerializeToString()

        edges.network.services[CONTROLLER].unary["/stele.v1.Admin/DescribeQuorum"] = describe
        answer = await _call(
            edges, "DescribeQuorum", DescribeQuorumRequest(), DescribeQuorumResponse
        )
        assert (answer.leader_id, answer.high_watermark) == (100, 33)

    run_virtual(main())


def test_no_controller_at_all_is_a_definite_refusal() -> None:
    async def main() -> None:
        edges = Edges()
        edges.leader = LeaderAndEpoch(None, 1)
        answer = await _call(
            edges,
            "CreateTopics",
            pb.CreateTopicsRequest(topics=[pb.NewTopic(name="a")]),
            pb.CreateTopicsResponse,
        )
        assert answer.error == ErrorCode.NOT_CONTROLLER
        assert "no controller leads the quorum: nothing was done" in answer.message

    run_virtual(main())


def test_a_controller_that_cannot_be_asked_leaves_the_outcome_unknown() -> None:
    async def main() -> None:
        edges = Edges()
        edges.network.services.clear()
        answer = await _call(
            edges,
            "CreateTopics",
            pb.CreateTopicsRequest(topics=[pb.NewTopic(name="a")]),
            pb.CreateTopicsResponse,
        )
        assert answer.error == ErrorCode.REQUEST_TIMED_OUT
        assert "CreateTopics found no active controller" in answer.message

    run_virtual(main())


@pytest.mark.parametrize(
    "method",
    [
        "CreateTopics",
        "DeleteTopics",
        "AlterConfigs",
        "ElectLeaders",
        "DescribeConfigs",
        "DescribeTopics",
    ],
)
def test_garbage(method: str) -> None:
    async def main() -> None:
        service = AdminService(Edges().context, "EXTERNAL").service()
        with pytest.raises(RpcError) as caught:
            await service.unary[f"/stele.v1.Admin/{method}"](b"\xff\xff\xff", PEER)
        assert caught.value.code is RpcCode.INVALID_ARGUMENT

    run_virtual(main())


def test_describe_cluster() -> None:
    async def main() -> None:
        edges = Edges()
        edges.register(3, fenced=True)
        answer = await _call(
            edges, "DescribeCluster", pb.DescribeClusterRequest(), pb.DescribeClusterResponse
        )
        assert (answer.cluster_id, answer.controller_id) == ("the-cluster", 100)
        assert answer.metadata_offset == edges.publisher.offset
        assert [
            (b.broker_id, b.host, b.port, b.grpc_host, b.grpc_port, b.fenced)
            for b in answer.brokers
        ] == [
            (1, "b1.external", 19092, "b1.external", 19192, False),
            (2, "b2.external", 19092, "b2.external", 19192, False),
            (3, "b3.external", 19092, "b3.external", 19192, True),
        ]

    run_virtual(main())


def test_describe_topics() -> None:
    async def main() -> None:
        edges = Edges()
        edges.add_topic("b", [[1, 2]])
        edges.add_topic("a", [[2, 1], [1]])
        edges.commit(
            metadata_pb2.MetadataRecord(
                config=metadata_pb2.ConfigRecord(
                    resource_type=metadata_pb2.TOPIC,
                    resource_name="a",
                    name="retention.ms",
                    value="9",
                )
            )
        )
        answer = await _call(
            edges, "DescribeTopics", pb.DescribeTopicsRequest(), pb.DescribeTopicsResponse
        )
        a, b = answer.topics
        assert (a.name, b.name) == ("a", "b")
        assert dict(a.configs) == {"retention.ms": "9"}
        assert [(p.partition, p.leader, list(p.replicas)) for p in a.partitions] == [
            (0, 2, [2, 1]),
            (1, 1, [1]),
        ]
        gone = await _call(
            edges,
            "DescribeTopics",
            pb.DescribeTopicsRequest(names=["gone"]),
            pb.DescribeTopicsResponse,
        )
        assert gone.topics[0].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert gone.topics[0].message == "there is no topic gone"

    run_virtual(main())


def test_describe_configs() -> None:
    async def main() -> None:
        edges = Edges()
        edges.add_topic("a", [[1]])
        answer = await _call(
            edges,
            "DescribeConfigs",
            pb.DescribeConfigsRequest(
                resources=[
                    pb.ConfigResource(type=2, name="a"),
                    pb.ConfigResource(type=2, name="gone"),
                    pb.ConfigResource(type=4, name=""),
                ]
            ),
            pb.DescribeConfigsResponse,
        )
        topic, gone, cluster = answer.resources
        entries = {entry.name: entry for entry in topic.entries}
        assert entries["min.insync.replicas"].source == "DEFAULT"
        assert entries["min.insync.replicas"].type == "INT"
        assert gone.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (cluster.error, list(cluster.entries)) == (0, [])

    run_virtual(main())


@pytest.mark.parametrize("method", ["DescribeCluster", "DescribeTopics"])
def test_without_the_controllers_history_is_not_told_as_the_present(method: str) -> None:
    async def main() -> None:
        edges = Edges()
        edges.lease = False
        service = AdminService(edges.context, "EXTERNAL").service()
        with pytest.raises(RpcError) as caught:
            await service.unary[f"/stele.v1.Admin/{method}"](b"", PEER)
        assert caught.value.code is RpcCode.UNAVAILABLE

    run_virtual(main())


def test_what_was_changed_before_is_seen() -> None:
    """A description waits until this broker has applied the changes that its caller has made."""

    async def main() -> None:
        edges = Edges()
        offset = edges.publisher.offset + 2  # a topic and its partition
        request = pb.DescribeTopicsRequest(names=["new"], min_metadata_offset=offset)
        asking = asyncio.ensure_future(
            _call(edges, "DescribeTopics", request, pb.DescribeTopicsResponse)
        )
        await asyncio.sleep(0.1)
        assert not asking.done()
        edges.add_topic("new", [[1, 2]])
        assert [topic.error for topic in (await asking).topics] == [0]

    run_virtual(main())


def test_the_metadata_log_is_read_in_pieces_from_where_it_begins() -> None:
    async def main() -> None:
        edges = Edges()
        topics = (metadata_pb2.TopicRecord(name=name, topic_id=bytes(16)) for name in "sabc")
        s, a, b, c = (encode(metadata_pb2.MetadataRecord(topic=each)) for each in topics)
        edges.metadata_log.snapshot = Snapshot(SnapshotId(5, 1), 900, (s,), None)
        edges.metadata_log.batches = [
            CommittedBatch(5, 1, 1000, (a, b)),
            CommittedBatch(7, 2, 1001, (c,)),
        ]
        request = pb.ReadMetadataLogRequest(offset=0)
        answer = await _call(edges, "ReadMetadataLog", request, pb.ReadMetadataLogResponse)
        assert (answer.snapshot.end_offset, list(answer.snapshot.records)) == (5, [s])
        assert (answer.next_offset, answer.high_watermark) == (5, 8)
        request = pb.ReadMetadataLogRequest(offset=5)
        answer = await _call(edges, "ReadMetadataLog", request, pb.ReadMetadataLogResponse)
        assert not answer.HasField("snapshot")
        (decision,) = answer.decisions
        assert (decision.base_offset, decision.epoch, decision.timestamp_ms) == (5, 1, 1000)
        assert list(decision.records) == [a, b]
        assert answer.next_offset == 7

    run_virtual(main())


def test_the_metadata_log_is_read_without_the_secrets_of_users() -> None:
    async def main() -> None:
        edges = Edges()
        credential = ScramCredential(b"hidden salt", b"hidden stored", b"hidden server", 4096)
        records = (
            encode(credential_record(ScramUser("alice", 1), credential)),
            encode(secret_record(b"hidden secret")),
        )
        edges.metadata_log.snapshot = Snapshot(SnapshotId(5, 1), 900, records, None)
        edges.metadata_log.batches = [CommittedBatch(5, 1, 1000, records)]
        for offset in (0, 5):
            request = pb.ReadMetadataLogRequest(offset=offset)
            answer = await _call(edges, "ReadMetadataLog", request, pb.ReadMetadataLogResponse)
            shown = answer.SerializeToString()
            assert b"alice" in shown
            assert b"hidden" not in shown

    run_virtual(main())


@pytest.mark.parametrize(
    ("users", "told"),
    [
        ([], [("alice", 0, [(1, 4096)]), ("bob", 0, [(1, 8192), (2, 4096)])]),
        (["bob"], [("bob", 0, [(1, 8192), (2, 4096)])]),
        (["carol"], [("carol", ErrorCode.RESOURCE_NOT_FOUND, [])]),
        (["bob", "bob"], [("bob", ErrorCode.DUPLICATE_RESOURCE, [])]),
    ],
)
def test_users_are_described_without_secrets(users: list[str], told: list[Any]) -> None:
    async def main() -> None:
        edges = Edges()
        for name, mechanism, iterations in (("bob", 2, 4096), ("bob", 1, 8192), ("alice", 1, 4096)):
            credential = ScramCredential(b"hidden", b"hidden", b"hidden", iterations)
            edges.commit(credential_record(ScramUser(name, mechanism), credential))
        request = pb.DescribeUserScramCredentialsRequest(users=users)
        answer = await _call(
            edges,
            "DescribeUserScramCredentials",
            request,
            pb.DescribeUserScramCredentialsResponse,
        )
        assert b"hidden" not in answer.SerializeToString()
        assert [
            (each.user, each.error, [(one.mechanism, one.iterations) for one in each.credentials])
            for each in answer.users
        ] == told
        of_kafka = await edges.client().call(
            describe_user_scram_credentials.API,
            0,
            describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
                [describe_user_scram_credentials.UserName(name) for name in users] or None
            ),
        )
        assert [
            (
                each.user,
                each.error_code,
                [(one.mechanism, one.iterations) for one in each.credential_infos],
            )
            for each in of_kafka.results
        ] == told
        edges.authorizer.denied.add((Operation.DESCRIBE, CLUSTER))
        answer = await _call(
            edges,
            "DescribeUserScramCredentials",
            request,
            pb.DescribeUserScramCredentialsResponse,
        )
        assert (answer.error, list(answer.users)) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])

    run_virtual(main())


@pytest.mark.parametrize("allowed", [False, True])
def test_the_metadata_log_is_for_callers_that_may_see_all_settings(*, allowed: bool) -> None:
    async def main() -> None:
        edges = Edges()
        if not allowed:
            edges.authorizer.denied.add((Operation.DESCRIBE_CONFIGS, CLUSTER))
        request = pb.ReadMetadataLogRequest(offset=0 if not allowed else -1)
        with pytest.raises(RpcError) as refused:
            await _call(edges, "ReadMetadataLog", request, pb.ReadMetadataLogResponse)
        assert ("negative" if allowed else "DESCRIBE_CONFIGS") in str(refused.value)

    run_virtual(main())


@virtual
async def test_records_are_deleted_by_the_leader_that_is_asked() -> None:
    edges = Edges()
    edges.add_topic("a", [[1], [1]])
    request = pb.DeleteRecordsRequest(
        partitions=[
            pb.DeleteRecordsRequest.Partition(topic="a", partition=1, offset=5),
            pb.DeleteRecordsRequest.Partition(topic="gone", offset=5),
        ],
        timeout_ms=900,
    )
    answer = await _call(edges, "DeleteRecords", request, pb.DeleteRecordsResponse)
    deleted, gone = answer.partitions
    assert (deleted.error, deleted.low_watermark, deleted.message) == (ErrorCode.NONE, 7, "")
    assert (gone.error, gone.topic) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone")
    assert gone.message
    ((deletions, timeout_ms),) = edges.replicas.deletion.deleted
    assert (deletions, timeout_ms) == ([Deletion(PartitionId(topic_id("a"), 1), 5)], 900)


@virtual
async def test_a_broker_that_has_just_started_does_not_say_that_a_topic_is_gone() -> None:
    edges = Edges()
    edges.context = replace(edges.context, caught_up=lambda: False)
    with pytest.raises(RpcError, match="not caught up") as caught:
        await _call(edges, "DeleteRecords", pb.DeleteRecordsRequest(), pb.DeleteRecordsResponse)
    assert caught.value.code is RpcCode.UNAVAILABLE
