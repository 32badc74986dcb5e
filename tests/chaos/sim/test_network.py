"""The simulated network: what real TCP and gRPC do, and what they do when things break."""

import asyncio
import errno
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from chaos.sim.process import Process
from chaos.sim.rpc import ClientStream
from chaos.sim.simulation import Simulation
from stele.world import Channel, RpcCode, RpcError, Service, Stream

ECHO = "/stele.v1.Test/Echo"
TALK = "/stele.v1.Test/Talk"


class Recorder(asyncio.Protocol):
    """Keeps what it gets; an ``echo`` one sends it back."""

    def __init__(self, *, echo: bool = False) -> None:
        self.echo = echo
        self.received = bytearray()
        self.events: list[object] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self.echo:
            self.transport.write(data)

    def eof_received(self) -> bool | None:
        self.events.append("eof")
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append(("lost", exc and type(exc)))

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Buffered(asyncio.BufferedProtocol):
    def __init__(self, size: int) -> None:
        self.buffer = bytearray(size)
        self.received = bytearray()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]


class Pair:
    """A server process on machine "s" with a byte port, a client process on machine "c"."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.server, self.client = sim.process("s"), sim.process("c")
        self.accepted: list[Recorder] = []

    def accept(self) -> Recorder:
        self.accepted.append(Recorder(echo=True))
        return self.accepted[-1]

    async def connect(self) -> Recorder:
        await self.server.run(self.server.world.network.listen("s", 9, self.accept))
        recorder = Recorder()
        await self.client.run(self.client.world.network.connect("s", 9, lambda: recorder))
        return recorder


def run(sim: Simulation, main: Coroutine[Any, Any, None]) -> None:
    sim.run(main)


def test_bytes_arrive_in_order_after_a_while() -> None:
    sim = Simulation(1)

    async def main() -> None:
        pair = Pair(sim)
        near = await pair.connect()
        start = sim.now
        near.transport.writelines([b"a", bytearray(b"b"), memoryview(b"c")])
        for i in range(100):
            near.transport.write(b"%02d" % i)
        assert near.received == b""
        await asyncio.sleep(0.1)
        assert near.received == b"abc" + b"".join(b"%02d" % i for i in range(100))
        assert sim.now > start
        assert near.transport.get_extra_info("peername") == ("s", 9)
        near.transport.close()
        await asyncio.sleep(0.1)
        assert near.events == ["made", ("lost", None)]
        assert pair.accepted[0].events == ["made", "eof", ("lost", None)]

    run(sim, main())


class Pieces(Recorder):
    """Keeps how its bytes came."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)


@pytest.mark.parametrize("slow", [0.0, 1.0])
def test_what_is_written_together_arrives_together_unless_the_link_is_slow(slow: float) -> None:
    sim = Simulation(1)

    async def main() -> None:
        server, client, far, near = sim.process("s"), sim.process("c"), Pieces(), Recorder()
        await server.run(server.world.network.listen("s", 9, lambda: far))
        await client.run(client.world.network.connect("s", 9, lambda: near))
        sim.fabric.faults.slow = slow
        near.transport.writelines([b"a", bytearray(b"bc"), memoryview(b"def")])
        near.transport.writelines([])
        await asyncio.sleep(2)
        assert far.pieces == ([b"a", b"bc", b"def"] if slow else [b"abcdef"])

    run(sim, main())


def test_a_buffered_protocol_is_filled_through_its_buffer() -> None:
    sim = Simulation(1)

    async def main() -> None:
        server, client = sim.process("s"), sim.process("c")
        protocol = Buffered(7)
        await server.run(server.world.network.listen("s", 9, lambda: protocol))
        near = Recorder()
        await client.run(client.world.network.connect("s", 9, lambda: near))
        near.transport.write(bytes(range(100)))
        await asyncio.sleep(0.1)
        assert protocol.received == bytes(range(100))

    run(sim, main())


def test_bytes_changed_after_writing_arrive_changed() -> None:
    """As with uvloop, which keeps a reference instead of a copy."""
    sim = Simulation(1)

    async def main() -> None:
        pair = Pair(sim)
        near = await pair.connect()
        buffer = bytearray(b"good")
        near.transport.write(buffer)
        buffer[:] = b"evil"
        await asyncio.sleep(0.1)
        assert pair.accepted[0].received == b"evil"

    run(sim, main())


def test_a_slow_reader_pauses_the_writer() -> None:
    sim = Simulation(1)

    async def main() -> None:
        pair = Pair(sim)
        near = await pair.connect()
        far = pair.accepted[0]
        far.echo = False
        far.transport.pause_reading()
        near.transport.write(bytes(1_000_000))
        assert near.events == ["made", "pause"]
        await asyncio.sleep(1)
        assert far.received == b""
        far.transport.resume_reading()
        await asyncio.sleep(1)
        assert len(far.received) == 1_000_000
        assert near.events == ["made", "pause", "resume"]

    run(sim, main())


