"""Requests of consumer groups over the Kafka protocol, to a broker that coordinates all of them."""

from __future__ import annotations

from typing import Any

from metadata.features import GROUP_VERSION
from metadata.internal_topics import GROUP_TOPIC
from stele.errors import ErrorCode
from stele.wire.kafka.messages import (
    consumer_group_heartbeat,
    join_group,
    offset_commit,
    sync_group,
)
from stele.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.support.broker_apis import Client, Edges, topic_id
from tests.support.timing import until

GROUP = "readers"
SESSION_MS = 10_000


async def edges_with_groups(**settings: str) -> Edges:
    """This broker coordinates every group."""
    edges = Edges(group_initial_rebalance_delay_ms="0", **settings)
    edges.finalize(GROUP_VERSION, 1)
    edges.add_topic("orders", [[1]] * 3)
    edges.add_topic(GROUP_TOPIC, [[1]])
    await until(lambda: len(edges.groups.active) == 1)
    return edges


async def join(client: Client, member_id: str = "", version: int = 9) -> Any:
    request = JoinGroupRequest(
        GROUP,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"what I read")],
    )
    return await client.call(join_group.API, version, request)


async def a_member(client: Client) -> tuple[str, int]:
    """The only member of a stable group: its id and generation."""
    first = await join(client)
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = await join(client, first.member_id)
    assert joined.error_code == ErrorCode.NONE
    assert joined.leader == joined.member_id == first.member_id
    assert [(each.member_id, each.metadata) for each in joined.members] == [
        (first.member_id, b"what I read")
    ]
    assignment = sync_group.SyncGroupRequestAssignment(first.member_id, b"all of it")
    synced = await client.call(
        sync_group.API,
        5,
        sync_group.SyncGroupRequest(
            GROUP,
            joined.generation_id,
            first.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[assignment],
        ),
    )
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"all of it")
    return first.member_id, joined.generation_id


def commit_of(member_id: str, generation: int, *offsets: tuple[str, int, int]) -> Any:
    topics = [
        offset_commit.OffsetCommitRequestTopic(
            topic_id=topic_id(name),
            name=name,
            partitions=[
                offset_commit.OffsetCommitRequestPartition(
                    number, offset, 5, committed_metadata="so far"
                )
            ],
        )
        for name, number, offset in offsets
    ]
    return offset_commit.OffsetCommitRequest(GROUP, generation, member_id, topics=topics)


async def beat(client: Client, epoch: int, version: int = 1, **fields: Any) -> Any:
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        GROUP, "m" if version else "", epoch, **fields
    )
    return await client.call(consumer_group_heartbeat.API, version, request)


async def consumer_join(client: Client, version: int = 1, **fields: Any) -> Any:
    wanted = {"subscribed_topic_names": ["orders"], "rebalance_timeout_ms": 1000}
    return await beat(client, 0, version, topic_partitions=[], **{**wanted, **fields})
