"""What a peer costs a gRPC server that has not logged in, or that may not call a method."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2_grpc

from runtime.real import grpc_standard
from runtime.real.grpc_standard import CHECK, REQUESTS_MAX, WATCHES_MAX
from runtime.real.network import RealNetwork
from stele.addresses import Address
from stele.grpc_channel import CHANNEL_OPTIONS
from stele.real import RealConnector
from stele.world import RpcCode, RpcError, Stream
from world.network import REFLECTION, Listener, Peer, Service

HOST = "127.0.0.1"
UNARY = "/stele.v1.Test/Unary"
TALK = "/stele.v1.Test/Talk"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
MIB = 1 << 20


async def refuse(peer: Peer) -> Peer:
    raise RpcError(RpcCode.UNAUTHENTICATED, "log in first")


async def never(payload: bytes, _: Peer) -> bytes:
    raise AssertionError("the request was read")


async def never_stream(stream: Stream, _: Peer) -> None:
    raise AssertionError("the stream was served")


@contextlib.asynccontextmanager
async def serving(
    service: Service, health: Mapping[str, bool] | None = None, most: int | None = None
) -> AsyncIterator[Listener]:
    network = RealNetwork()
    listener = await network.serve(Address(HOST, 0), service, health=health, max_connections=most)
    try:
        yield listener
    finally:
        await listener.close()
        await network.stop_serving()


@contextlib.asynccontextmanager
async def dialing(listener: Listener) -> AsyncIterator[grpc.aio.Channel]:
    options = (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))
    async with grpc.aio.insecure_channel(f"{HOST}:{listener.port}", options) as channel:
        yield channel


async def test_a_caller_is_refused_before_its_request_has_come() -> None:
    service = Service({UNARY: never}, {TALK: never_stream}).behind(refuse)
    async with serving(service) as listener, dialing(listener) as channel:
        for method in (UNARY, TALK):
            call = channel.stream_stream(method)()
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await asyncio.wait_for(call.read(), 5)  # nothing was sent
            assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_what_an_admission_says_of_the_caller_reaches_the_handler() -> None:
    peers: list[Peer] = []

    async def name(peer: Peer) -> Peer:
        return Peer(peer.address, principal="User:ann")

    async def unary(payload: bytes, peer: Peer) -> bytes:
        peers.append(peer)
        return payload

    async def talk(stream: Stream, peer: Peer) -> None:
        peers.append(peer)

    async def unread(peer: Peer) -> bytes:
        peers.append(peer)
        return b"read"

    service = Service({UNARY: unary}, {TALK: talk}, {"/stele.v1.Test/Unread": unread}).behind(name)
    async with serving(service) as listener:
        channel = RealConnector().channel(Address(HOST, listener.port))
        assert await channel.call(UNARY, b"x", timeout_s=5) == b"x"
        assert await channel.stream(TALK).receive() is None
        assert await channel.call("/stele.v1.Test/Unread", bytes(MIB), timeout_s=5) == b"read"
        assert [peer.principal for peer in peers] == ["User:ann"] * 3
        await channel.close()


async def test_a_call_without_a_request_is_refused() -> None:
    async with serving(Service({UNARY: never})) as listener, dialing(listener) as channel:
        call = channel.stream_unary(UNARY)()
        await call.done_writing()
        with pytest.raises(grpc.aio.AioRpcError, match="the call has no request") as raised:
            await call
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


SERVER = """
import asyncio, sys
from runtime.real.network import RealNetwork
from stele.addresses import Address
from world.network import Service

