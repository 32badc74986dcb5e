"""The cluster's page tells of controllers that the active one does not hear."""

from __future__ import annotations

from collections.abc import Sequence

from stele.admin.client_connections import ListenerCertificate
from stele.admin.descriptions import BrokerDescription, ClusterDescription, TopicDescription
from stele.admin.quorum import QuorumDescription, ReplicaDescription
from tests.support.console import FakeClients, browser, console_settings

NOW_MS = 1_700_000_060_000


def voter(node_id: int, fetched_ms: int) -> ReplicaDescription:
    return ReplicaDescription(
        replica_id=node_id,
        directory_id="",
        endpoint="",
        log_end_offset=7,
        last_fetch_time_ms=fetched_ms,
        last_caught_up_time_ms=fetched_ms,
    )


class Quorum:
    """Three controllers led by 1. The third one has last fetched at ``third_ms``."""

    def __init__(self, third_ms: int) -> None:
        self._third_ms = third_ms

    async def describe_cluster(self, *, linearizable: bool) -> ClusterDescription:
        broker = BrokerDescription(101, "b", 1, "b", 2, "", False, False, 1)
        return ClusterDescription("c", 1, (broker,), 0)

    async def list_topics(self, *, linearizable: bool) -> list[TopicDescription]:
        return []

    async def describe_quorum(self) -> QuorumDescription:
        voters = (voter(1, 0), voter(2, NOW_MS), voter(3, self._third_ms))
        return QuorumDescription(
            leader_id=1, epoch=3, high_watermark=7, voters=voters, observers=()
        )

    async def describe_certificates(
        self, broker_ids: Sequence[int]
    ) -> dict[int, list[ListenerCertificate]]:
        return {each: [] for each in broker_ids}


async def page(third_ms: int) -> str:
    settings = console_settings()
    async with browser(settings, FakeClients(settings, Quorum(third_ms))) as console:
        return await console.text("/")


async def test_a_silent_controller_is_what_is_wrong() -> None:
    told = await page(NOW_MS - 60_000)
    assert "Controller 3: the active controller does not hear of it." in told
    assert "not heard" in told
    assert "Controller 2" not in told
    assert "Nothing: every partition" not in told


async def test_nothing_is_wrong_while_all_are_heard() -> None:
    told = await page(NOW_MS - 1_000)
    assert "does not hear" not in told
    assert "Nothing: every partition" in told
