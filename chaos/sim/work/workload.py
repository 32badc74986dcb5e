"""All work of a run. In the end it compares what clients were told with what the cluster holds."""

from __future__ import annotations

import asyncio
from collections import Counter

from chaos.sim.laws.judged import JudgedCluster
from chaos.sim.work.history import History
from chaos.sim.work.load import Load
from chaos.sim.work.registry import WORKS
from chaos.sim.work.site import Site
from chaos.sim.work.work import Work


class Workload:
    """Call ``prepare``, ``start``, ``calm`` after the storm, and when the cluster is whole again
    ``see_it_go_on``, ``finish`` and ``judge``."""

    def __init__(self, cluster: JudgedCluster, load: Load) -> None:
        self._site = Site(cluster, load)
        self._works = [
            kind(self._site) for kind in WORKS if kind.load is None or load.part(kind.load).is_there
        ]
        self._tasks: dict[Work, list[asyncio.Task[None]]] = {}

    @property
    def history(self) -> History:
        return self._site.history

    @property
    def counts(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for work in self._works:
            found.update(work.counted)
        return found

    @property
    def replicated(self) -> list[tuple[str, int]]:
        """The partitions that all works make and keep."""
        return list(dict.fromkeys(each for work in self._works for each in work.partitions))

    async def prepare(self) -> None:
        for work in sorted(self._works, key=lambda work: not work.encloses):
            await work.prepare()

    def start(self) -> None:
        for outlasts in (False, True):
            started = [(each, each.start()) for each in self._works if each.outlasts is outlasts]
            for work, coroutines in started:
                self._tasks[work] = [asyncio.create_task(each) for each in coroutines]

    def calm(self) -> None:
        """The storm is over. End what nobody may do while faults are mended."""
        self._site.is_settling = True

    async def see_it_go_on(self, least: int, timeout_s: float) -> None:
        """Everything is mended. Wait until each work has gone on, and has done as much as a run
        needs."""
        conditions = [work.goes_on(least) for work in self._works]

        def goes_on() -> bool:
            self._check_going()
            return all(condition() for condition in conditions)

        await self._site.cluster.until(
            goes_on,
            "producers, consumers and readers go on in a cluster that is whole again",
            timeout_s=timeout_s,
        )
        for work in self._works:
            await work.settle()

    def _check_going(self) -> None:
        """Raise the error that has ended any part of the work too early."""
        for tasks in self._tasks.values():
            for task in tasks:
                if task.done():
                    task.result()

    async def finish(self, timeout_s: float) -> None:
        """Begin no new work, and wait until everything under way has ended."""
        self._site.is_over = True
        async with asyncio.timeout(timeout_s):
            await self._ended(outlasts=False)
        for work in sorted(self._works, key=lambda work: work.outlasts):
            await work.finish()
        await self._ended(outlasts=True)

    async def _ended(self, *, outlasts: bool) -> None:
        tasks = [
            each for work in self._tasks if work.outlasts is outlasts for each in self._tasks[work]
        ]
        await asyncio.gather(*tasks)

    async def judge(self) -> int:
        """Read everything back and compare. Returns the number of records compared."""
        cluster = self._site.cluster
        self._site.metadata.end(cluster.image)
        works = sorted(self._works, key=lambda work: work.encloses)
        for work in works:
            await work.read_back()
        cluster.invariants.check_everything()  # retention may have deleted more since the last look
        return sum([work.judge() for work in works])
