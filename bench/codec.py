"""The cost of the codecs: protocol messages, record batches, compression.

    python -m bench.codec

Prints tables with the machine and the versions. Each figure is the best of several runs.
"""

from __future__ import annotations

import importlib.metadata
import platform
import timeit
from collections import deque
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from stele.wire import batch as wire
from stele.wire import kafka
from stele.wire.compression import Compression, compress, decompress
from stele.wire.kafka.messages import fetch, metadata, produce
from stele.wire.produced import validate_produced
from stele.wire.record_check import RecordCheck

TARGET_S = 0.2
REPEATS = 5


def microseconds(call: Callable[[], object]) -> float:
    """The best time per call, in µs."""
    timer = timeit.Timer(call)
    number, elapsed_s = timer.autorange()
    number = max(1, int(number * TARGET_S / max(elapsed_s, 1e-9) / REPEATS))
    return min(timer.repeat(REPEATS, number)) / number * 1e6


# ------------------------------------------------------------------------------- messages


def produce_request() -> tuple[Any, int, kafka.Struct]:
    partitions = [produce.PartitionProduceData(n, bytes(64 * 1024)) for n in range(3)]
    topics = [produce.TopicProduceData("orders", partition_data=partitions)]
    return produce.API, 9, produce.ProduceRequest(None, -1, 30_000, topics)


def produce_response() -> tuple[Any, int, kafka.Struct]:
    partitions = [produce.PartitionProduceResponse(n, 0, 1 << 33) for n in range(3)]
    return (
        produce.API,
        9,
        produce.ProduceResponse([produce.TopicProduceResponse("orders", b"", partitions)]),
    )


def fetch_request() -> tuple[Any, int, kafka.Struct]:
    partitions = [
        fetch.FetchPartition(n, 5, 1 << 33, partition_max_bytes=1 << 20) for n in range(6)
    ]
    topics = [fetch.FetchTopic(topic_id=bytes(16), partitions=partitions)]
    return fetch.API, 16, fetch.FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics)


def fetch_response() -> tuple[Any, int, kafka.Struct]:
    data = fetch.PartitionData(0, 0, 1 << 33, 1 << 33, 0, records=[bytes(1 << 20)])
    topics = [fetch.FetchableTopicResponse(topic_id=bytes(16), partitions=[data])]
    return fetch.API, 16, fetch.FetchResponse(responses=topics)


def metadata_response() -> tuple[Any, int, kafka.Struct]:
    partitions = [
        metadata.MetadataResponsePartition(0, n, 1, 5, [1, 2, 3], [1, 2, 3], []) for n in range(10)
    ]
    topics = [
        metadata.MetadataResponseTopic(0, f"topic-{n}", bytes(16), False, partitions)
        for n in range(100)
    ]
    brokers = [metadata.MetadataResponseBroker(n, f"host-{n}", 9092) for n in range(3)]
    return metadata.API, 12, metadata.MetadataResponse(0, brokers, "c" * 22, 1, topics)


MESSAGES: list[tuple[str, Callable[[], tuple[Any, int, kafka.Struct]]]] = [
    ("Produce 3 x 64 KiB", produce_request),
    ("Produce answer, 3 partitions", produce_response),
    ("Fetch, 6 partitions", fetch_request),
    ("Fetch answer 1 MiB", fetch_response),
    ("Metadata answer 100 x 10", metadata_response),
]


def message_times(make: Callable[[], tuple[Any, int, kafka.Struct]]) -> tuple[float, float]:
    """The times to decode and to encode a message with headers and size, in µs."""
    api, version, message = make()
    if isinstance(message, api.request):
        frame = bytearray(b"".join(kafka.encode_request(api, version, 1, "bench", message))[4:])
        return (
            microseconds(lambda: kafka.decode_request(frame)),
            microseconds(lambda: kafka.encode_request(api, version, 1, "bench", message)),
        )
    frame = bytearray(b"".join(kafka.encode_response(api.key, version, 1, message))[4:])
    return (
        microseconds(lambda: kafka.decode_response(api, version, frame)),
        microseconds(lambda: kafka.encode_response(api.key, version, 1, message)),
    )


