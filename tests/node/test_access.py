"""A node with an authorizer: rules are administered over both planes, and count at once."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from chaos.sim.world.network import SimNetwork
from metadata.acl import Acl, Operation, PatternType, Permission, ResourceType
from runtime.administration.acls import filter_message, message_of
from runtime.log_format import AUDIT_LOGGER
from stele.addresses import Address
from stele.cluster.kafka_connection import KafkaConnection
from stele.errors import ErrorCode
from stele.wire.kafka import Api
from stele.wire.kafka.messages import (
    create_acls,
    create_topics,
    delete_acls,
    describe_acls,
    metadata,
)
from stele.wire.v1 import admin_pb2 as admin
from tests.support.acls import acl
from tests.support.one_node import HOST, on_a_node
from world.world import World

WITH_ACLS = on_a_node.having(authorizer_class_name="stele", super_users="User:ANONYMOUS;User:root")
ROOT, ANN = "User:root", "User:ann"


def network_of(world: World, principal: str) -> SimNetwork:
    assert isinstance(world.network, SimNetwork)
    return world.network.identified(principal)


async def ask(world: World, principal: str, api: Api[Any, Any], request: Any) -> Any:
    """Over Kafka's protocol."""
    connection = await KafkaConnection.open(network_of(world, principal), HOST, 9092)
    await connection.negotiate(timeout_s=5)
    try:
        return await connection.request(api, connection.version_of(api), request, timeout_s=10)
    finally:
        connection.close()
        await connection.wait_closed()


async def call(world: World, principal: str, method: str, request: Any, answer: Any) -> Any:
    """Over gRPC."""
    channel = network_of(world, principal).channel(Address(HOST, 9192))
    try:
        told = await channel.call(
            f"/stele.v1.Admin/{method}", request.SerializeToString(), timeout_s=10
        )
    finally:
        await channel.close()
    return answer.FromString(told)


async def create(world: World, *rules: Acl, principal: str = ROOT) -> list[int]:
    creations = [
        create_acls.AclCreation(
            each.resource_type,
            each.resource_name,
            each.pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission,
        )
        for each in rules
    ]
    answer = await ask(world, principal, create_acls.API, create_acls.CreateAclsRequest(creations))
    return [each.error_code for each in answer.results]


async def seen(world: World, principal: str) -> list[str]:
    answer = await ask(world, principal, metadata.API, metadata.MetadataRequest(None))
    return [each.name for each in answer.topics]


async def make_topics(world: World, *names: str) -> None:
    topics = [create_topics.CreatableTopic(name, 1, 1) for name in names]
    request = create_topics.CreateTopicsRequest(topics, 10_000)
    answer = await ask(world, ROOT, create_topics.API, request)
    assert [each.error_code for each in answer.topics] == [0] * len(names)


@WITH_ACLS
async def test_rules_are_made_described_and_removed(world: World) -> None:
    rules = [
        acl("a"),
        acl("a", Operation.WRITE, pattern_type=PatternType.PREFIXED),
        acl("g", resource_type=ResourceType.GROUP, host="10.0.0.1"),
    ]
    assert await create(world, *rules, acl("kafka", resource_type=ResourceType.CLUSTER)) == [
        0, 0, 0, ErrorCode.INVALID_REQUEST,
    ]  # fmt: skip
    everything = describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1)
    answer = await ask(world, ROOT, describe_acls.API, everything)
    assert answer.error_code == 0
    told = [
        (
            each.resource_type,
            each.resource_name,
            each.pattern_type,
            *(
                (rule.principal, rule.host, rule.operation, rule.permission_type)
                for rule in each.acls
            ),
        )
        for each in answer.resources
    ]
    assert told == [(*each[:3], each[3:]) for each in sorted(rules)]
    described = await call(
        world, ROOT, "DescribeAcls", admin.DescribeAclsRequest(), admin.DescribeAclsResponse
    )
    assert list(described.acls) == [message_of(each) for each in sorted(rules)]
    unknown = describe_acls.DescribeAclsRequest(0, None, 1, None, None, 1, 1)
    refused = await ask(world, ROOT, describe_acls.API, unknown)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    filters = [
        delete_acls.DeleteAclsFilter(2, "a", 2, None, None, 1, 1),
        delete_acls.DeleteAclsFilter(2, "x", 3, None, None, 1, 1),
    ]
    deleted = await ask(world, ROOT, delete_acls.API, delete_acls.DeleteAclsRequest(filters))
    first, second = deleted.filter_results
    assert [each.pattern_type for each in first.matching_acls] == [3, 4]
    assert (first.error_code, second.error_code, second.matching_acls) == (0, 0, [])
    one = admin.DescribeAclsRequest(filter=filter_message(1, None, 1, None, None, 1, 1))
    left = await call(world, ROOT, "DescribeAcls", one, admin.DescribeAclsResponse)
    assert list(left.acls) == [message_of(rules[2])]


