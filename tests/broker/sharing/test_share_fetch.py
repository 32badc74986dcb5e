"""Fetches of members of share groups: what they get, and how long they wait."""

from __future__ import annotations

import asyncio
import random

import pytest

from broker.coordinator.share.types import ShareState
from broker.share.values import RecordState, StateBatch
from broker.sharing.fetching import Delivery, ShareFetch, Wanted
from broker.sharing.partition import LedSharePartition
from stele.errors import ErrorCode
from stele.ids import PartitionId
from tests.support.sharing import ACCEPT, RELEASE, STATE_EPOCH, SharingBench, batch
from tests.support.worlds import virtual


@virtual
async def test_a_fetch_waits_for_a_record_and_no_longer_than_it_may() -> None:
    bench = SharingBench()
    led = await bench.led()
    assert (await bench.fetch(led, wait_ms=500)).acquired == []
    assert 0.5 <= bench.clock.monotonic() < 0.6
    fetching = asyncio.ensure_future(bench.fetch(led, wait_ms=60_000))
    await asyncio.sleep(1.0)
    bench.log.append(3)
    delivery = await fetching
    assert [tuple(each) for each in delivery.acquired] == [(0, 2, 1)]
    assert delivery.records == [b"0"]
    assert bench.clock.monotonic() < 2.0
    assert bench.log.watchers == 0


@virtual
async def test_two_members_never_get_the_same_record() -> None:
    bench = SharingBench()
    led = await bench.led()
    fetching = [
        asyncio.ensure_future(bench.fetch(led, member, wait_ms=60_000, max_records=2))
        for member in "mno"
    ]
    await asyncio.sleep(0.1)
    for _ in range(6):
        bench.log.append()
    found = [each.first for one in await asyncio.gather(*fetching) for each in one.acquired]
    assert sorted(found) == list(range(6))


@virtual
async def test_one_record_wakes_one_of_many_fetches() -> None:
    bench = SharingBench()
    led = await bench.led()
    fetching = [
        asyncio.ensure_future(bench.fetch(led, f"m{number}", wait_ms=60_000, max_records=1))
        for number in range(100)
    ]
    await asyncio.sleep(0.1)
    bench.log.looks = 0
    bench.log.append()
    await asyncio.sleep(0.1)
    assert [each.done() for each in fetching].count(True) == 1
    assert bench.log.looks < 10
    for _ in range(50):  # at once
        bench.log.append()
    await asyncio.sleep(0.1)
    assert [each.done() for each in fetching].count(True) == 51
    for each in fetching:
        each.cancel()
    await asyncio.gather(*fetching, return_exceptions=True)
    assert bench.log.watchers == 0


@virtual
async def test_a_fetch_that_leaves_wakes_another_one() -> None:
    """It was woken, and its session has ended before it has looked."""
    bench = SharingBench()
    led = await bench.led()
    session = bench.session("m")
    first = asyncio.ensure_future(bench.fetch(led, session, wait_ms=60_000))
    await asyncio.sleep(0.1)
    second = asyncio.ensure_future(bench.fetch(led, "n", wait_ms=60_000))
    await asyncio.sleep(0.1)
    session.is_open = False
    bench.log.append()
    assert [each.first for each in (await second).acquired] == [0]
    assert (await first).acquired == []
    assert bench.clock.monotonic() < 1.0


@virtual
async def test_a_cancelled_fetch_wakes_another_one() -> None:
    bench = SharingBench()
    led = await bench.led()
    first = asyncio.ensure_future(bench.fetch(led, "m", wait_ms=60_000))
    await asyncio.sleep(0.1)
    second = asyncio.ensure_future(bench.fetch(led, "n", wait_ms=60_000))
    await asyncio.sleep(0.1)
    bench.log.append()
    first.cancel()
    assert [each.first for each in (await second).acquired] == [0]
    assert bench.clock.monotonic() < 1.0


@virtual
async def test_a_fetch_that_reads_slowly_elsewhere_does_not_keep_a_record_from_others() -> None:
    one, other = SharingBench(), SharingBench()
    other.log.id = other.log.id._replace(partition=4)
    partitions = [await one.led(), await other.led()]
    other.log.append()
    other.log.reading = asyncio.Event()
    wanted = Wanted(60_000, 100, 10, is_strict=False)
    slow = ShareFetch(one.session(), partitions, wanted, one.clock, lambda: 100)
    slowly = asyncio.ensure_future(slow.run())
    await asyncio.sleep(0.1)
    second = asyncio.ensure_future(one.fetch(partitions[0], "n", wait_ms=60_000))
    await asyncio.sleep(0.1)
    one.log.append()
    assert [each.first for each in (await second).acquired] == [0]
    assert one.clock.monotonic() < 1.0
    other.log.reading.set()
    assert list(await slowly) == [other.log.id]


