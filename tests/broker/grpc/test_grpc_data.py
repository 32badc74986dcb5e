"""stele.v1.Data over in-memory streams and calls."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from google.protobuf.message import Message

from broker.grpc.data import FETCH_IN_FLIGHT, DataService
from broker.replication.types import EpochEnd, FetchResult, LeaderHint, ProduceResult
from metadata.node_settings import RACK_AWARE_SELECTOR
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.v1 import data_pb2 as pb
from stele.world import RpcCode, RpcError
from storage.txn_index import AbortedTransaction
from tests.support.batches import make_batch
from tests.support.broker_apis import Edges, topic_id
from tests.support.broker_edges import PEER, FakeStream
from tests.support.timing import run_virtual

BATCH = bytes(make_batch(3))
A0 = PartitionId(topic_id("a"), 0)


class _Talk:
    """A client's end of one stream of the service."""

    def __init__(self, edges: Edges, method: str) -> None:
        service = DataService(edges.context, "EXTERNAL").service()
        self.client, server = FakeStream.pair()

        async def serve() -> None:
            try:
                await service.streams[f"/stele.v1.Data/{method}"](server, PEER)
            finally:
                await server.close()

        self.task = asyncio.get_running_loop().create_task(serve())

    async def send(self, message: Message) -> None:
        await self.client.send(message.SerializeToString())

    async def end(self) -> None:
        """Half-close the stream, as a gRPC client does after its last message."""
        self.client.peer.inbox.put_nowait(None)

    async def produced(self) -> pb.ProduceResponse:
        return pb.ProduceResponse.FromString(await self.client.receive() or b"")

    async def fetched(self) -> pb.FetchResponse:
        return pb.FetchResponse.FromString(await self.client.receive() or b"")


def _produce(correlation_id: int, *targets: pb.ProduceRequest.Partition) -> pb.ProduceRequest:
    return pb.ProduceRequest(
        correlation_id=correlation_id, acks=-1, timeout_ms=900, partitions=targets
    )


def _to(name: str, partition: int, **by: bytes) -> pb.ProduceRequest.Partition:
    return pb.ProduceRequest.Partition(topic=name, partition=partition, records=BATCH, **by)


def test_produce_by_name_and_id() -> None:
    async def main() -> None:
        edges = Edges()
        edges.add_topic("a", [[1], [2, 1]])
        a1 = PartitionId(topic_id("a"), 1)
        edges.replicas.produce.results[a1] = ProduceResult(
            a1, ErrorCode.NOT_LEADER_OR_FOLLOWER, "led by 2", leader=LeaderHint(2, 6)
        )
        talk = _Talk(edges, "Produce")
        await talk.send(
            _produce(
                9,
                _to("a", 0),
                pb.ProduceRequest.Partition(topic_id=topic_id("a"), partition=1, records=BATCH),
                _to("gone", 0),
                pb.ProduceRequest.Partition(topic_id=b"?" * 16, records=BATCH),
            )
        )
        answer = await talk.produced()
        assert answer.correlation_id == 9
        assert [p.error for p in answer.partitions] == [
            0,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
        ]
        assert answer.partitions[0].topic == "a"
        assert answer.partitions[0].topic_id == topic_id("a")
        assert answer.partitions[0].base_offset == 7
        assert (answer.partitions[1].leader, answer.partitions[1].leader_epoch) == (2, 6)
        ((entries, acks, timeout_ms),) = edges.replicas.produce.produced
        assert (acks, timeout_ms) == (-1, 900)
        entries[0].batch[0] = 1  # writable: it will be stamped
        assert edges.registry.values()['stele_requests_total{api="Data.Produce"}'] == 1
        await talk.end()
        await talk.task

    run_virtual(main())


