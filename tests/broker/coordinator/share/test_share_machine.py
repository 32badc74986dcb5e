"""The share coordinator: what leaders and group coordinators ask, and what they get."""

from __future__ import annotations

import pytest

from broker.coordinator.share.types import (
    ForgetRequest,
    InitializeRequest,
    ReadRequest,
    ShareState,
    StateAnswer,
    StateKey,
    SummaryRequest,
    TopicIdsDeleted,
    WriteRequest,
)
from broker.share.values import RecordState, StateBatch
from stele.errors import ErrorCode
from tests.support.share_states import StateBench, T, U

KEY = StateKey("g", T, 0)
DONE = StateBatch(3, 5, RecordState.ACKNOWLEDGED, 1)


@pytest.fixture
def bench() -> StateBench:
    return StateBench()


def state_of(answer: StateAnswer) -> ShareState:
    assert answer.error is ErrorCode.NONE, answer
    assert answer.state is not None
    return answer.state


def written(
    bench: StateBench,
    leader_epoch: int,
    *batches: StateBatch,
    state_epoch: int = 1,
    start: int = -1,
) -> ErrorCode:
    return bench.ask(WriteRequest(KEY, state_epoch, leader_epoch, start, -1, batches)).error


def test_a_leader_loads_what_the_leader_before_it_has_written(bench: StateBench) -> None:
    bench.ask(InitializeRequest(KEY, 1))
    first = state_of(bench.ask(ReadRequest(KEY, 4)))
    assert (first.start_offset, first.state_epoch, first.batches) == (-1, 1, ())
    assert written(bench, 4, DONE, start=3) is ErrorCode.NONE
    later = state_of(bench.ask(ReadRequest(KEY, 5)))
    assert (later.start_offset, later.leader_epoch, later.batches) == (3, 5, (DONE,))


