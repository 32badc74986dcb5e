"""What a follower does with one answer, without a leader at the other end."""

from __future__ import annotations

import pytest

from broker.replication.follower import REST_MAX_S, REST_MIN_S, Following, Verdict
from broker.replication.replica import Replica, ReplicaState
from stele.errors import ErrorCode
from stele.wire.batch import stamp
from stele.wire.control_records import end_marker_batch
from stele.wire.kafka.messages.fetch import EpochEndOffset, PartitionData, ProducersPart
from storage.errors import CorruptLogError
from storage.log import PartitionLog
from storage.producer_handover import FIRST
from storage.producer_state import ProducerStates
from tests.support.batches import header_of, make_batch
from tests.support.replica_cluster import ReplicaCluster
from tests.support.timing import until
from tests.support.worlds import Scenario, gives

BACKOFF_S = 0.7


@gives("each")
def following(scenario: Scenario) -> None:
    """Act on a follower whose leader cannot be reached, inside of its process."""

    async def whole(cluster: ReplicaCluster) -> None:
        cluster.simulation.fabric.isolate("b1", ["b2"])
        cluster.create_topic((2, 1))
        node = cluster[1]
        await until(node.holds)

        async def inside() -> None:
            await scenario(Following(node.replica(), 0, BACKOFF_S, _nothing_is_corrupt, None))

        await node.process.run(inside())

    ReplicaCluster(brokers=2).run(whole)


def _nothing_is_corrupt(replica: Replica, log: PartitionLog, error: CorruptLogError) -> None:
    raise AssertionError(f"{replica!r}: {error}")


def records(base_offset: int, count: int, epoch: int = 0) -> memoryview:
    batch = make_batch(count)
    stamp(batch, 0, base_offset=base_offset, leader_epoch=epoch)
    return memoryview(batch)


def answer(data: memoryview | None = None, *, hw: int = 0, start: int = 0) -> PartitionData:
    return PartitionData(high_watermark=hw, log_start_offset=start, records=data)


def refusal(error: ErrorCode, *, start: int = -1) -> PartitionData:
    return PartitionData(error_code=error, high_watermark=-1, log_start_offset=start)


def diverging(epoch: int, end_offset: int) -> PartitionData:
    return PartitionData(diverging_epoch=EpochEndOffset(epoch, end_offset))


def fill(each: Following, *runs: tuple[int, int]) -> None:
    """Append runs of (epoch, records), each record a batch."""
    for epoch, count in runs:
        for _ in range(count):
            each.replica.log.append_as_follower(records(each.replica.log.end_offset, 1, epoch))
    each.replica.machine.copied(each.replica.position, 0)


@following
async def test_a_position_names_the_end_and_the_epoch_of_the_record_before_it(
    each: Following,
) -> None:
    empty = each.position(100)
    assert (empty.fetch_offset, empty.last_fetched_epoch) == (0, -1)
    fill(each, (0, 2), (3, 1))
    position = each.position(100)
    assert (position.fetch_offset, position.last_fetched_epoch) == (3, 3)
    each.replica.log.assign_leader_epoch(4)  # led, and wrote nothing
    assert each.position(100).last_fetched_epoch == 3


@following
async def test_records_are_appended_and_the_high_watermark_taken_over(each: Following) -> None:
    each.position(100)
    data = records(0, 3)
    assert each.take(answer(data, hw=2)) == Verdict(moved=True, written_bytes=len(data))
    assert each.replica.log.end_offset == 3
    assert each.replica.machine.high_watermark == 2
    assert each.replica.log.ask_high_watermark() == 2
    each.position(100)
    assert each.take(answer(hw=3)) == Verdict()
    assert each.replica.machine.high_watermark == 3


@following
async def test_an_answer_about_an_earlier_position_is_dropped(each: Following) -> None:
    each.position(100)
    each.take(answer(records(0, 3)))
    assert each.take(answer(records(0, 3))) == Verdict()
    assert each.take(diverging(0, 1)) == Verdict()
    assert each.replica.log.end_offset == 3


