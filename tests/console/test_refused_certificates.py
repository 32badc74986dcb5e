"""The cluster's page tells of certificates that brokers have refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from console.certificates import ANSWER_S, refused_certificates
from stele.admin.client_connections import ListenerCertificate
from stele.admin.descriptions import BrokerDescription, ClusterDescription, TopicDescription
from stele.errors import ApiError, ErrorCode
from tests.support.console import FakeClients, browser, console_settings
from tests.support.worlds import virtual

TAKEN = ListenerCertificate("CLIENTS", 1_700_000_000_000, None)
REFUSED = ListenerCertificate("NODES", 1_700_000_000_000, "it lacks the names DNS:a")


class Brokers:
    """Broker 1 has refused a certificate, 2 hangs, 3 denies, and 4 is well."""

    async def describe_cluster(self, *, linearizable: bool) -> ClusterDescription:
        brokers = [
            BrokerDescription(each, "b", 1, "b", 2, "", False, False, each) for each in (1, 3, 4)
        ]
        return ClusterDescription("c", 1, tuple(brokers), 0)

    async def list_topics(self, *, linearizable: bool) -> list[TopicDescription]:
        return []

    async def describe_quorum(self) -> None:
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")

    async def describe_certificates(
        self, broker_ids: Sequence[int]
    ) -> dict[int, list[ListenerCertificate]]:
        (broker_id,) = broker_ids
        if broker_id == 2:
            await asyncio.Event().wait()
        if broker_id == 3:
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")
        return {broker_id: [TAKEN, REFUSED] if broker_id == 1 else [TAKEN]}


@virtual
async def test_a_broker_that_hangs_holds_up_no_other() -> None:
    admin: Any = Brokers()
    began = asyncio.get_running_loop().time()
    told = await refused_certificates(admin, [4, 3, 2, 1])
    assert asyncio.get_running_loop().time() - began == ANSWER_S
    assert told.found == [(1, REFUSED)]
    assert sorted(told.untold) == [2, 3]
    assert told.untold[2] == "no answer within 2 s"
    assert "CLUSTER_AUTHORIZATION_FAILED" in told.untold[3]


async def test_the_first_page_names_listener_and_reason() -> None:
    settings = console_settings()
    async with browser(settings, FakeClients(settings, Brokers())) as console:
        told = await console.text("/")
    assert (
        "Broker 1 has refused the new certificate of its listener NODES: it lacks the names DNS:a."
    ) in told
    assert "until 2023-11-14 22:13" in told
    assert "Whether broker 3 has refused a certificate is not known" in told
    assert "broker 4 has" not in told
    assert "Nothing: every partition" not in told
