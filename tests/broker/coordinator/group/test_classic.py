"""SyncGroup, Heartbeat, LeaveGroup and the end of sessions."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from broker.coordinator.group.types import (
    DescribedMember,
    GroupState,
    JoinAnswer,
    LeaveAnswer,
    LeavingMember,
    MemberProtocol,
    SyncAnswer,
)
from stele.errors import ErrorCode
from tests.support.groups import OTHER_RANGE, RANGE, REBALANCE_MS, SESSION_MS, GroupBench, told

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


def completing(bench: GroupBench, size: int = 2, **options: Any) -> list[str]:
    """A group whose leader has yet to assign, in generation 1; the leader's id comes first."""
    joins = [bench.joined(**options) for _ in range(size)]
    bench.pass_time(min(size, 2) * 3_000)
    assert {told(heard, JoinAnswer).generation for _, heard in joins} == {1}
    return [member_id for member_id, _ in joins]


class TestSync:
    def test_followers_wait_for_the_leader(self) -> None:
        bench = GroupBench()
        leader, follower = completing(bench)
        waiting = bench.sync(follower, 1)
        assert waiting.told == []
        answer = told(bench.sync(leader, 1, {leader: b"a", follower: b"b"}), SyncAnswer)
        assert answer == SyncAnswer(ErrorCode.NONE, "consumer", "range", b"a")
        assert told(waiting, SyncAnswer).assignment == b"b"
        assert bench.described().state is GroupState.STABLE
        assert len(bench.log) == 1

    def test_a_later_sync_is_answered_at_once(self) -> None:
        bench = GroupBench()
        leader, follower = completing(bench)
        bench.sync(leader, 1, {follower: b"b", "nobody": b"c"})
        assert told(bench.sync(follower, 1), SyncAnswer).assignment == b"b"
        assert told(bench.sync(leader, 1), SyncAnswer).assignment == b""

    @pytest.mark.parametrize(
        ("asked", "error"),
        [
            ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
            ({"group_id": "other"}, UNKNOWN),
            ({"member_id": "nobody"}, UNKNOWN),
            ({"instance": "i"}, UNKNOWN),
            ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
            ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
            ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ({"protocol": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            ({"protocol_type": None, "protocol": None}, ErrorCode.NONE),
        ],
    )
    def test_errors(self, asked: dict[str, Any], error: ErrorCode) -> None:
        bench = GroupBench()
        leader, _ = completing(bench)
        options = {"member_id": leader, "generation": 1, **asked}
        assert told(bench.sync(**options), SyncAnswer).error is error

    def test_during_a_rebalance(self) -> None:
        bench = GroupBench()
        (member_id,) = bench.stable()
        bench.join()
        bench.join(member_id=member_id)
        error = told(bench.sync(member_id, 1), SyncAnswer).error
        assert error is ErrorCode.REBALANCE_IN_PROGRESS

    def test_before_the_first_generation_no_protocol_is_chosen(self) -> None:
        bench = GroupBench()
        member_id, _ = bench.joined()
        error = told(bench.sync(member_id, 0), SyncAnswer).error
        assert error is ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_repeated_one_takes_the_place_of_the_first(self) -> None:
        bench = GroupBench()
        leader, follower = completing(bench)
        first, second = bench.sync(follower, 1), bench.sync(follower, 1)
        assert told(first, SyncAnswer).error is ErrorCode.REBALANCE_IN_PROGRESS
        bench.sync(leader, 1, {follower: b"b"})
        assert told(second, SyncAnswer).assignment == b"b"

    def test_a_refused_record_leaves_everybody_waiting(self) -> None:
        bench = GroupBench()
        leader, follower = completing(bench)
        waiting = bench.sync(follower, 1)
        bench.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        assert bench.sync(leader, 1, {follower: b"b"}).told == [ErrorCode.NOT_ENOUGH_REPLICAS]
        assert waiting.told == []
        assert bench.described().state is GroupState.COMPLETING_REBALANCE
        bench.refusal = ErrorCode.NONE
        bench.sync(leader, 1, {follower: b"c"})
        assert told(waiting, SyncAnswer).assignment == b"c"

    def test_an_assignment_that_no_record_holds_has_everybody_join_again(self) -> None:
        bench = GroupBench()
        leader, follower, absent = completing(bench, 3)
        waiting = bench.sync(follower, 1)
        bench.batch_bytes_max = 1_000
        heard = bench.sync(leader, 1, {follower: bytes(2_000)})
        for each in (heard, waiting):
            assert told(each, SyncAnswer).error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert bench.log == []
        assert bench.described().state is GroupState.PREPARING_REBALANCE
        for member_id in (leader, follower, absent):
            assert bench.heartbeat(member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        bench.batch_bytes_max = 1 << 30
        joins = [bench.join(member_id=each) for each in (leader, follower, absent)]
        generation = told(joins[0], JoinAnswer).generation
        bench.settle([leader, follower, absent], generation)

    def test_an_assignment_is_answered_when_it_is_certain(self) -> None:
        bench = GroupBench()
        leader, follower = completing(bench)
        bench.commits_at_once = False
        heard = [bench.sync(leader, 1, {follower: b"b"}), bench.sync(follower, 1)]
        assert [each.told for each in heard] == [[], []]
        bench.commit()
        assert [told(each, SyncAnswer).assignment for each in heard] == [b"", b"b"]

    def test_who_does_not_fetch_its_assignment_is_removed(self) -> None:
        bench = GroupBench()
        leader, follower, late = completing(bench, 3, rebalance_ms=8_000)
        bench.sync(follower, 1)
        bench.sync(leader, 1)
        for _ in range(2):
            bench.pass_time(3_999)
            for each in (leader, follower, late):
                assert bench.heartbeat(each, 1) is ErrorCode.NONE
        bench.pass_time(2)
        assert bench.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        assert bench.heartbeat(late, 1) is UNKNOWN

    def test_a_leader_that_does_not_assign_is_removed(self) -> None:
        bench = GroupBench()
        leader, follower = completing(bench, rebalance_ms=8_000)
        waiting = bench.sync(follower, 1)
        bench.pass_time(8_000)
        assert told(waiting, SyncAnswer).error is ErrorCode.REBALANCE_IN_PROGRESS
        answer = told(bench.join(member_id=follower), JoinAnswer)
        assert (answer.generation, answer.leader) == (2, follower)
        assert bench.heartbeat(leader, 1) is UNKNOWN

    def test_a_group_in_which_nobody_does_is_empty(self) -> None:
        bench = GroupBench()
        completing(bench, rebalance_ms=8_000)
        bench.pass_time(8_000)
        assert bench.described().state is GroupState.EMPTY

    def test_nobody_is_answered_twice(self) -> None:
        bench = GroupBench()
        leader, follower = completing(bench)
        waiting = bench.sync(follower, 1)
        bench.sync(leader, 1)
        bench.join(member_id=leader)
        bench.join(member_id=follower)
        bench.join(member_id=leader, protocols=OTHER_RANGE)
        assert len(waiting.told) == 1


class TestHeartbeat:
    @pytest.mark.parametrize(
        ("asked", "error"),
        [
            ({}, ErrorCode.NONE),
            ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
            ({"group_id": "other"}, UNKNOWN),
            ({"member_id": "nobody"}, UNKNOWN),
            ({"instance": "i"}, UNKNOWN),
            ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ],
    )
    def test_errors(self, asked: dict[str, Any], error: ErrorCode) -> None:
        bench = GroupBench()
        (member_id,) = bench.stable()
        assert bench.heartbeat(**{"member_id": member_id, "generation": 1, **asked}) is error

    def test_while_the_leader_assigns(self) -> None:
        bench = GroupBench()
        for each in completing(bench):
            assert bench.heartbeat(each, 1) is ErrorCode.NONE

    def test_they_keep_the_session(self) -> None:
        bench = GroupBench()
        (member_id,) = bench.stable()
        for _ in range(5):
            bench.pass_time(SESSION_MS - 1)
            assert bench.heartbeat(member_id, 1) is ErrorCode.NONE
        bench.pass_time(SESSION_MS)
        assert bench.heartbeat(member_id, 1) is UNKNOWN
        assert bench.described().state is GroupState.EMPTY

    def test_those_of_a_member_that_waits_change_nothing(self) -> None:
        bench = GroupBench()
        leader, follower = bench.stable(2)
        bench.join(member_id=leader)
        error = ErrorCode.REBALANCE_IN_PROGRESS
        assert bench.heartbeat(leader, 1) is error
        assert bench.heartbeat(follower, 1) is error


class TestSessions:
    def test_the_others_rebalance_when_one_ends(self) -> None:
        bench = GroupBench()
        leader, follower = bench.stable(2)
        bench.pass_time(SESSION_MS - 1)
        bench.heartbeat(follower, 1)
        bench.pass_time(1)
        assert bench.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        answer = told(bench.join(member_id=follower), JoinAnswer)
        assert (answer.generation, answer.leader) == (2, follower)
        assert bench.heartbeat(leader, 1) is UNKNOWN

    def test_a_refused_record_leaves_the_last_member(self) -> None:
        bench = GroupBench()
        (member_id,) = bench.stable()
        bench.refusal = ErrorCode.KAFKA_STORAGE_ERROR
        bench.pass_time(SESSION_MS)
        assert bench.described().state is GroupState.STABLE
        assert bench.heartbeat(member_id, 1) is ErrorCode.NONE
        bench.refusal = ErrorCode.NONE
        bench.pass_time(SESSION_MS - 1)
        assert bench.described().state is GroupState.STABLE
        bench.pass_time(1)
        assert bench.described().state is GroupState.EMPTY

    def test_who_waits_for_its_assignment_is_alive(self) -> None:
        bench = GroupBench()
        leader, follower = completing(bench, rebalance_ms=100_000)
        waiting = bench.sync(follower, 1)
        for _ in range(5):
            bench.pass_time(SESSION_MS - 1)
            bench.heartbeat(leader, 1)
        bench.sync(leader, 1)
        assert told(waiting, SyncAnswer).error is ErrorCode.NONE
        bench.pass_time(SESSION_MS - 1)
        assert bench.heartbeat(follower, 1) is ErrorCode.NONE

    def test_who_has_waited_in_vain_has_a_session_again(self) -> None:
        bench = GroupBench()
        leader, follower = completing(bench, rebalance_ms=100_000)
        bench.sync(follower, 1)
        bench.pass_time(SESSION_MS - 1)
        bench.heartbeat(leader, 1)
        bench.pass_time(1)
        waiting = bench.join(member_id=leader, protocols=OTHER_RANGE, rebalance_ms=100_000)
        bench.pass_time(SESSION_MS - 1)
        assert waiting.told == []
        bench.pass_time(1)
        assert told(waiting, JoinAnswer).generation == 2

    def test_begin_again_for_the_member_that_assigns_and_for_nobody_else(self) -> None:
        bench = GroupBench()
        leader, follower = completing(bench)
        bench.pass_time(SESSION_MS - 1)
        bench.sync(leader, 1)
        bench.pass_time(1)
        assert bench.heartbeat(follower, 1) is UNKNOWN
        bench.pass_time(SESSION_MS - 2)
        assert bench.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS

    def test_begin_again_for_a_member_that_has_waited_for_its_assignment(self) -> None:
        bench = GroupBench()
        leader, follower = completing(bench)
        bench.sync(follower, 1)
        for _ in range(2):
            bench.pass_time(SESSION_MS - 1)
            assert bench.heartbeat(leader, 1) is ErrorCode.NONE
        bench.sync(leader, 1)
        bench.pass_time(SESSION_MS - 1)
        assert bench.heartbeat(leader, 1) is ErrorCode.NONE
        bench.pass_time(1)
        assert bench.heartbeat(follower, 1) is UNKNOWN

    def test_a_member_may_change_its_timeouts(self) -> None:
        bench = GroupBench()
        leader, follower = bench.stable(2)
        bench.join(member_id=leader, session_ms=20_000, rebalance_ms=8_000)
        bench.join(member_id=follower, session_ms=20_000, rebalance_ms=8_000)
        bench.sync(follower, 2)
        bench.pass_time(7_999)
        assert bench.heartbeat(follower, 2) is ErrorCode.NONE
        bench.pass_time(1)  # the leader has had its time to assign
        assert bench.heartbeat(follower, 2) is ErrorCode.REBALANCE_IN_PROGRESS
        bench.join(member_id=follower, session_ms=20_000, rebalance_ms=8_000)
        bench.settle([follower], 3)
        bench.pass_time(19_999)
        assert bench.heartbeat(follower, 3) is ErrorCode.NONE


class TestLeave:
    def test_the_last_member(self) -> None:
        bench = GroupBench()
        (member_id,) = bench.stable()
        assert bench.left(member_id) == (ErrorCode.NONE,)
        described = bench.described()
        assert (described.state, described.protocol_type) == (GroupState.EMPTY, "consumer")
        assert described.members == ()
        assert bench.heartbeat(member_id, 1) is UNKNOWN
        assert len(bench.log) == 2

    def test_the_leader(self) -> None:
        bench = GroupBench()
        leader, follower = bench.stable(2)
        bench.left(leader)
        answer = told(bench.join(member_id=follower), JoinAnswer)
        assert (answer.generation, answer.leader) == (2, follower)

    def test_several_at_once(self) -> None:
        bench = GroupBench()
        first, second = bench.stable(2)
        errors = bench.left(first, "nobody", first, second)
        assert errors == (ErrorCode.NONE, UNKNOWN, UNKNOWN, ErrorCode.NONE)
        assert bench.described().state is GroupState.EMPTY

    def test_one_that_waits_to_join(self) -> None:
        bench = GroupBench()
        (first,) = bench.stable()
        second, waiting = bench.joined()
        bench.left(second)
        answer = told(waiting, JoinAnswer)
        assert (answer.error, answer.member_id) == (UNKNOWN, "")
        assert told(bench.join(member_id=first), JoinAnswer).generation == 2

    def test_the_last_one_that_a_rebalance_waits_for(self) -> None:
        bench = GroupBench()
        first, second = bench.stable(2)
        waiting = bench.join(member_id=first)
        bench.left(second)
        assert told(waiting, JoinAnswer).generation == 2

    def test_one_that_waits_for_its_assignment(self) -> None:
        bench = GroupBench()
        leader, follower = completing(bench)
        waiting = bench.sync(follower, 1)
        bench.left(follower)
        assert told(waiting, SyncAnswer).error is UNKNOWN
        assert bench.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS

    def test_the_last_two_while_one_waits_for_its_assignment(self) -> None:
        bench = GroupBench()
        leader, follower = completing(bench)
        waiting = bench.sync(follower, 1)
        bench.left(follower, leader)
        assert told(waiting, SyncAnswer).error is UNKNOWN
        assert bench.described().state is GroupState.EMPTY

    def test_one_that_was_given_an_id_only(self) -> None:
        bench = GroupBench()
        (first,) = bench.stable()
        pending = told(bench.join(), JoinAnswer).member_id
        waiting = bench.join(member_id=first)
        assert bench.left(pending) == (ErrorCode.NONE,)
        assert told(waiting, JoinAnswer).generation == 2

    def test_ids_that_an_empty_group_has_given_out_leave_nothing_behind(self) -> None:
        bench = GroupBench()
        bench.commit_offset(5)
        pending = told(bench.join(), JoinAnswer).member_id
        assert bench.left(pending) == (ErrorCode.NONE,)
        bench.join()
        bench.pass_time(SESSION_MS)
        assert len(bench.log) == 1
        assert bench.offset() == 5

    def test_all_before_the_first_generation(self) -> None:
        bench = GroupBench()
        member_id, waiting = bench.joined()
        bench.left(member_id)
        assert told(waiting, JoinAnswer).error is UNKNOWN
        assert bench.described().state is GroupState.PREPARING_REBALANCE
        bench.pass_time(3_000)
        assert bench.described().state is GroupState.EMPTY

    def test_the_last_member_with_one_that_was_given_an_id(self) -> None:
        bench = GroupBench()
        (member_id,) = bench.stable()
        pending = told(bench.join(), JoinAnswer).member_id
        bench.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        bench.leave(member_id, pending)
        bench.refusal = ErrorCode.NONE
        assert bench.join(member_id=pending).told == []
        assert bench.heartbeat(member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_group_that_is_not_there(self) -> None:
        bench = GroupBench()
        assert bench.left("a", LeavingMember("", "i")) == (UNKNOWN, UNKNOWN)
        answer = told(bench.leave("a", group_id=""), LeaveAnswer)
        assert answer.error is ErrorCode.INVALID_GROUP_ID

    def test_a_refused_record_changes_nothing(self) -> None:
        bench = GroupBench()
        (member_id,) = bench.stable()
        bench.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        assert bench.leave(member_id).told == [ErrorCode.NOT_ENOUGH_REPLICAS]
        assert bench.heartbeat(member_id, 1) is ErrorCode.NONE


def test_only_what_consumers_say_is_read(caplog: pytest.LogCaptureFixture) -> None:
    unreadable = [MemberProtocol("range", b"\0")]
    completing(GroupBench(), protocol_type="connect", protocols=unreadable)
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]
    completing(GroupBench(), protocols=unreadable)
    assert [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_what_is_described() -> None:
    bench = GroupBench()
    (member_id,) = bench.stable()
    described = bench.described()
    assert (described.state, described.protocol_type, described.protocol) == (
        GroupState.STABLE,
        "consumer",
        "range",
    )
    metadata = RANGE[0].metadata
    assert described.members == (
        DescribedMember(member_id, None, "client", "/10.0.0.1", metadata, member_id.encode()),
    )
    bench.join(member_id=member_id, rebalance_ms=REBALANCE_MS)
    described = bench.described()
    assert (described.state, described.protocol) == (GroupState.COMPLETING_REBALANCE, "")
    assert [each.metadata for each in described.members] == [b""]
