"""The page of a share group, and what differs from that of a group of consumers."""

from __future__ import annotations

from collections.abc import Sequence

from console.clients import ConsoleClients
from stele.admin.coordinators import Coordinator
from stele.admin.groups import EMPTY, SHARE, GroupDescription, GroupListing
from stele.admin.share_groups import ShareGroupOffset
from stele.ids import TopicPartition
from tests.support.console import FakeClients, browser, console_settings

SETTINGS = console_settings()
GROUP = "letters & parcels"
PAGE = "/group?group=letters+%26+parcels"


class ShareGroups:
    """One share group, which is of no use as a group of consumers."""

    state = "Stable"
    deleted: tuple[str, ...] = ()

    async def list_groups(self) -> list[GroupListing]:
        return [GroupListing(GROUP, "share", self.state, SHARE)]

    async def describe_groups(self, names: Sequence[str]) -> list[GroupDescription]:
        coordinator = Coordinator(101, "b1", 9092)
        return [
            GroupDescription(name, self.state, "share", "simple", coordinator, (), SHARE)
            for name in names
        ]

    async def list_share_group_offsets(self, group: str) -> dict[TopicPartition, ShareGroupOffset]:
        return {
            TopicPartition("mails", 0): ShareGroupOffset(40, 1, 2),
            TopicPartition("mails", 1): ShareGroupOffset(7, 1, 11),
            TopicPartition("mails", 2): ShareGroupOffset(None, None, None),
        }

    async def delete_groups(self, names: Sequence[str]) -> None:
        self.deleted += tuple(names)


def clients_of(cluster: ShareGroups) -> ConsoleClients:
    return FakeClients(SETTINGS, cluster)


async def test_a_share_group_has_start_offsets_and_what_is_not_done() -> None:
    async with browser(SETTINGS, clients_of(ShareGroups())) as console:
        listed = await console.get("/groups")
        link = listed.partition('href="/group?')[2].partition('"')[0].replace("&amp;", "&")
        told = await console.text(f"/group?{link}")
        chart = await console.http.get(f"/group/lag?{link}")
    assert f"Share group {GROUP}" in told
    assert "records not done 13" in told
    first, second = told.index("mails-1 7 11"), told.index("mails-0 40 2")
    assert first < second, "what waits most comes first"
    assert chart.json() == {"value": 13}
    assert "Delete the group and its offsets" not in told, "it has members"


async def test_an_empty_share_group_can_be_deleted() -> None:
    cluster = ShareGroups()
    cluster.state = EMPTY
    async with browser(SETTINGS, clients_of(cluster)) as console:
        assert "Delete the group and its offsets" in await console.text(PAGE)
        await console.post("/group/delete", group=GROUP, confirmation=GROUP)
    assert cluster.deleted == (GROUP,)


async def test_a_console_that_only_reads_offers_no_deletion() -> None:
    cluster, settings = ShareGroups(), console_settings(is_read_only=True)
    cluster.state = EMPTY
    async with browser(settings, FakeClients(settings, cluster)) as console:
        assert "stele share reset" not in await console.text(PAGE)
