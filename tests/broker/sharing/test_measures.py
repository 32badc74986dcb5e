"""What is counted of share groups: records, by what became of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.metrics import BrokerMetrics
from broker.share.values import AcknowledgeType, Acquired
from broker.sharing.measures import ShareMeasures
from runtime.metrics.registry import MetricsRegistry
from stele.errors import ApiError, ErrorCode
from tests.broker.sharing.test_share_partitions import P0, Bench
from tests.support.sharing import SharingBench, batch
from tests.support.timing import until
from tests.support.worlds import virtual

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def test_each_record_of_a_delivery_counts() -> None:
    measures = ShareMeasures()
    measures.delivered([Acquired(0, 4, 1), Acquired(5, 5, 2)])
    assert (measures.deliveries, measures.redeliveries) == (6, 1)


def test_each_record_of_an_acknowledgement_counts_by_its_type() -> None:
    measures = ShareMeasures()
    measures.acknowledged([batch(0, 9, ACCEPT), batch(10, 13, ACCEPT, RELEASE, RELEASE, REJECT)])
    assert measures.answered[ACCEPT] == 11
    assert (measures.answered[RELEASE], measures.answered[REJECT]) == (2, 1)


@virtual
async def test_what_a_member_gets_and_says_is_counted() -> None:
    bench = SharingBench()
    led = await bench.led()
    bench.log.append(4)
    assert len(await bench.offsets(led)) == 4
    await led.acknowledge("m", [batch(0, 1, ACCEPT), batch(2, 2, RELEASE)])
    assert await bench.offsets(led) == [2]
    assert (bench.measures.deliveries, bench.measures.redeliveries) == (5, 1)
    assert bench.measures.answered[ACCEPT] == 2
    assert bench.measures.answered[RELEASE] == 1


@virtual
async def test_an_acknowledgement_that_is_refused_does_not_count() -> None:
    bench = SharingBench()
    led = await bench.led()
    bench.log.append(2)
    await bench.offsets(led)
    with pytest.raises(ApiError) as refused:
        await led.acknowledge("another", [batch(0, 0, ACCEPT)])
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
    assert sum(bench.measures.answered.values()) == 0


@virtual
async def test_dead_letters_are_told_with_those_that_wait() -> None:
    bench = Bench()
    registry = MetricsRegistry()
    BrokerMetrics(registry).read_sharing(bench.partitions)
    led = bench.partitions.take("g", P0)
    await until(lambda: led.machine is not None)
    letters = replace(led.settings, limits=led.settings.limits._replace(has_dead_letters=True))
    led.configure(letters)  # its topic does not exist
    bench.logs[P0].append(3)
    read = await bench.logs[P0].read(0, 1, read_committed=False)
    led.acquire("m", 0, read, 3, is_strict=False)
    await led.acknowledge("m", [batch(0, 1, REJECT)])
    await until(lambda: registry.values()["stele_share_troubled_dead_letters"] == 1)
    assert registry.values()["stele_share_waiting_dead_letters"] == 2
    led.configure(replace(letters, limits=led.settings.limits._replace(has_dead_letters=False)))
    await until(lambda: registry.values()["stele_share_waiting_dead_letters"] == 0)
    told = registry.values()
    assert told["stele_share_troubled_dead_letters"] == 0
    assert told["stele_share_lost_dead_letters_total"] == 2
    assert told["stele_share_dead_letters_total"] == 0
    await bench.partitions.stop()


@virtual
async def test_windows_are_told_with_those_that_are_full() -> None:
    bench = Bench()
    registry = MetricsRegistry()
    BrokerMetrics(registry).read_sharing(bench.partitions)
    led = bench.partitions.take("g", P0)
    await until(lambda: led.machine is not None)
    assert registry.values()["stele_share_full_windows"] == 0
    read = [bench.logs[P0].append(2_000)]
    led.acquire("m", 0, read, 2_000, is_strict=False)
    told = registry.values()
    assert told["stele_share_partitions"] == 1
    assert told["stele_share_window_records"] == 2_000
    assert told["stele_share_full_windows"] == 1
    assert told["stele_share_deliveries_total"] == 2_000
    await bench.partitions.stop()
