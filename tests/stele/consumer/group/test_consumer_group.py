"""Consumers as members of groups, against one simulated node."""

from __future__ import annotations

import asyncio
import re

import pytest

from stele import TopicPartition
from stele.consumer.group.listener import RebalanceListener
from stele.errors import (
    ClosedError,
    CommitFailedError,
    ConfigError,
    ErrorCode,
    FencedInstanceError,
)
from stele.records import OffsetAndMetadata
from tests.support.consumer_groups import Clients, numbers, partitions, read, until, with_clients
from tests.support.one_node import HOST

both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@both_protocols
@with_clients
async def test_a_group_goes_on_where_it_has_committed(clients: Clients, protocol: str) -> None:
    await clients.create()
    await clients.fill(40)
    async with clients.consumer() as first:
        first.subscribe(["t"])
        assert numbers(await read(first, 40)) == list(range(40))
        assert first.assignment() == partitions(0, 1, 2, 3)
    await clients.fill(8, first=40)
    async with clients.consumer() as second:
        second.subscribe(["t"])
        assert numbers(await read(second, 8)) == list(range(40, 48))
        committed = await second.committed([("t", 0), ("t", 9)])
        assert committed == {("t", 0): OffsetAndMetadata(10, 0), ("t", 9): None}


@pytest.mark.parametrize(
    ("protocol", "strategy"),
    [
        ("classic", "range"),
        ("classic", "roundrobin"),
        ("classic", "cooperative-sticky"),
        ("consumer", "range"),
    ],
)
@with_clients
async def test_members_share_and_take_over(clients: Clients, protocol: str, strategy: str) -> None:
    await clients.create()
    await clients.fill(20)
    options = {"partition_assignment_strategy": strategy}
    first, second = clients.consumer(**options), clients.consumer(**options)
    first.subscribe(["t"])
    found = await read(first, 20)
    second.subscribe(["t"])
    found += await until(
        lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second
    )
    await clients.fill(20, first=20)
    found += await until(lambda: bool(first.assignment()), first)
    for each in (first, second):
        found += await read(each, 40 - 20 - 10)
    assert numbers(found) == list(range(40))
    await second.close()
    await clients.fill(20, first=40)
    assert numbers(await read(first, 20)) == list(range(40, 60))
    assert sorted(first.assignment()) == partitions(0, 1, 2, 3)
    await first.close()


@with_clients
async def test_eager_members_hear_of_every_change_and_cooperative_ones_of_what_moves(
    clients: Clients,
) -> None:
    async def heard(clients: Clients, strategy: str) -> list[tuple[str, list[int]]]:
        told: list[tuple[str, list[int]]] = []

        def note(what: str, names: list[TopicPartition]) -> None:
            told.append((what, [name.partition for name in names]))

        async def revoked(names: list[TopicPartition]) -> None:
            note("revoked", names)

        options = {"partition_assignment_strategy": strategy, "group_id": strategy}
        first = clients.consumer(client_id="a", **options)  # member ids begin with it
        second = clients.consumer(client_id="b", **options)
        first.subscribe(
            ["t"],
            listener=RebalanceListener(
                on_partitions_assigned=lambda names: note("assigned", names),
                on_partitions_revoked=revoked,
            ),
        )
        await until(lambda: len(first.assignment()) == 4, first)
        second.subscribe(["t"])
        await until(lambda: len(second.assignment()) == 2, first, second)
        await second.close()
        await until(lambda: len(first.assignment()) == 4, first)
        await first.close()
        return told

    await clients.create()
    assert await heard(clients, "range") == [
        ("assigned", [0, 1, 2, 3]),
        ("revoked", [0, 1, 2, 3]),
        ("assigned", [0, 1]),
        ("revoked", [0, 1]),
        ("assigned", [0, 1, 2, 3]),
        ("revoked", [0, 1, 2, 3]),
    ]
    sticky = await heard(clients, "cooperative-sticky")
    changes = [each for each in sticky if each[1]]
    assert changes == [
        ("assigned", [0, 1, 2, 3]),
        ("revoked", changes[1][1]),
        ("assigned", changes[1][1]),
        ("revoked", [0, 1, 2, 3]),
    ]
    assert len(changes[1][1]) == 2


