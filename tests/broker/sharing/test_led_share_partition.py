"""A share partition at its leader: loaded, persisted, and dropped when it is another's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.coordinator.share.types import NO_START, ReadRequest, ShareState, StateAnswer
from broker.replication.deadlines import Deadline
from broker.share.values import RecordState, StateBatch
from stele.errors import ApiError, ErrorCode
from tests.support.sharing import (
    ACCEPT,
    KEY,
    REJECT,
    RELEASE,
    RENEW,
    STATE_EPOCH,
    SharingBench,
    batch,
)
from tests.support.timing import until
from tests.support.worlds import virtual

ACKNOWLEDGED, ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED


@virtual
async def test_a_leader_goes_on_from_the_persisted_state() -> None:
    bench = SharingBench()
    for _ in range(6):
        bench.log.append()
    done = StateBatch(3, 3, ACKNOWLEDGED, 1)
    tried = StateBatch(4, 4, RecordState.AVAILABLE, bench.limits.suspect_count)
    bench.states.state = ShareState(0, STATE_EPOCH, start_offset=2, batches=(done, tried))
    led = await bench.led()
    assert bench.states.asked == [ReadRequest(KEY, bench.log.leader_epoch)]
    delivery = await bench.fetch(led)
    # Offset 4 is a suspect, and is delivered alone.
    assert [tuple(each) for each in delivery.acquired] == [(2, 2, 1), (5, 5, 1)]
    assert delivery.records == [b"2", b"5"]
    (alone,) = (await bench.fetch(led)).acquired
    assert tuple(alone) == (4, 4, bench.limits.suspect_count + 1)


@pytest.mark.parametrize(
    ("reset", "start"),
    [("earliest", 2), ("latest", 6), ("by_duration:PT1M", 4)],
)
@virtual
async def test_the_first_offset_is_persisted_before_the_first_delivery(
    reset: str, start: int
) -> None:
    """A later leader would otherwise begin at the end, and leave out what came meanwhile."""
    bench = SharingBench()
    for _ in range(6):
        bench.log.append()
    bench.log.start_offset = 2
    bench.log.times[bench.clock.time_ms() - 60_000] = 4
    bench.states.state = ShareState(0, STATE_EPOCH, start_offset=NO_START)
    bench.states.gate = asyncio.Event()
    led = bench.lead(reset)
    await asyncio.sleep(0)
    assert await bench.offsets(led) == []
    bench.states.gate.set()
    await until(lambda: led.machine is not None)
    (write,) = bench.states.writes
    assert (write.start_offset, write.batches) == (start, ())
    assert (write.state_epoch, write.leader_epoch) == (STATE_EPOCH, bench.log.leader_epoch)
    bench.log.append()
    assert await bench.offsets(led) == list(range(start, 7))


@virtual
async def test_a_released_record_rests_twice_as_long_each_time() -> None:
    bench = SharingBench(
        delivery_count_limit=9, backoff_ms=100, backoff_max_ms=350, record_lock_duration_ms=60_000
    )
    bench.log.append()
    led = await bench.led()
    assert await bench.offsets(led) == [0]
    rests = []
    for _ in range(4):
        await led.acknowledge("m", [batch(0, 0, RELEASE)])
        began_s = bench.clock.monotonic()
        delivery = await bench.fetch(led, wait_ms=10_000)
        assert [each.first for each in delivery.acquired] == [0]
        rests.append(bench.clock.monotonic() - began_s)
    assert rests == pytest.approx([0.1, 0.2, 0.35, 0.35], abs=0.03)
    led.end_session("m")
    assert await bench.offsets(led, "n") == [0], "the delivery did not count"


@virtual
async def test_an_acknowledgement_is_answered_when_it_is_persisted() -> None:
    bench = SharingBench()
    for _ in range(3):
        bench.log.append()
    led = await bench.led()
    assert await bench.offsets(led) == [0, 1, 2]
    bench.states.gate = asyncio.Event()
    acknowledging = asyncio.ensure_future(led.acknowledge("m", [batch(0, 1, ACCEPT)]))
    await until(lambda: bool(bench.states.writes))
    await asyncio.sleep(0.5)
    assert not acknowledging.done()
    assert led.machine is not None
    assert led.machine.start_offset == 0
    bench.states.gate.set()
    await acknowledging
    assert led.machine.start_offset == 2
    assert bench.states.writes[0].batches == (
        StateBatch(0, 0, ACKNOWLEDGED, 1),
        StateBatch(1, 1, ACKNOWLEDGED, 1),
    )
    assert bench.states.writes[0].complete_count == 2


@virtual
async def test_what_comes_while_a_write_is_under_way_is_one_write() -> None:
    bench = SharingBench()
    for _ in range(9):
        bench.log.append()
    led = await bench.led()
    assert await bench.offsets(led) == list(range(9))
    bench.states.gate = asyncio.Event()
    acknowledging = []
    for offset in (0, 1, 4, 2):
        acknowledging.append(
            asyncio.ensure_future(led.acknowledge("m", [batch(offset, offset, ACCEPT)]))
        )
        await asyncio.sleep(0.1)
    assert len(bench.states.writes) == 1
    bench.states.gate.set()
    await asyncio.gather(*acknowledging)
    first, second = bench.states.writes
    assert [each.first for each in first.batches] == [0]
    assert [each.first for each in second.batches] == [1, 4, 2]
    # Offset 0 is below the start offset by then.
    assert (second.start_offset, second.complete_count) == (1, 3)


@virtual
async def test_a_failed_write_gives_the_member_its_records_back() -> None:
    bench = SharingBench()
    bench.log.append()
    led = await bench.led()
    await bench.fetch(led)
    bench.states.refusal = StateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE, "it moves")
    with pytest.raises(ApiError) as refused:
        await led.acknowledge("m", [batch(0, 0, ACCEPT)])
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert led.failure is None
    bench.states.refusal = None
    assert await bench.offsets(led, "n") == []
    await led.acknowledge("m", [batch(0, 0, REJECT)])
    assert bench.states.writes[-1].batches == (StateBatch(0, 0, ARCHIVED, 1),)


@pytest.mark.parametrize("refused", [False, True])
@virtual
async def test_a_late_acknowledgement_waits_until_the_end_of_the_record_is_persisted(
    refused: bool,
) -> None:
    """The lock has ended, and the record was given up. A later leader may not know that."""
    bench = SharingBench(delivery_count_limit=1)
    bench.log.append()
    led = await bench.led()
    assert await bench.offsets(led) == [0]
    if refused:
        bench.states.refusal = StateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE, "it moves")
    else:
        bench.states.gate = asyncio.Event()
    await until(lambda: led.machine is not None and led.machine.start_offset == 1)
    await until(lambda: bool(bench.states.writes))
    acknowledging = asyncio.ensure_future(led.acknowledge("m", [batch(0, 0, ACCEPT)]))
    await asyncio.sleep(0.5)
    if refused:
        with pytest.raises(ApiError) as told:
            await acknowledging
        assert told.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        bench.states.refusal = None
    else:
        assert not acknowledging.done()
        assert bench.states.gate is not None
        bench.states.gate.set()
        await acknowledging
    await led.acknowledge("m", [batch(0, 0, ACCEPT)])
    assert bench.states.writes[-1].start_offset == 1
    writes = len(bench.states.writes)
    await led.acknowledge("m", [batch(0, 0, ACCEPT)])
    assert len(bench.states.writes) == writes, "it is persisted"


@virtual
async def test_a_lock_that_ends_during_a_failed_write_frees_the_record() -> None:
    bench = SharingBench()
    bench.log.append()
    led = await bench.led()
    await bench.fetch(led)
    bench.states.gate = asyncio.Event()
    bench.states.refusal = StateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE, "it moves")
    acknowledging = asyncio.ensure_future(led.acknowledge("m", [batch(0, 0, ACCEPT)]))
    await asyncio.sleep(2.0)
    assert await bench.offsets(led, "n") == []
    bench.states.gate.set()
    with pytest.raises(ApiError):
        await acknowledging
    assert await bench.offsets(led, "n") == [0]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
@virtual
async def test_a_state_that_is_another_now_is_dropped(error: ErrorCode, told: ErrorCode) -> None:
    bench = SharingBench()
    for _ in range(2):
        bench.log.append()
    led = await bench.led()
    await bench.fetch(led)
    bench.states.refusal = StateAnswer(error, "another")
    with pytest.raises(ApiError, match="another") as refused:
        await led.acknowledge("m", [batch(0, 0, ACCEPT)])
    assert refused.value.code is told
    assert bench.dropped == [led]
    delivery = await bench.fetch(led)
    assert delivery.error is not None
    assert delivery.error.code is told
    with pytest.raises(ApiError) as late:
        await led.acknowledge("m", [batch(1, 1, ACCEPT)])
    assert late.value.code is ErrorCode.INVALID_RECORD_STATE


@virtual
async def test_a_load_that_fails_is_told_to_the_fetch_that_waits() -> None:
    bench = SharingBench()
    bench.states.refusal = StateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE, "it moves")
    bench.states.gate = asyncio.Event()
    led = bench.lead()
    fetching = asyncio.ensure_future(bench.fetch(led, wait_ms=60_000))
    await asyncio.sleep(1.0)
    assert not fetching.done()
    bench.states.gate.set()
    delivery = await fetching
    assert delivery.error is not None
    assert delivery.error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.dropped == [led]
    assert bench.log.watchers == 0


@virtual
async def test_a_drop_refuses_what_waits_for_a_write() -> None:
    bench = SharingBench()
    bench.log.append()
    led = await bench.led()
    await bench.fetch(led)
    bench.states.gate = asyncio.Event()
    acknowledging = asyncio.ensure_future(led.acknowledge("m", [batch(0, 0, ACCEPT)]))
    await until(lambda: bool(bench.states.writes))
    led.drop(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved"))
    with pytest.raises(ApiError, match="moved"):
        await acknowledging
    bench.states.gate.set()
    await asyncio.sleep(5.0)  # its locks would have ended, too
    assert bench.dropped == [led]
    assert len(bench.states.writes) == 1


@virtual
async def test_a_drop_ends_a_load_and_counts_once() -> None:
    bench = SharingBench()
    bench.log.append()
    bench.states.gate = asyncio.Event()
    led = bench.lead()
    await until(lambda: bool(bench.states.asked))
    led.drop(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved"))
    led.drop(ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "it was deleted"))
    bench.states.gate.set()
    await asyncio.sleep(1.0)
    assert led.machine is None
    assert bench.dropped == [led]
    assert led.failure is not None
    assert led.failure.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@virtual
async def test_a_share_partition_that_nobody_reads_persists_what_was_acknowledged() -> None:
    bench = SharingBench()
    for _ in range(2):
        bench.log.append()
    led = await bench.led()
    await bench.fetch(led)
    bench.states.gate = asyncio.Event()
    acknowledging = [asyncio.ensure_future(led.acknowledge("m", [batch(0, 0, ACCEPT)]))]
    await until(lambda: bool(bench.states.writes))
    acknowledging.append(asyncio.ensure_future(led.acknowledge("m", [batch(1, 1, ACCEPT)])))
    await asyncio.sleep(0)
    led.retire()
    assert led.failure is None
    bench.states.gate.set()
    await asyncio.gather(*acknowledging)
    await until(lambda: bench.dropped == [led])
    assert [each.start_offset for each in bench.states.writes] == [0, 1]


@virtual
async def test_a_drop_while_the_log_is_read_delivers_nothing() -> None:
    bench = SharingBench()
    bench.log.append()
    led = await bench.led()
    bench.log.reading = asyncio.Event()
    fetching = asyncio.ensure_future(bench.fetch(led))
    await until(lambda: bool(bench.log.reads))
    led.drop(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "another"))
    bench.log.reading.set()
    delivery = await fetching
    assert (delivery.acquired, delivery.records) == ([], [])
    assert delivery.error is not None
    assert delivery.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@virtual
async def test_records_come_back_when_their_locks_end_and_for_the_last_time_never() -> None:
    bench = SharingBench(delivery_count_limit=2)
    bench.log.append()
    led = await bench.led()
    assert await bench.offsets(led) == [0]
    delivery = await bench.fetch(led, "n", wait_ms=60_000)
    assert [tuple(each) for each in delivery.acquired] == [(0, 0, 2)]
    assert bench.clock.monotonic() >= 1.0
    assert (await bench.fetch(led, "m", wait_ms=3_000)).acquired == []
    await until(lambda: len(bench.states.writes) == 2)
    first, second = bench.states.writes
    assert first.batches == (StateBatch(0, 0, RecordState.AVAILABLE, 1),)
    # The start offset says it of the archived record.
    assert (second.start_offset, second.batches) == (1, ())


@virtual
async def test_there_is_one_timer_for_the_lock_that_ends_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = SharingBench()
    for _ in range(3):
        bench.log.append()
    led = await bench.led()
    add, delays = bench.deadlines.add, list[float]()

    def noted(delay_ms: float, wake: Callable[[], None]) -> Deadline:
        delays.append(delay_ms)
        return add(delay_ms, wake)

    monkeypatch.setattr(bench.deadlines, "add", noted)
    for number in range(3):
        assert len((await bench.fetch(led, f"m{number}", max_records=1)).acquired) == 1
        await asyncio.sleep(0.3)
    assert delays == [1_000]
    await asyncio.sleep(3.0)
    assert await bench.offsets(led, "n") == [0, 1, 2]
    first, *later = delays
    assert first == 1_000
    assert all(0 < each <= 300 for each in later[:-1])
    assert later[-1] == 1_000, "of the last delivery"
    assert len(later) == 3


@virtual
async def test_a_shorter_lock_ends_before_an_earlier_longer_one() -> None:
    bench = SharingBench()
    for _ in range(2):
        bench.log.append()
    led = await bench.led()
    led.configure(
        replace(led.settings, limits=bench.limits._replace(record_lock_duration_ms=9_000))
    )
    assert len((await bench.fetch(led, "m", max_records=1)).acquired) == 1
    led.configure(replace(led.settings, limits=bench.limits))
    assert await bench.offsets(led, "n") == [1]
    delivery = await bench.fetch(led, "o", wait_ms=60_000)
    assert [each.first for each in delivery.acquired] == [1]
    assert bench.clock.monotonic() < 2.0


@virtual
async def test_a_request_that_is_given_up_does_not_stop_the_writes() -> None:
    bench = SharingBench()
    for _ in range(2):
        bench.log.append()
    led = await bench.led()
    await bench.fetch(led)
    bench.states.gate = asyncio.Event()
    given_up = asyncio.ensure_future(led.acknowledge("m", [batch(0, 0, ACCEPT)]))
    await until(lambda: bool(bench.states.writes))
    given_up.cancel()
    bench.states.gate.set()
    await led.acknowledge("m", [batch(1, 1, ACCEPT)])
    assert led.failure is None
    assert led.machine is not None
    assert led.machine.start_offset == 2


@virtual
async def test_a_renewed_lock_lasts() -> None:
    bench = SharingBench()
    bench.log.append()
    led = await bench.led()
    assert await bench.offsets(led) == [0]
    for _ in range(4):
        await asyncio.sleep(0.7)
        await led.acknowledge("m", [batch(0, 0, RENEW)])
    assert bench.states.writes == []
    assert await bench.offsets(led, "n") == []
    await asyncio.sleep(1.1)
    assert await bench.offsets(led, "n") == [0]


@virtual
async def test_the_records_of_a_member_that_is_gone_are_available_at_once() -> None:
    bench = SharingBench()
    bench.log.append(4)
    led = await bench.led()
    assert await bench.offsets(led) == [0, 1, 2, 3]
    waiting = asyncio.ensure_future(bench.fetch(led, "n", wait_ms=60_000))
    await asyncio.sleep(0.1)
    led.end_session("m")
    delivery = await waiting
    assert [tuple(each) for each in delivery.acquired] == [(0, 3, 1)]
    assert bench.clock.monotonic() < 1.0


@virtual
async def test_deleted_records_are_done() -> None:
    bench = SharingBench()
    for _ in range(5):
        bench.log.append()
    led = await bench.led()
    assert await bench.offsets(led) == [0, 1, 2, 3, 4]
    bench.log.start_offset = 3
    await led.acknowledge("m", [batch(0, 4, RELEASE)])
    assert await bench.offsets(led, "n") == [3, 4]
    assert led.machine is not None
    assert led.machine.start_offset == 3
    await until(lambda: bench.states.writes[-1].start_offset == 3)


@virtual
async def test_a_start_behind_deleted_records_is_persisted_by_itself() -> None:
    bench = SharingBench()
    for _ in range(3):
        bench.log.append()
    led = await bench.led()
    bench.log.start_offset = 2
    assert await bench.offsets(led) == [2]
    await until(lambda: bool(bench.states.writes))
    (write,) = bench.states.writes
    assert (write.start_offset, write.complete_count, write.batches) == (2, 0, ())


@virtual
async def test_aborted_and_undecided_records_are_not_delivered() -> None:
    bench = SharingBench()
    bench.log.append(2)
    bench.log.append(3, is_deliverable=False)
    bench.log.append()
    bench.log.append()
    bench.log.stable_end = 6
    led = await bench.led(read_committed=True)
    assert await bench.offsets(led) == [0, 1, 5]
    bench.log.stable_end = None
    assert await bench.offsets(led) == [6]
    await led.acknowledge("m", [batch(0, 1, ACCEPT)])
    assert led.machine is not None
    assert led.machine.start_offset == 5
