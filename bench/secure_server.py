"""The server's process of ``bench secure``: one node with a listener of each protection.

It reads a word a line and answers a line of JSON: ``turns`` and ``busy`` (the longest turn of the
event loop since the last question, and the CPU of the busiest, in ms), ``memory`` or ``cpu``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import uvloop

from bench.processes import rss_mib
from node.format import format_directory
from node.node import build
from node.process import ease_collector
from runtime.config.node import from_settings
from runtime.real.world import RealWorld

LISTENERS = ("PLAINTEXT", "SSL", "MTLS")


class Inline(Executor):
    """Handshakes on the event loop, to compare."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


class Turns:
    """Measures the longest turn: a timer that is always due finds out how late it is. On a machine
    with other work the CPU of the thread says more: a turn is long, too, while others run."""

    def __init__(self) -> None:
        self._longest_s = self._busiest_s = 0.0

    def take(self) -> float:
        longest, self._longest_s = self._longest_s, 0.0
        return longest * 1000

    def take_busy(self) -> float:
        busiest, self._busiest_s = self._busiest_s, 0.0
        return busiest * 1000

    async def watch(self) -> None:
        while True:
            began, used = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.001)
            self._longest_s = max(self._longest_s, time.perf_counter() - began - 0.001)
            self._busiest_s = max(self._busiest_s, time.thread_time() - used)


def settings(folder: Path, port: int, keystore: str) -> dict[str, str]:
    """The settings of one node with three listeners."""
    each = ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS)
    return {
        "node.id": "1",
        "process.roles": "broker,controller",
        "controller.quorum.voters": f"1@127.0.0.1:{port}",
        "controller.listener": f"127.0.0.1:{port}",
        "listeners": each,
        "grpc.listeners": each,
        "metrics.listener": "",
        "listener.security.protocol.map": "MTLS:SSL",
        "listener.name.mtls.ssl.client.auth": "required",
        "ssl.keystore.location": keystore,
        "ssl.truststore.location": str(folder / "certs" / "ca.pem"),
        "log.dirs": str(folder / "data"),
        "max.connections.per.ip": "100000",
    }


async def run(folder: Path, port: int, keystore: str, handshakes: Executor | None) -> None:
    world = RealWorld(handshakes=handshakes)
    config = from_settings(settings(folder, port, keystore))
    format_directory(world.world.disk, list(config.log_dirs), "bench", 1, world.world.rng)
    node = build(config, world.world)
    await node.start()
    await node.wait_ready()
    ease_collector()
    turns = Turns()
    watch = asyncio.ensure_future(turns.watch())
    print(json.dumps(dict(node.ports.kafka)), flush=True)
    loop = asyncio.get_running_loop()
    while word := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        answer = {
            "turns": turns.take,
            "busy": turns.take_busy,
            "memory": lambda: rss_mib(os.getpid()),
            "cpu": time.process_time,
        }[word]()
        print(json.dumps(answer), flush=True)
    watch.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watch
    await node.stop()
    await world.stop_serving()
    world.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    on_loop = Inline() if sys.argv[4] == "loop" else None
    uvloop.run(run(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], on_loop))
