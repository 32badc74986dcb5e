"""Topics created, configured and deleted."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from console.changes import change
from console.desk import Desk, desk_of, go_to
from console.forms import Fields, FormError
from stele.admin.descriptions import ConfigResource, NewTopic


async def new_topic_page(request: Request) -> Response:
    return desk_of(request).page("new_topic.html")


async def create_topic(desk: Desk, fields: Fields) -> Response:
    name = fields.needed("name", "the name of the topic")
    topic = NewTopic(
        name,
        fields.number("partitions", "the number of partitions", -1),
        fields.number("replication_factor", "the replication factor", -1),
        _configs(fields.raw("configs")),
    )
    await desk.admin.create_topics([topic])
    return go_to("/topic", name=name)


def _configs(text: str) -> dict[str, str]:
    """Lines of the form ``name=value``. Raises FormError."""
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise FormError(f"the config {line!r} is not of the form name=value")
        found[name.strip()] = value.strip()
    return found


async def alter_config(desk: Desk, fields: Fields) -> Response:
    topic = fields.needed("topic", "the name of the topic")
    name = fields.needed("config", "the name of the config")
    value = None if fields.has("restore") else fields.text("value")
    await desk.admin.alter_configs({ConfigResource.topic(topic): {name: value}})
    return go_to("/topic", name=topic)


async def delete_topic_page(request: Request) -> Response:
    desk = desk_of(request)
    name = Fields.of_link(request).needed("name", "the name of the topic")
    (topic,) = await desk.admin.describe_topics([name], linearizable=False)
    return desk.page("delete_topic.html", topic=topic)


async def delete_topic(desk: Desk, fields: Fields) -> Response:
    name = fields.needed("topic", "the name of the topic")
    if fields.text("confirmation") != name:
        raise FormError(f"to delete the topic {name!r}, write its name: nothing was deleted")
    await desk.admin.delete_topics([name])
    return go_to("/topics")


ROUTES: Final[list[BaseRoute]] = [
    Route("/topics/new", new_topic_page),
    change("/topics/create", create_topic),
    change("/topic/config", alter_config),
    Route("/topic/delete", delete_topic_page, methods=["GET"]),
    change("/topic/delete", delete_topic),
]
