"""The spans of the requests of Kafka's protocol."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest

from broker.api import KafkaApis
from broker.replication.types import FetchResult
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.batch import BatchBuilder
from stele.wire.compression import Compression
from stele.wire.kafka.messages import fetch, list_groups, produce
from tests.support.batches import make_batch
from tests.support.broker_apis import Edges, topic_id
from tests.support.traces import Exported
from tests.support.worlds import virtual

pytest.importorskip("opentelemetry.sdk.trace")

A0 = PartitionId(topic_id("a"), 0)


def traced(exported: Exported) -> Edges:
    edges = Edges()
    edges.add_topic("a", [[1]])
    edges.context = replace(edges.context, tracer=exported.tracer)
    edges.apis = KafkaApis(edges.context)
    edges.apis.open()
    return edges


def to_produce() -> produce.ProduceRequest:
    data = [produce.PartitionProduceData(0, bytes(make_batch()))]
    topic = produce.TopicProduceData("a", topic_id("a"), data)
    return produce.ProduceRequest(acks=-1, timeout_ms=1500, topic_data=[topic])


def to_fetch(replica_id: int = -1) -> fetch.FetchRequest:
    topic = fetch.FetchTopic("a", topic_id("a"), [fetch.FetchPartition(0)])
    return fetch.FetchRequest(replica_id=replica_id, max_bytes=1 << 20, topics=[topic])


@virtual
async def test_a_request_has_a_span_and_its_batches_know_it() -> None:
    exported = Exported()
    edges = traced(exported)
    await edges.client().call(produce.API, 9, to_produce())
    ((entries, _, _),) = edges.replicas.produce.produced
    assert entries[0].span is not None
    (span,) = exported.spans
    assert span.name == "PRODUCE"
    attributes = dict(span.attributes)
    assert (attributes["stele.client_id"], attributes["stele.listener"]) == ("test", "EXTERNAL")
    assert exported.tracer.current is None


@virtual
async def test_a_fetch_that_waits_says_so() -> None:
    exported = Exported()
    edges = traced(exported)
    edges.replicas.fetch.results[A0] = FetchResult(A0, ErrorCode.NONE, 9, 9, 0)
    edges.replicas.hold()
    client = edges.client()
    client.send(fetch.API, 12, to_fetch())
    await asyncio.sleep(3)
    edges.replicas.release()
    await client.receive(fetch.API, 12)
    wait, whole = exported.spans
    assert (wait.name, whole.name) == ("wait", "FETCH")
    assert wait.parent.span_id == whole.context.span_id
    assert (wait.end_time - wait.start_time) / 1e9 == pytest.approx(3, abs=0.1)


@virtual
async def test_requests_with_tasks_are_traced_and_followers_are_not() -> None:
    exported = Exported()
    edges = traced(exported)
    await edges.client().call(list_groups.API, 4, list_groups.ListGroupsRequest())
    await edges.client().call(fetch.API, 12, to_fetch(replica_id=2))
    assert [each.name for each in exported.spans] == ["LIST_GROUPS"]


@virtual
async def test_what_is_not_sampled_has_no_span() -> None:
    exported = Exported(ratio=0.5, choose=lambda: 0.5)
    edges = traced(exported)
    await edges.client().call(produce.API, 9, to_produce())
    ((entries, _, _),) = edges.replicas.produce.produced
    assert entries[0].span is None
    assert not exported.spans


CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def with_header(
    name: str = "traceparent", *, compression: Compression = Compression.NONE
) -> produce.ProduceRequest:
    builder = BatchBuilder()
    headers = [("other", None), (name, CONTEXT.encode())]
    builder.append(b"key", b"value", timestamp_ms=1_000_000, headers=headers)
    builder.append(b"key", b"value", timestamp_ms=1_000_000)
    data = [produce.PartitionProduceData(0, bytes(builder.build(compression)))]
    topic = produce.TopicProduceData("a", topic_id("a"), data)
    return produce.ProduceRequest(acks=-1, timeout_ms=1500, topic_data=[topic])


@virtual
async def test_a_request_joins_the_trace_of_its_client_where_that_is_asked_for() -> None:
    exported = Exported(ratio=0.0, context_header="traceparent")
    client = traced(exported).client()
    await client.call(produce.API, 9, to_produce())
    await client.call(produce.API, 9, with_header("tracestate"))
    await client.call(produce.API, 9, with_header(compression=Compression.GZIP))
    assert not exported.spans, "the client has not decided, and none is sampled"
    await client.call(produce.API, 9, with_header())
    (span,) = exported.spans
    assert (span.name, span.context.trace_id) == ("PRODUCE", int(CONTEXT[3:35], 16))


@virtual
async def test_headers_are_not_read_by_default() -> None:
    exported = Exported(ratio=1.0)
    await traced(exported).client().call(produce.API, 9, with_header())
    (span,) = exported.spans
    assert span.parent is None


@pytest.mark.parametrize("size", [0, 20, 61, 62, 70])
@virtual
async def test_a_request_that_is_cut_off_has_no_context(size: int) -> None:
    exported = Exported(ratio=0.0, context_header="traceparent")
    request = with_header()
    (data,) = request.topic_data[0].partition_data
    assert isinstance(data.records, bytes)
    data.records = data.records[:size]
    answer = await traced(exported).client().call(produce.API, 9, request)
    assert answer.responses
    assert not exported.spans


@virtual
async def test_without_a_tracer_no_request_is_looked_at() -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    client = edges.client()
    called: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.name in ("tracing.py", "trace_context.py"):
            called.add(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        await client.call(produce.API, 9, with_header())
    finally:
        sys.setprofile(None)
    assert called == set()
    ((entries, _, _),) = edges.replicas.produce.produced
    assert entries[0].span is None
