"""The cluster over Kafka's protocol, against brokers in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

import pytest

from stele.cluster.kafka_link import KafkaLink, needs
from stele.cluster.kafka_plane import FetchCodec, ProduceCodec
from stele.cluster.kafka_stream import MAX_FETCH_CONNECTIONS
from stele.cluster.messages import (
    BrokerAddress,
    CoordinatorKind,
    FetchAnswer,
    FetchedPart,
    FetchRequest,
    Leader,
    LeaderStream,
    ProducedPart,
    ProduceRequest,
    UnsentError,
)
from stele.cluster.view import ClusterView
from stele.config import ClientConfig
from stele.errors import ApiError, ErrorCode, UnreachableError
from stele.ids import TopicPartition
from stele.wire.batch import BatchBuilder
from stele.wire.compression import Compression
from stele.wire.kafka.messages import (
    describe_cluster,
    fetch,
    find_coordinator,
    metadata,
    offset_commit,
    produce,
)
from stele.world import RpcCode, RpcError
from tests.support.stele import FakePartition, FakeTopic, Stage, on_stage
from tests.support.stele_kafka import ANSWERS
from tests.support.stele_transactions import FakeTransactions
from tests.support.worlds import Scenario, gives


class Bench:
    """A view over Kafka's protocol, and the link to broker 1, which leads t-0."""

    def __init__(self, stage: Stage) -> None:
        self.cluster = stage.cluster
        self.topic = stage.cluster.create("t", 2)
        config = ClientConfig(
            bootstrap_servers=stage.cluster.bootstrap_servers,
            on_wait=stage.waits.append,
        )
        self.view = ClusterView(config, stage.world)
        self.link = KafkaLink(BrokerAddress("127.0.0.1", 9001), stage.cluster, "tests", 5.0)

    @property
    def connections(self) -> int:
        return sum(each.broker == 1 for each in self.cluster.connections)

    def fetch_stream(self) -> LeaderStream[FetchRequest, FetchAnswer]:
        return self.view.plane.fetch(self.link)

    def fetch(self, offset: int, *, max_wait_ms: int = 500) -> FetchRequest:
        part = FetchedPart("t", self.topic.topic_id, 0, offset, 0, -1, 1 << 20)
        return FetchRequest(max_wait_ms, 1, 1 << 20, "", False, [part])

    def produce(self, *values: bytes, acks: int = -1) -> ProduceRequest:
        builder = BatchBuilder()
        for value in values:
            builder.append(None, value, timestamp_ms=1)
        batch = bytes(builder.build(Compression.NONE))
        part = ProducedPart("t", self.topic.topic_id, 0, batch)
        return ProduceRequest(acks, 1000, None, [part])


@gives("bench")
def on_bench(scenario: Scenario) -> None:
    async def whole(stage: Stage) -> None:
        each = Bench(stage)
        await scenario(each)
        await each.link.close()
        await each.view.close()

    on_stage.run(whole)


async def ask(link: KafkaLink, *, timeout_s: float = 5.0) -> metadata.MetadataResponse:
    message = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="t")])
    return await link.ask(metadata.API, lambda version: message, timeout_s=timeout_s)


@on_bench
async def test_questions_share_a_connection_which_is_opened_again_after_a_loss(
    bench: Bench,
) -> None:
    told = await asyncio.gather(*(ask(bench.link) for _ in range(5)))
    assert {each.topics[0].name for each in told} == {"t"}
    assert bench.connections == 1
    asked = asyncio.ensure_future(ask(bench.link))
    await asyncio.sleep(0)
    bench.cluster.kill(1)
    with pytest.raises(RpcError) as caught:
        await asked
    assert caught.value.code is RpcCode.UNAVAILABLE
    with pytest.raises(RpcError, match="refused"):
        await ask(bench.link)
    bench.cluster.alive[1] = True
    await ask(bench.link)
    assert bench.connections == 2


@on_bench
async def test_a_silent_broker_is_given_up_with_its_connection(bench: Bench) -> None:
    await ask(bench.link)
    bench.cluster.frozen = {1, 2, 3}
    with pytest.raises(RpcError) as caught:
        await ask(bench.link, timeout_s=0.5)
    assert caught.value.code is RpcCode.DEADLINE_EXCEEDED
    bench.cluster.frozen = set()
    await ask(bench.link)
    assert bench.connections == 2


@on_bench
async def test_a_question_that_waits_for_others_delays_no_other(bench: Bench) -> None:
    topics = [fetch.FetchTopic("t", bench.topic.topic_id, [fetch.FetchPartition(0, 0)])]
    message = fetch.FetchRequest(max_wait_ms=5000, min_bytes=1, topics=topics)
    waiting = asyncio.ensure_future(
        bench.link.ask(fetch.API, lambda version: message, timeout_s=10, waits=True)
    )
    await asyncio.sleep(0.1)
    async with asyncio.timeout(0.1):
        await ask(bench.link)
    assert not waiting.done()
    await waiting