def test_connecting_to_nothing() -> None:
    sim = Simulation(1)

    async def main() -> None:
        sim.machine("s")
        client = sim.process("c")
        network = client.world.network
        with pytest.raises(ConnectionRefusedError):
            await client.run(network.connect("s", 9, Recorder))
        with pytest.raises(OSError, match="no host"):
            await client.run(network.connect("nowhere", 9, Recorder))
        sim.power_off("s")
        start = sim.now
        with pytest.raises(TimeoutError):
            await client.run(network.connect("s", 9, Recorder))
        assert sim.now - start >= 10

    run(sim, main())


def test_a_port_in_use_and_a_foreign_address() -> None:
    sim = Simulation(1)

    async def main() -> None:
        one, two = sim.process("s", "one"), sim.process("s", "two")
        sim.machine("c")
        await one.run(one.world.network.listen("0.0.0.0", 9, Recorder))
        for attempt in (
            two.world.network.listen("127.0.0.1", 9, Recorder),
            two.world.network.serve("s", 9, Service()),
        ):
            with pytest.raises(OSError, match="in use") as caught:
                await two.run(cast(Coroutine[Any, Any, Any], attempt))
            assert caught.value.errno == errno.EADDRINUSE
        with pytest.raises(OSError, match="not this machine"):
            await two.run(two.world.network.listen("c", 9, Recorder))
        one.kill()
        await two.run(two.world.network.listen("s", 9, Recorder))

    run(sim, main())


@pytest.mark.parametrize("seed", range(8))
def test_a_killed_process_closes_its_connections_and_ports(seed: int) -> None:
    sim = Simulation(seed)

    async def main() -> None:
        pair = Pair(sim)
        near = await pair.connect()
        pair.accepted[0].transport.write(b"last words")
        pair.server.kill()
        await asyncio.sleep(0.1)
        assert b"last words".startswith(near.received)
        assert near.events[-1] in (("lost", None), ("lost", ConnectionResetError))
        assert pair.accepted[0].events == ["made"], "the dead hear nothing"
        with pytest.raises(ConnectionRefusedError):
            await pair.client.run(pair.client.world.network.connect("s", 9, Recorder))

    run(sim, main())


def test_lost_power_is_silent_until_the_machine_is_back() -> None:
    sim = Simulation(1)

    async def main() -> None:
        pair = Pair(sim)
        near = await pair.connect()
        sim.power_off("s")
        await asyncio.sleep(5)
        assert near.events == ["made"]
        near.transport.write(b"anyone?")
        await asyncio.sleep(5)
        assert near.events == ["made"]
        sim.power_on("s")
        await asyncio.sleep(10)
        assert near.events == ["made", ("lost", ConnectionResetError)]

    run(sim, main())


def test_a_cut_stalls_bytes_and_healing_brings_them() -> None:
    sim = Simulation(1)

    async def main() -> None:
        pair = Pair(sim)
        near = await pair.connect()
        sim.fabric.cut("c", "s")
        near.transport.write(b"one")
        await asyncio.sleep(3)
        pair.accepted[0].transport.write(b"other way")
        near.transport.write(b"two")
        await asyncio.sleep(1)
        assert near.received == b"other way"
        assert pair.accepted[0].received == b""
        sim.fabric.heal()
        await asyncio.sleep(5)
        assert pair.accepted[0].received == b"onetwo"

    run(sim, main())


def test_a_long_cut_ends_the_connection_of_who_has_sent() -> None:
    sim = Simulation(1)

    async def main() -> None:
        pair = Pair(sim)
        near = await pair.connect()
        sim.fabric.isolate("s", ["c"])
        near.transport.write(b"one")
        await asyncio.sleep(100)
        assert near.events == ["made", ("lost", TimeoutError)]
        assert pair.accepted[0].events == ["made"]
        sim.fabric.heal()
        pair.accepted[0].transport.write(b"hello?")
        await asyncio.sleep(1)
        assert pair.accepted[0].events == ["made", ("lost", ConnectionResetError)]

    run(sim, main())


def test_a_bridge_sees_both_sides_of_a_partition() -> None:
    sim = Simulation(1)
    machines = {name: sim.machine(name) for name in "abcde"}
    sim.fabric.partition(["a", "b", "c"], ["c", "d", "e"])

    def sees(source: str, target: str) -> bool:
        return sim.fabric.passes(machines[source], machines[target])

    assert all(sees("c", other) and sees(other, "c") for other in "abde")
    assert sees("a", "b")
    assert sees("e", "d")
    assert not any(sees(a, d) or sees(d, a) for a in "ab" for d in "de")


def test_a_paused_process_accepts_and_answers_later() -> None:
    sim = Simulation(1)

    async def main() -> None:
        pair = Pair(sim)
        near = await pair.connect()
        pair.server.pause()
        second = Recorder()
        await pair.client.run(pair.client.world.network.connect("s", 9, lambda: second))
        near.transport.write(b"x")
        second.transport.write(b"y")
        await asyncio.sleep(5)
        assert not near.received
        assert not second.received
        pair.server.resume()
        await asyncio.sleep(0.1)
        assert near.received == b"x"
        assert second.received == b"y"

    run(sim, main())


