"""The turns of the event loop that consumers share."""

from __future__ import annotations

import asyncio

from broker.replication.fetch_turns import TURN_BYTES, ConsumerTurns
from broker.replication.fetch_waiting import WaitingFetch
from tests.support.fetches import AskedFetch
from tests.support.worlds import virtual


def are_open(turns: ConsumerTurns) -> bool:
    return turns.is_open


class Turns:
    """Notes which fetches are looked at. Each reads as much as a turn has, exactly."""

    def __init__(self) -> None:
        self.looked: list[WaitingFetch] = []
        self.turns = ConsumerTurns(self._look)

    def _look(self, waiting: WaitingFetch) -> None:
        self.looked.append(waiting)
        self.turns.use(TURN_BYTES)


def fetches(count: int) -> list[WaitingFetch]:
    return [AskedFetch([], lambda _: None) for _ in range(count)]


@virtual
async def test_a_turn_has_so_many_bytes_and_not_one_more() -> None:
    each = Turns()
    each.turns.use(TURN_BYTES - 1)
    assert are_open(each.turns)
    each.turns.use(1)
    assert not are_open(each.turns)
    await asyncio.sleep(0)
    assert are_open(each.turns)


@virtual
async def test_fetches_that_wait_have_a_turn_each_whatever_was_read_beyond_the_bytes() -> None:
    """A fetch whose time is over is answered in a turn that has no bytes left."""
    each, waiting = Turns(), fetches(3)
    each.turns.use(TURN_BYTES)
    each.turns.use(1)
    for fetch in (*waiting, waiting[0]):
        each.turns.queue(fetch)
    for count in (1, 2, 3):
        await asyncio.sleep(0)
        assert each.looked == waiting[:count]
    assert not are_open(each.turns)
    await asyncio.sleep(0)
    assert are_open(each.turns)
    each.turns.queue(waiting[0])  # it may wait again
    each.turns.use(TURN_BYTES)
    await asyncio.sleep(0)
    assert each.looked == [*waiting, waiting[0]]
