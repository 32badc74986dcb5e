"""Dynamic configuration altered and described."""

from __future__ import annotations

from typing import Any

import pytest

from controller import configs, producer_ids
from metadata.image import CLUSTER, ConfigResource
from metadata.records import METADATA_VERSION_LEVEL
from stele.errors import ErrorCode
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1 import controller_pb2 as pb
from tests.support.controller import Machine, refusal


@pytest.fixture
def machine() -> Machine:
    machine = Machine({"min.insync.replicas": "2", "log.retention.hours": "1"})
    machine.brokers(1)
    machine.create("t", {0: [1]})
    return machine


def alter(
    machine: Machine, kind: int, resource: str, *, validate_only: bool = False, **changes: object
) -> admin.AlterConfigsResponse.Resource:
    request = admin.AlterConfigsRequest(
        validate_only=validate_only,
        resources=[
            admin.AlterConfigsRequest.Resource(
                resource=admin.ConfigResource(type=kind, name=resource),
                changes=[
                    admin.AlterConfigsRequest.Change(
                        name=name.replace("_", "."), value=None if value is None else str(value)
                    )
                    for name, value in changes.items()
                ],
            )
        ],
    )
    return machine.do(lambda context: configs.alter_configs(context, request)).resources[0]


def described(machine: Machine, kind: int, name: str) -> dict[str, tuple[str, str]]:
    request = admin.DescribeConfigsRequest(resources=[admin.ConfigResource(type=kind, name=name)])
    answer = configs.describe_configs(machine.image, machine.static, request).resources[0]
    assert answer.error == 0
    return {entry.name: (entry.value, entry.source) for entry in answer.entries}


def test_the_first_controller_writes_what_all_must_agree_on() -> None:
    machine = Machine({"min.insync.replicas": "2"})
    assert machine.image.features["metadata.version"] == METADATA_VERSION_LEVEL
    assert dict(machine.image.config(CLUSTER)) == {"min.insync.replicas": "2"}
    machine.do(configs.bootstrap)
    assert machine.last_records == ()


def test_set_and_removed(machine: Machine) -> None:
    assert alter(machine, 2, "t", retention_ms=5, segment_bytes=4096).error == 0
    assert dict(machine.image.config(ConfigResource.topic("t"))) == {
        "retention.ms": "5",
        "segment.bytes": "4096",
    }
    assert alter(machine, 2, "t", retention_ms=None).error == 0
    assert dict(machine.image.config(ConfigResource.topic("t"))) == {"segment.bytes": "4096"}
    assert alter(machine, 2, "t", segment_bytes=4096, retention_ms=None).error == 0
    assert machine.last_records == ()


@pytest.mark.parametrize(
    ("kind", "resource", "changes", "code"),
    [
        (2, "x", {"retention_ms": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, "t", {"retentoin_ms": 1}, ErrorCode.INVALID_CONFIG),
        (2, "t", {"retentoin_ms": None}, ErrorCode.INVALID_CONFIG),
        (2, "t", {"log_retention_ms": 1}, ErrorCode.INVALID_CONFIG),
        (2, "t", {"min_insync_replicas": 0}, ErrorCode.INVALID_CONFIG),
        (2, "t", {"retention_ms": 5, "segment_bytes": "big"}, ErrorCode.INVALID_CONFIG),
        (4, "one", {"log_retention_ms": 1}, ErrorCode.INVALID_REQUEST),
        (4, "1", {"node_id": 1}, ErrorCode.INVALID_CONFIG),
        (4, "1", {"min_insync_replicas": 1}, ErrorCode.INVALID_CONFIG),
        (4, "", {"min_insync_replicas": None}, ErrorCode.INVALID_CONFIG),
        (8, "1", {"x": 1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_refused_as_a_whole(
    machine: Machine, kind: int, resource: str, changes: dict[str, Any], code: ErrorCode
) -> None:
    before = machine.image
    answer = alter(machine, kind, resource, **changes)
    assert answer.error == code, answer
    assert answer.message
    assert machine.image is before


def test_validate_only(machine: Machine) -> None:
    before = machine.image
    assert alter(machine, 2, "t", validate_only=True, retention_ms=5).error == 0
    assert machine.image is before


def test_described_with_their_sources(machine: Machine) -> None:
    alter(machine, 4, "", log_segment_bytes=2048)
    alter(machine, 2, "t", index_interval_bytes=1)
    entries = described(machine, 2, "t")
    assert entries["retention.ms"] == ("3600000", "STATIC_BROKER")
    assert entries["segment.bytes"] == ("2048", "DYNAMIC_DEFAULT_BROKER")
    assert entries["index.interval.bytes"] == ("1", "DYNAMIC_TOPIC")
    assert entries["max.message.bytes"] == ("1048588", "DEFAULT")
    assert entries["min.insync.replicas"] == ("2", "DYNAMIC_DEFAULT_BROKER")
    alter(machine, 4, "1", log_segment_bytes=1024)
    assert described(machine, 4, "1")["log.segment.bytes"] == ("1024", "DYNAMIC_BROKER")
    assert described(machine, 4, "")["log.segment.bytes"] == ("2048", "DYNAMIC_DEFAULT_BROKER")


def test_described_what_is_not_there(machine: Machine) -> None:
    request = admin.DescribeConfigsRequest(resources=[admin.ConfigResource(type=2, name="x")])
    answer = configs.describe_configs(machine.image, {}, request).resources[0]
    assert answer.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_producer_ids_come_in_blocks_that_never_overlap(machine: Machine) -> None:
    def allocate(epoch: int) -> producer_ids.ProducerIdBlock:
        request = pb.AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
        return machine.do(lambda context: producer_ids.allocate(context, request))

    epoch = machine.epoch_of(1)
    assert [allocate(epoch) for _ in range(3)] == [(0, 1000), (1000, 1000), (2000, 1000)]
    assert refusal(lambda: allocate(epoch + 1)).code is ErrorCode.STALE_BROKER_EPOCH
