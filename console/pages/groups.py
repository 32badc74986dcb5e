"""Consumer groups: members, and lag by partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from console.changes import change
from console.desk import Desk, desk_of, go_to
from console.forms import Fields, FormError
from console.paging import Paged
from stele.admin.group_lag import PartitionLag
from stele.admin.groups import DEAD, EMPTY, GroupDescription
from stele.errors import ApiError, ErrorCode


async def groups_page(request: Request) -> Response:
    desk, fields = desk_of(request), Fields.of_link(request)
    wanted = fields.text("q").lower()
    groups = [each for each in await desk.admin.list_groups() if wanted in each.group_id.lower()]
    return desk.page("groups.html", paged=Paged.of(groups, fields.page()), q=fields.text("q"))


async def group_page(request: Request) -> Response:
    desk, fields = desk_of(request), Fields.of_link(request)
    group, lags = await group_with_lags(desk, fields)
    # What lags most comes first.
    lags = sorted(lags, key=lambda each: -(each.lag or 0))
    return desk.page(
        "group.html",
        group=group,
        is_empty=group.state == EMPTY,
        paged=Paged.of(lags, fields.page()),
        total_lag=total_lag(lags),
        most_lag=max((each.lag or 0 for each in lags), default=0),
    )


async def group_with_lags(
    desk: Desk, fields: Fields
) -> tuple[GroupDescription, list[PartitionLag]]:
    """Raises FormError, SteleError."""
    name = fields.name("group", "the id of the group")
    (group,) = await desk.admin.describe_groups([name])
    if group.state == DEAD:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name!r}")
    return group, (await desk.admin.group_lags([group]))[name]


def total_lag(lags: Sequence[PartitionLag]) -> int:
    return sum(each.lag for each in lags if each.lag is not None)


async def group_lag(request: Request) -> Response:
    """For the chart of a group's lag."""
    _, lags = await group_with_lags(desk_of(request), Fields.of_link(request))
    return JSONResponse({"value": total_lag(lags)})


async def delete_group(desk: Desk, fields: Fields) -> Response:
    name = fields.name("group", "the id of the group")
    if fields.raw("confirmation") != name:
        raise FormError(f"to delete the group {name!r}, write its id: nothing was deleted")
    await desk.admin.delete_groups([name])
    return go_to("/groups")


ROUTES: Final[list[BaseRoute]] = [
    Route("/groups", groups_page),
    Route("/group", group_page),
    Route("/group/lag", group_lag),
    change("/group/delete", delete_group),
]
