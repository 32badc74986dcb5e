"""The end of the real network: nothing stays open or half stopped, whatever happens meanwhile."""

import asyncio
import logging
import subprocess
import sys
from typing import Any

import grpc.aio
import pytest

from runtime.real.network import RealNetwork
from stele.addresses import Address
from stele.real import RealConnector
from stele.world import RpcCode, RpcError, Stream
from world.network import Peer, Service

HANG = "/stele.v1.Test/Hang"
TALK = "/stele.v1.Test/Talk"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The gRPC servers that are made."""
    servers: list[Any] = []
    make = grpc.aio.server

    def noted(*arguments: Any, **options: Any) -> Any:
        servers.append(make(*arguments, **options))
        return servers[-1]

    monkeypatch.setattr(grpc.aio, "server", noted)
    return servers


async def assert_stopped(servers: list[Any]) -> None:
    assert servers
    for server in servers:
        with pytest.raises(grpc.aio.UsageError, match="not in ready state"):
            await server.start()  # never started it would start now, and running do nothing


async def refused(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return True
    writer.close()
    await writer.wait_closed()
    return False


async def test_a_server_without_its_port_is_stopped(made: list[Any]) -> None:
    network = RealNetwork()
    taken = await network.listen(Address("127.0.0.1", 0), asyncio.Protocol)
    with pytest.raises(OSError, match="in use"):
        await network.serve(Address("127.0.0.1", taken.port), Service())
    await assert_stopped(made)
    await taken.close()


@pytest.mark.parametrize("steps", range(5))
async def test_a_cancelled_start_leaves_no_server(made: list[Any], steps: int) -> None:
    network = RealNetwork()
    serving = asyncio.ensure_future(network.serve(Address("127.0.0.1", 0), Service()))
    for _ in range(steps):
        await asyncio.sleep(0)
    serving.cancel()
    (outcome,) = await asyncio.gather(serving, return_exceptions=True)
    if not isinstance(outcome, BaseException):
        await outcome.close()
    if steps:
        await assert_stopped(made)


@pytest.mark.parametrize("grace_s", [0.0, 60.0])
async def test_a_cancelled_close_stops_at_once(made: list[Any], grace_s: float) -> None:
    called = asyncio.Event()

    async def hang(request: bytes, _: Peer) -> bytes:
        called.set()
        await asyncio.sleep(60)
        return b""

    listener = await RealNetwork().serve(Address("127.0.0.1", 0), Service(unary={HANG: hang}))
    channel = RealConnector().channel(Address("127.0.0.1", listener.port))
    call = asyncio.ensure_future(channel.call(HANG, b"", timeout_s=60))
    await called.wait()
    closing = asyncio.ensure_future(listener.close(grace_s=grace_s))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    closing.cancel()
    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError):
            await closing
        await asyncio.gather(call, return_exceptions=True)
    await assert_stopped(made)
    await channel.close()


async def test_what_nobody_closed_is_stopped_in_the_end(made: list[Any]) -> None:
    network = RealNetwork()
    ports = [(await network.serve(Address("127.0.0.1", 0), Service())).port for _ in range(2)]
    assert not await refused(ports[0])
    await network.stop_serving()
    await assert_stopped(made)
    assert await refused(ports[0])
    await network.stop_serving()


_FORGETFUL = """
import asyncio, gc
from stele.addresses import Address
from runtime.real.network import RealNetwork
from world.network import Service

async def main():
    network = RealNetwork()
    kept.append(await network.serve(Address("127.0.0.1", 0), Service()))
    await network.stop_serving()

kept = []
asyncio.run(main())
kept.clear()
gc.collect()
print("collected")
"""


@pytest.mark.processes
def test_a_server_that_was_forgotten_does_not_hang_the_collector() -> None:
    """A running one would: without ``stop_serving`` this takes for ever."""
    done = subprocess.run(
        [sys.executable, "-c", _FORGETFUL], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "collected\n", "")


@pytest.mark.parametrize("of", ["stream", "channel"])
async def test_the_first_message_is_not_waited_for_when_all_is_closed(of: str) -> None:
    async def talk(stream: Stream, _: Peer) -> None:
        await stream.receive()

    listener = await RealNetwork().serve(Address("127.0.0.1", 0), Service(streams={TALK: talk}))
    for steps in range(6):
        channel = RealConnector().channel(Address("127.0.0.1", listener.port))
        stream = channel.stream(TALK)
        sending = asyncio.ensure_future(stream.send(b"x"))
        for _ in range(steps):
            await asyncio.sleep(0)
        await (stream if of == "stream" else channel).close()
        async with asyncio.timeout(30):
            with pytest.raises(RpcError) as caught:
                await sending
        assert caught.value.code is RpcCode.CANCELLED
        await channel.close()
    await listener.close()


async def test_a_cancelled_close_ends_byte_connections() -> None:
    network = RealNetwork()
    listener = await network.listen(Address("127.0.0.1", 0), asyncio.Protocol)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    closing = asyncio.ensure_future(listener.close(grace_s=60))
    await asyncio.sleep(0.05)
    assert not closing.done()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    async with asyncio.timeout(10):
        assert await reader.read(1) == b""
    writer.close()
    await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def test_a_connection_without_a_protocol_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> asyncio.Protocol:
        raise ValueError("no protocol")

    listener = await RealNetwork().listen(Address("127.0.0.1", 0), fail)
    with caplog.at_level(logging.CRITICAL, logger="asyncio"):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        async with asyncio.timeout(10):
            # asyncio ends it in order, uvloop resets it.
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await reader.readexactly(1)
    writer.close()
    await asyncio.gather(writer.wait_closed(), return_exceptions=True)
    await listener.close()
