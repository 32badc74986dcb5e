"""Incremental fetch sessions (KIP-227), the leader's half."""

from __future__ import annotations

import random

import pytest

from broker.fetch_session import FetchContext, FetchSessions, next_epoch
from broker.types import EpochEnd, FetchEntry, FetchResult, PartitionId
from stele.errors import ApiError, ErrorCode


def partition(number: int) -> PartitionId:
    return PartitionId(b"t" * 16, number)


def entry(number: int, offset: int = 0) -> FetchEntry:
    return FetchEntry(partition(number), offset, 1 << 20)


def result(number: int, *, records: bytes = b"", hw: int = 5, start: int = 0) -> FetchResult:
    return FetchResult(
        partition(number), ErrorCode.NONE, hw, hw, start, records=[records] if records else []
    )


class Follower:
    """Broker 2 against one leader."""

    def __init__(self) -> None:
        self.sessions = FetchSessions(random.Random(1))

    def ask(
        self, session_id: int, epoch: int, *entries: FetchEntry, forget: tuple[int, ...] = ()
    ) -> FetchContext:
        return self.sessions.open(
            session_id=session_id,
            session_epoch=epoch,
            replica_id=2,
            entries=entries,
            forgotten=[partition(number) for number in forget],
        )

    def refused(self, session_id: int, epoch: int) -> ErrorCode:
        with pytest.raises(ApiError) as refusal:
            self.ask(session_id, epoch)
        return refusal.value.code


def numbers(results: list[FetchResult]) -> list[int]:
    return [each.id.partition for each in results]


def test_a_consumer_gets_no_session() -> None:
    sessions = FetchSessions(random.Random(1))
    context = sessions.open(
        session_id=0, session_epoch=0, replica_id=-1, entries=[entry(0)], forgotten=[]
    )
    assert context.session_id == 0
    assert len(sessions) == 0
    assert numbers(context.answer([result(0)])) == [0]
    assert numbers(context.answer([result(0)])) == [0]


def test_a_broker_names_in_a_session_only_what_changed_and_hears_only_news() -> None:
    follower = Follower()
    first = follower.ask(0, 0, entry(0), entry(1))
    assert first.session_id != 0
    assert numbers(first.answer([result(0), result(1)])) == [0, 1]
    second = follower.ask(first.session_id, 1, entry(1, 7))
    assert [(e.id.partition, e.fetch_offset) for e in second.entries] == [(0, 0), (1, 7)]
    assert numbers(second.answer([result(0), result(1, hw=6)])) == [1]
    third = follower.ask(first.session_id, 2)
    assert third.answer([result(0), result(1, hw=6)]) == []


def test_records_errors_and_divergence_are_always_news() -> None:
    follower = Follower()
    context = follower.ask(0, 0, entry(0), entry(1), entry(2))
    context.answer([result(0), result(1), result(2)])
    failed = FetchResult(partition(1), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    diverging = result(2)
    diverging.diverging = EpochEnd(1, 3)
    answer = [result(0, records=b"r"), failed, diverging]
    assert numbers(context.answer(answer)) == [0, 1, 2]
    # After an error the same state is news again.
    assert numbers(context.answer([result(0), result(1), result(2)])) == [1, 2]


def test_a_partition_that_got_records_goes_to_the_end_of_the_queue() -> None:
    follower = Follower()
    context = follower.ask(0, 0, entry(0), entry(1))
    context.answer([result(0, records=b"r"), result(1)])
    again = follower.ask(context.session_id, 1)
    assert [e.id.partition for e in again.entries] == [1, 0]


def test_a_forgotten_partition_is_gone() -> None:
    follower = Follower()
    context = follower.ask(0, 0, entry(0), entry(1))
    again = follower.ask(context.session_id, 1, forget=(0,))
    assert [e.id.partition for e in again.entries] == [1]


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
