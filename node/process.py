"""The life of a node's process: uvloop, signals, one line for every foreseeable error."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Callable
from datetime import UTC, datetime

import uvloop

import stele
from node.node import Node, build
from node.process_end import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, tell
from node.start_checks import check_start
from runtime.config.node import NodeConfig
from runtime.real.clock import RealClock
from runtime.real.limits import raise_open_file_limit
from runtime.real.process_metrics import declare_process_metrics
from runtime.real.tracing import OtelTracer, tracer_of
from runtime.real.watchdog import Watchdog
from runtime.real.world import RealWorld
from stele.errors import SteleError

logger = logging.getLogger(__name__)

_COLLECT_AFTER_OBJECTS = 10_000
"""Objects made and not freed before the youngest are looked through; CPython's default is 700."""


def live(config: NodeConfig, on_ready: Callable[[Node], None] | None) -> int:
    """As ``node.run.run_node``."""
    now = datetime.fromtimestamp(RealClock().time_ms() / 1000, UTC)
    try:
        check_start(config, now)
        tracer = tracer_of(config)
    except SteleError as error:
        tell(str(error))
        return EXIT_FAILED
    raise_open_file_limit()
    return uvloop.run(_main(config, tracer, on_ready))


async def _main(
    config: NodeConfig, tracer: OtelTracer | None, on_ready: Callable[[Node], None] | None
) -> int:
    world = RealWorld(syncs_in_kernel=config.log_sync_method == "kernel", tracer=tracer)
    node = build(config, world.world)
    watchdog = Watchdog(node.registry)
    declare_process_metrics(node.registry, stele.__version__)
    watchdog.start()
    try:
        return await _Runner(node, on_ready).run()
    finally:
        watchdog.stop()
        try:
            await world.stop_serving()
            if tracer is not None:
                await tracer.close()
        finally:
            world.close()


class _Runner:
    def __init__(self, node: Node, on_ready: Callable[[Node], None] | None) -> None:
        self._node = node
        self._on_ready = on_ready
        self._asked_to_stop = asyncio.Event()
        self._interrupted = asyncio.Event()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        life = loop.create_task(self._live())
        interruption = loop.create_task(self._interrupted.wait())
        interruption.add_done_callback(lambda _: life.cancel())
        try:
            return await life
        except asyncio.CancelledError:
            if not self._interrupted.is_set():
                raise
            self._node.halt()
            tell("interrupted: the node did not shut down cleanly")
            return EXIT_INTERRUPTED
        finally:
            interruption.cancel()

    def _signalled(self) -> None:
        if self._asked_to_stop.is_set():
            self._interrupted.set()
        self._asked_to_stop.set()

    async def _live(self) -> int:
        try:
            code = await self._start()
        except (SteleError, OSError) as error:
            tell(str(error))
            return EXIT_FAILED
        if code is not None:
            return code
        failure = await self._until_end()
        logger.info("node %d stops", self._node.config.node_id)
        await self._node.stop()
        return EXIT_OK if failure is None else self._tell_failure(failure)

    def _tell_failure(self, failure: BaseException) -> int:
        tell(f"node {self._node.config.node_id} cannot go on: {failure}")
        return EXIT_FAILED

    async def _start(self) -> int | None:
        """Start the node, which takes as long as the recovery of its logs.

        The exit code, if a signal came before the end of that, or the node failed; the start is
        undone then. Raises what the start raises.
        """
        loop = asyncio.get_running_loop()
        start = loop.create_task(self._node.start())
        failed = loop.create_task(self._node.wait_failed())
        tasks = [start, failed, loop.create_task(self._asked_to_stop.wait())]
        first_done = asyncio.Event()
        for task in tasks:
            task.add_done_callback(lambda _: first_done.set())
        try:
            await first_done.wait()
            if start.done():
                await start
                return None
            if failed.done():
                return self._tell_failure(failed.result())
            logger.info("node %d stops before its start ended", self._node.config.node_id)
            return EXIT_OK
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _until_end(self) -> BaseException | None:
        """Wait for a signal (None) or for the error that ends the node."""
        loop = asyncio.get_running_loop()
        end: asyncio.Future[BaseException | None] = loop.create_future()

        def settle(outcome: BaseException | None) -> None:
            if not end.done():
                end.set_result(outcome)

        async def watch_signals() -> None:
            await self._asked_to_stop.wait()
            settle(None)

        async def watch_failure() -> None:
            settle(await self._node.wait_failed())

        async def watch_readiness() -> None:
            try:
                await self._node.wait_ready()
            except SteleError as error:
                settle(error)
                return
            ease_collector()
            if self._on_ready is not None:
                self._on_ready(self._node)

        watchers = [loop.create_task(w()) for w in (watch_signals, watch_failure, watch_readiness)]
        try:
            return await end
        finally:
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)


def ease_collector() -> None:
    """Exempt all objects that live as long as the node from the cyclic collector.

    It stops the event loop: a full collection of a node's modules and objects takes 30 ms, and
    requests on their way made it a fifth of a busy broker's time. Requests hold few cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER_OBJECTS, 10, 10)
