"""TxnOffsetCommit: offsets that count when the producer's transaction is committed."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordinator.group.types import (
    DeletedTopic,
    FetchedOffset,
    GroupState,
    OffsetToCommit,
    OffsetToDelete,
    TopicToFetch,
)
from broker.coordinator.step import KeyValue, Now
from stele.errors import ErrorCode
from tests.support.consumer_protocol import ConsumerBench
from tests.support.groups import GroupBench

UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
STALE = ErrorCode.ILLEGAL_GENERATION
MEMBER: dict[str, Any] = {"member_id": "client-u1", "generation": 1}
TOPIC_ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))


def pending(offset: int = 5, **options: Any) -> GroupBench:
    bench = GroupBench(**options)
    assert bench.commit_offset(offset, producer_id=1) is ErrorCode.NONE
    return bench


class TestWhoMayCommit:
    """KIP-447: a member that says who it is has to be the one of now."""

    @pytest.mark.parametrize(
        ("asked", "error"),
        [({}, ErrorCode.NONE), ({"generation": 0}, STALE), ({"member_id": "m"}, ErrorCode.NONE)],
    )
    def test_to_a_group_that_is_not_there(self, asked: dict[str, Any], error: ErrorCode) -> None:
        assert GroupBench().commit_offset(5, producer_id=1, **asked) is error

    @pytest.mark.parametrize(
        ("asked", "error"),
        [
            (MEMBER, ErrorCode.NONE),
            ({}, ErrorCode.NONE),  # a client that does not know KIP-447
            ({"member_id": "nobody", "generation": 1}, UNKNOWN),
            ({"member_id": "nobody"}, UNKNOWN),
            ({"member_id": "client-u1"}, STALE),
            ({"instance": "i"}, UNKNOWN),
            ({"generation": 0}, UNKNOWN),
            ({**MEMBER, "generation": 0}, STALE),
            ({**MEMBER, "instance": "i"}, UNKNOWN),
        ],
    )
    def test_to_a_group_with_members(self, asked: dict[str, Any], error: ErrorCode) -> None:
        bench = GroupBench()
        bench.stable()
        assert bench.commit_offset(5, producer_id=1, **asked) is error
        bench.end_transaction()
        assert bench.offset() == (5 if error is ErrorCode.NONE else -1)

    def test_while_the_leader_assigns(self) -> None:
        bench = GroupBench()
        bench.joined()
        bench.pass_time(3_000)
        assert bench.described().state is GroupState.COMPLETING_REBALANCE
        assert bench.commit_offset(5, producer_id=1, **MEMBER) is ErrorCode.NONE

    def test_of_a_fenced_process(self) -> None:
        bench = GroupBench()
        bench.join(instance="i")
        bench.pass_time(3_000)
        bench.settle(["i-u1"], 1)
        bench.join(instance="i")
        former: dict[str, Any] = {"member_id": "i-u1", "generation": 1, "instance": "i"}
        error = bench.commit_offset(5, producer_id=1, **former)
        assert error is ErrorCode.FENCED_INSTANCE_ID

    @pytest.mark.parametrize(
        ("asked", "error"),
        [
            ({"member_id": "m", "generation": 1}, ErrorCode.NONE),
            ({}, ErrorCode.NONE),
            ({"member_id": "m", "generation": 0}, STALE),
            ({"member_id": "m"}, STALE),
            ({"member_id": "nobody", "generation": 1}, UNKNOWN),
        ],
    )
    def test_to_a_group_of_consumers(self, asked: dict[str, Any], error: ErrorCode) -> None:
        bench = ConsumerBench()
        bench.consumer_join("m")
        assert bench.commit_offset(5, producer_id=1, **asked) is error

    def test_to_a_group_of_consumers_without_members(self) -> None:
        bench = ConsumerBench()
        bench.consumer_join("m")
        bench.beat("m", -1)
        assert bench.commit_offset(5, producer_id=1, member_id="x") is ErrorCode.NONE


class TestFetch:
    def test_nobody_sees_pending_offsets(self) -> None:
        bench = pending(6)
        assert bench.offset() == -1
        assert bench.offsets() == ()
        assert list(bench.machine.committed_offsets()) == []
        bench.end_transaction()
        assert bench.offset() == 6

    def test_a_reader_of_stable_offsets_is_refused_offsets_that_may_change(self) -> None:
        bench = GroupBench()
        for partition in (0, 1):
            bench.commit_offset(5, partition=partition)
        bench.commit_offset(6, producer_id=1)
        bench.commit_offset(6, producer_id=1, partition=2)
        unstable = [FetchedOffset("t", each, error=UNSTABLE) for each in (0, 2)]
        stable = FetchedOffset("t", 1, 5)
        asked = TopicToFetch("t", (0, 1, 2, 3))
        found = bench.offsets(asked, require_stable=True)
        assert found == (unstable[0], stable, unstable[1], FetchedOffset("t", 3))
        # Without a list of partitions the answer has only committed offsets, as Kafka's.
        assert bench.offsets(require_stable=True) == (unstable[0], stable)
        assert [each.offset for each in bench.offsets(asked)] == [5, 5, -1, -1]
        assert [each.offset for each in bench.offsets()] == [5, 5]
        bench.end_transaction(commits=False)
        offsets = [each.offset for each in bench.offsets(asked, require_stable=True)]
        assert offsets == [5, 5, -1, -1]

    def test_a_marker_that_may_vanish_is_waited_for(self) -> None:
        bench = pending()
        bench.commits_at_once = False
        bench.end_transaction()
        assert bench.offset() == -1
        heard = bench.ask_offsets(TopicToFetch("t", (0,)), require_stable=True)
        assert heard.told == []
        bench.commit()
        assert [each.offsets[0].offset for each in heard.told] == [5]

    def test_another_coordinator_goes_on(self) -> None:
        bench = pending()
        bench.reload()
        assert bench.offsets(TopicToFetch("t", (0,)), require_stable=True)[0].error is UNSTABLE
        bench.end_transaction()
        bench.reload()
        assert bench.offset(require_stable=True) == 5


class TestDeletion:
    def test_of_offsets(self) -> None:
        bench = pending()
        answer = bench.delete_offsets(OffsetToDelete("t", 0))
        assert answer.errors == (ErrorCode.NONE,)
        bench.end_transaction()
        assert bench.offset() == -1

    def test_of_a_group(self) -> None:
        bench = pending()
        bench.commit_offset(5, partition=1)
        assert bench.delete() is ErrorCode.NONE
        assert bench.described().state is GroupState.DEAD
        bench.end_transaction()
        assert bench.offsets() == ()
        assert bench.described().state is GroupState.DEAD
        bench.reload()
        assert bench.offsets() == ()

    def test_of_a_topic(self) -> None:
        bench = GroupBench()
        bench.topic_ids = {"t": TOPIC_ID, "u": TOPIC_ID}
        bench.reload()
        bench.ask_commit(
            OffsetToCommit("t", 0, 5, topic_id=TOPIC_ID),
            OffsetToCommit("t", 1, 5, topic_id=TOPIC_ID),
            OffsetToCommit("u", 0, 5, topic_id=TOPIC_ID),
            producer_id=1,
        )
        bench.topic_ids = {"t": OTHER_ID, "u": TOPIC_ID}
        bench.delete_topics(DeletedTopic("t", TOPIC_ID))
        bench.end_transaction()
        assert [(each.topic, each.partition) for each in bench.offsets()] == [("u", 0)]


class TestExpiry:
    HOUR_MS = 3_600_000

    def expiring(self) -> GroupBench:
        bench = GroupBench(offsets_retention_minutes=1)
        bench.reload()
        return bench

    def test_what_a_transaction_uses_stays(self) -> None:
        bench = self.expiring()
        bench.commit_offset(5)
        bench.commit_offset(5, partition=1)
        bench.commit_offset(6, producer_id=1)
        bench.pass_time(self.HOUR_MS)
        assert [each.partition for each in bench.offsets()] == [0]
        bench.end_transaction(commits=False)
        bench.pass_time(self.HOUR_MS)
        assert bench.described().state is GroupState.DEAD

    def test_a_group_with_pending_offsets_stays(self) -> None:
        bench = self.expiring()
        bench.left(*bench.stable())
        bench.commit_offset(5, producer_id=1)
        bench.pass_time(self.HOUR_MS)
        assert bench.described().state is GroupState.EMPTY
        bench.end_transaction()
        assert bench.offset() == 5

    def test_a_group_is_not_forgotten_with_its_last_id(self) -> None:
        bench = self.expiring()
        bench.commit_offset(5, producer_id=1)
        bench.end_transaction(commits=False)
        bench.pass_time(self.HOUR_MS)
        assert bench.described().state is GroupState.DEAD


def test_a_transaction_cannot_change_a_group() -> None:
    machine = GroupBench().machine
    with pytest.raises(ValueError, match="changes a group"):
        machine.replay_pending(0, KeyValue(b"\0\2\0\1g", b""), 1, Now(0.0, 0))


def test_commits_of_transactions_are_counted_once() -> None:
    bench = GroupBench()
    bench.reload()
    bench.commit_offset(5, producer_id=1)
    bench.end_transaction()
    assert bench.counters.offset_commits == 1
