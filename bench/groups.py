"""The costs of groups: joins, heartbeats, commits, loads of a coordinator, idle connections.

python -m bench groups [--groups 500] [--members 200] [--offsets 1000000] [--connections 1000]
[--seconds 10] [--json]

The members are bare: each has a connection of its own, and sends only the requests of the protocol.
So the figures are those of the brokers.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any

import uvloop

from bench.processes import cpu_of, fresh_cluster, metrics_of, rss_mib, wait_whole
from bench.report import Cell, Report, percentile
from chaos.process_cluster import NodeProcess, ProcessCluster
from stele.admin.descriptions import NewTopic
from stele.aio import Admin
from stele.cluster.kafka_connection import KafkaConnection
from stele.errors import ErrorCode
from stele.real import real_connector
from stele.security.client_security import PLAINTEXT
from stele.wire.kafka.messages import (
    find_coordinator,
    heartbeat,
    join_group,
    offset_commit,
    sync_group,
)

TOPIC = "t"
PARTITIONS = 100
TIMEOUT_S = 120.0
SESSION_MS = 45_000
COMMITTERS = 100
_LOAD_GROUPS_AT_A_TIME = 50
_RETRY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class Member:
    """A member of a group, or a committer without one."""

    def __init__(self, group: str, connection: KafkaConnection) -> None:
        self.group = group
        self.connection = connection
        self.member_id = ""
        self.generation = -1

    async def ask(self, api: Any, version: int, request: Any) -> Any:
        return await self.connection.request(api, version, request, timeout_s=TIMEOUT_S)

    async def join(self) -> None:
        """Become a member of a stable generation, whatever rebalances that takes."""
        while True:
            joined = await self.ask(
                join_group.API,
                9,
                join_group.JoinGroupRequest(
                    self.group,
                    session_timeout_ms=SESSION_MS,
                    rebalance_timeout_ms=SESSION_MS,
                    member_id=self.member_id,
                    protocol_type="consumer",
                    protocols=[join_group.JoinGroupRequestProtocol("range", bytes(12))],
                ),
            )
            self.member_id = joined.member_id
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                continue
            assert joined.error_code == ErrorCode.NONE, ErrorCode(joined.error_code).name
            self.generation = joined.generation_id
            synced = await self.ask(
                sync_group.API,
                5,
                sync_group.SyncGroupRequest(
                    self.group,
                    self.generation,
                    self.member_id,
                    protocol_type="consumer",
                    protocol_name="range",
                    assignments=[
                        sync_group.SyncGroupRequestAssignment(each.member_id, bytes(16))
                        for each in joined.members
                    ],
                ),
            )
            if synced.error_code == ErrorCode.NONE:
                return
            error = ErrorCode(synced.error_code)
            assert error is ErrorCode.REBALANCE_IN_PROGRESS, error.name

    async def heartbeat(self) -> None:
        answer = await self.ask(
            heartbeat.API,
            4,
            heartbeat.HeartbeatRequest(self.group, self.generation, self.member_id),
        )
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name

    async def commit(self, partitions: Sequence[int], offset: int) -> None:
        answer = await self.ask(
            offset_commit.API,
            9,
            offset_commit.OffsetCommitRequest(
                self.group,
                self.generation,
                self.member_id,
                topics=[
                    offset_commit.OffsetCommitRequestTopic(
                        name=TOPIC,
                        partitions=[
                            offset_commit.OffsetCommitRequestPartition(each, offset)
                            for each in partitions
                        ],
                    )
                ],
            ),
        )
        errors = {each.error_code for topic in answer.topics for each in topic.partitions}
        assert errors == {ErrorCode.NONE}, errors


class Clients:
    """Connections to the brokers of one cluster."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self.cluster = cluster
        self.brokers = [cluster.nodes[each] for each in cluster.broker_ids]
        self._connector = real_connector(PLAINTEXT)
        self._open: list[KafkaConnection] = []

    async def connection(self, port: int | None) -> KafkaConnection:
        assert port is not None  # brokers have one
        made = await KafkaConnection.open(self._connector, "127.0.0.1", port, "bench")
        self._open.append(made)
        return made

    async def close(self) -> None:
        for each in self._open:
            each.close()
        self._open.clear()
        await asyncio.sleep(0)

    async def members(self, groups: Sequence[str]) -> list[Member]:
        """A client of each group's coordinator, connected."""
        ports = await self.coordinators(sorted(set(groups)))
        return [Member(group, await self.connection(ports[group])) for group in groups]

    async def coordinators(self, groups: Sequence[str]) -> dict[str, int]:
        asking = await self.connection(self.brokers[0].kafka_port)
        while True:
            request = find_coordinator.FindCoordinatorRequest(coordinator_keys=list(groups))
            answer = await asking.request(find_coordinator.API, 4, request, timeout_s=TIMEOUT_S)
            if not any(each.error_code in _RETRY for each in answer.coordinators):
                return {each.key: each.port for each in answer.coordinators}
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def _clients(settings: dict[str, str]) -> AsyncIterator[Clients]:
    async with fresh_cluster(settings) as cluster:
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
            await wait_whole(admin, [TOPIC])
        clients = Clients(cluster)
        try:
            await _until_loaded(clients)
            yield clients
        finally:
            await clients.close()


