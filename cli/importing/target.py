"""The cluster that takes the records: its topics, the sending, and the comparison afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from cli.client_properties import command_security
from cli.connection import connect, milliseconds
from cli.importing.group_offsets import Translation
from cli.importing.source_log import SourceLog
from cli.importing.topic_settings import WHILE_IMPORTED
from cli.options import tell_wait
from cli.output import CommandError
from cli.records.comparison import Comparison
from cli.records.reading import records_until
from stele.admin.descriptions import ConfigResource, NewTopic
from stele.ids import TopicPartition
from stele.records import ProducerRecord
from stele.sync import Admin, Consumer, Producer

if TYPE_CHECKING:
    from stele.wire.record import Record

_AT_ONCE: Final = 1000
"""Records that are given to the producer together."""
_REQUEST_BYTES: Final = 64 * 1024 * 1024
"""No record of a topic is refused here: its max.message.bytes decides."""
_LATEST: Final = -1  # of list_offsets


class Target:
    def __init__(self, bootstrap: str, timeout_s: float) -> None:
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s

    # --------------------------------------------------------------------------------- topics

    def prepare(self, wanted: Sequence[NewTopic], *, may_hold: bool) -> list[NewTopic]:
        """Make the topics that are not there, so that nothing is deleted from them before
        ``settle``. Before that, check the others, so that nothing is made if one is refused.

        Returns the topics to settle: those made now, and with ``may_hold`` also those that an
        interrupted import has made. Raises CommandError.
        """
        with connect(self._bootstrap, self._timeout_s) as admin:
            known = {each.name: each for each in admin.list_topics()}
            for topic in wanted:
                if topic.name in known:
                    _check_partitions(topic, len(known[topic.name].partitions))
                    if not may_hold:
                        _check_is_empty(admin, topic)
            fresh = [each for each in wanted if each.name not in known]
            admin.create_topics(
                [replace(each, configs={**each.configs, **WHILE_IMPORTED}) for each in fresh]
            )
        return [
            each
            for each in wanted
            if each.name not in known or WHILE_IMPORTED.items() <= known[each.name].configs.items()
        ]

    def settle(self, topics: Sequence[NewTopic]) -> None:
        """Let retention and compaction begin, as the topics' settings say."""
        with connect(self._bootstrap, self._timeout_s) as admin:
            admin.alter_configs(
                {
                    ConfigResource.topic(each.name): {
                        name: each.configs.get(name) for name in WHILE_IMPORTED
                    }
                    for each in topics
                }
            )

    def end_of(self, partition: TopicPartition) -> int:
        with connect(self._bootstrap, self._timeout_s) as admin:
            return _ends(admin, [partition])[partition]

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        with connect(self._bootstrap, self._timeout_s) as admin:
            admin.alter_group_offsets(group, dict(offsets))

    # -------------------------------------------------------------------------------- records

    def send(self, producer: Producer, log: SourceLog, done: int, translation: Translation) -> int:
        """Send the records behind the first ``done``. Returns their number. Raises SteleError."""
        topic, partition = log.summary.partition
        sent = 0
        records = chain.from_iterable(log.records())
        for record in islice(records, done):
            translation.take(record.offset)
        while some := list(islice(records, _AT_ONCE)):
            for record in some:
                translation.take(record.offset)
            producer.send_all([_outgoing(topic, partition, record) for record in some])
            sent += len(some)
        producer.flush()
        return sent

    def producer(self, compression: str) -> Producer:
        options: dict[str, Any] = {"compression": compression, **command_security()}
        return Producer(
            self._bootstrap,
            delivery_timeout_ms=milliseconds(self._timeout_s),
            max_block_ms=milliseconds(self._timeout_s),
            max_request_size=_REQUEST_BYTES,
            buffer_memory=2 * _REQUEST_BYTES,
            on_wait=tell_wait,
            **options,
        )

    def consumer(self) -> Consumer:
        return Consumer(
            self._bootstrap, auto_offset_reset="none", on_wait=tell_wait, **command_security()
        )

    def compare(self, consumer: Consumer, log: SourceLog) -> tuple[Comparison, int]:
        """Compare all records of a partition of the cluster with the records of the log.

        The first ones may be deleted in the cluster already, because they are older than the topic
        keeps them. Returns their number, too.
        """
        name = log.summary.partition
        consumer.assign([name])
        consumer.resume(name)  # an earlier comparison has paused it at its end
        begin = consumer.beginning_offsets([name])[name]
        end = consumer.end_offsets([name])
        consumer.seek(*name, begin)
        source = _behind(log.records(), begin)
        target = records_until(consumer, end, self._timeout_s)
        comparison = Comparison()
        while not comparison.is_over:
            if comparison.wants_source:
                comparison.take(next(source, None), of_source=True)
            else:
                comparison.take(next(target, None), of_source=False)
        return comparison, begin


def _check_partitions(topic: NewTopic, known: int) -> None:
    """Raises CommandError."""
    if topic.partitions != known:
        raise CommandError(
            f"topic {topic.name!r} has {topic.partitions} partitions in the directories and "
            f"{known} in the cluster: keys would come to other partitions. Delete the topic, or "
            "create it with as many"
        )


def _check_is_empty(admin: Admin, topic: NewTopic) -> None:
    """Raises CommandError."""
    ends = _ends(admin, [TopicPartition(topic.name, number) for number in range(topic.partitions)])
    for name, end in ends.items():
        if end > 0:
            raise CommandError(
                f"{name} has records already, up to offset {end}: delete the topic, or go on with "
                "an import that was interrupted by --resume"
            )


def _ends(admin: Admin, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    found = admin.list_offsets({(each.topic, each.partition): _LATEST for each in partitions})
    return {name: each.offset for name, each in found.items()}


def _outgoing(topic: str, partition: int, record: Record) -> ProducerRecord:
    return ProducerRecord(
        topic, record.value, record.key, record.headers, record.timestamp_ms, partition
    )


def _behind(batches: Iterator[list[Record]], count: int) -> Iterator[Sequence[Record]]:
    for records in batches:
        if count < len(records):
            yield records[count:]
        count = max(0, count - len(records))