@both_protocols
@with_clients
async def test_a_listener_may_commit_and_seek(clients: Clients, protocol: str) -> None:
    await clients.create()
    await clients.fill(40)
    consumer = clients.consumer(enable_auto_commit=False)

    async def revoked(names: list[TopicPartition]) -> None:
        await consumer.commit({name: OffsetAndMetadata(3, 0, "by hand") for name in names})

    def assigned(names: list[TopicPartition]) -> None:
        consumer.seek("t", 0, 5)

    consumer.subscribe(["t"], listener=RebalanceListener(assigned, revoked))
    found = await read(consumer, 35)
    assert min(each.offset for each in found if each.partition == 0) == 5
    await consumer.unsubscribe()
    assert consumer.assignment() == []
    found_again = await consumer.committed(partitions(1))
    assert found_again == {("t", 1): OffsetAndMetadata(3, 0, "by hand")}
    await consumer.close()


@both_protocols
@with_clients
async def test_offsets_are_committed_while_the_consumer_polls(
    clients: Clients, protocol: str
) -> None:
    await clients.create()
    await clients.fill(40)
    async with clients.consumer(auto_commit_interval_ms=1000) as consumer:
        consumer.subscribe(["t"])
        await read(consumer, 40)
        await asyncio.sleep(1)
        await consumer.poll(timeout_ms=100)  # the records before this poll were handled
        await asyncio.sleep(1)
        assert (await consumer.committed([("t", 3)]))["t", 3] == OffsetAndMetadata(10, 0)  # type: ignore[index]
        await clients.fill(4, first=40)
        await read(consumer, 4)
        await asyncio.sleep(1)
        await consumer.poll(timeout_ms=100)
        await asyncio.sleep(1)
        assert (await consumer.committed([("t", 3)]))["t", 3] == OffsetAndMetadata(11, 0)  # type: ignore[index]


@both_protocols
@with_clients
async def test_a_slow_handler_loses_no_membership_until_the_poll_interval_is_over(
    clients: Clients, protocol: str
) -> None:
    lost: list[int] = []
    await clients.create()
    await clients.fill(8)
    options = {"max_poll_interval_ms": 30_000, "session_timeout_ms": 6_000}
    slow, other = clients.consumer(**options), clients.consumer()
    slow.subscribe(
        ["t"],
        listener=RebalanceListener(on_partitions_lost=lambda names: lost.append(len(names))),
    )
    await read(slow, 8)
    await asyncio.sleep(25)
    await slow.commit()
    await slow.poll(timeout_ms=0)
    await asyncio.sleep(35)
    with pytest.raises(CommitFailedError, match="not a member of group"):
        await slow.commit()
    unattended = [each for each in clients.waits if "max_poll_interval_ms=30000" in each]
    assert len(unattended) == 1
    other.subscribe(["t"])
    await until(lambda: len(other.assignment()) == 4, other)
    assert lost == []
    await until(lambda: len(slow.assignment()) == 2, slow, other)
    assert lost == [4]
    await slow.close()
    await other.close()


@both_protocols
@with_clients
async def test_a_commit_of_a_member_that_was_removed_fails_and_says_what_to_do(
    clients: Clients, protocol: str
) -> None:
    await clients.create()
    await clients.fill(8)
    consumer = clients.consumer(heartbeat_interval_ms=9_000, enable_auto_commit=False)
    consumer.subscribe(["t"])
    await read(consumer, 8)
    fabric = clients.machine.simulation.fabric
    fabric.cut("client", HOST)
    await asyncio.sleep(11)
    fabric.heal()
    with pytest.raises(CommitFailedError, match="max_poll_records") as caught:
        await consumer.commit()
    assert caught.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert numbers(await read(consumer, 8)) == list(range(8))  # again
    await consumer.commit()
    await consumer.close()