async def _until_loaded(clients: Clients) -> None:
    """Wait until every coordinator answers."""
    (probe,) = await clients.members(["probe"])
    while True:
        with contextlib.suppress(AssertionError):
            await probe.commit([0], 0)
            return
        await asyncio.sleep(0.1)


async def _measured(
    clients: Clients, work: Coroutine[Any, Any, None]
) -> tuple[float, float, float]:
    """Seconds, and the CPU seconds of the brokers and of their helpers."""
    before = cpu_of(clients.brokers)
    began = time.perf_counter()
    await work
    took_s = time.perf_counter() - began
    used = cpu_of(clients.brokers) - before
    return took_s, used.nodes, used.helpers


async def _all(work: Sequence[Awaitable[None]]) -> None:
    await asyncio.gather(*work)


# --------------------------------------------------------------------------------- joins


async def _joins(clients: Clients, members: int, groups: int) -> tuple[list[list[Cell]], Any]:
    crowd = await clients.members(["crowd"] * members)
    took_s, nodes_s, _ = await _measured(clients, _all([each.join() for each in crowd]))
    rows: list[list[Cell]] = [
        [f"{members} members of one group", took_s, 1000 * nodes_s / members, crowd[0].generation]
    ]
    singles = await clients.members([f"group-{number}" for number in range(groups)])
    took_s, nodes_s, _ = await _measured(clients, _all([each.join() for each in singles]))
    rows.append([f"{groups} groups of one member", took_s, 1000 * nodes_s / groups, 1])
    return rows, singles


# --------------------------------------------------------------------- heartbeats, commits


async def _repeat(act: Callable[[], Awaitable[None]], deadline: float, took: list[float]) -> None:
    while (began := time.perf_counter()) < deadline:
        await act()
        took.append(time.perf_counter() - began)


async def _steady(
    clients: Clients, name: str, acts: Sequence[Callable[[], Awaitable[None]]], seconds: float
) -> list[Cell]:
    """Each act again and again, one at a time each."""
    took: list[float] = []
    deadline = time.perf_counter() + seconds
    work = _all([_repeat(act, deadline, took) for act in acts])
    took_s, nodes_s, helpers_s = await _measured(clients, work)
    count = len(took)
    return [
        name,
        count / took_s,
        1000 * percentile(took, 50),
        1000 * percentile(took, 99),
        1e6 * nodes_s / count,
        1e6 * helpers_s / count,
    ]


def _commits(members: Sequence[Member]) -> list[Callable[[], Awaitable[None]]]:
    offsets = itertools.count()

    def act(member: Member, partition: int) -> Callable[[], Awaitable[None]]:
        return lambda: member.commit([partition], next(offsets))

    return [act(each, number % PARTITIONS) for number, each in enumerate(members)]


async def _members_at_work(report: Report, groups: int, members: int, seconds: float) -> None:
    async with _clients({"group.initial.rebalance.delay.ms": "100"}) as clients:
        report.note(f"  {members} members of one group and {groups} groups join ...")
        joins, singles = await _joins(clients, members, groups)
        report.note("  heartbeats and commits ...")
        rows = [
            await _steady(
                clients,
                f"heartbeats of {groups} groups",
                [each.heartbeat for each in singles],
                seconds,
            ),
            await _steady(clients, f"commits of {groups} groups", _commits(singles), seconds),
        ]
        alone = await clients.members(["shared"] * COMMITTERS)
        name = f"commits of {COMMITTERS} clients, one group"
        rows.append(await _steady(clients, name, _commits(alone), seconds))
    report.table(
        "Joins, to the stable group",
        ["who", "s", "broker CPU ms per member", "generations"],
        joins,
    )
    report.table(
        "Heartbeats and commits, each of one partition, RF 3, synced, one at a time per client",
        ["what", "per s", "p50 ms", "p99 ms", "CPU µs of all brokers each", "helpers' µs each"],
        rows,
    )


