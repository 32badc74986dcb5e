"""What is logged about refused batches, and how often."""

import logging

import pytest

from broker.replication.refusal_log import RefusalLog
from stele.errors import ApiError, ErrorCode
from tests.support.timing import HandClock


def test_one_line_a_second_of_a_kind(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock(0)
    refusals = RefusalLog(clock)
    full = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
    corrupt = ApiError(ErrorCode.CORRUPT_MESSAGE, "its CRC is wrong")
    for error in (full, full, corrupt, full):
        refusals.note("t-0", error)
    clock.now_ms = 1000
    refusals.note("t-1", full)
    clock.now_ms = 2000
    refusals.note("t-2", full)
    said = "a batch is refused: KAFKA_STORAGE_ERROR: the disk is full"
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.ERROR, f"t-0: {said}"),
        (logging.WARNING, "t-0: a batch is refused: CORRUPT_MESSAGE: its CRC is wrong"),
        (logging.ERROR, f"t-1: {said} (2 more of this kind since the last such line)"),
        (logging.ERROR, f"t-2: {said}"),
    ]


def test_what_clients_settle_by_themselves_is_not_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    refusals = RefusalLog(HandClock(0))
    for code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS):
        refusals.note("t-0", ApiError(code))
    assert caplog.records == []
