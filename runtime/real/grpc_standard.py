"""The services that every gRPC server has: ``grpc.health.v1`` and reflection.

Health is asked without a login, by whoever restarts nodes. So few of its requests are read at once,
each for a short time: one may be as large as any.
"""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

import stele.wire.v1
from stele.world import RpcCode, RpcError, Stream
from world.network import REFLECTION, Peer, Service

CHECK: Final = "/grpc.health.v1.Health/Check"
WATCH: Final = "/grpc.health.v1.Health/Watch"

REQUESTS_MAX: Final = 4
"""The most requests about health that are being read, and of these one of an address."""

REQUEST_S: Final = 5.0
"""How long a request about health may take to come."""

WATCHES_MAX: Final = 100
"""The most streams that watch the health of a node."""

REQUEST_BYTES_MAX: Final = 64 * 1024

_POLL_S: Final = 0.5
"""How often a watcher's answer is compared with the node's state."""


def standard_service(service: Service, health: Mapping[str, bool]) -> Service:
    """``health`` is read anew at every question."""
    checked = _Health(health)
    return Service(
        streams={
            CHECK: checked.check,
            WATCH: checked.watch,
            REFLECTION: _Reflection(service).converse,
        }
    )


class _Health:
    """``grpc.health.v1``. The service "" is the node: serving when all of its services are."""

    def __init__(self, serving: Mapping[str, bool]) -> None:
        self._serving = serving
        self._reading: Counter[str] = Counter()  # by address
        self._watches = 0

    async def check(self, stream: Stream, peer: Peer) -> None:
        """Served as a stream, because the request of a unary call is read before its handler
        runs."""
        service = await self._service_asked(stream, peer)
        if service is None:
            if not all(self._serving.values()):
                raise _too_many("requests about health are being read")
            service = ""  # all serve, whichever it is
        status = self._status(service)
        if status is None:
            raise RpcError(RpcCode.NOT_FOUND, f"no service {service!r}")
        await stream.send(health_pb2.HealthCheckResponse(status=status).SerializeToString())

    async def watch(self, stream: Stream, peer: Peer) -> None:
        service = await self._service_asked(stream, peer)
        if service is None or self._watches >= WATCHES_MAX:
            raise _too_many("clients watch the health")
        self._watches += 1
        try:
            await self._follow(stream, service)
        finally:
            self._watches -= 1

    async def _follow(self, stream: Stream, service: str) -> None:
        last: int | None = None
        while True:
            status = self._status(service)
            if status is None:
                status = int(health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
            if status != last:
                last = status
                answer = health_pb2.HealthCheckResponse(status=status)
                await stream.send(answer.SerializeToString())
            await asyncio.sleep(_POLL_S)

    async def _service_asked(self, stream: Stream, peer: Peer) -> str | None:
        """The service that a client asks about; None: too many are being read. Raises RpcError."""
        if self._reading.total() >= REQUESTS_MAX or self._reading[peer.address]:
            return None
        with self._counted(peer.address):
            try:
                async with asyncio.timeout(REQUEST_S):
                    payload = await stream.receive()
            except TimeoutError:
                raise RpcError(
                    RpcCode.DEADLINE_EXCEEDED, f"no request came within {REQUEST_S:g} s"
                ) from None
        if payload is None or len(payload) > REQUEST_BYTES_MAX:
            raise RpcError(RpcCode.INVALID_ARGUMENT, "no HealthCheckRequest")
        try:
            return str(health_pb2.HealthCheckRequest.FromString(payload).service)
        except DecodeError:
            raise RpcError(RpcCode.INVALID_ARGUMENT, "no HealthCheckRequest") from None

    @contextmanager
    def _counted(self, address: str) -> Iterator[None]:
        self._reading[address] += 1
        try:
            yield
        finally:
            del self._reading[address]

    def _status(self, service: str) -> int | None:
        if service in self._serving:
            serving = self._serving[service]
        elif service == "":
            serving = all(self._serving.values())
        else:
            return None
        statuses = health_pb2.HealthCheckResponse
        return int(statuses.SERVING if serving else statuses.NOT_SERVING)


def _too_many(what: str) -> RpcError:
    return RpcError(RpcCode.RESOURCE_EXHAUSTED, f"too many {what}: try again")


class _Reflection:
    """What is served here, for tools such as grpcurl."""

    def __init__(self, service: Service) -> None:
        for module in pkgutil.iter_modules(stele.wire.v1.__path__):  # fills the descriptor pool
            importlib.import_module(f"stele.wire.v1.{module.name}")
        names = {method.split("/")[1] for method in service.methods}
        names |= {"grpc.health.v1.Health", reflection.SERVICE_NAME}
        self._servicer = reflection.aio.ReflectionServicer(sorted(names))

    async def converse(self, stream: Stream, _: Peer) -> None:
        async for answer in self._servicer.ServerReflectionInfo(_requests(stream), None):
            await stream.send(answer.SerializeToString())


async def _requests(stream: Stream) -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
    """Raises RpcError."""
    while (payload := await stream.receive()) is not None:
        if len(payload) > REQUEST_BYTES_MAX:
            raise RpcError(RpcCode.INVALID_ARGUMENT, f"a request of {len(payload)} bytes")
        try:
            yield reflection_pb2.ServerReflectionRequest.FromString(payload)
        except DecodeError:
            raise RpcError(RpcCode.INVALID_ARGUMENT, "no ServerReflectionRequest") from None
