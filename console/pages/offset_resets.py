"""Offsets of a group reset: first a plan, then exactly this plan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response
from starlette.routing import BaseRoute

from console.changes import change
from console.desk import Desk, go_to
from console.forms import Fields, FormError
from console.measures import END, START, offsets_at
from console.pages.messages import led_partitions
from stele.admin.groups import DEAD, EMPTY
from stele.admin.offset_reset import PartitionOffsets, Place, Target, plan
from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class PlannedOffset:
    """One row of a plan."""

    partition: TopicPartition
    committed: int | None
    wanted: int


async def plan_reset(desk: Desk, fields: Fields) -> Response:
    """A dry run."""
    group = fields.name("group", "the id of the group")
    target = _target(fields)
    await _check_is_empty(desk, group)
    committed = {
        name: each.offset for name, each in (await desk.admin.list_group_offsets(group)).items()
    }
    partitions = await _partitions(desk, fields.text("topic"), list(committed))
    known = await _known(desk, partitions, committed, target)
    made = plan(dict.fromkeys(partitions, target), known)
    rows = [PlannedOffset(name, committed.get(name), to) for name, to in made.offsets.items()]
    return desk.page(
        "offset_reset.html",
        group=group,
        rows=rows,
        warnings=made.warnings,
        planned=json.dumps([[*each.partition, each.wanted] for each in rows]),
    )


def _target(fields: Fields) -> Target:
    """Raises FormError."""
    try:
        place = Place(fields.needed("to", "where the offsets go"))
    except ValueError:
        raise FormError(f"offsets cannot go to {fields.text('to')!r}") from None
    if place is Place.TIME:
        return Target(place, fields.time_ms("number", "the time"))
    if place in (Place.OFFSET, Place.SHIFT):
        return Target(place, fields.number("number", "the number"))
    return Target(place)


async def _check_is_empty(desk: Desk, group: str) -> None:
    """Raises ApiError. The coordinator checks it again when offsets are committed."""
    (described,) = await desk.admin.describe_groups([group])
    if described.state not in (DEAD, EMPTY):
        raise ApiError(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group!r} has members (it is {described.state})",
        )


async def _partitions(
    desk: Desk, topic: str, committed: Sequence[TopicPartition]
) -> Sequence[TopicPartition]:
    """The partitions of the topic, by default all partitions that the group has committed. Raises
    FormError."""
    if topic:
        return (await led_partitions(desk, topic, None))[0]
    if not committed:
        raise FormError("the group has committed no offsets: name a topic")
    return committed


async def _known(
    desk: Desk,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
    target: Target,
) -> dict[TopicPartition, PartitionOffsets]:
    starts = await offsets_at(desk.admin, partitions, START)
    ends = await offsets_at(desk.admin, partitions, END)
    since: dict[TopicPartition, int] = {}
    if target.place is Place.TIME:
        since = await offsets_at(desk.admin, partitions, max(target.number, 0))
    return {
        name: PartitionOffsets(
            starts[name],
            ends[name],
            committed.get(name),
            since[name] if since.get(name, -1) >= 0 else None,
        )
        for name in partitions
    }


async def carry_out_reset(desk: Desk, fields: Fields) -> Response:
    group = fields.name("group", "the id of the group")
    await desk.admin.alter_group_offsets(group, _planned(fields.raw("planned")))
    return go_to("/group", group=group)


def _planned(text: str) -> dict[TopicPartition, int]:
    """What the page of the plan has sent back. Raises FormError."""
    try:
        return {
            TopicPartition(str(topic), int(number)): int(offset)
            for topic, number, offset in json.loads(text)
        }
    except (ValueError, TypeError, RecursionError):
        raise FormError("the plan cannot be read: make it again") from None


ROUTES: Final[list[BaseRoute]] = [
    change("/group/reset/plan", plan_reset),
    change("/group/reset", carry_out_reset),
]
