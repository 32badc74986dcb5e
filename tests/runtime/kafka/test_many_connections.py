"""Many clients that connect at once, and the limit of open files of the process."""

from __future__ import annotations

import asyncio
import errno
import resource
import select
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable

import pytest

from runtime.real.limits import raise_open_file_limit
from runtime.real.network import RealNetwork
from stele.addresses import Address
from world.network import Listener, Service

HOST = "127.0.0.1"
CLIENTS = 1000
CONNECT_S = 0.9  # a connection that found no place in the queue is tried again after a second


async def kafka(network: RealNetwork) -> Listener:
    return await network.listen(Address(HOST, 0), asyncio.Protocol)


async def control(network: RealNetwork) -> Listener:
    return await network.serve(Address(HOST, 0), Service())


def connect_all(port: int) -> tuple[list[socket.socket], int]:
    """Connect all at once. Returns how many are connected. Nothing of this process's loop runs
    meanwhile."""
    sockets = [socket.socket() for _ in range(CLIENTS)]
    poll = select.poll()
    for each in sockets:
        each.setblocking(False)
        assert each.connect_ex((HOST, port)) in (0, errno.EINPROGRESS)
        poll.register(each, select.POLLOUT)
    connected: set[int] = set()
    while len(connected) < CLIENTS:
        events = poll.poll(CONNECT_S * 1000)
        if not events:
            break
        for number, _ in events:
            connected.add(number)
            poll.unregister(number)
    return sockets, len(connected)


@pytest.mark.skipif(sys.platform != "linux", reason="the queue's limit is another one")
@pytest.mark.parametrize("listen", [kafka, control])
async def test_a_thousand_clients_connect_at_once(
    listen: Callable[[RealNetwork], Awaitable[Listener]],
) -> None:
    if raise_open_file_limit() < 3 * CLIENTS:
        pytest.skip("too few files may be open here")
    network = RealNetwork()
    listener = await listen(network)
    sockets, connected = connect_all(listener.port)
    try:
        assert connected == CLIENTS
    finally:
        for each in sockets:
            each.close()
        await listener.close()


def test_the_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    program = (
        "import resource, logging; logging.basicConfig(level=logging.INFO);"
        "from runtime.real.limits import raise_open_file_limit;"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard}));"
        "raise_open_file_limit(); print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == [str(hard)], done.stderr
    assert f"open files: at most {hard} (it was 256)" in done.stderr
