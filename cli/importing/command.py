"""``stele import``: the log directories of stopped Kafka brokers become topics of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.importing.report import (
    GROUP_COLUMNS,
    PARTITION_COLUMNS,
    SETTING_COLUMNS,
    GroupResult,
    PartitionResult,
)
from cli.options import DEFAULT_BOOTSTRAP_SERVER, Bootstrap, Json
from cli.output import CommandError, did_you_mean, key_values, note, print_json, print_table

if TYPE_CHECKING:
    from cli.importing.group_offsets import GroupOffsets
    from cli.importing.source_log import SourceLog
    from stele.admin.descriptions import NewTopic


def import_command(
    directories: Annotated[
        list[Path],
        typer.Argument(metavar="DIRECTORY...", help="The log.dirs of all stopped brokers."),
    ],
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", help="Only this topic; may be repeated. Default: all."),
    ] = None,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor", "-r", help="Of topics that are made; -1: the cluster's default."
        ),
    ] = -1,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config", metavar="NAME=VALUE", help="Of topics that are made; may be repeated."
        ),
    ] = None,
    compression: Annotated[
        str, typer.Option("--compression", help="Codec: none, gzip, snappy, lz4 or zstd.")
    ] = "lz4",
    groups: Annotated[
        bool, typer.Option("--groups/--no-groups", help="Import the offsets of groups, too.")
    ] = True,
    settings: Annotated[
        bool,
        typer.Option(
            "--settings/--no-settings", help="Give topics that are made their settings in Kafka."
        ),
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the directories, and ask no cluster.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with an interrupted import: what topics hold is compared and not sent "
            "again.",
        ),
    ] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds without success: give up.")
    ] = 60.0,
) -> None:
    """Read the log directories of stopped Kafka brokers into topics of a cluster.

    Keys, values, headers and times stay. Afterwards all records are read and compared.
    """
    from cli.importing.log_directories import unused
    from cli.importing.run import import_logs
    from cli.importing.target import Target
    from stele.admin.descriptions import NewTopic

    given = key_values(config or (), "--config")
    with unused(directories):
        logs, committed = _read(directories, topics or [], with_groups=groups)
        known = _settings_of(directories, logs) if settings else {}
        wanted = [
            NewTopic(name, len(each), replication_factor, {**known.get(name, {}), **given})
            for name, each in logs.items()
        ]
        flat = [log for of_topic in logs.values() for log in of_topic]
        if dry_run:
            results, moved = _as_found(flat, committed)
        else:
            target = Target(bootstrap, timeout)
            unsettled = target.prepare(wanted, may_hold=resume)
            results, moved = import_logs(target, flat, committed, compression)
            target.settle(unsettled)
    _show(results, moved, wanted, as_json=as_json)


def _show(
    results: Sequence[PartitionResult],
    moved: Sequence[GroupResult],
    topics: Sequence[NewTopic],
    *,
    as_json: bool,
) -> None:
    if as_json:
        told = {each.name: dict(each.configs) for each in topics}
        print_json({"partitions": results, "groups": moved, "settings": told})
        return
    print_table(PARTITION_COLUMNS, [each.row() for each in results])
    if moved:
        print()
        print_table(GROUP_COLUMNS, [each.row() for each in moved])
    rows = [(each.name, *setting) for each in topics for setting in sorted(each.configs.items())]
    if rows:
        print()
        print_table(SETTING_COLUMNS, rows)


def _settings_of(
    directories: Sequence[Path], topics: Iterable[str]
) -> Mapping[str, Mapping[str, str]]:
    """The settings of these topics that count here, by topic. Raises CommandError."""
    from cli.importing.topic_settings import accepted, read_topic_settings

    found = read_topic_settings(directories)
    if found is None:
        note(
            "stele: no directory has __cluster_metadata-0, so the settings of topics are unknown: "
            "topics get those of --config"
        )
        return {}
    return {topic: accepted(topic, found[topic]) for topic in topics if topic in found}


def _read(
    directories: Sequence[Path], topics: Sequence[str], *, with_groups: bool
) -> tuple[dict[str, list[SourceLog]], GroupOffsets]:
    """The logs by topic, and the offsets of groups in them. Raises CommandError."""
    from cli.importing.group_offsets import read_group_offsets
    from cli.importing.log_directories import best_logs, find_replicas
    from metadata.internal_topics import GROUP_TOPIC, INTERNAL_TOPICS

    found = find_replicas(directories)
    names = [name for name in found if name not in INTERNAL_TOPICS]
    for topic in topics:
        if topic not in names:
            advice = did_you_mean(topic, names)
            raise CommandError(f"there is no topic {topic!r} in the directories.{advice}")
    logs = {name: best_logs(name, found[name]) for name in (topics or names)}
    if not logs:
        raise CommandError("there are no topics in the directories: name those of log.dirs")
    if not with_groups or GROUP_TOPIC not in found:
        return logs, {}
    there = {log.summary.partition for of_topic in logs.values() for log in of_topic}
    committed = read_group_offsets(best_logs(GROUP_TOPIC, found[GROUP_TOPIC]))
    chosen = {
        group: {name: offset for name, offset in offsets.items() if name in there}
        for group, offsets in committed.items()
    }
    return logs, {group: offsets for group, offsets in chosen.items() if offsets}


def _as_found(
    logs: Sequence[SourceLog], committed: GroupOffsets
) -> tuple[list[PartitionResult], list[GroupResult]]:
    results = [PartitionResult.of(log.summary) for log in logs]
    moved = [
        GroupResult(group, *name, offset, None)
        for group, offsets in committed.items()
        for name, offset in sorted(offsets.items())
    ]
    return results, moved