async def main():
    async def wait(peer):
        await asyncio.sleep(3600)

    async def unary(payload, peer):
        return payload

    service = Service({"/stele.v1.Test/Unary": unary}).behind(wait)
    listener = await RealNetwork().serve(Address("127.0.0.1", 0), service)
    print(listener.port, flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


def memory_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the memory")
async def test_requests_that_wait_for_an_admission_take_no_memory() -> None:
    """Here 120 calls of 8 MiB wait, on three connections: 960 MiB. At most 256 KiB of each come."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        before = memory_of(process.pid)
        body = bytes(8 * MIB)
        async with contextlib.AsyncExitStack() as stack:
            calls = []
            for _ in range(3):
                options = (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))
                channel = grpc.aio.insecure_channel(f"{HOST}:{port}", options)
                await stack.enter_async_context(channel)
                calls += [channel.unary_unary(UNARY)(body, timeout=3) for _ in range(40)]
            peak = before
            pending = asyncio.gather(*calls, return_exceptions=True)
            while not pending.done():
                peak = max(peak, memory_of(process.pid))
                await asyncio.wait([pending], timeout=0.02)
            ends = {each.code() for each in await pending if isinstance(each, grpc.aio.AioRpcError)}
        assert ends == {grpc.StatusCode.DEADLINE_EXCEEDED}
        assert peak - before < 40 * MIB
    finally:
        process.kill()
        await process.wait()


async def test_a_listener_takes_so_many_connections() -> None:
    async def answer(payload: bytes, _: Peer) -> bytes:
        return payload

    async with contextlib.AsyncExitStack() as stack:
        listener = await stack.enter_async_context(serving(Service({UNARY: answer}), most=2))
        channels = [await stack.enter_async_context(dialing(listener)) for _ in range(3)]
        for channel in channels[:2]:
            assert await channel.unary_unary(UNARY)(b"x", timeout=5) == b"x"
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await channels[2].unary_unary(UNARY)(b"x", timeout=5)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        for channel in channels[:2]:
            assert await channel.unary_unary(UNARY)(b"y", timeout=5) == b"y"


async def test_health_is_answered_while_another_request_about_it_does_not_come() -> None:
    """An address may have one request under way. What is true of every service needs no reading."""
    health = {"stele.v1.A": True, "stele.v1.B": True}
    served, peer = grpc_standard.standard_service(Service(), health), Peer("10.0.0.1")

    async def ask(service: str) -> int:
        asked = Asked(service)
        await served.converse(CHECK, asked, peer)
        (answer,) = asked.answers
        return int(answer.status)

    slow = Asked(None)
    reading = asyncio.ensure_future(served.converse(CHECK, slow, peer))
    await asyncio.sleep(0)
    assert await ask("nonsense") == SERVING
    health["stele.v1.B"] = False
    with pytest.raises(RpcError) as raised:
        await ask("stele.v1.A")
    assert raised.value.code is RpcCode.RESOURCE_EXHAUSTED
    slow.come("stele.v1.A")
    await reading
    assert [answer.status for answer in slow.answers] == [SERVING]
    assert await ask("stele.v1.A") == SERVING
    assert await ask("") == NOT_SERVING
    with pytest.raises(RpcError) as raised:
        await ask("nonsense")
    assert raised.value.code is RpcCode.NOT_FOUND


class Asked:
    """A stream with one request about health, which may come later."""

    def __init__(self, service: str | None) -> None:
        self.answers: list[health_pb2.HealthCheckResponse] = []
        self._request = asyncio.get_running_loop().create_future()
        if service is not None:
            self.come(service)

    def come(self, service: str) -> None:
        request = health_pb2.HealthCheckRequest(service=service)
        self._request.set_result(request.SerializeToString())

    async def send(self, message: bytes) -> None:
        self.answers.append(health_pb2.HealthCheckResponse.FromString(message))

    async def receive(self) -> bytes | None:
        return bytes(await self._request)

    async def close(self) -> None: ...


async def test_a_request_about_health_must_come_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_standard, "REQUEST_S", 0.2)
    async with serving(Service(), {}) as listener, dialing(listener) as channel:
        for method in (CHECK, grpc_standard.WATCH):
            call = channel.stream_stream(method)()
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await asyncio.wait_for(call.read(), 5)
            assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_few_requests_about_health_are_read_at_once() -> None:
    served = grpc_standard.standard_service(Service(), {"a": False})
    reading = [
        asyncio.ensure_future(served.converse(CHECK, Asked(None), Peer(f"10.0.0.{number}")))
        for number in range(REQUESTS_MAX)
    ]
    await asyncio.sleep(0)
    with pytest.raises(RpcError) as raised:
        await served.converse(CHECK, Asked(None), Peer("10.0.1.1"))
    assert raised.value.code is RpcCode.RESOURCE_EXHAUSTED
    reading[0].cancel()
    await asyncio.wait(reading[:1])
    reading[0] = asyncio.ensure_future(served.converse(CHECK, Asked(None), Peer("10.0.1.1")))
    await asyncio.sleep(0)
    assert not reading[0].done()
    for each in reading:
        each.cancel()
    await asyncio.gather(*reading, return_exceptions=True)


async def test_few_clients_watch_the_health() -> None:
    async with serving(Service(), {"a": True}) as listener, dialing(listener) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watches = []
        for _ in range(WATCHES_MAX):
            watches.append(stub.Watch(health_pb2.HealthCheckRequest()))
            assert (await watches[-1].read()).status == SERVING
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.Watch(health_pb2.HealthCheckRequest()).read()
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        watches[0].cancel()

        async def watched() -> bool:
            try:
                answer = await stub.Watch(health_pb2.HealthCheckRequest()).read()
            except grpc.aio.AioRpcError:
                return False
            return bool(answer.status == SERVING)

        async with asyncio.timeout(5):
            while not await watched():
                pass


@pytest.mark.parametrize("payload", [b"\xff", bytes(grpc_standard.REQUEST_BYTES_MAX + 1)])
async def test_bytes_that_are_no_standard_request_are_refused(payload: bytes) -> None:
    async with serving(Service(), {}) as listener, dialing(listener) as channel:
        for method in (CHECK, grpc_standard.WATCH, REFLECTION):
            call = channel.stream_stream(method)()
            await call.write(payload)
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await call.read()
            assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_reflection_may_need_a_login() -> None:
    service = Service({UNARY: never}, admissions={REFLECTION: (refuse,)})
    async with serving(service) as listener, dialing(listener) as channel:
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call.read()
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