@virtual
async def test_what_a_fetch_leaves_does_not_wait_for_its_next_read() -> None:
    """It takes a suspect record, alone, and goes on with another partition."""
    one, other = SharingBench(), SharingBench()
    other.log.id = other.log.id._replace(partition=4)
    suspect = StateBatch(0, 0, RecordState.AVAILABLE, one.limits.suspect_count)
    one.states.state = ShareState(0, STATE_EPOCH, start_offset=0, batches=(suspect,))
    partitions = [await one.led(), await other.led()]
    wanted = Wanted(60_000, 100, 10, is_strict=False)
    fetch = ShareFetch(one.session(), partitions, wanted, one.clock, lambda: 100)
    slowly = asyncio.ensure_future(fetch.run())
    await asyncio.sleep(0.1)
    second = asyncio.ensure_future(one.fetch(partitions[0], "n", wait_ms=60_000))
    await asyncio.sleep(0.1)
    one.log.reading, other.log.reading = asyncio.Event(), asyncio.Event()
    other.log.append()
    one.log.append()
    one.log.append()
    await asyncio.sleep(0.1)  # both have looked, and one of them reads
    one.log.reading.set()
    assert [each.first for each in (await second).acquired] == [1]
    assert one.clock.monotonic() < 1.0
    other.log.reading.set()
    assert [each.first for each in (await slowly)[one.log.id].acquired] == [0]


@virtual
async def test_a_fetch_that_found_another_reading_gets_what_is_left() -> None:
    bench = SharingBench()
    for _ in range(4):
        bench.log.append()
    led = await bench.led()
    bench.log.reading = asyncio.Event()
    first = asyncio.ensure_future(bench.fetch(led, "m", wait_ms=60_000, max_records=2))
    second = asyncio.ensure_future(bench.fetch(led, "n", wait_ms=60_000, max_records=2))
    await asyncio.sleep(0.1)
    assert len(bench.log.reads) == 1
    bench.log.reading.set()
    assert [[each.first for each in (await one).acquired] for one in (first, second)] == [
        [0, 1],
        [2, 3],
    ]
    assert bench.clock.monotonic() < 1.0


@pytest.mark.parametrize("is_strict", [True, False])
@virtual
async def test_a_batch_is_cut_only_for_a_strict_limit(*, is_strict: bool) -> None:
    bench = SharingBench()
    bench.log.append(2)
    bench.log.append(5)
    bench.log.append(5)
    led = await bench.led()
    delivery = await bench.fetch(led, max_records=3, is_strict=is_strict)
    last = 2 if is_strict else 6
    assert delivery.acquired[-1].last == last
    assert delivery.records == [b"0", b"2"]


@virtual
async def test_records_stop_at_the_bytes_that_a_member_asks_for() -> None:
    bench = SharingBench()
    for _ in range(5):
        bench.log.append()
    led = await bench.led()
    assert len((await bench.fetch(led, max_bytes=2)).acquired) == 2
    assert len((await bench.fetch(led, max_bytes=0)).acquired) == 1


@virtual
async def test_a_member_that_wants_one_record_has_little_read() -> None:
    bench = SharingBench()
    for _ in range(100):
        bench.log.append()
    led = await bench.led()
    for _ in range(3):
        assert len((await bench.fetch(led, max_records=1, is_strict=True)).acquired) == 1
    assert bench.log.reads == [(0, 1 << 20), (1, 2), (2, 2)]


@virtual
async def test_more_is_read_after_each_read_in_vain() -> None:
    bench = SharingBench()
    bench.log.append()
    led = await bench.led()
    await bench.fetch(led, max_records=1, is_strict=True)
    for _ in range(50):
        bench.log.append(is_deliverable=False)
    bench.log.append()
    bench.log.reads.clear()
    delivery = await bench.fetch(led, max_records=1, is_strict=True)
    assert [each.first for each in delivery.acquired] == [51]
    sizes = [max_bytes for _, max_bytes in bench.log.reads]
    assert sizes == [2, 8, 32, 128][: len(sizes)]


@virtual
async def test_a_log_of_control_batches_is_passed_over() -> None:
    bench = SharingBench()
    for _ in range(100):
        bench.log.append(is_deliverable=False)
    led = await bench.led()
    fetching = asyncio.ensure_future(bench.fetch(led, wait_ms=60_000, max_bytes=1))
    await asyncio.sleep(0.1)
    assert led.machine is not None
    assert led.machine.start_offset == 100
    bench.log.append()
    assert [each.first for each in (await fetching).acquired] == [100]
    assert bench.clock.monotonic() < 1.0


@virtual
async def test_a_session_that_has_ended_gets_nothing() -> None:
    bench = SharingBench()
    bench.log.append()
    led = await bench.led()
    session = bench.session()
    bench.log.reading = asyncio.Event()
    fetching = asyncio.ensure_future(bench.fetch(led, session, wait_ms=60_000))
    await asyncio.sleep(0.1)
    session.is_open = False
    session.on_end()
    bench.log.reading.set()
    assert (await fetching).acquired == []
    bench.log.reads.clear()
    assert (await bench.fetch(led, session)).acquired == []
    assert bench.log.reads == [], "nobody could have what is read"
    assert await bench.offsets(led, "n") == [0]


@virtual
async def test_a_leader_without_a_lease_gives_nobody_records() -> None:
    bench = SharingBench()
    bench.log.append()
    led = await bench.led()
    bench.log.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
    delivery = await bench.fetch(led)
    assert delivery.error is not None
    assert delivery.error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    bench.log.refusal = ErrorCode.NONE
    assert await bench.offsets(led, "n") == [0]


