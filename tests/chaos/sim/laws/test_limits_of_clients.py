"""The laws of clients that push metrics, of clients with many producers, and of turns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.newcomers import NewcomersStayWithinTheirLimits
from chaos.sim.laws.scene import Scene
from chaos.sim.laws.telemetry import Kind, PushesAreTakenInTheirTime
from chaos.sim.laws.turns import RequestsGetTheirTurn
from stele.errors import ErrorCode


@pytest.fixture
def broken() -> list[str]:
    return []


@pytest.fixture
def scene(broken: list[str]) -> Scene:
    return cast(Scene, SimpleNamespace(report=broken.append))


@pytest.mark.parametrize(
    ("kind", "allowed", "wrong"),
    [
        (Kind.ASK, ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED),
        (Kind.IN_TIME, ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED),
        (Kind.IN_TIME, ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.INVALID_REQUEST),
        (Kind.EARLY, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.NONE),
        (Kind.LARGE, ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.NONE),
        (Kind.AFTER_LAST, ErrorCode.INVALID_REQUEST, ErrorCode.NONE),
    ],
)
def test_pushes_are_answered_by_their_kind(
    kind: Kind, allowed: ErrorCode, wrong: ErrorCode, scene: Scene, broken: list[str]
) -> None:
    law = PushesAreTakenInTheirTime.of(scene)
    law.answered(1, kind, allowed)
    assert not broken
    law.answered(1, kind, wrong)
    assert broken == [f"broker 1 answers {wrong.name} to a client that {kind.value}"]
    assert law.looked == 2


def test_the_newest_subscription_is_asked_for(scene: Scene, broken: list[str]) -> None:
    law = PushesAreTakenInTheirTime.of(scene)
    law.settled(1, 700, 700)
    assert not broken
    law.settled(1, 500, 700)
    assert len(broken) == 1


@pytest.mark.parametrize(("since_s", "most"), [(0.0, 13), (10.0, 23)])
def test_a_client_brings_no_more_producers_than_its_quota(
    since_s: float, most: int, scene: Scene, broken: list[str]
) -> None:
    law = NewcomersStayWithinTheirLimits.of(scene)
    law.taken(1, 1.0, most, since_s)
    assert not broken
    law.taken(1, 1.0, most + 1, since_s)
    assert len(broken) == 1


def test_a_producer_that_is_known_is_not_refused_for_others(
    scene: Scene, broken: list[str]
) -> None:
    law = NewcomersStayWithinTheirLimits.of(scene)
    law.known(1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not broken
    law.known(1, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert len(broken) == 1


def node(*, waiting: int, is_going_on: bool, has_request: bool, awaits: bool) -> SimCluster:
    turns = SimpleNamespace(waiting=waiting, is_going_on=is_going_on)
    connection = SimpleNamespace(
        requests=1, client_id="c", has_request=has_request, awaits_turn=awaits
    )
    connections = SimpleNamespace(open=[connection])
    broker = SimpleNamespace(has_begun=True, turns=turns, connections=connections)
    nodes = {1: SimpleNamespace(host="b1", broker=broker), 2: SimpleNamespace(broker=None)}
    return cast(SimCluster, SimpleNamespace(brokers=nodes))


@pytest.mark.parametrize(
    ("cluster", "breaks"),
    [
        (node(waiting=0, is_going_on=False, has_request=False, awaits=False), False),
        (node(waiting=1, is_going_on=True, has_request=True, awaits=True), False),
        (node(waiting=1, is_going_on=False, has_request=True, awaits=True), True),
        (node(waiting=0, is_going_on=True, has_request=True, awaits=False), True),
    ],
)
def test_requests_get_their_turn(cluster: SimCluster, breaks: bool, broken: list[str]) -> None:
    law = RequestsGetTheirTurn()
    law.look(cluster, broken.append)
    assert bool(broken) is breaks
    assert law.looked == 1
