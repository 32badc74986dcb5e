"""What would be lost if nodes died: nodes are switched off on the page, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from console.desk import desk_of
from console.foresight import Consequence, Forecast
from console.forms import Fields
from console.health import history_of
from console.paging import Paged
from metadata.image import MetadataImage
from stele.admin.quorum import QuorumDescription


@dataclass(frozen=True, slots=True)
class Node:
    node_id: int
    roles: str
    rack: str | None


async def losses_page(request: Request) -> Response:
    desk = desk_of(request)
    image = (await history_of(await desk.admin.read_metadata_log())).image
    quorum = await desk.admin.describe_quorum()
    nodes = _nodes(image, quorum)
    racks = sorted({each.rack for each in nodes if each.rack})
    chosen_racks = [rack for rack in request.query_params.getlist("rack") if rack in racks]
    ids = {str(each.node_id) for each in nodes} & set(request.query_params.getlist("node"))
    dead = [each.node_id for each in nodes if str(each.node_id) in ids or each.rack in chosen_racks]
    forecast: Forecast | None = None
    if dead:
        forecast = desk.settings.foresee(image, quorum.voters_heard(), dead=dead)
    consequences = sorted(forecast.consequences, key=_harm) if forecast else []
    return desk.page(
        "losses.html",
        nodes=nodes,
        racks=racks,
        chosen_racks=chosen_racks,
        ids=ids,
        dead=dead,
        forecast=forecast,
        paged=Paged.of(consequences, Fields.of_link(request).page()),
        sums=_sums(consequences),
        query={"node": sorted(ids), "rack": chosen_racks},
    )


def _nodes(image: MetadataImage, quorum: QuorumDescription) -> list[Node]:
    """Registered brokers and voters, by their ids."""
    racks = {each.broker_id: each.rack for each in image.sorted_brokers()}
    voters = {each.replica_id for each in quorum.voters}
    roles = {
        node_id: " and ".join(
            role
            for role, is_one in (("broker", node_id in racks), ("controller", node_id in voters))
            if is_one
        )
        for node_id in sorted({*racks, *voters})
    }
    return [Node(node_id, role, racks.get(node_id)) for node_id, role in roles.items()]


def _harm(each: Consequence) -> tuple[bool, bool, bool, int]:
    """The worst first; among equals the order stays."""
    return not each.loses_records, not each.loses_reads, not each.loses_writes, each.copies


def _sums(consequences: Sequence[Consequence]) -> dict[str, int]:
    return {
        "lose records": sum(each.loses_records for each in consequences),
        "cannot be read": sum(each.loses_reads for each in consequences),
        "refuse acks=all": sum(each.loses_writes for each in consequences),
        "have no copy left": sum(each.copies == 0 for each in consequences),
        "get another leader": sum(each.moves_to is not None for each in consequences),
    }


ROUTES: Final[list[BaseRoute]] = [Route("/losses", losses_page)]
