"""``stele share redrive`` with a redrive that remembers its plan."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from typing import Any, Self

import pytest

from cli import main
from cli.interruption import EXIT_INTERRUPTED
from stele.errors import ApiError, ErrorCode, ProducerFencedError
from stele.redrive.letters import Fate
from stele.redrive.redrive import LetterKind, RedrivePlan, RedriveState
from tests.cli.test_share import Capture, rows, run

DUE = LetterKind("orders", "rejected", Fate.DUE)
FILTERED = LetterKind("orders", "count exceeded", Fate.FILTERED)


class FakeRedrive:
    """It has two letters that are due, and three that the filter leaves."""

    def __init__(self) -> None:
        self.ran: list[bool] = []
        self.failure: Exception | None = None
        self.is_interrupted = False
        self.state = RedriveState(
            "dlq.orders", Counter({DUE: 2, FILTERED: 3}), looked_at=5, to_look_at=5
        )

    def opened(self, plan: RedrivePlan, bootstrap: str, **options: Any) -> Self:
        self.plan = plan
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None: ...

    async def run(self, *, is_dry: bool) -> RedriveState:
        self.ran.append(is_dry)
        if self.is_interrupted:
            signal.raise_signal(signal.SIGINT)
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        return self.state


@pytest.fixture
def redrive(monkeypatch: pytest.MonkeyPatch) -> FakeRedrive:
    fake = FakeRedrive()
    monkeypatch.setattr("stele.redrive.redrive.Redrive", fake.opened)
    return fake


def test_a_dry_run_is_the_default(redrive: FakeRedrive, capsys: Capture) -> None:
    redrive.state.is_continued = True
    out, err = run(capsys, "redrive", "g")
    assert redrive.ran == [True]
    assert rows(out) == [
        ["TOPIC", "REASON", "STATUS", "LETTERS"],
        ["orders", "count", "exceeded", "filtered", "3"],
        ["orders", "rejected", "due", "2"],
    ]
    assert err.splitlines() == [
        "stele: nothing is sent yet: --execute does it",
        "stele: letters that an earlier redrive has sent back are not counted",
    ]


def test_what_was_sent_is_told_to_people_and_programs(
    redrive: FakeRedrive, capsys: Capture
) -> None:
    out, err = run(capsys, "redrive", "g", "--execute")
    assert redrive.ran == [False]
    assert rows(out)[2] == ["orders", "rejected", "sent", "back", "2"]
    assert not err
    out, _ = run(capsys, "redrive", "g", "--execute", "--json")
    told = json.loads(out)
    assert told.pop("letters")[1] == {**DUE._asdict(), "fate": "due", "count": 2}
    assert told == {
        "group": "g",
        "dead_letter_topic": "dlq.orders",
        "executed": True,
        "complete": True,
        "sent": 2,
        "unconfirmed": 0,
    }


def test_options_make_the_plan(redrive: FakeRedrive, capsys: Capture) -> None:
    run(
        capsys,
        *("redrive", "g", "--topic", "a", "--topic", "b", "--reason", "rejected", "--key", "k"),
        *("--header", "h=1", "--letters", "dlq.x", "--rate", "2.5", "--limit", "7"),
    )
    plan = redrive.plan
    assert (plan.group, plan.letter_topic, plan.records_per_s, plan.limit) == ("g", "dlq.x", 2.5, 7)
    assert plan.letter_filter.topics == {"a", "b"}
    assert plan.letter_filter.reason == "rejected"
    assert plan.letter_filter.accepts is not None


@pytest.mark.parametrize(
    "wrong",
    [["--execute", "--dry-run"], ["--rate", "0"], ["--limit", "0"], ["--header", "=v"]],
)
def test_what_makes_no_sense_is_refused(
    redrive: FakeRedrive, capsys: Capture, wrong: list[str]
) -> None:
    run(capsys, "redrive", "g", *wrong, code=main.EXIT_USAGE)
    assert not redrive.ran


@pytest.mark.parametrize(
    ("failure", "code", "said"),
    [
        (
            ProducerFencedError(ErrorCode.PRODUCER_FENCED, "fenced"),
            main.EXIT_FAILED,
            "another redrive of share group 'g' has begun",
        ),
        (ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER), main.EXIT_FAILED, "NOT_LEADER"),
        (None, EXIT_INTERRUPTED, "same command"),
    ],
)
def test_a_redrive_that_stops_says_where(
    redrive: FakeRedrive, capsys: Capture, failure: Exception | None, code: int, said: str
) -> None:
    redrive.failure = failure
    redrive.is_interrupted = failure is None
    redrive.state.unconfirmed = 1
    redrive.state.looked_at = 3
    out, err = run(capsys, "redrive", "g", "--execute", "--json", code=code)
    assert said in err
    assert (
        "stele: stopped after 1 letters, at 3 of 5 offsets of 'dlq.orders'. 1 more were being "
        "sent: they are sent back together or not at all. The same command goes on there"
    ) in err
    assert json.loads(out)["complete"] is False


def test_a_failure_before_the_first_letter_is_all_that_is_told(
    redrive: FakeRedrive, capsys: Capture
) -> None:
    redrive.failure = ApiError(ErrorCode.INVALID_REQUEST, "no topic")
    redrive.state.counts.clear()
    out, err = run(capsys, "redrive", "g", "--execute", "--json", code=main.EXIT_FAILED)
    assert (out, "stopped after" in err, "no topic" in err) == ("", False, True)
