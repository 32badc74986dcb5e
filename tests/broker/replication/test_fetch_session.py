"""Incremental fetch sessions (KIP-227), the leader's half."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import cast

import pytest

from broker.partition.effects import BrokerStatus
from broker.partition.progress import NEVER
from broker.replication.fetch_session import (
    ADVANCES_AFTER_MS,
    FetchSession,
    FetchSessions,
    next_epoch,
)
from broker.replication.replica import Replica
from broker.replication.types import EpochEnd, FetchEntry, FetchResult
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from tests.support.fetches import AskedFetch


def partition(number: int) -> PartitionId:
    return PartitionId(b"t" * 16, number)


def entry(number: int, offset: int = 0) -> FetchEntry:
    return FetchEntry(partition(number), offset, 1 << 20)


def result(number: int, *, records: bytes = b"", hw: int = 5, start: int = 0) -> FetchResult:
    return FetchResult(
        partition(number),
        ErrorCode.NONE,
        hw,
        hw,
        start,
        records=[records] if records else [],
        at_rest=not records,
    )


class Follower:
    """Broker 2 against one leader."""

    def __init__(self) -> None:
        self.sessions = FetchSessions(random.Random(1))

    def ask(
        self,
        session_id: int,
        epoch: int,
        *entries: FetchEntry,
        forget: tuple[int, ...] = (),
        owner: str = "connection",
    ) -> FetchSession:
        session = self.open(session_id, epoch, *entries, forget=forget, owner=owner)
        assert session is not None
        return session

    def open(
        self,
        session_id: int,
        epoch: int,
        *entries: FetchEntry,
        forget: tuple[int, ...] = (),
        owner: str = "connection",
        is_proven: bool = True,
    ) -> FetchSession | None:
        return self.sessions.open(
            owner=owner,
            session_id=session_id,
            session_epoch=epoch,
            replica_id=2,
            is_proven=is_proven,
            entries=entries,
            forgotten=[partition(number) for number in forget],
        )

    def refused(self, session_id: int, epoch: int, *, owner: str = "connection") -> ErrorCode:
        with pytest.raises(ApiError) as refusal:
            self.ask(session_id, epoch, owner=owner)
        return refusal.value.code


def now() -> float:
    return 1000.0


def numbers(results: Sequence[FetchResult | FetchEntry]) -> list[int]:
    return [each.id.partition for each in results]


def test_a_consumer_gets_no_session() -> None:
    sessions = FetchSessions(random.Random(1))
    session = sessions.open(
        owner="connection",
        session_id=0,
        session_epoch=0,
        replica_id=-1,
        is_proven=False,
        entries=[entry(0)],
        forgotten=[],
    )
    assert session is None
    assert len(sessions) == 0


def test_a_broker_names_in_a_session_only_what_changed_and_hears_only_news() -> None:
    follower = Follower()
    first = follower.ask(0, 0, entry(0), entry(1))
    assert first.session_id != 0
    assert numbers(first.to_look_at(now)) == [0, 1]
    assert numbers(first.changed([result(0), result(1)])) == [0, 1]
    second = follower.ask(first.session_id, 1, entry(1, 7))
    assert [(e.id.partition, e.fetch_offset) for e in second.to_look_at(now)] == [(1, 7)]
    assert numbers(second.changed([result(1, hw=6)])) == [1]
    third = follower.ask(first.session_id, 2, entry(1, 7))
    assert third.to_look_at(now) == [entry(1, 7)]
    assert third.changed([result(1, hw=6)]) == []
    assert follower.ask(first.session_id, 3).to_look_at(now) == []


def test_records_errors_and_divergence_are_always_news() -> None:
    follower = Follower()
    session = follower.ask(0, 0, entry(0), entry(1), entry(2))
    session.changed([result(0), result(1), result(2)])
    session = follower.ask(session.session_id, 1, entry(0), entry(1), entry(2))
    failed = FetchResult(partition(1), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    diverging = result(2)
    diverging.diverging = EpochEnd(1, 3)
    answer = [result(0, records=b"r"), failed, diverging]
    assert numbers(session.changed(answer)) == [0, 1, 2]
    # After an error the same state must be sent again, and until then the partition is examined
    # each time.
    assert numbers(session.to_look_at(now)) == [1, 2, 0]
    assert numbers(session.changed([result(1), result(2)])) == [1, 2]


def test_a_partition_that_got_records_goes_to_the_end_of_the_queue() -> None:
    follower = Follower()
    session = follower.ask(0, 0, entry(0), entry(1))
    session.changed([result(0, records=b"r"), result(1)])
    again = follower.ask(session.session_id, 1)
    assert numbers(again.to_look_at(now)) == [0]
    follower.ask(session.session_id, 2, entry(1))
    assert numbers(again.to_look_at(now)) == [0, 1]
    again.changed([result(0, records=b"r")])
    assert numbers(again.to_look_at(now)) == [1, 0]


def test_a_forgotten_partition_is_gone() -> None:
    follower = Follower()
    session = follower.ask(0, 0, entry(0), entry(1))
    again = follower.ask(session.session_id, 1, forget=(0,))
    assert numbers(again.to_look_at(now)) == [1]


def test_unknown_sessions_and_wrong_epochs_are_refused() -> None:
    follower = Follower()
    session = follower.ask(0, 0, entry(0))
    assert follower.refused(session.session_id + 1, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert follower.refused(session.session_id, 2) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    follower.ask(session.session_id, 1)
    assert follower.refused(session.session_id, 1) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_new_session_replaces_the_one_before() -> None:
    follower = Follower()
    old = follower.ask(0, 0, entry(0))
    new = follower.ask(0, 0, entry(1))
    assert len(follower.sessions) == 1
    assert new.session_id != old.session_id
    assert follower.refused(old.session_id, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_final_epoch_closes_a_session_and_opens_none() -> None:
    follower = Follower()
    session = follower.ask(0, 0, entry(0))
    assert follower.open(session.session_id, -1, entry(0)) is None
    assert len(follower.sessions) == 0


def test_epochs_wrap_to_one() -> None:
    assert next_epoch(0) == 1
    assert next_epoch(2**31 - 1) == 1


def test_a_session_belongs_to_its_connection_and_to_a_caller_that_proves_to_be_the_broker() -> None:
    """Anybody may claim to be broker 2."""
    follower = Follower()
    real = follower.ask(0, 0, entry(0))
    assert follower.open(0, 0, entry(0), owner="another", is_proven=False) is None
    assert len(follower.sessions) == 1
    missing = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert follower.refused(real.session_id, 1, owner="another") is missing
    follower.ask(real.session_id, 1)
    follower.sessions.forget("connection")
    assert follower.refused(real.session_id, 2) is missing
    assert len(follower.sessions) == 0


def test_a_follower_that_comes_on_another_connection_ends_its_earlier_session() -> None:
    """The end of the earlier connection may not have been noticed, and a waiting fetch is answered
    there. Sessions of other followers stay."""
    follower, answered = Follower(), []
    other = follower.sessions.open(
        owner="of broker 3",
        session_id=0,
        session_epoch=0,
        replica_id=3,
        is_proven=True,
        entries=[entry(0)],
        forgotten=(),
    )
    old = follower.ask(0, 0, entry(0))
    old.answer_waiting = lambda: answered.append("old")
    new = follower.ask(0, 0, entry(0), owner="another")
    assert list(follower.sessions) == [other, new]
    assert answered == ["old"]
    assert not old.entries
    assert follower.refused(old.session_id, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_everything_is_looked_at_when_the_follower_is_somebody_else_now() -> None:
    follower = Follower()
    session = follower.ask(0, 0, entry(0), entry(1))
    session.begin_look(7, BrokerStatus(7, True))
    session.changed([result(0), result(1)])
    session.begin_look(7, BrokerStatus(7, True))
    assert session.to_look_at(now) == []
    for who in ((7, BrokerStatus(8, True)), (8, BrokerStatus(8, True)), (8, BrokerStatus(8))):
        session.begin_look(*who)
        assert numbers(session.to_look_at(now)) == [0, 1]
        session.changed([result(0), result(1)])


def test_a_partition_that_changes_during_a_look_is_looked_at_again() -> None:
    session = Follower().ask(0, 0, entry(0), entry(1))
    session.to_look_at(now)
    session.stir(partition(0), wakes=True)
    assert session.was_woken
    session.changed([result(0), result(1)])
    assert numbers(session.to_look_at(now)) == [0]
    assert not session.was_woken


def test_a_rest_without_an_answer_is_a_rest() -> None:
    follower = Follower()
    session = follower.ask(0, 0, entry(0), entry(1))
    session.changed([result(0), result(1)])
    follower.ask(session.session_id, 1, entry(0), entry(1))
    assert numbers(session.to_look_at(now)) == [0, 1]
    session.parked([result(0), result(1, start=1)])
    assert numbers(session.to_look_at(now)) == [1]  # has to hear of the start


def test_an_advance_is_answered_with_the_next_records() -> None:
    follower = Follower()
    session = follower.ask(0, 0, entry(0))
    session.changed([result(0)])
    session.advance(partition(0))
    session.stir(partition(0), wakes=True)
    session.to_look_at(lambda: 0.0)
    assert numbers(session.changed([result(0, records=b"r", hw=6)])) == [0]
    session = follower.ask(session.session_id, 1, entry(0, 7))
    session.to_look_at(lambda: 1.0)
    session.parked([result(0, hw=6)])
    assert session.to_look_at(lambda: 1000.0) == []


def test_advances_without_records_are_answered_together_after_a_while() -> None:
    session = Follower().ask(0, 0, entry(0), entry(1), entry(2))
    session.changed([result(0), result(1), result(2)])
    session.advance(partition(0))
    assert numbers(session.to_look_at(lambda: 100.0)) == [0]
    session.changed([result(0, hw=6)])
    session.advance(partition(1))
    session.advance(partition(2))
    assert session.to_look_at(lambda: 100.0 + ADVANCES_AFTER_MS - 1) == []
    assert numbers(session.to_look_at(lambda: 100.0 + ADVANCES_AFTER_MS)) == [1, 2]
    assert numbers(session.changed([result(1, hw=6), result(2, hw=6)])) == [1, 2]
    assert session.to_look_at(lambda: 1000.0) == []


def test_an_advance_that_a_look_saw_and_left_out_is_answered_later() -> None:
    follower = Follower()
    session = follower.ask(0, 0, entry(0))
    session.changed([result(0)])
    session.advance(partition(0))
    session.to_look_at(lambda: 100.0)
    session.parked([result(0, hw=6)])
    assert session.to_look_at(lambda: 101.0) == []
    assert numbers(session.to_look_at(lambda: 100.0 + ADVANCES_AFTER_MS)) == [0]


def test_an_advance_during_a_look_is_answered_later() -> None:
    session = Follower().ask(0, 0, entry(0))
    session.changed([result(0)])
    session.stir(partition(0), wakes=True)
    session.to_look_at(lambda: 100.0)
    session.advance(partition(0))
    session.changed([result(0, records=b"r", hw=5)])
    session.stirred.clear()
    assert numbers(session.to_look_at(lambda: 200.0)) == [0]


def test_a_partition_that_waits_for_quota_is_looked_at_again_when_it_advances() -> None:
    session = Follower().ask(0, 0, entry(0))
    session.to_look_at(now)
    session.hold(partition(0))
    assert session.to_look_at(now) == []
    session.advance(partition(0))
    assert numbers(session.to_look_at(now)) == [0]


def test_a_forgotten_partition_advances_no_more() -> None:
    follower = Follower()
    session = follower.ask(0, 0, entry(0), entry(1))
    session.changed([result(0), result(1)])
    session.advance(partition(0))
    follower.ask(session.session_id, 1, forget=(0,))
    session.advance(partition(0))
    assert session.to_look_at(now) == []


class Watched:
    """What a session asks of a replica."""

    def __init__(self, number: int) -> None:
        self.id = partition(number)
        self.watchers: dict[object, None] = {}
        self.unwatched = 0

    def unwatch(self, watcher: object) -> None:
        self.unwatched += 1
        del self.watchers[watcher]


def test_a_session_watches_the_replica_that_is_there_now() -> None:
    follower = Follower()
    session = follower.ask(0, 0, entry(0))
    old, new = Watched(0), Watched(0)
    for replica in (old, old, new):
        session.watch(cast(Replica, replica))
    assert (old.unwatched, list(old.watchers)) == (1, [])
    assert (new.unwatched, list(new.watchers)) == (0, [session])
    follower.ask(session.session_id, 1, forget=(0,))
    assert new.unwatched == 1


def test_a_request_of_the_present_incarnation_attends_to_all_that_rests() -> None:
    session = Follower().ask(0, 0, entry(0))
    session.begin_look(7, BrokerStatus(8, True))
    session.end_look(5.0)
    assert session.attendance.last_fetch_ms == NEVER
    session.begin_look(8, BrokerStatus(8, True))
    session.end_look(6.0)
    assert session.attendance.last_fetch_ms == 6.0


def test_quota_that_comes_during_a_look_wakes() -> None:
    session = Follower().ask(0, 0, entry(0))
    session.to_look_at(now)
    session.look_again()
    assert session.was_woken


def test_a_high_watermark_is_new_if_it_is_above_the_last_answered_one() -> None:
    session = Follower().ask(0, 0, entry(0), entry(1))
    assert not session.has_new_high_watermark([result(0)])  # nothing was answered yet
    session.changed([result(0, hw=5)])
    assert not session.has_new_high_watermark([result(0, hw=5), result(1, hw=9)])
    assert session.has_new_high_watermark([result(0, hw=6)])


def test_a_partition_that_is_not_at_rest_or_was_never_answered_is_looked_at_again() -> None:
    follower = Follower()
    session = follower.ask(0, 0, entry(0), entry(1), entry(2))
    session.changed([result(0), result(1)])
    follower.ask(session.session_id, 1, entry(0), entry(1))
    session.to_look_at(now)
    behind = result(0)
    behind.at_rest = False
    session.stir(partition(1), wakes=False)  # after the look
    session.parked([behind, result(1), result(2)])
    assert numbers(session.to_look_at(now)) == [2, 0, 1]


def test_an_error_is_news_even_if_it_comes_with_answered_offsets() -> None:
    session = Follower().ask(0, 0, entry(0))
    session.changed([result(0)])
    failed = FetchResult(partition(0), ErrorCode.KAFKA_STORAGE_ERROR, 5, 5, 0)
    assert numbers(session.changed([failed])) == [0]
    session.stir(partition(0), wakes=False)
    session.to_look_at(now)
    assert numbers(session.changed([result(0)])) == [0]


def test_an_advance_right_before_a_look_is_answered_by_it() -> None:
    session = Follower().ask(0, 0, entry(0), entry(1))
    session.changed([result(0), result(1)])
    session.advance(partition(1))
    session.to_look_at(lambda: 100.0)
    session.changed([result(1, hw=6)])
    session.stir(partition(0), wakes=True)
    session.advance(partition(0))
    assert numbers(session.to_look_at(lambda: 101.0)) == [0]
    session.changed([result(0, records=b"r", hw=6)])
    session.to_look_at(lambda: 102.0)
    session.changed([result(0, hw=6)])
    assert session.to_look_at(lambda: 1000.0) == []


def test_only_its_own_id_ends_a_session() -> None:
    follower = Follower()
    session = follower.ask(0, 0, entry(0))
    assert follower.open(session.session_id + 1, -1) is None
    assert len(follower.sessions) == 1
    assert follower.open(session.session_id, -1) is None
    assert len(follower.sessions) == 0


def opened_by(
    sessions: FetchSessions, replica_id: int, session_id: int = 0, epoch: int = 0
) -> FetchSession | None:
    return sessions.open(
        owner="connection",
        session_id=session_id,
        session_epoch=epoch,
        replica_id=replica_id,
        is_proven=True,
        entries=[entry(0)],
        forgotten=[],
    )


def test_a_session_belongs_to_one_broker() -> None:
    sessions = FetchSessions(random.Random(1))
    assert opened_by(sessions, -1) is None
    session = opened_by(sessions, 0)
    assert session is not None
    with pytest.raises(ApiError) as refusal:
        opened_by(sessions, 3, session.session_id, 1)
    assert refusal.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_broker_0_is_a_follower_like_any_other() -> None:
    assert AskedFetch([], lambda _: None, replica_id=0).is_follower
    assert not AskedFetch([], lambda _: None).is_follower
