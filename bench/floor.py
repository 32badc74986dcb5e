"""The least that a small request costs on this machine: a chain of processes with nothing in it.

    python -m bench floor [--rates 200,1000,5000] [--seconds 5] [--json]

Three processes on uvloop pass frames as brokers pass a request of one record with acks=all: a
client's frame is appended to a file, synced, sent to two followers, appended and synced there,
acknowledged, and answered. There is no protocol, no log and no check, only sockets, files and
syncs, by the same code that brokers use for those. Each process leads and follows, like a broker.

The second table says what work costs after a pause: caches hold other programs' data by then.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, cast

import uvloop

from bench.processes import cpu_s, switches_of
from bench.report import Cell, Report
from runtime.real.disk import RealDisk
from stele.wire import kafka
from stele.wire.kafka.messages import fetch

NODES: Final = 3
WARM_UP_S: Final = 1.0
PAUSES_MS: Final = (0, 1, 3, 10)
ROUNDS: Final = 1000
# As large as what a client and brokers send for a record of 100 bytes.
REQUEST_BYTES: Final = 216
RECORD_BYTES: Final = 170
REPLICA_BYTES: Final = 247
POSITION_BYTES: Final = 124
ANSWER_BYTES: Final = 56


class Link(asyncio.BufferedProtocol):
    """A connection that carries frames of one size."""

    def __init__(self, frame_bytes: int, on_frame: Callable[[Link, bytes], None]) -> None:
        self._frame_bytes = frame_bytes
        self._on_frame = on_frame
        self._received = bytearray()
        self._room = bytearray(1 << 16)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self._received += memoryview(self._room)[:nbytes]
        while len(self._received) >= self._frame_bytes:
            frame = bytes(memoryview(self._received)[: self._frame_bytes])
            del self._received[: self._frame_bytes]
            self._on_frame(self, frame)

    def send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


class SyncedFile:
    """A file whose records are synced, those that came during a sync together by the next one."""

    def __init__(self, disk: RealDisk, path: str, on_durable: Callable[[int], None]) -> None:
        self._disk = disk
        self._path = path
        self._on_durable = on_durable
        self._file = disk.open(path, create=True)
        self._is_syncing = False
        self.records = 0

    def append(self, record: bytes) -> None:
        self._file.append([record])
        self.records += 1
        if not self._is_syncing:
            self._is_syncing = True
            asyncio.get_running_loop().call_soon(self._sync)

    def _sync(self) -> None:
        covered = self.records

        def ended(synced: asyncio.Future[None]) -> None:
            synced.result()
            self._on_durable(covered)
            if self.records > covered:
                self._sync()
            else:
                self._is_syncing = False

        asyncio.ensure_future(self._disk.sync([self._path])).add_done_callback(ended)


class Leader:
    """Answers a client's frame when it is on every disk."""

    def __init__(self, disk: RealDisk, path: str) -> None:
        self._file = SyncedFile(disk, path, self._made_durable)
        self._durable = 0
        self._positions: dict[Link, int] = {}
        self._unanswered: deque[Link] = deque()
        self._answered = 0

    def requested(self, client: Link, frame: bytes) -> None:
        self._file.append(frame[:RECORD_BYTES])
        self._unanswered.append(client)
        for follower in self._positions:
            follower.send(frame.ljust(REPLICA_BYTES, b"."))

    def follow(self) -> Link:
        """A follower has connected."""
        follower = Link(POSITION_BYTES, self._positioned)
        self._positions[follower] = 0
        return follower

    def _positioned(self, follower: Link, frame: bytes) -> None:
        self._positions[follower] = int.from_bytes(frame[:8], "big")
        self._answer()

    def _made_durable(self, records: int) -> None:
        self._durable = records
        self._answer()

    def _answer(self) -> None:
        least = min(self._durable, *self._positions.values())
        while self._answered < least:
            self._unanswered.popleft().send(bytes(ANSWER_BYTES))
            self._answered += 1


class Follower:
    """Tells its leader how much is on its disk."""

    def __init__(self, disk: RealDisk, path: str) -> None:
        self._file = SyncedFile(disk, path, self._made_durable)
        self._link = Link(REPLICA_BYTES, self._take)

    def follow(self) -> Link:
        """It is about to be connected to its leader."""
        return self._link

    def _take(self, leader: Link, frame: bytes) -> None:
        self._file.append(frame[:RECORD_BYTES])

    def _made_durable(self, records: int) -> None:
        self._link.send(records.to_bytes(8, "big").ljust(POSITION_BYTES, b"."))


async def run_node(prefix: str) -> None:
    """One of the processes: a leader, and a follower of the two others. It tells its ports for
    clients and followers, and hears the others' for followers. Its files begin with ``prefix``."""
    loop = asyncio.get_running_loop()
    disk = RealDisk()
    leader = Leader(disk, f"{prefix}-led")
    for_clients = await loop.create_server(
        lambda: Link(REQUEST_BYTES, leader.requested), "127.0.0.1", 0
    )
    for_followers = await loop.create_server(leader.follow, "127.0.0.1", 0)
    ports = [each.sockets[0].getsockname()[1] for each in (for_clients, for_followers)]
    print(json.dumps(ports), flush=True)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    for port in json.loads(await reader.readline()):
        follower = Follower(disk, f"{prefix}-followed-{port}")
        await loop.create_connection(follower.follow, "127.0.0.1", port)
    print("ready", flush=True)
    await reader.read()  # until the benchmark ends
    for server in (for_clients, for_followers):
        server.close()
    disk.close()


