"""Groups whose topic is deleted and made anew under its name, against one simulated node."""

from __future__ import annotations

import pytest

from stele.errors import CommitFailedError, ErrorCode
from stele.records import OffsetAndMetadata
from tests.support.consumer_groups import Clients, numbers, read, until, with_clients

both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


async def make_anew(clients: Clients, count: int, first: int) -> None:
    async with clients.admin() as admin:
        await admin.delete_topics(["t"])
    await clients.create(partitions=1)
    await clients.fill(count, partitions=1, first=first)


@both_protocols
@pytest.mark.parametrize("given", [True, False])
@with_clients
async def test_offsets_of_the_deleted_topic_are_not_committed_for_the_new_one(
    clients: Clients, protocol: str, given: bool
) -> None:
    await clients.create(partitions=1)
    await clients.fill(10, partitions=1)
    async with clients.consumer(enable_auto_commit=False) as first:
        first.subscribe(["t"])
        assert numbers(await read(first, 10)) == list(range(10))
        await make_anew(clients, 20, first=100)
        with pytest.raises(CommitFailedError) as refused:
            await first.commit({("t", 0): OffsetAndMetadata(10)} if given else None)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_ID
        assert "deleted" in str(refused.value)
        assert not any("deleted" in each for each in clients.waits), "it is told at once"
    async with clients.consumer() as second:
        second.subscribe(["t"])
        assert numbers(await read(second, 20)) == list(range(100, 120))


@both_protocols
@with_clients
async def test_an_offset_of_the_deleted_topic_is_not_committed_though_nothing_was_read(
    clients: Clients, protocol: str
) -> None:
    await clients.create(partitions=1)
    async with clients.consumer(enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        await until(lambda: consumer.consumed_offsets() != {}, consumer)
        await make_anew(clients, 1, first=100)
        with pytest.raises(CommitFailedError, match="deleted"):
            await consumer.commit({("t", 0): OffsetAndMetadata(7)})


@both_protocols
@with_clients
async def test_a_member_goes_on_at_the_first_record_of_the_new_topic_and_commits_that(
    clients: Clients, protocol: str
) -> None:
    await clients.create(partitions=1)
    await clients.fill(10, partitions=1)
    async with clients.consumer() as first:
        first.subscribe(["t"])
        await read(first, 10)
        await first.commit()
        await make_anew(clients, 20, first=100)
        assert numbers(await read(first, 20)) == list(range(100, 120))
        await first.commit()
        assert (await first.committed([("t", 0)]))["t", 0] == OffsetAndMetadata(20, 0)  # type: ignore[index]
