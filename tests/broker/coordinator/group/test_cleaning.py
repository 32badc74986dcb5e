"""Offsets and groups that go: too old, deleted, or of topics that are no more."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from broker.coordinator.group.cleaning import Sweep, some_of
from broker.coordinator.group.offsets import OffsetStore
from broker.coordinator.group.records import CommittedOffset, OffsetKey, offset_record
from broker.coordinator.group.types import (
    DeleteAnswer,
    DeletedTopic,
    GroupState,
    JoinAnswer,
    OffsetToCommit,
    TopicsDeleted,
)
from broker.coordinator.step import STEP_BYTES, KeyValue, Now, Step
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from tests.support.groups import GroupBench, told

CHECK_MS = 600_000
DAY_MS = 86_400_000
RETENTION_MS = 7 * DAY_MS
TOPIC_ID = bytes(15) + b"\1"
OTHER_ID = bytes(15) + b"\2"
COMMITTED = CommittedOffset(1, -1, "", 0)


class TestExpiry:
    def test_of_a_group_that_assigns_partitions_by_itself(self) -> None:
        bench = GroupBench()
        bench.reload()
        bench.commit_offset(5)
        bench.pass_time(DAY_MS)
        bench.commit_offset(6, partition=1)
        bench.pass_time(RETENTION_MS - DAY_MS - 1)
        assert len(bench.offsets()) == 2
        bench.pass_time(CHECK_MS)
        assert [each.partition for each in bench.offsets()] == [1]
        bench.pass_time(DAY_MS)
        assert bench.offsets() == ()
        assert bench.described().state is GroupState.DEAD
        assert bench.log[-1] == (b"\0\2\0\1g", None)

    def test_is_due_when_the_retention_is_over(self) -> None:
        bench = GroupBench(offsets_retention_minutes=CHECK_MS // 60_000)
        bench.reload()
        bench.commit_offset(5)
        bench.commit_offset(6, partition=1, retention_ms=CHECK_MS)
        bench.commit_offset(7, partition=2, retention_ms=CHECK_MS + 1)
        bench.pass_time(CHECK_MS)
        assert [each.partition for each in bench.offsets()] == [2]

    def test_while_members_join_nobody_knows_what_they_will_use(self) -> None:
        bench = GroupBench(offsets_retention_minutes=1)
        bench.reload()
        (member_id,) = bench.stable(session_ms=1_800_000)
        bench.commit_offset(5, topic="u", member_id=member_id, generation=1)
        bench.pass_time(CHECK_MS - 3_000 - 1)
        bench.joined()
        bench.pass_time(1)
        assert bench.described().state is GroupState.PREPARING_REBALANCE
        assert bench.offset("u") == 5

    def test_of_a_group_that_is_deleted_meanwhile(self) -> None:
        bench = GroupBench()
        bench.reload()
        bench.pass_time(CHECK_MS - 1)
        for topic in "tu":
            bench.ask_commit(*(OffsetToCommit(topic, each, 1) for each in range(30)))
        bench.now = Now(float(CHECK_MS), bench.now.time_ms + 1)
        for _ in range(2):  # it begins, and has looked at one of the topics
            bench.take(bench.machine.tick(bench.now))
        assert bench.delete() is ErrorCode.NONE
        bench.pass_time(0)
        assert bench.listed() == []

    def test_counts_from_the_last_member(self) -> None:
        bench = GroupBench()
        bench.reload()
        (member_id,) = bench.stable(session_ms=1_800_000)
        bench.commit_offset(5, topic="t", member_id=member_id, generation=1)
        for _ in range(8 * 96):
            bench.pass_time(DAY_MS // 96)
            assert bench.heartbeat(member_id, 1) is ErrorCode.NONE
        assert bench.offset() == 5
        bench.left(member_id)
        bench.pass_time(RETENTION_MS - 1)
        assert bench.offset() == 5
        bench.pass_time(CHECK_MS)
        assert bench.offsets() == ()
        assert bench.described().state is GroupState.DEAD

    def test_members_keep_only_what_they_subscribe_to(self) -> None:
        bench = GroupBench(offsets_retention_minutes=1)
        bench.reload()
        (member_id,) = bench.stable(session_ms=1_800_000)
        for topic in "tu":
            bench.commit_offset(5, topic=topic, member_id=member_id, generation=1)
        bench.pass_time(CHECK_MS)
        assert [each.topic for each in bench.offsets()] == ["t"]

    def test_offsets_of_other_protocols_never_expire_while_a_member_is_there(self) -> None:
        bench = GroupBench(offsets_retention_minutes=1)
        bench.reload()
        member_id, heard = bench.joined(protocol_type="connect", session_ms=1_800_000)
        bench.pass_time(3_000)
        assert told(heard, JoinAnswer).generation == 1
        bench.sync(member_id, 1, protocol_type="connect")
        assert bench.commit_offset(5, member_id=member_id, generation=1) is ErrorCode.NONE
        bench.pass_time(CHECK_MS)
        assert bench.offset() == 5

    def test_a_retention_of_its_own(self) -> None:
        bench = GroupBench()
        bench.reload()
        bench.commit_offset(5, retention_ms=1)
        bench.commit_offset(6, partition=1, retention_ms=30 * DAY_MS)
        bench.pass_time(CHECK_MS)
        assert [each.partition for each in bench.offsets()] == [1]
        bench.pass_time(29 * DAY_MS)
        assert bench.offset(partition=1) == 6

    def test_retentions_out_of_range(self) -> None:
        bench = GroupBench()
        bench.reload()
        bench.commit_offset(5, retention_ms=2**63 - 1)
        bench.commit_offset(6, partition=1, retention_ms=-(2**63))
        bench.pass_time(CHECK_MS)
        assert [each.partition for each in bench.offsets()] == [0]

    def test_a_new_commit_to_an_old_empty_group_is_kept(self) -> None:
        bench = GroupBench()
        bench.reload()
        (member_id,) = bench.stable()
        bench.commit_offset(1, partition=1, member_id=member_id, generation=1)
        bench.left(member_id)
        bench.pass_time(RETENTION_MS - 1)
        bench.commit_offset(5)
        bench.pass_time(CHECK_MS)
        assert [each.partition for each in bench.offsets()] == [0]

    def test_an_empty_group_goes_unless_somebody_is_about_to_join(self) -> None:
        bench = GroupBench()
        bench.reload()
        bench.left(*bench.stable())
        bench.pass_time(CHECK_MS - 10_000)
        bench.join()
        bench.pass_time(9_000)
        assert bench.described().state is GroupState.EMPTY
        bench.pass_time(CHECK_MS)
        assert bench.described().state is GroupState.DEAD
        assert bench.listed() == []

    def test_a_group_that_is_beginning_stays(self) -> None:
        bench = GroupBench()
        bench.reload()
        bench.pass_time(CHECK_MS - 1_000)
        member_id, _ = bench.joined()
        bench.left(member_id)
        bench.pass_time(1_000)
        assert bench.described().state is GroupState.PREPARING_REBALANCE
        bench.pass_time(2_000)
        assert bench.described().state is GroupState.EMPTY

    def test_many_go_in_several_batches(self) -> None:
        bench = GroupBench(offsets_retention_minutes=1)
        bench.reload()
        long = "t" * 249
        for group in range(30):
            offsets = [OffsetToCommit(long, each, 1) for each in range(40)]
            bench.ask_commit(*offsets, group_id=f"g{group}")
        bench.ask_commit(*(OffsetToCommit(long, each, 1) for each in range(2_000)))
        batches, bench.largest_batch_bytes = bench.batches, 0
        bench.pass_time(CHECK_MS)
        assert bench.listed() == []
        assert bench.batches - batches > 60
        assert bench.largest_batch_bytes < 20_000

    def test_refused_tombstones_come_again(self) -> None:
        bench = GroupBench(offsets_retention_minutes=1)
        bench.reload()
        bench.commit_offset(5)
        bench.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        bench.pass_time(CHECK_MS)
        assert bench.offset() == 5
        bench.refusal = ErrorCode.NONE
        bench.pass_time(0)
        assert bench.offset() == -1


def test_a_step_that_begins_a_sweep_has_no_records() -> None:
    bench = GroupBench(offsets_retention_minutes=0)
    bench.reload()
    bench.commit_offset(5)
    bench.pass_time(CHECK_MS - 1)
    due = Now(bench.now.monotonic_ms + 1, bench.now.time_ms + 1)
    assert [len(bench.machine.tick(due).records) for _ in range(4)] == [0, 0, 1, 1]


def test_a_step_has_records_up_to_a_size() -> None:
    half = KeyValue(bytes(STEP_BYTES // 2), None)
    assert len(some_of(iter([half] * 4))) == 2


class TestSweep:
    """Two topics of three groups, each with one offset."""

    def sweep(self) -> Sweep:
        offsets = OffsetStore()
        for number, (group_id, topic) in enumerate(itertools.product("abc", "tu")):
            key = OffsetKey(group_id, TopicPartition(topic, 0))
            offsets.replay(number, key, offset_record(key, COMMITTED).value)
        sweep = Sweep(offsets)
        sweep.begin("abc")
        return sweep

    def go_on(self, sweep: Sweep, due: set[str]) -> list[bytes]:
        """The tombstones of the next step: of topics, and of groups at their end."""

        def find(group_id: str, topic: str = "") -> Iterator[KeyValue]:
            if group_id + topic in due:
                yield KeyValue((group_id + topic).encode(), None)

        step = Step()
        sweep.go_on(step, find, find)
        return [each.key for each in step.records]

    def test_a_step_either_goes_on_or_has_records(self) -> None:
        sweep = self.sweep()
        due = {"bt", "b", "cu"}
        found = []
        while not sweep.is_over:
            keys = self.go_on(sweep, due)
            assert self.go_on(sweep, due) == keys or keys == []
            found += keys
            due -= {key.decode() for key in keys}
        assert found == [b"bt", b"b", b"cu"]

    def test_a_step_is_bounded(self) -> None:
        offsets = OffsetStore()
        for number in range(100):
            key = OffsetKey("a", TopicPartition(f"t{number}", 0))
            offsets.replay(number, key, offset_record(key, COMMITTED).value)
        sweep = Sweep(offsets)
        sweep.begin("a")
        looked_at: list[str] = []

        def find(group_id: str, topic: str = "") -> Iterator[KeyValue]:
            looked_at.append(topic)
            return iter(())

        sizes = []
        while not sweep.is_over:
            before = len(looked_at)
            sweep.go_on(Step(), find, find)
            sizes.append(len(looked_at) - before)
        # A step looks 25 times: at the group, and at each topic and at its offset.
        assert sizes == [12] + [13] * 6 + [11]


class TestDeletedTopics:
    @pytest.mark.parametrize(
        ("committed", "remains"), [(TOPIC_ID, False), (bytes(16), False), (OTHER_ID, True)]
    )
    def test_their_offsets_go(self, committed: bytes, remains: bool) -> None:
        bench = GroupBench()
        for group_id in "gh":
            bench.ask_commit(
                OffsetToCommit("t", 0, 5, topic_id=committed),
                OffsetToCommit("u", 0, 5, topic_id=TOPIC_ID),
                group_id=group_id,
            )
        bench.delete_topics(DeletedTopic("t", TOPIC_ID))
        for group_id in "gh":
            found = [each.topic for each in bench.offsets(group_id=group_id)]
            assert found == (["t", "u"] if remains else ["u"])

    def test_those_that_a_new_coordinator_finds(self) -> None:
        """The topics were deleted while nobody coordinated the groups, or during the load."""
        bench = GroupBench()
        for group_id in "gh":
            bench.ask_commit(
                OffsetToCommit("gone", 0, 5, topic_id=TOPIC_ID),
                OffsetToCommit("gone", 1, 5),
                OffsetToCommit("anew", 0, 5, topic_id=TOPIC_ID),
                OffsetToCommit("anew", 1, 5),
                OffsetToCommit("there", 0, 5, topic_id=TOPIC_ID),
                group_id=group_id,
            )
        bench.topic_ids = {"anew": OTHER_ID, "there": TOPIC_ID}
        bench.reload()
        bench.pass_time(0)
        for group_id in "gh":
            found = [(each.topic, each.partition) for each in bench.offsets(group_id=group_id)]
            assert found == [("anew", 1), ("there", 0)]

    def test_groups_that_a_new_coordinator_finds_and_hears_of(self) -> None:
        bench = GroupBench()
        for topic in ("gone", "deleted"):
            bench.ask_commit(OffsetToCommit(topic, 0, 5, topic_id=TOPIC_ID))
        bench.topic_ids = {}
        bench.reload()
        bench.delete_topics(DeletedTopic("deleted", TOPIC_ID))
        assert bench.offsets() == ()

    @pytest.mark.parametrize("meanwhile", ["u", "vu", "vwu", "vwxu"])
    def test_a_topic_deleted_while_others_are_removed(self, meanwhile: str) -> None:
        """It does not begin the sweep again, or the last groups would never get their turn."""
        bench = GroupBench()
        for topic in "tu":
            bench.ask_commit(OffsetToCommit(topic, 0, 5, topic_id=TOPIC_ID))
        bench.machine.note(TopicsDeleted((DeletedTopic("t", TOPIC_ID),)), bench.now)
        for topic in meanwhile:
            bench.take(bench.machine.tick(bench.now))
            bench.machine.note(TopicsDeleted((DeletedTopic(topic, TOPIC_ID),)), bench.now)
        assert "u" in [each.topic for each in bench.offsets()]
        assert len(bench.offsets()) == (1 if len(meanwhile) > 2 else 2)
        bench.pass_time(0)
        assert bench.offsets() == ()

    def test_of_members_too(self) -> None:
        bench = GroupBench()
        (member_id,) = bench.stable()
        bench.commit_offset(5, member_id=member_id, generation=1)
        bench.delete_topics(DeletedTopic("t", TOPIC_ID))
        assert bench.offsets() == ()
        assert bench.machine.deadline_ms is not None  # the session's
        assert bench.heartbeat(member_id, 1) is ErrorCode.NONE

    def test_refused_tombstones_come_again(self) -> None:
        bench = GroupBench()
        bench.commit_offset(5)
        bench.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        bench.delete_topics(DeletedTopic("t", TOPIC_ID))
        assert bench.offset() == 5
        bench.refusal = ErrorCode.NONE
        bench.pass_time(0)
        assert bench.offset() == -1
        bench.commit_offset(6)
        bench.delete_topics(DeletedTopic("u", OTHER_ID))
        assert bench.offset() == 6


class TestDeleteGroups:
    def test_a_group_and_its_offsets(self) -> None:
        bench = GroupBench()
        bench.left(*bench.stable())
        bench.commit_offset(5)
        assert bench.delete() is ErrorCode.NONE
        assert bench.offsets() == ()
        assert bench.described().state is GroupState.DEAD
        assert bench.delete() is ErrorCode.GROUP_ID_NOT_FOUND

    def test_a_large_group_in_several_steps(self) -> None:
        """The group itself goes with the last offsets: a crash in between leaves a group that can
        be deleted again."""
        bench = GroupBench()
        for topic in "tu":
            bench.ask_commit(*(OffsetToCommit(topic * 249, each, 1) for each in range(100)))
        bench.largest_batch_bytes = 0
        answer = told(bench.ask_deletion_of_group(), DeleteAnswer)
        assert (answer.error, answer.is_over) == (ErrorCode.NONE, False)
        assert 0 < len(bench.offsets()) < 200
        bench.reload()
        assert bench.described().state is GroupState.EMPTY
        assert bench.delete() is ErrorCode.NONE
        assert bench.offsets() == ()
        assert bench.described().state is GroupState.DEAD
        assert bench.log[-1] == (b"\0\2\0\1g", None)
        assert bench.largest_batch_bytes < 20_000

    def test_a_group_with_members(self) -> None:
        bench = GroupBench()
        bench.stable()
        assert bench.delete() is ErrorCode.NON_EMPTY_GROUP

    def test_a_missing_group_is_answered_when_it_is_certain(self) -> None:
        bench = GroupBench()
        bench.commit_offset(5)
        bench.commits_at_once = False
        heard = [bench.ask_deletion_of_group() for _ in range(2)]
        assert [each.told for each in heard] == [[], []]
        assert bench.offset() == 5
        bench.commit()
        errors = [told(each, DeleteAnswer).error for each in heard]
        assert errors == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]

    def test_who_was_given_an_id_has_to_ask_again(self) -> None:
        bench = GroupBench()
        bench.left(*bench.stable())
        bench.join()
        assert bench.delete() is ErrorCode.NONE
        bench.pass_time(60_000)
        assert bench.described().state is GroupState.DEAD
