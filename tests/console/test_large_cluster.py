"""A thousand topics with ten thousand partitions: a page asks for what it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from console.paging import PAGE_SIZE
from stele.admin.descriptions import PartitionDescription, TopicDescription
from stele.admin.log_dirs import LogDirDescription
from tests.support.console import FakeClients, browser, console_settings

TOPICS, PARTITIONS = 1000, 10


class LargeCluster:
    """Counts what is asked for per partition."""

    def __init__(self) -> None:
        self.listed = 0
        self.measured = 0

    async def list_topics(self, *, linearizable: bool) -> list[TopicDescription]:
        self.listed += 1
        return [
            TopicDescription(
                f"topic-{number:04}",
                bytes(16),
                tuple(
                    PartitionDescription(each, 1, 0, 0, (1, 2, 3), (1, 2, 3), (), 0)
                    for each in range(PARTITIONS)
                ),
                {},
            )
            for number in range(TOPICS)
        ]

    async def describe_log_dirs(
        self, broker_ids: Sequence[int], partitions: Sequence[tuple[str, int]]
    ) -> list[LogDirDescription]:
        self.measured += len(partitions)
        return []

    async def list_offsets(self, times: Mapping[tuple[str, int], int]) -> None:
        raise AssertionError("the list shows no offsets")


async def test_a_page_of_topics_measures_only_the_topics_on_it() -> None:
    settings, cluster = console_settings(), LargeCluster()
    async with browser(settings, FakeClients(settings, cluster)) as console:
        told = await console.text("/topics?page=20")
        assert "topic-0999" in told
        assert "topic-0949" not in told
        assert "951 to 1,000 of 1,000" in told
        assert (cluster.listed, cluster.measured) == (1, PAGE_SIZE * PARTITIONS)
        assert "topic-0123" in await console.text("/topics?q=C-0123")
        assert cluster.measured == (PAGE_SIZE + 1) * PARTITIONS
