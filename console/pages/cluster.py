"""The first page: nodes, the controllers' quorum, leaders, and what is wrong now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from console.certificates import refused_certificates
from console.desk import Desk, desk_of
from console.health import Fault, find_faults
from console.troubles import Trouble, trouble_of
from stele.admin.descriptions import TopicDescription
from stele.admin.quorum import QuorumDescription
from stele.errors import SteleError
from stele.world import RpcError


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of partitions."""

    partitions: int
    without_leader: int
    under_replicated: int
    leaders: Counter[int]
    """By broker."""
    replicas: Counter[int]

    @classmethod
    def of(cls, topics: Sequence[TopicDescription]) -> Counts:
        partitions = [each for topic in topics for each in topic.partitions]
        return cls(
            len(partitions),
            sum(each.leader is None for each in partitions),
            sum(each.is_under_replicated for each in partitions),
            Counter(each.leader for each in partitions if each.leader is not None),
            Counter(broker for each in partitions for broker in each.replicas),
        )


async def cluster_page(request: Request) -> Response:
    desk = desk_of(request)
    # What one broker knows: the page must also be there while there is no active controller.
    described = await desk.admin.describe_cluster(linearizable=False)
    topics = await desk.admin.list_topics(linearizable=False)
    faults, trouble = await _faults(desk, topics)
    quorum, quorum_trouble = await _quorum(desk)
    live = [each.broker_id for each in described.brokers if not each.fenced]
    return desk.page(
        "cluster.html",
        cluster=described,
        topics=topics,
        counts=Counts.of(topics),
        fenced=[each.broker_id for each in described.brokers if each.fenced],
        faults=faults,
        faults_trouble=trouble,
        certificates=await refused_certificates(desk.admin, live),
        quorum=quorum,
        quorum_trouble=quorum_trouble,
        silent=_silent_voters(quorum),
    )


def _silent_voters(quorum: QuorumDescription | None) -> list[int]:
    """The controllers that the active one does not hear."""
    if quorum is None:
        return []
    return [voter for voter, is_heard in quorum.voters_heard().items() if not is_heard]


async def _faults(
    desk: Desk, topics: Sequence[TopicDescription]
) -> tuple[list[Fault], Trouble | None]:
    try:
        return await find_faults(desk.admin, topics), None
    except (SteleError, RpcError) as error:
        return [], trouble_of(error)


async def _quorum(desk: Desk) -> tuple[QuorumDescription | None, Trouble | None]:
    """Without an active controller nobody describes the quorum. The other parts are shown."""
    try:
        return await desk.admin.describe_quorum(), None
    except (SteleError, RpcError) as error:
        return None, trouble_of(error)


ROUTES: Final[list[BaseRoute]] = [Route("/", cluster_page)]
