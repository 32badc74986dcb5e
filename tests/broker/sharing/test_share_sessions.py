"""Share sessions: their epochs, their partitions and their end."""

from __future__ import annotations

import pytest

from broker.sharing.sessions import ENDS, SessionKey, ShareSession, ShareSessions
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId

M, N = SessionKey("g", "m"), SessionKey("g", "n")
P = [PartitionId(b"t" * 16, number) for number in range(4)]


class Bench:
    def __init__(self, most: int = 10) -> None:
        self.released: list[SessionKey] = []
        self.sessions = ShareSessions(most, lambda session: self.released.append(session.key))

    def refusal(self, key: SessionKey, epoch: int) -> ErrorCode:
        with pytest.raises(ApiError) as refused:
            self.sessions.next(key, epoch, "a")
        return refused.value.code


def test_each_request_has_the_next_epoch() -> None:
    bench = Bench()
    assert bench.refusal(M, 1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    session = bench.sessions.open(M, "a")
    assert bench.refusal(M, 2) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    for epoch in (1, 2, 3):
        assert bench.sessions.next(M, epoch, "a") is session
    assert bench.refusal(M, 3) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    session.epoch = 2**31 - 1
    bench.sessions.next(M, 2**31 - 1, "a")
    assert bench.sessions.next(M, 1, "a") is session


def test_a_session_ends_once_and_gives_its_records_back() -> None:
    bench = Bench()
    session = bench.sessions.open(M, "a")
    woken = []
    session.on_end = lambda: woken.append(1)
    assert bench.sessions.next(M, ENDS, "a") is session
    assert M in bench.sessions
    assert N not in bench.sessions
    bench.sessions.end(session)
    assert M not in bench.sessions
    bench.sessions.end(session)
    assert (bench.released, woken, session.is_open) == ([M], [1], False)
    assert bench.refusal(M, ENDS) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_late_end_by_a_former_connection_does_not_end_the_present_session() -> None:
    bench = Bench()
    bench.sessions.open(M, "a")
    session = bench.sessions.open(M, "b")
    assert bench.refusal(M, ENDS) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert session.is_open
    assert bench.sessions.next(M, ENDS, "b") is session


def test_a_lost_connection_ends_its_sessions_and_no_others() -> None:
    bench = Bench()
    bench.sessions.open(M, "a")
    bench.sessions.open(N, "b")
    bench.sessions.forget("a")
    bench.sessions.forget("a")
    assert bench.released == [M]
    assert len(bench.sessions) == 1


def test_a_group_has_sessions_until_the_last_one_ends() -> None:
    bench = Bench()
    assert not bench.sessions.has_group("g")
    bench.sessions.open(M, "a")
    bench.sessions.open(M, "b")
    bench.sessions.open(N, "a")
    bench.sessions.forget("a")
    assert bench.sessions.has_group("g")
    bench.sessions.forget("b")
    assert not bench.sessions.has_group("g")


def test_a_new_session_of_a_member_keeps_its_records_also_when_the_old_connection_is_lost() -> None:
    bench = Bench()
    former = bench.sessions.open(M, "a")
    bench.sessions.open(M, "b")
    assert not former.is_open
    bench.sessions.end(former)
    bench.sessions.forget("a")
    assert bench.released == []
    bench.sessions.forget("b")
    assert bench.released == [M]


def test_sessions_have_a_limit_but_may_be_opened_anew() -> None:
    bench = Bench(most=1)
    bench.sessions.open(M, "a")
    with pytest.raises(ApiError, match=r"group\.share\.max\.share\.sessions") as refused:
        bench.sessions.open(N, "a")
    assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert bench.sessions.open(M, "a").is_open


def test_partitions_come_and_go_and_each_is_the_first_in_turn() -> None:
    session = ShareSession(M, "a")
    session.change(P, ())
    session.change((), [P[1]])
    firsts = []
    for epoch in (3, 4, 5):
        session.epoch = epoch
        assert sorted(session.in_turn()) == [P[0], P[2], P[3]]
        firsts.append(session.in_turn()[0])
    assert sorted(firsts) == [P[0], P[2], P[3]]


def test_the_readers_of_a_partition_are_counted() -> None:
    bench = Bench()
    for key, partitions in ((M, P[:2]), (N, P[1:]), (SessionKey("h", "m"), P)):
        bench.sessions.open(key, "a").change(partitions, ())
    assert [bench.sessions.count_readers("g", each) for each in P] == [1, 2, 1, 1]
    bench.sessions.forget("a")
    assert bench.sessions.count_readers("g", P[1]) == 0
