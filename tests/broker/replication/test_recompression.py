"""Produced batches that the leader compresses anew: ``compression.type``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.replication.recompression import Recompressed, Recompression
from broker.replication.types import ProduceEntry, ProduceResult
from chaos.sim.world.compute import SimCompute
from metadata.topic_config import TopicConfig
from stele.errors import ApiError, ErrorCode
from stele.wire import batch as wire
from stele.wire.compression import Compression
from tests.support.batches import make_batch
from tests.support.replica_cluster import P0, Node, ReplicaCluster
from tests.support.replication import ends, with_topic
from tests.support.timing import until
from world.compute import Compute

CODECS = list(Compression)
TYPES = ["uncompressed", "gzip", "snappy", "lz4", "zstd"]


def batch_of(
    codec: Compression, count: int = 3, *, sequence: int = -1, value: bytes = b"v" * 100
) -> bytearray:
    builder = wire.BatchBuilder()
    for number in range(count):
        builder.append(b"k%d" % number, value, timestamp_ms=10**12 + number, headers=[("h", b"1")])
    if sequence < 0:
        return builder.build(codec)
    return builder.build(codec, producer_id=7, producer_epoch=0, base_sequence=sequence)


def appended(cluster: ReplicaCluster, broker_id: int, offset: int) -> bytes:
    return bytes(cluster[broker_id].replica().log.read(offset, 1 << 20).data)


@pytest.mark.parametrize("kind", TYPES)
def test_each_batch_gets_the_codec_of_its_topic(kind: str) -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        target = CODECS[TYPES.index(kind)]
        for number, codec in enumerate(CODECS):
            batch = batch_of(codec)
            records = wire.decode(batch)
            result = await cluster[1].produce(batch)
            assert (result.error, result.base_offset) == (ErrorCode.NONE, 3 * number)
            stored = appended(cluster, 1, 3 * number)
            header = wire.read_header(stored)
            assert header.compression is target
            assert wire.check_crc(stored, 0, header)
            assert [each._replace(offset=0) for each in wire.decode(stored)] == [
                each._replace(offset=0) for each in records
            ]
            assert (header.base_timestamp_ms, header.max_timestamp_ms) == (10**12, 10**12 + 2)
        await until(lambda: ends(cluster, 1, 2, 3) == [3 * len(CODECS)] * 3)
        assert appended(cluster, 2, 0) == appended(cluster, 1, 0)

    with_topic.run(scenario, compression_type=kind)


@with_topic(compression_type="gzip", compression_gzip_level="9")
async def test_a_batch_of_the_right_codec_stays_as_it_is(cluster: ReplicaCluster) -> None:
    batch = batch_of(Compression.GZIP)
    await cluster[1].produce(bytearray(batch))
    assert appended(cluster, 1, 0)[wire.HEADER_SIZE :] == batch[wire.HEADER_SIZE :]


@with_topic(compression_type="lz4")
async def test_sequences_stay_in_order_while_batches_are_compressed(
    cluster: ReplicaCluster,
) -> None:
    """Batches of the right codec come between batches of others."""

    sizes = [3, 20_000, 1, 2, 5_000, 4]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    batches = [
        batch_of(CODECS[number % 5], size, sequence=start)
        for number, (size, start) in enumerate(zip(sizes, starts, strict=True))
    ]
    again = [bytearray(each) for each in batches[-2:]]
    results = await asyncio.gather(*(cluster[1].produce(each) for each in batches))
    assert [each.error for each in results] == [ErrorCode.NONE] * len(sizes)
    assert [each.base_offset for each in results] == starts
    for batch, result in zip(again, results[-2:], strict=True):
        duplicate = await cluster[1].produce(batch)
        assert (duplicate.error, duplicate.base_offset) == (ErrorCode.NONE, result.base_offset)
    assert ends(cluster, 1) == [sum(sizes)]


@with_topic(compression_type="lz4")
async def test_a_batch_that_comes_while_another_is_compressed_waits(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Recompression.begin
    answers: list[ProduceResult] = []
    nodes: list[Node] = []

    def followed(each: Recompression, *arguments: Any) -> None:
        begin(each, *arguments)
        entry = ProduceEntry(P0, batch_of(Compression.LZ4, 2, sequence=3))
        nodes[0].process.loop.call_soon(
            lambda: nodes[0].manager.produce.begin([entry], -1, 30_000, answers.extend)
        )

    monkeypatch.setattr(Recompression, "begin", followed)

    nodes.append(cluster[1])
    first = await cluster[1].produce(batch_of(Compression.NONE, 3, sequence=0))
    await until(lambda: bool(answers))
    assert [each.error for each in (first, *answers)] == [ErrorCode.NONE] * 2
    assert [each.base_offset for each in (first, *answers)] == [0, 3]


@with_topic(compression_type="uncompressed", max_message_bytes="1000")
async def test_the_size_counts_before_and_after(cluster: ReplicaCluster) -> None:
    small = batch_of(Compression.ZSTD, value=b"v" * 5000)
    assert len(small) < 1000
    result = await cluster[1].produce(small)
    assert result.error is ErrorCode.MESSAGE_TOO_LARGE
    assert "compression.type=uncompressed, max.message.bytes is 1000" in result.message
    large = await cluster[1].produce(batch_of(Compression.NONE, value=b"v" * 5000))
    assert large.error is ErrorCode.MESSAGE_TOO_LARGE
    assert (await cluster[1].produce(make_batch())).base_offset == 0


@with_topic(compression_type="lz4", message_timestamp_type="LogAppendTime")
async def test_records_of_this_moment_get_the_time_of_their_append(cluster: ReplicaCluster) -> None:
    now_ms = cluster[1].process.world.clock.time_ms()
    result = await cluster[1].produce(batch_of(Compression.ZSTD))
    header = wire.read_header(appended(cluster, 1, 0))
    assert result.log_append_time_ms == header.max_timestamp_ms >= now_ms
    assert header.is_log_append_time
    assert header.compression is Compression.LZ4


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (OSError(10, "the compute process died"), ErrorCode.KAFKA_STORAGE_ERROR),
        (RuntimeError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
@with_topic(compression_type="gzip")
async def test_a_batch_that_cannot_be_compressed_is_refused_alone(
    cluster: ReplicaCluster, failure: Exception, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = SimCompute.call
    failures = [failure]

    async def failing(compute: SimCompute, work: Callable[..., Any], *arguments: Any) -> Any:
        result = await call(compute, work, *arguments)
        if failures:
            raise failures.pop()
        return result

    monkeypatch.setattr(SimCompute, "call", failing)

    refused, taken, plain = await asyncio.gather(
        cluster[1].produce(batch_of(Compression.NONE)),
        cluster[1].produce(batch_of(Compression.ZSTD)),
        cluster[1].produce(batch_of(Compression.GZIP)),
    )
    assert refused.error is code
    assert (taken.error, taken.base_offset) == (ErrorCode.NONE, 0)
    assert (plain.error, plain.base_offset) == (ErrorCode.NONE, 3)


@pytest.mark.parametrize(
    ("meanwhile", "codes"),
    [
        (
            lambda cluster: cluster.change(leader=2),
            {ErrorCode.NOT_LEADER_OR_FOLLOWER},
        ),
        (
            lambda cluster: cluster.delete_topic(),
            {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        ),
    ],
    ids=["another leads", "the topic is deleted"],
)
@with_topic(compression_type="gzip")
async def test_what_changes_meanwhile_is_asked_for_again(
    cluster: ReplicaCluster,
    meanwhile: Callable[[ReplicaCluster], None],
    codes: set[ErrorCode],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin = Recompression.begin
    clusters: list[ReplicaCluster] = []

    def followed(each: Recompression, *arguments: Any) -> None:
        begin(each, *arguments)
        meanwhile(clusters[0])

    monkeypatch.setattr(Recompression, "begin", followed)

    clusters.append(cluster)
    assert (await cluster[1].produce(batch_of(Compression.ZSTD))).error in codes


class Packing:
    """Makes batches of a known size."""

    def __init__(self, size: int) -> None:
        self.size = size

    async def call(self, function: object, *arguments: object) -> tuple[int, bytes]:
        return self.size, bytes(self.size)


def lz4(room: int) -> TopicConfig:
    """Of a topic whose batches may have ``room`` bytes of records."""
    config = SimpleNamespace(
        compression_type="lz4",
        max_message_bytes=wire.HEADER_SIZE + room,
        compression_gzip_level=1,
        compression_lz4_level=1,
        compression_zstd_level=1,
    )
    return cast(TopicConfig, config)


@pytest.mark.parametrize(("size", "fits"), [(100, True), (101, False)])
async def test_a_batch_may_have_as_many_bytes_as_its_topic_takes(size: int, fits: bool) -> None:
    batch = batch_of(Compression.NONE)
    made: asyncio.Future[Recompressed | ApiError] = asyncio.get_running_loop().create_future()
    Recompression(cast(Compute, Packing(size))).begin(
        lz4(room=100), batch, wire.read_header(batch), Compression.LZ4, made.set_result
    )
    found = await made
    if fits:
        assert isinstance(found, Recompressed)
        assert len(found.batch) == wire.HEADER_SIZE + 100
    else:
        assert isinstance(found, ApiError)
        assert found.code is ErrorCode.MESSAGE_TOO_LARGE


async def test_an_outcome_is_told_once_though_its_receiver_fails() -> None:
    batch = batch_of(Compression.NONE)
    told: list[Recompressed | ApiError] = []
    failures: list[object] = []

    def done(outcome: Recompressed | ApiError) -> None:
        told.append(outcome)
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    recompression = Recompression(cast(Compute, Packing(100)))
    recompression.begin(lz4(room=100), batch, wire.read_header(batch), Compression.LZ4, done)
    await until(lambda: bool(failures))
    assert [type(each) for each in told] == [Recompressed]
    assert [type(each) for each in failures] == [ApiError]