def test_answers_overtake_and_the_end_waits_for_all_of_them() -> None:
    async def main() -> None:
        edges = Edges()
        edges.add_topic("a", [[1]])
        edges.replicas.hold()
        talk = _Talk(edges, "Produce")
        for correlation_id in (1, 2, 3):
            await talk.send(_produce(correlation_id, _to("a", 0)))
        await talk.end()
        await asyncio.sleep(0.1)
        edges.replicas.release(1)
        assert (await talk.produced()).correlation_id == 2
        edges.replicas.release(1)
        assert (await talk.produced()).correlation_id == 3
        assert not talk.task.done()
        edges.replicas.release(0)
        assert (await talk.produced()).correlation_id == 1
        await talk.task

    run_virtual(main())


def test_what_a_request_waits_is_no_local_time() -> None:
    async def main() -> None:
        edges = Edges()
        edges.add_topic("a", [[1]])
        edges.replicas.hold()
        talks = _Talk(edges, "Produce"), _Talk(edges, "Fetch")
        await talks[0].send(_produce(1, _to("a", 0)))
        await talks[1].send(_fetch(1, 0))
        await asyncio.sleep(0.25)
        for talk in talks:
            edges.replicas.release(0)
            await talk.end()
            await talk.task
        values = edges.registry.values()
        for api in ("Data.Produce", "Data.Fetch"):
            assert values[f'stele_request_local_seconds_sum{{api="{api}"}}'] == 0
            assert values[f'stele_request_remote_seconds_sum{{api="{api}"}}'] == 0.25

    run_virtual(main())


def test_what_is_answered_at_once_has_no_remote_time() -> None:
    async def main() -> None:
        edges = Edges()
        edges.add_topic("a", [[1]])
        talk = _Talk(edges, "Produce")
        await talk.send(_produce(1, _to("a", 0)))
        await talk.produced()
        values = edges.registry.values()
        assert values['stele_request_local_seconds_count{api="Data.Produce"}'] == 1
        assert values['stele_request_remote_seconds_count{api="Data.Produce"}'] == 0
        talk.task.cancel()

    run_virtual(main())


def test_invalid_acks_over_grpc() -> None:
    async def main() -> None:
        edges = Edges()
        edges.add_topic("a", [[1]])
        talk = _Talk(edges, "Produce")
        request = _produce(1, _to("a", 0))
        request.acks = 5
        await talk.send(request)
        assert (await talk.produced()).partitions[0].error == ErrorCode.INVALID_REQUIRED_ACKS
        talk.task.cancel()

    run_virtual(main())


def _fetch(correlation_id: int, *partitions: int, name: str = "a") -> pb.FetchRequest:
    return pb.FetchRequest(
        correlation_id=correlation_id,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=10_000,
        isolation_level=1,
        partitions=[
            pb.FetchRequest.Partition(
                topic=name,
                partition=partition,
                fetch_offset=3,
                current_leader_epoch=5,
                last_fetched_epoch=-1,
                max_bytes=1000,
            )
            for partition in partitions
        ],
    )


def test_fetch() -> None:
    async def main() -> None:
        edges = Edges()
        edges.add_topic("a", [[1], [1]])
        edges.replicas.fetch.results[A0] = FetchResult(
            A0,
            ErrorCode.NONE,
            10,
            9,
            1,
            records=[BATCH, memoryview(BATCH)],
            aborted=[AbortedTransaction(4711, 3, 8, 9)],
        )
        a1 = PartitionId(topic_id("a"), 1)
        edges.replicas.fetch.results[a1] = FetchResult(
            a1, ErrorCode.NONE, 10, 9, 1, diverging=EpochEnd(2, 8)
        )
        talk = _Talk(edges, "Fetch")
        await talk.send(_fetch(4, 0, 1, 2))
        answer = await talk.fetched()
        assert answer.correlation_id == 4
        first, second, missing = answer.partitions
        assert first.records == BATCH + BATCH
        (aborted,) = first.aborted_transactions
        assert (aborted.producer_id, aborted.first_offset) == (4711, 3)
        assert not second.aborted_transactions
        assert (first.high_watermark, first.last_stable_offset, first.log_start_offset) == (
            10,
            9,
            1,
        )
        assert (first.diverging_epoch, second.diverging_epoch) == (-1, 2)
        assert second.diverging_end_offset == 8
        assert missing.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        query = edges.replicas.fetch.fetched[0]
        assert (query.read_committed, query.replica_id) == (True, -1)
        assert query.max_wait_ms == 0  # the missing partition is told at once
        talk.task.cancel()

    run_virtual(main())


