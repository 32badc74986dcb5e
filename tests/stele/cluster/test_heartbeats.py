"""When the heartbeats of a member come, on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from stele.backoff import Backoff
from stele.cluster.heartbeats import Heartbeats
from stele.errors import ApiError, ErrorCode, SteleError, UnreachableError
from tests.support.stele import Stage, on_stage


class Turns:
    """What becomes of each turn, and when it came. The last one goes on for ever."""

    def __init__(self, *outcomes: float | Exception | None) -> None:
        self.outcomes = list(outcomes)
        self.came_at: list[float] = []
        self.failures: list[SteleError] = []
        self.end: SteleError | None = None
        self.heartbeats = Heartbeats(
            "reader",
            Backoff(100, 1_000),
            self.turn,
            on_failure=self.failures.append,
            on_end=self.on_end,
        )

    async def turn(self) -> float | None:
        self.came_at.append(round(asyncio.get_running_loop().time() - self.began, 3))
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def on_end(self, error: SteleError) -> None:
        self.end = error

    async def run(self, seconds: float) -> None:
        self.began = asyncio.get_running_loop().time()
        self.heartbeats.start()
        self.heartbeats.start()  # they have begun
        await asyncio.sleep(seconds)
        await self.heartbeats.stop()


LOST = UnreachableError("no answer")
LOADING = ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading")
REFUSED = ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no")


@on_stage
async def test_failures_that_pass_are_repeated_after_growing_pauses(stage: Stage) -> None:
    turns = Turns(3.0, LOST, LOADING, LOST, None, LOST, 0.5, LOST, None)
    await turns.run(9)
    # None sends nothing: it neither ends the growth of the pauses nor shortens the interval
    assert turns.came_at == [0, 3, 3.1, 3.3, 3.7, 4.7, 5.5, 6, 6.1, 7.1, 8.1]
    assert turns.failures == [LOST, LOADING, LOST, LOST, LOST]
    assert turns.end is None


@on_stage
async def test_a_pause_is_never_longer_than_the_interval(stage: Stage) -> None:
    turns = Turns(LOST)
    turns.heartbeats.interval_s = 0.3
    await turns.run(1)
    assert turns.came_at == [0, 0.1, 0.3, 0.6, 0.9]


@on_stage
async def test_news_are_reported_at_once(stage: Stage) -> None:
    turns = Turns(3.0)
    asyncio.get_running_loop().call_later(1.25, turns.heartbeats.wake)
    await turns.run(4)
    assert turns.came_at == [0, 1.25]


@pytest.mark.parametrize(
    ("failure", "text"), [(REFUSED, "no"), (ValueError("x"), r"a bug in the reader.*ValueError")]
)
@on_stage
async def test_any_other_failure_is_the_end(stage: Stage, failure: Exception, text: str) -> None:
    turns = Turns(failure)
    await turns.run(0.5)
    turns.heartbeats.forget()
    assert turns.came_at == [0]
    with pytest.raises(SteleError, match=text):
        raise turns.end or AssertionError
    await turns.run(0.5)  # they begin again
    assert turns.came_at == [0, 0]
