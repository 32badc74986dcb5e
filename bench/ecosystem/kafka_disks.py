"""The directories of a broker of Kafka that was killed, read by stele import."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

from bench.ecosystem.stage import KAFKA_VERSION, Stage, same
from bench.kafka_cluster import KafkaNode, jars
from bench.maven import CACHE
from chaos.process_cluster import Ports
from stele import Admin, Consumer, OffsetAndMetadata, Producer
from stele.config import CompressionName
from stele.ids import TopicPartition
from stele.records import ConsumerRecord

_TOPIC: Final = "from-kafka"
_CODECS: Final[tuple[CompressionName, ...]] = ("none", "gzip", "snappy", "lz4", "zstd")
_OF_CODEC: Final = 2_000
_OF_TRANSACTION: Final = 50
_GROUP: Final = "from-kafka"


def stopped_broker(stage: Stage) -> str:
    """A broker of Kafka with records in all codecs and in transactions, killed -9."""
    directory = stage.directory / "kafka"
    directory.mkdir()
    expected, committed = asyncio.run(_broker_that_was_killed(stage, directory))
    command = [sys.executable, "-m", "cli", "import", str(directory / "1"), "--topic", _TOPIC]
    command += ["-b", stage.servers, "--config", "retention.ms=-1", "--json"]
    told = json.loads(stage.program(command))
    same(sum(each["same"] for each in told["partitions"]), len(expected), "records imported")
    aborted = sum(each["aborted"] for each in told["partitions"])
    same(aborted, 4 * _OF_TRANSACTION, "records of aborted transactions")
    same(_plain(stage.read(_TOPIC)), _plain(expected), "records")
    with Admin(stage.servers) as admin:
        offsets = admin.list_group_offsets(_GROUP)
    wanted = {
        name: sum(
            1 for each in expected if each.partition == name.partition and each.offset < offset
        )
        for name, offset in committed.items()
    }
    same({name: each.offset for name, each in offsets.items()}, wanted, "offsets of the group")
    return f"{len(expected)} committed records the same, {aborted} aborted ones left out; a group"


def _plain(records: list[ConsumerRecord]) -> list[tuple[Any, ...]]:
    """Without offsets; in the order of each partition."""
    ordered = sorted(records, key=lambda each: (each.partition, each.offset))
    return [
        (each.partition, each.key, each.value, each.headers, each.timestamp_ms) for each in ordered
    ]


async def _broker_that_was_killed(
    stage: Stage, directory: Path
) -> tuple[list[ConsumerRecord], dict[TopicPartition, int]]:
    """The records that a consumer of the broker has read, and the offsets of the group."""
    ports = Ports(None)
    port, controller = ports.kafka(), ports.kafka()
    settings = {
        "process.roles": "broker,controller",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    node = KafkaNode(directory, jars(KAFKA_VERSION, CACHE), 1, settings)
    await node.format()
    await node.start()
    try:
        await node.wait_listening(port)
        return await asyncio.to_thread(_filled, stage, f"127.0.0.1:{port}")
    finally:
        await node.stop()


def _filled(stage: Stage, servers: str) -> tuple[list[ConsumerRecord], dict[TopicPartition, int]]:
    topic: tuple[str, ...] = (
        "--create",
        "--topic",
        _TOPIC,
        "--partitions",
        "3",
        "--replication-factor",
        "1",
    )
    topic = (*topic, "--config", "segment.bytes=1048576")
    stage.java("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", servers, *topic)
    now_ms = time.time_ns() // 1_000_000
    for at, codec in enumerate(_CODECS):
        with Producer(servers, compression=codec) as producer:
            for number in range(at * _OF_CODEC, (at + 1) * _OF_CODEC):
                value = b"%d " % number * 20 if number % 97 else None
                headers = (("number", b"%d" % number), ("nothing", None))
                producer.send(_TOPIC, value, b"k%d" % (number % 50), headers, now_ms + number)
    for number in range(12):
        _transaction(servers, number, is_committed=number % 3 != 1)
    return _read(servers)


def _transaction(servers: str, number: int, *, is_committed: bool) -> None:
    with Producer(servers, transactional_id=f"from-kafka-{number % 2}") as producer:
        producer.begin_transaction()
        for each in range(_OF_TRANSACTION):
            producer.send(_TOPIC, b"transaction %d: %d" % (number, each), partition=each % 3)
        producer.flush()  # otherwise an abort would send nothing
        if is_committed:
            producer.commit_transaction()
        else:
            producer.abort_transaction()


def _read(servers: str) -> tuple[list[ConsumerRecord], dict[TopicPartition, int]]:
    names = [TopicPartition(_TOPIC, each) for each in range(3)]
    found: list[ConsumerRecord] = []
    with Consumer(
        servers,
        group_id=_GROUP,
        enable_auto_commit=False,  # at its end it would commit what it has read
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.assign(names)
        ends = consumer.end_offsets(names)
        while any(consumer.position(*name) < end for name, end in ends.items()):
            found += consumer.poll()
        committed = {name: end - 500 * name.partition for name, end in ends.items()}
        consumer.commit({name: OffsetAndMetadata(end) for name, end in committed.items()})
    return found, committed