def test_a_client_that_says_where_it_is_reads_from_any_replica() -> None:
    async def main() -> None:
        edges = Edges(replica_selector_class=RACK_AWARE_SELECTOR, broker_rack="r1")
        edges.add_topic("a", [[1, 2], [1, 2]])
        sent = FetchResult(A0, ErrorCode.NONE, 10, 9, 1, preferred_replica=2)
        edges.replicas.fetch.results[A0] = sent
        talk = _Talk(edges, "Fetch")
        request = _fetch(4, 0, 1)
        request.rack = "r2"
        await talk.send(request)
        elsewhere, here = (await talk.fetched()).partitions
        assert elsewhere.preferred_read_replica == 2
        assert not here.HasField("preferred_read_replica")
        await talk.send(_fetch(5, 1))
        await talk.fetched()
        named, unnamed = edges.replicas.fetch.fetched
        assert (named.any_replica, named.nearby) == (True, frozenset({2}))
        assert (unnamed.any_replica, unnamed.nearby) == (False, frozenset())
        talk.task.cancel()

    run_virtual(main())


def test_a_fetch_is_withdrawn_when_the_client_goes() -> None:
    async def main() -> None:
        edges = Edges()
        edges.add_topic("a", [[1]])
        edges.replicas.hold()
        talk = _Talk(edges, "Fetch")
        await talk.send(_fetch(1, 0))
        await talk.send(_fetch(2, 0))
        await asyncio.sleep(0.1)
        talk.client.break_off()
        with pytest.raises(RpcError):
            await talk.task
        assert edges.replicas.fetch.withdrawn == 2
        assert edges.registry.values()["stele_fetch_purgatory_size"] == 0

    run_virtual(main())


def test_requests_in_flight_are_bounded() -> None:
    async def main() -> None:
        edges = Edges()
        edges.add_topic("a", [[1]])
        edges.replicas.hold()
        talk = _Talk(edges, "Fetch")
        for correlation_id in range(FETCH_IN_FLIGHT + 5):
            await talk.send(_fetch(correlation_id, 0))
        await asyncio.sleep(0.1)
        assert len(edges.replicas.fetch.fetched) == FETCH_IN_FLIGHT
        edges.replicas.release()
        await talk.fetched()
        await asyncio.sleep(0.1)
        assert len(edges.replicas.fetch.fetched) == FETCH_IN_FLIGHT + 1
        talk.task.cancel()

    run_virtual(main())


@pytest.mark.parametrize("method", ["Produce", "Fetch"])
def test_garbage_ends_the_stream_with_invalid_argument(method: str) -> None:
    async def main() -> None:
        talk = _Talk(Edges(), method)
        await talk.client.send(b"\xff\xff\xff")
        with pytest.raises(RpcError) as caught:
            await talk.task
        assert caught.value.code is RpcCode.INVALID_ARGUMENT

    run_virtual(main())


@pytest.mark.parametrize(
    "method", ["Metadata", "ListOffsets", "OffsetForLeaderEpoch", "InitProducerId"]
)
def test_garbage_in_a_call(method: str) -> None:
    async def main() -> None:
        service = DataService(Edges().context, "EXTERNAL").service()
        with pytest.raises(RpcError) as caught:
            await service.unary[f"/stele.v1.Data/{method}"](b"\xff\xff\xff", PEER)
        assert caught.value.code is RpcCode.INVALID_ARGUMENT

    run_virtual(main())


async def _call(edges: Edges, method: str, request: Message, listener: str = "EXTERNAL") -> bytes:
    service = DataService(edges.context, listener).service()
    return await service.unary[f"/stele.v1.Data/{method}"](request.SerializeToString(), PEER)