def test_a_leader_is_fenced_once_the_next_one_has_loaded_the_state(bench: StateBench) -> None:
    bench.ask(InitializeRequest(KEY, 1))
    bench.ask(ReadRequest(KEY, 4))
    bench.ask(ReadRequest(KEY, 5))
    assert written(bench, 4, DONE) is ErrorCode.FENCED_LEADER_EPOCH
    assert bench.ask(ReadRequest(KEY, 4)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert state_of(bench.ask(SummaryRequest(KEY))).leader_epoch == 5
    bench.reload()
    assert written(bench, 4, DONE) is ErrorCode.FENCED_LEADER_EPOCH
    assert written(bench, 5, DONE) is ErrorCode.NONE


def test_a_leader_gets_the_state_when_its_epoch_is_committed(bench: StateBench) -> None:
    """Else the next coordinator could take a write of the former leader."""
    bench.ask(InitializeRequest(KEY, 1))
    bench.commits_at_once = False
    heard = bench.send(ReadRequest(KEY, 4))
    assert heard.told == []
    again = bench.send(ReadRequest(KEY, 4))
    assert again.told == []
    bench.commit()
    assert len(heard.told) == len(again.told) == 1


def test_a_leader_that_loads_the_state_again_changes_nothing(bench: StateBench) -> None:
    bench.ask(InitializeRequest(KEY, 1))
    first = bench.ask(ReadRequest(KEY, 4))
    records = len(bench.log)
    assert bench.ask(ReadRequest(KEY, 4)) == first
    assert len(bench.log) == records
    bench.ask(ReadRequest(KEY, 5))
    assert len(bench.log) > records


def test_a_state_is_told_when_its_snapshot_is_committed(bench: StateBench) -> None:
    bench.commits_at_once = False
    bench.send(InitializeRequest(KEY, 1))
    heard = bench.send(SummaryRequest(KEY))
    assert heard.told == []
    bench.commit()
    assert len(heard.told) == 1


def test_a_count_of_done_records_stays_until_another_is_written(bench: StateBench) -> None:
    bench.ask(InitializeRequest(KEY, 1, 0))
    for count, known in ((5, 5), (-1, 5), (3, 3)):
        assert bench.ask(WriteRequest(KEY, 1, 4, 0, count, ())).error is ErrorCode.NONE
        assert state_of(bench.ask(SummaryRequest(KEY))).complete_count == known


def test_offsets_that_are_set_anew_fence_the_leader(bench: StateBench) -> None:
    bench.ask(InitializeRequest(KEY, 1))
    bench.ask(ReadRequest(KEY, 4))
    written(bench, 4, DONE, start=3)
    assert bench.ask(InitializeRequest(KEY, 2, 0)).error is ErrorCode.NONE
    assert written(bench, 4, DONE) is ErrorCode.FENCED_STATE_EPOCH
    state = state_of(bench.ask(ReadRequest(KEY, 4)))
    assert (state.state_epoch, state.start_offset, state.batches) == (2, 0, ())
    assert bench.ask(InitializeRequest(KEY, 1, 9)).error is ErrorCode.FENCED_STATE_EPOCH
    assert written(bench, 4, DONE, state_epoch=3) is ErrorCode.FENCED_STATE_EPOCH


@pytest.mark.parametrize("request_", [InitializeRequest(KEY, 1), InitializeRequest(KEY, 7)])
def test_a_late_initialization_undoes_nothing(
    bench: StateBench, request_: InitializeRequest
) -> None:
    bench.ask(InitializeRequest(KEY, 1))
    bench.ask(ReadRequest(KEY, 4))
    written(bench, 4, DONE, start=3)
    assert bench.ask(request_).error is ErrorCode.NONE
    assert state_of(bench.ask(ReadRequest(KEY, 4))).batches == (DONE,)


def test_a_repeated_reset_undoes_nothing(bench: StateBench) -> None:
    bench.ask(InitializeRequest(KEY, 2, 0))
    bench.ask(ReadRequest(KEY, 4))
    written(bench, 4, DONE, state_epoch=2)
    assert bench.ask(InitializeRequest(KEY, 2, 0)).error is ErrorCode.NONE
    assert state_of(bench.ask(ReadRequest(KEY, 4))).batches == (DONE,)


def test_the_start_offset_does_not_go_back(bench: StateBench) -> None:
    bench.ask(InitializeRequest(KEY, 1))
    written(bench, 4, start=9)
    written(bench, 4, start=6)
    written(bench, 4)
    assert state_of(bench.ask(ReadRequest(KEY, 4))).start_offset == 9


def test_what_is_not_initialized(bench: StateBench) -> None:
    for request in (ReadRequest(KEY, 4), WriteRequest(KEY, 1, 4), SummaryRequest(KEY)):
        answer = bench.ask(request)
        assert answer.error is ErrorCode.INVALID_REQUEST
        assert "not initialized" in (answer.message or "")
    assert bench.ask(ForgetRequest(KEY)).error is ErrorCode.NONE
    assert bench.log == []


def test_a_partition_that_does_not_exist(bench: StateBench) -> None:
    for key in (KEY._replace(partition=99), KEY._replace(topic_id=b"?" * 16)):
        answer = bench.ask(InitializeRequest(key, 1))
        assert answer.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert bench.ask(InitializeRequest(KEY._replace(group_id=""), 1)).error is (
        ErrorCode.INVALID_GROUP_ID
    )
    long = KEY._replace(group_id="g" * 40_000)
    assert bench.ask(InitializeRequest(long, 1)).error is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize(
    "batch",
    [
        StateBatch(5, 4, RecordState.ARCHIVED, 1),
        StateBatch(-1, 4, RecordState.ARCHIVED, 1),
        StateBatch(1, 4, RecordState.ACQUIRED, 1),
        StateBatch(1, 4, RecordState.AVAILABLE, -1),
        StateBatch(1, 4, RecordState.AVAILABLE, 40_000),
    ],
)
def test_a_write_with_one_bad_batch_writes_nothing(bench: StateBench, batch: StateBatch) -> None:
    bench.ask(InitializeRequest(KEY, 1))
    assert written(bench, 4, DONE, batch) is ErrorCode.INVALID_REQUEST
    assert len(bench.log) == 1


def test_a_forgotten_state_is_gone(bench: StateBench) -> None:
    bench.ask(InitializeRequest(KEY, 1))
    bench.ask(ForgetRequest(KEY))
    assert bench.ask(ReadRequest(KEY, 4)).error is ErrorCode.INVALID_REQUEST
    bench.reload()
    assert bench.machine.count == 0


def test_a_snapshot_follows_many_updates(bench: StateBench) -> None:
    bench.ask(InitializeRequest(KEY, 1))
    for number in range(9):
        written(bench, 4, StateBatch(number, number, RecordState.ACKNOWLEDGED, 1))
    assert [key[1] for key, _ in bench.log] == [0, 1, 1, 1, 1, 0, 1, 1, 1, 1]
    assert state_of(bench.ask(SummaryRequest(KEY))).snapshot_epoch == 1
    assert bench.machine.needed_from == 5


def test_a_share_partition_at_rest_does_not_keep_the_log_long(bench: StateBench) -> None:
    rest = KEY._replace(partition=1)
    bench.ask(InitializeRequest(rest, 1))
    bench.ask(InitializeRequest(KEY, 1))
    for _ in range(100):
        written(bench, 4, DONE)
        bench.pass_time(0)
        assert len(bench.log) - bench.machine.needed_from <= 2 * 2 + 10 + 1
    assert state_of(bench.ask(SummaryRequest(rest))).state_epoch == 1


def test_states_of_deleted_topics_are_removed(bench: StateBench) -> None:
    other = StateKey("g", b"u" * 16, 0)
    bench.ask(InitializeRequest(KEY, 1))
    bench.ask(InitializeRequest(other, 1))
    bench.counts.pop(T)
    bench.machine.note(TopicIdsDeleted((T, b"?" * 16)), bench.now)
    bench.pass_time(0)
    assert bench.machine.count == 1
    assert bench.machine.deadline_ms is None


def test_the_next_coordinator_removes_the_states_of_topics_deleted_before(
    bench: StateBench,
) -> None:
    bench.ask(InitializeRequest(KEY, 1))
    bench.counts.pop(T)
    bench.reload()
    bench.pass_time(0)
    assert bench.machine.count == 0


def test_work_that_the_log_refuses_comes_again_later(bench: StateBench) -> None:
    bench.ask(InitializeRequest(KEY, 1))
    bench.counts.pop(T)
    bench.machine.note(TopicIdsDeleted((T,)), bench.now)
    assert bench.machine.put_off(500.0, bench.now)
    assert bench.machine.deadline_ms == 500.0
    bench.pass_time(500)
    assert bench.machine.count == 0


def test_the_removal_changes_nothing_before_its_records(bench: StateBench) -> None:
    """A topic that exists comes before the deleted one. The bench compares each step."""
    other = StateKey("g", U, 0)
    bench.ask(InitializeRequest(KEY, 1))
    bench.ask(InitializeRequest(other, 1))
    bench.counts.pop(U)
    bench.machine.note(TopicIdsDeleted((T, U)), bench.now)
    bench.pass_time(0)
    assert bench.machine.count == 1
