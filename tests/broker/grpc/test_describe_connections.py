"""DescribeConnections: who is connected, and what each connection has done so far."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import pytest

from broker.grpc.admin import AdminService
from broker.service import client_connections
from metadata.acls import Acls, acls_of
from runtime.authorization.acl_authorizer import AclAuthorizer
from runtime.authorization.authorizer import CLUSTER, Operation, topic_resource
from runtime.authorization.caller import NODE_ITSELF, Caller, Plane
from security.authorizer.decision import Policy
from stele.errors import ErrorCode
from stele.wire.kafka.messages import api_versions, list_config_resources
from stele.wire.kafka.messages import get_telemetry_subscriptions as getting
from stele.wire.kafka.messages import push_telemetry as pushing
from stele.wire.otlp import Metric, metrics_data
from stele.wire.v1 import admin_pb2 as pb
from tests.support.acls import acl
from tests.support.authorizer import FakeAuthorizer
from tests.support.broker_apis import Client, Edges
from tests.support.timing import LoopClock
from tests.support.worlds import virtual
from world.network import Peer

Connection = pb.DescribeConnectionsResponse.Connection


class Bench:
    def __init__(
        self,
        authorizer: FakeAuthorizer | None = None,
        acl_authorizer: AclAuthorizer | None = None,
        **settings: str,
    ) -> None:
        """``acl_authorizer``: in the place of the fake one."""
        self.edges = Edges(authorizer, **settings)
        self.clients: list[Client] = []
        context = replace(
            self.edges.context, connections=lambda: [each.protocol for each in self.clients]
        )
        if acl_authorizer is not None:
            context = replace(context, authorizer=acl_authorizer)
        self._service = AdminService(context, "EXTERNAL").service()

    async def connected(self, peer: str = "") -> Client:
        client = self.edges.client()
        client.protocol.peer = peer or f"10.0.0.9:{len(self.clients)}"
        self.clients.append(client)
        return client

    async def describe(
        self, after: str = "", client_id: str | None = None
    ) -> pb.DescribeConnectionsResponse:
        request = pb.DescribeConnectionsRequest(after=after, client_id=client_id)
        payload = await self._service.unary["/stele.v1.Admin/DescribeConnections"](
            request.SerializeToString(), Peer("10.0.0.1", "User:ann")
        )
        return pb.DescribeConnectionsResponse.FromString(payload)


@virtual
async def test_a_connection_says_who_it_is_and_what_it_did() -> None:
    bench = Bench()
    client = await bench.connected()
    await client.call(api_versions.API, 3, api_versions.ApiVersionsRequest("java", "4.1"))
    await asyncio.sleep(2.5)
    unknown = list_config_resources.ListConfigResourcesRequest([99])
    refused = await client.call(list_config_resources.API, 1, unknown)
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
    await asyncio.sleep(0.5)
    (told,) = (await bench.describe()).connections
    assert told.bytes_in > 20
    assert told.bytes_out > 100
    told.bytes_in = told.bytes_out = 0
    assert told == Connection(
        principal="User:ANONYMOUS",
        client_id="test",
        software_name="java",
        software_version="4.1",
        listener="EXTERNAL",
        peer="10.0.0.9:0",
        connected_ms=3000,
        idle_ms=500,
        requests=2,
        errors=1,
    )


@virtual
async def test_the_time_of_throttles_is_added_up_without_their_overlap() -> None:
    """Example: 2 s, and after 1 s of them 3 s, are 4 s and one throttle."""
    bench = Bench()
    protocol = (await bench.connected()).protocol
    protocol.mute(2.0)
    protocol.mute(1.0)
    await asyncio.sleep(1.0)
    protocol.mute(3.0)
    (told,) = (await bench.describe()).connections
    assert (told.throttles, told.throttled_ms, told.is_throttled) == (1, 4000, True)
    await asyncio.sleep(3.5)
    protocol.mute(0.5)
    await asyncio.sleep(1.0)
    (told,) = (await bench.describe()).connections
    assert (told.throttles, told.throttled_ms, told.is_throttled) == (2, 4500, False)


LAG = "org.apache.kafka.consumer.fetch.manager.records.lag.max"
LATENCY = "org.apache.kafka.producer.node.request.latency.avg"


async def push(client: Client, *metrics: Metric) -> None:
    asked = await client.call(getting.API, 0, getting.GetTelemetrySubscriptionsRequest())
    request = pushing.PushTelemetryRequest(
        asked.client_instance_id,
        asked.subscription_id,
        metrics=metrics_data(metrics, resource={}, since_ns=1, now_ns=2),
    )
    assert (await client.call(pushing.API, 0, request)).error_code == ErrorCode.NONE


@virtual
async def test_connections_show_the_worst_that_their_clients_push() -> None:
    bench = Bench(telemetry_receiver="prometheus")
    first, second, other = [await bench.connected() for _ in range(3)]
    other.protocol.principal = "User:ann"
    await push(first, Metric(LAG, 7.0, {"topic": "t"}), Metric(LAG, 9.0, {"topic": "u"}))
    (told, *_) = (await bench.describe()).connections
    assert (told.pushed_lag, told.HasField("pushed_latency_ms")) == (9, False)
    await push(
        second, Metric(LAG, 3.0), Metric(LATENCY, 2.5), Metric(LATENCY, math.nan, {"n": "2"})
    )
    await push(other, Metric("org.apache.kafka.producer.record.send.rate", 5.0))
    one, two, three = (await bench.describe()).connections
    assert (one.pushed_lag, one.pushed_latency_ms) == (9, 2.5)
    assert (two.pushed_lag, two.pushed_latency_ms) == (9, 2.5)
    assert not three.HasField("pushed_lag")


@virtual
async def test_connections_show_what_their_clients_were_denied_last() -> None:
    acls = Acls()
    policy = Policy(frozenset(["User:ANONYMOUS"]))  # which asks
    authorizer = AclAuthorizer(policy, lambda: acls, LoopClock())
    bench = Bench(acl_authorizer=authorizer)
    denied, other = await bench.connected(), await bench.connected()
    denied.protocol.principal = other.protocol.principal = "User:bob"
    denied.protocol.client_id, other.protocol.client_id = "app", "other"
    caller = Caller("User:bob", "app", "EXTERNAL", Plane.KAFKA, "10.0.0.9")
    for name in ("payments", "orders"):
        # The controller decides over the ACLs of other images, too.
        authorizer.over(Acls()).note_denial(caller, Operation.READ, topic_resource(name))
    await asyncio.sleep(2)
    told, nothing = (await bench.describe()).connections
    assert told.denials == pb.DescribeConnectionsResponse.Denials(
        times=2,
        operation="READ",
        resource_type="TOPIC",
        resource_name="orders",
        ago_ms=2000,
        rule="DefaultDeny",
    )
    assert not nothing.HasField("denials")
    acls = acls_of([(acl("orders", Operation.READ, principal="User:bob"), bytes(16))])
    told, _ = (await bench.describe()).connections
    assert (told.denials.times, told.denials.rule) == (2, "")


@virtual
async def test_only_the_connections_of_one_client() -> None:
    bench = Bench()
    silent = await bench.connected()
    talking = await bench.connected()
    await talking.call(api_versions.API, 3, api_versions.ApiVersionsRequest("s", "1"))
    assert silent.protocol.client_id == ""
    assert [each.peer for each in (await bench.describe(client_id="test")).connections] == [
        "10.0.0.9:1"
    ]
    assert [each.peer for each in (await bench.describe(client_id="")).connections] == [
        "10.0.0.9:0"
    ]
    assert not (await bench.describe(client_id="other")).connections


@virtual
async def test_pages_hold_every_connection_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_connections, "PAGE_MAX", 3)
    bench = Bench()
    for number in range(7):
        await bench.connected()
        if number % 2:
            await asyncio.sleep(0.1)
    own = await bench.connected("own")
    own.protocol.principal = NODE_ITSELF
    pages = [await bench.describe()]
    while pages[-1].next:
        pages.append(await bench.describe(pages[-1].next))
    assert [[each.peer[-1] for each in page.connections] for page in pages] == [
        ["0", "1", "2"],
        ["3", "4", "5"],
        ["6"],
    ]


@virtual
async def test_a_place_that_no_page_named_is_refused() -> None:
    answer = await Bench().describe("nowhere")
    assert answer.error == ErrorCode.INVALID_REQUEST
    assert "no page of connections begins at 'nowhere'" in answer.message


@virtual
async def test_the_connections_are_told_to_those_who_may_describe_the_cluster() -> None:
    authorizer = FakeAuthorizer()
    authorizer.denied.add((Operation.DESCRIBE, CLUSTER))
    bench = Bench(authorizer)
    answer = await bench.describe()
    assert answer.error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
