"""What a release leaves on disk, as an archive that every later release must be able to open.

    python -m tests.support.release_data     # VERSION-clean.tar.xz and VERSION-killed.tar.xz

A node with both roles stores some of everything: batches of each codec, a compacted topic,
transactions, one of them open, a group's offset, a user, rules, a quota, configs. ``describe`` asks
the node for all of it. Then the node is stopped, or killed. Its files and the answers go into the
archive. A later release that opens the files must give the same answers.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from chaos.process_cluster import ProcessCluster
from stele import (
    Acl,
    ConfigResource,
    NewTopic,
    OffsetAndMetadata,
    QuotaAlteration,
    ScramUpsertion,
    TopicPartition,
    __version__,
)
from stele.aio import Admin, Consumer, Producer

ARCHIVES: Final = Path(__file__).resolve().parents[1] / "releases"
ANSWERS: Final = "answers.json"
GROUP: Final = "billing"
OPEN_TRANSACTION: Final = "left-open"
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
TIME_MS: Final = 1_767_225_600_000  # of each record: the answers do not depend on the day

_SET: Final = ("DYNAMIC_TOPIC", "DYNAMIC_BROKER", "DYNAMIC_DEFAULT_BROKER")

_SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "log.segment.bytes": "65536",
    "metadata.log.max.record.bytes.between.snapshots": "2048",
    "log.message.timestamp.before.max.ms": str(2**63 - 1),
    "log.retention.ms": "-1",
    "transaction.max.timeout.ms": "2000000000",
}


def cluster_in(directory: Path) -> ProcessCluster:
    """One node with both roles, in this directory."""
    return ProcessCluster(
        directory, controllers=1, brokers=1, combined=True, settings=dict(_SETTINGS)
    )


@asynccontextmanager
async def running(cluster: ProcessCluster) -> AsyncIterator[str]:
    """The cluster, started. Its address."""
    await cluster.start()
    try:
        yield cluster.bootstrap_servers
    finally:
        await cluster.stop()


# -------------------------------------------------------------------------------------- work


async def work(server: str) -> None:
    """Have the node store some of everything."""
    async with Admin(server) as admin:
        await _administer(admin)
        await _produce(server)
        await _transact(server)
        async with Consumer(server, group_id=GROUP) as consumer:
            place = TopicPartition("lz4", 0)
            consumer.assign([place])
            await consumer.commit({place: OffsetAndMetadata(7, metadata="by hand")})
        await admin.delete_topics(["gone"])


async def _administer(admin: Admin) -> None:
    topics = [NewTopic(name, 1, 1, {"compression.type": "producer"}) for name in CODECS]
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    await admin.create_topics(
        [
            *topics,
            NewTopic("compacted", 1, 1, compacted),
            NewTopic("transactional", 2, 1, {"retention.bytes": "1000000000"}),
            NewTopic("gone", 1, 1),
        ]
    )
    await admin.alter_configs({ConfigResource.broker(): {"message.max.bytes": "900000"}})
    await admin.alter_user_scram_credentials([ScramUpsertion("ann", "a password", iterations=4096)])
    await admin.create_acls(
        [
            Acl("User:ann", "READ", "TOPIC", "orders.", pattern_type="PREFIXED"),
            Acl("User:bob", "WRITE", "TOPIC", "lz4", permission="DENY"),
        ]
    )
    await admin.alter_client_quotas(
        [QuotaAlteration({"user": "ann", "client-id": None}, {"producer_byte_rate": 1e9})]
    )


async def _produce(server: str) -> None:
    for codec in CODECS:
        async with Producer(server, compression=codec) as producer:
            for number in range(50):
                await producer.send(
                    codec,
                    f"value {number} ".encode() * 20,
                    key=f"key {number % 5}".encode(),
                    headers=[("n", str(number).encode())],
                    timestamp_ms=TIME_MS + number,
                )
    async with Producer(server, linger_ms=0) as producer:
        for number in range(400):
            value = None if number % 40 == 39 else f"version {number} ".encode() * 50
            key = f"key {number % 20}".encode()
            await (await producer.send("compacted", value, key, timestamp_ms=TIME_MS + number))


async def _transact(server: str) -> None:
    async with Producer(server, transactional_id="finished") as producer:
        await producer.init_transactions()
        for outcome in ("commit", "abort"):
            await producer.begin_transaction()
            for partition in range(2):
                value = f"{outcome} {partition}".encode()
                await producer.send(
                    "transactional", value, partition=partition, timestamp_ms=TIME_MS
                )
            await (
                producer.commit_transaction()
                if outcome == "commit"
                else producer.abort_transaction()
            )
    left = Producer(server, transactional_id=OPEN_TRANSACTION, transaction_timeout_ms=1_900_000_000)
    await left.init_transactions()
    await left.begin_transaction()
    await (await left.send("transactional", b"open", partition=1, timestamp_ms=TIME_MS))


# ----------------------------------------------------------------------------------- answers


async def describe(server: str) -> dict[str, Any]:
    """What clients are told of everything that was stored, as JSON."""
    async with Admin(server) as admin:
        names = sorted(each.name for each in await admin.list_topics())
        topics = await admin.describe_topics([each for each in names if not each.startswith("__")])
        resources = [ConfigResource.topic(each.name) for each in topics]
        configs = await admin.describe_configs([*resources, ConfigResource.broker()])
        offsets = await admin.list_group_offsets(GROUP)
        transactions = await admin.list_transactions()
        return {
            "topics": {each.name: [each.topic_id.hex(), len(each.partitions)] for each in topics},
            "internal topics": [each for each in names if each.startswith("__")],
            "configs": {
                f"{resource.type} {resource.name}": {
                    each.name: each.value for each in entries if each.source in _SET
                }
                for resource, entries in configs.items()
            },
            "group": {str(place): [each.offset, each.metadata] for place, each in offsets.items()},
            "transactions": sorted(
                f"{each.transactional_id} {each.state}" for each in transactions
            ),
            "users": {
                user: [f"{each.mechanism} {each.iterations}" for each in credentials]
                for user, credentials in (await admin.describe_user_scram_credentials()).items()
            },
            "rules": sorted(str(each) for each in await admin.describe_acls()),
            "quotas": sorted(str(each) for each in await admin.describe_client_quotas()),
            "records": {
                f"{each.name}-{number}": await _records(server, each.name, number)
                for each in topics
                for number in range(len(each.partitions))
                if each.name != "compacted"
            },
            "compacted": await _latest(server),
        }


async def _records(server: str, topic: str, partition: int) -> list[list[Any]]:
    """All committed records."""
    place = TopicPartition(topic, partition)
    options: Any = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    found: list[list[Any]] = []
    async with Consumer(server, **options) as consumer:
        consumer.assign([place])
        end = (await consumer.end_offsets([place]))[place]
        while await consumer.position(topic, partition) < end:
            for each in await consumer.poll():
                headers = [[name, _text(value)] for name, value in each.headers]
                found.append(
                    [each.offset, each.timestamp_ms, _text(each.key), _text(each.value), headers]
                )
    return found


async def _latest(server: str) -> dict[str, str]:
    """The values of the compacted topic's keys. How much of it is compacted is a matter of time."""
    latest: dict[str, str] = {}
    for _, _, key, value, _ in await _records(server, "compacted", 0):
        latest.pop(key, None)
        if value is not None:
            latest[key] = value
    return dict(sorted(latest.items()))


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


