"""``stele transaction …``: transactional producers, with the verbs of kafka-transactions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from cli.command_list import CommandList
from cli.connection import connect
from cli.options import DEFAULT_BOOTSTRAP_SERVER, Bootstrap, Json, Timeout
from cli.output import (
    CommandError,
    UsageError,
    did_you_mean,
    known_words,
    note,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from stele.admin.transactions import HangingTransaction, ProducerDescription
    from stele.ids import TopicPartition
    from stele.sync import Admin

app = typer.Typer(
    cls=CommandList,
    help="List and describe transactions, and end hanging ones.",
    no_args_is_help=True,
)

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
)

LONGEST_TRANSACTION_MINUTES = 15
"""The default of ``transaction.max.timeout.ms``."""

Topic = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="The topic.")]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", min=0, help="One partition of the topic.")
]
MaxMinutes = Annotated[
    int,
    typer.Option(
        "--max-transaction-timeout",
        min=0,
        metavar="MINUTES",
        help="Minutes that a transaction may last: transaction.max.timeout.ms of the brokers.",
    ),
]


@app.command("list")
def list_command(
    states: Annotated[
        str,
        typer.Option(
            "--state",
            metavar="STATE,…",
            help=f"Only these states: {', '.join(STATES)}.",
        ),
    ] = "",
    producer_ids: Annotated[
        list[int] | None,
        typer.Option("--producer-id", help="Only transactions of this producer; may be repeated."),
    ] = None,
    duration_ms: Annotated[
        int,
        typer.Option(
            "--duration-filter",
            min=0,
            help="Only transactions that have been open for more milliseconds.",
        ),
    ] = 0,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """List transactional ids and the state of their transactions."""
    wanted = known_words(states, STATES, "--state")
    with connect(bootstrap, timeout) as admin:
        found = admin.list_transactions(
            states=wanted, producer_ids=producer_ids or (), min_duration_ms=duration_ms
        )
    if as_json:
        print_json(found)
        return
    rows = [(each.transactional_id, each.producer_id, each.state) for each in found]
    print_table(("TRANSACTIONAL-ID", "PRODUCER-ID", "STATE"), rows)


@app.command()
def describe(
    names: Annotated[
        list[str],
        typer.Argument(metavar="TRANSACTIONAL-ID...", help="The transactional ids."),
    ],
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Show the transaction of a transactional id: its state, producer, time and partitions."""
    with connect(bootstrap, timeout) as admin:
        _check_known(admin, names)
        found = admin.describe_transactions(names)
    if as_json:
        print_json(found)
        return
    now_ms = int(time.time() * 1000)
    print_table(
        (
            "TRANSACTIONAL-ID",
            "COORDINATOR",
            "PRODUCER-ID",
            "EPOCH",
            "STATE",
            "TIMEOUT-MS",
            "OPEN-MS",
            "PARTITIONS",
        ),
        [
            (
                each.transactional_id,
                each.coordinator_id,
                each.producer_id,
                each.producer_epoch,
                each.state,
                each.timeout_ms,
                None if each.start_time_ms is None else max(0, now_ms - each.start_time_ms),
                ", ".join(map(str, each.partitions)) or None,
            )
            for each in found
        ],
    )


@app.command("describe-producers")
def describe_producers(
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="The topic.")],
    partition: Annotated[int, typer.Option("--partition", min=0, help="Number of the partition.")],
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Show the producers that the leader of a partition knows, and their open transactions."""
    from stele.ids import TopicPartition

    name = TopicPartition(topic, partition)
    with connect(bootstrap, timeout) as admin:
        producers = admin.describe_producers([name])[name]
    if as_json:
        print_json(producers)
        return
    print_table(
        (
            "PRODUCER-ID",
            "EPOCH",
            "COORDINATOR-EPOCH",
            "LAST-SEQUENCE",
            "LAST-TIMESTAMP",
            "TRANSACTION-START-OFFSET",
        ),
        [_producer_row(each) for each in producers],
    )


@app.command("find-hanging")
def find_hanging(
    topic: Topic = None,
    partition: PartitionOption = None,
    broker_id: Annotated[
        int | None, typer.Option("--broker-id", help="Only partitions that this broker leads.")
    ] = None,
    max_minutes: MaxMinutes = LONGEST_TRANSACTION_MINUTES,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Find transactions that no coordinator knows, so that none would ever end them."""
    if partition is not None and topic is None:
        raise UsageError("--partition needs --topic")
    with connect(bootstrap, timeout) as admin:
        partitions = _partitions(admin, topic, partition, broker_id)
        found = admin.find_hanging_transactions(
            partitions, longest_transaction_ms=max_minutes * 60_000
        )
    if as_json:
        print_json(found)
        return
    now_ms = int(time.time() * 1000)
    print_table(
        (
            "TOPIC",
            "PARTITION",
            "PRODUCER-ID",
            "EPOCH",
            "COORDINATOR-EPOCH",
            "START-OFFSET",
            "LAST-TIMESTAMP",
            "SILENT-MIN",
        ),
        [_hanging_row(each, now_ms) for each in found],
    )


