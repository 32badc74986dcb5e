"""Changed requests to a broker without logs, on both planes: it answers or refuses, and goes on."""

from __future__ import annotations

import asyncio
import logging
import random
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from broker.grpc.admin import AdminService
from broker.grpc.groups import GroupsService
from broker.grpc.transactions import TransactionsService
from metadata.internal_topics import GROUP_TOPIC
from stele.wire.kafka.messages import api_versions
from stele.wire.v1 import admin_pb2, groups_pb2, log_pb2, transactions_pb2
from stele.world import RpcError
from tests.fuzz.bytes import mutated
from tests.fuzz.codec import KINDS, Pool
from tests.fuzz.messages import fill
from tests.support.broker_apis import Client, Edges
from tests.support.broker_edges import PEER
from tests.support.timing import run_virtual, until

AT_ONCE: Final = 20
"""Requests to one broker."""

_PATIENCE_S: Final = 600.0
_SIZE: Final = struct.Struct(">i")


class Said(logging.Handler):
    """What is logged meanwhile. An error is a defect, and warnings must not pile up."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def __enter__(self) -> Said:
        self._root = logging.getLogger()
        self._root.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._root.removeHandler(self)

    def check(self, requests: int) -> None:
        errors = [each for each in self.records if each.levelno >= logging.ERROR]
        formatter = logging.Formatter()
        assert not errors, "\n".join(formatter.format(each) for each in errors)
        assert len(self.records) <= requests, "more than one line for each request"


async def broker() -> Edges:
    edges = Edges(group_initial_rebalance_delay_ms="0")
    edges.add_topic("t", [[1], [2, 1], [1, 2]])
    edges.add_topic(GROUP_TOPIC, [[1]])
    await until(lambda: len(edges.groups.active) == 1)
    return edges


async def check_alive(edges: Edges) -> None:
    request = api_versions.ApiVersionsRequest("test", "1.0")
    client = edges.client()
    assert (await client.call(api_versions.API, 4, request)).error_code == 0
    client.disconnect()
    failures = [
        name for name in edges.registry.values() if name.startswith("stele_request_failures")
    ]
    assert not failures, failures


def check_over_kafka(frames: Sequence[bytes]) -> int:
    """Returns how many requests were answered."""

    async def main() -> int:
        edges = await broker()
        answered = 0
        client: Client | None = None
        for frame in frames:
            if client is None or client.transport.closed:
                client = edges.client()
            client.send_bytes(_SIZE.pack(len(frame)) + frame)
            for _ in range(5):
                await asyncio.sleep(0)
            answered += client.transport.written.qsize() > 0
            if client.transport.written.empty():  # it may wait for something
                client.disconnect()
                client = None
            else:
                client.transport.written.get_nowait()
        await asyncio.sleep(_PATIENCE_S)
        await check_alive(edges)
        return answered

    with Said() as said:
        count = run_virtual(main())
    said.check(3 * len(frames))
    return count


class KafkaTarget:
    name = "kafka"

    def __init__(self, rng: random.Random) -> None:
        self._pools = {kind: Pool(rng, *kind) for kind in KINDS}

    def draw(self, rng: random.Random) -> list[bytes]:
        return [bytes(self._frame(rng)) for _ in range(AT_ONCE)]

    def _frame(self, rng: random.Random) -> bytes | bytearray:
        pool = self._pools[rng.choice(KINDS)]
        return pool.changed(rng) if rng.random() < 0.6 else rng.choice(pool.frames)

    def check(self, data: list[bytes]) -> str:
        return "answered" if check_over_kafka(data) else "nothing answered"


# ------------------------------------------------------------------------------------ gRPC

_FILES: Final[tuple[FileDescriptor, ...]] = (
    admin_pb2.DESCRIPTOR,
    groups_pb2.DESCRIPTOR,
    log_pb2.DESCRIPTOR,
    transactions_pb2.DESCRIPTOR,
)


def _methods(*, are_streams: bool) -> dict[str, type[Message]]:
    """The request of each method, by the method's path."""
    return {
        f"/{service.full_name}/{method.name}": GetMessageClass(method.input_type)
        for file in _FILES
        for service in file.services_by_name.values()
        for method in service.methods
        if method.client_streaming is are_streams
    }


METHODS: Final = _methods(are_streams=False)
STREAMS: Final = _methods(are_streams=True)

Call = tuple[str, bytes]


def check_over_grpc(calls: Sequence[Call]) -> int:
    """Returns how many were answered."""

    async def main() -> int:
        edges = await broker()
        handlers: dict[str, Callable[..., Awaitable[Any]]] = {}
        for made in (
            AdminService(edges.context, "EXTERNAL"),
            GroupsService(edges.context, "EXTERNAL"),
            TransactionsService(edges.context, "EXTERNAL"),
        ):
            handlers |= made.service().unary
        answered = 0
        for path, payload in calls:
            if path not in handlers:
                continue  # a whole node serves it
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    assert isinstance(await handlers[path](payload, PEER), bytes)
                answered += 1
            except (RpcError, TimeoutError):
                pass
        await check_alive(edges)
        return answered

    with Said() as said:
        count = run_virtual(main())
    said.check(3 * len(calls))
    return count


class Payloads:
    """Some requests of each method."""

    def __init__(self, rng: random.Random, methods: dict[str, type[Message]]) -> None:
        self._of = {
            path: [fill(rng, request()).SerializeToString() for _ in range(12)]
            for path, request in sorted(methods.items())
        }
        self.paths = list(self._of)

    def draw(self, rng: random.Random, path: str) -> bytes:
        payloads = self._of[path]
        payload = rng.choice(payloads)
        return bytes(mutated(rng, payload, payloads)) if rng.random() < 0.6 else payload


class GrpcTarget:
    name = "grpc"

    def __init__(self, rng: random.Random) -> None:
        self._payloads = Payloads(rng, METHODS)

    def draw(self, rng: random.Random) -> list[Call]:
        paths = [rng.choice(self._payloads.paths) for _ in range(AT_ONCE)]
        return [(path, self._payloads.draw(rng, path)) for path in paths]

    def check(self, data: list[Call]) -> str:
        return "answered" if check_over_grpc(data) else "nothing answered"
