"""A test in a world gets what it names, and cannot pass without having run."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from tests.support.worlds import Scenario, gives, virtual

ran: list[tuple[object, ...]] = []


@gives("first", "second")
def in_a_world(scenario: Scenario, /, seed: int = 1, *, loud: bool = False) -> None:
    ran.append(("world", seed, loud))
    asyncio.run(scenario("one", "two"))


@pytest.mark.parametrize("seed", [3])
@in_a_world(loud=True)
async def test_an_option_that_is_a_parameter_goes_to_both(second: str, seed: int) -> None:
    assert ran[-1] == ("world", 3, True)
    assert (second, seed) == ("two", 3)


def test_pytest_is_asked_for_what_the_world_does_not_give() -> None:
    @in_a_world
    async def test_example(first: str, tmp_path: str, second: str) -> None:
        ran.append((first, tmp_path, second))

    assert list(inspect.signature(test_example).parameters) == ["tmp_path"]
    test_example(tmp_path="/tmp/x")
    assert ran[-2:] == [("world", 1, False), ("one", "/tmp/x", "two")]


def test_other_options_may_be_changed_again() -> None:
    loud = in_a_world.having(loud=True, seed=5)

    @loud(seed=6)
    async def test_example() -> None: ...

    test_example()
    assert ran[-1] == ("world", 6, True)


def test_what_fails_in_the_world_fails_the_test() -> None:
    @virtual
    async def test_example() -> None:
        await asyncio.sleep(3600)
        raise ValueError("an hour later")

    with pytest.raises(ValueError, match="an hour later"):
        test_example()


def test_a_function_that_nobody_would_call_is_refused() -> None:
    async def scenario() -> None: ...

    with pytest.raises(TypeError, match="scenario is no test: hand it to run"):
        virtual(scenario)
