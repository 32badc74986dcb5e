"""``stele perf …``: Kafka's performance tools, with their options and lines."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.client_properties import command_security
from cli.command_list import CommandList
from cli.connection import milliseconds, no_such_topic
from cli.options import DEFAULT_BOOTSTRAP_SERVER, Json, tell_wait
from cli.output import CommandError, UsageError, note, print_json
from cli.perf.options import (
    Bootstrap,
    ConsumerFile,
    ConsumerProperties,
    Interval,
    PayloadDelimiter,
    PayloadFile,
    PayloadMonotonic,
    ProducerFile,
    ProducerProperties,
    RecordSize,
    RecordsToRead,
    RecordsToSend,
    Throughput,
    Timeout,
    Topic,
    TransactionalId,
    TransactionDuration,
    WarmupRecords,
)

if TYPE_CHECKING:
    from cli.perf.consume_run import Consumed
    from cli.perf.latencies import Latencies
    from cli.perf.produce_run import ProduceLoad
    from stele.config import ClientConfig
    from stele.security.options import SecurityOptions

app = typer.Typer(cls=CommandList, help="Measure throughput and latency.", no_args_is_help=True)

INTERVAL_MS = 5000
TRANSACTION_MS = 3000
"""How long transactions are, as in Kafka's tool."""
EXIT_INCOMPLETE = 1


@app.command()
def produce(
    topic: Topic,
    num_records: RecordsToSend,
    throughput: Throughput,
    record_size: RecordSize = None,
    payload_file: PayloadFile = None,
    payload_delimiter: PayloadDelimiter = "\\n",
    payload_monotonic: PayloadMonotonic = False,
    warmup_records: WarmupRecords = 0,
    transactional_id: TransactionalId = None,
    transaction_duration_ms: TransactionDuration = None,
    properties: ProducerProperties = None,
    config: ProducerFile = None,
    interval_ms: Interval = INTERVAL_MS,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    timeout: Timeout = 30.0,
) -> int:
    """Send records; as kafka-producer-perf-test.

    Latencies are measured from the time at which a record was to be sent: with --throughput a slow
    cluster cannot hide that it kept records from being sent.
    """
    import uvloop

    from cli.perf.payload import payload
    from cli.perf.produce_run import ProduceLoad
    from stele.config import ProducerConfig

    if warmup_records >= num_records:
        raise UsageError("--warmup-records must be less than --num-records")
    per_s = _per_s(throughput)
    values = payload(record_size, payload_file, payload_delimiter, monotonic=payload_monotonic)
    servers, options = _client(ProducerConfig, config, properties, bootstrap, "producer")
    if transactional_id is not None:
        options["transactional_id"] = transactional_id
    elif transaction_duration_ms is not None and "transactional_id" not in options:
        options["transactional_id"] = f"stele-perf-{uuid.uuid4()}"
    transaction_s = None
    if "transactional_id" in options:
        transaction_s = (transaction_duration_ms or TRANSACTION_MS) / 1000
    load = ProduceLoad(topic, num_records, values, per_s, warmup_records, transaction_s)
    timeout_ms = milliseconds(timeout)
    options = {"max_block_ms": timeout_ms, "delivery_timeout_ms": timeout_ms, **options}
    return uvloop.run(_produce(servers, options, load, interval_ms / 1000, timeout, as_json))


async def _produce(
    servers: str,
    options: dict[str, Any],
    load: ProduceLoad,
    interval_s: float,
    timeout_s: float,
    as_json: bool,
) -> int:
    import asyncio

    from cli.perf.produce_run import ProduceRun
    from stele.aio import Producer
    from stele.real import RealClock

    await _check_topic(servers, load.topic, timeout_s, _security_of(options))
    clock = RealClock()
    async with Producer(servers, **options) as producer:
        run = ProduceRun(producer, load, clock, note if as_json else _line, interval_s)
        try:
            await run.run()
        except asyncio.CancelledError:  # by Ctrl-C
            if not as_json:
                _line(run.stats.total(clock.monotonic()))
            raise
        now = clock.monotonic()
    summaries = [run.stats] if run.steady is None else [run.stats, run.steady]
    if as_json:
        names = ("all", "steady_state")
        figures = {name: each.summary(now) for name, each in zip(names, summaries, strict=False)}
        print_json({"topic": load.topic, "failed": run.failed, **figures})
    else:
        for each in summaries:
            print(each.total(now))
    if run.failed:
        raise CommandError(f"{run.failed} records were not acknowledged; the first: {run.failure}")
    return 0


