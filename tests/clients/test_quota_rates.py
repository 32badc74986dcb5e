"""Real clients get their quota, within a tenth in any 30 s, and none of them fails.

All of them run at the same time, each with a quota of its own. The processor has little to do, for
they wait most of the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from chaos.process_cluster import ProcessCluster
from stele import Admin, NewTopic, Producer, QuotaAlteration
from tests.support.paced_clients import (
    CONSUMERS,
    COUNT,
    PRODUCERS,
    RATE,
    VALUE,
    Arrival,
    Job,
    assert_paced,
)
from tests.support.paced_programs import java, run_program, sarama

pytestmark = pytest.mark.processes

Clients = Mapping[str, Callable[[Job], list[Arrival]]]
NAMES = [*PRODUCERS, "java", "sarama"]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    cluster = ProcessCluster(tmp_path_factory.mktemp("rates"), controllers=1, brokers=1)
    asyncio.run(cluster.start())
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("to", 1, 1), NewTopic("from", 1, 1)])
    with Producer(cluster.bootstrap_servers) as producer:
        for _ in range(COUNT):
            producer.send("from", VALUE)
    yield cluster.bootstrap_servers
    asyncio.run(cluster.stop())


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Clients:
    """By what each of them does. Programs are built before any client runs."""
    programs = {"java": java, "sarama": sarama}
    found: dict[str, Callable[[Job], list[Arrival]]] = {}
    found |= {f"{name} produces": client for name, client in PRODUCERS.items()}
    found |= {f"{name} consumes": client for name, client in CONSUMERS.items()}
    for name, build in programs.items():
        program = build(Path(tmp_path_factory.mktemp(name)))
        for what in ("produce", "consume"):
            found[f"{name} {what}s"] = partial(run_program, program, what)
    return found


@pytest.fixture(scope="module")
def running(servers: str, clients: Clients) -> Iterator[Mapping[str, Future[list[Arrival]]]]:
    rates: dict[str, float | None] = {"producer_byte_rate": RATE, "consumer_byte_rate": RATE}
    with Admin(servers) as admin:
        admin.alter_client_quotas([QuotaAlteration({"client-id": None}, rates)])
    with ThreadPoolExecutor(len(clients)) as pool:
        yield {
            name: pool.submit(
                client, Job(servers, name, "to" if name.endswith("produces") else "from", COUNT)
            )
            for name, client in clients.items()
        }


@pytest.mark.parametrize("what", ["produces", "consumes"])
@pytest.mark.parametrize("name", NAMES)
def test_a_client_gets_its_quota_and_nothing_fails(
    servers: str, running: Mapping[str, Future[list[Arrival]]], name: str, what: str
) -> None:
    arrivals = running[f"{name} {what}"].result()
    assert_paced(arrivals)
    with Admin(servers) as admin:
        usages = next(iter(admin.explain_client_quotas("ANONYMOUS", f"{name} {what}").values()))
    (usage,) = (each for each in usages if each.throttles)
    assert usage.key == ("producer_byte_rate" if what == "produces" else "consumer_byte_rate")