@pytest.mark.parametrize("request_type", [pb.MetadataRequest, pb.ListOffsetsRequest])
def test_a_broker_that_has_just_started_does_not_say_that_a_topic_is_gone(
    request_type: type[pb.MetadataRequest | pb.ListOffsetsRequest],
) -> None:
    async def main() -> None:
        edges = Edges()
        edges.context = replace(edges.context, caught_up=lambda: False)
        method = request_type.__name__.removesuffix("Request")
        with pytest.raises(RpcError, match="not caught up") as caught:
            await _call(edges, method, request_type())
        assert caught.value.code is RpcCode.UNAVAILABLE

    run_virtual(main())


def test_metadata_tells_the_grpc_addresses_of_the_listener() -> None:
    async def main() -> None:
        edges = Edges()
        edges.register(3, fenced=True)
        edges.add_topic("a", [[1, 2], [2]], leaders=[1, -1])
        edges.add_topic("b", [[1]])
        answer = pb.MetadataResponse.FromString(
            await _call(edges, "Metadata", pb.MetadataRequest())
        )
        assert answer.cluster_id == "the-cluster"
        assert answer.controller_id == 100
        assert [(b.broker_id, b.grpc_host, b.grpc_port, b.rack) for b in answer.brokers] == [
            (1, "b1.external", 19192, "r1"),
            (2, "b2.external", 19192, "r2"),
        ]
        assert [topic.name for topic in answer.topics] == ["a", "b"]
        first, second = answer.topics[0].partitions
        assert (first.leader, first.leader_epoch, list(first.isr)) == (1, 5, [1, 2])
        assert second.error == ErrorCode.LEADER_NOT_AVAILABLE

        named = pb.MetadataResponse.FromString(
            await _call(edges, "Metadata", pb.MetadataRequest(topics=["b", "gone"]), "INTERNAL")
        )
        assert named.brokers[0].grpc_host == "b1.internal"
        assert [topic.error for topic in named.topics] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert not edges.controller.created

    run_virtual(main())


def test_offsets_epochs_and_producer_ids() -> None:
    async def main() -> None:
        edges = Edges()
        edges.add_topic("a", [[1]])
        offsets = pb.ListOffsetsResponse.FromString(
            await _call(
                edges,
                "ListOffsets",
                pb.ListOffsetsRequest(
                    partitions=[
                        pb.ListOffsetsRequest.Partition(
                            topic="a", current_leader_epoch=-1, timestamp_ms=-2
                        ),
                        pb.ListOffsetsRequest.Partition(topic="a", partition=4, timestamp_ms=-2),
                        pb.ListOffsetsRequest.Partition(topic="a", timestamp_ms=-4),
                    ]
                ),
            )
        )
        assert (offsets.partitions[0].offset, offsets.partitions[0].leader_epoch) == (42, 3)
        assert offsets.partitions[1].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert offsets.partitions[2].error == ErrorCode.UNSUPPORTED_VERSION

        ends = pb.OffsetForLeaderEpochResponse.FromString(
            await _call(
                edges,
                "OffsetForLeaderEpoch",
                pb.OffsetForLeaderEpochRequest(
                    partitions=[
                        pb.OffsetForLeaderEpochRequest.Partition(topic="a", leader_epoch=2),
                        pb.OffsetForLeaderEpochRequest.Partition(topic="gone"),
                    ]
                ),
            )
        )
        assert (ends.partitions[0].leader_epoch, ends.partitions[0].end_offset) == (3, 42)
        assert ends.partitions[1].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        given = pb.InitProducerIdResponse.FromString(
            await _call(edges, "InitProducerId", pb.InitProducerIdRequest())
        )
        assert (given.error, given.producer_id) == (0, 5000)
        refused = pb.InitProducerIdResponse.FromString(
            await _call(edges, "InitProducerId", pb.InitProducerIdRequest(transactional_id="t"))
        )
        assert refused.error == ErrorCode.INVALID_REQUEST

    run_virtual(main())
