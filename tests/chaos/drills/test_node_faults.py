"""Faults of the computers on which nodes run."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.drills.drill import Drill
from chaos.drills.needs import ABLE, Need
from chaos.drills.registry import DRILLS
from chaos.faults import small_disks
from chaos.faults.relays import Relay
from chaos.faults.slow_disks import process_tree
from chaos.faults.small_disks import SmallDisk
from chaos.process_cluster import Ports
from stele.errors import SteleError


@pytest.mark.parametrize("drill", DRILLS, ids=lambda drill: drill.name)
def test_some_cluster_can_do_what_a_drill_needs(drill: Drill) -> None:
    assert any(drill.needs <= able for able in ABLE.values())


def test_every_need_belongs_to_a_drill() -> None:
    assert {need for drill in DRILLS for need in drill.needs} == set(Need)


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)
    writer.close()


async def test_a_relay_delays_both_directions_and_passes_the_end_on() -> None:
    loop, ports = asyncio.get_running_loop(), Ports(None)
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    relay = Relay(ports.kafka(), server.sockets[0].getsockname()[1])
    await relay.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    writer.write(b"at once")
    assert await reader.readexactly(7) == b"at once"
    relay.delay_s = 0.05
    began = loop.time()
    writer.write(b"later")
    assert await reader.readexactly(5) == b"later"
    assert loop.time() - began >= 2 * relay.delay_s
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()
    await relay.close()
    server.close()


async def test_a_relay_without_a_target_closes_the_connection() -> None:
    ports = Ports(None)
    relay = Relay(ports.kafka(), ports.kafka())
    await relay.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    assert await reader.read() == b""
    writer.close()
    await relay.close()


def test_a_process_tree_has_what_its_children_have_started() -> None:
    sleeping = "import sys; sys.stdin.read()"
    parent = (
        "import subprocess, sys;"
        f"child = subprocess.Popen([sys.executable, '-c', {sleeping!r}], stdin=subprocess.PIPE);"
        "print(child.pid, flush=True); sys.stdin.read(); child.communicate()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert process_tree(process.pid) == [process.pid, child]
        assert {process.pid, child} <= set(process_tree(os.getpid()))
        process.communicate()


def test_a_small_disk_is_full_until_it_has_room_again(tmp_path: Path) -> None:
    if reason := small_disks.unavailable():
        pytest.skip(reason)
    place = tmp_path / "data"
    try:
        disk = SmallDisk(place)
    except SteleError as error:  # a container without the right to mount
        pytest.skip(str(error))
    try:
        (place / "log").write_bytes(b"kept")
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            (place / "more").write_bytes(bytes(8192))
        disk.free()
        (place / "more").write_bytes(bytes(8192))
        assert (place / "log").read_bytes() == b"kept"
    finally:
        disk.close()
