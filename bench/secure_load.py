"""The load of ``bench secure``: producing, fetching and single records over each protection, of one
node of Stele and one of Apache Kafka. All clients run in processes of their own.

On a machine with other work the server's CPU says more than rates.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from bench.jobs import Job, measured, reading, sending, single_records
from bench.kafka_cluster import KafkaNode
from bench.processes import cpu_s
from bench.report import Cell, Report
from bench.secure_server import LISTENERS
from chaos.process_cluster import Ports

PARTITIONS: Final = 6
RECORD_BYTES: Final = 1024
BATCH_BYTES: Final = 128 * 1024
READERS: Final = 4
PER_S: Final = 500
_WARM_S: Final = 1.0
_WAIT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Target:
    """One node that is measured. ``cpu_s``: what its process has used."""

    name: str
    ports: Mapping[str, int]
    cpu_s: Callable[[], Awaitable[float]]


@dataclass(frozen=True, slots=True)
class ClientFiles:
    """What a client needs to come in: the truststore, and a keystore where one is asked for."""

    truststore: Path
    keystore: Path

    def own(self, listener: str) -> dict[str, str]:
        """The options of our clients."""
        if listener == "PLAINTEXT":
            return {}
        found = {"security_protocol": "SSL", "ssl_truststore_location": str(self.truststore)}
        if listener == "MTLS":
            found["ssl_keystore_location"] = str(self.keystore)
        return found

    def librdkafka(self, listener: str) -> dict[str, str]:
        """Its properties."""
        if listener == "PLAINTEXT":
            return {}
        found = {
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.truststore),
            "ssl.endpoint.identification.algorithm": "none",  # it compares no addresses
        }
        if listener == "MTLS":
            found |= dict.fromkeys(
                ("ssl.certificate.location", "ssl.key.location"), str(self.keystore)
            )
        return found


Row = dict[str, float]
PRODUCE: Final = "produce, MB/s"
FETCH: Final = "fetch, MB/s"
SINGLE: Final = f"{PER_S} single records/s, p50 ms"
CPU_IN: Final = "server's CPU s/GB in"
CPU_OUT: Final = "server's CPU s/GB out"
CPU_SINGLE: Final = "server's CPU µs per single record"


async def measure(
    targets: list[Target], files: ClientFiles, rounds: int, seconds: float, report: Report
) -> None:
    """Each round begins with another listener, so that no listener is always the first. Round 0
    does not count: in it Java's compiler sees every path."""
    found: dict[tuple[str, str], list[Row]] = {}
    for turn in range(rounds + 1):
        for target in targets:
            first = turn % len(LISTENERS)
            for listener in (*LISTENERS[first:], *LISTENERS[:first]):
                report.note(f"  round {turn}, {target.name}, {listener} ...")
                row = await _row(target, files, listener, f"{listener}-{turn}", seconds)
                if turn:
                    found.setdefault((target.name, listener), []).append(row)
    medians = {
        key: {name: median(each[name] for each in found[key]) for name in found[key][0]}
        for key in itertools.product((each.name for each in targets), LISTENERS)
    }
    _report(medians, report)


def _report(medians: Mapping[tuple[str, str], Row], report: Report) -> None:
    names = [PRODUCE, FETCH, SINGLE, CPU_IN, CPU_OUT, CPU_SINGLE]
    rows: list[list[Cell]] = []
    for (target, listener), row in medians.items():
        rows.append([f"{target}, {listener}", *(row[name] for name in names)])
        if listener != "PLAINTEXT":
            plain = medians[target, "PLAINTEXT"]
            rows.append(["  to plaintext", *(row[name] / plain[name] for name in names)])
    report.table(
        f"Records of {RECORD_BYTES} B in batches of {BATCH_BYTES // 1024} KiB by librdkafka, "
        f"{READERS} readers, acks=all, one replica; medians of the rounds",
        ["node and listener", *names],
        rows,
    )


async def _row(
    target: Target, files: ClientFiles, listener: str, topic: str, seconds: float
) -> Row:
    at = f"127.0.0.1:{target.ports[listener]}"
    _create(f"127.0.0.1:{target.ports['PLAINTEXT']}", topic)
    before = await target.cpu_s()

    async def ask(job: Job) -> tuple[dict[str, float], float]:
        """What the client found, and the server's CPU of it."""
        nonlocal before
        given = {
            **job, "properties": files.librdkafka(listener), "security": files.own(listener)
        }  # fmt: skip
        told = await measured(at, given, seconds, warm_s=_WARM_S)
        before, began = await target.cpu_s(), before
        # The warm-up is as dear as the rest.
        return told, (before - began) * told["seconds"] / (told["seconds"] + _WARM_S)

    sent, cpu_in = await ask(sending(topic, PARTITIONS, RECORD_BYTES, BATCH_BYTES))
    read, cpu_out = await ask(reading(topic, PARTITIONS, READERS))
    single, cpu_single = await ask(single_records(topic, PARTITIONS, PER_S))
    return {
        PRODUCE: sent["bytes"] / sent["seconds"] / 1e6,
        FETCH: read["bytes"] / read["seconds"] / 1e6,
        SINGLE: single["p50_ms"],
        CPU_IN: cpu_in / sent["bytes"] * 1e9,
        CPU_OUT: cpu_out / read["bytes"] * 1e9,
        CPU_SINGLE: cpu_single / single["records"] * 1e6,
    }


def _create(bootstrap: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    wanted = NewTopic(topic, PARTITIONS, 1)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([wanted], operation_timeout=_WAIT_S)[topic].result(_WAIT_S)


@contextlib.asynccontextmanager
async def kafka(jars: Path, truststore: Path, keystore: Path) -> AsyncIterator[Target]:
    """One node of Kafka with the same three listeners. Raises KafkaError."""
    ports, directory = Ports(None), Path(tempfile.mkdtemp(prefix="stele-bench-kafka-"))
    listeners = {name: ports.kafka() for name in LISTENERS}
    controller = ports.kafka()
    node = KafkaNode(
        directory,
        jars,
        1,
        {
            "process.roles": "broker,controller",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": ",".join(
                f"{name}://127.0.0.1:{port}"
                for name, port in {**listeners, "CONTROLLER": controller}.items()
            ),
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,SSL:SSL,MTLS:SSL,CONTROLLER:PLAINTEXT"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": keystore,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": truststore,
            "listener.name.mtls.ssl.client.auth": "required",
            "offsets.topic.replication.factor": 1,
        },
    )

    async def used_s() -> float:
        assert node.pid is not None
        return cpu_s(node.pid)

    try:
        await node.format()
        await node.start()
        await node.wait_listening(listeners["MTLS"])
        yield Target("Kafka", listeners, used_s)
    finally:
        await node.stop()
        shutil.rmtree(directory, ignore_errors=True)