def test_closing_a_listener_ends_what_it_accepted() -> None:
    sim = Simulation(1)

    async def main() -> None:
        server, client = sim.process("s"), sim.process("c")
        listener = await server.run(server.world.network.listen("s", 9, Recorder))
        near = Recorder()
        await client.run(client.world.network.connect("s", 9, lambda: near))
        start = sim.now
        await server.run(listener.close(grace_s=0.5))
        assert sim.now - start >= 0.5
        await asyncio.sleep(0.1)
        assert near.events == ["made", ("lost", ConnectionResetError)]

    run(sim, main())


# ------------------------------------------------------------------------------ control plane


class Rpc:
    def __init__(self, sim: Simulation) -> None:
        self.server, self.client = sim.process("s"), sim.process("c")
        self.handled: list[bytes] = []
        self.ends: list[object] = []

    async def echo(self, request: bytes) -> bytes:
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

    async def talk(self, stream: Stream) -> None:
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
        await process.run(process.world.network.serve("s", 9, service))
        return self.client.world.network.channel("s", 9)

    async def call(self, channel: Channel, request: bytes, timeout_s: float = 2.0) -> bytes:
        return await self.client.run(channel.call(ECHO, request, timeout_s=timeout_s))

    async def code(self, channel: Channel, request: bytes, timeout_s: float = 2.0) -> RpcCode:
        with pytest.raises(RpcError) as caught:
            await self.call(channel, request, timeout_s)
        return caught.value.code


def test_calls_and_their_failures() -> None:
    sim = Simulation(1)

    async def main() -> None:
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
        nowhere = rpc.client.world.network.channel("nowhere", 9)
        assert await rpc.code(nowhere, b"b") is RpcCode.UNAVAILABLE
        assert await rpc.call(await rpc.serve(sim.process("s")), b"c") == b"echo c"

    run(sim, main())


def test_a_call_to_a_server_that_dies_is_unavailable_at_once() -> None:
    sim = Simulation(1)

    async def main() -> None:
        rpc = Rpc(sim)
        channel = await rpc.serve()
        sim.scheduler.at(1, rpc.server.kill)
        assert await rpc.code(channel, b"hang", 30) is RpcCode.UNAVAILABLE
        assert sim.now < 1.1

    run(sim, main())


def test_closing_a_channel_cancels_its_calls() -> None:
    sim = Simulation(1)

    async def main() -> None:
        rpc = Rpc(sim)
        channel = await rpc.serve()
        hanging = asyncio.create_task(rpc.code(channel, b"hang"))
        await asyncio.sleep(0.1)
        await channel.close()
        assert await hanging is RpcCode.CANCELLED
        assert await rpc.code(channel, b"a") is RpcCode.CANCELLED
        await asyncio.sleep(0.1)
        assert rpc.ends == ["cancelled"]

    run(sim, main())


def test_lossy_links_lose_and_repeat_calls() -> None:
    sim = Simulation(1)

    async def main() -> None:
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

    run(sim, main())


def test_calls_overtake_each_other_and_messages_of_a_stream_do_not() -> None:
    sim = Simulation(1)

    async def main() -> None:
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

    run(sim, main())


def test_how_streams_end() -> None:
    sim = Simulation(1)

    async def main() -> None:
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

    run(sim, main())


def test_a_stream_that_is_over_before_its_handler_runs_keeps_no_server_open() -> None:
    sim = Simulation(1)

    async def main() -> None:
        process = sim.process("s")
        service = Service(streams={TALK: Rpc(sim).talk})
        server = await process.run(process.world.network.serve("s", 9, service))
        stream = cast(ClientStream, sim.process("c").world.network.channel("s", 9).stream(TALK))
        while stream.other is None:
            process.pause()
            await asyncio.sleep(0.001)
        await stream.close()
        await asyncio.sleep(0.1)
        process.resume()
        await asyncio.wait_for(process.run(server.close()), timeout=10)

    run(sim, main())


def test_two_cannot_wait_for_the_next_message_of_a_stream() -> None:
    sim = Simulation(1)

    async def main() -> None:
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

    run(sim, main())


def test_a_cancelled_receive_cancels_the_stream() -> None:
    sim = Simulation(1)

    async def main() -> None:
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

    run(sim, main())


def test_a_server_notices_that_its_client_died_and_keepalive_that_it_is_silent() -> None:
    sim = Simulation(1)

    async def main() -> None:
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
        quiet = rpc.client.world.network.channel("s", 9)

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

    run(sim, main())


def test_a_long_quiet_stream_stays() -> None:
    sim = Simulation(1)

    async def main() -> None:
        rpc = Rpc(sim)
        channel = await rpc.serve()

        async def quiet() -> bytes | None:
            stream = channel.stream(TALK)
            await asyncio.sleep(1000)
            await stream.send(b"still")
            return await stream.receive()

        assert await rpc.client.run(quiet()) == b"STILL"

    run(sim, main())