@WITH_ACLS
async def test_rules_count_when_their_answer_is_there(world: World) -> None:
    await make_topics(world, "a", "b")
    assert await seen(world, ANN) == []
    assert await seen(world, ROOT) == ["a", "b"]
    await create(world, acl("*", principal="User:*"))
    assert await seen(world, ANN) == ["a", "b"]
    await create(world, acl("a", Operation.ALL, permission=Permission.DENY))
    assert await seen(world, ANN) == ["b"]
    filters = [delete_acls.DeleteAclsFilter(1, None, 1, None, None, 1, 1)]
    await ask(world, ROOT, delete_acls.API, delete_acls.DeleteAclsRequest(filters))
    assert await seen(world, ANN) == []


@WITH_ACLS
async def test_only_permitted_callers_administer_rules(world: World) -> None:
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert await create(world, acl(), acl("b"), principal=ANN) == [denied] * 2
    everything = describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1)
    assert (await ask(world, ANN, describe_acls.API, everything)).error_code == denied
    cluster = acl("kafka-cluster", Operation.ALTER, resource_type=ResourceType.CLUSTER)
    await create(world, cluster)
    assert await create(world, acl(), principal=ANN) == [0]
    assert (await ask(world, ANN, describe_acls.API, everything)).error_code == 0


@WITH_ACLS
async def test_the_reason_of_a_decision(world: World) -> None:
    await create(
        world, acl("a", host="10.0.0.1"), acl("b", Operation.ALL, permission=Permission.DENY)
    )

    async def verdict(**fields: Any) -> Any:
        asked: dict[str, Any] = {"principal": ANN, "operation": 3}
        asked |= {"resource_type": 2, "resource_name": "a"}
        request = admin.TestAccessRequest(**(asked | fields))
        return await call(world, ROOT, "TestAccess", request, admin.TestAccessResponse)

    told = await verdict(host="10.0.0.1")
    assert (told.allowed, told.reason, told.rule) == (
        True, "Rule", message_of(acl("a", host="10.0.0.1")),
    )  # fmt: skip
    assert (await verdict(host="10.0.0.2")).reason == "DefaultDeny"
    denied = await verdict(resource_name="b")
    assert (denied.allowed, denied.rule.permission) == (False, 2)
    assert (await verdict(principal=ROOT)).reason == "SuperUser"
    for wrong in ({"operation": 2}, {"principal": "ann"}, {"resource_type": 1}):
        assert (await verdict(**wrong)).error == ErrorCode.INVALID_REQUEST


@WITH_ACLS
async def test_denials_are_audited_and_items_that_are_left_out_are_not(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await make_topics(world, "a")
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        assert await seen(world, ANN) == []
        for _ in range(3):
            named = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="a")])
            await ask(world, ANN, metadata.API, named)
    (denied,) = [
        json.loads(each.getMessage()) for each in caplog.records if each.name == AUDIT_LOGGER
    ]
    assert (denied["principal"], denied["operation"], denied["resource_name"]) == (
        ANN, "DESCRIBE", "a",
    )  # fmt: skip
    assert (denied["rule"], denied["listener"]) == ("DefaultDeny", "PLAINTEXT")


@on_a_node
async def test_without_an_authorizer_there_are_no_rules(world: World) -> None:
    assert await create(world, acl()) == [ErrorCode.SECURITY_DISABLED]
    for method, request, answer in (
        ("CreateAcls", admin.CreateAclsRequest(acls=[message_of(acl())]), admin.CreateAclsResponse),
        ("DescribeAcls", admin.DescribeAclsRequest(), admin.DescribeAclsResponse),
        ("TestAccess", admin.TestAccessRequest(), admin.TestAccessResponse),
    ):
        told = await call(world, ANN, method, request, answer)
        assert told.error == ErrorCode.SECURITY_DISABLED
