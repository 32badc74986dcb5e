"""One seed gives one transcript: in one process, in two, and with any hash seed."""

import subprocess
import sys

_SCRIPT = """
import asyncio
from chaos.sim.world.simulation import Simulation
from stele.addresses import Address
from stele.world import RpcError
from world.network import Service

async def main(sim):
    nodes = {name: sim.process(name) for name in ("alpha", "beta", "gamma")}
    async def echo(request, peer):
        await asyncio.sleep(sim.rngs.of("work").uniform(0, 0.01))
        return request
    for name, process in nodes.items():
        service = Service(unary={"/t.T/E": echo})
        await process.run(process.world.network.serve(Address(name, 9), service))
    sim.fabric.faults.slow = 0.2
    sim.fabric.faults.duplicate = 0.1
    sim.fabric.faults.lost_reply = 0.1
    async def chatter(name):
        world = nodes[name].world
        file = world.disk.open("/log", create=True)
        peers = {other: world.network.channel(Address(other, 9)) for other in nodes}
        for i in range(40):
            target = sorted(nodes)[world.rng.randrange(0, 3)]
            try:
                await peers[target].call("/t.T/E", b"%d" % i, timeout_s=0.1)
            except RpcError as error:
                sim.note(name, "failed", str(error))
            file.append([b"x" * i])
            await world.disk.sync(["/log"])
    tasks = [nodes[name].start(chatter(name)) for name in nodes]
    await asyncio.sleep(0.05)
    sim.kill(nodes["beta"])
    await asyncio.sleep(10)

sim = Simulation({seed})
sim.run(main(sim))
print(sim.transcript.digest(), sum(sim.transcript.counts.values()))
"""


def digest(seed: int, hash_seed: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", _SCRIPT.replace("{seed}", str(seed))],
        env={"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_the_same_seed_gives_the_same_transcript_in_any_process() -> None:
    first = digest(7, "1")
    assert digest(7, "2") == first
    assert digest(8, "1") != first
    assert int(first.split()[1]) > 100
