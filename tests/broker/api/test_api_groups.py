"""Consumer groups over the Kafka protocol: what is translated, refused and found elsewhere."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from metadata.acl import Acl, PatternType, Permission, ResourceType
from metadata.features import GROUP_VERSION
from metadata.internal_topics import GROUP_TOPIC, coordinating_partition
from runtime.authorization.authorizer import Operation, group_resource, topic_resource
from stele.errors import ErrorCode
from stele.wire.kafka.messages import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    leave_group,
    list_groups,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
)
from stele.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from tests.support.batches import make_batch
from tests.support.broker_apis import Edges, topic_id
from tests.support.group_requests import (
    GROUP,
    SESSION_MS,
    a_member,
    beat,
    commit_of,
    consumer_join,
    edges_with_groups,
    join,
)
from tests.support.worlds import virtual


@virtual
async def test_without_the_feature_there_is_no_consumer_protocol() -> None:
    edges = await edges_with_groups()
    edges.finalize(GROUP_VERSION, 0)
    client = edges.client()
    joined = await consumer_join(client)
    assert joined.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "group.version" in joined.error_message
    request = consumer_group_describe.ConsumerGroupDescribeRequest([GROUP])
    described = await client.call(consumer_group_describe.API, 1, request)
    assert described.groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION
    await a_member(client)  # the classic protocol is there


@virtual
async def test_a_member_of_the_consumer_protocol_is_assigned_partitions_and_described() -> None:
    edges = await edges_with_groups()
    client = edges.client()
    joined = await consumer_join(client, instance_id="i", rack_id="r")
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "m", 1)
    assert joined.heartbeat_interval_ms == 5000
    (of_topic,) = joined.assignment.topic_partitions
    assert (of_topic.topic_id, of_topic.partitions) == (topic_id("orders"), [0, 1, 2])
    owned = consumer_group_heartbeat.TopicPartitions(topic_id("orders"), [0, 1, 2])
    again = await beat(client, 1, topic_partitions=[owned])
    assert (again.error_code, again.assignment) == (0, None)
    request = consumer_group_describe.ConsumerGroupDescribeRequest([GROUP, "other"], True)
    answer = await client.call(consumer_group_describe.API, 1, request)
    found, other = answer.groups
    assert other.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (found.group_state, found.assignor_name) == ("Stable", "uniform")
    assert (found.group_epoch, found.assignment_epoch) == (1, 1)
    (member,) = found.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("m", "i", "r")
    assert (member.member_epoch, member.member_type) == (1, 1)
    assert member.subscribed_topic_names == ["orders"]
    for assignment in (member.assignment, member.target_assignment):
        assert assignment is not None
        (of_topic,) = assignment.topic_partitions
        assert (of_topic.topic_name, of_topic.partitions) == ("orders", [0, 1, 2])
    left = await beat(client, -1)
    assert (left.error_code, left.member_epoch) == (0, -1)


@virtual
async def test_the_consumer_protocol_knows_its_errors() -> None:
    edges = await edges_with_groups()
    client = edges.client()
    regex = await consumer_join(client, subscribed_topic_regex="o(")
    assert regex.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "o(: a group is not closed" in regex.error_message
    wrong = await consumer_join(client, server_assignor="mine")
    assert wrong.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert (await beat(client, 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    old = await consumer_join(client, version=0)
    assert (old.error_code, len(old.member_id)) == (0, 36)
    assert (await beat(client, 5)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    edges.authorizer.denied.add((Operation.DESCRIBE, topic_resource("orders")))
    assert (await consumer_join(client)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    request = consumer_group_describe.ConsumerGroupDescribeRequest([GROUP])
    (found,) = (await client.call(consumer_group_describe.API, 0, request)).groups
    assert found.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    edges.authorizer.denied.add((Operation.READ, group_resource(GROUP)))
    assert (await beat(client, 1)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


@virtual
async def test_a_member_subscribes_by_a_regular_expression() -> None:
    edges = await edges_with_groups()
    edges.add_topic("other", [[1]])
    edges.add_topic("oh", [[1]])
    edges.authorizer.denied.add((Operation.DESCRIBE, topic_resource("oh")))
    client = edges.client()

    def told_topics(answer: Any) -> set[bytes]:
        return {each.topic_id for each in answer.assignment.topic_partitions}

    joined = await consumer_join(
        client, subscribed_topic_names=None, subscribed_topic_regex="o.*|_.*"
    )
    assert joined.error_code == 0
    assert told_topics(joined) == {topic_id("orders"), topic_id("other")}
    edges.add_topic("one", [[1]])
    answer = await beat(client, 1)
    assert (answer.assignment, answer.member_epoch) == (None, 1)
    await asyncio.sleep(answer.heartbeat_interval_ms / 1000)
    answer = await beat(client, 1)
    assert told_topics(answer) == {topic_id(each) for each in ("orders", "other", "one")}
    assert answer.member_epoch == 2


@virtual
async def test_a_regular_expression_follows_the_permissions() -> None:
    edges = await edges_with_groups()
    edges.add_topic("other", [[1]])
    denied, describe_other = edges.authorizer.denied, (Operation.DESCRIBE, topic_resource("other"))
    denied.add(describe_other)
    about_other = ResourceType.TOPIC, "other", PatternType.LITERAL
    client = edges.client()
    joined = await consumer_join(client, subscribed_topic_names=None, subscribed_topic_regex="o.*")
    epoch, owned = joined.member_epoch, joined.assignment.topic_partitions
    assert {each.topic_id for each in owned} == {topic_id("orders")}
    for number, wanted in enumerate((["orders", "other"], ["orders"])):
        denied ^= {describe_other}
        who_does = f"User:{number}", "*", Operation.DESCRIBE
        edges.add_acl(Acl(*about_other, *who_does, Permission.ALLOW))
        for _ in range(4):
            answer = await beat(client, epoch, topic_partitions=owned)
            epoch = answer.member_epoch
            if answer.assignment is not None:
                owned = answer.assignment.topic_partitions
            await asyncio.sleep(answer.heartbeat_interval_ms / 1000)
        assert sorted(each.topic_id for each in owned) == sorted(map(topic_id, wanted))


@virtual
async def test_members_get_offsets_in_their_epoch() -> None:
    edges = await edges_with_groups()
    client = edges.client()
    await consumer_join(client)

    async def error(member_id: str | None, epoch: int) -> ErrorCode:
        asked = offset_fetch.OffsetFetchRequestGroup(GROUP, member_id, epoch)
        request = offset_fetch.OffsetFetchRequest(groups=[asked])
        (group,) = (await client.call(offset_fetch.API, 9, request)).groups
        return ErrorCode(group.error_code)

    assert await error("m", 1) is ErrorCode.NONE
    assert await error("m", 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert await error("n", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await error(None, -1) is ErrorCode.NONE


# ------------------------------------------------------------------------- coordinators


@pytest.mark.parametrize(
    ("key", "partition"),
    [("", 0), ("g", 3), ("my-group", 12), ("zażółć", 39), ("\U0001f642", 15), ("g" * 200, 14)],
)
def test_a_key_belongs_to_the_partition_that_java_finds(key: str, partition: int) -> None:
    """The sums were made by ``String.hashCode``."""
    assert coordinating_partition(key, 50) == partition


@pytest.mark.parametrize("version", range(7))
@virtual
async def test_the_first_request_has_the_topic_made(version: int) -> None:
    edges = Edges()
    client = edges.client()
    request = FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"])
    answer = await client.call(find_coordinator.API, version, request)
    assert edges.publisher.image.topic(GROUP_TOPIC) is not None
    found = answer.coordinators if version >= 4 else [answer]
    assert [each.error_code for each in found] == [ErrorCode.NONE] * len(found)
    assert {each.node_id for each in found} == {1}
    if version:
        told = "" if version >= 4 else "NONE"
        assert {each.error_message for each in found} == {told}, "as Kafka says it"


@virtual
async def test_without_enough_brokers_there_is_no_coordinator_yet() -> None:
    edges = Edges()
    edges.controller.refuse_with = ErrorCode.INVALID_REPLICATION_FACTOR
    for key_type, setting in (
        (0, "offsets.topic.replication.factor"),
        (1, "transaction.state.log.replication.factor"),
    ):
        request = FindCoordinatorRequest(coordinator_keys=["g"], key_type=key_type)
        answer = await edges.client().call(find_coordinator.API, 4, request)
        (found,) = answer.coordinators
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert setting in (found.error_message or "")


@pytest.mark.parametrize(
    ("key_type", "error"),
    [
        (2, ErrorCode.UNSUPPORTED_VERSION),
        (3, ErrorCode.INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("version", range(1, 7))
@virtual
async def test_other_coordinators_are_refused_for_good(
    version: int, key_type: int, error: ErrorCode
) -> None:
    assert not error.retriable, "it would be asked again for ever"
    request = FindCoordinatorRequest(key="g", key_type=key_type, coordinator_keys=["g", "h"])
    answer = await Edges().client().call(find_coordinator.API, version, request)
    found = answer.coordinators if version >= 4 else [answer]
    assert [each.error_code for each in found] == [error] * len(found)
    assert all(each.error_message and each.node_id == -1 for each in found)


@virtual
async def test_another_broker_coordinates() -> None:
    edges = Edges()
    edges.add_topic(GROUP_TOPIC, [[2, 1]])
    client = edges.client()
    assert (await join(client)).error_code == ErrorCode.NOT_COORDINATOR
    request = FindCoordinatorRequest(coordinator_keys=[GROUP])
    answer = await client.call(find_coordinator.API, 4, request)
    assert [each.node_id for each in answer.coordinators] == [2]


# ------------------------------------------------------------------------- members


@pytest.mark.parametrize("version", range(10))
@virtual
async def test_every_version_can_join(version: int) -> None:
    client = (await edges_with_groups()).client()
    answer = await join(client, version=version)
    if version >= 4:
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        answer = await join(client, answer.member_id, version)
    assert answer.error_code == ErrorCode.NONE
    assert answer.generation_id == 1
    assert answer.protocol_name == "range"
    assert len(answer.members) == 1


@virtual
async def test_a_member_lives_and_leaves() -> None:
    client = (await edges_with_groups()).client()
    member_id, generation = await a_member(client)
    beat = heartbeat.HeartbeatRequest(GROUP, generation, member_id)
    assert (await client.call(heartbeat.API, 4, beat)).error_code == ErrorCode.NONE
    stale = heartbeat.HeartbeatRequest(GROUP, generation - 1, member_id)
    answer = await client.call(heartbeat.API, 4, stale)
    assert answer.error_code == ErrorCode.ILLEGAL_GENERATION
    leave = leave_group.LeaveGroupRequest(
        GROUP, members=[leave_group.MemberIdentity(member_id, reason="done")]
    )
    left = await client.call(leave_group.API, 5, leave)
    assert [each.error_code for each in left.members] == [ErrorCode.NONE]
    answer = await client.call(heartbeat.API, 4, beat)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
@virtual
async def test_a_member_leaves_in_every_version(version: int) -> None:
    client = (await edges_with_groups()).client()
    member_id, _ = await a_member(client)
    for error in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
        leave = leave_group.LeaveGroupRequest(
            GROUP, member_id, [leave_group.MemberIdentity(member_id)]
        )
        answer = await client.call(leave_group.API, version, leave)
        told = answer.error_code if version < 3 else answer.members[0].error_code
        assert told == error


@virtual
async def test_a_member_that_is_silent_is_removed() -> None:
    edges = await edges_with_groups()
    client = edges.client()
    member_id, generation = await a_member(client)
    beat = heartbeat.HeartbeatRequest(GROUP, generation, member_id)
    edges.clock.skipped_s += SESSION_MS / 1000 + 1

    async def state() -> str:
        asked = describe_groups.DescribeGroupsRequest([GROUP])
        (group,) = (await client.call(describe_groups.API, 5, asked)).groups
        return str(group.group_state)

    while await state() != "Empty":
        pass
    answer = await client.call(heartbeat.API, 4, beat)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


# ------------------------------------------------------------------------- administration


@virtual
async def test_groups_are_described_listed_and_deleted() -> None:
    client = (await edges_with_groups()).client()
    member_id, _ = await a_member(client)
    asked = describe_groups.DescribeGroupsRequest(
        [GROUP, "nobody"], include_authorized_operations=True
    )
    group, nobody = (await client.call(describe_groups.API, 5, asked)).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable", "consumer", "range",
    )  # fmt: skip
    (member,) = group.members
    assert (member.member_id, member.member_assignment) == (member_id, b"all of it")
    assert member.client_host.startswith("/")
    assert group.authorized_operations > 0
    assert (nobody.group_state, nobody.error_code) == ("Dead", ErrorCode.NONE)
    group, nobody = (await client.call(describe_groups.API, 6, asked)).groups
    assert (group.error_code, group.error_message) == (ErrorCode.NONE, None)
    assert (nobody.group_state, nobody.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    assert "nobody" in (nobody.error_message or "")

    listed = await client.call(list_groups.API, 5, list_groups.ListGroupsRequest())
    assert [(each.group_id, each.group_state, each.group_type) for each in listed.groups] == [
        (GROUP, "Stable", "classic")
    ]
    empty = list_groups.ListGroupsRequest(states_filter=["Empty"])
    assert (await client.call(list_groups.API, 5, empty)).groups == []

    deletion = delete_groups.DeleteGroupsRequest([GROUP, "nobody"])
    deleted = await client.call(delete_groups.API, 2, deletion)
    assert [each.error_code for each in deleted.results] == [
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]


@virtual
async def test_metrics_tell_the_groups_and_the_loads() -> None:
    edges = await edges_with_groups()
    client = edges.client()
    await a_member(client)
    await client.call(offset_commit.API, 9, commit_of("", -1, ("orders", 1, 42)))
    values = edges.registry.values()
    assert values['stele_groups{state="Stable"}'] == 1
    assert values['stele_groups{state="Empty"}'] == 0
    assert values["stele_group_partitions"] == 1
    assert values["stele_group_loads_total"] == 1
    assert values["stele_group_load_failures_total"] == 0
    assert values["stele_group_load_bytes_total"] == 0
    assert values["stele_group_rebalances_total"] == 1


@virtual
async def test_metrics_tell_both_ends_of_a_groups_lag() -> None:
    """And how much they leave out, since there may be any number of offsets."""

    edges = await edges_with_groups()
    client = edges.client()
    offsets = [("orders", 1, 42), ("orders", 0, 7), ("orders", 1, 43)]
    for each in offsets:
        await client.call(offset_commit.API, 9, commit_of("", -1, each))
    values = edges.registry.values()
    committed = f'stele_group_committed_offset{{group="{GROUP}",topic="orders",partition='
    assert values[committed + '"1"}'] == 43
    assert values[committed + '"0"}'] == 7
    assert values['stele_high_watermark{topic="orders",partition="1"}'] == 50
    assert values["stele_group_offset_commits_total"] == 3
    assert values["stele_group_offsets"] == 2
    left_out = "stele_lag_samples_left_out{metric="
    assert values[f'{left_out}"stele_group_committed_offset"}}'] == 0
    assert values[f'{left_out}"stele_high_watermark"}}'] == 0

    await client.call(offset_commit.API, 9, commit_of("", -1, ("orders", 2, 1)))
    values = edges.registry.values()
    assert sum(name.startswith("stele_group_committed_offset{") for name in values) == 2
    assert values[f'{left_out}"stele_group_committed_offset"}}'] == 1

    deletion = delete_groups.DeleteGroupsRequest([GROUP])
    await client.call(delete_groups.API, 2, deletion)
    values = edges.registry.values()
    assert values["stele_group_offset_removals_total"] == 3
    assert values["stele_group_offsets"] == 0


# ------------------------------------------------------------------------- who may what


@virtual
async def test_a_caller_that_may_not_read_a_group_is_refused() -> None:
    edges = await edges_with_groups()
    edges.authorizer.denied = {(Operation.READ, group_resource(GROUP))}
    client = edges.client()
    assert (await join(client)).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    answer = await client.call(offset_commit.API, 9, commit_of("", -1, ("orders", 1, 42)))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


@virtual
async def test_clients_do_not_write_what_coordinators_decide() -> None:
    edges = await edges_with_groups()
    client = edges.client()
    data = produce.PartitionProduceData(0, make_batch())
    for name, its_id, version in ((GROUP_TOPIC, b"", 9), ("", topic_id(GROUP_TOPIC), 13)):
        request = produce.ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[produce.TopicProduceData(name, its_id or bytes(16), [data])],
        )
        produced = await client.call(produce.API, version, request)
        (partition,) = produced.responses[0].partition_responses
        assert partition.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "internal" in (partition.error_message or "")
    asked = metadata.MetadataRequest(
        [metadata.MetadataRequestTopic(name=each) for each in (GROUP_TOPIC, "orders")]
    )
    answer = await client.call(metadata.API, 9, asked)
    assert [each.is_internal for each in answer.topics] == [True, False]
