"""Which code kept the event loop busy, and for how long."""

import asyncio
import logging
import signal
import time
from collections.abc import Callable

import pytest
import uvloop

from runtime.metrics.registry import MetricsRegistry
from runtime.real.watchdog import Watchdog


def keep_the_loop_busy() -> None:
    """Be busy until the alarm has gone off, without a clock."""
    while signal.getitimer(signal.ITIMER_REAL)[0] > 0:
        pass
    for _ in range(1000):  # the interpreter handles it between two steps
        pass


async def seen(watchdog: Watchdog, turns: int) -> None:
    for _ in range(30_000):
        if watchdog.long_turns >= turns:
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it does not count")


class Time:
    """The time of the watchdog, to which a test adds. The machine may be as busy as it likes."""

    def __init__(self) -> None:
        self.skipped_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.skipped_s

    def thread_time(self) -> float:
        return time.thread_time()


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_long_turn_is_reported_with_its_code(
    factory: Callable[[], asyncio.AbstractEventLoop],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only a turn of an hour is long. So the alarm goes off where the test raises it, and nowhere
    else."""
    long_turn_s = 3600.0
    before = signal.getsignal(signal.SIGALRM)
    registry = MetricsRegistry()
    watchdog = Watchdog(registry, long_turn_s=long_turn_s, beat_s=0.005)
    passing = Time()
    monkeypatch.setattr("runtime.real.watchdog.time", passing)

    def keep_the_loop_for_an_hour() -> None:
        signal.raise_signal(signal.SIGALRM)
        passing.skipped_s += long_turn_s

    async def run() -> None:
        watchdog.start()
        asyncio.get_running_loop().call_soon(keep_the_loop_for_an_hour)
        await seen(watchdog, 1)
        watchdog.stop()
        watchdog.stop()

    loop = factory()
    try:
        with caplog.at_level(logging.WARNING):
            loop.run_until_complete(run())
    finally:
        loop.close()
    assert "in keep_the_loop_for_an_hour" in caplog.text
    assert "ms of CPU time" in caplog.text
    values = registry.values()
    assert values["stele_event_loop_long_turns_total"] == 1
    assert values["stele_event_loop_turn_max_seconds"] >= long_turn_s
    assert registry.values()["stele_event_loop_turn_max_seconds"] == 0, "each scrape resets it"
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


async def test_of_many_long_turns_one_is_logged_and_all_are_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.real.watchdog._LOG_INTERVAL_S", 3600.0)
    watchdog = Watchdog(MetricsRegistry(), long_turn_s=0.02, beat_s=0.002)
    watchdog.start()
    try:
        for number in range(3):
            keep_the_loop_busy()
            await seen(watchdog, number + 1)
    finally:
        watchdog.stop()
    assert watchdog.long_turns >= 3
    assert caplog.text.count("the event loop did nothing else") == 1
