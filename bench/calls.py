"""How many calls and bytecode instructions a request costs the brokers. No time is measured.

    python -m bench.calls [--requests 200] [--connections 1] [--kind NAME] [--functions] [--json]

A simulated cluster of one controller and three brokers runs the code of real nodes, and gets the
same request again and again, each after the answer to the one before. With ``--connections 100``
a hundred requests arrive at one moment, each on its own connection, so most of them wait for their
turn as on a busy broker. Only the brokers' own functions count, and what they call directly. So the
figures are the same on a busy machine, and those of two versions can be compared function by
function.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, cast

from bench.call_kinds import ALONE, FOLLOWED, KINDS, REPLICATED, Call, Follower, Kind
from bench.report import Cell, Report
from chaos.sim.cluster.cluster import KAFKA_PORT, SimCluster
from chaos.sim.runs.swarm import silent
from stele.addresses import Address
from stele.wire import kafka
from stele.wire.kafka.messages import find_coordinator

_ROOT: Final = str(Path(kafka.__file__).parents[3]) + "/"
_ROOMS: Final = tuple(
    f"{_ROOT}{room}/"
    for room in (
        "broker",
        "metadata",
        "runtime/authorization",
        "runtime/kafka",
        "runtime/metrics",
        "runtime/quota",
        "security",
        "stele",
        "storage",
        "world",
    )
)
_GENERATED: Final = "<string>"  # methods of data classes and named tuples
_SETTINGS: Final = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
_WARM_UP: Final = 50
_SETTLE_S: Final = 0.05
"""After the last answer followers still fetch, and syncs end."""

_FORM_S: Final = 2.0
"""Within this time the topic of groups is there, and its coordinator."""

_LATENCY_S: Final = 0.000_3
"""The latency of every message, so that requests which are sent at one moment arrive at one
moment."""

_SIZE_BYTES: Final = 4


class _Client(asyncio.Protocol):
    """A connection with one request at a time. It decodes nothing while calls are counted."""

    def __init__(self, follower: Follower | None) -> None:
        self.follower = follower
        self._received = bytearray()
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < _SIZE_BYTES or self._answer is None:
            return
        if len(self._received) - _SIZE_BYTES == int.from_bytes(self._received[:_SIZE_BYTES]):
            self._answer.set_result(bytes(self._received[_SIZE_BYTES:]))
            self._received.clear()

    def close(self) -> None:
        self._transport.close()

    async def send(self, frame: bytes) -> bytes:
        """The frame of the answer."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(frame)
        return await self._answer

    async def ask(self, call: Call) -> Any:
        """See ``Peer``."""
        return kafka.decode_response(call.api, call.version, await self.send(_frame(call)))


def _frame(call: Call) -> bytes:
    return b"".join(kafka.encode_request(call.api, call.version, 7, "bench", call.message))


# -------------------------------------------------------------------------------- counting


class Counts(NamedTuple):
    """What some requests have cost the brokers."""

    calls: Counter[str]  # by function
    instructions: Counter[str]


def _is_of_brokers(code: CodeType | str) -> bool:
    """A string stands for a function that is not written in Python."""
    return not isinstance(code, str) and code.co_filename.startswith(_ROOMS)


def _name(code: CodeType | str) -> str:
    if isinstance(code, str):
        return code
    return f"{code.co_filename.removeprefix(_ROOT)} {code.co_qualname}"


def _calls(profile: cProfile.Profile) -> Counter[str]:
    """Calls of the brokers' functions, and their calls of others, by function."""
    counted: Counter[str] = Counter()
    for entry in profile.getstats():
        if not _is_of_brokers(entry.code):
            continue
        counted[_name(entry.code)] += entry.callcount
        for called in entry.calls or ():
            if not _is_of_brokers(called.code):
                counted[_name(called.code)] += called.callcount
    return counted


@contextmanager
def _counted_instructions() -> Iterator[Counter[str]]:
    counted: Counter[str] = Counter()

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        code, caller = frame.f_code, frame.f_back
        if code.co_filename == _GENERATED and caller is not None:
            is_counted = _is_of_brokers(caller.f_code)
        else:
            is_counted = _is_of_brokers(code)
        if not is_counted:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        name = _name(code)

        def step(frame: FrameType, event: str, argument: object) -> Any:
            if event == "opcode":
                counted[name] += 1
            return step

        return step

    sys.settrace(trace)
    try:
        yield counted
    finally:
        sys.settrace(None)


