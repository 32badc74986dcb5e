"""Logs whose flush is relaxed: when each is synced because ``flush.ms`` is over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from storage.log import PartitionLog
from storage.unflushed_logs import UnflushedLogs
from tests.support.timing import HandClock


class Log:
    """Counts how often it is to be synced."""

    def __init__(self, flush_ms: int = 100) -> None:
        self.config = SimpleNamespace(flush_ms=flush_ms)
        self.is_flushed = False
        self.offline: Exception | None = None
        self.asked = 0

    def ask_for_sync(self) -> None:
        self.asked += 1


def test_a_log_is_synced_once_when_its_oldest_bytes_are_old_enough() -> None:
    clock = HandClock()
    unflushed = UnflushedLogs(clock)
    quick, slow = Log(100), Log(200)
    for log in (quick, slow):
        unflushed.begin(cast(PartitionLog, log))
    asked = []
    for _ in range(5):
        unflushed.ask()
        asked.append((quick.asked, slow.asked))
        clock.now_ms += 50
    assert asked == [(0, 0), (0, 0), (1, 0), (1, 0), (1, 1)]


def test_a_log_that_is_flushed_or_gone_meanwhile_is_left_alone() -> None:
    clock = HandClock()
    unflushed = UnflushedLogs(clock)
    flushed, gone = Log(), Log()
    for log in (flushed, gone):
        unflushed.begin(cast(PartitionLog, log))
    flushed.is_flushed, gone.offline = True, OSError()
    clock.now_ms += 1_000
    unflushed.ask()
    flushed.is_flushed = False  # its next bytes begin their time anew
    clock.now_ms += 1_000
    unflushed.ask()
    assert (flushed.asked, gone.asked) == (0, 0)
    unflushed.begin(cast(PartitionLog, flushed))
    clock.now_ms += 1_000
    unflushed.ask()
    assert flushed.asked == 1