@contextlib.asynccontextmanager
async def nodes() -> AsyncIterator[tuple[list[int], list[int]]]:
    """The processes' ids, and the ports for clients."""
    with tempfile.TemporaryDirectory(prefix="stele-bench-") as directory:
        processes = []
        try:
            for number in range(NODES):
                processes.append(  # noqa: PERF401 - those that began are ended if one cannot
                    await asyncio.create_subprocess_exec(
                        *(sys.executable, "-m", "bench.floor", "--node", f"{directory}/{number}"),
                        stdin=asyncio.subprocess.PIPE,
                        stdout=asyncio.subprocess.PIPE,
                    )
                )
            ports = [json.loads(await _line_of(each)) for each in processes]
            for number, process in enumerate(processes):
                others = [pair[1] for at, pair in enumerate(ports) if at != number]
                assert process.stdin is not None
                process.stdin.write(json.dumps(others).encode() + b"\n")
            for process in processes:
                await _line_of(process)
            yield [process.pid for process in processes], [pair[0] for pair in ports]
        finally:
            for process in processes:
                assert process.stdin is not None
                process.stdin.close()
                await process.wait()


async def _line_of(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError(f"a process ended with exit code {await process.wait()}")
    return line


class Client:
    """Sends frames at a steady rate. A frame's time begins when it was due."""

    def __init__(self) -> None:
        self._links: list[Link] = []
        self._due: dict[Link, deque[float]] = {}
        self.latencies_s: list[float] = []

    async def connect(self, ports: Sequence[int]) -> None:
        loop = asyncio.get_running_loop()
        for port in ports:
            _, link = await loop.create_connection(
                lambda: Link(ANSWER_BYTES, self._answered), "127.0.0.1", port
            )
            self._links.append(link)
            self._due[link] = deque()

    def _answered(self, link: Link, _: bytes) -> None:
        self.latencies_s.append(time.perf_counter() - self._due[link].popleft())

    async def send(self, per_s: float, seconds: float) -> None:
        self.latencies_s.clear()
        began = time.perf_counter()
        for number in range(round(per_s * seconds)):
            due = began + number / per_s
            if (early := due - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            link = self._links[number % len(self._links)]
            self._due[link].append(due)
            link.send(bytes(REQUEST_BYTES))
        async with asyncio.timeout(60):
            while any(self._due.values()):  # noqa: ASYNC110 - answers come from other processes
                await asyncio.sleep(0.01)


async def chain_row(per_s: float, seconds: float) -> list[Cell]:
    async with nodes() as (pids, ports):
        client = Client()
        await client.connect(ports)
        await client.send(per_s, WARM_UP_S)
        used, switched = sum(map(cpu_s, pids)), switches_of(pids)
        await client.send(per_s, seconds)
        used, switched = sum(map(cpu_s, pids)) - used, switches_of(pids) - switched
        times_ms = sorted(each * 1000 for each in client.latencies_s)
    count = len(times_ms)
    return [
        per_s,
        times_ms[count // 2],
        times_ms[count * 99 // 100],
        used / count * 1e6,
        switched / count,
    ]


def _work() -> None:
    """What a broker does and undoes for a follower's fetch, in its own code alone."""
    position = fetch.FetchPartition(partition=0, fetch_offset=77, partition_max_bytes=1 << 20)
    request = fetch.FetchRequest(
        replica_state=fetch.ReplicaState(1, 5),
        session_id=7,
        session_epoch=9,
        topics=[fetch.FetchTopic(topic_id=bytes(16), partitions=[position])],
    )
    frame = bytearray().join(kafka.encode_request(fetch.API, 17, 5, "me", request))
    kafka.decode_request(frame[4:])
    found = fetch.PartitionData(partition_index=0, high_watermark=5, records=[bytes(170)])
    topic = fetch.FetchableTopicResponse(topic_id=bytes(16), partitions=[found])
    answer = fetch.FetchResponse(session_id=7, responses=[topic])
    frame = bytearray().join(kafka.encode_response(fetch.API.key, 17, 5, answer))
    kafka.decode_response(fetch.API, 17, frame[4:])


def pause_row(pause_ms: float) -> list[Cell]:
    for _ in range(ROUNDS):
        _work()
    used_s = 0.0
    for _ in range(ROUNDS):
        if pause_ms:
            time.sleep(pause_ms / 1000)
        began_s = time.thread_time()
        _work()
        used_s += time.thread_time() - began_s
    return [pause_ms, used_s / ROUNDS * 1e6]


async def run(options: argparse.Namespace) -> None:
    report = Report("floor", as_json=options.json)
    rates = list(map(float, options.rates.split(",")))
    report.table(
        "A synced and replicated frame through three processes that do nothing else",
        ["asked/s", "ack p50 ms", "ack p99 ms", "CPU, µs/request", "switches/request"],
        [await chain_row(per_s, options.seconds) for per_s in rates],
    )
    report.table(
        "Encoding and decoding a follower's fetch, alone in a process that pauses before each",
        ["pause ms", "CPU, µs"],
        [pause_row(pause_ms) for pause_ms in PAUSES_MS],
    )
    report.finish()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench floor", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rates", default="200,1000,5000")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--node", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    uvloop.run(run_node(options.node) if options.node else run(options))


if __name__ == "__main__":
    main()
