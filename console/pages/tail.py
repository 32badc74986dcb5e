"""New records of a topic as they come, by server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from console.desk import Desk, desk_of
from console.forms import Fields
from console.pages.messages import RecordView, form_of, isolation_of, led_partitions
from console.record_text import Form
from console.troubles import trouble_of
from stele.aio import Consumer
from stele.errors import SteleError
from stele.world import RpcError

MOST_TAILS: Final = 4
"""Browsers open six connections to a host: the others are left to pages."""
RECORDS_PER_EVENT: Final = 50
_POLL_MS: Final = 500
_TOO_MANY: Final = f"This console has {MOST_TAILS} live views already. Close one."


async def tail(request: Request) -> Response:
    desk, fields = desk_of(request), Fields.of_link(request)
    topic = fields.needed("topic", "the name of the topic")
    partition = fields.number("partition", "the partition") if fields.text("partition") else None
    form, isolation = form_of(fields), isolation_of(fields)
    names, _ = await led_partitions(desk, topic, partition)
    if desk.live_tails >= MOST_TAILS:
        return desk.page(
            "refused.html",
            status=429,
            title="There are too many live views",
            message=_TOO_MANY,
        )

    async def events() -> AsyncIterator[str]:
        if desk.live_tails >= MOST_TAILS:  # others have begun since the check above
            yield _event("trouble", {"text": _TOO_MANY})
            return
        desk.live_tails += 1
        try:
            async with desk.clients.consumer(isolation) as consumer:
                consumer.assign(names)
                consumer.seek_to_end()
                async for each in _events(desk, consumer, form):
                    yield each
        except (SteleError, RpcError) as error:
            trouble = trouble_of(error)
            yield _event("trouble", {"text": f"{trouble.name}: {trouble.message}"})
        finally:
            desk.live_tails -= 1

    return StreamingResponse(events(), media_type="text/event-stream")


async def _events(desk: Desk, consumer: Consumer, form: Form) -> AsyncIterator[str]:
    yield _event("open", {})
    while not desk.stopping.is_set():
        records = await consumer.poll(timeout_ms=_POLL_MS, max_records=RECORDS_PER_EVENT)
        if not records:
            yield ": nothing new\n\n"  # a browser that is gone is noticed by writing
            continue
        views = [RecordView.of(each, form) for each in records]
        rows = desk.pages.html("record_rows.html", views=list(reversed(views)), form=form)
        yield _event("records", {"html": rows, "count": len(records)})


def _event(name: str, data: dict[str, str | int]) -> str:
    """JSON has no line ends, so that no record can begin a field of its own."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


ROUTES: Final[list[BaseRoute]] = [Route("/messages/tail", tail)]