# ---------------------------------------------------------------------------------- load


async def _load(report: Report, offsets: int) -> None:
    """One partition holds all offsets. Its leader is killed, and another broker loads it."""
    settings = {"offsets.topic.num.partitions": "1", "broker.session.timeout.ms": "3000"}
    async with _clients(settings) as clients:
        report.note(f"  {offsets:,} offsets are committed ...")
        groups = [f"group-{number}" for number in range(offsets // PARTITIONS)]
        port = (await clients.coordinators(["group-0"]))["group-0"]
        connections = [await clients.connection(port) for _ in range(_LOAD_GROUPS_AT_A_TIME)]
        began = time.perf_counter()

        async def fill(connection: KafkaConnection, some: Sequence[str]) -> None:
            for group in some:
                await Member(group, connection).commit(range(PARTITIONS), 1)

        await _all(
            [
                fill(each, groups[number :: len(connections)])
                for number, each in enumerate(connections)
            ]
        )
        filled_s = time.perf_counter() - began
        (leader,) = (each for each in clients.brokers if each.kafka_port == port)
        before = {each.node_id: rss_mib(each.pid) for each in clients.brokers}
        report.note("  the coordinator is killed, and another broker loads them ...")
        began = time.perf_counter()
        clients.cluster.kill(leader.node_id)
        others = [each for each in clients.brokers if each is not leader]
        successor = await _successor(others)
        failover_s = time.perf_counter() - began
        metrics = metrics_of(successor)
        row: list[Cell] = [
            f"{offsets:,}",
            filled_s,
            metrics["stele_group_load_seconds_max"],
            int(metrics["stele_event_loop_long_turns_total"]),
            failover_s,
            rss_mib(successor.pid) - before[successor.node_id],
            before[leader.node_id],
        ]
    report.table(
        "A coordinator's load",
        [
            "offsets",
            "to commit them, s",
            "load, s",
            "turns of 100 ms or more",
            "kill -9 to loaded, s",
            "RSS more, MiB",
            "RSS of who committed them, MiB",
        ],
        [row],
    )


async def _successor(others: Sequence[NodeProcess]) -> NodeProcess:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            for node in others:
                if metrics_of(node).get("stele_group_offsets", 0) > 0:
                    return node
            await asyncio.sleep(0.05)


# ---------------------------------------------------------------------------- connections


async def _connections(report: Report, count: int, seconds: float) -> None:
    async with _clients({}) as clients:
        broker = clients.brokers[0]
        await asyncio.sleep(3)
        idle = cpu_of([broker])
        await asyncio.sleep(seconds)
        idle = cpu_of([broker]) - idle
        before_mib = rss_mib(broker.pid)
        report.note(f"  {count} connections ...")
        for _ in range(count):
            await (await clients.connection(broker.kafka_port)).negotiate(timeout_s=TIMEOUT_S)
        await asyncio.sleep(1)
        with_mib = rss_mib(broker.pid)
        used = cpu_of([broker])
        await asyncio.sleep(seconds)
        used = cpu_of([broker]) - used
    report.table(
        f"{count} idle connections to one broker",
        ["what", "before", "with them"],
        [
            ["RSS, MiB", before_mib, with_mib],
            ["CPU, % of one core", 100 * idle.nodes / seconds, 100 * used.nodes / seconds],
            ["KiB for each connection", None, 1024 * (with_mib - before_mib) / count],
        ],
    )


async def run(options: argparse.Namespace) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    report = Report("groups", as_json=options.json)
    await _members_at_work(report, options.groups, options.members, options.seconds)
    await _load(report, options.offsets)
    await _connections(report, options.connections, options.seconds)
    report.finish()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench groups", description="What groups cost.")
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--members", type=int, default=200)
    parser.add_argument("--offsets", type=int, default=1_000_000)
    parser.add_argument("--connections", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", action="store_true")
    uvloop.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
