"""The simulated control plane: calls and streams work, and break, like gRPC's."""

import asyncio
from typing import cast

import pytest

from chaos.sim.world.process import Process
from chaos.sim.world.simulation import Simulation
from chaos.sim.world.streams import ClientStream
from stele.addresses import Address
from stele.world import MAX_MESSAGE_BYTES, Channel, RpcCode, RpcError, Stream
from tests.support.worlds import simulated
from world.network import Peer, Service

ECHO = "/stele.v1.Test/Echo"
TALK = "/stele.v1.Test/Talk"


class Rpc:
    def __init__(self, sim: Simulation) -> None:
        self.server, self.client = sim.process("s"), sim.process("c")
        self.handled: list[bytes] = []
        self.ends: list[object] = []

    async def echo(self, request: bytes, _: Peer) -> bytes:
        self.handled.append(request)
        if request == b"hang":
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                self.ends.append("cancelled")
                raise
        if request == b"refuse":
            raise RpcError(RpcCode.INVALID_ARGUMENT, "no")
        return b"echo " + request

    async def talk(self, stream: Stream, _: Peer) -> None:
        try:
            while (message := await stream.receive()) is not None:
                await stream.send(message.upper())
                if message == b"end":
                    return
            self.ends.append(None)
        except RpcError as error:
            self.ends.append(error.code)
            raise

    async def serve(self, process: Process | None = None) -> Channel:
        process = process or self.server
        service = Service(unary={ECHO: self.echo}, streams={TALK: self.talk})
        await process.run(process.world.network.serve(Address("s", 9), service))
        return self.client.world.network.channel(Address("s", 9))

    async def call(self, channel: Channel, request: bytes, timeout_s: float = 2.0) -> bytes:
        return await self.client.run(channel.call(ECHO, request, timeout_s=timeout_s))

    async def code(self, channel: Channel, request: bytes, timeout_s: float = 2.0) -> RpcCode:
        with pytest.raises(RpcError) as caught:
            await self.call(channel, request, timeout_s)
        return caught.value.code


@simulated(1)
async def test_handlers_get_the_callers_machine(sim: Simulation) -> None:
    peers: list[Peer] = []

    async def call(request: bytes, peer: Peer) -> bytes:
        peers.append(peer)
        return request

    async def talk(stream: Stream, peer: Peer) -> None:
        peers.append(peer)

    server, client = sim.process("s"), sim.process("c")
    service = Service(unary={ECHO: call}, streams={TALK: talk})
    await server.run(server.world.network.serve(Address("s", 9), service))
    channel = client.world.network.channel(Address("s", 9))
    await client.run(channel.call(ECHO, b"", timeout_s=1.0))
    assert await client.run(channel.stream(TALK).receive()) is None
    assert peers == [Peer("c"), Peer("c")]


@simulated(1)
async def test_calls_and_their_failures(sim: Simulation) -> None:
    rpc = Rpc(sim)
    channel = await rpc.serve()
    assert await rpc.call(channel, b"a") == b"echo a"
    assert await rpc.code(channel, b"refuse") is RpcCode.INVALID_ARGUMENT
    start = sim.now
    assert await rpc.code(channel, b"hang") is RpcCode.DEADLINE_EXCEEDED
    assert sim.now - start == pytest.approx(2)
    await asyncio.sleep(0.1)
    assert rpc.ends == ["cancelled"], "a call's deadline ends its handler"
    sim.fabric.cut("s", "c")
    assert await rpc.code(channel, b"lost answer") is RpcCode.DEADLINE_EXCEEDED
    assert rpc.handled[-1] == b"lost answer"
    sim.fabric.heal()
    rpc.server.kill()
    start = sim.now
    assert await rpc.code(channel, b"b") is RpcCode.UNAVAILABLE
    assert sim.now - start < 0.1
    nowhere = rpc.client.world.network.channel(Address("nowhere", 9))
    assert await rpc.code(nowhere, b"b") is RpcCode.UNAVAILABLE
    assert await rpc.call(await rpc.serve(sim.process("s")), b"c") == b"echo c"


