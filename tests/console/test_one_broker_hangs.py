"""A broker that does not answer takes its numbers from a page, and not the page."""

from __future__ import annotations

from typing import Any

import pytest

from stele.admin.descriptions import PartitionDescription, TopicDescription
from stele.world import RpcCode, RpcError
from tests.support.console import FakeClients, browser, console_settings

TOPIC = TopicDescription(
    "orders", bytes(16), (PartitionDescription(0, 1, 0, 0, (1,), (1,), (), 0),), {}
)


class HangingCluster:
    """Names its topics, and fails everything that asks a broker by its id."""

    async def list_topics(self, *, linearizable: bool) -> list[TopicDescription]:
        return [TOPIC]

    async def describe_topics(
        self, names: list[str], *, linearizable: bool
    ) -> list[TopicDescription]:
        return [TOPIC]

    def __getattr__(self, name: str) -> Any:
        async def fail(*_given: object, **_options: object) -> None:
            raise RpcError(RpcCode.DEADLINE_EXCEEDED, f"{name} has no answer")

        return fail


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/topics", "orders 1 1 in sync -"),
        ("/topic?name=orders", "0 1 epoch 0"),
        ("/access", "(rules): deadline_exceeded"),
    ],
)
async def test_the_other_parts_of_a_page_are_shown(path: str, expected: str) -> None:
    settings = console_settings()
    async with browser(settings, FakeClients(settings, HangingCluster())) as console:
        told = await console.text(path)
    assert "A broker does not answer" in told
    assert expected in told
