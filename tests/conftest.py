"""What all tests share: a cluster of real processes, started on the first use, and gRPC."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import itertools
import logging
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from hypothesis import settings

from chaos.process_cluster import ProcessCluster
from metadata.node_settings import RACK_AWARE_SELECTOR
from stele import Admin, NewTopic
from tests.support.acceptance import wait_known
from tests.support.scheduling import FilesInGroups, workers

CreateTopic = Callable[..., str]
_END_S = 60.0

# Processes that a shell starts in the background ignore Ctrl-C, and their children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests have no deadlines: on a busy machine any example may take long.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesInGroups:
    return FilesInGroups(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    return workers(len(os.sched_getaffinity(0)))


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: no full collection has to look through them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def signals_as_found() -> Iterator[None]:
    """No test leaves a handler: asyncio.run would not take a Ctrl-C in a later test of the same
    process."""
    numbers = signal.SIGINT, signal.SIGTERM
    before = [signal.getsignal(each) for each in numbers]
    yield
    assert [signal.getsignal(each) for each in numbers] == before


@pytest.fixture(autouse=True)
def logging_as_found() -> Iterator[None]:
    """No test leaves logging muted: one that reads the log would fail in the same process."""
    clients = logging.getLogger("stele")
    before = clients.level, logging.root.manager.disable
    yield
    assert (clients.level, logging.root.manager.disable) == before


@pytest.fixture(scope="session", autouse=True)
def grpc_poller() -> Iterator[None]:
    """Keep gRPC's queue alive as long as the tests.

    The queue ends with the last channel and server, wherever the garbage collector finds that, and
    then waits for everything under way: for ever, if a failed test has left a server running. With
    this channel the queue and its thread do not end before the tests. At the end of the tests such
    a wait is bounded: the process says where each thread stands, and ends.
    """

    async def open_channel() -> grpc.aio.Channel:
        return grpc.aio.insecure_channel("127.0.0.1:1")  # lazily: nothing is called

    channel = asyncio.run(open_channel())
    yield
    faulthandler.dump_traceback_later(_END_S, exit=True, file=2)
    asyncio.run(channel.close())
    del channel
    gc.collect()
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def process_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """3 controllers and 3 brokers. A test that kills a node starts it again."""
    directory: Path = tmp_path_factory.mktemp("cluster")
    settings = {
        "auto.create.topics.enable": "false",
        "transaction.two.phase.commit.enable": "true",
        "log.cleaner.backoff.ms": "200",
        "group.initial.rebalance.delay.ms": "100",
        "replica.selector.class": RACK_AWARE_SELECTOR,
    }
    cluster = ProcessCluster(directory, settings=settings, has_racks=True)
    asyncio.run(cluster.start())
    yield cluster
    asyncio.run(cluster.stop())


@pytest.fixture(scope="session")
def bootstrap(process_cluster: ProcessCluster) -> str:
    return process_cluster.bootstrap_servers


@pytest.fixture(scope="session")
def create_topic(bootstrap: str) -> Callable[..., str]:
    """Create a topic with its own name, which every broker knows then. Returns the name."""
    numbers = itertools.count()

    def create(partitions: int = 1, replication_factor: int = 3, **configs: str) -> str:
        name = f"topic-{next(numbers)}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        settings.setdefault("min.insync.replicas", "2")
        with Admin(bootstrap) as admin:
            admin.create_topics([NewTopic(name, partitions, replication_factor, settings)])
        with ThreadPoolExecutor(1) as pool:  # the test may have a loop of its own in this thread
            pool.submit(asyncio.run, wait_known(bootstrap, name)).result()
        return name

    return create
