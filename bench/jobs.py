"""The jobs that benchmarks give to client processes (``bench.clients``). ``bootstrap`` is added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bench.processes import ClientProcess

Job = dict[str, object]

ACKS_ALL: Final = "all"


def sending(
    topic: str, partitions: int, record_bytes: int, batch_bytes: int, client: str = "librdkafka"
) -> Job:
    """As many records as the producer takes, to all partitions in turn."""
    return {
        "client": client,
        "topic": topic,
        "partitions": partitions,
        "record_bytes": record_bytes,
        "batch_bytes": batch_bytes,
        "acks": ACKS_ALL,
    }


def single_records(topic: str, partitions: int, per_s: float, record_bytes: int = 100) -> Job:
    """Requests of one record each at a steady rate."""
    return {
        "client": "small",
        "topic": topic,
        "partitions": partitions,
        "record_bytes": record_bytes,
        "per_s": per_s,
    }


def reading(topic: str, partitions: int, connections: int, *, max_wait_ms: int = 100) -> Job:
    """Connections that fetch the beginning of partitions again and again. If the topic is empty,
    each answer comes after ``max_wait_ms``."""
    return {
        "client": "readers",
        "topic": topic,
        "partitions": partitions,
        "connections": connections,
        "fetch_bytes": 1 << 20,
        "max_wait_ms": max_wait_ms,
    }


async def measured(
    bootstrap: str, job: Mapping[str, object], seconds: float, *, warm_s: float = 0.0
) -> dict[str, float]:
    """What a client process measures in so many seconds, after a warm-up."""
    client = await ClientProcess.start({"bootstrap": bootstrap, **job})
    try:
        if warm_s:
            await client.ask(do="throughput", seconds=warm_s)
        return await client.ask(do="throughput", seconds=seconds)
    finally:
        await client.close()
