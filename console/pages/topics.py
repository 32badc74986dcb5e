"""The list of topics, and one topic: partitions, sizes, configs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from console.desk import Desk, desk_of
from console.forms import Fields
from console.health import find_faults
from console.measures import END, leader_sizes, measure, offsets_at
from console.paging import Paged
from console.troubles import Trouble, trouble_of
from stele.admin.descriptions import ConfigEntry, ConfigResource, TopicDescription
from stele.errors import SteleError
from stele.ids import TopicPartition
from stele.world import RpcError

OWN_SOURCE: Final = "DYNAMIC_TOPIC"
INTERNAL: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)


async def topics_page(request: Request) -> Response:
    desk, fields = desk_of(request), Fields.of_link(request)
    wanted, with_internal = fields.text("q").lower(), fields.has("internal")
    topics = [
        each
        for each in await desk.admin.list_topics(linearizable=False)
        if wanted in each.name.lower() and (with_internal or each.name not in INTERNAL)
    ]
    paged = Paged.of(topics, fields.page())
    sizes, trouble = await _sizes(desk, paged.items)
    return desk.page(
        "topics.html",
        paged=paged,
        sizes=sizes,
        trouble=trouble,
        q=fields.text("q"),
        with_internal=with_internal,
    )


async def _sizes(
    desk: Desk, topics: Sequence[TopicDescription]
) -> tuple[dict[str, int], Trouble | None]:
    """The sizes of the leaders' replicas, by topic."""
    led = {
        TopicPartition(topic.name, each.partition): each.leader
        for topic in topics
        for each in topic.partitions
        if each.leader is not None
    }
    found: dict[str, int] = {}
    try:
        for name, size_bytes in (await leader_sizes(desk.admin, led)).items():
            found[name.topic] = found.get(name.topic, 0) + size_bytes
    except (SteleError, RpcError) as error:
        return {}, trouble_of(error)
    return found, None


async def topic_page(request: Request) -> Response:
    desk, fields = desk_of(request), Fields.of_link(request)
    name = fields.needed("name", "the name of the topic")
    (topic,) = await desk.admin.describe_topics([name], linearizable=False)
    paged = Paged.of(topic.partitions, fields.page())
    measures = await measure(desk.admin, name, paged.items)
    configs, configs_trouble = await _configs(desk, name)
    try:
        faults, faults_trouble = await find_faults(desk.admin, [topic]), None
    except (SteleError, RpcError) as error:
        faults, faults_trouble = [], trouble_of(error)
    return desk.page(
        "topic.html",
        topic=topic,
        paged=paged,
        measures=measures,
        measures_troubles=[trouble_of(each) for each in measures.troubles],
        configs=configs,
        own_source=OWN_SOURCE,
        configs_trouble=configs_trouble,
        faults=faults,
        faults_trouble=faults_trouble,
    )


async def _configs(desk: Desk, name: str) -> tuple[list[ConfigEntry], Trouble | None]:
    """The configs of a topic: first the ones that are set on the topic itself."""
    resource = ConfigResource.topic(name)
    try:
        found = await desk.admin.describe_configs([resource], linearizable=False)
    except (SteleError, RpcError) as error:
        return [], trouble_of(error)
    return sorted(found[resource], key=lambda each: (each.source != OWN_SOURCE, each.name)), None


async def topic_end(request: Request) -> Response:
    """For the chart of a topic's rate: the sum of its ends."""
    desk, fields = desk_of(request), Fields.of_link(request)
    name = fields.needed("name", "the name of the topic")
    (topic,) = await desk.admin.describe_topics([name], linearizable=False)
    led = [
        TopicPartition(name, each.partition) for each in topic.partitions if each.leader is not None
    ]
    ends = await offsets_at(desk.admin, led, END)
    return JSONResponse({"value": sum(ends.values())})


ROUTES: Final[list[BaseRoute]] = [
    Route("/topics", topics_page),
    Route("/topic", topic_page),
    Route("/topic/end", topic_end),
]
