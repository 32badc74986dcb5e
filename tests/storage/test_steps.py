"""Work in steps that ends early when it has lost its object."""

from __future__ import annotations

import pytest

from storage.steps import Steps, Turn, finish, take_turns, while_true
from tests.support.storage import MemoryDisk


class Work:
    def __init__(self) -> None:
        self.done: list[object] = []
        self.is_closed = False

    def steps(self) -> Steps[str]:
        try:
            for number in range(3):
                self.done.append(number)
                try:
                    yield Turn.OVER
                except OSError as error:
                    self.done.append(error)
        finally:
            self.is_closed = True
        return "whole"


async def test_work_that_may_go_on_is_done_as_a_whole() -> None:
    work = Work()
    assert await take_turns(MemoryDisk(), while_true(lambda: True, work.steps())) == "whole"
    assert work.done == [0, 1, 2]


async def test_work_without_its_object_ends_and_is_closed() -> None:
    work = Work()
    steps = while_true(lambda: len(work.done) < 2, work.steps())
    assert await take_turns(MemoryDisk(), steps) is None
    assert work.done == [0, 1]
    assert work.is_closed


def test_an_error_of_a_step_reaches_the_work() -> None:
    work = Work()
    steps = while_true(lambda: True, work.steps())
    next(steps)
    error = OSError("the device failed")
    assert steps.throw(error) is Turn.OVER
    assert finish(MemoryDisk(), steps) == "whole"
    assert work.done == [0, error, 1, 2]


def test_work_that_is_given_up_is_closed() -> None:
    work = Work()
    steps = while_true(lambda: True, work.steps())
    next(steps)
    steps.close()
    assert work.is_closed
    with pytest.raises(StopIteration):
        next(steps)
