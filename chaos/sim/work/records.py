"""The topics that producers and consumers use all the time, and what must be in them in the end."""

from __future__ import annotations

from collections.abc import Callable

from chaos.sim.work.site import EXACT, TOPICS, Site
from chaos.sim.work.wear import Wear
from chaos.sim.work.work import Work


class Records(Work):
    name = "records"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._read: list[tuple[tuple[str, int], list[tuple[int, bytes]]]] = []

    @property
    def partitions(self) -> list[tuple[str, int]]:
        return self.site.partitions

    async def prepare(self) -> None:
        site = self.site
        configs = {
            "min.insync.replicas": str(site.load.min_insync),
            "segment.bytes": str(site.load.segment_bytes),
            **site.load.part(Wear).topic_configs(),
        }
        for topic in TOPICS:
            creation = site.metadata.creation_asked(topic)
            await site.client.create_topic(topic, partitions=site.load.partitions, configs=configs)
            creation.confirmed()
        for topic, number in site.partitions:
            await site.cluster.until_isr(topic, 3, number)

    def goes_on(self, least: int) -> Callable[[], bool]:
        """Clients may have to give up old connections first."""
        history = self.site.history
        written = max(len(history.promised), least - 1)
        read = max(len(history.consumed), least - 1)
        return lambda: len(history.promised) > written and len(history.consumed) > read

    async def read_back(self) -> None:
        for name in self.site.partitions:
            self._read.append((name, await self.site.client.read_back(*name)))

    def judge(self) -> int:
        return sum(self._judge(*name, records) for name, records in self._read)

    def _judge(self, topic: str, partition: int, records: list[tuple[int, bytes]]) -> int:
        name, history, report = f"{topic}-{partition}", self.site.history, self.site.report
        found = dict(records)
        first = records[0][0] if records else 0
        if [offset for offset, _ in records] != list(range(first, first + len(records))):
            report(f"{name}: offsets have gaps or come twice")
        start = self.site.start_of(topic, partition)
        if first > start:
            report(f"{name} begins at {first}, and its replicas at {start} at most")
        if len({value for _, value in records}) != len(records):
            report(f"{name}: a record is there twice")
        for told, what in ((history.promised, "acknowledged"), (history.consumed, "read")):
            for (of_topic, of_partition, offset), value in told.items():
                if (of_topic, of_partition) != (topic, partition) or offset < start:
                    continue
                if found.get(offset) != value:
                    report(
                        f"{name}: {value!r} at {offset} was {what}; there is {found.get(offset)!r}"
                    )
        if topic == EXACT:
            self._judge_order(name, [value for _, value in records])
        return len(records)

    def _judge_order(self, name: str, values: list[bytes]) -> None:
        last: dict[bytes, int] = {}
        for value in values:
            producer, _, number = value.strip(b"<>").partition(b"-")
            if int(number) <= last.get(producer, 0):
                self.site.report(f"{name}: {value!r} comes after number {last[producer]}")
            last[producer] = int(number)
