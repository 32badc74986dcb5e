"""The runs of ``stele perf`` against clients that are slow in known ways, on virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from cli.output import CommandError
from cli.perf.consume_run import HEADER, Consumed, ConsumeRun, line, time_text
from cli.perf.end_to_end_run import EndToEndRun
from cli.perf.produce_run import ProduceLoad, ProduceRun
from stele.consumer.group.listener import RebalanceListener
from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from stele.records import ConsumerRecord, TimestampType
from tests.support.timing import LoopClock, run_virtual, until
from tests.support.worlds import virtual

RUN_ID = b"run-1234"


class Cluster:
    """A producer and a consumer of one topic. Acknowledgement and arrival take ``delay_s``."""

    def __init__(self, delay_s: float = 0.01) -> None:
        self.delay_s = delay_s
        self.blocked_until_s = 0.0  # `send` waits
        self.refused: set[int] = set()
        self.sent: list[bytes] = []
        self.arrived: list[ConsumerRecord] = []
        self.polls = 0
        self.transactions: list[int] = []  # how many records each has
        self.committed = 0
        self._under_way: set[asyncio.Future[Any]] = set()
        self._finished = asyncio.Event()
        self._arrival = asyncio.Event()

    # ------------------------------------------------------------------ producer

    async def send(self, topic: str, value: bytes) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(self.blocked_until_s - loop.time(), 0))
        number = len(self.sent)
        self.sent.append(value)
        if self.transactions:
            assert self.committed < len(self.transactions)
            self.transactions[-1] += 1
        delivery: asyncio.Future[Any] = loop.create_future()
        self._under_way.add(delivery)
        loop.call_later(self.delay_s, self._finish, delivery, number, value)
        return delivery

    def _finish(self, delivery: asyncio.Future[Any], number: int, value: bytes) -> None:
        self._under_way.discard(delivery)
        self._finished.set()
        if number in self.refused:
            delivery.set_exception(ApiError(ErrorCode.MESSAGE_TOO_LARGE, "too large"))
        else:
            delivery.set_result(None)
            self.arrive(value)

    async def begin_transaction(self) -> None:
        assert self.committed == len(self.transactions)
        self.transactions.append(0)

    async def commit_transaction(self) -> None:
        await self.flush()
        self.committed += 1

    async def flush(self) -> None:
        while self._under_way:
            self._finished.clear()
            await self._finished.wait()
        if self.refused:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, "too large")

    # ------------------------------------------------------------------ consumer

    async def partitions_for(self, topic: str) -> list[int]:
        await asyncio.sleep(0.5)
        return [0, 1]

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        assert [*partitions] == [("t", 0), ("t", 1)]

    def subscribe(self, topics: Iterable[str], *, listener: RebalanceListener) -> None:
        """Joining takes a second; later both partitions are given up for another second."""
        assert [*topics] == ["t"]
        loop = asyncio.get_running_loop()
        partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
        assert listener.on_partitions_assigned is not None
        assert listener.on_partitions_revoked is not None
        loop.call_later(1.0, listener.on_partitions_assigned, partitions)
        loop.call_later(2.0, listener.on_partitions_revoked, partitions[:1])
        loop.call_later(2.5, listener.on_partitions_assigned, partitions[:1])
        loop.call_later(3.0, listener.on_partitions_revoked, partitions)
        loop.call_later(4.0, listener.on_partitions_assigned, partitions)

    def seek_to_end(self) -> None:
        self.arrived.clear()

    async def position(self, topic: str, partition: int) -> int:
        return 0

    def arrive(self, value: bytes | None, key: bytes | None = None) -> None:
        kind = TimestampType.CREATE_TIME
        self.arrived.append(ConsumerRecord("t", 0, 0, 0, kind, key, value, (), 0))
        self._arrival.set()

    async def poll(
        self, max_records: int | None = None, timeout_ms: float = 1000
    ) -> Sequence[ConsumerRecord]:
        self.polls += 1
        if not self.arrived:
            self._arrival.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._arrival.wait()
        taken, self.arrived = self.arrived, []
        return taken


# ------------------------------------------------------------------------------- produce


def produced(
    cluster: Cluster,
    records: int,
    per_s: float | None,
    *,
    warmup: int = 0,
    transaction_s: float | None = None,
) -> tuple[ProduceRun, list[str], float]:
    """The run, its lines, and the time of its end."""

    async def main() -> tuple[ProduceRun, list[str], float]:
        clock = LoopClock()
        said: list[str] = []
        load = ProduceLoad("t", records, lambda number: b"v" * 100, per_s, warmup, transaction_s)
        run = ProduceRun(cluster, load, clock, said.append, 5.0)
        await run.run()
        return run, said, clock.monotonic()

    return run_virtual(main())


def test_the_lines_of_a_producer() -> None:
    run, said, end_s = produced(Cluster(), 1200, 100)
    assert said[0] == (
        "500 records sent, 100.0 records/sec (0.01 MB/sec), 10.0 ms avg latency, "
        "10.0 ms max latency."
    )
    assert len(said) == 2
    assert run.stats.total(end_s) == (
        "1200 records sent, 100.000000 records/sec (0.01 MB/sec), 10.00 ms avg latency, 10.00 ms "
        "max latency, 10 ms 50th, 10 ms 95th, 10 ms 99th, 10 ms 99.9th."
    )
    assert run.stats.summary(end_s)["bytes"] == 120_000


def test_transactions_are_committed_when_they_are_old_enough() -> None:
    cluster = Cluster(0.001)
    run, _, _ = produced(cluster, 100, 100, transaction_s=0.295)
    assert cluster.transactions == [30, 30, 30, 10]
    assert cluster.committed == 4, "the last one is committed at the end"
    assert run.stats.summary(1.0)["records"] == 100
    assert Cluster().transactions == []


def test_a_stall_of_the_cluster_is_seen_by_all_delayed_clients() -> None:
    cluster = Cluster()
    cluster.blocked_until_s = 3.5  # half a second is for the look-up of the topic
    run, _, _ = produced(cluster, 1000, 100)
    latency = run.stats.summary(1.0)["latency"]
    assert isinstance(latency, dict)
    assert latency["max_ms"] == pytest.approx(3010, abs=2)
    assert latency["p95_ms"] == pytest.approx(2510, abs=20)
    assert latency["p50_ms"] == pytest.approx(10, abs=2)


def test_a_summary_without_the_warm_up() -> None:
    cluster = Cluster()
    cluster.blocked_until_s = 1.5
    run, _, end_s = produced(cluster, 400, 100, warmup=200)
    assert run.steady is not None
    assert (run.stats.records, run.steady.records) == (400, 200)
    assert run.steady.total(end_s).startswith("200 steady state records sent, 100.0")
    assert "10.00 ms max latency" in run.steady.total(end_s)
    assert "1010.00 ms max latency" in run.stats.total(end_s)


def test_records_that_fail_do_not_count() -> None:
    cluster = Cluster()
    cluster.refused = {3, 5}
    run, _, _ = produced(cluster, 10, None)
    assert (run.stats.records, run.failed) == (8, 2)
    assert str(run.failure) == "MESSAGE_TOO_LARGE: too large"
    assert len(cluster.sent) == 10


def test_a_run_in_which_nothing_is_acknowledged() -> None:
    cluster = Cluster()
    cluster.refused = {0}
    run, said, end_s = produced(cluster, 1, None)
    assert (run.stats.total(end_s), said) == ("0 records sent.", [])
    assert run.stats.summary(end_s)["records"] == 0


# ------------------------------------------------------------------------------- consume


@virtual
async def test_what_is_consumed_and_how_fast() -> None:
    cluster, clock = Cluster(), LoopClock()
    totals: list[tuple[Consumed, Consumed]] = []

    async def feed() -> None:
        for _ in range(40):
            await asyncio.sleep(0.1)
            cluster.arrive(b"v" * 1000, b"k" * 24)
            cluster.arrive(None, b"k" * 1024)

    feeding = asyncio.get_running_loop().create_task(feed())
    run = ConsumeRun(
        cluster,
        clock,
        topic="t",
        records=80,
        silence_s=1,
        on_interval=lambda *each: totals.append(each),
        interval_s=1.0,
    )
    consumed = await run.run()
    await feeding
    assert (consumed.records, consumed.bytes) == (80, 80 * 1024)
    assert consumed.assignment_s == pytest.approx(0.5, abs=0.01)
    assert consumed.seconds == pytest.approx(4.0, abs=0.05)
    assert [each.records for each, _ in totals] == [22, 42, 62]
    assert [each.records for _, each in totals] == [22, 20, 20]
    assert [each.assignment_s > 0 for _, each in totals] == [True, False, False]


@virtual
async def test_in_a_group_the_time_without_partitions_counts_apart() -> None:
    cluster, clock = Cluster(), LoopClock()
    intervals: list[Consumed] = []

    async def feed() -> None:
        await asyncio.sleep(4.5)
        for _ in range(10):
            cluster.arrive(b"v")

    feeding = asyncio.get_running_loop().create_task(feed())
    run = ConsumeRun(
        cluster,
        clock,
        topic="t",
        records=10,
        silence_s=10,
        in_group=True,
        on_interval=lambda _, interval: intervals.append(interval),
        interval_s=2.0,
    )
    consumed = await run.run()
    await feeding
    assert consumed.assignment_s == pytest.approx(2.0, abs=0.01)
    assert consumed.figures["rebalance.time.ms"] == 2000
    assert [round(each.assignment_s, 2) for each in intervals] == [1.0, 1.0]


@virtual
async def test_it_gives_up_after_a_silence() -> None:
    cluster, clock = Cluster(), LoopClock()
    cluster.arrive(b"v")
    run = ConsumeRun(cluster, clock, topic="t", records=2, silence_s=3)
    consumed = await run.run()
    assert consumed.records == 1
    assert 3.5 < clock.monotonic() < 4.0


def test_a_line_of_figures() -> None:
    consumed = Consumed(100, 2 * 1024 * 1024, 2.5, 0.5)
    printed = line((time_text(0), time_text(1_234)), consumed.figures)
    assert printed == (
        "1970-01-01 00:00:00:000, 1970-01-01 00:00:01:234, 2.0000, 0.8000, 100, 40.0000, "
        "500, 2000, 1.0000, 50.0000"
    )
    assert printed.count(",") == HEADER.count(",")
    assert Consumed(0, 0, 0.5, 0.5).figures["fetch.nMsg.sec"] == 0


# ------------------------------------------------------------------------------- end to end


def end_to_end(
    cluster: Cluster, clock: LoopClock, records: int, per_s: float | None
) -> EndToEndRun:
    return EndToEndRun(
        cluster,
        cluster,
        clock,
        topic="t",
        records=records,
        record_size=100,
        run_id=RUN_ID,
        per_s=per_s,
        timeout_s=5,
        say=lambda text: None,
    )


@virtual
async def test_one_record_at_a_time() -> None:
    cluster, clock = Cluster(0.02), LoopClock()
    run = end_to_end(cluster, clock, 50, None)
    await run.run()
    assert run.latencies.count == 50
    assert 20 <= run.latencies.mean_ms < 22
    assert 1.5 < clock.monotonic() < 1.6  # each waits for the one before
    assert {len(each) for each in cluster.sent} == {100}


@virtual
async def test_records_in_time_whatever_happens_to_the_ones_before() -> None:
    cluster, clock = Cluster(0.02), LoopClock()
    run = end_to_end(cluster, clock, 300, 100)
    sending = asyncio.get_running_loop().create_task(run.run())
    await asyncio.sleep(1.5)
    cluster.blocked_until_s = clock.monotonic() + 1
    await sending
    assert run.latencies.count == 300
    assert 1000 < run.latencies.max_ms < 1030
    assert 850 < run.latencies.percentiles_ms()[95.0] < 890


@virtual
async def test_records_of_others_and_repeated_ones_do_not_count() -> None:
    cluster, clock = Cluster(0.02), LoopClock()
    run = end_to_end(cluster, clock, 3, None)
    sending = asyncio.get_running_loop().create_task(run.run())
    await until(lambda: bool(cluster.sent))
    for value in (None, b"", RUN_ID, b"x" * 16, RUN_ID + (99).to_bytes(8, "big")):
        cluster.arrive(value)
    await asyncio.sleep(0.03)
    cluster.arrive(cluster.sent[0])
    await sending
    assert run.latencies.count == 3
    assert len(cluster.sent) == 3


@virtual
async def test_records_that_do_not_arrive() -> None:
    cluster = Cluster()
    cluster.refused = {1}
    with pytest.raises(CommandError, match="no record arrived for 5 s, after 1 of 3"):
        await end_to_end(cluster, LoopClock(), 3, None).run()


@virtual
async def test_a_producer_that_fails() -> None:
    class Failing(Cluster):
        async def send(self, topic: str, value: bytes) -> asyncio.Future[Any]:
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")

    with pytest.raises(ApiError, match="no"):
        await end_to_end(Failing(), LoopClock(), 3, 10).run()
