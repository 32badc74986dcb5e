"""stele.v1.Admin on a broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.message import Message

from broker.grpc.admin import AdminService
from stele.errors import ErrorCode
from stele.wire.v1 import admin_pb2 as pb
from stele.wire.v1 import metadata_pb2
from stele.wire.v1.raft_pb2 import DescribeQuorumRequest, DescribeQuorumResponse
from stele.world import RpcCode, RpcError
from tests.support.broker_apis import CONTROLLER, Edges, topic_id
from tests.support.broker_edges import run_virtual


async def _call(edges: Edges, method: str, request: Message, answer: Any) -> Any:
    service = AdminService(edges.context, "EXTERNAL").service()
    return answer.FromString(
        await service.unary[f"/stele.v1.Admin/{method}"](request.SerializeToString())
    )


def test_changes_go_to_the_controller() -> None:
    async def main() -> None:
        edges = Edges()
        request = pb.CreateTopicsRequest(topics=[pb.NewTopic(name="a", partitions=3)])
        created = await _call(edges, "CreateTopics", request, pb.CreateTopicsResponse)
        assert created.topics[0].topic_id == topic_id("a")
        assert edges.controller.created == [request]

    run_virtual(main())


def test_describe_quorum_comes_from_the_leader() -> None:
    async def main() -> None:
        edges = Edges()

        async def describe(payload: bytes) -> bytes:
            return DescribeQuorumResponse(leader_id=100, high_watermark=33).SerializeToString()

        edges.network.services[CONTROLLER].unary["/stele.v1.Admin/DescribeQuorum"] = describe
        answer = await _call(
            edges, "DescribeQuorum", DescribeQuorumRequest(), DescribeQuorumResponse
        )
        assert (answer.leader_id, answer.high_watermark) == (100, 33)

    run_virtual(main())


def test_no_controller_is_unavailable_in_words() -> None:
    async def main() -> None:
        edges = Edges()
        edges.network.services.clear()
        with pytest.raises(RpcError, match="CreateTopics found no active controller") as caught:
            await _call(
                edges,
                "CreateTopics",
                pb.CreateTopicsRequest(topics=[pb.NewTopic(name="a")]),
                pb.CreateTopicsResponse,
            )
        assert caught.value.code is RpcCode.UNAVAILABLE

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
            await service.unary[f"/stele.v1.Admin/{method}"](b"\xff\xff\xff")
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
            await service.unary[f"/stele.v1.Admin/{method}"](b"")
        assert caught.value.code is RpcCode.UNAVAILABLE

    run_virtual(main())


def test_what_was_changed_before_is_seen() -> None:
    """A description waits until this broker has applied what its asker has changed."""

    async def main() -> None:
        edges = Edges()
        offset = edges.publisher.offset + 1
        request = pb.DescribeTopicsRequest(names=["new"], min_metadata_offset=offset)
        asking = asyncio.ensure_future(
            _call(edges, "DescribeTopics", request, pb.DescribeTopicsResponse)
        )
        await asyncio.sleep(0.1)
        assert not asking.done()
        edges.add_topic("new", [[1, 2]])
        assert [topic.error for topic in (await asking).topics] == [0]

    run_virtual(main())
