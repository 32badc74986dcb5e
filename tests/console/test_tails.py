"""Live views: their number is bounded, and the ones that end make room."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse

from console.app import build
from console.clients import Isolation
from console.pages.tail import MOST_TAILS, tail
from stele.admin.descriptions import PartitionDescription, TopicDescription
from tests.support.console import FakeClients, console_settings

TOPIC = TopicDescription(
    "orders", bytes(16), (PartitionDescription(0, 1, 0, 0, (1,), (1,), (), 0),), {}
)
BROWSER_CONNECTIONS = 6
"""What a browser opens to one host by HTTP/1.1."""


class OneTopic:
    async def describe_topics(
        self, names: list[str], *, linearizable: bool
    ) -> list[TopicDescription]:
        return [TOPIC]


class Silent:
    """A consumer of a topic without records."""

    def assign(self, _partitions: object) -> None: ...

    def seek_to_end(self) -> None: ...

    async def poll(self, **_options: object) -> list[object]:
        return []


class SilentClients(FakeClients):
    @asynccontextmanager
    async def consumer(self, isolation: Isolation) -> AsyncIterator[Any]:
        yield Silent()


async def test_tails_that_begin_at_once_are_not_more_than_the_most() -> None:
    settings = console_settings()
    app = build(settings, SilentClients(settings, OneTopic()))
    scope = {"type": "http", "app": app, "query_string": b"topic=orders", "headers": []}
    answers = [await tail(Request(scope)) for _ in range(10)]
    streams = [each.body_iterator for each in answers if isinstance(each, StreamingResponse)]
    begun = [aiter(each) for each in streams]
    first = [str(await anext(each)).partition("\n")[0] for each in begun]
    assert first.count("event: open") == MOST_TAILS < BROWSER_CONNECTIONS
    assert first.count("event: trouble") == len(answers) - MOST_TAILS
    assert (await tail(Request(scope))).status_code == 429
    for each in begun:
        assert isinstance(each, AsyncIterator)
        await each.aclose()  # type: ignore[attr-defined]
    assert app.state.desk.live_tails == 0
