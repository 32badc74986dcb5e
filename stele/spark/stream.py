"""The driver's side of a streaming query: offsets, admission control, partitions of a batch."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from stele.errors import ApiError
from stele.ids import TopicPartition
from stele.spark.batch import RangePartition
from stele.spark.cluster import GONE, Cluster, MissingTopicError, Topics
from stele.spark.offsets import DataLossError, Logs, split, starts
from stele.spark.options import SourceOptions
from stele.spark.reading import read_range
from stele.spark.stream_offsets import (
    StreamOffsets,
    check_subscription,
    next_offsets,
    ranges,
)

if TYPE_CHECKING:
    from stele import Consumer

log = logging.getLogger(__name__)


class SteleStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming query. Spark keeps the object in one process of the driver while it runs, and
    sends copies of it to the tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster: Cluster | None = None
        self._mirror: Consumer | None = None
        # The ends at the start of a query with Trigger.AvailableNow: it reads no further.
        self._target: dict[TopicPartition, int] | None = None
        self._last_batch_at = time.monotonic()
        self._is_checked = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cluster": None, "_mirror": None}

    # ------------------------------------------------------------------------ offsets

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as below
        cluster = self._asked()
        topics = cluster.topics()
        logs = cluster.logs_of(topics)
        return StreamOffsets(starts(self._options, logs), topics.ids).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.max_offsets_per_trigger
        return ReadMaxRows(limit) if limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = dict(self._logs().ends)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        options, begin = self._options, StreamOffsets.from_json(start)
        logs = self._logs(begin)
        found = next_offsets(
            begin,
            logs,
            max_rows=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            min_rows=self._min_rows(),
            fail_on_data_loss=options.fail_on_data_loss,
        )
        if found.offsets != begin.offsets:
            self._last_batch_at = time.monotonic()
        return found.to_json()

    def _min_rows(self) -> int:
        waited_ms = (time.monotonic() - self._last_batch_at) * 1000
        waits = self._target is None and waited_ms < self._options.max_trigger_delay_ms
        return self._options.min_offsets_per_trigger if waits else 0

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        logs = self._logs()
        return StreamOffsets(logs.ends, logs.topic_ids).to_json()

    def _logs(self, start: StreamOffsets | None = None) -> Logs:
        """The logs of all partitions that the query reads now. With ``failOnDataLoss=false`` those
        that were deleted are left out, otherwise it raises DataLossError."""
        topics = self._topics()
        if start is not None and not self._is_checked:
            check_subscription(start, self._options.subscription)
            self._is_checked = True
        logs = self._logs_of(topics)
        if self._target is not None:
            target = self._target
            ends = {
                name: min(end, target[name]) for name, end in logs.ends.items() if name in target
            }
            beginnings = {name: logs.beginnings[name] for name in ends}
            logs = replace(logs, ends=ends, beginnings=beginnings)
        return logs

    def _topics(self) -> Topics:
        try:
            return self._asked().topics(may_lack=not self._options.fail_on_data_loss)
        except MissingTopicError as error:
            raise DataLossError(
                f"{error}: it was deleted, or never there; failOnDataLoss=false goes on without it"
            ) from error

    def _logs_of(self, topics: Topics) -> Logs:
        while True:
            try:
                logs = self._asked().logs(topics.partitions)
            except ApiError as error:
                before, topics = topics, self._topics()
                if error.code not in GONE or topics == before:
                    raise  # nothing was deleted since the topics were listed
            else:
                return replace(logs, topic_ids=topics.ids)

    def _asked(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._options)
        return self._cluster

    # ------------------------------------------------------------------------ batches

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        options = self._options
        begin, until = StreamOffsets.from_json(start), StreamOffsets.from_json(end)
        pieces = split(
            ranges(begin, until),
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
        return [RangePartition(each) for each in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return read_range(self._options, partition.range)

    def commit(self, end: dict[str, Any]) -> None:
        """Show the group how far the query has come. The checkpoint is what counts, so a failure is
        only logged."""
        if not self._options.group_id:
            return
        offsets = StreamOffsets.from_json(end).offsets
        try:
            consumer = self._group_member(list(offsets))
            consumer.commit({(topic, number): at for (topic, number), at in offsets.items()})
        except Exception as error:
            log.warning("offsets are not committed for group %s: %s", self._options.group_id, error)

    def _group_member(self, partitions: list[TopicPartition]) -> Consumer:
        from stele import Consumer

        if self._mirror is None:
            self._mirror = Consumer(
                self._options.bootstrap_servers,
                **self._options.client,
                group_id=self._options.group_id,
                enable_auto_commit=False,
            )
        self._mirror.assign(partitions)
        self._mirror.pause()
        return self._mirror

    def stop(self) -> None:
        for client in (self._cluster, self._mirror):
            if client is not None:
                client.close()
        self._cluster = self._mirror = None
