"""One kind of work: what clients do all the time, and what must be true of it in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

from chaos.sim.work.load import Part
from chaos.sim.work.site import Site


class Work:
    """A work is a class, and a line in ``registry.WORKS``.

    Its methods are called in the order in which they stand here. Each is called of all works in the
    order of the registry, before the next one is called of any.
    """

    name: ClassVar[str]
    load: ClassVar[type[Part] | None] = None
    """The part of the load that it does. Runs without that have none of this work. None: it goes
    by the fields of ``Load``."""
    encloses: ClassVar[bool] = False
    """It is prepared before all others, and judged after them."""
    outlasts: ClassVar[bool] = False
    """It is started after all others. What it started ends only after its own ``finish``."""

    def __init__(self, site: Site) -> None:
        """It may draw from generators of its own (``Site.rngs``). The cluster does not run yet."""
        self.site = site
        self.counts: Counter[str] = Counter()

    @property
    def counted(self) -> Counter[str]:
        """What it did, for the summary."""
        return self.counts

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """Partitions of topics that it makes and keeps. In the end their replicas are in sync."""
        return []

    async def prepare(self) -> None:
        """Make topics. Nothing goes wrong yet."""

    def start(self) -> list[Coroutine[Any, Any, None]]:
        """What runs until ``Site.is_done``. What nobody may do while faults are mended runs until
        ``Site.is_calm``."""
        return []

    def goes_on(self, least: int) -> Callable[[], bool]:
        """Everything is mended. Returns whether the work has gone on since then, and has done at
        least so much."""
        return lambda: True

    async def settle(self) -> None:
        """The whole cluster works again. End what only a whole cluster can end."""

    async def finish(self) -> None:
        """Nothing that was started runs any more. Wait for what must come true by itself."""

    async def read_back(self) -> None:
        """Read what is there in the end."""

    def judge(self) -> int:
        """Compare what was read with what was told. The laws have looked once more since then.
        Returns how many records were compared."""
        return 0