@app.command()
def consume(
    topic: Topic,
    num_records: RecordsToRead,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", help="Read as the only member of this group, or share with others."
        ),
    ] = None,
    from_latest: Annotated[
        bool, typer.Option("--from-latest", help="Begin at the end, not at the beginning.")
    ] = False,
    fetch_size: Annotated[
        int, typer.Option("--fetch-size", min=1, help="Bytes of one partition in one fetch.")
    ] = 1024 * 1024,
    timeout: Timeout = 10.0,
    detailed: Annotated[
        bool, typer.Option("--show-detailed-stats", help="Print a line every --reporting-interval.")
    ] = False,
    hide_header: Annotated[
        bool, typer.Option("--hide-header", help="Print only the figures.")
    ] = False,
    properties: ConsumerProperties = None,
    config: ConsumerFile = None,
    interval_ms: Interval = INTERVAL_MS,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> int:
    """Read records of all partitions; as kafka-consumer-perf-test, without a group by default.

    The exit code is 1 if fewer came.
    """
    import uvloop

    from stele.config import ConsumerConfig

    servers, options = _client(ConsumerConfig, config, properties, bootstrap, "consumer")
    if group is not None:
        options["group_id"] = group
    options = {
        "max_partition_fetch_bytes": fetch_size,
        "auto_offset_reset": "latest" if from_latest else "earliest",
        "check_crcs": False,  # as Kafka's tool
        "max_poll_records": 10_000,
        **options,
    }
    output = _ConsumeOutput(detailed, hide_header, as_json)
    consumed = uvloop.run(
        _consume(servers, options, topic, num_records, timeout, interval_ms / 1000, output)
    )
    if consumed.records >= num_records:
        return 0
    note(
        f"stele: only {consumed.records} of {num_records} records: no record came for "
        f"{timeout:g} s; "
        "--timeout waits longer"
    )
    return EXIT_INCOMPLETE


async def _consume(
    servers: str,
    options: dict[str, Any],
    topic: str,
    num_records: int,
    timeout_s: float,
    interval_s: float,
    output: _ConsumeOutput,
) -> Consumed:
    import asyncio

    from cli.perf.consume_run import ConsumeRun
    from stele.aio import Consumer
    from stele.real import RealClock

    await _check_topic(servers, topic, timeout_s, _security_of(options))
    clock = RealClock()
    began_ms = clock.time_ms()
    output.begin()
    async with Consumer(servers, **options) as consumer:
        run = ConsumeRun(
            consumer,
            clock,
            topic=topic,
            records=num_records,
            silence_s=timeout_s,
            in_group="group_id" in options,
            on_interval=lambda total, interval: output.interval(clock.time_ms(), total, interval),
            interval_s=interval_s,
        )
        try:
            consumed = await run.run()
        except asyncio.CancelledError:  # by Ctrl-C
            if not output.as_json:
                output.end(began_ms, clock.time_ms(), run.consumed)
            raise
    output.end(began_ms, clock.time_ms(), consumed)
    return consumed


class _ConsumeOutput:
    """What is printed: one summary, or (detailed) a line for each interval."""

    def __init__(self, detailed: bool, hide_header: bool, as_json: bool) -> None:
        self._detailed = detailed
        self._hide_header = hide_header
        self.as_json = as_json

    def begin(self) -> None:
        from cli.perf.consume_run import DETAILED_HEADER, HEADER

        if not self._hide_header and not self.as_json:
            _line(DETAILED_HEADER if self._detailed else HEADER)

    def interval(self, now_ms: int, total: Consumed, interval: Consumed) -> None:
        from cli.perf.consume_run import line, time_text

        if self._detailed and not self.as_json:
            names = ("data.consumed.in.MB", "data.consumed.in.nMsg")
            of_all = {name: total.figures[name] for name in names}
            _line(line((time_text(now_ms), "0"), interval.figures | of_all))

    def end(self, began_ms: int, ended_ms: int, consumed: Consumed) -> None:
        from cli.perf.consume_run import line, time_text

        if self.as_json:
            times = {"start.time": began_ms, "end.time": ended_ms}
            print_json({name.replace(".", "_"): value for name, value in
                        {**times, **consumed.figures}.items()})  # fmt: skip
        elif not self._detailed:
            _line(line((time_text(began_ms), time_text(ended_ms)), consumed.figures))


