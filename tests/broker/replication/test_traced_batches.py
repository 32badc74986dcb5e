"""The spans of a traced batch at its leader and at its followers."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest

from broker.replication.produce_tracing import CopySpans, traced_from
from broker.replication.types import ProduceEntry, ProduceResult
from stele.errors import ErrorCode
from stele.wire.kafka.messages import fetch as wire
from tests.support.batches import make_batch
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.support.replication import ends, with_topic
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


async def start_with_tracers(cluster: ReplicaCluster) -> dict[int, Exported]:
    """Start the followers again, each with a tracer that joins every trace and begins none."""
    exported = {each: Exported(ratio=0.0) for each in (2, 3)}
    for broker_id, each in exported.items():
        node = cluster[broker_id]
        node.kill()
        cluster.fence(broker_id)
        node.tracer = each.tracer
        await node.start()
        cluster.register(node)
    await until(lambda: set(cluster.state().isr) == {1, 2, 3})
    assert not any(each.spans for each in exported.values()), "nothing was traced yet"
    return exported


@with_topic
async def test_followers_add_their_steps_to_the_trace(cluster: ReplicaCluster) -> None:
    exported = await start_with_tracers(cluster)
    leader = Exported()
    assert await produced(cluster, leader, -1, make_batch()) is ErrorCode.NONE
    await until(lambda: all(len(each.spans) == 2 for each in exported.values()))
    (request,) = leader.named("PRODUCE")
    for each in exported.values():
        append, sync = each.spans
        assert (append.name, sync.name) == ("append", "sync")
        for step in each.spans:
            assert step.context.trace_id == request.context.trace_id
            assert step.parent.span_id == request.context.span_id
            assert step.parent.is_remote
            assert dict(step.attributes) == {"stele.topic": "orders", "stele.partition": 0}
        assert append.end_time <= sync.start_time <= sync.end_time


@with_topic
async def test_a_batch_that_is_not_traced_brings_no_steps_of_followers(
    cluster: ReplicaCluster,
) -> None:
    exported = await start_with_tracers(cluster)
    assert await produced(cluster, Exported(), -1, make_batch()) is ErrorCode.NONE
    await until(lambda: all(len(each.spans) == 2 for each in exported.values()))
    for _ in range(3):
        assert (await cluster[1].produce()).error is ErrorCode.NONE
    assert all(len(each.spans) == 2 for each in exported.values())


@with_topic
async def test_a_copy_has_steps_only_with_the_batch_and_a_context(cluster: ReplicaCluster) -> None:
    exported = Exported()
    request = exported.tracer.begin("PRODUCE", {}, of_follower=False)
    assert request is not None
    replica = cluster[1].replica()
    assert (await cluster[1].produce()).error is ErrorCode.NONE

    def is_written(base_offset: int, context: str) -> bool:
        traced = wire.TracedBatch(base_offset=base_offset, context=context)
        return CopySpans(exported.tracer, replica, traced).written()

    end = replica.log.end_offset
    assert not is_written(end, request.context), "the answer ended before the batch"
    assert not exported.spans
    assert not is_written(end - 1, "not a context")
    assert is_written(end - 1, request.context)
    assert [each.name for each in exported.spans] == ["append"]


@with_topic
async def test_a_follower_without_a_tracer_copies_a_traced_batch(cluster: ReplicaCluster) -> None:
    assert await produced(cluster, Exported(), -1, make_batch()) is ErrorCode.NONE
    assert all(cluster[each].replica().traced is None for each in (2, 3))


@with_topic
async def test_a_leader_tells_the_trace_to_followers_that_lack_the_batch_only(
    cluster: ReplicaCluster,
) -> None:
    exported = Exported()
    assert await produced(cluster, exported, -1, make_batch()) is ErrorCode.NONE
    replica = cluster[1].replica()
    traced = traced_from(replica, 0)
    assert traced is not None
    (request,) = exported.named("PRODUCE")
    assert traced.context == (
        f"00-{request.context.trace_id:032x}-{request.context.span_id:016x}-01"
    )
    assert traced_from(replica, 1) is None
    replica.traced = traced._replace(leader_epoch=traced.leader_epoch - 1)
    assert traced_from(replica, 0) is None, "the offset may be another batch's by now"
    replica.traced = traced
    assert (await cluster[1].fetch(0)).traced is None, "of a consumer"
    epoch = cluster[2].epoch
    follower = await cluster[1].fetch(0, epoch=0, replica_id=2, replica_epoch=epoch)
    assert follower.traced == traced


@with_topic
async def test_without_tracers_nothing_of_tracing_is_called(cluster: ReplicaCluster) -> None:
    called: set[str] = set()
    made = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal made
        made += 1
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.name in ("tracing.py", "produce_tracing.py"):
            called.add(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        for acks in (-1, 1, 0):
            assert (await cluster[1].produce(acks=acks)).error is ErrorCode.NONE
        await until(lambda: ends(cluster, 1, 2, 3) == [3, 3, 3])
    finally:
        sys.setprofile(None)
    assert made > 1000, "calls were seen"
    assert called == set()
