"""The spans of a traced batch at its leader."""

from __future__ import annotations

import pytest

from broker.replication.types import ProduceEntry, ProduceResult
from stele.errors import ErrorCode
from tests.support.batches import make_batch
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.support.replication import with_topic
from tests.support.timing import until
from tests.support.traces import Exported

pytest.importorskip("opentelemetry.sdk.trace")


async def produced(
    cluster: ReplicaCluster, exported: Exported, acks: int, batch: bytearray, timeout_ms: int = 9000
) -> ErrorCode:
    entry = ProduceEntry(P0, batch)
    entry.span = exported.tracer.begin("PRODUCE", {}, of_follower=False)
    assert entry.span is not None
    produce = cluster[1].manager.produce
    results: list[ProduceResult] = await cluster[1].do(
        lambda done: produce.begin([entry], acks, timeout_ms, done)
    )
    entry.span.end(results[0].error.name)
    return results[0].error


@with_topic
async def test_a_batch_is_appended_synced_and_replicated(cluster: ReplicaCluster) -> None:
    exported = Exported()
    assert await produced(cluster, exported, -1, make_batch()) is ErrorCode.NONE
    await until(lambda: len(exported.spans) == 4)
    (append,), (sync,), (replicate,), (request,) = map(
        exported.named, ("append", "sync", "replicate", "PRODUCE")
    )
    assert {each.parent.span_id for each in (append, sync, replicate)} == {request.context.span_id}
    assert dict(append.attributes) == {"stele.topic": "orders", "stele.partition": 0}
    assert append.end_time <= sync.end_time <= replicate.end_time <= request.end_time
    assert replicate.status.is_ok
    assert exported.tracer.replicating == 0


@with_topic
async def test_with_acks_1_a_batch_waits_for_the_leaders_disk(cluster: ReplicaCluster) -> None:
    exported = Exported()
    assert await produced(cluster, exported, 1, make_batch()) is ErrorCode.NONE
    assert [each.name for each in exported.spans] == ["append", "sync", "PRODUCE"]


@with_topic
async def test_with_acks_0_a_batch_waits_for_nothing(cluster: ReplicaCluster) -> None:
    exported = Exported()
    assert await produced(cluster, exported, 0, make_batch()) is ErrorCode.NONE
    assert [each.name for each in exported.spans] == ["append", "PRODUCE"]


@with_topic
async def test_a_refused_batch_ends_its_spans(cluster: ReplicaCluster) -> None:
    exported = Exported()
    batch = make_batch(producer=(7, 0, 0))
    assert await produced(cluster, exported, 0, batch) is ErrorCode.NONE
    late = make_batch(producer=(7, 0, 5))
    error = await produced(cluster, exported, -1, late)
    assert error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(exported.named("append")) == 2
    assert not exported.named("replicate")


@with_topic
async def test_a_batch_that_is_not_replicated_in_time_ends_its_wait(
    cluster: ReplicaCluster,
) -> None:
    cluster[2].kill()
    cluster[3].kill()
    exported = Exported()
    error = await produced(cluster, exported, -1, make_batch(), timeout_ms=200)
    assert error is ErrorCode.REQUEST_TIMED_OUT
    (replicate,) = exported.named("replicate")
    assert replicate.status.description == "REQUEST_TIMED_OUT"
    assert exported.tracer.replicating == 0
