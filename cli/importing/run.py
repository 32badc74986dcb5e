"""An import: the records partition by partition, then the comparison, then the groups' offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from cli.importing.group_offsets import GroupOffsets, Translation
from cli.importing.report import GroupResult, PartitionResult
from cli.importing.source_log import SourceLog
from cli.importing.target import Target
from cli.output import CommandError, note
from cli.records.comparison import Comparison
from stele.errors import SteleError
from stele.ids import TopicPartition

if TYPE_CHECKING:
    from stele.sync import Consumer, Producer


def import_logs(
    target: Target, logs: Iterable[SourceLog], committed: GroupOffsets, compression: str
) -> tuple[list[PartitionResult], list[GroupResult]]:
    """The topics are there. What they hold must be the first records of the logs. Raises
    CommandError or SteleError."""
    results = []
    translations: dict[TopicPartition, Translation] = {}
    with target.producer(compression) as producer, target.consumer() as consumer:
        for log in logs:
            name = log.summary.partition
            translations[name] = Translation(
                offsets[name] for offsets in committed.values() if name in offsets
            )
            results.append(_import_log(target, producer, consumer, log, translations[name]))
    return results, list(_commit(target, committed, translations))


def _import_log(
    target: Target,
    producer: Producer,
    consumer: Consumer,
    log: SourceLog,
    translation: Translation,
) -> PartitionResult:
    result = PartitionResult.of(log.summary)
    name = log.summary.partition
    done = target.end_of(name)
    if done:
        comparison, _ = target.compare(consumer, log)
        _check(log, comparison, may_miss=True)
        note(f"stele: {name}: {done} records are there already")
    try:
        result.sent = target.send(producer, log, done, translation)
    except SteleError as error:
        raise CommandError(
            f"{name}: {error}; go on with --resume, or delete the topic and begin again"
        ) from error
    comparison, result.deleted = target.compare(consumer, log)
    _check(log, comparison, may_miss=False)
    result.same = comparison.same
    note(f"stele: {name}: {log.summary.records} records")
    return result


def _check(log: SourceLog, comparison: Comparison, *, may_miss: bool) -> None:
    """Raises CommandError."""
    name, difference = log.summary.partition, comparison.difference
    if difference is not None:
        raise CommandError(
            f"{name}: the record at offset {difference.target_offset} is not that of offset "
            f"{difference.source_offset} in {log.summary.directory}, by its "
            f"{' and '.join(difference.fields)}: another program has written to the topic, or its "
            "settings change records. Delete the topic and begin again"
        )
    if comparison.surplus:
        raise CommandError(
            f"{name} has {comparison.surplus} records more than {log.summary.directory}: another "
            "program has written to the topic. Delete the topic and begin again"
        )
    if comparison.missing and not may_miss:
        raise CommandError(
            f"{name}: {comparison.missing} records were sent and cannot be read: look at "
            f"stele explain partition {name}, and go on with --resume"
        )


def _commit(
    target: Target, committed: GroupOffsets, translations: Mapping[TopicPartition, Translation]
) -> Iterable[GroupResult]:
    for group, offsets in committed.items():
        moved = {name: translations[name].of(offset) for name, offset in sorted(offsets.items())}
        target.commit(group, moved)
        for name, offset in moved.items():
            yield GroupResult(group, *name, offsets[name], offset)