@simulated(1)
async def test_a_message_beyond_the_limit_of_grpc_is_refused_both_ways(sim: Simulation) -> None:
    rpc = Rpc(sim)

    channel = await rpc.serve()
    answered = await rpc.call(channel, bytes(MAX_MESSAGE_BYTES - len(b"echo ")))
    assert len(answered) == MAX_MESSAGE_BYTES
    too_large = bytes(MAX_MESSAGE_BYTES)  # the answer is longer than the request
    assert await rpc.code(channel, too_large) is RpcCode.RESOURCE_EXHAUSTED
    assert len(rpc.handled) == 2
    assert await rpc.code(channel, too_large + b"x") is RpcCode.RESOURCE_EXHAUSTED
    assert len(rpc.handled) == 2, "the request never left"


@simulated(1)
async def test_a_call_to_a_server_that_dies_is_unavailable_at_once(sim: Simulation) -> None:
    rpc = Rpc(sim)
    channel = await rpc.serve()
    sim.scheduler.at(1, rpc.server.kill)
    assert await rpc.code(channel, b"hang", 30) is RpcCode.UNAVAILABLE
    assert sim.now < 1.1


@simulated(1)
async def test_closing_a_channel_cancels_its_calls(sim: Simulation) -> None:
    rpc = Rpc(sim)
    channel = await rpc.serve()
    hanging = asyncio.create_task(rpc.code(channel, b"hang"))
    await asyncio.sleep(0.1)
    await channel.close()
    assert await hanging is RpcCode.CANCELLED
    assert await rpc.code(channel, b"a") is RpcCode.CANCELLED
    await asyncio.sleep(0.1)
    assert rpc.ends == ["cancelled"]


@simulated(1)
async def test_lossy_links_lose_and_repeat_calls(sim: Simulation) -> None:
    rpc = Rpc(sim)
    channel = await rpc.serve()
    sim.fabric.faults.lost_request = 1.0
    assert await rpc.code(channel, b"a") is RpcCode.DEADLINE_EXCEEDED
    assert rpc.handled == []
    sim.fabric.faults.lost_request, sim.fabric.faults.lost_reply = 0.0, 1.0
    assert await rpc.code(channel, b"b") is RpcCode.DEADLINE_EXCEEDED
    assert rpc.handled == [b"b"]
    sim.fabric.faults.lost_reply, sim.fabric.faults.duplicate = 0.0, 1.0
    assert await rpc.call(channel, b"c") == b"echo c"
    await asyncio.sleep(0.1)
    assert rpc.handled == [b"b", b"c", b"c"]


@simulated(1)
async def test_calls_overtake_each_other_and_messages_of_a_stream_do_not(sim: Simulation) -> None:
    rpc = Rpc(sim)
    channel = await rpc.serve()
    await asyncio.gather(*(rpc.call(channel, b"%02d" % i) for i in range(30)))
    assert sorted(rpc.handled) == [b"%02d" % i for i in range(30)]
    assert rpc.handled != sorted(rpc.handled)

    async def converse() -> list[bytes | None]:
        stream = channel.stream(TALK)
        for i in range(30):
            await stream.send(b"%02d" % i)
        answers = [await stream.receive() for _ in range(30)]
        await stream.close()
        return answers

    assert await rpc.client.run(converse()) == [b"%02d" % i for i in range(30)]
    await asyncio.sleep(0.1)
    assert rpc.ends == [RpcCode.CANCELLED]