@both_protocols
@with_clients
async def test_who_has_no_function_for_lost_partitions_hears_that_they_are_revoked(
    clients: Clients, protocol: str
) -> None:
    told: list[int] = []
    await clients.create()
    await clients.fill(8)
    consumer = clients.consumer(heartbeat_interval_ms=9_000, enable_auto_commit=False)
    revoked = RebalanceListener(on_partitions_revoked=lambda names: told.append(len(names)))
    consumer.subscribe(["t"], listener=revoked)
    await read(consumer, 8)
    fabric = clients.machine.simulation.fabric
    fabric.cut("client", HOST)
    await asyncio.sleep(11)
    fabric.heal()
    assert numbers(await read(consumer, 8)) == list(range(8))  # again
    assert told == [4]
    await consumer.close()


@with_clients
async def test_a_static_member_has_its_partitions_back_and_a_second_one_fences_it(
    clients: Clients,
) -> None:
    await clients.create()
    one = clients.consumer(group_instance_id="one")
    other = clients.consumer(group_instance_id="other")
    for each in (one, other):
        each.subscribe(["t"])
    await until(lambda: len(one.assignment()) == len(other.assignment()) == 2, one, other)
    before, generation = one.assignment(), one.group_metadata().generation_id
    await one.close()
    again = clients.consumer(group_instance_id="one")
    again.subscribe(["t"])
    await until(lambda: bool(again.assignment()), again, other)
    assert again.assignment() == before
    assert again.group_metadata().generation_id == generation
    twin = clients.consumer(group_instance_id="one")
    twin.subscribe(["t"])
    await until(lambda: bool(twin.assignment()), twin, other)
    with pytest.raises(FencedInstanceError, match="group_instance_id='one'"):
        await until(lambda: False, again, other)
    assert again.assignment() == []
    assert "the consumer is no member of group readers: " in str(again.why())
    for each in (again, twin, other):
        await each.close()


@both_protocols
@with_clients
async def test_a_pattern_finds_topics_that_come_later(clients: Clients, protocol: str) -> None:
    await clients.create("orders-1", 1)
    await clients.create("other", 1)
    async with clients.consumer(metadata_max_age_ms=2000) as consumer:
        consumer.subscribe(re.compile(r"orders-\d"))
        await until(lambda: bool(consumer.assignment()), consumer)
        assert consumer.assignment() == partitions(0, topic="orders-1")
        await clients.create("orders-2", 1)
        await until(lambda: len(consumer.assignment()) == 2, consumer)
        assert consumer.assignment()[1] == TopicPartition("orders-2", 0)


@both_protocols
@with_clients
async def test_added_partitions_and_topics_that_come_late_are_assigned(
    clients: Clients, protocol: str
) -> None:
    await clients.create("t", 1)
    async with clients.consumer(metadata_max_age_ms=2000) as consumer:
        consumer.subscribe(["t", "late"])
        await until(lambda: len(consumer.assignment()) == 1, consumer)
        await clients.create("late", 1)
        await until(lambda: len(consumer.assignment()) == 2, consumer)
        await clients.grow("t", 3)
        await until(lambda: len(consumer.assignment()) == 4, consumer)


@with_clients
async def test_a_consumer_may_name_its_partitions_and_keep_its_offsets_in_a_group(
    clients: Clients,
) -> None:
    await clients.create()
    await clients.fill(40)
    async with clients.consumer(enable_auto_commit=False) as consumer:
        consumer.assign([("t", 0)])
        await read(consumer, 10)
        done = consumer.commit_async({("t", 0): 4})
        await done
        with pytest.raises(ConfigError, match="unsubscribe"):
            consumer.subscribe(["t"])
    async with clients.consumer() as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        assert await consumer.position("t", 0) == 4
        assert await consumer.position("t", 1) == 0
        assert len(await read(consumer, 16)) == 16
    async with clients.consumer() as consumer:
        assert await consumer.committed(partitions(0, 1)) == dict.fromkeys(
            partitions(0, 1), OffsetAndMetadata(10, 0)
        )