async def _send(clients: Sequence[_Client], frames: Sequence[bytes]) -> None:
    """All clients send at once, and again when all are answered."""
    for first in range(0, len(frames), len(clients)):
        together = zip(clients, frames[first : first + len(clients)], strict=True)
        await asyncio.gather(*(client.send(frame) for client, frame in together))
    await asyncio.sleep(_SETTLE_S)


async def _counted(clients: Sequence[_Client], kind: Kind, requests: int) -> Counts:
    calls = await kind.prepare(clients[0])
    await _send(clients, _frames(calls, -(-_WARM_UP // len(clients)) * len(clients)))
    frames = _frames(calls, requests)
    profile = cProfile.Profile()
    profile.enable()
    await _send(clients, frames)
    profile.disable()
    frames = _frames(calls, requests)
    with _counted_instructions() as instructions:
        await _send(clients, frames)
    return Counts(_calls(profile), instructions)


def _frames(calls: Iterator[Call], requests: int) -> list[bytes]:
    return [_frame(call) for call in islice(calls, requests)]


# -------------------------------------------------------------------------------- the cluster


class _Bench:
    def __init__(self, cluster: SimCluster, requests: int, connections: int) -> None:
        self._cluster = cluster
        self._requests = requests
        self._connections = connections
        self._follower: Follower | None = None

    async def run(self, kinds: Sequence[Kind]) -> dict[str, Counts]:
        cluster = self._cluster
        cluster.simulation.fabric.faults.latency_s = (_LATENCY_S, _LATENCY_S)
        for topic, replicas in ((ALONE, 1), (REPLICATED, 3), (FOLLOWED, 2)):
            await cluster.client.create_topic(topic, replication_factor=replicas)
            await cluster.until_isr(topic, replicas)
        connection = await cluster.client.connection(1)
        any_group = find_coordinator.FindCoordinatorRequest("any")  # makes the topic of groups
        await connection.request(find_coordinator.API, 3, any_group, timeout_s=5.0)
        await asyncio.sleep(_FORM_S)
        counts: dict[str, Counts] = {}
        for kind in kinds:
            if kind.topic == FOLLOWED and self._follower is None:
                await self._end_follower()
            counts[kind.name] = await self._count(kind)
        return counts

    async def _count(self, kind: Kind) -> Counts:
        leader = await self._cluster.client.find_leader(kind.topic)
        address = Address(self._cluster.brokers[leader].host, KAFKA_PORT)
        clients = [await self._connect(address) for _ in range(self._connections)]
        try:
            return await _counted(clients, kind, self._requests)
        finally:
            for client in clients:
                client.close()

    async def _connect(self, address: Address) -> _Client:
        client = _Client(self._follower)
        await self._cluster.client_world.network.connect(address, lambda: client)
        return client

    async def _end_follower(self) -> None:
        image = self._cluster.image
        topic = image.topic(FOLLOWED)
        assert topic is not None
        (partition,) = topic.partitions
        (broker_id,) = (each for each in partition.replicas if each != partition.leader)
        registration = image.broker(broker_id)
        assert registration is not None
        self._cluster.brokers[broker_id].kill()
        await self._cluster.until_isr(FOLLOWED, 1)
        leader_epoch = self._cluster.partition(FOLLOWED).leader_epoch
        epoch = registration.broker_epoch
        self._follower = Follower(broker_id, epoch, topic.topic_id, leader_epoch)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench calls", description=__doc__)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--connections", type=int, default=1, help="that send at one moment")
    parser.add_argument("--kind", help="a part of the names of the requests")
    parser.add_argument("--functions", action="store_true", help="each function's part")
    parser.add_argument("--json", action="store_true", help="one document for programs")
    options = parser.parse_args()
    if options.connections < 1 or options.requests < 1 or options.requests % options.connections:
        parser.error("--requests must be a multiple of --connections")
    report = Report("calls", as_json=options.json)
    kinds = [kind for kind in KINDS if options.kind is None or options.kind in kind.name]
    cluster = SimCluster(1, controllers=1, settings=_SETTINGS)
    with silent():
        counts = cluster.run(
            lambda each: _Bench(each, options.requests, options.connections).run(kinds)
        )
    rows: list[list[Cell]] = [
        [name, *(part.total() / options.requests for part in each)] for name, each in counts.items()
    ]
    report.table("Cost of a request", ["request", "calls", "instructions"], rows)
    for name, each in counts.items() if options.functions else ():
        functions = sorted({**each.calls, **each.instructions})
        rows = [
            [function, *(part[function] / options.requests for part in each)]
            for function in functions
        ]
        report.table(name, ["function", "calls", "instructions"], rows)
    report.finish()


if __name__ == "__main__":
    main()