@app.command("end-to-end")
def end_to_end(
    topic: Topic,
    num_records: RecordsToSend,
    record_size: Annotated[
        int,
        typer.Option(
            "--record-size", min=16, help="Size of a record in bytes; 16 of them are its number."
        ),
    ],
    acks: Annotated[
        str,
        typer.Option("--producer-acks", help="Replicas that acknowledge: 1 (the leader) or all."),
    ] = "all",
    throughput: Annotated[
        float,
        typer.Option(
            "--throughput",
            help="Records per second; -1: the next record when the one before has arrived.",
        ),
    ] = -1,
    timeout: Timeout = 60.0,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Time from sending a record to its arrival at a consumer; as kafka-e2e-latency."""
    import uvloop

    if acks not in ("1", "all"):
        raise UsageError(f"--producer-acks {acks}: give 1 or all; with 0 no replica acknowledges")
    per_s = _per_s(throughput)
    servers = bootstrap or DEFAULT_BOOTSTRAP_SERVER
    uvloop.run(_end_to_end(servers, topic, num_records, record_size, acks, per_s, timeout, as_json))


async def _end_to_end(
    servers: str,
    topic: str,
    num_records: int,
    record_size: int,
    acks: Any,
    per_s: float | None,
    timeout_s: float,
    as_json: bool,
) -> None:
    import asyncio

    from cli.perf.end_to_end_run import RUN_ID_BYTES, EndToEndRun
    from stele.aio import Consumer, Producer
    from stele.real import RealClock, real_rng

    security = command_security()
    await _check_topic(servers, topic, timeout_s, security)
    async with (
        Consumer(servers, on_wait=tell_wait, **security) as consumer,
        Producer(servers, acks=acks, linger_ms=0, on_wait=tell_wait, **security) as producer,
    ):
        run = EndToEndRun(
            producer,
            consumer,
            RealClock(),
            topic=topic,
            records=num_records,
            record_size=record_size,
            run_id=real_rng().randbytes(RUN_ID_BYTES),
            per_s=per_s,
            timeout_s=timeout_s,
            say=note if as_json else _line,
        )
        try:
            await run.run()
        except asyncio.CancelledError:  # by Ctrl-C
            if not as_json and run.latencies.count:
                _print_latencies(run.latencies)
            raise
    if as_json:
        print_json({"topic": topic, "records": num_records, "latency": run.latencies.summary()})
    else:
        _print_latencies(run.latencies)


def _print_latencies(latencies: Latencies) -> None:
    _line(f"Avg latency: {latencies.mean_ms:.4f} ms")
    percentiles = ", ".join(
        f"{each:g}th = {value:.0f}" for each, value in latencies.percentiles_ms().items()
    )
    _line(f"Percentiles: {percentiles}")


# ------------------------------------------------------------------------------------- helpers


def _line(text: str) -> None:
    print(text, flush=True)


def _per_s(throughput: float) -> float | None:
    if throughput == -1:
        return None
    if throughput > 0:
        return throughput
    raise UsageError(f"--throughput {throughput:g}: give records per second, or -1 for no limit")


def _client(
    config_type: type[ClientConfig],
    file: Path | None,
    given: list[str] | None,
    bootstrap: str | None,
    kind: str,
) -> tuple[str, dict[str, Any]]:
    """The bootstrap servers and the other options of a client."""
    from cli.kafka_properties import BOOTSTRAP, client_options, read_properties

    properties = read_properties(file, given or [], "--command-property")
    servers = bootstrap or properties.get(BOOTSTRAP, DEFAULT_BOOTSTRAP_SERVER)
    options = client_options(config_type, properties)
    return servers, {"client_id": f"perf-{kind}-client", "on_wait": tell_wait, **options}


def _security_of(options: dict[str, Any]) -> SecurityOptions:
    from stele.security.options import security_among

    return security_among(options)


async def _check_topic(
    servers: str, topic: str, timeout_s: float, security: SecurityOptions
) -> None:
    """A typo is told at once, without waiting for a topic that may come. Raises CommandError."""
    from stele.aio import Admin

    timeout_ms = milliseconds(timeout_s)
    async with Admin(
        servers, default_api_timeout_ms=timeout_ms, on_wait=tell_wait, **security
    ) as admin:
        known = [each.name for each in await admin.list_topics()]
    if topic not in known:
        raise no_such_topic(topic, known, f" Create it with: stele topic create {topic}")
