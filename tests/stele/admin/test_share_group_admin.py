"""Administration of share groups by Admin, of a node in memory, whose members are real clients."""

from __future__ import annotations

import pytest

from stele.admin.descriptions import ConfigResource
from stele.admin.group_lag import PartitionLag
from stele.admin.groups import SHARE
from stele.admin.share_groups import ShareGroupOffset
from stele.errors import ApiError, BulkError, ErrorCode
from stele.ids import TopicPartition
from stele.records import AcknowledgeType, ShareRecord
from tests.support.consumer_groups import GROUP, Clients, with_clients

ALONE = {
    "share_coordinator_state_topic_replication_factor": "1",
    "share_coordinator_state_topic_min_isr": "1",
    "share_coordinator_state_topic_num_partitions": "3",
}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def read_all(clients: Clients, count: int) -> list[int]:
    """The values that a member gets and accepts. It leaves then."""
    found: list[int] = []
    async with clients.share_consumer(share_acknowledgement_mode="explicit") as consumer:
        consumer.subscribe(["t"])
        while len(found) < count:
            for record in await consumer.poll(timeout_ms=500):
                found.append(int(record.value or b""))
                consumer.acknowledge(record)
            await consumer.commit()
    return sorted(found)


@with_clients(**ALONE)
async def test_offsets_are_listed_set_and_deleted(clients: Clients) -> None:
    await clients.create("t", 2)
    async with clients.admin() as admin:
        await admin.alter_configs(
            {ConfigResource.group(GROUP): {"share.auto.offset.reset": "earliest"}}
        )
        await clients.fill(6, partitions=2)
        assert await read_all(clients, 6) == list(range(6))
        (listed,) = await admin.list_groups(types=[SHARE])
        assert (listed.group_id, listed.state, listed.type) == (GROUP, "Empty", SHARE)
        (described,) = await admin.describe_groups([GROUP])
        assert (described.type, described.protocol, described.members) == (SHARE, "simple", ())
        offsets = await admin.list_share_group_offsets(GROUP)
        assert {place: each.lag for place, each in offsets.items()} == {T0: 0, T1: 0}

        await admin.alter_share_group_offsets(GROUP, {T0: 1, ("t", 1): 3})
        offsets = await admin.list_share_group_offsets(GROUP)
        assert [(each.start_offset, each.lag) for each in offsets.values()] == [(1, 2), (3, 0)]
        assert await read_all(clients, 2) == [2, 4]
        with pytest.raises(BulkError, match="no partition 9") as refused:
            await admin.alter_share_group_offsets(GROUP, {T0: 0, TopicPartition("t", 9): 0})
        assert list(refused.value.failed) == ["t-9"]
        assert await read_all(clients, 3) == [0, 2, 4]

        await admin.delete_share_group_offsets(GROUP, ["t"])
        assert await admin.list_share_group_offsets(GROUP) == {}
        with pytest.raises(BulkError, match="topic 'missing'"):
            await admin.delete_share_group_offsets(GROUP, ["missing"])
        await admin.delete_groups([GROUP])
        assert await admin.list_groups(types=[SHARE]) == []


@with_clients(**ALONE)
async def test_members_are_shown_and_keep_the_offsets_as_they_are(clients: Clients) -> None:
    await clients.create("t", 2)
    async with clients.admin() as admin, clients.share_consumer() as consumer:
        consumer.subscribe(["t"])
        while not await admin.list_groups(types=[SHARE], states=["Stable"]):
            await consumer.poll(timeout_ms=500)
        for _ in range(20):
            await consumer.poll(timeout_ms=500)
        (described,) = await admin.describe_groups([GROUP])
        (member,) = described.members
        assert member.assignment == (T0, T1)
        assert await admin.group_lags([described]) == {
            GROUP: [PartitionLag(each, None, 0, member) for each in (T0, T1)]
        }
        assert member.member_epoch == described.group_epoch == described.assignment_epoch
        expected = ShareGroupOffset(0, 0, 0)
        assert await admin.list_share_group_offsets(GROUP) == {T0: expected, T1: expected}
        for change in (
            admin.alter_share_group_offsets(GROUP, {T0: 0}),
            admin.delete_share_group_offsets(GROUP, ["t"]),
        ):
            with pytest.raises(ApiError, match="stop them first") as refused:
                await change
            assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
        for missing in (
            admin.list_share_group_offsets("h"),
            admin.alter_share_group_offsets("h", {T0: 0}),
            admin.delete_share_group_offsets("h", ["t"]),
        ):
            with pytest.raises(ApiError, match="there is no share group h"):
                await missing


@with_clients(**ALONE)
async def test_the_window_of_a_partition_is_described_by_its_leader(clients: Clients) -> None:
    await clients.create("t", 1)
    async with (
        clients.admin() as admin,
        clients.share_consumer(
            share_acknowledgement_mode="explicit", share_acquire_mode="record_limit"
        ) as consumer,
    ):
        await admin.alter_configs(
            {ConfigResource.group(GROUP): {"share.auto.offset.reset": "earliest"}}
        )
        await clients.fill(4, partitions=1)
        assert await admin.describe_share_window(GROUP, T0) is None
        consumer.subscribe(["t"])
        records: list[ShareRecord] = []
        while len(records) < 4:
            records += await consumer.poll(timeout_ms=500)
        consumer.acknowledge(records[1])
        consumer.acknowledge(records[2], AcknowledgeType.RELEASE)
        await consumer.commit()
        window = await admin.describe_share_window(GROUP, T0)
        assert window is not None
        (member,) = (await admin.describe_groups([GROUP]))[0].members
        (holder,) = window.holders
        assert (holder.member_id, holder.records, window.readers) == (member.member_id, 2, 1)
        assert (window.start_offset, window.size, window.is_full) == (0, 4, False)
        first, done, released, last = window.ranges
        assert [each.state for each in window.ranges] == [
            *("acquired", "acknowledged", "available", "acquired"),
        ]
        assert first.member_id == last.member_id == member.member_id
        assert first.last_vain_delivery is None
        assert released.last_vain_delivery is not None
        assert released.last_vain_delivery.end == "released"
        assert done.delivery_count == 1
        page = await admin.describe_share_window(GROUP, T0, from_offset=1, max_ranges=1)
        assert page is not None
        assert (page.ranges, page.next_offset, window.next_offset) == ((done,), 2, None)
        with pytest.raises(ApiError, match="there is no partition t-1"):
            await admin.describe_share_window(GROUP, T1)
