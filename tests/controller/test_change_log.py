"""The log's lines of what a decision changed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from controller.change_log import LINES_MAX, log_changes
from tests.support.metadata_history import Chronicle


@pytest.fixture
def chronicle() -> Chronicle:
    made = Chronicle()
    made.brokers(1, 2, 3)
    return made


def logged(chronicle: Chronicle, caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    """What the newest decision is worth."""
    caplog.clear()
    with caplog.at_level(logging.INFO):
        log_changes(chronicle.history.decisions[-1])
    return [(each.levelno, each.getMessage()) for each in caplog.records]


def test_a_fenced_leader_is_two_lines(
    chronicle: Chronicle, caplog: pytest.LogCaptureFixture
) -> None:
    chronicle.do(lambda machine: machine.create("t", {0: [1, 2, 3]}, min_insync_replicas="2"))
    assert logged(chronicle, caplog) == [], "what is new is no change"
    chronicle.do(lambda machine: machine.fence(1))
    offset = chronicle.history.decisions[-1].offset
    cause = "broker 1: it was fenced: its process ended or was silent"
    assert logged(chronicle, caplog) == [
        (
            logging.INFO,
            f"{cause} (offset {offset}, epoch 1)",
        ),
        (
            logging.INFO,
            f"partition t-0: leader 1 -> 2 in epoch 1, ISR [1, 2, 3] -> [2, 3]: {cause}",
        ),
    ]


def test_a_partition_without_a_leader_is_a_warning(
    chronicle: Chronicle, caplog: pytest.LogCaptureFixture
) -> None:
    chronicle.do(lambda machine: machine.create("t", {0: [1]}))
    chronicle.do(lambda machine: machine.fence(1))
    level, line = logged(chronicle, caplog)[-1]
    assert level == logging.WARNING
    assert line.startswith("partition t-0: leader 1 -> none in epoch 1: broker 1: it was fenced")


def test_a_large_decision_is_cut(chronicle: Chronicle, caplog: pytest.LogCaptureFixture) -> None:
    count = 3 * LINES_MAX
    chronicle.do(lambda machine: machine.create("t", {each: [1, 2] for each in range(count)}))
    chronicle.do(lambda machine: machine.fence(1))
    lines = [line for _, line in logged(chronicle, caplog)]
    assert len(lines) == 1 + LINES_MAX + 1
    assert f"{count - LINES_MAX} more partitions changed" in lines[-1]


class Counted(tuple[Any, ...]):
    """Records that count how often somebody went through them."""

    __slots__ = ()
    passes = 0

    def __iter__(self) -> Iterator[Any]:
        Counted.passes += 1
        return super().__iter__()


def test_a_large_decision_is_gone_through_a_few_times_only(
    chronicle: Chronicle, caplog: pytest.LogCaptureFixture
) -> None:
    """Once for each of its partitions would take seconds, and stop the controller's heartbeats."""
    count = 3 * LINES_MAX
    chronicle.do(lambda machine: machine.create("t", {each: [1, 2] for each in range(count)}))
    chronicle.do(lambda machine: machine.fence(1))
    decision = chronicle.history.decisions[-1]
    log_changes(replace(decision, records=Counted(decision.records)))
    assert Counted.passes <= 5
