"""Groups that consume, and groups that share: members, and lag by partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from console.changes import change
from console.desk import Desk, desk_of, go_to
from console.forms import Fields, FormError
from console.paging import Paged
from stele.admin.groups import DEAD, EMPTY, SHARE, GroupDescription
from stele.errors import ApiError, ErrorCode


async def groups_page(request: Request) -> Response:
    desk, fields = desk_of(request), Fields.of_link(request)
    wanted = fields.text("q").lower()
    groups = [each for each in await desk.admin.list_groups() if wanted in each.group_id.lower()]
    return desk.page("groups.html", paged=Paged.of(groups, fields.page()), q=fields.text("q"))


async def group_page(request: Request) -> Response:
    desk, fields = desk_of(request), Fields.of_link(request)
    group = await _described(desk, fields)
    if group.type == SHARE:
        return await _share_group_page(desk, fields, group)
    lags = (await desk.admin.group_lags([group]))[group.group_id]
    # What lags most comes first.
    lags = sorted(lags, key=lambda each: -(each.lag or 0))
    return desk.page(
        "group.html",
        group=group,
        is_empty=group.state == EMPTY,
        paged=Paged.of(lags, fields.page()),
        total_lag=total_lag(lags),
        most_lag=_most_lag(lags),
    )


async def _share_group_page(desk: Desk, fields: Fields, group: GroupDescription) -> Response:
    offsets = await desk.admin.list_share_group_offsets(group.group_id)
    partitions = sorted(offsets.items(), key=lambda each: -(each[1].lag or 0))
    return desk.page(
        "share_group.html",
        group=group,
        is_empty=group.state == EMPTY,
        paged=Paged.of(partitions, fields.page()),
        total_lag=total_lag(list(offsets.values())),
        most_lag=_most_lag(list(offsets.values())),
    )


async def _described(desk: Desk, fields: Fields) -> GroupDescription:
    """Raises FormError, SteleError."""
    name = fields.name("group", "the id of the group")
    (group,) = await desk.admin.describe_groups([name])
    if group.state == DEAD:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name!r}")
    return group


class _Lagging(Protocol):
    @property
    def lag(self) -> int | None: ...


def total_lag(lags: Sequence[_Lagging]) -> int:
    return sum(each.lag for each in lags if each.lag is not None)


def _most_lag(lags: Sequence[_Lagging]) -> int:
    return max((each.lag or 0 for each in lags), default=0)


async def group_lag(request: Request) -> Response:
    """For the chart of a group's lag."""
    desk = desk_of(request)
    group = await _described(desk, Fields.of_link(request))
    lags: Sequence[_Lagging]
    if group.type == SHARE:
        lags = list((await desk.admin.list_share_group_offsets(group.group_id)).values())
    else:
        lags = (await desk.admin.group_lags([group]))[group.group_id]
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
