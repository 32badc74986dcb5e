"""When connections are let in, closed and displaced, on virtual time."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterable

import pytest

from broker.connections import held, open_connections
from broker.connections.open_connections import OpenConnections
from metadata.configs import CLUSTER, ConfigResource
from metadata.delta import MetadataDelta
from metadata.image import EMPTY
from runtime.config.node import NodeConfig
from runtime.metrics.registry import MetricsRegistry
from runtime.quota.addresses import AddressQuotas
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.client_quotas import entity
from tests.support.connections import Fake, as_connection, two_listeners
from tests.support.worlds import virtual

BURST = 11
RATE_1 = {"max_connection_creation_rate": "1"}


class Bench:
    """The connections of a broker that has its first metadata."""

    def __init__(self, config: NodeConfig | None = None, *, quota: float | None = None) -> None:
        self.registry = MetricsRegistry()
        addresses = AddressQuotas({})
        if quota is not None:
            addresses.take({entity(ip=None): {"connection_creation_rate": quota}})
        self.connections = OpenConnections(config or two_listeners(), self.registry, addresses)
        assert self.connections.apply(MetadataDelta(EMPTY), EMPTY) is None

    def come(self, *fakes: Fake) -> None:
        for each in fakes:
            self.connections.opened(as_connection(each))

    def leave(self, *fakes: Fake) -> None:
        for each in fakes:
            each.is_closed = True
            self.connections.closed(as_connection(each))

    def closed(self, reason: str) -> float:
        name = f'stele_connections_closed_total{{reason="{reason}"}}'
        return self.registry.values().get(name, 0.0)

    def value(self, name: str) -> float:
        return self.registry.values()[name]

    def limit(self, most: int) -> None:
        """max.connections, as the metadata log brings it."""
        delta = MetadataDelta(EMPTY)
        config = pb.ConfigRecord(
            resource_type=pb.ConfigResourceType.BROKER,
            resource_name=CLUSTER.name,
            name="max.connections",
            value=str(most),
        )
        delta.replay(0, pb.MetadataRecord(config=config))
        self.connections.apply(delta, delta.apply())


def clients(count: int, **fields: object) -> list[Fake]:
    return [Fake(f"client {number}", **fields) for number in range(count)]  # type: ignore[arg-type]


def done(fakes: Iterable[Fake]) -> list[list[str]]:
    return [each.done for each in fakes]


# ------------------------------------------------------------------------------- idle ones

IDLE = two_listeners(connections_max_idle_ms="1000")


@virtual
async def test_a_connection_is_closed_a_check_after_it_was_silent_for_too_long() -> None:
    bench, silent = Bench(IDLE), Fake("silent")
    bench.connections.start()
    bench.come(silent)
    await asyncio.sleep(1.1)
    assert silent.done == [], "it was silent for as long as it may be"
    await asyncio.sleep(0.2)
    assert silent.done == ["closed"]
    assert bench.closed("connections.max.idle.ms") == 1


@virtual
async def test_silence_is_no_fault_of_a_client_that_waits_for_the_broker() -> None:
    bench = Bench(IDLE)
    bench.connections.start()
    busy, muted, waiting = Fake("busy", in_flight=1), Fake("muted"), Fake("waiting")
    active = Fake("active")
    bench.come(busy, muted, waiting, active)
    muted.muted.extend(100.0)
    waiting.is_held = True
    for _ in range(10):
        active.last_active_s = asyncio.get_running_loop().time()
        await asyncio.sleep(1.0)
    assert done((busy, muted, waiting, active)) == [[], [], [], []]


@pytest.mark.parametrize("fields", [{"is_stalled": True}, {"is_closed": True}])
@virtual
async def test_a_client_that_reads_no_answers_is_cut_off(fields: dict[str, bool]) -> None:
    """One with a request under way, and one that would keep a closed connection for ever."""
    bench = Bench(IDLE)
    bench.connections.start()
    stalled = Fake("stalled", in_flight=1, **fields)  # type: ignore[arg-type]
    bench.come(stalled)
    await asyncio.sleep(1.3)
    assert stalled.done == ["aborted"]
    assert bench.closed("answers not read") == 1
    assert bench.closed("connections.max.idle.ms") == 0


@pytest.mark.parametrize("idle_ms", ["0", "-1"])
@virtual
async def test_without_a_limit_no_connection_is_too_long_silent(idle_ms: str) -> None:
    bench, silent = Bench(two_listeners(connections_max_idle_ms=idle_ms)), Fake("silent")
    bench.connections.start()
    bench.come(silent)
    await asyncio.sleep(1_000_000)
    assert silent.done == []


@virtual
async def test_a_broker_that_ends_answers_everything_and_does_nothing_else() -> None:
    config = two_listeners(connections_max_idle_ms="1000", **RATE_1)
    bench = Bench(config, quota=13.0 / BURST)
    bench.connections.start()
    fakes = clients(BURST + 3)
    bench.come(*fakes)
    assert [each.is_held for each in fakes] == [False] * BURST + [True] * 3
    assert bench.value("stele_connections_held") == 3
    bench.connections.drain()
    await asyncio.sleep(100)
    # The last one was above the quota of its address: it is closed when its time is over.
    assert done(fakes) == [["drained"]] * (BURST + 2) + [["drained", "closed"]]


# ------------------------------------------------------------------------------- held ones


@virtual
async def test_held_connections_are_let_in_one_after_the_other() -> None:
    bench = Bench(two_listeners(**RATE_1))
    fakes = clients(BURST + 3)
    bench.come(*fakes)
    let_in = []
    for _ in range(4):
        let_in.append(sum(not each.is_held for each in fakes))
        await asyncio.sleep(1.0 if let_in[1:] else 1.01)
    assert let_in == [BURST, BURST + 1, BURST + 2, BURST + 3]
    assert done(fakes) == [[]] * BURST + [["let in"]] * 3
    bench.leave(*fakes)
    later = Fake("later")
    await asyncio.sleep(2.0)
    bench.come(later)
    assert not later.is_held, "nobody waits, and there is a token"


@virtual
async def test_nobody_waits_for_the_turn_of_one_that_has_left() -> None:
    bench = Bench(two_listeners(**RATE_1))
    fakes = clients(BURST + 1)
    bench.come(*fakes)
    bench.leave(fakes[-1])
    assert bench.value("stele_connections_held") == 0
    await asyncio.sleep(1.01)
    later = clients(2)
    bench.come(*later)
    assert [each.is_held for each in later] == [False, True]
    await asyncio.sleep(1.01)
    assert later[1].done == ["let in"]


@virtual
async def test_a_full_queue_closes_the_newest_of_the_address_that_has_most_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held, "HELD_MAX", 2)
    bench = Bench(two_listeners(**RATE_1))
    bench.come(*clients(BURST))
    first, second, third = clients(3, address="10.0.0.7")
    polite = Fake("polite", address="10.0.0.8")
    bench.come(first, second, third)
    assert done((first, second, third)) == [[], [], ["closed"]]
    bench.come(polite)
    assert done((first, second, polite)) == [[], ["closed"], []]
    assert bench.closed("max.connection.creation.rate") == 2
    assert dict(bench.connections.refused_addresses) == {"10.0.0.7": 2}
    assert not third.is_held, "a refused one is not kept waiting"


@virtual
async def test_a_connection_above_the_quota_of_its_address_is_closed_when_its_time_is_over() -> (
    None
):
    bench = Bench(quota=1.0)
    fakes = clients(BURST + 2)
    bench.come(*fakes)
    late, left = fakes[-2:]
    assert late.is_held
    assert bench.value("stele_connections_held") == 2
    assert bench.value("stele_connection_count") == BURST
    bench.leave(left)
    assert bench.value("stele_connections_held") == 1
    await asyncio.sleep(0.9)
    assert late.done == []
    await asyncio.sleep(0.2)
    assert (late.done, left.done) == (["closed"], [])
    assert bench.closed("connection_creation_rate") == 2
    bench.leave(late)
    assert bench.value("stele_connections_held") == 0


# ------------------------------------------------------------------------------- before metadata


@virtual
async def test_those_that_waited_for_the_metadata_are_judged_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that leaves between two slices is not judged."""
    monkeypatch.setattr(open_connections, "_CHANGED_PER_TURN", 2)
    registry = MetricsRegistry()
    connections = OpenConnections(two_listeners(), registry, AddressQuotas({}))
    early = clients(5)
    for each in early:
        connections.opened(as_connection(each))
    slices = connections.apply(MetadataDelta(EMPTY), EMPTY)
    assert slices is not None
    waiting = []
    for _ in slices:
        waiting.append(sum(each.is_held for each in early))
        if len(waiting) == 1:
            early[3].is_held = False
            connections.closed(as_connection(early[3]))
    assert waiting == [3, 1]
    assert done(early) == [["let in"]] * 3 + [[], ["let in"]]
    assert dict(connections.by_address) == {"10.0.0.1": 4}
    assert len(connections.open) == 4