@on_bench
async def test_a_waiting_question_that_is_cancelled_delays_no_later_one(bench: Bench) -> None:
    topics = [fetch.FetchTopic("t", bench.topic.topic_id, [fetch.FetchPartition(0, 0)])]
    message = fetch.FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=topics)
    waiting = asyncio.ensure_future(
        bench.link.ask(fetch.API, lambda version: message, timeout_s=100, waits=True)
    )
    await asyncio.sleep(0.1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    asked = metadata.MetadataRequest([])
    async with asyncio.timeout(1):
        await bench.link.ask(metadata.API, lambda version: asked, timeout_s=5, waits=True)


@on_bench
async def test_what_a_broker_cannot_be_asked_is_refused_at_once(bench: Bench) -> None:
    message = offset_commit.OffsetCommitRequest()
    with pytest.raises(ApiError, match="OFFSET_COMMIT") as caught:
        await bench.link.ask(offset_commit.API, lambda version: message, timeout_s=5)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(ApiError, match="METADATA up to version 9, not 10"):
        await bench.link.ask(
            metadata.API,
            needs(metadata.API, 10, metadata.MetadataRequest()),
            timeout_s=5,
            at_most=9,
        )


@on_bench
async def test_a_fetch_that_waits_does_not_delay_another_one(bench: Bench) -> None:
    stream = bench.fetch_stream()
    writer = bench.view.plane.produce(bench.link)
    await writer.request(bench.produce(b"there"))
    waiting = [stream.request(bench.fetch(1, max_wait_ms=5000)) for _ in range(3)]
    async with asyncio.timeout(0.1):
        (answer,) = await stream.request(bench.fetch(0))
    assert answer.records
    assert answer.topic_id == bench.topic.topic_id
    before = bench.connections
    waiting += [stream.request(bench.fetch(1, max_wait_ms=5000)) for _ in range(5)]
    await asyncio.sleep(0.1)
    assert bench.connections == before == 1 + MAX_FETCH_CONNECTIONS
    await writer.request(bench.produce(b"and"))
    assert [bool(each[0].records) for each in await asyncio.gather(*waiting)] == [True] * 8
    await stream.close()
    await writer.close()


@on_bench
async def test_requests_before_the_connection_is_open_leave_in_order(bench: Bench) -> None:
    stream = bench.view.plane.produce(bench.link)
    answers = [stream.request(bench.produce(b"%d" % number)) for number in range(3)]
    handed_over = stream.post(bench.produce(b"3", acks=0))
    answers.append(stream.request(bench.produce(b"4")))
    told = await asyncio.gather(*answers)
    assert [part.base_offset for (part,) in told] == [0, 1, 2, 4]
    assert handed_over.done()
    assert bench.cluster.values() == [b"0", b"1", b"2", b"3", b"4"]
    await stream.close()


@on_bench
async def test_a_request_that_never_left_is_told_from_one_that_may_be_carried_out(
    bench: Bench,
) -> None:
    async def outcome(answer: Awaitable[Sequence[object]]) -> type[Exception]:
        with pytest.raises(RpcError) as caught:
            await answer
        return type(caught.value)

    stream = bench.view.plane.produce(bench.link)
    await stream.request(bench.produce(b"0"))
    sent = stream.request(bench.produce(b"1"))
    await asyncio.sleep(0.0015)  # the broker has it
    bench.cluster.kill(1)
    assert await outcome(sent) is RpcError
    assert await outcome(stream.request(bench.produce(b"2"))) is UnsentError
    await stream.close()
    refused = bench.view.plane.produce(bench.link)
    assert await outcome(refused.request(bench.produce(b"3"))) is UnsentError
    await refused.close()
    assert bench.cluster.values() == [b"0", b"1"]


@on_bench
async def test_a_stream_that_is_broken_off_says_why(bench: Bench) -> None:
    stream = bench.fetch_stream()
    waiting = stream.request(bench.fetch(0, max_wait_ms=5000))
    await asyncio.sleep(0.1)
    stream.break_off("it took too long")
    with pytest.raises(RpcError, match="it took too long"):
        await waiting
    with pytest.raises(UnsentError, match="it took too long"):
        await stream.request(bench.fetch(0))
    await stream.close()


@on_bench
async def test_topics_without_ids_are_named_in_versions_that_can(bench: Bench) -> None:
    """Brokers of before Kafka 2.8 know no topic ids."""

    versions: list[int] = []
    connection = await bench.link.open()
    produced, fetched = bench.produce(b"0"), bench.fetch(0)
    for topic_id in (bench.topic.topic_id, b""):
        produced.partitions[0].topic_id = fetched.partitions[0].topic_id = topic_id
        versions.append(ProduceCodec().encode(produced, connection).version)
        versions.append(FetchCodec().encode(fetched, connection).version)
    assert versions == [13, 18, 12, 12]
    fetched.partitions[0].topic_id = bench.topic.topic_id
    response = fetch.FetchResponse(
        responses=[fetch.FetchableTopicResponse("t", partitions=[fetch.PartitionData(0)])]
    )
    (answer,) = FetchCodec().decode(fetched, response)
    assert answer.topic_id == bench.topic.topic_id
    response.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    (answer,) = FetchCodec().decode(fetched, response)
    assert answer.code is ErrorCode.KAFKA_STORAGE_ERROR
    connection.close()


@pytest.mark.parametrize("metadata_version", [9, 12])
@on_stage
async def test_older_brokers_are_asked_as_they_can_be(stage: Stage, metadata_version: int) -> None:
    """Topics have ids from Metadata 10 on, and Produce and Fetch name them from 13 on."""

    cluster = stage.cluster
    cluster.create("t", 2)
    cluster.kafka_versions = {
        produce.API.key: 9,
        fetch.API.key: 12,
        metadata.API.key: metadata_version,
        find_coordinator.API.key: 3,
    }
    FakeTransactions(cluster)
    async with stage.producer() as producer:
        for number in range(10):
            await producer.send("t", b"%d" % number, partition=number % 2)
    async with stage.consumer() as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        read: list[bytes | None] = []
        while len(read) < 10:
            read += [each.value for each in await consumer.poll(timeout_ms=1000)]
    assert sorted(each or b"" for each in read) == [b"%d" % number for number in range(10)]
    view = ClusterView(ClientConfig(bootstrap_servers=cluster.bootstrap_servers), stage.world)
    for kind in CoordinatorKind:
        found = await view.ask_any(view.plane.find_coordinator(kind, "any"))
        assert found == (ErrorCode.NONE, "", 1)
    await view.close()


@on_bench
async def test_one_broker_alone_does_not_make_the_view_believe_in_another_topic(
    bench: Bench,
) -> None:
    view, cluster = bench.view, bench.cluster
    cluster.is_kafkas = True
    old = cluster.topics["t"]

    def known() -> bytes | None:
        topic = view.topic("t")
        return None if topic is None else topic.topic_id

    view.want("t")
    await view.refresh()
    assert known() == old.topic_id
    cluster.outdated = 0, {"t": FakeTopic(b"earlier".ljust(16), old.partitions)}
    await view.refresh()  # a broker that lags answers
    assert known() == old.topic_id
    await asyncio.sleep(1)  # another one is asked at once, and does not say so
    assert not cluster.is_outdated
    assert known() == old.topic_id
    cluster.topics["t"] = FakeTopic(b"later".ljust(16), old.partitions)
    await view.refresh()
    await asyncio.sleep(1)
    assert known() == b"later".ljust(16)


@on_bench
async def test_metadata_that_say_how_new_they_are_are_believed_at_once_or_never(
    bench: Bench,
) -> None:
    view, cluster = bench.view, bench.cluster
    cluster.metadata_offset = 10
    old = cluster.topics["t"]
    view.want("t")
    await view.refresh()
    for _ in range(2):  # two brokers that lag, one after the other
        cluster.outdated = 9, {"t": FakeTopic(b"earlier".ljust(16), old.partitions)}
        await view.refresh()
        known = view.topic("t")
        assert known is not None
        assert known.topic_id == old.topic_id
    cluster.topics["t"] = FakeTopic(b"later".ljust(16), old.partitions)
    cluster.metadata_offset = 11
    await view.refresh()
    known = view.topic("t")
    assert known is not None
    assert known.topic_id == b"later".ljust(16)


@pytest.mark.parametrize("is_kafkas", [False, True])
@on_bench
async def test_a_leader_of_an_older_epoch_is_not_believed_after_the_topic_was_missing(
    bench: Bench, is_kafkas: bool
) -> None:
    view, cluster = bench.view, bench.cluster
    cluster.is_kafkas = is_kafkas
    cluster.metadata_offset = 10
    topic = cluster.topics["t"]
    topic.partitions[0].leader, topic.partitions[0].leader_epoch = 2, 6
    view.want("t")
    await view.refresh()
    cluster.metadata_offset = 11
    del cluster.topics["t"]
    await view.refresh()
    assert view.topic("t") is None
    cluster.outdated = 9, {"t": FakeTopic(topic.topic_id, {0: FakePartition(1, 5)})}
    await view.refresh()
    assert view.leader(TopicPartition("t", 0)) == Leader(2, 6)
    assert view.leader_epoch(TopicPartition("t", 0)) == 6


@on_bench
async def test_a_topic_stays_known_if_a_broker_that_lags_does_not_know_it_yet(
    bench: Bench,
) -> None:
    view, cluster = bench.view, bench.cluster
    cluster.metadata_offset = 10
    view.want("t")
    await view.refresh()
    cluster.outdated = 9, {}
    await view.refresh()
    assert view.topic("t") is not None
    assert view.topic_error("t") is ErrorCode.NONE
    cluster.outdated = 10, {}
    await view.refresh()
    assert view.topic("t") is None
    assert view.topic_error("t") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@on_stage
async def test_an_admin_says_so_where_nobody_speaks_grpc(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*asked: object) -> describe_cluster.DescribeClusterResponse:
        return describe_cluster.DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        )

    monkeypatch.setitem(ANSWERS, describe_cluster.DescribeClusterRequest, refuse)

    async with stage.admin(default_api_timeout_ms=100) as admin:
        with pytest.raises(UnreachableError, match="do not speak gRPC"):
            await admin.list_topics()