@pytest.mark.parametrize(
    ("runs", "leader_says", "end"),
    [
        ([(0, 5)], (0, 3), 3),  # the leader has less of our last epoch
        ([(0, 1), (1, 3)], (0, 6), 1),  # the leader has more of an epoch than we
        ([(0, 2), (2, 3)], (1, 4), 2),  # the leader has an epoch between that we never saw
        ([(1, 4)], (0, 2), 0),  # we have nothing of what the leader had then
    ],
)
@following
async def test_a_diverging_tail_is_cut_at_the_common_ground(
    each: Following, runs: list[tuple[int, int]], leader_says: tuple[int, int], end: int
) -> None:
    fill(each, *runs)
    each.position(100)
    assert each.take(diverging(*leader_says)) == Verdict(moved=True)
    assert each.replica.log.end_offset == end


@following
async def test_it_cuts_by_epoch_even_below_its_high_watermark(each: Following) -> None:
    fill(each, (0, 5))
    each.replica.machine.copied(each.replica.position, 5)
    each.position(100)
    each.take(diverging(0, 2))
    assert each.replica.log.end_offset == 2
    assert each.replica.machine.high_watermark == 2


@following
async def test_out_of_range_begins_anew_at_the_leaders_start(each: Following) -> None:
    fill(each, (0, 2))
    each.position(100)
    assert each.take(refusal(ErrorCode.OFFSET_OUT_OF_RANGE, start=40)) == Verdict(moved=True)
    log = each.replica.log
    assert (log.start_offset, log.end_offset, each.replica.machine.high_watermark) == ((40, 40, 40))


@following
async def test_out_of_range_of_an_unknown_range_rests(each: Following) -> None:
    fill(each, (0, 2))
    each.position(100)
    assert each.take(refusal(ErrorCode.OFFSET_OUT_OF_RANGE)) == Verdict(rest_s=BACKOFF_S)
    assert each.replica.log.end_offset == 2
    for start in (0, 1):  # of a leader whose log has been cut
        each.take(refusal(ErrorCode.OFFSET_OUT_OF_RANGE, start=start))
        assert (each.replica.log.start_offset, each.replica.log.end_offset) == (start, start)
        each.position(100)


@pytest.mark.parametrize(("dropped_end", "is_named"), [(2, False), (3, True)])
@following
async def test_a_log_that_lacks_tombstones_begins_anew_and_says_so(
    each: Following, caplog: pytest.LogCaptureFixture, dropped_end: int, is_named: bool
) -> None:
    fill(each, (0, 2))
    each.position(100)
    told = refusal(ErrorCode.OFFSET_OUT_OF_RANGE, start=0)
    told.dropped_end = dropped_end
    each.take(told)
    assert ("tombstones below 3 are compacted away" in caplog.text) is is_named
    assert "beginning anew at 0" in caplog.text


@following
async def test_each_cut_of_the_log_is_counted(each: Following) -> None:
    fill(each, (0, 5))
    each.position(100)
    each.take(diverging(0, 3))
    each.position(100)
    each.take(refusal(ErrorCode.OFFSET_OUT_OF_RANGE, start=40))
    assert each.cuts == 2
    each.position(100)
    each.take(answer(records(38, 4), start=40))
    assert (each.replica.log.start_offset, each.cuts) == (40, 3), "the first batch begins before it"
    each.position(100)
    each.take(answer(records(42, 1), start=40))
    assert each.cuts == 3


def handed(start: int, *producer_ids: int, after: int = FIRST) -> PartitionData:
    """The leader's log begins at ``start``, and it hands these producers over, and more ``after``
    them."""
    states = ProducerStates()
    for producer_id in producer_ids:
        states.update(header_of(make_batch(1, producer=(producer_id, 0, 0))), start - 1, 1_000)
    told = refusal(ErrorCode.OFFSET_OUT_OF_RANGE, start=start)
    told.producers = ProducersPart(states.encode(), after)
    return told


def ids_known(each: Following) -> set[int]:
    return {entry.producer_id for entry in each.replica.log.producers}


@following
async def test_a_log_that_begins_anew_has_all_the_leaders_producers_first(each: Following) -> None:
    fill(each, (0, 2))
    assert each.position(100).producers_after == FIRST
    assert each.take(handed(40, 3, 5, after=5)) == Verdict(moved=True)
    assert each.replica.log.end_offset == 2, "nothing is deleted before all are here"
    assert each.position(100).producers_after == 5
    assert each.take(handed(40, 8)) == Verdict(moved=True)
    assert (each.replica.log.start_offset, ids_known(each)) == (40, {3, 5, 8})
    assert each.position(100).producers_after == FIRST


