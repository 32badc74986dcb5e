"""Names that begin or end with spaces: a change is of the thing that a page has shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from stele.admin.acls import AclFilter
from stele.admin.users import ScramDeletion
from tests.support.console import FakeClients, browser, console_settings

NAME = " a "


class Changes:
    """Keeps what the cluster was asked to change."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def delete_groups(self, groups: Sequence[str]) -> None:
        self.asked += groups

    async def alter_group_offsets(self, group: str, offsets: object) -> None:
        self.asked.append(group)

    async def fence_producer(self, transactional_id: str) -> None:
        self.asked.append(transactional_id)

    async def delete_acls(self, filters: Iterable[AclFilter]) -> None:
        for each in filters:
            self.asked += [each.principal, each.resource_name, each.host]

    async def alter_user_scram_credentials(self, *, deletions: Sequence[ScramDeletion]) -> None:
        self.asked += [each.user for each in deletions]


async def test_a_change_is_of_the_name_as_it_is() -> None:
    settings, cluster = console_settings(), Changes()
    rule = {
        "principal": NAME, "permission": "ALLOW", "operation": "READ", "resource_type": "GROUP",
        "resource_name": NAME, "pattern_type": "LITERAL", "host": NAME,
    }  # fmt: skip
    async with browser(settings, FakeClients(settings, cluster)) as console:
        await console.post("/group/delete", group=NAME, confirmation=NAME)
        assert "group=+a+" in await console.post("/group/reset", group=NAME, planned="[]")
        await console.post("/transaction/fence", id=NAME, confirmation=NAME)
        await console.post("/access/rules/remove", rule)
        await console.post("/access/users/remove", user=NAME, mechanism="SCRAM-SHA-256")
        assert cluster.asked == [NAME] * 7
        told = await console.post("/group/delete", status=400, group=NAME, confirmation="a")
        assert "nothing was deleted" in told
    assert cluster.asked == [NAME] * 7
