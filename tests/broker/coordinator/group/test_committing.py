"""OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordinator.group.types import (
    FetchedOffset,
    GroupState,
    MemberProtocol,
    OffsetCommitAnswer,
    OffsetDeleteAnswer,
    OffsetFetchAnswer,
    OffsetToCommit,
    OffsetToDelete,
    TopicToFetch,
)
from stele.errors import ErrorCode
from tests.support.groups import SESSION_MS, GroupBench, told

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
TOPIC_ID = bytes(15) + b"\1"
OTHER_ID = bytes(15) + b"\2"
MEMBER: dict[str, Any] = {"member_id": "client-u1", "generation": 1}


class TestCommit:
    def test_a_group_that_assigns_partitions_by_itself(self) -> None:
        bench = GroupBench()
        assert bench.commit_offset(5) is ErrorCode.NONE
        described = bench.described()
        assert (described.state, described.protocol_type) == (GroupState.EMPTY, "")
        assert bench.offset() == 5
        assert bench.commit_offset(4) is ErrorCode.NONE
        assert bench.offset() == 4

    def test_all_is_given_back(self) -> None:
        bench = GroupBench()
        bench.ask_commit(
            OffsetToCommit("t", 1, 5, 3, "metadata", TOPIC_ID), OffsetToCommit("u", 0, 6)
        )
        assert bench.offsets() == (
            FetchedOffset("t", 1, 5, 3, "metadata", TOPIC_ID),
            FetchedOffset("u", 0, 6),
        )

    @pytest.mark.parametrize(
        ("asked", "error"),
        [
            ({"generation": 0}, ErrorCode.GROUP_ID_NOT_FOUND),
            ({"generation": 0, "knows_not_found": False}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "m"}, ErrorCode.NONE),
        ],
    )
    def test_to_a_group_that_is_not_there(self, asked: dict[str, Any], error: ErrorCode) -> None:
        assert GroupBench().commit_offset(5, **asked) is error

    @pytest.mark.parametrize(
        ("asked", "error"),
        [
            (MEMBER, ErrorCode.NONE),
            ({}, UNKNOWN),
            ({"member_id": "nobody", "generation": 1}, UNKNOWN),
            ({"member_id": "nobody"}, UNKNOWN),
            ({"member_id": "client-u1"}, ErrorCode.ILLEGAL_GENERATION),
            ({**MEMBER, "generation": 0}, ErrorCode.ILLEGAL_GENERATION),
            ({**MEMBER, "generation": 2}, ErrorCode.ILLEGAL_GENERATION),
            ({**MEMBER, "instance": "i"}, UNKNOWN),
        ],
    )
    def test_to_a_stable_group(self, asked: dict[str, Any], error: ErrorCode) -> None:
        bench = GroupBench()
        assert bench.stable() == ["client-u1"]
        assert bench.commit_offset(5, **asked) is error
        assert bench.offset() == (5 if error is ErrorCode.NONE else -1)

    def test_of_a_fenced_process(self) -> None:
        bench = GroupBench()
        bench.join(instance="i")
        bench.pass_time(3_000)
        bench.settle(["i-u1"], 1)
        bench.join(instance="i")
        error = bench.commit_offset(5, member_id="i-u1", generation=1, instance="i")
        assert error is ErrorCode.FENCED_INSTANCE_ID
        error = bench.commit_offset(5, member_id="i-u2", generation=1, instance="i")
        assert error is ErrorCode.NONE

    def test_while_members_join_they_still_own_what_they_commit(self) -> None:
        bench = GroupBench()
        bench.stable()
        bench.joined()
        assert bench.described().state is GroupState.PREPARING_REBALANCE
        assert bench.commit_offset(5, **MEMBER) is ErrorCode.NONE

    def test_while_the_leader_assigns_nobody_owns_anything(self) -> None:
        bench = GroupBench()
        bench.joined()
        bench.pass_time(3_000)
        assert bench.commit_offset(5, **MEMBER) is ErrorCode.REBALANCE_IN_PROGRESS

    def test_to_a_group_that_its_members_have_left(self) -> None:
        bench = GroupBench()
        bench.left(*bench.stable())
        assert bench.commit_offset(5, **MEMBER) is UNKNOWN
        assert bench.commit_offset(5, member_id="nobody", generation=0) is UNKNOWN
        assert bench.commit_offset(5) is ErrorCode.NONE

    def test_metadata_that_are_too_large(self) -> None:
        bench = GroupBench(offset_metadata_max_bytes=3)
        too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
        # As in Kafka, the limit is one of UTF-16 units. A face has two of them.
        face, none = "\U0001f642", ErrorCode.NONE
        asked = {"four": too_large, "abc": none, f"ä{face}ö": too_large, f"ä{face}": none}
        heard = bench.ask_commit(
            *(OffsetToCommit("t", number, 5, metadata=each) for number, each in enumerate(asked))
        )
        assert told(heard, OffsetCommitAnswer).errors == tuple(asked.values())
        assert [each.partition for each in bench.offsets()] == [1, 3]

    def test_a_commit_keeps_the_session_of_a_member(self) -> None:
        bench = GroupBench()
        leader, follower = bench.stable(2)
        for number in range(5):
            bench.pass_time(SESSION_MS - 1)
            assert bench.heartbeat(leader, 1) is ErrorCode.NONE
            error = bench.commit_offset(number, member_id=follower, generation=1)
            assert error is ErrorCode.NONE
        bench.pass_time(SESSION_MS - 1)
        assert bench.heartbeat(leader, 1) is ErrorCode.NONE
        heard = bench.ask_commit(
            OffsetToCommit("t", 0, 5, metadata="x" * 5000), member_id=follower, generation=1
        )
        too_large = (ErrorCode.OFFSET_METADATA_TOO_LARGE,)
        assert told(heard, OffsetCommitAnswer).errors == too_large, "nothing is written"
        bench.pass_time(1)
        assert bench.heartbeat(leader, 1) is ErrorCode.NONE
        bench.pass_time(SESSION_MS - 2)
        assert bench.heartbeat(leader, 1) is ErrorCode.NONE
        bench.pass_time(1)
        assert bench.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS, "silent for a session"

    def test_a_commit_that_is_refused_keeps_no_session(self) -> None:
        bench = GroupBench()
        leader, follower = bench.stable(2)
        bench.pass_time(SESSION_MS - 1)
        assert bench.heartbeat(leader, 1) is ErrorCode.NONE
        error = bench.commit_offset(5, member_id=follower, generation=0)
        assert error is ErrorCode.ILLEGAL_GENERATION
        bench.pass_time(1)
        assert bench.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS

    def test_offsets_of_topics_that_are_gone_at_the_decision(self) -> None:
        bench = GroupBench()
        bench.topic_ids = {"t": TOPIC_ID}
        bench.reload()
        heard = bench.ask_commit(
            OffsetToCommit("t", 0, 5, topic_id=TOPIC_ID),
            OffsetToCommit("t", 1, 5, topic_id=OTHER_ID),
            OffsetToCommit("u", 0, 5, topic_id=TOPIC_ID),
        )
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert told(heard, OffsetCommitAnswer).errors == (ErrorCode.NONE, unknown, unknown)
        assert [(each.topic, each.partition) for each in bench.offsets()] == [("t", 0)]

    def test_a_refused_record_changes_nothing(self) -> None:
        bench = GroupBench()
        bench.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        heard = bench.ask_commit(OffsetToCommit("t", 0, 5))
        assert heard.told == [ErrorCode.NOT_ENOUGH_REPLICAS]
        assert bench.described().state is GroupState.DEAD
        assert bench.offset() == -1


class TestFetch:
    def test_missing_offsets(self) -> None:
        bench = GroupBench()
        assert bench.offsets() == ()
        found = bench.offsets(TopicToFetch("t", (0, 1), TOPIC_ID))
        assert found == tuple(FetchedOffset("t", each, topic_id=TOPIC_ID) for each in (0, 1))

    def test_uncommitted_offsets_are_not_answered(self) -> None:
        bench = GroupBench()
        bench.commit_offset(5)
        bench.commits_at_once = False
        heard = bench.ask_commit(OffsetToCommit("t", 0, 6))
        assert bench.offset() == 5
        assert heard.told == []
        bench.commit()
        assert bench.offset() == 6
        assert told(heard, OffsetCommitAnswer).errors == (ErrorCode.NONE,)

    def test_who_requires_stable_offsets_waits_for_them(self) -> None:
        bench = GroupBench()
        bench.commit_offset(5)
        bench.commits_at_once = False
        bench.ask_commit(OffsetToCommit("t", 0, 6))
        asked = TopicToFetch("t", (0,))
        some, every = (bench.ask_offsets(*topics, require_stable=True) for topics in ((asked,), ()))
        assert (some.told, every.told) == ([], [])
        bench.commit()
        expected = OffsetFetchAnswer((FetchedOffset("t", 0, 6),))
        assert told(some, OffsetFetchAnswer) == told(every, OffsetFetchAnswer) == expected

    @pytest.mark.parametrize(
        ("committed", "asked", "offset"),
        [
            (TOPIC_ID, TOPIC_ID, 5),
            (TOPIC_ID, OTHER_ID, -1),
            (TOPIC_ID, bytes(16), 5),
            (bytes(16), TOPIC_ID, 5),
        ],
    )
    def test_a_topic_made_anew_has_no_offsets(
        self, committed: bytes, asked: bytes, offset: int
    ) -> None:
        bench = GroupBench()
        bench.ask_commit(OffsetToCommit("t", 0, 5, topic_id=committed))
        (found,) = bench.offsets(TopicToFetch("t", (0,), asked))
        assert found.offset == offset


class TestDelete:
    def test_of_a_group_without_members(self) -> None:
        bench = GroupBench()
        bench.commit_offset(5)
        bench.commit_offset(6, topic="u")
        answer = bench.delete_offsets(OffsetToDelete("t", 0), OffsetToDelete("t", 1))
        assert (answer.error, answer.errors) == (ErrorCode.NONE, (ErrorCode.NONE,) * 2)
        assert [each.topic for each in bench.offsets()] == ["u"]

    def test_offsets_of_subscribed_topics_stay(self) -> None:
        bench = GroupBench()
        bench.stable()
        for topic in "tu":
            bench.commit_offset(5, topic=topic, **MEMBER)
        answer = bench.delete_offsets(OffsetToDelete("t", 0), OffsetToDelete("u", 0))
        assert answer.errors == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE)
        assert [each.topic for each in bench.offsets()] == ["t"]

    def test_consumers_that_say_nothing_use_everything(self) -> None:
        bench = GroupBench()
        bench.stable(protocols=(MemberProtocol("range", b""),))
        answer = bench.delete_offsets(OffsetToDelete("u", 0))
        assert answer.errors == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,)

    def test_a_repeated_deletion_is_answered_when_it_is_certain(self) -> None:
        bench = GroupBench()
        bench.commit_offset(5)
        bench.commits_at_once = False
        heard = [bench.ask_deletion(OffsetToDelete("t", 0)) for _ in range(2)]
        assert [each.told for each in heard] == [[], []]
        assert len(bench.log) == 2
        bench.commit()
        for each in heard:
            assert told(each, OffsetDeleteAnswer).errors == (ErrorCode.NONE,)

    def test_groups_that_cannot_be_asked(self) -> None:
        bench = GroupBench()
        answer = bench.delete_offsets(OffsetToDelete("t", 0))
        assert answer.error is ErrorCode.GROUP_ID_NOT_FOUND
        nameless = told(bench.ask_deletion(OffsetToDelete("t", 0), group_id=""), OffsetDeleteAnswer)
        assert nameless.error is ErrorCode.INVALID_GROUP_ID
        bench.joined(protocol_type="connect")
        answer = bench.delete_offsets(OffsetToDelete("t", 0))
        assert answer.error is ErrorCode.NON_EMPTY_GROUP
