"""The window of a share partition as its leader describes it."""

from __future__ import annotations

import asyncio

from broker.share.values import NO_TIME, DeliveryEnd, RecordState, VainDelivery
from broker.sharing.window_description import NO_MORE, DescribedHolder
from tests.support.sharing import ACCEPT, RELEASE, SharingBench, batch
from tests.support.timing import until
from tests.support.worlds import virtual

AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED


@virtual
async def test_holders_deliveries_and_times_are_described() -> None:
    bench = SharingBench()
    for _ in range(6):
        bench.log.append()
    led = await bench.led()
    begun_ms = bench.clock.time_ms()
    await bench.fetch(led, "m", max_records=2)
    await bench.fetch(led, "n", max_records=3)
    await led.acknowledge("m", [batch(1, 1, RELEASE)])
    await led.acknowledge("n", [batch(3, 3, ACCEPT)])
    window = led.describe(0, 10)
    assert window is not None
    assert (window.start_offset, window.end_offset, window.start_since_ms) == (0, 5, begun_ms)
    assert (window.done_count, window.acquired_count, window.redelivered_count) == (1, 3, 1)
    until_ms = begun_ms + 1_000
    assert window.holders == [
        DescribedHolder("m", 1, until_ms),
        DescribedHolder("n", 2, until_ms),
    ]
    held, free, _, done, _ = window.ranges
    assert (held.state, held.holder, held.acquired_ms, held.lock_until_ms, held.delivery_count) == (
        *(ACQUIRED, "m", begun_ms, until_ms, 1),
    )
    assert (free.state, free.holder, free.acquired_ms, free.lock_until_ms) == (
        *(AVAILABLE, "", NO_TIME, NO_TIME),
    )
    assert free.vain == VainDelivery(DeliveryEnd.RELEASED, "m", begun_ms, 1)
    assert done.state is RecordState.ACKNOWLEDGED


@virtual
async def test_ranges_come_in_pages_and_the_numbers_are_of_all_of_them() -> None:
    bench = SharingBench()
    for _ in range(6):
        bench.log.append()
    led = await bench.led()
    await bench.fetch(led)
    for offset in (1, 3):
        await led.acknowledge("m", [batch(offset, offset, ACCEPT)])
    whole = led.describe(0, 10)
    assert whole is not None
    assert whole.next_offset == NO_MORE
    assert len(whole.ranges) > 4
    found = []
    offset = 0
    while offset != NO_MORE:
        page = led.describe(offset, 2)
        assert page is not None
        assert len(page.ranges) <= 2
        assert about_all(page) == about_all(whole)
        found += page.ranges
        offset = page.next_offset
    assert found == whole.ranges
    behind = led.describe(100, 2)
    assert behind is not None
    assert (behind.ranges, behind.next_offset) == ([], NO_MORE)


def about_all(window: object) -> object:
    """Everything that is about the whole window."""
    assert isinstance(window, tuple)
    return window[1:-2]


@virtual
async def test_a_decision_that_is_being_persisted_is_shown_as_such() -> None:
    bench = SharingBench()
    bench.log.append()
    led = bench.lead()
    assert led.describe(0, 1) is None  # its state is being loaded
    await until(lambda: led.machine is not None)
    window = led.describe(0, 1)
    assert window is not None
    assert (window.start_since_ms, window.ranges, window.holders) == (NO_TIME, [], [])
    await bench.fetch(led)
    bench.states.gate = asyncio.Event()
    acknowledging = asyncio.ensure_future(led.acknowledge("m", [batch(0, 0, ACCEPT)]))
    await until(lambda: bool(bench.states.writes))
    window = led.describe(0, 1)
    assert window is not None
    (record,) = window.ranges
    assert (record.state, record.holder, record.is_being_persisted) == (ACQUIRED, "m", True)
    bench.states.gate.set()
    await acknowledging