# -------------------------------------------------------------------------------- batches


def batch_row(value_bytes: int, count: int) -> list[str]:
    key, value = b"invoice8", b"v" * value_bytes

    def build() -> bytearray:
        builder = wire.BatchBuilder()
        for position in range(count):
            builder.append(key, value, timestamp_ms=1_700_000_000_000 + position)
        return builder.build()

    batch = build()
    header = wire.read_header(batch)
    encode_us, decode_us = microseconds(build), microseconds(lambda: wire.decode(batch))
    broker_us = microseconds(lambda: validate_produced(batch, len(batch)))
    body = memoryview(batch)[wire.HEADER_SIZE :]
    records_us = microseconds(lambda: deque(RecordCheck(Compression.NONE, body, count), 0))
    stamp_us = microseconds(lambda: wire.stamp(batch, 0, base_offset=5, leader_epoch=3))
    return [
        f"{count} x {value_bytes} B",
        f"{count / encode_us:.2f} / {len(batch) / encode_us:,.0f}",
        f"{count / decode_us:.2f} / {len(batch) / decode_us:,.0f}",
        f"{microseconds(lambda: wire.read_header(batch)):.2f}",
        f"{microseconds(lambda: wire.check_crc(batch, 0, header)):.2f}",
        f"{broker_us + stamp_us:.2f}",
        f"{records_us:.1f}",
    ]


def lines(size_bytes: int) -> bytes:
    """JSON lines that compress about as well as orders."""
    made: list[bytes] = []
    total, state = 0, 1
    while total < size_bytes:
        state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        made.append(
            b'{"invoice": "%d", "stock": "%d", "quantity": %d, "price": %.2f, "country": "UK"}\n'
            % (536365 + len(made) // 20, state >> 48, state >> 58, (state >> 50) / 100)
        )
        total += len(made[-1])
    return b"".join(made)[:size_bytes]


def compression_row(codec: Compression, level: int | None, data: bytes) -> list[str]:
    packed = compress(codec, data, level)
    name = codec.name.lower() + ("" if level is None else f" {level}")
    return [
        name,
        f"{len(data) / microseconds(lambda: compress(codec, data, level)):,.0f}",
        f"{len(data) / microseconds(lambda: decompress(codec, packed)):,.0f}",
        f"{len(data) / len(packed):.1f}",
    ]


# --------------------------------------------------------------------------------- tables


def table(title: str, columns: list[str], rows: list[list[str]]) -> Table:
    made = Table(*columns, title=title, title_justify="left")
    for row in rows:
        made.add_row(*row)
    return made


def main() -> None:
    console = Console()
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in ("crc32c", "lz4", "zstandard", "cramjam")
    )
    console.print(f"{platform.machine()}, Python {platform.python_version()}, {versions}\n")
    times = [[name, *(f"{us:,.1f}" for us in message_times(make))] for name, make in MESSAGES]
    console.print(table("Messages, µs each", ["message", "decode", "encode"], times))
    columns = [
        "records",
        "encode",
        "decode",
        "header µs",
        "CRC µs",
        "check and stamp µs",
        "records µs",
    ]
    rows = [batch_row(size, count) for size, count in ((100, 150), (1024, 16), (100, 10_000))]
    console.print(table("Record batches, million records/s / MB/s", columns, rows))
    data = lines(1 << 20)
    codecs = [
        (Compression.LZ4, None),
        (Compression.SNAPPY, None),
        (Compression.ZSTD, 1),
        (Compression.ZSTD, 3),
        (Compression.GZIP, 1),
        (Compression.GZIP, 6),
    ]
    rows = [compression_row(codec, level, data) for codec, level in codecs]
    columns = ["codec", "compress", "decompress", "ratio"]
    console.print(table("1 MiB of JSON lines, MB/s", columns, rows))


if __name__ == "__main__":
    main()