@virtual
async def test_a_change_of_something_else_leaves_the_limits_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()

    def never(*arguments: object, **named: object) -> None:
        raise AssertionError("the limits are read again")

    monkeypatch.setattr(open_connections, "effective_connection_settings", never)
    delta = MetadataDelta(EMPTY)
    other = ConfigResource.broker(2)
    config = pb.ConfigRecord(
        resource_type=pb.ConfigResourceType.BROKER,
        resource_name=other.name,
        name="max.connections",
        value="1",
    )
    delta.replay(0, pb.MetadataRecord(config=config))
    assert bench.connections.apply(delta, delta.apply()) is None


# ------------------------------------------------------------------------------- too many


@virtual
async def test_a_lower_limit_closes_connections_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_connections, "_CHANGED_PER_TURN", 2)
    bench = Bench()
    fakes = clients(7)
    for number, each in enumerate(fakes):
        each.last_active_s = number
    bench.come(*fakes)
    bench.limit(2)
    closed = [sum(each.is_closed for each in fakes)]
    while closed[-1] < 5:
        await asyncio.sleep(0)
        closed.append(sum(each.is_closed for each in fakes))
    assert max(after - before for before, after in itertools.pairwise(closed)) <= 2
    await asyncio.sleep(1)
    assert done(fakes) == [["closed"]] * 5 + [[]] * 2
    assert bench.closed("max.connections") == 5


