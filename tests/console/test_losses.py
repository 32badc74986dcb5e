"""What would be lost if nodes died, as the page says it of one node and of a quorum."""

from __future__ import annotations

from stele.admin.quorum import QuorumDescription, ReplicaDescription
from tests.console.test_pages_of_a_node import create
from tests.support.console import console_of
from tests.support.one_node import on_a_node
from world.world import World


@on_a_node
async def test_the_only_node_takes_everything_with_it(world: World) -> None:
    async with console_of(world) as console:
        await create(console, "orders", 60)
        assert "No node is switched off." in await console.text("/losses")
        told = await console.text("/losses?node=1")
        assert "0 of 1 controllers are left: no metadata can change" in told
        assert "partitions that cannot be read 60" in told
        assert "orders-0 no no kept 0 -" in told
        assert "1 to 50 of 60 next" in told
        page = await console.get("/losses?node=1")
        assert 'href="/losses?page=2&amp;node=1"' in page
        assert "51 to 60 of 60" in await console.text("/losses?page=2&node=1")


@on_a_node
async def test_ids_and_racks_that_are_not_there_are_passed_by(world: World) -> None:
    async with console_of(world) as console:
        told = await console.text("/losses?node=7&node=%3Cb%3E&rack=nowhere")
        assert "No node is switched off." in told


def test_a_voter_that_has_not_fetched_of_late_is_not_there() -> None:
    replicas = [
        ReplicaDescription(voter, "", "", None, fetched_ms, None)
        for voter, fetched_ms in ((1, None), (2, 50_000), (3, 39_999), (4, 40_000), (5, None))
    ]
    quorum = QuorumDescription(1, 3, 100, tuple(replicas), ())
    assert quorum.voters_heard() == {1: True, 2: True, 3: False, 4: True, 5: False}
    assert quorum.voters_heard(within_ms=9_999)[4] is False
