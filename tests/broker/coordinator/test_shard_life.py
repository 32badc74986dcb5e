"""The life of a coordinator's shard: loading, leading, ending, and its timers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from broker.coordinator.shard import PUT_OFF_MS, RETRY_MS, ShardState
from broker.coordinator.step import KeyValue, Now, Step
from broker.replication.deadlines import Deadline
from broker.replication.hosted import Loaded
from stele.errors import ErrorCode
from stele.wire.batch import HEADER_SIZE, BatchBuilder, record_size_bound
from tests.support.coordinators import Event, Heard, HeldLog, Sums
from tests.support.shards import TIMEOUT_MS, ShardBench, active, record, turn
from tests.support.worlds import virtual


def batch_of(key: bytes, count: int) -> bytearray:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(key, b"%d" % (number + 1), timestamp_ms=0)
    return builder.build()


# ---------------------------------------------------------------------------- life


@virtual
async def test_requests_are_refused_while_loading_and_after_unloading() -> None:
    bench = ShardBench()
    assert bench.get(b"a").told == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    bench.shard.activate()
    await turn()
    bench.shard.unload()
    assert bench.get(b"a").told == [ErrorCode.NOT_COORDINATOR]
    assert bench.log.watcher is None


@virtual
async def test_what_is_loaded_is_what_was_written() -> None:
    bench = ShardBench()
    assert bench.shard.replay(Loaded([record(b"a", b"4")])) == len(b"a4")
    bench.shard.replay(Loaded([record(b"b", b"1", 5)]))
    assert bench.shard.replay(Loaded([record(b"b", None, 6)])) == len(b"b")
    bench.shard.replay(Loaded([record(None, b"no key", 7)]))
    bench.shard.replay(Loaded([record(b"", b"not one of its own", 8)]))
    assert bench.machine.sums == {b"a": 4}
    bench.log.high_watermark = 9
    bench.shard.activate()
    heard = bench.get(b"a")
    await turn()
    assert heard.told == [4]
    assert bench.machine.committed_below == 9


@virtual
async def test_nothing_is_decided_before_all_that_was_loaded_is_committed() -> None:
    """The coordinator before it may have acknowledged the last records."""

    bench = ShardBench()
    bench.log.append(batch_of(b"a", 2), cast(Any, None))
    bench.shard.replay(Loaded([record(b"a", b"1", 0)]))
    bench.shard.replay(Loaded([record(b"a", b"2", 1)]))
    bench.log.high_watermark = 1
    bench.shard.activate()
    await turn()
    assert bench.get(b"a").told == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert not bench.machine.is_loaded
    bench.log.commit()
    heard = bench.get(b"a")
    await turn()
    assert heard.told == [2]
    assert bench.machine.is_loaded


@virtual
async def test_what_was_committed_without_a_lease_is_answered_later() -> None:
    bench = ShardBench()
    bench.log.append(batch_of(b"a", 1), cast(Any, None))
    bench.shard.replay(Loaded([record(b"a", b"1", 0)]))
    bench.log.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
    bench.log.high_watermark = 1
    bench.shard.activate()
    await turn()
    bench.log.refusal = ErrorCode.NONE
    heard = bench.get(b"a")
    await turn()
    assert heard.told == [1]


@virtual
async def test_what_was_committed_without_a_lease_is_answered_when_there_is_one_again() -> None:
    """Although nobody asks anything, and the high watermark has nothing to rise over any more."""

    bench = await active()
    heard = bench.add(b"a")
    await turn()
    bench.log.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
    bench.log.commit()
    await asyncio.sleep(2 * RETRY_MS / 1000)
    assert heard.told == []
    assert bench.machine.committed_below == 0
    bench.log.refusal = ErrorCode.NONE
    await asyncio.sleep(RETRY_MS / 1000 + 0.02)
    assert heard.told == [1]
    assert bench.machine.committed_below == 1


@virtual
async def test_the_machine_hears_what_is_committed_before_it_replays_it() -> None:
    """So it need not remember for every record that it is not committed."""

    log = HeldLog()
    log.append(batch_of(b"a", 3), cast(Any, None))
    log.high_watermark = 2
    bench = ShardBench(log)
    assert bench.machine.committed_below == 2
    log.commit()
    assert bench.machine.committed_below == 3
    assert bench.get(b"a").told == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


@virtual
async def test_a_machine_that_is_loaded_without_a_lease_hears_of_it_later() -> None:
    """Else the sessions of members that are gone would never end."""

    bench = ShardBench()
    bench.log.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
    bench.shard.activate()
    heard = bench.get(b"a")
    await turn()
    assert heard.told == [ErrorCode.NOT_COORDINATOR]
    bench.log.refusal = ErrorCode.NONE
    assert not bench.machine.is_loaded
    await asyncio.sleep(RETRY_MS / 1000 + 0.02)
    loaded: bool = bench.machine.is_loaded
    assert loaded
    assert len(bench.wheel) == 0


@virtual
async def test_a_machine_whose_first_records_are_refused_is_loaded_later() -> None:
    class Records(Sums):
        def loaded(self, now: Any) -> Step:
            return Step([KeyValue(b"loaded", b"1")])

    bench = ShardBench()
    bench.shard.machine = bench.machine = Records()
    bench.machine.due = [(0.0, b"a")]
    bench.log.no_writes = ErrorCode.NOT_ENOUGH_REPLICAS
    bench.shard.activate()
    heard = bench.get(b"a")
    await turn()
    assert heard.told == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    bench.log.no_writes = ErrorCode.NONE
    await asyncio.sleep(RETRY_MS / 1000 + 0.02)
    assert list(bench.machine.sums)[:2] == [b"loaded", b"a"]
    bench.get(b"a")
    await turn()
    keys = [each.key for batch in bench.log.batches for each in batch]
    assert keys.count(b"loaded") == 1
    bench.shard.unload()


@virtual
async def test_a_load_that_ends_after_it_was_unloaded_changes_nothing() -> None:
    bench = ShardBench()
    bench.shard.unload()
    bench.shard.activate()
    await turn()
    assert bench.shard.state is ShardState.UNLOADED
    assert bench.log.watcher is None
    assert not bench.machine.is_loaded
    assert bench.get(b"a").told == [ErrorCode.NOT_COORDINATOR]


@virtual
async def test_nothing_is_answered_or_appended_after_it_was_unloaded() -> None:
    bench = await active()
    appended = bench.add(b"a")
    await turn()
    undecided = bench.add(b"b")
    bench.machine.due = [(0.0, b"c")]
    bench.shard.unload()
    bench.log.tokens[0].acknowledge()
    bench.log.commit()
    bench.log.tokens[0].refuse(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    await asyncio.sleep(2 * TIMEOUT_MS / 1000)
    assert appended.told == undecided.told == [ErrorCode.NOT_COORDINATOR]
    assert bench.log.end_offset == 1


@virtual
async def test_unloading_tells_everybody_once() -> None:
    bench = await active()
    told = bench.get(b"a")
    waiting, kept = bench.add(b"a"), bench.keep()
    await turn()
    undecided = bench.add(b"b")
    bench.shard.unload()
    bench.log.watch(lambda: None, lambda *_: None)
    bench.shard.unload()
    assert bench.log.watcher is not None, "who watches the log next"
    await turn()
    bench.log.commit()
    refused = [ErrorCode.NOT_COORDINATOR]
    assert [each.told for each in (told, waiting, kept, undecided)] == [
        [None], refused, refused, refused,
    ]  # fmt: skip
    assert bench.machine.sums == {b"a": 1}
    assert len(bench.wheel) == 0


@virtual
async def test_a_failed_append_unloads_what_was_replayed_already() -> None:
    bench = await active()
    bench.log.failure = OSError("the disk is gone")
    reader, kept, writer = bench.get(b"a"), bench.keep(), bench.add(b"a")
    await turn()
    assert bench.shard.state is ShardState.UNLOADED
    assert bench.broken == 1
    assert reader.told == [None]
    assert kept.told == writer.told == [ErrorCode.NOT_COORDINATOR]


@virtual
async def test_records_that_land_elsewhere_unload_it() -> None:
    bench = await active()
    append = bench.log.append
    bench.log.append = lambda batch, token: append(batch, token) + 1  # type: ignore[method-assign]
    heard = bench.add(b"a")
    await turn()
    assert bench.broken == 1
    assert heard.told == [ErrorCode.NOT_COORDINATOR]


def raising(machine: Sums, now: object) -> Any:
    raise RuntimeError("a bug")


@virtual
async def test_a_request_that_the_machine_fails_at_is_refused_alone() -> None:
    """Also by the same batch: what was decided before it and what comes behind are kept."""

    bench = await active()
    before, failing = bench.add(b"a"), Heard()
    bench.shard.submit(Event(raising), failing)
    behind = bench.add(b"a")
    await turn()
    bench.log.commit()
    assert bench.broken == 0
    assert failing.told == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert (before.told, behind.told) == ([1], [2])
    assert len(bench.log.batches) == 1


@virtual
async def test_a_step_in_the_place_of_one_that_is_too_large_may_fail_alone() -> None:
    bench = await active()
    failing = Heard()

    def too_large(machine: Sums, now: Now) -> Step:
        step = machine.add(b"a", 1, failing, size=bench.log.max_batch_bytes)
        step.instead = lambda: raising(machine, now)
        return step

    bench.shard.submit(Event(too_large), failing)
    behind = bench.get(b"a")
    await turn()
    assert bench.broken == 0
    assert (failing.told, behind.told) == ([ErrorCode.UNKNOWN_SERVER_ERROR], [None])


@pytest.mark.parametrize("spare", [-1, 0])
@virtual
async def test_a_step_leaves_room_for_what_it_begins(spare: int) -> None:
    bench = await active()
    heard = Heard()

    def add(machine: Sums, now: Now) -> Step:
        step = machine.add(b"a", 1, heard)
        size = HEADER_SIZE + sum(record_size_bound(*each, ()) for each in step.records)
        step.headroom = bench.log.max_batch_bytes - size - spare
        return step

    bench.shard.submit(Event(add), heard)
    await turn()
    bench.log.commit()
    assert heard.told == ([1] if spare == 0 else [ErrorCode.UNKNOWN_SERVER_ERROR])


@virtual
async def test_a_note_that_the_machine_fails_at_has_it_loaded_anew() -> None:
    """It may have missed what it had to know. The caller, who informs others, too, hears of
    nothing."""

    bench = await active()
    bench.shard.inform(Event(raising))
    assert bench.broken == 1


@virtual
async def test_a_machine_that_fails_at_a_commit_is_loaded_anew() -> None:
    bench = await active()
    heard = bench.add(b"a")
    await turn()
    bench.machine.committed = lambda high_watermark: raising(bench.machine, None)  # type: ignore[method-assign]
    bench.log.commit()
    assert bench.broken == 1
    assert heard.told == [ErrorCode.NOT_COORDINATOR]


@virtual
async def test_an_answer_that_cannot_be_sent_concerns_nobody_else() -> None:
    bench = await active()

    class Gone(Heard):
        def answer(self, answer: Any) -> None:
            raise ConnectionError

    gone = Gone()
    bench.shard.submit(Event(lambda machine, now: machine.get(b"a", gone)), gone)
    heard = bench.get(b"a")
    await turn()
    assert heard.told == [None]
    assert bench.broken == 0


@virtual
async def test_the_machine_hears_events_without_a_lease() -> None:
    bench = ShardBench()
    informed: list[int] = []
    bench.shard.inform(Event(lambda machine, now: informed.append(1)))
    bench.shard.activate()
    bench.shard.inform(Event(lambda machine, now: informed.append(2)))
    await turn()
    bench.log.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER

    def note(machine: Sums, now: Now) -> None:
        informed.append(3)
        machine.due = [(now.monotonic_ms, b"a")]

    bench.machine = bench.shard.machine = TickingSums()
    bench.shard.inform(Event(note))
    await turn()
    assert informed == [3]
    bench.log.refusal = ErrorCode.NONE
    await asyncio.sleep(RETRY_MS / 1000 + 0.02)
    assert bench.machine.sums[b"a"] == 1
    bench.shard.unload()
    bench.shard.inform(Event(note))
    assert informed == [3]


# ---------------------------------------------------------------------------- time


class TickingSums(Sums):
    """Additions are done when they are due, by a record."""

    def replay(self, offset: int, record: Any, now: Any) -> None:
        super().replay(offset, record, now)
        if record.key == b"done":
            self.due.remove(min(self.due))


def ticking() -> ShardBench:
    bench = ShardBench()
    bench.machine = TickingSums()
    bench.shard.machine = bench.machine
    return bench


@virtual
async def test_what_is_due_is_done_at_its_time() -> None:
    bench = ticking()
    bench.shard.activate()
    await turn()
    now_ms = bench.clock.monotonic() * 1000
    bench.machine.due = [(now_ms + 200, b"a"), (now_ms + 100, b"a"), (now_ms + 9000, b"b")]
    bench.get(b"a")  # whatever is decided sets the timer
    await asyncio.sleep(0.15)
    assert bench.machine.sums[b"a"] == 1
    await asyncio.sleep(0.1)
    assert bench.machine.sums[b"a"] == 2
    await asyncio.sleep(10)
    assert bench.machine.sums[b"b"] == 1
    bench.log.commit()
    assert len(bench.wheel) == 0


@virtual
async def test_what_is_due_is_tried_again_when_the_log_took_nothing() -> None:
    bench = ticking()
    bench.machine.due = [(0.0, b"a")]
    bench.log.no_writes = ErrorCode.NOT_ENOUGH_REPLICAS
    bench.shard.activate()
    await turn()
    bench.log.no_writes = ErrorCode.NONE
    heard = bench.get(b"b")
    await turn()
    assert heard.told == [None]
    assert bench.machine.sums == {}
    await asyncio.sleep(RETRY_MS / 1000 + 0.02)
    assert bench.machine.sums[b"a"] == 1


@pytest.mark.parametrize("fails", [False, True])
@virtual
async def test_a_deadline_that_cannot_be_done_is_put_off_alone(
    fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    bench = ticking()
    bench.shard.activate()
    await turn()
    machine = bench.machine
    tick = machine.tick

    def one_cannot(now: Now) -> Step:
        step = tick(now)
        if min(machine.due)[1] != b"large":
            return step
        if fails:
            raise RuntimeError("a bug")
        step.records.append(KeyValue(b"a", bytes(bench.log.max_batch_bytes)))
        return step

    machine.tick = one_cannot  # type: ignore[method-assign]
    now_ms = bench.clock.monotonic() * 1000
    machine.due = [(now_ms + 1, b"large"), (now_ms + 2, b"small")]
    bench.get(b"a")
    await asyncio.sleep(0.05)
    assert bench.broken == 0
    assert machine.sums[b"small"] == 1
    assert b"large" not in machine.sums
    assert "an addition to b'large'" in caplog.text
    machine.tick = tick  # type: ignore[method-assign]
    await asyncio.sleep(PUT_OFF_MS / 1000)
    assert machine.sums[b"large"] == 1


@virtual
async def test_a_deadline_that_a_commit_has_set_is_heard_of() -> None:
    bench = ticking()
    bench.shard.activate()
    await turn()
    machine = bench.machine
    committed = machine.committed

    def due_at_once(high_watermark: int) -> None:
        committed(high_watermark)
        if b"b" not in machine.sums:
            machine.due = [(bench.clock.monotonic() * 1000, b"b")]

    bench.add(b"a")
    await turn()
    machine.committed = due_at_once  # type: ignore[method-assign]
    bench.log.commit()
    await asyncio.sleep(0.05)
    assert machine.sums[b"b"] == 1


@virtual
async def test_many_requests_of_one_turn_are_divided_among_turns() -> None:
    bench = await active()
    bench.machine.due = []
    heard = [bench.get(b"b") for _ in range(250)]
    for told in (100, 200, 250):
        await asyncio.sleep(0)
        assert sum(len(each.told) for each in heard) == told


@virtual
async def test_many_records_are_divided_among_turns() -> None:
    bench = await active()
    heard = [bench.add_many(b"a", 200) for _ in range(4)]
    await asyncio.sleep(0)
    assert bench.log.end_offset == 600
    await asyncio.sleep(0)
    assert bench.log.end_offset == 800
    bench.log.commit()
    assert [len(each.told) for each in heard] == [1] * 4
    for _ in range(3):
        bench.add_many(b"a", 250)
    await asyncio.sleep(0)
    assert bench.log.end_offset == 800 + 500


@virtual
async def test_what_is_due_now_is_done_in_this_turn() -> None:
    bench = ticking()
    bench.shard.activate()
    await turn()
    bench.machine.due = [(bench.clock.monotonic() * 1000, b"a")]
    bench.get(b"a")
    await asyncio.sleep(0)
    assert bench.machine.sums[b"a"] == 1


@virtual
async def test_a_timer_that_stays_is_not_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = ticking()
    bench.machine.due = [(60_000.0, b"a")]
    bench.shard.activate()
    await turn()
    set_to: list[float] = []
    add = bench.wheel.add

    def noted(delay_ms: float, callback: Callable[[], None]) -> Deadline:
        set_to.append(delay_ms)
        return add(delay_ms, callback)

    monkeypatch.setattr(bench.wheel, "add", noted)
    for _ in range(3):
        bench.get(b"a")
        await turn()
    assert set_to == []
    bench.machine.due = [(61_000.0, b"a")]
    bench.get(b"a")
    await turn()
    assert len(set_to) == 1
    bench.shard.unload()


@pytest.mark.parametrize("records", [498, 600])
@virtual
async def test_what_is_due_has_its_turn_beside_many_requests(records: int) -> None:
    bench = ticking()
    bench.shard.activate()
    await turn()
    bench.machine.due = [(0.0, b"b"), (0.0, b"b")]
    bench.add_many(b"a", records)
    await asyncio.sleep(0)
    assert bench.machine.sums[b"b"] == 1


@virtual
async def test_many_things_due_at_once_do_not_take_one_turn() -> None:
    bench = ticking()
    bench.machine.due = [(float(number), b"a") for number in range(-250, 0)]
    bench.shard.activate()
    await turn()
    assert 0 < bench.machine.sums[b"a"] < 250
    await asyncio.sleep(0.1)
    assert bench.machine.sums[b"a"] == 250