@virtual
async def test_a_full_window_gives_nothing_until_a_record_is_done() -> None:
    bench = SharingBench(partition_max_record_locks=3, record_lock_duration_ms=60_000)
    for _ in range(5):
        bench.log.append()
    led = await bench.led()
    assert await bench.offsets(led) == [0, 1, 2]
    waiting = asyncio.ensure_future(bench.fetch(led, "n", wait_ms=30_000))
    await asyncio.sleep(0.1)
    await led.acknowledge("m", [batch(1, 1, ACCEPT)])
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await led.acknowledge("m", [batch(0, 0, ACCEPT)])
    assert [tuple(each) for each in (await waiting).acquired] == [(3, 3, 1), (4, 4, 1)]
    await led.acknowledge("m", [batch(2, 2, RELEASE)])
    assert await bench.offsets(led, "o") == [2]


@virtual
async def test_one_answer_has_the_records_of_several_partitions() -> None:
    one, other = SharingBench(), SharingBench()
    other.log.id = other.log.id._replace(partition=4)
    for bench in (one, other):
        bench.log.append(2)
    partitions = [await one.led(), await other.led()]
    fetch = ShareFetch(
        one.session(), partitions, Wanted(0, 100, 3, is_strict=True), one.clock, lambda: 100
    )
    found = await fetch.run()
    assert [each.acquired[0].last for each in found.values()] == [1, 0]


@pytest.mark.parametrize(("max_bytes", "max_records"), [(100, 2), (1, 100)])
@virtual
async def test_a_full_answer_reads_no_other_partition(max_bytes: int, max_records: int) -> None:
    one, other = SharingBench(), SharingBench()
    other.log.id = other.log.id._replace(partition=4)
    for bench in (one, other):
        bench.log.append(2)
    partitions = [await one.led(), await other.led()]
    wanted = Wanted(0, max_bytes, max_records, is_strict=True)
    fetch = ShareFetch(one.session(), partitions, wanted, one.clock, lambda: 100)
    assert list(await fetch.run()) == [one.log.id]
    assert other.log.reads == []


@virtual
async def test_a_member_that_wants_no_bytes_gets_the_first_record_of_any_partition() -> None:
    empty, other = SharingBench(), SharingBench()
    other.log.id = other.log.id._replace(partition=4)
    other.log.append()
    partitions = [await empty.led(), await other.led()]
    wanted = Wanted(0, 0, 100, is_strict=False)
    fetch = ShareFetch(empty.session(), partitions, wanted, empty.clock, lambda: 100)
    assert list(await fetch.run()) == [other.log.id]


@pytest.mark.parametrize("seed", range(100))
@virtual
async def test_no_fetch_waits_while_there_are_records(seed: int) -> None:
    """Whatever comes between: reads that take long, ends of sessions, cancelled fetches."""
    rng = random.Random(seed)
    benches = [SharingBench(record_lock_duration_ms=600_000) for _ in range(2)]
    benches[1].log.id = benches[1].log.id._replace(partition=4)
    partitions = [await each.led() for each in benches]
    clock = benches[0].clock
    sessions = {name: benches[0].session(name) for name in "abcdef"}
    waiting: dict[str, asyncio.Task[dict[PartitionId, Delivery]]] = {}
    read_by: dict[str, list[LedSharePartition]] = {}
    for _ in range(120):
        name = rng.choice(sorted(sessions))
        bench, led = rng.choice(list(zip(benches, partitions, strict=True)))
        match rng.choice(("append", "append", "fetch", "fetch", "cancel", "end", "slow")):
            case "append":
                bench.log.append(rng.randint(1, 3), is_deliverable=rng.random() < 0.9)
            case "fetch" if name not in waiting:
                wanted = Wanted(10**6, 100, rng.randint(1, 3), is_strict=rng.random() < 0.5)
                read_by[name] = rng.sample(partitions, rng.randint(1, 2))
                fetch = ShareFetch(sessions[name], read_by[name], wanted, clock, lambda: 100)
                waiting[name] = asyncio.ensure_future(fetch.run())
            case "cancel" if name in waiting:
                waiting[name].cancel()
            case "end":
                sessions[name].is_open = False
                sessions[name].on_end()
                led.end_session(name)
                sessions[name] = bench.session(name)
            case "slow" if bench.log.reading is None:
                bench.log.reading = asyncio.Event()
        if rng.random() < 0.3:
            await asyncio.sleep(0.01)
        if rng.random() < 0.5:
            for each in benches:
                if each.log.reading is not None:
                    each.log.reading.set()
                    each.log.reading = None
            await asyncio.sleep(0.01)
            waiting = {key: task for key, task in waiting.items() if not task.done()}
            for partition in partitions:
                if partition.fetch_offset() is not None:
                    assert [name for name in waiting if partition in read_by[name]] == []
    for task in waiting.values():
        task.cancel()
    await asyncio.gather(*waiting.values(), return_exceptions=True)
    assert [each.log.watchers for each in benches] == [0, 0]
