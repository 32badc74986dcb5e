"""A test is a coroutine, and a decorator says in which world it runs (tests/README.md).

```
@with_topic(compression_type="lz4")
async def test_a_follower_catches_up(cluster: ReplicaCluster) -> None:
```

A world runs the coroutine on virtual time and gives it what it holds: the parameters by the names
that the world declares. All other parameters are pytest's. A parameter that is also an option of
the world, as a parametrized ``seed``, goes to both.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, overload

from chaos.sim.world.simulation import Simulation
from tests.support.timing import run_virtual

Scenario = Callable[..., Coroutine[Any, Any, Any]]
Options = ParamSpec("Options")


class World(Generic[Options]):
    """A decorator of tests, made of a function that runs a coroutine function in the world."""

    def __init__(
        self, run: Callable[Concatenate[Scenario, Options], object], given: tuple[str, ...]
    ) -> None:
        self.run = run
        """For tests that need what comes before or after their world."""
        self._given = given
        options = list(inspect.signature(run).parameters.values())[1:]
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        self._options = {each.name for each in options if each.kind in named}

    def having(self, **options: Any) -> World[Any]:
        """The same world with other options than its own. A test may change them again."""
        return World(functools.partial(self.run, **options), self._given)

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, test: Scenario, /
    ) -> Callable[..., None]: ...

    @overload
    def __call__(
        self, *arguments: Options.args, **options: Options.kwargs
    ) -> Callable[[Scenario], Callable[..., None]]: ...

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if len(arguments) == 1 and inspect.iscoroutinefunction(arguments[0]):
            return self._decorated(arguments[0])
        return lambda test: self._decorated(test, *arguments, **options)

    def _decorated(self, test: Scenario, *arguments: Any, **options: Any) -> Callable[..., None]:
        if not test.__name__.startswith("test_"):  # nobody would call what is returned
            raise TypeError(f"{test.__name__} is no test: hand it to run()")
        signature = inspect.signature(test)
        wanted = [name in signature.parameters for name in self._given]
        outside = signature.replace(
            parameters=[
                each for each in signature.parameters.values() if each.name not in self._given
            ]
        )

        @functools.wraps(test)
        def in_world(*from_outside: Any, **named: Any) -> None:
            arguments_of_test = outside.bind(*from_outside, **named).arguments

            async def scenario(*given: Any) -> None:
                each = zip(self._given, given, wanted, strict=True)
                inside = {name: value for name, value, is_wanted in each if is_wanted}
                await test(**inside, **arguments_of_test)

            shared = {
                name: arguments_of_test[name] for name in self._options & {*arguments_of_test}
            }
            self.run(scenario, *arguments, **{**options, **shared})

        in_world.__signature__ = outside  # type: ignore[attr-defined]
        return in_world


def gives(
    *given: str,
) -> Callable[[Callable[Concatenate[Scenario, Options], object]], World[Options]]:
    """The function runs a scenario in a world. ``given``: the names of what it hands over, in
    the order of the scenario's parameters."""
    return lambda run: World(run, given)


@gives()
def virtual(scenario: Scenario) -> None:
    """Nothing but an event loop on which waiting takes no time."""
    run_virtual(scenario())


@gives("sim")
def simulated(scenario: Scenario, /, seed: int = 1, *, keep_transcript: bool = False) -> None:
    """Machines, disks and a network, on which nothing runs yet. The test itself runs outside of all
    processes."""
    sim = Simulation(seed, keep_transcript=keep_transcript)
    sim.run(scenario(sim))
