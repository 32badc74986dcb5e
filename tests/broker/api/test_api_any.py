"""Any request that can be decoded gets an answer that can be encoded, and breaks no handler."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.api import SERVED
from broker.api.handler import Served
from metadata.features import SHARE_VERSION
from tests.support.broker_apis import Edges, aim, topic_id
from tests.support.wire import messages, unexpected_nulls
from tests.support.worlds import virtual

KNOWN_TOPIC = "a"


@pytest.mark.parametrize("served", SERVED, ids=lambda each: each.api.key.name)
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(data=st.data())
@virtual
async def test_any_request(served: Served, data: st.DataObject) -> None:
    version = data.draw(st.integers(served.api.min_version, served.versions[1]))
    request = data.draw(messages(served.api, version, "request"))
    if data.draw(st.booleans()):
        aim(request, KNOWN_TOPIC, topic_id(KNOWN_TOPIC))

    edges = Edges()
    edges.finalize(SHARE_VERSION, 1)
    edges.add_topic(KNOWN_TOPIC, [[1], [2, 1]])
    client = edges.client()
    client.send(served.api, version, request)
    if getattr(request, "acks", 1) != 0:
        answer = await client.receive(served.api, version)
        assert unexpected_nulls(served.api, version, answer) == []
        assert not client.transport.closed
    await asyncio.sleep(0)
    failures = edges.registry.values()
    assert not [name for name in failures if name.startswith("stele_request_failures")]