@following
async def test_producers_of_another_start_are_asked_for_from_the_first(each: Following) -> None:
    fill(each, (0, 2))
    each.position(100)
    each.take(handed(40, 3, 5, after=5))
    assert each.position(100).producers_after == 5
    assert each.take(handed(50, 8)) == Verdict(moved=True)
    assert (each.replica.log.end_offset, each.position(100).producers_after) == (2, FIRST)
    assert each.take(handed(50, 5, 8)) == Verdict(moved=True)
    assert (each.replica.log.start_offset, ids_known(each)) == (50, {5, 8})


@following
async def test_a_part_that_was_not_asked_for_last_is_passed_over(each: Following) -> None:
    """A leader repeats it in the answer to each request that was under way."""
    fill(each, (0, 2))
    each.position(100)
    each.take(handed(40, 3, 5, after=5))
    each.position(100)
    each.take(handed(50, 8))
    assert each.take(handed(50, 8)) == Verdict()
    assert (each.replica.log.end_offset, each.position(100).producers_after) == (2, FIRST)
    each.take(handed(50, 3, 5, after=5))
    each.position(100)
    each.take(answer(hw=2))
    assert each.take(handed(50, 8)) == Verdict()
    assert each.replica.log.end_offset == 2


@following
async def test_a_log_does_not_begin_anew_again_by_a_repeated_part(each: Following) -> None:
    """It ended at the start of its leader, so its end is the same afterwards."""
    fill(each, (0, 40))
    await each.replica.directory.flush()
    each.position(100)
    each.take(handed(40, 3, 5, after=5))
    each.position(100)
    each.take(handed(40, 8))
    assert ids_known(each) == {3, 5, 8}
    each.take(handed(40, 8))
    assert (each.replica.log.start_offset, ids_known(each)) == (40, {3, 5, 8})


@following
async def test_any_other_answer_ends_the_handing_over(each: Following) -> None:
    fill(each, (0, 2))
    each.position(100)
    each.take(handed(40, 3, 5, after=5))
    each.position(100)
    each.take(answer(hw=2))
    assert each.position(100).producers_after == FIRST


@following
async def test_a_log_that_begins_within_a_batch_keeps_the_producers(each: Following) -> None:
    each.position(100)
    each.take(handed(40, 3, 5))
    each.position(100)
    each.take(answer(records(38, 4), start=40))
    assert (each.replica.log.start_offset, each.replica.log.end_offset) == (40, 42)
    assert ids_known(each) == {3, 5}


@following
async def test_the_leaders_start_is_taken_over(each: Following) -> None:
    fill(each, (0, 5))
    each.position(100)
    each.take(answer(start=3, hw=5))
    assert each.replica.log.start_offset == 3


@following
async def test_a_start_that_was_written_for_another_partition_is_reported(each: Following) -> None:
    fill(each, (0, 5))
    each.replica.log.advance_start_offset(3)
    assert each.position(100).log_start_offset == 0  # not on disk yet
    await each.replica.directory.persist_start_offsets()
    assert each.take(answer(start=3, hw=5)).moved
    assert each.position(100).log_start_offset == 3
    assert not each.take(answer(start=3, hw=5)).moved  # the leader knows it


@following
async def test_errors_that_pass_are_rested_out_a_little_longer_each_time(each: Following) -> None:
    each.position(100)
    rests = [each.take(refusal(ErrorCode.UNKNOWN_LEADER_EPOCH)).rest_s for _ in range(5)]
    assert rests[0] == REST_MIN_S
    assert rests == sorted(rests)
    assert rests[-1] == REST_MAX_S
    each.take(answer())
    assert each.take(refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)).rest_s == REST_MIN_S


@pytest.mark.parametrize("error", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR])
@following
async def test_other_errors_rest_for_the_configured_time(each: Following, error: ErrorCode) -> None:
    _rests(each, refusal(error))


@following
async def test_what_cannot_be_appended_rests_and_leaves_the_log_as_it_was(each: Following) -> None:
    broken = make_batch(2)
    broken[-1] ^= 1
    _rests(each, answer(memoryview(broken)))


def _rests(each: Following, data: PartitionData) -> None:
    each.position(100)
    assert each.take(data) == Verdict(rest_s=BACKOFF_S)
    assert each.replica.log.end_offset == 0


@pytest.mark.parametrize("state", [each for each in ReplicaState if each.value != "online"])
@following
async def test_a_replica_without_log_rests(each: Following, state: ReplicaState) -> None:
    each.position(100)
    each.replica.take_down(state)
    assert each.take(answer(records(0, 1))).rest_s == BACKOFF_S
    assert (each.is_durable, each.has_bounds_to_write) == (False, False)


