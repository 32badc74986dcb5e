"""The simulated data plane: it does what real TCP does, also when connections break."""

import asyncio
import errno
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from chaos.sim.world.simulation import Simulation
from stele.addresses import Address
from tests.support.worlds import simulated
from world.network import Service


class Recorder(asyncio.Protocol):
    """Records what it gets. With ``echo`` it sends that back."""

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
        await self.server.run(self.server.world.network.listen(Address("s", 9), self.accept))
        recorder = Recorder()
        await self.client.run(self.client.world.network.connect(Address("s", 9), lambda: recorder))
        return recorder


@simulated(1)
async def test_bytes_arrive_in_order_after_a_while(sim: Simulation) -> None:
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


class Pieces(Recorder):
    """Records the pieces in which its bytes came."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)


@pytest.mark.parametrize("slow", [0.0, 1.0])
@simulated(1)
async def test_what_is_written_together_arrives_together_unless_the_link_is_slow(
    sim: Simulation, slow: float
) -> None:
    server, client, far, near = sim.process("s"), sim.process("c"), Pieces(), Recorder()
    await server.run(server.world.network.listen(Address("s", 9), lambda: far))
    await client.run(client.world.network.connect(Address("s", 9), lambda: near))
    sim.fabric.faults.slow = slow
    near.transport.writelines([b"a", bytearray(b"bc"), memoryview(b"def")])
    near.transport.writelines([])
    await asyncio.sleep(2)
    assert far.pieces == ([b"a", b"bc", b"def"] if slow else [b"abcdef"])


@simulated(1)
async def test_a_buffered_protocol_is_filled_through_its_buffer(sim: Simulation) -> None:
    server, client = sim.process("s"), sim.process("c")
    protocol = Buffered(7)
    await server.run(server.world.network.listen(Address("s", 9), lambda: protocol))
    near = Recorder()
    await client.run(client.world.network.connect(Address("s", 9), lambda: near))
    near.transport.write(bytes(range(100)))
    await asyncio.sleep(0.1)
    assert protocol.received == bytes(range(100))


@simulated(1)
async def test_bytes_changed_after_writing_arrive_changed(sim: Simulation) -> None:
    """As with uvloop, which keeps a reference and no copy."""

    pair = Pair(sim)
    near = await pair.connect()
    buffer = bytearray(b"good")
    near.transport.write(buffer)
    buffer[:] = b"evil"
    await asyncio.sleep(0.1)
    assert pair.accepted[0].received == b"evil"


@simulated(1)
async def test_a_slow_reader_pauses_the_writer(sim: Simulation) -> None:
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


@simulated(1)
async def test_connecting_to_nothing(sim: Simulation) -> None:
    sim.machine("s")
    client = sim.process("c")
    network = client.world.network
    with pytest.raises(ConnectionRefusedError):
        await client.run(network.connect(Address("s", 9), Recorder))
    with pytest.raises(OSError, match="no host"):
        await client.run(network.connect(Address("nowhere", 9), Recorder))
    sim.power_off("s")
    start = sim.now
    with pytest.raises(TimeoutError):
        await client.run(network.connect(Address("s", 9), Recorder))
    assert sim.now - start >= 10


@simulated(1)
async def test_a_port_in_use_and_a_foreign_address(sim: Simulation) -> None:
    one, two = sim.process("s", "one"), sim.process("s", "two")
    sim.machine("c")
    await one.run(one.world.network.listen(Address("0.0.0.0", 9), Recorder))
    for attempt in (
        two.world.network.listen(Address("127.0.0.1", 9), Recorder),
        two.world.network.serve(Address("s", 9), Service()),
    ):
        with pytest.raises(OSError, match="in use") as caught:
            await two.run(cast(Coroutine[Any, Any, Any], attempt))
        assert caught.value.errno == errno.EADDRINUSE
    with pytest.raises(OSError, match="not this machine"):
        await two.run(two.world.network.listen(Address("c", 9), Recorder))
    one.kill()
    await two.run(two.world.network.listen(Address("s", 9), Recorder))


@pytest.mark.parametrize("seed", range(8))
@simulated
async def test_a_killed_process_closes_its_connections_and_ports(
    sim: Simulation, seed: int
) -> None:
    pair = Pair(sim)
    near = await pair.connect()
    pair.accepted[0].transport.write(b"last words")
    pair.server.kill()
    await asyncio.sleep(0.1)
    assert b"last words".startswith(near.received)
    assert near.events[-1] in (("lost", None), ("lost", ConnectionResetError))
    assert pair.accepted[0].events == ["made"], "the dead hear nothing"
    with pytest.raises(ConnectionRefusedError):
        await pair.client.run(pair.client.world.network.connect(Address("s", 9), Recorder))


@simulated(1)
async def test_lost_power_is_silent_until_the_machine_is_back(sim: Simulation) -> None:
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


@simulated(1)
async def test_a_cut_stalls_bytes_and_healing_brings_them(sim: Simulation) -> None:
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


@simulated(1)
async def test_a_long_cut_ends_the_connection_of_a_sender(sim: Simulation) -> None:
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


@simulated(1)
async def test_a_paused_process_accepts_and_answers_later(sim: Simulation) -> None:
    pair = Pair(sim)
    near = await pair.connect()
    pair.server.pause()
    second = Recorder()
    await pair.client.run(pair.client.world.network.connect(Address("s", 9), lambda: second))
    near.transport.write(b"x")
    second.transport.write(b"y")
    await asyncio.sleep(5)
    assert not near.received
    assert not second.received
    pair.server.resume()
    await asyncio.sleep(0.1)
    assert near.received == b"x"
    assert second.received == b"y"


@simulated(1)
async def test_closing_a_listener_ends_what_it_accepted(sim: Simulation) -> None:
    server, client = sim.process("s"), sim.process("c")
    listener = await server.run(server.world.network.listen(Address("s", 9), Recorder))
    near = Recorder()
    await client.run(client.world.network.connect(Address("s", 9), lambda: near))
    start = sim.now
    await server.run(listener.close(grace_s=0.5))
    assert sim.now - start >= 0.5
    await asyncio.sleep(0.1)
    assert near.events == ["made", ("lost", ConnectionResetError)]