@virtual
async def test_brokers_alone_above_the_limit_are_left_alone() -> None:
    """Nobody is sought again and again in their place, either."""
    bench = Bench()
    brokers = clients(3, listener_name="BROKERS")
    bench.come(*brokers, Fake("client"))
    bench.limit(1)
    await asyncio.sleep(1)
    assert done(brokers) == [[], [], []]
    bench.connections.drain()
    assert done(brokers) == [["drained"]] * 3


@virtual
async def test_one_that_waits_for_its_turn_is_missed_least() -> None:
    bench = Bench()
    silent, waiting = Fake("silent"), Fake("waiting", last_active_s=5.0)
    bench.come(silent, waiting)
    waiting.is_held = True
    bench.limit(1)
    assert done((silent, waiting)) == [[], ["closed"]]


@virtual
async def test_connections_that_are_closing_count_as_closed() -> None:
    """They wait until their peers have taken their answers."""
    bench = Bench(two_listeners(max_connections="2"))
    closing, silent = Fake("closing"), Fake("silent")
    bench.come(closing, silent)
    closing.is_closed = True
    first, second = clients(2, listener_name="BROKERS")
    bench.come(first)
    assert done((closing, silent)) == [[], []]
    bench.come(second)
    assert done((closing, silent)) == [[], ["closed"]]


@virtual
async def test_a_single_listener_goes_by_the_limit_of_the_broker() -> None:
    config = two_listeners(
        listeners="BROKERS://127.0.0.1:0",
        listener_security_protocol_map="BROKERS:PLAINTEXT",
        grpc_listeners="BROKERS://127.0.0.1:0",
        max_connections="1",
    )
    bench = Bench(config)
    first, second = clients(2, listener_name="BROKERS")
    bench.come(first, second)
    assert done((first, second)) == [[], ["closed"]]


# ------------------------------------------------------------------------------- what is told


@virtual
async def test_refusals_are_told_once_a_second_with_the_number_of_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(two_listeners(max_connections_per_ip="0"))
    lines = []
    with caplog.at_level(logging.WARNING):
        for pause_s in (0.0, 0.0, 0.5, 0.5, 1.0):
            await asyncio.sleep(pause_s)
            caplog.clear()
            bench.come(Fake("refused"))
            lines.append(caplog.text.partition("refusing ")[2].strip())
    line = "10.0.0.1:5 on CLIENTS: max.connections.per.ip: 0 connections of 10.0.0.1 are open"
    assert lines == [line, "", "", f"{line} (2 more since the last such line)", line]
    assert bench.closed("max.connections.per.ip") == 5
    assert bench.value("stele_connections_refused_total") == 5


@virtual
async def test_displaced_connections_are_told_once_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(two_listeners(max_connections="3"))
    bench.come(*clients(3))
    lines = []
    with caplog.at_level(logging.WARNING):
        for pause_s in (0.0, 0.0, 1.0):
            await asyncio.sleep(pause_s)
            caplog.clear()
            bench.come(Fake("broker", listener_name="BROKERS"))
            lines.append(caplog.text.partition("closing ")[2].strip())
    line = "10.0.0.1:5: max.connections is exceeded, and it was used least recently"
    assert lines == [line, "", f"{line} (1 more since the last such line)"]


@virtual
async def test_the_addresses_that_were_refused_last_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_connections, "SAMPLES_MAX", 2)
    bench = Bench(two_listeners(max_connections_per_ip="0"))
    for address in ("10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.3"):
        bench.come(Fake("refused", address=address))
    assert list(bench.connections.refused_addresses.items()) == [("10.0.0.1", 2), ("10.0.0.3", 1)]
