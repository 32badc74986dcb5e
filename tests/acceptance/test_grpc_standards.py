"""Reflection and health of live processes, used with gRPC's own Python tools as grpcurl would."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from chaos.process_cluster import ProcessCluster
from tests.support.acceptance import grpc_port
from tests.support.timing import until

pytestmark = pytest.mark.processes

BROKERS = {
    "stele.v1.Admin",
    "stele.v1.BrokerControl",
    "stele.v1.Groups",
    "stele.v1.Log",
    "stele.v1.Transactions",
}
CONTROLLERS = {"stele.v1.Admin", "stele.v1.Controller", "stele.v1.Raft"}
STANDARD = {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}


def address_of(cluster: ProcessCluster, node_id: int) -> str:
    if node_id in cluster.broker_ids:
        return f"127.0.0.1:{grpc_port(cluster, node_id)}"
    return cluster.nodes[node_id].settings["controller.listener"]


@pytest.mark.parametrize(("node_id", "own"), [(101, BROKERS), (1, CONTROLLERS)])
def test_reflection_lists_and_describes_every_service(
    process_cluster: ProcessCluster, node_id: int, own: set[str]
) -> None:
    with grpc.insecure_channel(address_of(process_cluster, node_id)) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert set(database.get_services()) == own | STANDARD
        pool = DescriptorPool(database)
        for name in sorted(own):
            assert pool.FindServiceByName(name).methods


def test_a_method_called_by_what_reflection_told_alone(process_cluster: ProcessCluster) -> None:
    """As grpcurl does: without generated code, with descriptors from the server."""
    with grpc.insecure_channel(address_of(process_cluster, 102)) as channel:
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        method = pool.FindServiceByName("stele.v1.Admin").FindMethodByName("DescribeCluster")
        call = channel.unary_unary(
            "/stele.v1.Admin/DescribeCluster",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        answer = call(GetMessageClass(method.input_type)(), timeout=10)
    assert answer.cluster_id == process_cluster.cluster_id
    assert sorted(each.broker_id for each in answer.brokers) == [101, 102, 103]


@pytest.mark.parametrize(("node_id", "services"), [(101, BROKERS), (1, CONTROLLERS)])
def test_health(process_cluster: ProcessCluster, node_id: int, services: set[str]) -> None:
    with grpc.insecure_channel(address_of(process_cluster, node_id)) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", *sorted(services)):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as caught:
            stub.Check(health_pb2.HealthCheckRequest(service="no.such.Service"), timeout=10)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_controller_without_a_quorum_is_not_serving(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    cluster = ProcessCluster(tmp_path_factory.mktemp("quorum"), controllers=3, brokers=1)
    await cluster.start()
    try:
        with grpc.insecure_channel(address_of(cluster, 1)) as channel:
            stub = health_pb2_grpc.HealthStub(channel)

            def status() -> int:
                answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=10)
                return int(answer.status)

            await until(
                lambda: status() == health_pb2.HealthCheckResponse.SERVING, "a quorum serves"
            )
            cluster.kill(2)
            cluster.kill(3)
            await until(
                lambda: status() == health_pb2.HealthCheckResponse.NOT_SERVING,
                "one of three controllers does not serve",
            )
            await cluster.restart(2)
            await until(
                lambda: status() == health_pb2.HealthCheckResponse.SERVING, "two of three do"
            )
    finally:
        await cluster.stop()