# -------------------------------------------------------------------------- transactions


@following
async def test_what_an_unclean_election_has_cost_transactions_is_reported(
    each: Following, caplog: pytest.LogCaptureFixture
) -> None:
    replica = each.replica
    log = replica.log

    def append(producer_id: int, *, ends: bool = False) -> None:
        batch = (
            end_marker_batch(producer_id, 1, commit=False, coordinator_epoch=0, timestamp_ms=0)
            if ends
            else make_batch(producer=(producer_id, 0, 0), is_transactional=True)
        )
        stamp(batch, 0, base_offset=log.end_offset, leader_epoch=0)
        log.append_as_follower(batch)

    append(1)
    append(2)
    append(2, ends=True)
    append(3)
    replica.machine.copied(replica.position, log.end_offset)  # all of it is committed
    assert replica.machine.last_stable_offset == 0
    each.position(1 << 20)
    verdict = each.take(diverging(0, 2))
    assert (verdict.moved, verdict.cut_transactions) == (True, 2)
    assert log.producers.open_transactions() == [(1, 0), (2, 1)]
    append(3, ends=True)  # it resurrects nothing
    assert log.producers.open_transactions() == [(1, 0), (2, 1)]
    assert log.transactions.aborted(0, log.end_offset) == []
    replica.machine.copied(replica.position, log.end_offset)
    append(1, ends=True)
    replica.machine.copied(replica.position, log.end_offset)
    assert replica.machine.last_stable_offset == 1

    told = next(each for each in caplog.messages if "has cost" in each)
    assert "transactions of producers [3]" in told
    assert "markers of transactions of producers [2]" in told


@pytest.mark.parametrize(("cut_to", "cost"), [(1, "producers [], and the markers"), (2, "")])
@following
async def test_a_marker_that_is_lost_alone_is_reported(
    each: Following, caplog: pytest.LogCaptureFixture, cut_to: int, cost: str
) -> None:
    log = each.replica.log
    end = end_marker_batch(1, 1, commit=False, coordinator_epoch=0, timestamp_ms=0)
    for batch in (make_batch(producer=(1, 0, 0), is_transactional=True), end, make_batch()):
        stamp(batch, 0, base_offset=log.end_offset, leader_epoch=0)
        log.append_as_follower(batch)
    each.replica.machine.copied(each.replica.position, log.end_offset)
    each.position(1 << 20)
    assert each.take(diverging(0, cut_to)).cut_transactions == (1 if cost else 0)
    told = [each for each in caplog.messages if "has cost" in each]
    assert len(told) == (1 if cost else 0)
    assert all(cost in each for each in told)


@following
async def test_what_was_never_committed_costs_nothing(
    each: Following, caplog: pytest.LogCaptureFixture
) -> None:
    batch = make_batch(producer=(1, 0, 0), is_transactional=True)
    stamp(batch, 0, base_offset=0, leader_epoch=0)
    each.replica.log.append_as_follower(batch)
    each.replica.machine.copied(each.replica.position, 0)
    each.position(1 << 20)
    assert each.take(diverging(0, 0)).cut_transactions == 0

    assert not [each for each in caplog.messages if "has cost" in each]


@following
async def test_an_unexpected_error_of_one_log_is_no_error_of_the_session(each: Following) -> None:
    def fail(data: memoryview) -> None:
        raise OverflowError

    log = each.replica.log
    each.position(1000)
    log.append_as_follower = fail  # type: ignore[method-assign, assignment]
    assert each.take(answer(records(0, 1))) == Verdict(rest_s=BACKOFF_S)


@following
async def test_a_dropped_end_from_an_earlier_leader_must_be_on_disk_too(each: Following) -> None:
    """The log lacks tombstones below it, and the next leader may name the same end."""
    each.position(100)
    data = answer(records(0, 3))
    data.dropped_end = 2
    each.take(data)
    directory = each.replica.directory
    await directory.flush()
    later = Following(each.replica, 1, BACKOFF_S, _nothing_is_corrupt, None)
    assert (later.is_durable, later.has_bounds_to_write) == (False, True)
    await directory.persist_start_offsets()
    assert (later.is_durable, later.has_bounds_to_write) == (True, False)
    assert directory.durable_dropped_end(each.replica.log) == 2
