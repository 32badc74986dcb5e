"""What polite clients notice of a greedy client, and of work in the background.

    python -m bench tenants                      # one broker
    python -m bench tenants --brokers 3          # acks=all on three; a replica is moved, too
    python -m bench tenants --parts greedy --rounds 5

The polite clients send one record when it is due and fetch it, at a fixed rate. Each round measures
them quiet and beside each other work, so the ratios compare neighbouring seconds. The greedy client
keeps more requests in flight, on several connections, than a broker takes, so the load that it
offers is always above what the broker can take.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from statistics import median

from bench.processes import ClientProcess, fresh_cluster, wait_whole
from bench.report import BACKGROUND_RATIO, TENANTS_RATIO, Cell, Report
from bench.tenant_clients import Served
from chaos.process_cluster import ProcessCluster
from stele.admin.descriptions import ConfigResource, NewTopic
from stele.aio import Admin, Producer

POLITE = "polite"
GREEDY = "greedy"
RECORD_BYTES = 100
WARM_UP_S = 2.0
_VALUE_BYTES = 256 * 1024
_KEYS = 50  # of the compacted topic
_SETTLE_S = 1.0
_POLL_S = 0.2
PARTS = ("greedy", "rolls", "compaction", "backfill", "move")

Answer = dict[str, float]
Work = Callable[[], contextlib.AbstractAsyncContextManager[Callable[[], str]]]
"""Goes on while it is entered. The result says afterwards how much was done."""


class Tenants:
    """The cluster, its topics, and what goes on beside the polite clients."""

    def __init__(self, cluster: ProcessCluster, admin: Admin, options: argparse.Namespace) -> None:
        self._cluster = cluster
        self._admin = admin
        self._options = options
        self._bootstrap = cluster.bootstrap_servers
        self._counter = str(cluster.directory / "served")
        Served.create(self._counter)

    async def lay_out(self) -> None:
        """Make the topics, and the records that background work needs."""
        replicas = self._options.brokers
        synced = {"flush.messages": "1"}
        topics = [
            NewTopic(POLITE, self._options.clients, replicas, synced),
            NewTopic(GREEDY, self._options.connections, replicas, synced),
        ]
        parts = self._options.parts
        if "compaction" in parts:
            configs = {"cleanup.policy": "compact", "segment.bytes": str(8 << 20)}
            configs["min.cleanable.dirty.ratio"] = "1"
            topics.append(NewTopic("compacted", 1, 1, configs))
        if "backfill" in parts:
            topics.append(NewTopic("cold", 1, 1))
        if "move" in parts:
            first = self._cluster.broker_ids[0]
            topics.append(NewTopic("moved", assignments={0: [first]}))
        await self._admin.create_topics(topics)
        await wait_whole(self._admin, [each.name for each in topics])
        for topic in ("compacted", "cold", "moved"):
            if any(each.name == topic for each in topics):
                await self._fill(topic)

    async def _fill(self, topic: str) -> None:
        async with Producer(self._bootstrap, acks="all", batch_size=_VALUE_BYTES) as producer:
            for number in range((self._options.mib << 20) // _VALUE_BYTES):
                key = b"%d" % (number % _KEYS)
                await producer.send(topic, os.urandom(_VALUE_BYTES), key=key)

    def polite(self) -> contextlib.AbstractAsyncContextManager[ClientProcess]:
        """The process of the polite clients."""
        options = self._options
        return self.client(POLITE, POLITE, clients=options.clients, per_s=options.per_s)

    @contextlib.asynccontextmanager
    async def client(self, kind: str, topic: str, **job: object) -> AsyncIterator[ClientProcess]:
        job |= {"record_bytes": RECORD_BYTES, "counter": self._counter}
        started = {"client": kind, "topic": topic, **job}
        client = await ClientProcess.start({"bootstrap": self._bootstrap, **started})
        try:
            yield client
        finally:
            await client.close()

    # ------------------------------------------------------------------------------ work

    @contextlib.asynccontextmanager
    async def greedy(self) -> AsyncIterator[Callable[[], str]]:
        """Small requests, as many as the broker takes."""
        options = self._options
        told: Answer = {}
        job = {"connections": options.connections, "pipelined": options.pipelined}
        async with self.client("greedy", GREEDY, **job) as client:
            asked = asyncio.ensure_future(
                client.ask(do="throughput", seconds=options.seconds + WARM_UP_S + _SETTLE_S)
            )
            await asyncio.sleep(WARM_UP_S)
            yield lambda: f"{told['answers'] / told['seconds']:,.0f}/s, {told['errors']:.0f} errors"
            told |= await asked

    @contextlib.asynccontextmanager
    async def rolls(self) -> AsyncIterator[Callable[[], str]]:
        """Each partition of the polite clients begins a segment every second."""
        topic = ConfigResource.topic(POLITE)
        before = self._segments(POLITE)
        await self._admin.alter_configs({topic: {"segment.ms": "1000"}})
        rolled = 0
        try:
            yield lambda: f"{rolled} rolls"
            rolled = self._segments(POLITE) - before
        finally:
            await self._admin.alter_configs({topic: {"segment.ms": None}})

    @contextlib.asynccontextmanager
    async def compaction(self) -> AsyncIterator[Callable[[], str]]:
        """The cleaner compacts a log without a clean part."""
        topic = ConfigResource.topic("compacted")
        before = self._bytes("compacted")
        await self._admin.alter_configs({topic: {"min.cleanable.dirty.ratio": "0"}})
        after = before
        try:
            yield lambda: f"{before >> 20} MiB became {after >> 20}"
            after = self._bytes("compacted")
        finally:
            await self._admin.alter_configs({topic: {"min.cleanable.dirty.ratio": "1"}})
            await self._fill("compacted")  # for the next round

    @contextlib.asynccontextmanager
    async def backfill(self) -> AsyncIterator[Callable[[], str]]:
        """A client reads an old log that is not in the page cache."""
        told: Answer = {}
        async with self.client("backfill", "cold") as client:
            self._drop("cold")
            asked = asyncio.ensure_future(
                client.ask(do="throughput", seconds=self._options.seconds)
            )
            dropping = asyncio.ensure_future(self._keep_dropping("cold"))
            yield lambda: f"{told['bytes'] / told['seconds'] / (1 << 20):,.0f} MiB/s read"
            told |= await asked
            dropping.cancel()

    @contextlib.asynccontextmanager
    async def move(self) -> AsyncIterator[Callable[[], str]]:
        """A replica moves from broker to broker."""
        moves = 0

        async def keep_moving() -> None:
            nonlocal moves
            while True:
                for broker in self._cluster.broker_ids[::-1]:
                    await self._admin.alter_partition_reassignments({("moved", 0): [broker]})
                    while await self._admin.list_partition_reassignments():  # noqa: ASYNC110
                        await asyncio.sleep(_POLL_S)
                    moves += 1

        moving = asyncio.ensure_future(keep_moving())
        yield lambda: f"{moves} moves of {self._options.mib} MiB"
        moving.cancel()
        await asyncio.gather(moving, return_exceptions=True)
        while await self._admin.list_partition_reassignments():  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)

    # ----------------------------------------------------------------------------- files

    def _files(self, topic: str) -> list[Path]:
        return sorted(self._cluster.directory.glob(f"**/{topic}-*/*.log"))

    def _segments(self, topic: str) -> int:
        return len(self._files(topic))

    def _bytes(self, topic: str) -> int:
        return sum(each.stat().st_size for each in self._files(topic))

    def _drop(self, topic: str) -> None:
        for path in self._files(topic):
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    async def _keep_dropping(self, topic: str) -> None:
        while True:
            self._drop(topic)
            await asyncio.sleep(_POLL_S)


def _row(what: str, told: Answer, quiet: Answer, done: str) -> list[Cell]:
    ratios = [told[name] / quiet[name] for name in ("p99_ms", "fetch_p99_ms")]
    return [
        what,
        *(told[name] for name in ("p50_ms", "p99_ms", "fetch_p50_ms", "fetch_p99_ms")),
        *ratios,
        told["beside_p50"],
        told["beside_p99"],
        int(told["errors"]),
        done,
    ]


async def run(options: argparse.Namespace) -> None:
    report = Report("tenants", as_json=options.json)
    rows: list[list[Cell]] = []
    ratios: dict[str, list[float]] = {part: [] for part in options.parts}
    async with (
        fresh_cluster(
            {"log.cleaner.backoff.ms": "200"}, controllers=1, brokers=options.brokers
        ) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
        contextlib.AsyncExitStack() as stack,
    ):
        tenants = Tenants(cluster, admin, options)
        await tenants.lay_out()
        polite = await stack.enter_async_context(tenants.polite())
        measure = functools.partial(polite.ask, do="throughput")
        await measure(seconds=WARM_UP_S)
        for turn in range(options.rounds):
            for part in options.parts:
                report.note(f"  round {turn + 1}, {part} ...")
                work: Work = getattr(tenants, part)
                quiet = await measure(seconds=options.seconds)
                async with work() as done:
                    told = await measure(seconds=options.seconds)
                rows.append(_row(f"{turn + 1}: quiet", quiet, quiet, ""))
                rows.append(_row(f"{turn + 1}: beside {part}", told, quiet, done()))
                ratios[part].append(told["p99_ms"] / quiet["p99_ms"])
                await asyncio.sleep(_SETTLE_S)
    report.table(
        f"{options.clients} polite clients, each {options.per_s:g} records/s of {RECORD_BYTES} B, "
        f"acks=all, {options.brokers} broker(s), synced",
        [
            "round and work",
            "ack p50 ms",
            "ack p99 ms",
            "fetch p50 ms",
            "fetch p99 ms",
            "ack p99, to quiet",
            "fetch p99, to quiet",
            "greedy requests between, p50",
            "greedy requests between, p99",
            "errors",
            "work done",
        ],
        rows,
    )
    for part, found in ratios.items():
        report.compare(TENANTS_RATIO if part == "greedy" else BACKGROUND_RATIO[part], median(found))
    report.finish()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench tenants", description="Polite clients' latency.")
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--per-s", type=float, default=20.0, help="records of each polite client")
    parser.add_argument("--connections", type=int, default=8, help="of the greedy client")
    parser.add_argument("--pipelined", type=int, default=200, help="requests on each of them")
    parser.add_argument("--parts", help=f"some of {','.join(PARTS)}; all that can be by default")
    parser.add_argument("--mib", type=int, default=256, help="of each log for background work")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    possible = PARTS if options.brokers > 1 else PARTS[:-1]
    options.parts = options.parts.split(",") if options.parts else list(possible)
    if unknown := [each for each in options.parts if each not in possible]:
        parser.error(f"--parts {','.join(unknown)}: with this many brokers {','.join(possible)}")
    asyncio.run(run(options))


if __name__ == "__main__":
    main()