@both_protocols
@with_clients
async def test_the_coordinator_may_be_away_for_a_while(clients: Clients, protocol: str) -> None:
    await clients.create()
    await clients.fill(8)
    async with clients.consumer() as consumer:
        consumer.subscribe(["t"])
        await read(consumer, 8)
        generation = consumer.group_metadata()
        fabric = clients.machine.simulation.fabric
        fabric.cut("client", HOST)
        committing = consumer.commit_async()
        await asyncio.sleep(4)
        assert not committing.done()
        fabric.heal()
        await committing
        await clients.fill(8, first=8)
        assert numbers(await read(consumer, 8)) == list(range(8, 16))
        assert consumer.group_metadata() == generation


@with_clients
async def test_a_consumer_says_why_its_group_gives_it_nothing(clients: Clients) -> None:
    await clients.create("t", 1)
    names = [("t", -1)]
    first, second = clients.consumer(), clients.consumer()
    first.subscribe(["t"])
    assert list(first.why()) == names
    assert list(first.why(("t", 0))) == partitions(0)
    assert "must be joined (the subscription changed): poll() does it" in str(first.why())
    await first.poll(timeout_ms=0)
    assert "is rebalancing, waits for: " in first.why()["t", -1]  # type: ignore[index]
    await asyncio.sleep(5)
    assert first.why()["t", -1] == (  # type: ignore[index]
        "no partition is assigned; the group has assigned partitions: poll() takes them"
    )
    await until(lambda: bool(first.assignment()), first)
    second.subscribe(["t"])
    await until(lambda: second.group_metadata().generation_id > 1, first, second)
    await until(lambda: len(first.assignment() + second.assignment()) == 1, first, second)
    idle = second if first.assignment() else first
    assert "the other members of group readers have all partitions" in str(idle.why())
    fabric = clients.machine.simulation.fabric
    fabric.cut("client", HOST)
    await asyncio.sleep(20)
    assert "the coordinator is" not in str(idle.why())
    fabric.heal()
    await first.close()
    await second.close()


@both_protocols
@with_clients
async def test_a_consumer_that_names_its_partitions_waits_for_no_group(
    clients: Clients, protocol: str
) -> None:
    await clients.create("t", 1)
    async with clients.consumer() as consumer:
        consumer.assign([("t", 0)])
        await consumer.poll(timeout_ms=1000)
        assert list(consumer.why()) == partitions(0)
        assert "group" not in str(consumer.why())