@app.command()
def abort(
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="The topic.")],
    partition: Annotated[int, typer.Option("--partition", min=0, help="Number of the partition.")],
    start_offset: Annotated[
        int | None,
        typer.Option(
            "--start-offset", min=0, help="First offset of the transaction in the partition."
        ),
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", min=0, help="Id of the transaction's producer.")
    ] = None,
    max_minutes: MaxMinutes = LONGEST_TRANSACTION_MINUTES,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Abort a hanging transaction in one partition. Refused while a coordinator knows it."""
    from stele.ids import TopicPartition

    if (start_offset is None) == (producer_id is None):
        raise UsageError("which transaction? Give --start-offset or --producer-id")
    name = TopicPartition(topic, partition)
    with connect(bootstrap, timeout) as admin:
        producer = _open_transaction(admin, name, start_offset, producer_id)
        hanging = admin.find_hanging_transactions(
            [name], longest_transaction_ms=max_minutes * 60_000
        )
        if producer.producer_id not in {each.producer.producer_id for each in hanging}:
            raise CommandError(
                f"the transaction of producer {producer.producer_id} in {name} does not hang: "
                "a coordinator knows it, or its last record is younger than "
                f"--max-transaction-timeout {max_minutes}"
            )
        admin.abort_hanging_transaction(
            name, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch
        )
    if as_json:
        print_json(
            {
                "topic": topic,
                "partition": partition,
                "producer_id": producer.producer_id,
                "producer_epoch": producer.producer_epoch,
                "aborted": True,
            }
        )
        return
    print(f"aborted the transaction of producer {producer.producer_id} in {name}")


@app.command("force-terminate")
def force_terminate(
    name: Annotated[str, typer.Argument(metavar="TRANSACTIONAL-ID", help="The transactional id.")],
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Abort the open transaction of a transactional id, also a prepared one, and fence its
    producer."""
    with connect(bootstrap, timeout) as admin:
        _check_known(admin, [name])
        admin.fence_producer(name)
    if as_json:
        print_json({"transactional_id": name, "terminated": True})
        return
    print(f"terminated {name}: its producer is fenced")


# ------------------------------------------------------------------------------------- helpers


def _check_known(admin: Admin, names: Iterable[str]) -> None:
    """Raises CommandError."""
    known = [each.transactional_id for each in admin.list_transactions()]
    for name in names:
        if name not in known:
            raise CommandError(f"there is no transactional id {name!r}.{did_you_mean(name, known)}")


def _partitions(
    admin: Admin, topic: str | None, partition: int | None, broker_id: int | None
) -> list[TopicPartition]:
    from stele.ids import TopicPartition

    topics = admin.list_topics() if topic is None else admin.describe_topics([topic])
    found = []
    for described in topics:
        for each in described.partitions:
            is_wanted = partition is None or each.partition == partition
            if not is_wanted or (broker_id is not None and each.leader != broker_id):
                continue
            if each.leader is None:
                note(f"stele: {described.name}-{each.partition} has no leader to ask")
                continue
            found.append(TopicPartition(described.name, each.partition))
    return found


def _open_transaction(
    admin: Admin, name: TopicPartition, start_offset: int | None, producer_id: int | None
) -> ProducerDescription:
    """Raises CommandError."""
    for each in admin.describe_producers([name])[name]:
        offset = each.transaction_start_offset
        if offset is not None and (offset == start_offset or each.producer_id == producer_id):
            return each
    which = f"at offset {start_offset}" if producer_id is None else f"of producer {producer_id}"
    raise CommandError(f"{name} has no open transaction {which}")


def _producer_row(producer: ProducerDescription) -> tuple[object, ...]:
    return (
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.last_sequence,
        producer.last_timestamp_ms,
        producer.transaction_start_offset,
    )


def _hanging_row(found: HangingTransaction, now_ms: int) -> tuple[object, ...]:
    producer = found.producer
    return (
        *found.partition,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.transaction_start_offset,
        producer.last_timestamp_ms,
        max(0, now_ms - producer.last_timestamp_ms) // 60_000,
    )
