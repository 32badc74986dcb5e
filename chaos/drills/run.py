"""Runs a drill: opens the stage, starts the workload, plays the course, reads everything back."""

from __future__ import annotations

import asyncio
import dataclasses
import platform
import random
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

import stele
from chaos.drills.chain.chain import ChainOptions
from chaos.drills.cluster import DrillCluster
from chaos.drills.drill import Control, Drill
from chaos.drills.history import FINAL, LIVE, Header, History, HistoryWriter
from chaos.drills.observer import Observer
from chaos.drills.recorder import Recorder
from chaos.drills.stage import ASK_TIMEOUT_MS, Clients, Stage
from chaos.drills.verdict import Verdict, judge
from chaos.drills.workload import Reader, Writer, read_back
from stele.admin.descriptions import NewTopic
from stele.aio import Admin
from stele.errors import SteleError
from stele.real import RealClock

HISTORY_FILE: Final = "history.jsonl"
_CATCH_UP_S: Final = 20.0
_DRAIN_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class DrillOutcome:
    history: History
    verdict: Verdict
    directory: Path


def varied(drill: Drill, control: Control | None) -> Drill:
    """The drill, or what its negative control makes of it."""
    if control is None:
        return drill
    return dataclasses.replace(
        drill,
        course=control.course or drill.course,
        control=None,
        load=control.load or drill.load,
        topic_configs=drill.topic_configs
        if control.topic_configs is None
        else control.topic_configs,
    )


async def run_drill(
    drill: Drill,
    cluster: DrillCluster,
    directory: Path,
    *,
    seed: int,
    topic: str = "drill",
    control: Control | None = None,
    chain: ChainOptions | None = None,
) -> DrillOutcome:
    """Run a drill on an open cluster. ``directory`` gets the history, as it happens. ``chain`` is
    for drills with a chain.

    Raises SteleError if the stage could not be opened. What fails later is in the history.
    """
    drill = varied(drill, control)
    chain = chain or ChainOptions()
    header = _header(drill, cluster, seed, control, chain)
    with _new_file(directory / HISTORY_FILE) as file:
        recorder = Recorder(RealClock(), header, HistoryWriter(file, header))
        async with Admin(
            cluster.bootstrap_servers, on_wait=lambda _: None, **cluster.security
        ) as opening:  # nothing is measured yet
            new = NewTopic(topic, drill.partitions, 3, configs=drill.topic_configs)
            await opening.create_topics([new])
        async with Admin(
            cluster.bootstrap_servers,
            request_timeout_ms=ASK_TIMEOUT_MS,
            default_api_timeout_ms=ASK_TIMEOUT_MS,
            on_wait=lambda _: None,
            **cluster.security,
        ) as admin:
            await _play(drill, cluster, topic, recorder, admin, seed, chain)
    history = recorder.history()
    return DrillOutcome(history, judge(history), directory)


def _new_file(path: Path) -> IO[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("w", encoding="utf-8")


def _header(
    drill: Drill, cluster: DrillCluster, seed: int, control: Control | None, chain: ChainOptions
) -> Header:
    return Header(
        drill=drill.name,
        title=drill.title,
        expectations=drill.expectations,
        partitions=drill.partitions,
        replication_factor=3,
        brokers=tuple(cluster.broker_ids),
        controllers=tuple(cluster.controller_ids),
        cluster=cluster.kind,
        seed=seed,
        control=control.what if control else "",
        settings=dict(drill.settings),
        topic_configs=dict(drill.topic_configs),
        workload={
            "acks": str(drill.load.acks),
            "per_s": drill.load.per_s,
            "delivery_timeout_ms": drill.load.delivery_timeout_ms,
            **({"chain": dataclasses.asdict(chain)} if drill.expectations.chain else {}),
        },
        versions={"stele": stele.__version__, "python": platform.python_version()},
        began=datetime.now(UTC).isoformat(timespec="seconds"),
    )


async def _play(
    drill: Drill,
    cluster: DrillCluster,
    topic: str,
    recorder: Recorder,
    admin: Admin,
    seed: int,
    chain: ChainOptions,
) -> None:
    bootstrap, partitions = cluster.bootstrap_servers, drill.partitions
    security = cluster.security
    writer = Writer(bootstrap, topic, partitions, drill.load, recorder, security)
    reader = Reader(bootstrap, topic, partitions, LIVE, recorder, security)
    observer = Observer(bootstrap, topic, recorder, security)
    clients = Clients(writer, reader, observer, admin)
    stage = Stage(
        cluster, topic, partitions, clients, recorder, random.Random(seed), RealClock(), chain
    )
    writing = asyncio.create_task(writer.run())
    others = [asyncio.create_task(reader.run()), asyncio.create_task(observer.run())]
    try:
        await _noted(stage, drill.course(stage))
        stage.end_writing()
        await _noted(stage, _drained(writing))
        await _noted(stage, _read_back(stage, topic, partitions, recorder, reader))
    finally:
        reader.stop()
        await stage.close()
        for task in (writing, *others):
            task.cancel()
        await asyncio.gather(writing, *others, return_exceptions=True)


async def _noted(stage: Stage, doing: Awaitable[None]) -> None:
    """An error of a step goes into the history, and the rest of the drill is done nevertheless."""
    try:
        await doing
    except (SteleError, OSError) as error:
        stage.step("failed", str(error) or type(error).__name__)


async def _drained(writing: asyncio.Task[None]) -> None:
    try:
        await asyncio.wait_for(asyncio.shield(writing), _DRAIN_S)
    except TimeoutError:
        raise SteleError(
            f"records were still not delivered {_DRAIN_S:.0f} s after the end"
        ) from None


async def _read_back(
    stage: Stage, topic: str, partitions: int, recorder: Recorder, reader: Reader
) -> None:
    bootstrap, security = stage.cluster.bootstrap_servers, stage.cluster.security
    ends = await read_back(bootstrap, topic, partitions, FINAL, recorder, security)

    async def caught_up() -> bool:
        return all(reader.read_to.get(number, 0) >= end for number, end in ends.items())

    await stage.until(caught_up, "the live reader has read everything", _CATCH_UP_S)
