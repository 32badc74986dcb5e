"""The real network over loopback: TCP listeners, gRPC services, and connections that break."""

import asyncio
import errno
import gc
import logging
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import cast

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from runtime.grpc.requests import ADMIN_BYTES_MAX
from runtime.real.grpc_server import RECEIVE_BYTES_MAX, SERVER_OPTIONS
from runtime.real.network import RealNetwork
from stele.addresses import Address
from stele.grpc_channel import CHANNEL_OPTIONS
from stele.real import RealClock, RealConnector
from stele.world import RpcCode, RpcError, Stream
from world.network import Peer, Service

ECHO = "/stele.v1.Test/Echo"
TALK = "/stele.v1.Test/Talk"


class Echo(asyncio.BufferedProtocol):
    """Sends back what it gets, with the buffered half of the API."""

    def __init__(self) -> None:
        self.buffer = bytearray(64)
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.transport.write(bytes(self.buffer[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


class Collect(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = bytearray()
        self.news = asyncio.Event()
        self.lost = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


async def echo(request: bytes, _: Peer) -> bytes:
    return b"echo " + request


async def talk(stream: Stream, _: Peer) -> None:
    while (message := await stream.receive()) is not None:
        await stream.send(message.upper())


@pytest.fixture
async def served() -> AsyncIterator[int]:
    listener = await RealNetwork().serve(
        Address("127.0.0.1", 0), Service(unary={ECHO: echo}, streams={TALK: talk})
    )
    yield listener.port
    await listener.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_handlers_get_the_callers_address(host: str) -> None:
    peers: list[Peer] = []

    async def call(request: bytes, peer: Peer) -> bytes:
        peers.append(peer)
        return request

    async def converse(stream: Stream, peer: Peer) -> None:
        peers.append(peer)

    network = RealNetwork()
    service = Service(unary={ECHO: call}, streams={TALK: converse})
    listener = await network.serve(Address(host, 0), service)
    for client_id in (None, "Zähler 7"):
        channel = network.channel(Address(host, listener.port), client_id)
        await channel.call(ECHO, b"", timeout_s=5.0)
        assert await channel.stream(TALK).receive() is None
        assert peers == [Peer(host, client_id)] * 2
        peers.clear()
        await channel.close()
    await listener.close()


async def test_bytes_go_both_ways_and_the_listener_closes_its_connections() -> None:
    network = RealNetwork()
    accepted: list[Echo] = []

    def factory() -> Echo:
        accepted.append(Echo())
        return accepted[-1]

    listener = await network.listen(Address("127.0.0.1", 0), factory)
    client = Collect()
    transport = await network.connect(Address("127.0.0.1", listener.port), lambda: client)
    transport.writelines([b"x" * 100, b"y" * 100])
    while len(client.received) < 200:
        client.news.clear()
        await client.news.wait()
    assert client.received == b"x" * 100 + b"y" * 100
    await listener.close(grace_s=0.05)
    await accepted[0].lost
    await client.lost
    with pytest.raises(ConnectionRefusedError):
        await network.connect(Address("127.0.0.1", listener.port), Collect)


async def test_listening_on_a_port_in_use_says_so() -> None:
    network = RealNetwork()
    tcp = await network.listen(Address("127.0.0.1", 0), Echo)
    rpc = await network.serve(Address("127.0.0.1", 0), Service())
    for port in (tcp.port, rpc.port):
        with pytest.raises(OSError, match=f"127.0.0.1:{port}.*in use") as caught:
            await network.listen(Address("127.0.0.1", port), Echo)
        assert caught.value.errno == errno.EADDRINUSE
        with pytest.raises(OSError, match=f"127.0.0.1:{port}.*in use") as caught:
            await network.serve(Address("127.0.0.1", port), Service())
        assert caught.value.errno == errno.EADDRINUSE
    await tcp.close()
    await rpc.close()


async def test_a_connection_has_so_many_calls_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls above the limit wait at the client, or are refused as gRPC refuses a stream."""
    options = [
        (name, 3 if name == "grpc.max_concurrent_streams" else value)
        for name, value in SERVER_OPTIONS
    ]
    assert options != list(SERVER_OPTIONS)
    monkeypatch.setattr("runtime.real.grpc_server.SERVER_OPTIONS", tuple(options))
    under_way = highest = 0
    three = asyncio.Event()

    async def linger(request: bytes, _: Peer) -> bytes:
        nonlocal under_way, highest
        if request == b"first":
            return request
        under_way += 1
        highest = max(highest, under_way)
        if under_way == 3:
            three.set()
        await three.wait()
        under_way -= 1
        return b""

    listener = await RealNetwork().serve(Address("127.0.0.1", 0), Service(unary={ECHO: linger}))
    channel = RealConnector().channel(Address("127.0.0.1", listener.port))
    await channel.call(ECHO, b"first", timeout_s=10)  # it learns the limit
    calls = [channel.call(ECHO, b"", timeout_s=10) for _ in range(12)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    await channel.close()
    await listener.close()
    assert highest == 3
    assert answers.count(b"") >= 3
    refused = [each for each in answers if isinstance(each, RpcError)]
    assert all(each.code is RpcCode.UNAVAILABLE for each in refused)
    assert answers.count(b"") + len(refused) == 12


async def test_unary_calls_and_their_errors(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(request: bytes, _: Peer) -> bytes:
        raise RpcError(RpcCode.INVALID_ARGUMENT, "no such thing")

    async def fail(request: bytes, _: Peer) -> bytes:
        raise ValueError("secret")

    async def hang(request: bytes, _: Peer) -> bytes:
        await asyncio.sleep(60)
        return b""

    unary = {
        ECHO: echo,
        "/stele.v1.Test/Refuse": refuse,
        "/stele.v1.Test/Fail": fail,
        "/stele.v1.Test/Hang": hang,
    }
    listener = await RealNetwork().serve(Address("127.0.0.1", 0), Service(unary=dict(unary)))
    channel = RealConnector().channel(Address("127.0.0.1", listener.port))
    assert await channel.call(ECHO, b"a", timeout_s=5) == b"echo a"

    async def failure(method: str, timeout_s: float = 5.0) -> RpcError:
        with pytest.raises(RpcError) as caught:
            await channel.call(method, b"a", timeout_s=timeout_s)
        return caught.value

    refused = await failure("/stele.v1.Test/Refuse")
    assert (refused.code, refused.detail) == (RpcCode.INVALID_ARGUMENT, "no such thing")
    with caplog.at_level(logging.CRITICAL, logger="runtime.real.grpc_server"):
        failed = await failure("/stele.v1.Test/Fail")
    assert failed.code is RpcCode.INTERNAL
    assert "secret" not in failed.detail
    assert (await failure("/stele.v1.Test/Nothing")).code is RpcCode.UNIMPLEMENTED
    assert (await failure("/stele.v1.Test/Hang", 0.1)).code is RpcCode.DEADLINE_EXCEEDED

    hanging = asyncio.create_task(failure("/stele.v1.Test/Hang"))
    await asyncio.sleep(0.05)
    await channel.close()
    assert (await hanging).code is RpcCode.CANCELLED
    assert (await failure(ECHO)).code is RpcCode.CANCELLED
    await listener.close()


async def test_the_largest_request_and_a_larger_answer_pass() -> None:
    async def double(request: bytes, _: Peer) -> bytes:
        return 2 * request

    listener = await RealNetwork().serve(Address("127.0.0.1", 0), Service(unary={ECHO: double}))
    channel = RealConnector().channel(Address("127.0.0.1", listener.port))
    message = bytes(ADMIN_BYTES_MAX)
    assert len(await channel.call(ECHO, message, timeout_s=20)) == 2 * len(message)
    with pytest.raises(RpcError) as raised:
        await channel.call(ECHO, bytes(RECEIVE_BYTES_MAX + 1), timeout_s=20)
    assert raised.value.code is RpcCode.RESOURCE_EXHAUSTED
    await channel.close()
    await listener.close()


async def test_cancelling_a_call_is_a_cancellation(served: int) -> None:
    channel = RealConnector().channel(Address("127.0.0.1", served))
    stream = channel.stream(TALK)
    receiving = asyncio.create_task(stream.receive())
    await asyncio.sleep(0.05)
    receiving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await receiving
    with pytest.raises(RpcError):
        await stream.receive()
    await channel.close()


@pytest.mark.parametrize("served_there", [False, True])
async def test_a_cancelled_task_never_goes_on(served: int, served_there: bool) -> None:
    """However far the call is: gRPC itself swallows a cancellation while the call breaks."""
    refusing = await RealNetwork().listen(Address("127.0.0.1", 0), Echo)
    await refusing.close()
    channel = RealConnector().channel(
        Address("127.0.0.1", served if served_there else refusing.port)
    )

    async def converse() -> None:
        stream = channel.stream(TALK)
        try:
            await stream.send(b"a")
            await stream.receive()
        finally:
            await stream.close()

    async def listen() -> None:
        stream = channel.stream(TALK)
        try:
            await stream.receive()
        finally:
            await stream.close()

    async def ask() -> None:
        await channel.call(ECHO, b"a", timeout_s=5)

    for steps in range(12):
        for work in (converse, listen, ask) * 6:
            task = asyncio.ensure_future(work())
            for _ in range(steps):
                await asyncio.sleep(0)
            cancelled = task.cancel()
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            assert isinstance(outcome, asyncio.CancelledError) or not cancelled
    await channel.close()


async def test_a_stream_carries_messages_in_order_and_ends(served: int) -> None:
    channel = RealConnector().channel(Address("127.0.0.1", served))
    stream = channel.stream(TALK)
    await asyncio.gather(*(stream.send(b"%d a" % i) for i in range(20)))
    assert [await stream.receive() for _ in range(20)] == [b"%d A" % i for i in range(20)]
    await stream.close()
    await stream.close()
    with pytest.raises(RpcError) as caught:
        await stream.receive()
    assert caught.value.code is RpcCode.CANCELLED
    await channel.close()


async def test_the_servers_return_ends_the_stream_and_its_close_wakes_the_handler() -> None:
    streams: list[Stream] = []
    returned = asyncio.Event()

    async def handler(stream: Stream, _: Peer) -> None:
        streams.append(stream)
        assert await stream.receive() == b"hello"
        await stream.send(b"hi")
        assert await stream.receive() is None
        returned.set()

    listener = await RealNetwork().serve(Address("127.0.0.1", 0), Service(streams={TALK: handler}))
    channel = RealConnector().channel(Address("127.0.0.1", listener.port))
    stream = channel.stream(TALK)
    await stream.send(b"hello")
    assert await stream.receive() == b"hi"
    await streams[0].close()
    assert await stream.receive() is None
    assert returned.is_set()
    with pytest.raises(RpcError):
        await stream.send(b"too late")
    await channel.close()
    await listener.close()


async def test_a_handler_sees_its_client_go() -> None:
    """By the end of the messages, by an error, or because its task is cancelled."""
    ends: list[object] = []
    gone = asyncio.Event()

    async def handler(stream: Stream, _: Peer) -> None:
        try:
            while (message := await stream.receive()) is not None:
                await stream.send(message)
            ends.append(None)
        except RpcError as error:
            ends.append(error.code)
        except asyncio.CancelledError:
            ends.append(RpcCode.CANCELLED)
            raise
        finally:
            gone.set()

    listener = await RealNetwork().serve(Address("127.0.0.1", 0), Service(streams={TALK: handler}))
    try:
        channel = RealConnector().channel(Address("127.0.0.1", listener.port))
        stream = channel.stream(TALK)
        await stream.send(b"x")
        assert await stream.receive() == b"x"
        await stream.close()
        await asyncio.wait_for(gone.wait(), 5)
        assert ends in ([None], [RpcCode.CANCELLED])
        await channel.close()
    finally:
        await listener.close()


async def test_a_refused_connection_is_unavailable() -> None:
    network = RealNetwork()
    listener = await network.listen(Address("127.0.0.1", 0), Echo)
    await listener.close()
    channel = network.channel(Address("127.0.0.1", listener.port))
    with pytest.raises(RpcError) as caught:
        await channel.call(ECHO, b"", timeout_s=5)
    assert caught.value.code is RpcCode.UNAVAILABLE
    stream = channel.stream(TALK)
    with pytest.raises(RpcError) as caught:
        await stream.receive()
    assert caught.value.code is RpcCode.UNAVAILABLE
    await channel.close()


_SERVER = """
import asyncio, sys
from stele.addresses import Address
from runtime.grpc.requests import ADMIN_BYTES_MAX
from runtime.real.grpc_server import RECEIVE_BYTES_MAX, SERVER_OPTIONS
from runtime.real.network import RealNetwork
from world.network import Service

async def echo(request, peer):
    return request

async def talk(stream, peer):
    while (message := await stream.receive()) is not None:
        await stream.send(message)

async def main():
    service = Service(unary={"/stele.v1.Test/Echo": echo}, streams={"/stele.v1.Test/Talk": talk})
    listener = await RealNetwork().serve(Address("127.0.0.1", int(sys.argv[1])), service)
    print(listener.port, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def _start_server(port: int) -> tuple["subprocess.Popen[str]", int]:
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(port)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def _stop(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.mark.processes
async def test_a_killed_server_breaks_the_stream_and_is_found_again_soon() -> None:
    process, port = _start_server(0)
    channel = RealConnector().channel(Address("127.0.0.1", port))
    stream = channel.stream(TALK)
    await stream.send(b"x")
    assert await stream.receive() == b"x"
    _stop(process)
    with pytest.raises(RpcError) as caught:
        await asyncio.wait_for(stream.receive(), 5)
    assert caught.value.code is RpcCode.UNAVAILABLE
    with pytest.raises(RpcError):
        await stream.send(b"y")
    for _ in range(20):  # runs the back-off up to its bound
        with pytest.raises(RpcError):
            await channel.call(ECHO, b"", timeout_s=1)
        await asyncio.sleep(0.05)

    process, _ = _start_server(port)
    reopened = time.monotonic()
    while True:
        try:
            await channel.call(ECHO, b"", timeout_s=1)
            break
        except RpcError:
            await asyncio.sleep(0.01)
    assert time.monotonic() - reopened < 1.0, "gRPC's default back-off would take seconds"
    await channel.close()
    _stop(process)


async def test_health_answers_by_service_and_follows_the_node() -> None:
    health = {"stele.v1.Test": True}
    listener = await RealNetwork().serve(Address("127.0.0.1", 0), Service(), health=health)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{listener.port}", CHANNEL_OPTIONS) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        serving = health_pb2.HealthCheckResponse.SERVING
        not_serving = health_pb2.HealthCheckResponse.NOT_SERVING
        for service in ("", "stele.v1.Test"):
            request = health_pb2.HealthCheckRequest(service=service)
            assert (await stub.Check(request)).status == serving
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=""))
        assert (await watch.read()).status == serving
        health["stele.v1.Test"] = False
        assert (await watch.read()).status == not_serving
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == not_serving
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Check(health_pb2.HealthCheckRequest(service="nonsense"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        watch.cancel()
    await listener.close()


async def test_reflection_lists_services_and_describes_them() -> None:
    async def vote(request: bytes, _: Peer) -> bytes:
        return request

    service = Service(unary={"/stele.v1.Raft/Vote": vote})
    listener = await RealNetwork().serve(Address("127.0.0.1", 0), service)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{listener.port}", CHANNEL_OPTIONS) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        answer = await call.read()
        names = {entry.name for entry in answer.list_services_response.service}
        assert {"stele.v1.Raft", "grpc.health.v1.Health"} <= names
        await call.write(
            reflection_pb2.ServerReflectionRequest(file_containing_symbol="stele.v1.Raft")
        )
        answer = await call.read()
        assert any(
            b"BeginQuorumEpoch" in file
            for file in answer.file_descriptor_response.file_descriptor_proto
        )
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
    await listener.close()


async def test_nothing_is_left_behind(served: int) -> None:
    """Warnings are errors here: unawaited coroutines or unclosed sockets would fail the test."""
    for _ in range(5):
        channel = RealConnector().channel(Address("127.0.0.1", served))
        stream = channel.stream(TALK)
        await channel.close()
        await stream.close()
        del channel, stream
    gc.collect()
    await asyncio.sleep(0)


def test_the_clock_goes_forward() -> None:
    clock = RealClock()
    first = clock.monotonic()
    assert clock.monotonic() >= first
    assert abs(clock.time_ms() - time.time() * 1000) < 1000
