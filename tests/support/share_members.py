"""A broker that leads and coordinates everything, and members of share groups that ask it."""

from __future__ import annotations

import asyncio
from typing import Any

from metadata.features import SHARE_VERSION
from metadata.internal_topics import GROUP_TOPIC, SHARE_TOPIC
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.kafka.messages import share_acknowledge, share_fetch, share_group_heartbeat
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.broker_apis import Client, Edges, topic_id
from tests.support.shared_logs import FakeSharedLog
from tests.support.timing import until

ORDERS = topic_id("orders")
ACCEPT, RELEASE, RENEW = 1, 2, 4


async def edges_with_sharing(*, level: int = 1, **settings: str) -> Edges:
    """This broker leads and coordinates everything."""
    edges = Edges(**settings)
    if level:
        edges.finalize(SHARE_VERSION, level)
    edges.add_topic("orders", [[1]] * 2)
    for name in (GROUP_TOPIC, SHARE_TOPIC):
        edges.add_topic(name, [[1]])
    kinds = (edges.groups, edges.sharing.coordinators)
    await until(lambda: [len(each.active) for each in kinds] == [1, 1])
    earliest = pb.ConfigRecord(
        resource_type=pb.ConfigResourceType.GROUP,
        resource_name="g",
        name="share.auto.offset.reset",
        value="earliest",
    )
    edges.commit(pb.MetadataRecord(config=earliest))
    return edges


class Member:
    """A member of the share group g."""

    def __init__(self, edges: Edges, member_id: str = "m") -> None:
        self.edges = edges
        self.client: Client = edges.client()
        self.member_id = member_id
        self.epoch = 0
        self.session_epoch = 0

    async def heartbeat(self, epoch: int | None = None, **fields: Any) -> Any:
        request = share_group_heartbeat.ShareGroupHeartbeatRequest(
            "g", self.member_id, self.epoch if epoch is None else epoch, **fields
        )
        answer = await self.client.call(share_group_heartbeat.API, 1, request)
        if not answer.error_code:
            self.epoch = answer.member_epoch
        return answer

    async def join(self) -> dict[bytes, list[int]]:
        """Returns the partitions that it gets in the end."""
        answer = await self.heartbeat(0, subscribed_topic_names=["orders"])
        assert answer.error_code == ErrorCode.NONE, answer.error_message
        for _ in range(20):
            if answer.assignment is not None and answer.assignment.topic_partitions:
                break
            await asyncio.sleep(answer.heartbeat_interval_ms / 1000)
            answer = await self.heartbeat()
        return {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}

    def next_epoch(self) -> int:
        epoch, self.session_epoch = self.session_epoch, self.session_epoch + 1
        return epoch

    def fetch_request(
        self, *acknowledged: tuple[int, int, int], add: bool = False, **fields: Any
    ) -> share_fetch.ShareFetchRequest:
        batches = [
            share_fetch.AcknowledgementBatch(first, last, [kind])
            for first, last, kind in acknowledged
        ]
        partition = share_fetch.FetchPartition(0, batches)
        topics = [share_fetch.FetchTopic(ORDERS, [partition])] if add or batches else []
        wanted = {"max_wait_ms": 0, "max_records": 500, **fields}
        return share_fetch.ShareFetchRequest(
            "g", self.member_id, self.next_epoch(), topics=topics, **wanted
        )

    async def fetch(self, *acknowledged: tuple[int, int, int], **fields: Any) -> Any:
        """Its answer about partition 0, or its whole answer if that has none."""
        request = self.fetch_request(*acknowledged, **fields)
        answer = await self.client.call(share_fetch.API, 2, request)
        if not answer.responses:
            return answer
        return answer.responses[0].partitions[0]

    async def acknowledge(self, first: int, last: int, kind: int, **fields: Any) -> Any:
        batch = share_acknowledge.AcknowledgementBatch(first, last, [kind])
        partition = share_acknowledge.AcknowledgePartition(0, [batch])
        request = share_acknowledge.ShareAcknowledgeRequest(
            "g",
            self.member_id,
            self.next_epoch(),
            topics=[share_acknowledge.AcknowledgeTopic(ORDERS, [partition])],
            **fields,
        )
        return await self.client.call(share_acknowledge.API, 2, request)

    async def begin(self) -> FakeSharedLog:
        """Join, and open a session. Returns the log of partition 0."""
        assert await self.join() == {ORDERS: [0, 1]}
        await self.fetch(add=True)
        await until(lambda: all(each.machine for each in self.edges.sharing.partitions))
        return self.edges.replicas.shared_logs[PartitionId(ORDERS, 0)]


def acquired(data: Any) -> list[tuple[int, int, int]]:
    return [
        (each.first_offset, each.last_offset, each.delivery_count) for each in data.acquired_records
    ]
