"""Incremental fetch sessions (KIP-227), the leader's half."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from broker.partition.effects import BrokerStatus
from broker.replication.fetch_session import FetchContext, FetchSessions, next_epoch
from broker.replication.types import EpochEnd, FetchEntry, FetchResult
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId


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
        is_proven: bool = True,
    ) -> FetchContext:
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


def looked_at(context: FetchContext) -> list[FetchEntry]:
    assert context.session is not None
    return context.session.to_look_at()


def numbers(results: Sequence[FetchResult | FetchEntry]) -> list[int]:
    return [each.id.partition for each in results]


def test_a_consumer_gets_no_session() -> None:
    sessions = FetchSessions(random.Random(1))
    context = sessions.open(
        owner="connection",
        session_id=0,
        session_epoch=0,
        replica_id=-1,
        is_proven=False,
        entries=[entry(0)],
        forgotten=[],
    )
    assert context.session_id == 0
    assert len(sessions) == 0
    assert numbers(context.answer([result(0)])) == [0]
    assert numbers(context.answer([result(0)])) == [0]


def test_a_broker_names_in_a_session_only_what_changed_and_hears_only_news() -> None:
    follower = Follower()
    first = follower.ask(0, 0, entry(0), entry(1))
    assert first.session_id != 0
    assert numbers(looked_at(first)) == [0, 1]
    assert numbers(first.answer([result(0), result(1)])) == [0, 1]
    second = follower.ask(first.session_id, 1, entry(1, 7))
    assert [(e.id.partition, e.fetch_offset) for e in looked_at(second)] == [(1, 7)]
    assert numbers(second.answer([result(1, hw=6)])) == [1]
    third = follower.ask(first.session_id, 2, entry(1, 7))
    assert looked_at(third) == [entry(1, 7)]
    assert third.answer([result(1, hw=6)]) == []
    assert looked_at(follower.ask(first.session_id, 3)) == []


def test_records_errors_and_divergence_are_always_news() -> None:
    follower = Follower()
    context = follower.ask(0, 0, entry(0), entry(1), entry(2))
    context.answer([result(0), result(1), result(2)])
    context = follower.ask(context.session_id, 1, entry(0), entry(1), entry(2))
    failed = FetchResult(partition(1), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    diverging = result(2)
    diverging.diverging = EpochEnd(1, 3)
    answer = [result(0, records=b"r"), failed, diverging]
    assert numbers(context.answer(answer)) == [0, 1, 2]
    # After an error the same state is news again, and until then it is looked at.
    assert numbers(looked_at(context)) == [1, 2, 0]
    assert numbers(context.answer([result(1), result(2)])) == [1, 2]


def test_a_partition_that_got_records_goes_to_the_end_of_the_queue() -> None:
    follower = Follower()
    context = follower.ask(0, 0, entry(0), entry(1))
    context.answer([result(0, records=b"r"), result(1)])
    again = follower.ask(context.session_id, 1)
    assert numbers(looked_at(again)) == [0]
    follower.ask(context.session_id, 2, entry(1))
    assert numbers(looked_at(again)) == [0, 1]
    again.answer([result(0, records=b"r")])
    assert numbers(looked_at(again)) == [1, 0]


def test_a_forgotten_partition_is_gone() -> None:
    follower = Follower()
    context = follower.ask(0, 0, entry(0), entry(1))
    again = follower.ask(context.session_id, 1, forget=(0,))
    assert numbers(looked_at(again)) == [1]


def test_unknown_sessions_and_wrong_epochs_are_refused() -> None:
    follower = Follower()
    context = follower.ask(0, 0, entry(0))
    assert follower.refused(context.session_id + 1, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert follower.refused(context.session_id, 2) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    follower.ask(context.session_id, 1)
    assert follower.refused(context.session_id, 1) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_new_session_replaces_the_one_before() -> None:
    follower = Follower()
    old = follower.ask(0, 0, entry(0))
    new = follower.ask(0, 0, entry(1))
    assert len(follower.sessions) == 1
    assert new.session_id != old.session_id
    assert follower.refused(old.session_id, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_final_epoch_closes_a_session_and_opens_none() -> None:
    follower = Follower()
    context = follower.ask(0, 0, entry(0))
    assert follower.ask(context.session_id, -1, entry(0)).session_id == 0
    assert len(follower.sessions) == 0


def test_epochs_wrap_to_one() -> None:
    assert next_epoch(0) == 1
    assert next_epoch(2**31 - 1) == 1


def test_a_session_belongs_to_its_connection_and_to_who_proves_to_be_the_broker() -> None:
    """Anybody may say that he is broker 2."""
    follower = Follower()
    real = follower.ask(0, 0, entry(0))
    liar = follower.ask(0, 0, entry(0), owner="another", is_proven=False)
    assert liar.session_id == 0
    assert [e.id.partition for e in liar.entries] == [0]
    assert len(follower.sessions) == 1
    missing = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert follower.refused(real.session_id, 1, owner="another") is missing
    follower.ask(0, 0, owner="third")
    follower.ask(real.session_id, 1)
    follower.sessions.forget("connection")
    assert follower.refused(real.session_id, 2) is missing
    assert len(follower.sessions) == 1


def test_everything_is_looked_at_when_the_follower_is_somebody_else_now() -> None:
    follower = Follower()
    session = follower.ask(0, 0, entry(0), entry(1)).session
    assert session is not None
    session.begin_look(7, BrokerStatus(7, True))
    session.changed([result(0), result(1)])
    session.begin_look(7, BrokerStatus(7, True))
    assert session.to_look_at() == []
    for who in ((7, BrokerStatus(8, True)), (8, BrokerStatus(8, True)), (8, BrokerStatus(8))):
        session.begin_look(*who)
        assert numbers(session.to_look_at()) == [0, 1]
        session.changed([result(0), result(1)])


def test_what_stirs_a_partition_while_it_is_looked_at_is_looked_at_again() -> None:
    session = Follower().ask(0, 0, entry(0), entry(1)).session
    assert session is not None
    session.to_look_at()
    session.stir(partition(0), wakes=True)
    assert session.was_woken
    session.changed([result(0), result(1)])
    assert numbers(session.to_look_at()) == [0]
    assert not session.was_woken