# ---------------------------------------------------------------------------------- archives


async def write(archive: Path, *, is_killed: bool) -> None:
    """Make one archive. Raises ClusterError."""
    with tempfile.TemporaryDirectory() as temporary:
        cluster = cluster_in(Path(temporary) / "cluster")
        async with running(cluster) as server:
            await work(server)
            answers = await describe(server)
            if is_killed:
                cluster.kill(1)
        (cluster.directory / ANSWERS).write_text(json.dumps(answers, indent=1, sort_keys=True))
        with tarfile.open(archive, "w:xz") as packed:
            for path in sorted(cluster.directory.rglob("*")):
                if path.is_file() and path.name not in ("node.log", "cluster.lock"):
                    packed.add(path, path.relative_to(cluster.directory), recursive=False)


def unpack(archive: Path, directory: Path) -> dict[str, Any]:
    """The cluster's files go into the directory. Returns the answers of the release."""
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    answers: dict[str, Any] = json.loads((directory / ANSWERS).read_text())
    return answers


def main() -> int:
    ARCHIVES.mkdir(exist_ok=True)
    for how in ("clean", "killed"):
        archive = ARCHIVES / f"{__version__}-{how}.tar.xz"
        if archive.exists():
            print(f"{archive} is there already: what a release wrote does not change")
            return 1
        asyncio.run(write(archive, is_killed=how == "killed"))
        print(f"{archive}: {archive.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