@simulated(1)
async def test_how_streams_end(sim: Simulation) -> None:
    rpc = Rpc(sim)
    channel = await rpc.serve()

    async def by_the_server() -> None:
        stream = channel.stream(TALK)
        await stream.send(b"end")
        assert await stream.receive() == b"END"
        assert await stream.receive() is None
        with pytest.raises(RpcError):
            await stream.send(b"too late")

    async def by_its_death() -> float:
        stream = channel.stream(TALK)
        await stream.send(b"a")
        assert await stream.receive() == b"A"
        with pytest.raises(RpcError) as caught:
            await stream.receive()
        assert caught.value.code is RpcCode.UNAVAILABLE
        return sim.now

    async def by_refusal() -> None:
        stream = channel.stream(TALK)
        with pytest.raises(RpcError) as caught:
            await stream.receive()
        assert caught.value.code is RpcCode.UNAVAILABLE

    await rpc.client.run(by_the_server())
    start = sim.now
    sim.scheduler.at(1, rpc.server.kill)
    assert await rpc.client.run(by_its_death()) - start < 1.1
    await rpc.client.run(by_refusal())


@simulated(1)
async def test_a_stream_that_is_over_before_its_handler_runs_keeps_no_server_open(
    sim: Simulation,
) -> None:
    process = sim.process("s")
    service = Service(streams={TALK: Rpc(sim).talk})
    server = await process.run(process.world.network.serve(Address("s", 9), service))
    stream = cast(
        ClientStream, sim.process("c").world.network.channel(Address("s", 9)).stream(TALK)
    )
    while stream.other is None:
        process.pause()
        await asyncio.sleep(0.001)
    await stream.close()
    await asyncio.sleep(0.1)
    process.resume()
    await asyncio.wait_for(process.run(server.close()), timeout=10)


@simulated(1)
async def test_two_cannot_wait_for_the_next_message_of_a_stream(sim: Simulation) -> None:
    rpc = Rpc(sim)
    channel = await rpc.serve()

    async def converse() -> None:
        stream = channel.stream(TALK)
        first = asyncio.ensure_future(stream.receive())
        await asyncio.sleep(0.1)
        with pytest.raises(RuntimeError, match="two wait"):
            await stream.receive()
        await stream.send(b"a")
        assert await first == b"A"
        await stream.close()

    await rpc.client.run(converse())


@simulated(1)
async def test_a_cancelled_receive_cancels_the_stream(sim: Simulation) -> None:
    rpc = Rpc(sim)
    channel = await rpc.serve()

    async def impatient() -> None:
        stream = channel.stream(TALK)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stream.receive(), 1)
        with pytest.raises(RpcError):
            await stream.receive()

    await rpc.client.run(impatient())
    await asyncio.sleep(0.1)
    assert rpc.ends == [RpcCode.CANCELLED]


@simulated(1)
async def test_a_server_notices_that_its_client_died_and_keepalive_that_it_is_silent(
    sim: Simulation,
) -> None:
    rpc = Rpc(sim)
    channel = await rpc.serve()

    async def hold() -> None:
        await channel.stream(TALK).receive()

    rpc.client.start(hold())
    await asyncio.sleep(1)
    rpc.client.kill()
    await asyncio.sleep(0.1)
    assert rpc.ends == [RpcCode.CANCELLED]

    rpc.client = sim.process("c", "again")
    quiet = rpc.client.world.network.channel(Address("s", 9))

    async def listen() -> float:
        with pytest.raises(RpcError) as caught:
            await quiet.stream(TALK).receive()
        assert caught.value.code is RpcCode.UNAVAILABLE
        return sim.now

    start = sim.now
    listening = asyncio.create_task(rpc.client.run(listen()))
    await asyncio.sleep(1)
    sim.fabric.isolate("s", ["c"])
    assert 10 < await listening - start < 31
    await asyncio.sleep(40)
    assert rpc.ends == [RpcCode.CANCELLED, RpcCode.UNAVAILABLE]


@simulated(1)
async def test_a_long_quiet_stream_stays(sim: Simulation) -> None:
    rpc = Rpc(sim)
    channel = await rpc.serve()

    async def quiet() -> bytes | None:
        stream = channel.stream(TALK)
        await asyncio.sleep(1000)
        await stream.send(b"still")
        return await stream.receive()

    assert await rpc.client.run(quiet()) == b"STILL"
