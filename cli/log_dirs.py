"""``stele cluster log-dirs``: what is in the log directories, as kafka-log-dirs shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.connection import connect, no_such_topic
from cli.options import DEFAULT_BOOTSTRAP_SERVER, Bootstrap, Json, Timeout, broker_ids_of
from cli.output import CommandError, print_json, print_table

if TYPE_CHECKING:
    from stele.admin.log_dirs import LogDirDescription
    from stele.sync import Admin


def log_dirs(
    broker_list: Annotated[
        str | None,
        typer.Option(
            "--broker-list",
            metavar="ID,ID",
            help="Ids of brokers, with commas (default: all brokers in service).",
        ),
    ] = None,
    topic_list: Annotated[
        str | None,
        typer.Option(
            "--topic-list",
            metavar="NAME,NAME",
            help="Topics, with commas: count only their replicas.",
        ),
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Show the brokers' log directories: replicas, sizes, room, and which are being moved."""
    wanted = () if broker_list is None else broker_ids_of(broker_list)
    with connect(bootstrap, timeout) as admin:
        serving = {each.broker_id for each in admin.describe_cluster().brokers if not each.fenced}
        if missing := [each for each in wanted if each not in serving]:
            raise CommandError(
                f"broker {missing[0]} is not in service; there are {sorted(serving)}"
            )
        partitions = () if topic_list is None else _partitions(admin, topic_list.split(","))
        found = admin.describe_log_dirs(wanted, partitions)
    if as_json:
        print_json([_plain(each) for each in found])
        return
    print_table(
        ("BROKER", "LOG DIR", "STATE", "REPLICAS", "BYTES", "FREE BYTES", "TOTAL BYTES"),
        [_row(each) for each in found],
    )
    lost = [
        (each.broker_id, each.path, *replica.partition)
        for each in found
        for replica in each.replicas
        if each.is_offline
    ]
    if lost:
        print()
        print_table(("BROKER", "OFFLINE LOG DIR", "TOPIC", "PARTITION"), lost)
    moves = [
        (each.broker_id, *replica.partition, each.path, replica.size_bytes, replica.offset_lag)
        for each in found
        for replica in each.replicas
        if replica.is_future
    ]
    if moves:
        print()
        print_table(("BROKER", "TOPIC", "PARTITION", "MOVES TO", "COPIED BYTES", "LAG"), moves)


def _partitions(admin: Admin, names: list[str]) -> list[tuple[str, int]]:
    topics = {topic.name: topic for topic in admin.list_topics()}
    for name in names:
        if name not in topics:
            raise no_such_topic(name, topics)
    return [(name, each.partition) for name in names for each in topics[name].partitions]


def _plain(directory: LogDirDescription) -> dict[str, object]:
    return {
        "broker_id": directory.broker_id,
        "path": directory.path,
        "is_offline": directory.is_offline,
        "total_bytes": directory.total_bytes,
        "usable_bytes": directory.usable_bytes,
        "replicas": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "size_bytes": each.size_bytes,
                "offset_lag": each.offset_lag,
                "is_future": each.is_future,
            }
            for each in directory.replicas
        ],
    }


def _row(directory: LogDirDescription) -> tuple[object, ...]:
    present = [each for each in directory.replicas if not each.is_future]
    return (
        directory.broker_id,
        directory.path,
        "offline" if directory.is_offline else "online",
        len(present),
        None if directory.is_offline else sum(each.size_bytes for each in present),
        directory.usable_bytes,
        directory.total_bytes,
    )