@both_protocols
@with_clients
async def test_what_a_group_cannot_do_is_refused(clients: Clients, protocol: str) -> None:
    consumer = clients.consumer(group_id=None)
    for what in (
        consumer.group_metadata,
        consumer.commit_async,
        lambda: consumer.subscribe(["t"]),
    ):
        with pytest.raises(ConfigError, match="group_id"):
            what()
    await consumer.close()
    consumer = clients.consumer()
    with pytest.raises(ConfigError, match="list of names"):
        consumer.subscribe("t")
    with pytest.raises(ConfigError, match="one topic at least"):
        consumer.subscribe([])
    with pytest.raises(ConfigError, match="negative"):
        await consumer.commit({("t", 0): -1})
    consumer.subscribe(["t"])
    with pytest.raises(ConfigError, match="unsubscribe"):
        consumer.assign([("t", 0)])
    await consumer.close()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"group_id": ""}, "group_id"),
        ({"group_id": None, "group_instance_id": "a"}, "needs a group_id"),
        ({"group_instance_id": ""}, "group_instance_id"),
        ({"partition_assignment_strategy": "fair"}, "'fair' must be one of"),
        ({"partition_assignment_strategy": ()}, "one strategy at least"),
        ({"heartbeat_interval_ms": 10_000}, "must be below session_timeout_ms"),
    ],
)
@with_clients
async def test_options_are_checked(clients: Clients, options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        clients.consumer(**options)


@both_protocols
@with_clients
async def test_what_did_not_count_is_read_again(clients: Clients, protocol: str) -> None:
    await clients.create()
    await clients.fill(12)
    async with clients.consumer(enable_auto_commit=False) as consumer:
        assert not consumer.commits_by_itself
        consumer.subscribe(["t"])
        assert numbers(await read(consumer, 12)) == list(range(12))
        await consumer.commit({("t", 0): 1, ("t", 1): 3})
        assert {each.offset for each in consumer.consumed_offsets().values()} == {3}
        consumer.seek_to_committed()
        assert consumer.consumed_offsets() == {}
        assert numbers(await read(consumer, 8)) == [2, 3, 4, 6, 7, 8, 10, 11]
        consumer.seek_to_committed(("t", 0))
        assert numbers(await read(consumer, 2)) == [4, 8]
    async with clients.consumer() as another:
        assert another.commits_by_itself


@both_protocols
@with_clients
async def test_a_listener_may_commit_while_the_consumer_closes(
    clients: Clients, protocol: str
) -> None:
    await clients.create()
    await clients.fill(8)
    consumer = clients.consumer(enable_auto_commit=False)

    async def commit(names: list[TopicPartition]) -> None:
        await consumer.commit()

    consumer.subscribe(["t"], listener=RebalanceListener(on_partitions_revoked=commit))
    await read(consumer, 8)
    await consumer.close()
    async with clients.consumer() as other:
        committed = await other.committed(partitions(0, 1, 2, 3))
        assert {each.offset for each in committed.values() if each is not None} == {2}


@both_protocols
@with_clients
async def test_a_close_that_is_cancelled_leaves_the_group_all_the_same(
    clients: Clients, protocol: str
) -> None:
    await clients.create()
    await clients.fill(8)
    consumer = clients.consumer()
    consumer.subscribe(["t"])
    await read(consumer, 8)
    polling = asyncio.create_task(consumer.poll(timeout_ms=60_000))
    await asyncio.sleep(1)
    closing = asyncio.create_task(consumer.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await consumer.close()
    with pytest.raises(ClosedError):
        await polling
    async with clients.admin() as admin:
        (group,) = await admin.describe_groups(["readers"])
        assert not group.members
    async with clients.consumer() as other:
        committed = await other.committed(partitions(0, 1, 2, 3))
        assert {each.offset for each in committed.values() if each is not None} == {2}


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@with_clients
async def test_a_poll_that_is_cancelled_within_a_rebalance_is_made_up_for(
    clients: Clients, strategy: str
) -> None:
    await clients.create()
    await clients.fill(8)
    told: list[tuple[str, list[TopicPartition]]] = []
    options = {"partition_assignment_strategy": strategy}
    first = clients.consumer(**options)
    first.subscribe(
        ["t"],
        listener=RebalanceListener(
            on_partitions_assigned=lambda names: told.append(("assigned", names)),
            on_partitions_revoked=lambda names: told.append(("revoked", names)),
        ),
    )
    await read(first, 8)
    second = clients.consumer(**options)
    second.subscribe(["t"])
    joining = asyncio.create_task(until(lambda: len(second.assignment()) == 2, second))
    while not joining.done():
        # Of these, one is cancelled while it commits what is to be given up.
        try:
            async with asyncio.timeout(0.002):
                await first.poll(timeout_ms=500)
        except TimeoutError:
            pass
        await asyncio.sleep(0.001)
    await joining
    revoked = [name for what, names in told if what == "revoked" for name in names]
    assert set(revoked) >= set(second.assignment())
    committed = await second.committed(second.assignment())
    assert {each.offset for each in committed.values() if each is not None} == {2}
    await first.close()
    await second.close()


@both_protocols
@with_clients
async def test_what_is_read_again_is_committed_again(clients: Clients, protocol: str) -> None:
    """Somebody has set the group's offset back since this consumer committed it."""
    await clients.create("t", 1)
    await clients.fill(4, partitions=1)
    async with clients.consumer() as consumer, clients.consumer() as other:
        consumer.assign([("t", 0)])
        await read(consumer, 4)
        await asyncio.sleep(6)
        await consumer.poll(timeout_ms=0)
        await asyncio.sleep(1)
        assert await other.committed(partitions(0)) == {("t", 0): OffsetAndMetadata(4, 0)}
        await other.commit({("t", 0): 1})
        consumer.seek_to_committed()
        assert numbers(await read(consumer, 3)) == [1, 2, 3]
        await asyncio.sleep(6)
        await consumer.poll(timeout_ms=0)
        await asyncio.sleep(1)
        assert await other.committed(partitions(0)) == {("t", 0): OffsetAndMetadata(4, 0)}
